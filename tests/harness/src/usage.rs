//! Memory and CPU time of processes, from `/proc`.

use anyhow::Context;

/// A number of `/proc/PID/status` in MiB, such as VmRSS.
///
/// # Errors
/// The process has ended, or has no such number.
pub fn memory_mib(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no such line in the process's status")?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

/// The CPU seconds of a process so far.
pub fn cpu_seconds(pid: u32) -> f64 {
    // After the name in brackets: user and system time are the 12th and 13th fields, in hundredths.
    stat_seconds(pid, 11)
}

/// The CPU seconds of its children that have ended.
pub fn ended_children_cpu_seconds(parent: u32) -> f64 {
    stat_seconds(parent, 13)
}

fn stat_seconds(pid: u32, at: usize) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(at).take(2);
    numbers.filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The CPU seconds of a process's live children, such as a PostgreSQL server's.
pub fn children_cpu_seconds(parent: u32) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(cpu_seconds).sum()
}
