//! The resource limits of one command, and their enforcement.
//!
//! | limit | enforced by |
//! |---|---|
//! | memory of one process | the kernel: `RLIMIT_DATA` |
//! | memory of all processes together | a control group where one can be created; otherwise polling |
//! | number of processes and threads | a control group, and `RLIMIT_NPROC` except for root |
//! | size of one file, open files, no core files | the kernel: `RLIMIT_FSIZE`, `RLIMIT_NOFILE`, `RLIMIT_CORE` |
//! | the disk | looking at the free space, the more often the less is left |
//! | processor and disk time beside the owner's programs | a nice value, and a control group's weights where there is one |
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
    /// The same with no file larger than what these disks have above the floor: no single call takes more.
    pub(super) fn within(self, disks: &[BorrowedFd<'_>]) -> Self {
        let room = self.room(disks).unwrap_or(u64::MAX);
        Self { file_size: self.file_size.min(room.max(MIN_FILE_SIZE)), ..self }
    }

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
        disks.iter().filter_map(free).any(|free| free < self.free_space)
    }

    /// How much may still be written before one of these disks has too little; `None` if none says.
    fn room(&self, disks: &[BorrowedFd<'_>]) -> Option<u64> {
        disks.iter().filter_map(free).map(|free| free.saturating_sub(self.free_space)).min()
    }

    /// When to look at these disks again: before the fastest writer has used up what is left above the floor.
    pub(super) fn next_look(&self, disks: &[BorrowedFd<'_>]) -> Duration {
        let room = self.room(disks).unwrap_or(u64::MAX);
        let until_full = Duration::from_millis(room / FASTEST_WRITER_BYTES_PER_MS);
        until_full.clamp(SHORTEST_LOOK_INTERVAL, LONGEST_LOOK_INTERVAL)
    }
}

/// What a disk has free for users other than root.
fn free(disk: &BorrowedFd<'_>) -> Option<u64> {
    fstatvfs(disk).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Faster than disks write: 4 GB/s.
const FASTEST_WRITER_BYTES_PER_MS: u64 = 4 << 20;
/// Between two looks at a disk; one takes some microseconds.
const SHORTEST_LOOK_INTERVAL: Duration = Duration::from_millis(5);
const LONGEST_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A file may always have this size, however full the disk is: below the floor no command begins anyway.
const MIN_FILE_SIZE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_disk_is_looked_at_the_more_often_the_less_is_left_and_no_file_outgrows_what_is() {
        let folder = std::fs::File::open(std::env::temp_dir()).expect("a folder");
        let (disks, free) = ([folder.as_fd()], free(&folder.as_fd()).expect("a disk"));
        let with_floor = |free_space| CommandLimits { free_space, ..CommandLimits::default() };
        assert_eq!(with_floor(0).next_look(&disks), LONGEST_LOOK_INTERVAL);
        assert_eq!(with_floor(free + (1 << 30)).next_look(&disks), SHORTEST_LOOK_INTERVAL);
        assert_eq!(with_floor(0).within(&disks).file_size, CommandLimits::default().file_size.min(free));
        assert_eq!(with_floor(free + (1 << 30)).within(&disks).file_size, MIN_FILE_SIZE);
        let room = with_floor(free.saturating_sub(200 << 20)).within(&disks).file_size;
        assert!(room < CommandLimits::default().file_size, "{room}");
    }
}
