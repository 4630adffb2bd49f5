//! A control group for one command: the kernel's own bounds for a whole process tree.
//!
//! Created where this user may create one: below the agent's own group or one above it, in the unified hierarchy, if it
//! delegates the controllers `pids` and `memory` (a desktop's systemd does); else in the old hierarchy of `pids`, which
//! only root may change.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::limits::CommandLimits;

/// A group of its own, removed on drop. By then its processes must have ended.
#[derive(Debug)]
pub(super) struct ControlGroup {
    folder: PathBuf,
    /// Whether it bounds memory too.
    pub(super) memory: bool,
}

impl ControlGroup {
    /// A new, empty group with these limits; `None` if it cannot be created.
    pub(super) fn make(limits: &CommandLimits) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        unified(&groups, &mounts)
            .into_iter()
            .filter(|folder| hands_out(folder))
            .find_map(|folder| Self::below(&folder, true, limits))
            .or_else(|| Self::below(&old(&groups, &mounts)?, false, limits))
    }

    fn below(parent: &Path, memory: bool, limits: &CommandLimits) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        remove_left(parent);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{GROUP_NAME_PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let group = Self { folder, memory };
        let set = |file: &str, value: u64| std::fs::write(group.folder.join(file), value.to_string());
        set("pids.max", limits.processes).ok()?;
        if memory {
            set("memory.max", limits.memory).ok()?;
            // A kernel without swap accounting has no such file.
            let _ = set("memory.swap.max", 0);
            // Only where these controllers are delegated too. A group that says nothing has 100.
            let _ = set("cpu.weight", COMMAND_WEIGHT);
            let _ = set("io.weight", COMMAND_WEIGHT);
        }
        Some(group)
    }

    /// Moves a process into the group. Its later children start in the group.
    pub(super) fn take(&self, pid: i32) -> std::io::Result<()> {
        std::fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The share of processor and disk beside other groups, of which each has 100.
const COMMAND_WEIGHT: u64 = 20;
const GROUP_NAME_PREFIX: &str = "deskgate-";

/// Removes the groups of killed agents. The system refuses for a group with a process.
fn remove_left(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(GROUP_NAME_PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The agent's own group in the unified hierarchy and those above it, nearest first.
fn unified(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let Some((top, own)) = own.and_then(|own| place(own, mounts, |kind, _| kind == "cgroup2")) else {
        return Vec::new();
    };
    own.ancestors().take_while(|folder| folder.starts_with(&top)).map(Path::to_owned).collect()
}

/// The agent's own group in the old hierarchy of `pids`.
fn old(groups: &str, mounts: &str) -> Option<PathBuf> {
    let lines = groups.lines().filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
    let own = lines.into_iter().find_map(|[controllers, path]: [&str; 2]| is_pids(controllers).then_some(path))?;
    Some(place(own, mounts, |kind, options| kind == "cgroup" && is_pids(options))?.1)
}

fn is_pids(list: &str) -> bool {
    list.split(',').any(|word| word == "pids")
}

/// The mount point of a hierarchy, and the folder of a group in it. See proc_pid_mountinfo(5).
fn place(group: &str, mounts: &str, fits: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, at) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        if !fits(kind, options) {
            return None;
        }
        let below = Path::new(group).strip_prefix(root).ok()?;
        Some((PathBuf::from(at), Path::new(at).join(below)))
    })
}

fn hands_out(folder: &Path) -> bool {
    let given = std::fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    ["pids", "memory"].iter().all(|wanted| given.split_whitespace().any(|word| word == *wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_both_hierarchies_and_in_a_container_too() {
        let mounts = "36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "8:pids:/a\n0::/user.slice/one.scope\n";
        assert_eq!(old(groups, mounts), Some("/sys/fs/cgroup/pids/a".into()));
        let unified_here = unified(groups, mounts);
        let top = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(unified_here, [top.join("user.slice/one.scope"), top.join("user.slice"), top.to_owned()]);
        let container = "41 31 0:38 /user.slice /cg rw - cgroup2 cgroup2 rw\n";
        assert_eq!(unified(groups, container), [Path::new("/cg/one.scope"), Path::new("/cg")]);
        assert_eq!(old(groups, container), None);
    }
}
