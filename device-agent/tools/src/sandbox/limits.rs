//! What one command may take of the machine, and what keeps it to that.
//!
//! | limit | kept by |
//! |---|---|
//! | memory of one process | the kernel: `RLIMIT_DATA` |
//! | memory of all processes together | a control group where one can be made; otherwise looked at while it runs |
//! | number of processes and threads | a control group, and `RLIMIT_NPROC` for everybody but root |
//! | size of one file, open files, no core files | the kernel: `RLIMIT_FSIZE`, `RLIMIT_NOFILE`, `RLIMIT_CORE` |
//! | the disk | free space is looked at while it runs |
//! | time | the call's own |

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::fstatvfs;

/// The limits of one command. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandLimits {
    /// Memory of all its processes together, and of each one.
    pub memory: u64,
    /// Processes and threads at the same time.
    pub processes: u64,
    /// Files that one process has open.
    pub open_files: u64,
    /// One file that it writes.
    pub file_size: u64,
    /// What stays free on the disks that it writes to. Below that it is ended.
    pub free_space: u64,
    /// How long it may end by itself after it was asked to.
    pub grace: Duration,
}

impl Default for CommandLimits {
    /// Enough to build and test what people have on a desktop.
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            processes: 1024,
            open_files: 4096,
            file_size: 2 << 30,
            free_space: 512 << 20,
            grace: Duration::from_secs(2),
        }
    }
}

impl CommandLimits {
    /// For `prlimit`, inside of the sandbox: a limit on processes that is set before the user namespace is made
    /// would count what the person at the desktop runs.
    pub(super) fn options(&self) -> [String; 5] {
        let both = |name: &str, value: u64| format!("--{name}={value}:{value}");
        [
            both("data", self.memory),
            both("nproc", self.processes),
            both("nofile", self.open_files),
            both("fsize", self.file_size),
            both("core", 0),
        ]
    }

    /// Whether one of these disks has less free space than is to stay.
    pub(super) fn disk_is_full(&self, disks: &[BorrowedFd<'_>]) -> bool {
        let free = |disk: &BorrowedFd<'_>| fstatvfs(disk).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        disks.iter().any(|disk| free(disk).is_ok_and(|free| free < self.free_space))
    }
}
