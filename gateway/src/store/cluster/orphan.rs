//! Finds and ends server processes that a killed predecessor left in our data directory.
//!
//! A process is ours if it runs a program named `postgres` *in this very directory*: every server process changes into
//! its data directory and stays there. Numbers alone prove nothing, they are reused. The caller holds the lock of the
//! state directory, so the owner is no longer alive.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::error::ClusterError;

/// The time for each signal: fast shutdown, immediate shutdown, and SIGKILL.
const SIGNAL_TIMEOUTS: [(Signal, Duration); 3] = [
    (Signal::INT, Duration::from_secs(3)),
    (Signal::QUIT, Duration::from_secs(6)),
    (Signal::KILL, Duration::from_secs(3)),
];
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Ends every server process in `data_dir`, then removes a `postmaster.pid` that names another living process:
/// PostgreSQL would take it for the server. Returns how many processes were found.
///
/// # Errors
/// [`ClusterError::Orphan`] when a process does not end even when killed.
pub(super) fn stop(data_dir: &Path) -> Result<usize, ClusterError> {
    let found = processes_in(data_dir);
    let postmaster = recorded_postmaster(data_dir);
    let is_led = postmaster.is_some_and(|pid| found.contains(&pid));
    let mut remaining = found.clone();
    for (signal, patience) in SIGNAL_TIMEOUTS {
        let deadline = Instant::now() + patience;
        for pid in &remaining {
            // A living postmaster ends its children in good order; without one each gets the signal, and a child takes
            // SIGINT for "cancel this statement" only.
            match signal {
                Signal::INT if !is_led => send(*pid, data_dir, Signal::QUIT),
                Signal::INT if postmaster != Some(*pid) => {}
                _ => send(*pid, data_dir, signal),
            }
        }
        while !remaining.is_empty() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
            remaining = processes_in(data_dir);
        }
    }
    if let Some(pid) = remaining.first() {
        return Err(ClusterError::Orphan { data_dir: data_dir.to_owned(), pid: pid.as_raw_pid() });
    }
    let names_a_stranger = postmaster.is_some_and(|pid| {
        cfg!(target_os = "linux") && rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    });
    if names_a_stranger {
        let path = data_dir.join("postmaster.pid");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ClusterError::io("removing", &path)(error));
            }
            _ => {}
        }
    }
    Ok(found.len())
}

/// The process that `postmaster.pid` names in its first line, which may be another program by now.
fn recorded_postmaster(data_dir: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(data_dir.join("postmaster.pid")).ok()?;
    Pid::from_raw(text.lines().next()?.trim().parse().ok().filter(|pid| *pid > 0)?)
}

/// Sends a signal to a process after making sure, through a handle on it, that it is still ours.
#[cfg(target_os = "linux")]
fn send(pid: Pid, data_dir: &Path, signal: Signal) {
    let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return };
    if works_in(pid, data_dir) {
        // It may have ended in the meantime; that is checked afterwards.
        let _ = rustix::process::pidfd_send_signal(handle, signal);
    }
}

/// All server processes in this directory.
#[cfg(target_os = "linux")]
fn processes_in(data_dir: &Path) -> Vec<Pid> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| works_in(*pid, data_dir)).collect()
}

#[cfg(target_os = "linux")]
fn works_in(pid: Pid, data_dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let process = Path::new("/proc").join(pid.as_raw_pid().to_string());
    // After an upgrade of the package the name reads "postgres (deleted)".
    let program = std::fs::read_link(process.join("exe")).unwrap_or_default();
    let is_postgres = program
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.split(' ').next() == Some("postgres"));
    is_postgres
        && match (process.join("cwd").metadata(), data_dir.metadata()) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            _ => false,
        }
}

/// Without `/proc` a process cannot be recognised safely, so none is touched; PostgreSQL itself then
/// refuses to start beside the one that was left, and names it.
#[cfg(not(target_os = "linux"))]
fn processes_in(_data_dir: &Path) -> Vec<Pid> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn send(_pid: Pid, _data_dir: &Path, _signal: Signal) {}
