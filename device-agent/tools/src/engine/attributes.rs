//! Preserves a file's attributes when a new file replaces it: owner, mode, access control list, `user.*`.
//!
//! If an access control list or a `user.*` attribute cannot be preserved, the file is left unchanged: without its list,
//! a mode may grant more than before. `security.*` (capabilities, labels) and `trusted.*` are not copied: as in the
//! kernel, changed content loses its capabilities, and labels come from the directory.

use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::access::AccessError;

const ACL_ATTRIBUTE: &str = "system.posix_acl_access";
/// The size limit of a list of names, and of a value, in bytes, as in the kernel.
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// A file as it was when read for a change.
#[derive(Debug)]
pub(crate) struct OriginalFile {
    pub(crate) file: File,
    pub(crate) metadata: std::fs::Metadata,
    pub(crate) text: String,
}

/// Copies the original's attributes to a new file. Owner before mode: changing the owner clears rights in the mode. If
/// the owner cannot be set, those rights are not granted.
pub(crate) fn copy(original: &OriginalFile, file: &File) -> Result<(), AccessError> {
    let theirs = &original.metadata;
    let names = names(&original.file)?;
    for name in names.iter().filter(|name| name.starts_with("user.")) {
        carry(&original.file, file, name)?;
    }
    let ours = file.metadata()?;
    let same = (ours.uid(), ours.gid()) == (theirs.uid(), theirs.gid());
    let given = same || fchown(file, Some(theirs.uid()), Some(theirs.gid())).is_ok();
    if !given {
        let _ = fchown(file, None, Some(theirs.gid()));
    }
    if names.iter().any(|name| name == ACL_ATTRIBUTE) {
        carry(&original.file, file, ACL_ATTRIBUTE)?;
    } else {
        strip(file)?;
    }
    let kept = if given { 0o7777 } else { 0o777 };
    file.set_permissions(Permissions::from_mode(theirs.mode() & kept)).map_err(AccessError::from_writing)
}

/// The names of a file's attributes; empty if the file system has none.
fn names(file: &File) -> Result<Vec<String>, AccessError> {
    let mut list = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    match flistxattr(file, spare_capacity(&mut list)) {
        Err(errno) if has_none(errno) => {}
        listed => drop(listed.map_err(AccessError::reading)?),
    }
    // A name that is not text counts as one of `user.*`, which cannot be preserved then.
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).map_err(|_| AccessError::Attribute)).collect()
}

fn carry(from: &File, to: &File, name: &str) -> Result<(), AccessError> {
    let mut value = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    fgetxattr(from, name, spare_capacity(&mut value)).map_err(|_| AccessError::Attribute)?;
    fsetxattr(to, name, &value, XattrFlags::empty()).map_err(|_| AccessError::Attribute)
}

/// A new file may have inherited a list that the original does not have.
fn strip(file: impl AsFd) -> Result<(), AccessError> {
    match fremovexattr(file, ACL_ATTRIBUTE) {
        Err(errno) if errno != Errno::NODATA && !has_none(errno) => Err(AccessError::Attribute),
        _ => Ok(()),
    }
}

/// Whether the error means that the file system lacks attributes, or this kind.
fn has_none(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}
