//! The account the server runs as: our own, or an unprivileged one when we are root.
//!
//! PostgreSQL refuses to run as root. A server account usually cannot reach a state directory below `/root` or in a
//! private temporary directory. So when the accounts differ, the data directory is passed as an open descriptor: our
//! `sh` receives it as standard input, moves it to descriptor [`DATA_FD_PATH`], and PostgreSQL works in
//! `/proc/self/fd/9`. The kernel then checks the permission of the directory itself only, not of those above it. No
//! permission of any other directory is changed, and data stays inside the state directory.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::ClusterError;

const DATA_FD_PATH: &str = "/proc/self/fd/9";
const TAKE_DATA_FD_SCRIPT: &str = "exec 9<&0 </dev/null; exec \"$@\"";

/// Preferred accounts, best first.
const PREFERRED_ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// The account the server's processes run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerAccount {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Whether it differs from our own.
    pub(super) is_other: bool,
}

impl ServerAccount {
    /// Chooses the account: the owner of existing data, else our own, or a system account if we are root.
    ///
    /// # Errors
    /// [`ClusterError::OtherOwner`], [`ClusterError::NoAccount`].
    pub(super) fn choose(data_dir: &Path) -> Result<Self, ClusterError> {
        let me = rustix::process::geteuid().as_raw();
        let owner = std::fs::metadata(data_dir).ok().map(|data| (data.uid(), data.gid()));
        match owner {
            Some((owner, _)) if owner != me && me != 0 => {
                Err(ClusterError::OtherOwner { data_dir: data_dir.to_owned(), owner, me })
            }
            Some((uid, gid)) if me == 0 && uid != 0 => Ok(Self { uid, gid, is_other: true }),
            _ if me == 0 => {
                let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                let (uid, gid) = system_account(&passwd).ok_or(ClusterError::NoAccount)?;
                Ok(Self { uid, gid, is_other: true })
            }
            _ => Ok(Self { uid: me, gid: rustix::process::getegid().as_raw(), is_other: false }),
        }
    }

    /// A command of this account that gets `-D` with `data_dir`, whatever lies above that directory.
    ///
    /// It gets none of our environment and none of our descriptors.
    pub(super) fn command(&self, data_dir: &Path, words: &[&OsStr]) -> Result<Command, ClusterError> {
        let mut command;
        if self.is_other {
            let data = File::open(data_dir).map_err(ClusterError::io("opening", data_dir))?;
            command = Command::new("/bin/sh");
            command.args(["-c", TAKE_DATA_FD_SCRIPT, "deskgate"]).args(words).arg("-D").arg(DATA_FD_PATH).stdin(data);
            // Setting the user also empties the list of supplementary groups.
            command.uid(self.uid).gid(self.gid);
        } else {
            let (program, arguments) = words.split_first().expect("callers name a program");
            command = Command::new(program);
            command.args(arguments).arg("-D").arg(data_dir).stdin(Stdio::null());
        }
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").current_dir("/");
        // Ctrl-C in a terminal goes to the whole foreground group; the server must outlive our own orderly stop.
        command.process_group(0);
        Ok(command)
    }
}

/// Refuses root in the state directory of another account.
///
/// # Errors
/// [`ClusterError::NotForRoot`].
pub(super) fn not_roots_in_anothers(state_dir: &Path) -> Result<(), ClusterError> {
    let owner = std::fs::metadata(state_dir).map_or(0, |found| found.uid());
    if !rustix::process::geteuid().is_root() || owner == 0 {
        return Ok(());
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let owner = name_of(&passwd, owner).unwrap_or_else(|| format!("'#{owner}'"));
    Err(ClusterError::NotForRoot { state_dir: state_dir.to_owned(), owner })
}

/// The name of an account in the text of `/etc/passwd`.
fn name_of(passwd: &str, wanted: u32) -> Option<String> {
    passwd.lines().find_map(|line| match line.split(':').collect::<Vec<_>>()[..] {
        [name, _, uid, ..] if uid.parse() == Ok(wanted) => Some(name.to_owned()),
        _ => None,
    })
}

/// Finds the first preferred account in the text of `/etc/passwd`.
fn system_account(passwd: &str) -> Option<(u32, u32)> {
    PREFERRED_ACCOUNTS.iter().find_map(|wanted| {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields[..] {
                [name, _, uid, gid, ..] if name == *wanted => {
                    Some((uid.parse().ok().filter(|uid| *uid != 0)?, gid.parse().ok()?))
                }
                _ => None,
            }
        })
    })
}

/// The name of the account this process runs as; PostgreSQL's peer authentication uses names.
pub(super) fn own_name() -> Result<String, ClusterError> {
    let program = Path::new("id");
    let output = Command::new(program).arg("-un").output().map_err(ClusterError::io("running", program))?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !name.is_empty() {
        return Ok(name);
    }
    let uid = rustix::process::geteuid().as_raw();
    let missing = std::io::Error::other(format!("user id {uid} has no name in /etc/passwd; give it one"));
    Err(ClusterError::Io { what: "running", path: "id -un".into(), source: missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_postgres_account_is_preferred_and_root_is_never_taken() {
        let both = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/x\npostgres:x:101:104::/:/x\n";
        assert_eq!(system_account(both), Some((101, 104)));
        assert_eq!(system_account("nobody:x:65534:65533::/:/x"), Some((65534, 65533)));
        assert_eq!(system_account("postgres:x:0:0::/:/x\nmypostgres:x:7:7::/:/x\nbroken"), None);
    }

    #[test]
    fn root_is_told_whose_state_directory_it_is_and_leaves_nothing_there() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("new");
        not_roots_in_anothers(dir.path()).expect("its own");
        not_roots_in_anothers(&dir.path().join("none")).expect("still to be made");
        std::os::unix::fs::chown(dir.path(), Some(4_000_000), None).expect("root may");
        let error = super::super::paths::ClusterPaths::claim(dir.path()).expect_err("another's").to_string();
        assert!(error.contains("sudo -u '#4000000'"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        assert_eq!(name_of("root:x:0:0::/:/x\nbroken\ndeskgate:x:990:990::/:/x", 990).as_deref(), Some("deskgate"));
    }
}
