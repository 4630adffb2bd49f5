//! Keys: a key that is read is written the same, a claim needs its signature, and an error repeats no secret.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::LazyLock;

use deskgate::account::GatewayAddress;
use deskgate::link::{HostPin, PinnedFingerprint, host_pin};
use deskgate_gateway::domain::webhooks::secrets;
use deskgate_gateway::networks::{Network, Networks, source};
use deskgate_gateway::signing::SigningSecret;
use deskgate_gateway::tunnel::HostKey;
use deskgate_protocol::GatewayId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::identity::{HelloProof, IdentityFile, PublicKey, RecognisedServer};
use deskgate_protocol::management::WebhookScheme;
use deskgate_protocol::secret::{ApplicationKey, ControlToken};
use ed25519_dalek::SigningKey;

use super::folder;

/// Judges a text as each kind of key, and bytes as changes of an identity file.
pub fn judge(bytes: &[u8]) {
    bent_identity(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    public_key(text);
    secrets_of(text);
    known_hosts(text);
    addresses(text);
    if text.contains("PRIVATE KEY") {
        host_key(text);
    }
}

fn public_key(text: &str) {
    if let Ok(key) = text.parse::<PublicKey>() {
        let written = key.to_string();
        assert_eq!(written.parse::<PublicKey>().as_ref(), Ok(&key));
        assert!(text.split_ascii_whitespace().take(2).eq(written.split(' ')), "{written}");
        let pinned: PinnedFingerprint = key.fingerprint().parse().expect("a fingerprint");
        assert_eq!(pinned.to_string(), key.fingerprint());
        assert!(key.fingerprint().len() == 50 && key.short_code().len() == 19);
    }
    if let Ok(pinned) = text.parse::<PinnedFingerprint>() {
        assert_eq!(pinned.to_string(), text.trim());
    }
    if let Ok(file) = IdentityFile::read(text) {
        assert_eq!(file.fingerprint, file.public_key.fingerprint());
        let written = serde_json::to_string(&file).expect("it is JSON");
        assert_eq!(IdentityFile::read(&written).as_ref(), Ok(&file));
        assert!(file.public_key != PUBLIC[0] || file == *IDENTITY, "a forged file");
    }
    // A proof with an arbitrary signature.
    let gateway_id = GatewayId::from(EMPTY);
    let server = &RecognisedServer::HostKey(PUBLIC[1]);
    let proof = HelloProof { gateway_id, nonce: "n", gateway_version: "0.1.0", device_version: "0.1.0", server };
    assert!(!proof.verify(&PUBLIC[0], text), "a forged proof");
}

const EMPTY: uuid::Uuid = uuid::Uuid::nil();

/// The public halves of two keys.
static PUBLIC: LazyLock<[PublicKey; 2]> =
    LazyLock::new(|| [7, 8].map(|seed| PublicKey::of(&SigningKey::from_bytes(&[seed; 32]))));

/// The file that the first key exported.
static IDENTITY: LazyLock<IdentityFile> = LazyLock::new(|| {
    let at = "2026-11-21T09:00:00Z".parse().expect("a time");
    IdentityFile::sign(&SigningKey::from_bytes(&[7; 32]), "anna's laptop", at)
});

/// An exported file with some changed bytes: it is refused, or it has the same content.
fn bent_identity(bytes: &[u8]) {
    let mut file = serde_json::to_vec_pretty(&*IDENTITY).expect("it is JSON");
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % file.len();
        file[place] = change[2];
    }
    let Ok(text) = std::str::from_utf8(&file) else { return };
    if let Ok(read) = IdentityFile::read(text) {
        assert_eq!(read, *IDENTITY, "a changed file is taken");
    }
}

fn secrets_of(text: &str) {
    let sum = Sha256Digest::of(text.as_bytes()).to_string();
    for text in [text.to_owned(), format!("{text}_{}", &sum[..8])] {
        match text.parse::<ApplicationKey>() {
            Ok(key) => {
                assert_eq!(key.reveal(), text);
                assert!(key.last4().len() == 4 && text.contains(key.last4()));
                assert!(!format!("{key:?}").contains(key.reveal()));
                let secret = text.rsplit('_').nth(1).expect("it has a secret");
                assert!(secret.len() >= 32, "a secret of {} characters", secret.len());
            }
            Err(error) => silent(&text, &error.to_string()),
        }
        match text.parse::<ControlToken>() {
            Ok(token) => {
                assert_eq!(token.reveal(), text);
                let secret = text.rsplit('_').nth(1).expect("it has a secret");
                assert!(secret.len() >= 32, "a secret of {} characters", secret.len());
            }
            Err(error) => silent(&text, &error.to_string()),
        }
    }
    match SigningSecret::parse(text) {
        Ok(secret) => {
            assert!((24..=64).contains(&secret.bytes().len()));
            assert_eq!(secret.reveal().as_str(), text.trim());
            assert!(!format!("{secret:?}").contains(secret.reveal().as_str()));
        }
        Err(error) => silent(text, &error.to_string()),
    }
    for scheme in [WebhookScheme::StandardWebhooks {}, WebhookScheme::Github {}, WebhookScheme::Stripe {}] {
        match secrets::read(&scheme, text) {
            Ok(bytes) => assert!((8..=255).contains(&bytes.len())),
            Err(error) => silent(text, &error.to_string()),
        }
    }
}

/// Checks that an error does not repeat a text that may be a secret. Short texts may be ordinary words.
fn silent(text: &str, said: &str) {
    let is_secret = text.len() >= 20 && text.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(!is_secret || !said.contains(text), "a secret is repeated: {said}");
}

/// A known-hosts file: it accepts only a key that it lists, and never one that it revokes.
fn known_hosts(text: &str) {
    let folder = folder();
    let file = folder.path().join("known_hosts");
    std::fs::write(&file, text).expect("written");
    let pin = HostPin::KnownHosts(file);
    for (key, host, port) in [(0, "gateway.example.com", 22), (0, "gateway.example.com", 7822), (1, "10.0.0.1", 22)] {
        let own = PUBLIC[key].to_string();
        let ssh = russh::keys::ssh_key::PublicKey::from_openssh(&own).expect("as OpenSSH writes it");
        let trusted = host_pin::verify(&pin, host, port, &ssh).is_ok();
        let encoded = own.split(' ').nth(1).expect("type and key");
        let lines = || text.lines().filter(|line| line.contains(encoded) && !line.trim_start().starts_with('#'));
        assert!(!trusted || lines().any(|line| !line.trim_start().starts_with('@')), "{host} is vouched for by nobody");
        let revoked = lines().any(|line| {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            words.first() == Some(&"@revoked") && words.get(3) == Some(&encoded)
        });
        assert!(!trusted || !revoked, "a revoked key of {host} is trusted");
        assert!(host_pin::verify(&HostPin::Missing, host, port, &ssh).is_err());
        if let Ok(pinned) = text.parse::<PinnedFingerprint>() {
            let same = pinned.to_string() == PUBLIC[key].fingerprint();
            assert_eq!(host_pin::verify(&HostPin::Fingerprint(pinned), host, port, &ssh).is_ok(), same);
        }
    }
}

fn addresses(text: &str) {
    if let Ok(network) = text.parse::<Network>() {
        let own = text.split('/').next().and_then(|own| own.parse::<std::net::IpAddr>().ok()).expect("an address");
        assert!(network.contains(own) || own != own.to_canonical(), "{text}");
        assert_eq!(source(source(own)), source(own));
    }
    let _ = text.parse::<Networks>();
    if let Ok(address) = GatewayAddress::parse(text) {
        assert_eq!(GatewayAddress::parse(address.as_str()).as_ref(), Ok(&address), "read again it is the same");
        let text = address.as_str();
        let host = address.url("").and_then(|url| url.host_str().map(str::to_owned));
        let is_here = matches!(host.as_deref(), Some("localhost" | "127.0.0.1" | "[::1]"));
        assert!(text.starts_with("https://") || text.starts_with("http://") && is_here, "{text}");
    }
}

/// A file in place of a gateway's host key: it is a key or it is refused, and stays unchanged.
fn host_key(text: &str) {
    let folder = folder();
    let file = folder.path().join("host_key");
    write(&file, text);
    let read = HostKey::load_or_create(&file);
    assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), Some(text), "the file was changed");
    match (read, HostKey::load_or_create(&file)) {
        (Ok(one), Ok(other)) => assert_eq!(one.fingerprint(), other.fingerprint()),
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        _ => panic!("read once, and once not"),
    }
}

fn write(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).expect("new");
    file.write_all(text.as_bytes()).expect("written");
}
