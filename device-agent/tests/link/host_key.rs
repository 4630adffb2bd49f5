//! The server's key is checked before the device sends anything.

use std::sync::atomic::{AtomicBool, Ordering};

use deskgate::link::{HostKeyError, HostPin, LinkError, Ssh};
use deskgate_gateway::tunnel::HostKey;
use deskgate_protocol::identity::PublicKey;
use ed25519_dalek::SigningKey;
use russh::keys::ssh_key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::server::SshServer;
use crate::support::{connect, followed, pinned, ssh, trusted_keys};

const OTHER_FINGERPRINT: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn a_changed_host_key_blocks_and_both_fingerprints_stand_side_by_side() {
    let mut server = SshServer::start().await;
    let error = connect(ssh(server.port, pinned(OTHER_FINGERPRINT)), &server.credentials()).await.expect_err("refused");
    assert!(error.is_blocked());
    let LinkError::HostKey(HostKeyError::Changed { pinned, presented, .. }) = &error else { panic!("{error}") };
    assert_eq!((pinned.as_slice(), presented), (&[OTHER_FINGERPRINT.to_owned()][..], &server.host_key.fingerprint()));
    let text = error.to_string();
    assert!(text.contains(OTHER_FINGERPRINT) && text.contains(&server.host_key.fingerprint()), "{text}");
    assert!(server.arrivals.try_recv().is_err());
}

#[tokio::test]
async fn without_a_pin_nothing_is_trusted_and_the_presented_fingerprint_is_shown() {
    let server = SshServer::start().await;
    let error = connect(ssh(server.port, HostPin::Missing), &server.credentials()).await.expect_err("refused");
    assert!(error.is_blocked());
    assert!(error.to_string().contains(&server.host_key.fingerprint()), "{error}");
}

#[tokio::test]
async fn a_known_hosts_file_lets_in_whom_it_names_and_no_one_else() {
    let mut server = SshServer::start().await;
    server.echo();
    let file = server.folder.path().join("known_hosts");
    let pin = HostPin::KnownHosts(file.clone());
    let entry = format!("[127.0.0.1]:{} {}\n", server.port, server.host_key.public_key());
    let other = HostKey::load_or_create(&server.folder.path().join("other")).expect("made");

    for (content, welcome) in [
        (entry.clone(), true),
        (entry.replace(&server.host_key.public_key().to_string(), &other.public_key().to_string()), false),
        (format!("{entry}@revoked * {}\n", server.host_key.public_key()), false),
        (String::new(), false),
    ] {
        std::fs::write(&file, &content).expect("written");
        match connect(ssh(server.port, pin.clone()), &server.credentials()).await {
            Ok(_) => assert!(welcome, "{content}"),
            Err(error) => assert!(!welcome && error.is_blocked(), "{content}: {error}"),
        }
    }
}

/// SSH_MSG_NEWKEYS, unencrypted: five bytes of head, the message, ten bytes of padding. russh may have sent it by the
/// time it asks for a decision about the key. It ends the key exchange and carries no data.
const NEW_KEYS: (usize, u8) = (16, 21);

#[tokio::test]
async fn an_unverified_server_hears_nothing_after_the_key_exchange() {
    let mut server = SshServer::start().await;
    server.echo();
    let refusing = said_after_exchange(&server, pinned(OTHER_FINGERPRINT)).await;
    assert!(refusing.is_empty() || (refusing.len(), refusing[5]) == NEW_KEYS, "{refusing:?}");
    let trusting = said_after_exchange(&server, pinned(&server.host_key.fingerprint())).await;
    assert!(trusting.len() > 500 && trusting[5] == NEW_KEYS.1, "the measure works: {trusting:?}");
}

/// A relay between device and server that records what the device sends after the server's proof.
async fn said_after_exchange(server: &SshServer, pin: HostPin) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let upstream = server.port;
    let between = async {
        let (device, _) = listener.accept().await.expect("the device dials");
        let server = TcpStream::connect(("127.0.0.1", upstream)).await.expect("the server is there");
        relay(device, server).await
    };
    let credentials = server.credentials();
    let attempt = async { drop(connect(ssh(port, pin), &credentials).await) };
    crate::support::soon("both end", async { tokio::join!(attempt, between) }).await.1
}

/// A server with the right key that leaves out the names of strict key exchange.
struct LaxServer;

impl russh::server::Handler for LaxServer {
    type Error = russh::Error;
}

#[tokio::test]
async fn a_server_without_strict_key_exchange_is_refused_even_with_the_right_key() {
    let private = russh::keys::PrivateKey::random(&mut rand::rng(), russh::keys::Algorithm::Ed25519).expect("a key");
    let pin = pinned(&private.public_key().fingerprint(russh::keys::HashAlg::Sha256).to_string());
    let preferred = russh::Preferred { kex: vec![russh::kex::CURVE25519].into(), ..russh::Preferred::default() };
    let config = russh::server::Config { keys: vec![private], preferred, ..Default::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let lax = async {
        let (socket, _) = listener.accept().await.expect("dialled");
        let _ = russh::server::run_stream(config.into(), socket, LaxServer).await.expect("greeted").await;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let credentials = crate::support::credentials(
        &crate::support::device_key(folder.path(), "device"),
        &deskgate_protocol::secret::ControlToken::generate(),
    );
    let attempt = connect(ssh(port, pin), &credentials);
    let (result, ()) = crate::support::soon("both end", async { tokio::join!(attempt, lax) }).await;
    assert!(matches!(result, Err(LinkError::HostKey(HostKeyError::NotStrict(_)))), "{result:?}");
}

async fn relay(device: TcpStream, server: TcpStream) -> Vec<u8> {
    let (mut from_device, mut to_device) = device.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replied = AtomicBool::new(false);
    let mut said = Vec::new();
    let up = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = from_device.read(&mut buffer).await {
            if replied.load(Ordering::SeqCst) {
                said.extend_from_slice(&buffer[..n]);
            }
            if to_server.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        let _ = to_server.shutdown().await;
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        let mut seen = Vec::new();
        while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
            seen.extend_from_slice(&buffer[..n]);
            if exchange_replied(&seen) {
                replied.store(true, Ordering::SeqCst);
            }
            if to_device.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
        let _ = to_device.shutdown().await;
    };
    tokio::join!(up, down);
    said
}

/// Whether the server's unencrypted packets include SSH_MSG_KEX_ECDH_REPLY (31).
fn exchange_replied(bytes: &[u8]) -> bool {
    let Some(mut at) = bytes.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2) else { return false };
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        match bytes.get(at + 5) {
            Some(31) => return true,
            Some(20) => at += 4 + length,
            _ => return false,
        }
    }
    false
}

#[tokio::test]
async fn a_key_is_followed_only_if_its_owner_signed_that_it_is_the_gateways() {
    let mut server = SshServer::start().await;
    let (next, stolen) = (SigningKey::from_bytes(&[5; 32]), SigningKey::from_bytes(&[6; 32]));
    let shown = server.folder.path().join("host/ssh_host_ed25519_key");
    let shown = ssh_key::PrivateKey::read_openssh_file(&shown).expect("the server's key");
    let shown = SigningKey::from_bytes(&shown.key_data().ed25519().expect("such a key").private.to_bytes());
    let own = (PublicKey::of(&shown), shown);
    let ssh = Ssh { followed: Some(followed(server.folder.path().join("followed"))), ..server.ssh() };
    let credentials = server.credentials();
    for (announced, trusted) in [
        // Somebody else's key, with a signature that is not its owner's.
        (vec![own.clone(), (PublicKey::of(&stolen), own.1.clone())], None),
        (vec![own.clone(), (PublicKey::of(&next), next.clone())], Some(vec![own.0, PublicKey::of(&next)])),
        // Without the key that was shown, none is trusted.
        (vec![(PublicKey::of(&next), next.clone())], Some(vec![own.0, PublicKey::of(&next)])),
    ] {
        server.gateway.host_keys = announced;
        let gateway = server.gateway.clone();
        let ssh = ssh.clone();
        let (session, _) = tokio::join!(connect(ssh.clone(), &credentials), async {
            let arrival = server.arrival().await;
            gateway.greet(arrival.stream).await
        });
        session.expect("it is let in in any case");
        assert_eq!(trusted_keys(&ssh), trusted);
    }
}
