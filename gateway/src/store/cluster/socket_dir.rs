//! The directory of the server's socket: private, and short enough for the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Gid, Uid};

use super::account::ServerAccount;
use super::error::ClusterError;

/// The kernel's limit for the path of a socket, without the final zero (`sun_path`, unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The files that the server puts into the directory.
fn names() -> [String; 2] {
    let socket = format!(".s.PGSQL.{}", super::SOCKET_PORT_TEXT);
    [format!("{socket}.lock"), socket]
}

/// The parent of the socket directory: the configured one; `/run` for root; else the session's own runtime directory,
/// and the directory for temporary files where there is none.
pub(super) fn parent(configured: Option<&Path>, session: Option<&OsStr>, is_root: bool) -> PathBuf {
    let usual = match session {
        _ if is_root => Path::new("/run"),
        Some(session) => Path::new(session),
        None => Path::new("/tmp"),
    };
    match configured {
        Some(configured) => configured.to_owned(),
        None if usual.is_absolute() && usual.is_dir() && fits(&usual.join(name(""))) => usual.to_owned(),
        None => "/tmp".into(),
    }
}

/// The directory's own name: sixteen digits distinguish the state directories of one machine.
fn name(digits: &str) -> String {
    format!("deskgate-{digits:0>16}")
}

fn fits(directory: &Path) -> bool {
    names().iter().all(|name| directory.join(name).as_os_str().as_bytes().len() <= MAX_SOCKET_PATH_BYTES)
}

/// Creates the directory for one state directory, or takes it over from an earlier start, after checking that other
/// users can neither have prepared nor enter it. Removes an old socket.
///
/// The caller holds the state directory's lock and knows that no server runs.
///
/// # Errors
/// [`ClusterError::SocketDirectory`] says what is wrong.
pub(super) fn prepare(parent: &Path, state_dir: &Path, account: &ServerAccount) -> Result<PathBuf, ClusterError> {
    let refuse = |path: &Path, problem: &str| {
        Err(ClusterError::SocketDirectory { path: path.to_owned(), problem: problem.to_owned() })
    };
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| ClusterError::SocketDirectory { path, problem: error.to_string() }
    };
    let parent = parent.canonicalize().map_err(io(parent))?;
    let me = rustix::process::geteuid().as_raw();
    let data = parent.metadata().map_err(io(&parent))?;
    let is_sticky = data.mode() & 0o1000 != 0;
    if (data.mode() & 0o022 != 0 && !is_sticky) || ![0, me, account.uid].contains(&data.uid()) {
        return refuse(&parent, "other users may replace what is in it; choose one that only you can write to");
    }

    let state = state_dir.metadata().map_err(io(state_dir))?;
    let key = format!("{}:{}:{}", state.dev(), state.ino(), state_dir.display());
    let digest = deskgate_protocol::canonical::Sha256Digest::of(key.as_bytes()).to_string();
    let path = parent.join(name(&digest[..16]));
    if !fits(&path) {
        return refuse(&path, "its name is too long for a socket (at most 107 bytes); choose a shorter directory");
    }

    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(&path)(error)),
        _ => {}
    }
    // Another user may have put something there, so it is checked through a descriptor, which cannot be exchanged
    // between the check and the use.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(&path, flags, Mode::empty()) else {
        return refuse(&path, "it is not a directory of ours; remove it");
    };
    let found = rustix::fs::fstat(&directory).map_err(|error| io(&path)(error.into()))?;
    if ![me, account.uid].contains(&found.st_uid) {
        return refuse(&path, "another user has made it; remove it, or set XDG_RUNTIME_DIR to a directory of yours");
    }
    if found.st_mode & 0o077 != 0 {
        return refuse(&path, "other users can enter it; remove it");
    }
    if account.is_other {
        let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        rustix::fs::fchown(&directory, Some(uid), Some(gid)).map_err(|error| io(&path)(error.into()))?;
    }
    for left_over in names() {
        match rustix::fs::unlinkat(&directory, left_over, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => return Err(io(&path)(error.into())),
            _ => {}
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn ourselves() -> ServerAccount {
        let me = rustix::process::geteuid().as_raw();
        ServerAccount { uid: me, gid: rustix::process::getegid().as_raw(), is_other: false }
    }

    fn problem(result: Result<PathBuf, ClusterError>) -> String {
        result.expect_err("refused").to_string()
    }

    #[test]
    fn the_directory_is_private_and_the_same_at_each_start() {
        let (parent, state) = (tempfile::tempdir().expect("new"), tempfile::tempdir().expect("new"));
        let first = prepare(parent.path(), state.path(), &ourselves()).expect("prepared");
        assert_eq!(first.metadata().expect("there").mode() & 0o7777, 0o700);
        std::fs::write(first.join(".s.PGSQL.5432"), "left over").expect("written");
        assert_eq!(prepare(parent.path(), state.path(), &ourselves()).expect("prepared"), first);
        assert_eq!(std::fs::read_dir(&first).expect("there").count(), 0, "the left-over socket is gone");
        let other = tempfile::tempdir().expect("new");
        assert_ne!(prepare(parent.path(), other.path(), &ourselves()).expect("prepared"), first);
    }

    #[test]
    fn a_directory_that_somebody_else_prepared_is_refused() {
        let (parent, state) = (tempfile::tempdir().expect("new"), tempfile::tempdir().expect("new"));
        let path = prepare(parent.path(), state.path(), &ourselves()).expect("prepared");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o770)).expect("ours");
        assert!(problem(prepare(parent.path(), state.path(), &ourselves())).contains("can enter it"));

        std::fs::remove_dir(&path).expect("empty");
        let elsewhere = tempfile::tempdir().expect("new");
        std::os::unix::fs::symlink(elsewhere.path(), &path).expect("new");
        assert!(problem(prepare(parent.path(), state.path(), &ourselves())).contains("not a directory of ours"));

        std::fs::remove_file(&path).expect("the link");
        std::fs::write(&path, "").expect("written");
        assert!(problem(prepare(parent.path(), state.path(), &ourselves())).contains("not a directory of ours"));

        if rustix::process::geteuid().is_root() {
            std::fs::remove_file(&path).expect("the file");
            std::fs::create_dir(&path).expect("new");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("ours");
            std::os::unix::fs::chown(&path, Some(12345), None).expect("as root");
            assert!(problem(prepare(parent.path(), state.path(), &ourselves())).contains("another user has made it"));
        }
    }

    #[test]
    fn a_parent_that_everybody_can_write_to_is_refused_unless_it_is_sticky() {
        let (parent, state) = (tempfile::tempdir().expect("new"), tempfile::tempdir().expect("new"));
        std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(problem(prepare(parent.path(), state.path(), &ourselves())).contains("other users may replace"));
        std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o1777)).expect("ours");
        prepare(parent.path(), state.path(), &ourselves()).expect("as in /tmp");
    }

    #[test]
    fn a_name_too_long_for_the_kernel_is_refused_before_the_server_fails_on_it() {
        let (parent, state) = (tempfile::tempdir().expect("new"), tempfile::tempdir().expect("new"));
        let long = parent.path().join("x".repeat(90));
        std::fs::create_dir(&long).expect("new");
        assert!(problem(prepare(&long, state.path(), &ourselves())).contains("too long"));
        assert_eq!(super::parent(None, Some(long.as_os_str()), false), Path::new("/tmp"), "the session's is avoided");
        assert_eq!(super::parent(Some(&long), None, false), long, "what was configured is never changed silently");
    }

    #[test]
    fn root_uses_run_and_a_person_the_session_directory() {
        let session = tempfile::tempdir().expect("new");
        assert_eq!(super::parent(None, Some(session.path().as_os_str()), false), session.path());
        assert_eq!(super::parent(None, Some(session.path().as_os_str()), true), Path::new("/run"));
        assert_eq!(super::parent(None, Some(OsStr::new("relative")), false), Path::new("/tmp"));
        assert_eq!(super::parent(None, None, false), Path::new("/tmp"));
    }
}
