//! The resource limits of one command, and their enforcement.
//!
//! | limit | enforced by |
//! |---|---|
//! | memory of one process | the kernel: `RLIMIT_DATA` |
//! | memory of all processes together | a control group where one can be created; otherwise polling |
//! | number of processes and threads | a control group, and `RLIMIT_NPROC` except for root |
//! | size of one file, open files, no core files | the kernel: `RLIMIT_FSIZE`, `RLIMIT_NOFILE`, `RLIMIT_CORE` |
//! | the disk | polling the free space |
//! | time | the call's own timeout |

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
    /// Open files of one process.
    pub open_files: u64,
    /// The size of one file that it writes.
    pub file_size: u64,
    /// Free space that must remain on the disks that it writes to. Below that it is ended.
    pub free_space: u64,
    /// How long it may take to end by itself after the request to end.
    pub grace: Duration,
}

impl Default for CommandLimits {
    /// Enough to build and test common desktop projects.
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
    /// For `prlimit`, inside the sandbox: a limit on processes set before the user namespace exists would count the
    /// desktop user's own processes.
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

    /// Whether one of these disks has too little free space.
    pub(super) fn disk_is_full(&self, disks: &[BorrowedFd<'_>]) -> bool {
        let free = |disk: &BorrowedFd<'_>| fstatvfs(disk).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        disks.iter().any(|disk| free(disk).is_ok_and(|free| free < self.free_space))
    }
}
