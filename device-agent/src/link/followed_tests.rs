use std::path::PathBuf;

use super::*;

fn key(number: u8) -> PublicKey {
    PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&[number; 32]))
}

fn target(file: PathBuf, pinned: &PublicKey) -> Ssh {
    Ssh {
        host: "gateway.example.com".to_owned(),
        port: 7822,
        user: "deskgate".to_owned(),
        socket_path: "/run/deskgate/control.sock".to_owned(),
        pin: HostPin::Fingerprint(pinned.fingerprint().parse().expect("a fingerprint")),
        followed: Some(file),
    }
}

fn good(target: &Ssh, presented: &PublicKey) -> Option<Result<(), HostKeyError>> {
    verify(target, &presented.to_string().parse().expect("a key"))
}

#[test]
fn an_announced_key_is_trusted_and_one_that_is_announced_no_more_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (key(1), key(2));
    let ssh = target(folder.path().join("host_keys"), &old);
    follow(&ssh, &old, &[old]);
    assert_eq!(good(&ssh, &old), None, "nothing new was said, so the pin alone decides");
    assert_eq!(unknown(&ssh, &old, &[old, new]), [new]);

    follow(&ssh, &old, &[old, new]);
    assert!([&old, &new].iter().all(|key| good(&ssh, key) == Some(Ok(()))));
    assert!(unknown(&ssh, &old, &[old, new]).is_empty());

    follow(&ssh, &new, &[new]);
    assert_eq!(good(&ssh, &new), Some(Ok(())));
    let Some(Err(HostKeyError::Changed { pinned, presented, .. })) = good(&ssh, &old) else { panic!("it is refused") };
    assert_eq!((pinned, presented), (vec![new.fingerprint()], old.fingerprint()));
}

#[test]
fn what_does_not_hold_the_shown_key_or_too_many_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (key(1), key(2));
    let ssh = target(folder.path().join("host_keys"), &old);
    follow(&ssh, &old, &[new]);
    follow(&ssh, &old, &(1..=9).map(key).collect::<Vec<_>>());
    assert_eq!(good(&ssh, &new), None);
    assert!(!folder.path().join("host_keys").exists());
}

#[test]
fn another_fingerprint_or_address_from_a_person_ends_what_was_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (key(1), key(2));
    let ssh = target(folder.path().join("host_keys"), &old);
    follow(&ssh, &old, &[old, new]);
    assert_eq!(good(&target(folder.path().join("host_keys"), &key(3)), &new), None);
    assert_eq!(good(&Ssh { port: 22, ..ssh.clone() }, &new), None);
    assert_eq!(good(&Ssh { pin: HostPin::KnownHosts("known_hosts".into()), ..ssh }, &new), None);
}

#[test]
fn a_damaged_record_blocks_because_the_pinned_key_may_be_an_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host_keys");
    let ssh = target(file.clone(), &key(1));
    for text in ["", "{", r#"{"address":"gateway.example.com:7822","pinned":"PIN","keys":["x"]}"#] {
        std::fs::write(&file, text.replace("PIN", &key(1).fingerprint())).expect("written");
        let Some(Err(error @ HostKeyError::File { .. })) = good(&ssh, &key(1)) else { panic!("it is refused") };
        assert!(error.to_string().contains("remove it"), "{error}");
    }
}
