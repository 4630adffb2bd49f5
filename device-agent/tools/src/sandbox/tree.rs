//! The processes below one process, as the system lists them.
//!
//! Every process of a sandbox descends from the one that was started for it: an orphan inside is adopted by the
//! sandbox's own first process, and no process leaves that tree.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: i32,
    parent: i32,
    /// The start time; with the number, it identifies one process.
    started: u64,
    /// Pages of memory.
    pages: u64,
}

/// Every process below `root`, without it, each after its parent.
pub(super) fn descendants(root: i32) -> Vec<ProcessInfo> {
    let all: Vec<ProcessInfo> = running().filter_map(look).collect();
    let mut found: Vec<ProcessInfo> = all.iter().filter(|process| process.parent == root).copied().collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(all.iter().filter(|process| process.parent == parent));
        next += 1;
    }
    found
}

/// The memory of the processes together, in bytes. Shared memory counts for each of them.
pub(super) fn memory(processes: &[ProcessInfo]) -> u64 {
    let pages: u64 = processes.iter().map(|process| process.pages).sum();
    pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

/// A handle of a process, unless it has ended; its number may belong to another one then.
pub(super) fn hold(process: ProcessInfo) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    // Read after the handle was opened: the same number and start time mean that the handle is the same process.
    (look(process.pid)?.started == process.started).then_some(handle)
}

/// Asks processes to end. Ended ones are skipped.
pub(super) fn ask_to_end(processes: &[ProcessInfo]) {
    for handle in processes.iter().copied().filter_map(hold) {
        let _ = pidfd_send_signal(handle, Signal::TERM);
    }
}

fn running() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// `/proc/PID/stat`, see proc_pid_stat(5). The second field is a name in brackets and may contain anything.
fn look(pid: i32) -> Option<ProcessInfo> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect();
    // The first of these is the third field of the file.
    let field = |number: usize| fields.get(number - 3);
    Some(ProcessInfo {
        pid,
        parent: field(4)?.parse().ok()?,
        started: field(22)?.parse().ok()?,
        pages: field(24)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_found_with_its_memory_and_ends_when_asked() {
        let mut child = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("starts");
        let pid = i32::try_from(child.id()).expect("a number");
        let own = i32::try_from(std::process::id()).expect("a number");
        let found: Vec<_> = descendants(own).into_iter().filter(|process| process.pid == pid).collect();
        assert_eq!(found.len(), 1);
        assert!(memory(&found) < 1 << 30);
        ask_to_end(&found);
        assert!(!child.wait().expect("is a child").success());
        assert!(hold(found[0]).is_none(), "its number names nobody or somebody else");
    }
}
