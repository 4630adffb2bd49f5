//! Creates the data directory, whole or not at all, and writes its access rules.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Gid, Uid};

use super::account::{ServerAccount, own_name};
use super::binaries::Binaries;
use super::error::ClusterError;
use super::paths::ClusterPaths;
use super::{orphan, parent_death, settings};

/// Creates the data directory. It is built under another name and renamed when complete, so that a killed attempt
/// leaves nothing that could be mistaken for data.
pub(super) fn create(place: &ClusterPaths, account: &ServerAccount, binaries: &Binaries) -> Result<(), ClusterError> {
    let partial = &place.partial_dir;
    remove_earlier_attempt(partial)?;
    std::fs::DirBuilder::new().mode(0o700).create(partial).map_err(ClusterError::io("creating", partial))?;
    if account.is_other {
        std::os::unix::fs::chown(partial, Some(account.uid), Some(account.gid))
            .map_err(ClusterError::io("changing the owner of", partial))?;
    }

    let initdb = binaries.initdb();
    let mut words: Vec<OsString> = parent_death::prefix("KILL");
    words.push(initdb.clone().into());
    words.extend(options().map(OsString::from));
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let output = account.command(partial, &words)?.output().map_err(ClusterError::io("running", &initdb))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ClusterError::Initdb { initdb, output });
    }

    std::fs::rename(partial, &place.data_dir).map_err(ClusterError::io("renaming", partial))?;
    File::open(&place.state_dir)
        .and_then(|directory| directory.sync_all())
        .map_err(ClusterError::io("writing", &place.state_dir))
}

/// The options of `initdb`.
pub(super) fn options() -> [String; 6] {
    let user = format!("--username={}", super::USER_NAME);
    let others = ["--auth-local=peer", "--auth-host=reject", "--locale=C.UTF-8", "--encoding=UTF8", "--data-checksums"];
    let [local, host, locale, encoding, checksums] = others.map(str::to_owned);
    [user, local, host, locale, encoding, checksums]
}

/// Removes what a killed attempt left, and ends its processes if any still write there.
fn remove_earlier_attempt(partial: &Path) -> Result<(), ClusterError> {
    const MAX_ATTEMPTS: u32 = 50;
    for attempt in 1.. {
        match std::fs::remove_dir_all(partial) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            // A process that is just ending may still have added a file.
            Err(error) if attempt == MAX_ATTEMPTS => return Err(ClusterError::io("removing", partial)(error)),
            Err(_) => {
                orphan::stop(partial)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(()) => break,
        }
    }
    Ok(())
}

/// Writes the access rules. Done at each start: the account we run as may have changed its name.
pub(super) fn write_access_rules(data_dir: &Path, account: &ServerAccount) -> Result<(), ClusterError> {
    let ident = settings::pg_ident(&own_name()?);
    // The directory belongs to the server's account, and we may be root: existing files are neither written to nor
    // followed, each file is created anew.
    let io = |error: rustix::io::Errno| ClusterError::io("writing access rules in", data_dir)(error.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(data_dir, flags, Mode::empty()).map_err(io)?;
    for (name, text) in [("pg_hba.conf", settings::PG_HBA), ("pg_ident.conf", ident.as_str())] {
        match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => return Err(io(error)),
            _ => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&directory, name, flags, Mode::RUSR | Mode::WUSR).map_err(io)?);
        if account.is_other {
            let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
            rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(io)?;
        }
        file.write_all(text.as_bytes()).map_err(ClusterError::io("writing access rules in", data_dir))?;
    }
    Ok(())
}
