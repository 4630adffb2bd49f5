//! What a file keeps when it is changed, besides its mode and its owner: attributes and access control lists.

use std::os::unix::fs::MetadataExt;

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::json;

use super::*;

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// An access control list in the kernel's form: the owner, one more user, the group, the mask, and the others.
fn list(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let entries = [
        (0x01, owner, u32::MAX),
        (0x02, user, 4711),
        (0x04, group, u32::MAX),
        (0x10, mask, u32::MAX),
        (0x20, other, u32::MAX),
    ];
    let entry =
        |(tag, may, who): (u16, u16, u32)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &who.to_le_bytes()].concat();
    2_u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(4096);
    match getxattr(path, name, spare_capacity(&mut value)) {
        Err(Errno::NODATA) => None,
        read => {
            read.expect("readable");
            Some(value)
        }
    }
}

/// `false`, with a message, if this file system has no such attributes.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => {
            println!("SKIPPED: no {name} on this file system");
            false
        }
        set => set.is_ok(),
    }
}

async fn edit(inside: &Path) {
    let toolbox = toolbox(inside);
    for (tool, arguments) in [
        ("Read", json!({ "file_path": "a.txt" })),
        ("Edit", json!({ "file_path": "a.txt", "old_string": "old", "new_string": "new" })),
    ] {
        let output = toolbox.call(tool, arguments, CancellationToken::new()).await.expect("stands");
        assert!(!output.is_error, "{}", output.text);
    }
}

#[tokio::test]
async fn a_changed_file_keeps_its_attributes_and_its_access_control_list() {
    let place = place();
    let inside = place.path().join("in");
    let path = inside.join("a.txt");
    write(&path, "old\n");
    let acl = list(6, 7, 0, 5, 0);
    if !set(&path, "user.origin", b"somewhere\0else") || !set(&path, "user.empty", b"") || !set(&path, ACCESS_ACL, &acl)
    {
        return;
    }
    let mode = std::fs::metadata(&path).expect("there").mode();
    // A capability belongs to the content that it was given to.
    let capable = rustix::process::geteuid().is_root()
        && set(&path, "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    edit(&inside).await;
    assert_eq!(attribute(&path, "user.origin").as_deref(), Some(&b"somewhere\0else"[..]));
    assert_eq!(attribute(&path, "user.empty").as_deref(), Some(&b""[..]));
    assert_eq!(attribute(&path, ACCESS_ACL), Some(acl));
    assert_eq!(std::fs::metadata(&path).expect("there").mode(), mode);
    assert!(!capable || attribute(&path, "security.capability").is_none());
}

#[tokio::test]
async fn a_changed_file_gets_no_access_control_list_from_its_directory() {
    let place = place();
    let inside = place.path().join("in");
    let path = inside.join("a.txt");
    write(&path, "old\n");
    if !set(&inside, DEFAULT_ACL, &list(7, 7, 7, 7, 0)) {
        return;
    }
    let mode = std::fs::metadata(&path).expect("there").mode();
    edit(&inside).await;
    assert_eq!((attribute(&path, ACCESS_ACL), std::fs::metadata(&path).expect("there").mode()), (None, mode));
    // A new file inherits it, as every new file there does.
    ok(&inside, "Write", json!({ "file_path": "b.txt", "content": "x" })).await;
    assert!(attribute(&inside.join("b.txt"), ACCESS_ACL).is_some());
}
