//! I17: resources are bounded. Under the same work, memory, files, threads and tasks at the end are within 5 % of what
//! they were before the faults; queues are empty at the end.
//!
//! A program grows for some minutes while it warms up, so its memory is compared with that at the tenth minute, and in
//! a shorter pass not at all. A restarted gateway has less than a warm one, so the largest of each kind is compared.
//! Files, threads and tasks come and go with the work, by dozens with each command: what a program still holds at its
//! quietest moment is compared with what was usual before.

use super::{Observations, Violation};
use crate::testbed::resource_usage::UsageSample;

/// The tenth minute, and the length of its span.
const TENTH_MINUTE_US: u64 = 600_000_000;
const MINUTE_US: u64 = 60_000_000;
/// Files and threads that may be in use at a quiet moment.
const FILES_TOLERANCE: u64 = 12;
/// Tasks that may be: several for each connection.
const TASKS_TOLERANCE: u64 = 36;
/// The allowed growth of memory, in percent.
const GROWTH_PERCENT: u64 = 5;

/// The compared numbers of a kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeakUsage {
    pub(crate) resident_kib: u64,
    pub(crate) files: u64,
    pub(crate) threads: u64,
    /// For gateways only.
    pub(crate) tasks: Option<u64>,
}

/// The largest use of a kind of program in a span: for each number, the median of each process.
pub(crate) fn peak_usage(witnesses: &Observations, kind: &str, span: (u64, u64)) -> Option<PeakUsage> {
    usage(witnesses, kind, span, |values| values.get(values.len() / 2).copied())
}

/// The same at the quietest moment of each process.
fn quiet_usage(witnesses: &Observations, kind: &str, span: (u64, u64)) -> Option<PeakUsage> {
    usage(witnesses, kind, span, |values| values.first().copied())
}

/// The largest use: for each number, what is picked from the sorted values of each process.
fn usage(
    witnesses: &Observations,
    kind: &str,
    (from, to): (u64, u64),
    pick: fn(&[u64]) -> Option<u64>,
) -> Option<PeakUsage> {
    let within = |level: &&UsageSample| level.name.starts_with(kind) && (from..=to).contains(&level.at);
    let levels: Vec<_> = witnesses.levels.iter().filter(within).collect();
    let mut pids: Vec<_> = levels.iter().map(|level| level.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let most = |of: fn(&UsageSample) -> Option<u64>| {
        let picked = |pid: &u32| {
            let own = levels.iter().filter(|level| level.pid == *pid);
            let mut values: Vec<_> = own.filter_map(|level| of(level)).collect();
            values.sort_unstable();
            pick(&values)
        };
        pids.iter().filter_map(picked).max()
    };
    Some(PeakUsage {
        resident_kib: most(|level| Some(level.resident_kib))?,
        files: most(|level| Some(level.files))?,
        threads: most(|level| Some(level.threads))?,
        tasks: most(|level| level.tasks),
    })
}

/// The compared spans: before the first fault, at the tenth minute if there is one, and at the end.
pub(crate) fn spans(witnesses: &Observations) -> Option<[(u64, u64); 3]> {
    let last = *witnesses.calm.last()?;
    let first = witnesses.strikes.first().map_or(last.0, |strike| strike.begun);
    Some([(0, first), (TENTH_MINUTE_US - MINUTE_US, TENTH_MINUTE_US), last])
}

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let evidence = &witnesses.evidence;
    let mut violations: Vec<_> = evidence
        .queued
        .iter()
        .map(|gauge| Violation::of("I17", None, format!("when everything was over: {gauge}")))
        .collect();
    let Some([before, tenth, end]) = spans(witnesses) else { return violations };
    for kind in ["gateway", "agent"] {
        let quiet = quiet_usage(witnesses, kind, end);
        let [before, tenth, end] = [before, tenth, end].map(|span| peak_usage(witnesses, kind, span));
        let (Some(quiet), Some(end)) = (quiet, end) else { continue };
        let mut compare = |what: &str, before: u64, now: u64, few: u64| {
            if now * 100 > before * (100 + GROWTH_PERCENT) + few * 100 {
                let text = format!("a {kind} had {before} {what}, and in the end {now}");
                violations.push(Violation::of("I17", None, text));
            }
        };
        if let Some(before) = before {
            compare("files open", before.files, quiet.files, FILES_TOLERANCE);
            compare("threads", before.threads, quiet.threads, FILES_TOLERANCE);
            if let (Some(before), Some(end)) = (before.tasks, quiet.tasks) {
                compare("tasks", before, end, TASKS_TOLERANCE);
            }
        }
        if let Some(tenth) = tenth {
            compare("KiB of memory at the tenth minute", tenth.resident_kib, end.resident_kib, 0);
        }
        if kind == "gateway" && before.is_some_and(|before| before.tasks.and(end.tasks).is_none()) {
            let text = "no gateway said how many tasks it has".to_owned();
            violations.push(Violation::of("I17", None, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;

    /// A gateway before, at the tenth minute, and at the end.
    fn told(files: [u64; 2], resident_kib: [u64; 2]) -> Observations {
        let level = |at, files, resident_kib| UsageSample {
            at,
            name: "gateway-1".to_owned(),
            pid: 7,
            resident_kib,
            files,
            threads: 10,
            tasks: Some(files),
        };
        let levels = vec![
            level(1, files[0], 10),
            level(TENTH_MINUTE_US, files[0], resident_kib[0]),
            level(TENTH_MINUTE_US + MINUTE_US, files[1], resident_kib[1]),
        ];
        Observations {
            levels,
            calm: vec![(TENTH_MINUTE_US + 1, TENTH_MINUTE_US + 2 * MINUTE_US)],
            ..Observations::default()
        }
    }

    #[test]
    fn what_grows_is_found() {
        assert_eq!(check(&told([100, 110], [1000, 1050])), []);
        assert!(texts(&check(&told([100, 120], [1000, 1000]))).contains("had 100 files open, and in the end 120"));
        assert!(texts(&check(&told([100, 150], [1000, 1000]))).contains("had 100 tasks, and in the end 150"));
        let mut silent = told([100, 100], [1000, 1000]);
        silent.levels[2].tasks = None;
        assert!(texts(&check(&silent)).contains("no gateway said"));
        assert!(texts(&check(&told([100, 100], [1000, 1060]))).contains("1000 KiB of memory at the tenth minute"));
    }

    #[test]
    fn files_that_come_and_go_with_commands_are_no_leak() {
        let mut busy = told([30, 75], [1000, 1000]);
        let quiet = UsageSample { at: TENTH_MINUTE_US + 2, files: 33, tasks: Some(30), ..busy.levels[2].clone() };
        busy.levels.push(quiet);
        assert_eq!(check(&busy), []);
    }

    #[test]
    fn a_queue_that_is_not_empty_is_found() {
        let mut full = told([100, 100], [1000, 1000]);
        full.evidence.queued.push("gateway-0: deskgate_queue_depth 1".to_owned());
        assert!(texts(&check(&full)).contains("deskgate_queue_depth 1"));
    }
}
