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
        followed: Some(FollowedKeysFile { path: file, pin_count: 1, read_only: false }),
    }
}

fn of_pin(target: &Ssh, pin_count: u32) -> Ssh {
    let followed = target.followed.clone().map(|file| FollowedKeysFile { pin_count, ..file });
    Ssh { followed, ..target.clone() }
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
fn the_same_fingerprint_from_a_person_ends_what_was_followed_whichever_key_the_server_has_since() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (key(1), key(2));
    let ssh = target(folder.path().join("host_keys"), &old);
    follow(&ssh, &old, &[old, new]);
    assert_eq!(good(&of_pin(&ssh, 2), &new), None, "the announced key is not trusted, the pin decides");
    follow(&ssh, &new, &[new]);
    assert!(matches!(good(&ssh, &old), Some(Err(HostKeyError::Changed { .. }))), "the old one was forgotten");
    assert_eq!(good(&of_pin(&ssh, 2), &old), None, "pinned again, it is not locked out: the pin decides");
}

#[test]
fn a_test_of_a_draft_goes_by_what_was_followed_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (key(1), key(2));
    let ssh = target(folder.path().join("host_keys"), &old);
    follow(&ssh, &old, &[old, new]);
    let tested = ssh.followed.clone().map(|file| FollowedKeysFile { read_only: true, ..file });
    let tested = Ssh { followed: tested, ..ssh.clone() };
    assert_eq!(good(&tested, &new), Some(Ok(())));
    follow(&Ssh { host: "other.example.com".to_owned(), ..tested.clone() }, &old, &[old, key(3)]);
    follow(&tested, &new, &[new]);
    assert!([&old, &new].iter().all(|key| good(&ssh, key) == Some(Ok(()))));
}

#[test]
fn each_followed_key_says_when_and_by_which_key_it_was_first_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new, third) = (key(1), key(2), key(3));
    let ssh = target(folder.path().join("host_keys"), &old);
    let by = |ssh: &Ssh| {
        let keys = trusted_keys(ssh).expect("readable").expect("some");
        keys.into_iter().map(|known| (known.key, known.announcement.expect("noted"))).collect::<Vec<_>>()
    };
    follow(&ssh, &old, &[old, new]);
    let first = by(&ssh);
    assert!(first.iter().all(|(_, announcement)| announcement.by == old.fingerprint()));
    follow(&ssh, &new, &[new, third]);
    let second = by(&ssh);
    assert_eq!(second[0], first[1], "what was known stays as it was noted");
    assert_eq!((second[1].0, &second[1].1.by), (third, &new.fingerprint()));
}

#[test]
fn a_record_from_before_announcements_were_noted_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host_keys");
    let ssh = of_pin(&target(file.clone(), &key(1)), 0);
    let text = serde_json::json!({
        "address": "gateway.example.com:7822",
        "pinned": key(1).fingerprint(),
        "keys": [key(2).to_string()],
    });
    std::fs::write(&file, text.to_string()).expect("written");
    assert_eq!(trusted_keys(&ssh), Ok(Some(vec![FollowedKey { key: key(2), announcement: None }])));
}

#[test]
fn a_damaged_record_blocks_because_the_pinned_key_may_be_an_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host_keys");
    let ssh = target(file.clone(), &key(1));
    for text in ["", "{", r#"{"address":"gateway.example.com:7822","pinned":"PIN","pin_count":1,"keys":["x"]}"#] {
        std::fs::write(&file, text.replace("PIN", &key(1).fingerprint())).expect("written");
        let Some(Err(error @ HostKeyError::File { .. })) = good(&ssh, &key(1)) else { panic!("it is refused") };
        assert!(error.to_string().contains("connection drop-host-keys"), "{error}");
    }
}
