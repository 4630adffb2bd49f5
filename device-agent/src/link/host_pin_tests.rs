//! Known-hosts files, case by case; ssh-keygen itself makes the hashed names.

use std::process::Command;

use super::*;

const HOST_KEY_LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILRI0lf54e2o+kM7ySftCaYIRfdujbIamvVLFRzpj6js";

fn key() -> PublicKey {
    HOST_KEY_LINE.parse().expect("a key")
}

fn other() -> String {
    russh::keys::PrivateKey::random(&mut rand::rng(), russh::keys::Algorithm::Ed25519)
        .and_then(|key| key.public_key().to_openssh())
        .expect("a key")
}

fn check_at(text: &str, host: &str, port: u16) -> Result<(), HostKeyError> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("known_hosts");
    std::fs::write(&file, text).expect("written");
    verify(&HostPin::KnownHosts(file), host, port, &key())
}

fn check(text: &str) -> Result<(), HostKeyError> {
    check_at(text, "gw.example.com", 22)
}

#[test]
fn an_entry_for_the_host_lets_it_in_however_it_is_written() {
    for patterns in ["gw.example.com", "GW.Example.COM", "*.example.com", "gw.exampl?.com", "a,gw.example.com,b", "*"] {
        assert_eq!(check(&format!("{patterns} {HOST_KEY_LINE} comment")), Ok(()), "{patterns}");
        assert_eq!(check(&format!("# a comment\n\n  {patterns}\t{HOST_KEY_LINE}\r\n")), Ok(()), "{patterns} with tabs");
    }
    assert_eq!(check_at(&format!("[gw.example.com]:2222 {HOST_KEY_LINE}"), "GW.example.com", 2222), Ok(()));
    assert_eq!(check_at(&format!("::1 {HOST_KEY_LINE}"), "::1", 22), Ok(()));
    assert_eq!(check_at(&format!("[::1]:2222 {HOST_KEY_LINE}"), "::1", 2222), Ok(()));
}

#[test]
fn an_entry_for_another_host_or_port_does_not() {
    for patterns in
        ["example.com", "gw.example.co", "xgw.example.com", "*.com,!gw.example.com", "!gw.example.com,*", "!*", "?"]
    {
        assert!(
            matches!(check(&format!("{patterns} {HOST_KEY_LINE}")), Err(HostKeyError::Unknown { .. })),
            "{patterns}"
        );
    }
    for (patterns, port) in [("gw.example.com", 2222), ("[gw.example.com]:2222", 22), ("[gw.example.com]:2222", 2223)] {
        let result = check_at(&format!("{patterns} {HOST_KEY_LINE}"), "gw.example.com", port);
        assert!(matches!(result, Err(HostKeyError::Unknown { .. })), "{patterns} at {port}");
    }
}

#[test]
fn a_hashed_name_is_recognised() {
    for (host, port, name) in [("gw.example.com", 22, "gw.example.com"), ("::1", 2222, "[::1]:2222")] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("known_hosts");
        std::fs::write(&file, format!("{name} {HOST_KEY_LINE}\n")).expect("written");
        let hashed = Command::new("ssh-keygen").arg("-H").arg("-f").arg(&file).output().expect("ssh-keygen runs");
        assert!(hashed.status.success());
        let text = std::fs::read_to_string(&file).expect("there");
        assert!(text.starts_with("|1|"), "{text}");
        assert_eq!(check_at(&text, host, port), Ok(()));
        assert!(matches!(check_at(&text, "other.example.com", port), Err(HostKeyError::Unknown { .. })));
    }
}

#[test]
fn one_of_several_keys_is_enough_and_none_of_them_is_a_change() {
    let other = other();
    assert_eq!(check(&format!("gw.example.com {other}\ngw.example.com {HOST_KEY_LINE}\n")), Ok(()));
    let Err(HostKeyError::Changed { pinned, presented, .. }) = check(&format!("gw.example.com {other}\n")) else {
        panic!("a change")
    };
    assert_eq!(presented, key().fingerprint(HashAlg::Sha256).to_string());
    assert_eq!(pinned, [other.parse::<PublicKey>().expect("a key").fingerprint(HashAlg::Sha256).to_string()]);
}

#[test]
fn a_revoked_key_is_refused_wherever_else_it_stands() {
    for revoked in ["@revoked * ", "@revoked gw.example.com ", "@revoked old-name.example.com "] {
        for text in [
            format!("gw.example.com {HOST_KEY_LINE}\n{revoked}{HOST_KEY_LINE}"),
            format!("{revoked}{HOST_KEY_LINE}\ngw.example.com {HOST_KEY_LINE}"),
        ] {
            assert!(matches!(check(&text), Err(HostKeyError::Revoked { .. })), "{text}");
        }
    }
}

#[test]
fn a_certificate_authority_is_not_a_host_key() {
    assert!(matches!(check(&format!("@cert-authority * {HOST_KEY_LINE}")), Err(HostKeyError::Unknown { .. })));
}

#[test]
fn what_cannot_be_read_never_lets_anyone_in() {
    assert!(matches!(
        check(&format!("gw.example.com {HOST_KEY_LINE}\n@revoked gw.example.com ssh-ed25519 ???")),
        Err(HostKeyError::File { .. })
    ));
    assert!(matches!(check(&format!("@whatever * {HOST_KEY_LINE}")), Err(HostKeyError::File { .. })));
    assert!(matches!(check("gw.example.com ssh-ed25519 ???"), Err(HostKeyError::Unknown { .. })));
    assert_eq!(check(&format!("some nonsense\n|1|x|y {HOST_KEY_LINE}\ngw.example.com {HOST_KEY_LINE}")), Ok(()));
    let missing = HostPin::KnownHosts("/nonexistent/known_hosts".into());
    assert!(matches!(verify(&missing, "gw", 22, &key()), Err(HostKeyError::File { .. })));
}

#[test]
fn only_a_sha256_fingerprint_is_a_pin() {
    let right = key().fingerprint(HashAlg::Sha256).to_string();
    assert!(format!(" {right}\n").parse::<PinnedFingerprint>().is_ok());
    for wrong in ["", "SHA256:", "SHA256:abc", &right[7..], &right.replace("SHA256", "MD5"), "MD5:aa:bb"] {
        assert_eq!(wrong.parse::<PinnedFingerprint>(), Err(InvalidFingerprint), "{wrong}");
    }
    let pin = HostPin::Fingerprint(right.parse().expect("right"));
    assert_eq!(verify(&pin, "gw", 22, &key()), Ok(()));
}

#[test]
fn patterns_with_many_stars_are_decided_quickly() {
    let pattern = "*a".repeat(40) + "b";
    assert!(!glob(pattern.as_bytes(), "a".repeat(200).as_bytes()));
    assert!(glob(b"*.*.com", b"gw.example.com") && glob(b"", b"") && !glob(b"", b"x") && glob(b"***", b""));
}
