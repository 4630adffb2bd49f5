//! Numbers of a pass: operations by name with their latencies, faults by kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::check::Observations;
use crate::check::resource_bounds::{self, PeakUsage};
use crate::history::{AnswerContent, CallAction};
use crate::injection::crash_points::CrashPoint;
use crate::plan::FaultKind;

/// The numbers of operations with one name; times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OperationStats {
    pub(super) all: usize,
    pub(super) succeeded: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) most: f64,
}

/// The numbers by name.
pub(super) fn by_name(witnesses: &Observations) -> BTreeMap<&str, OperationStats> {
    let mut took: BTreeMap<&str, (usize, Vec<u64>)> = BTreeMap::new();
    for done in &witnesses.done {
        let (succeeded, times) = took.entry(&done.name).or_default();
        *succeeded += usize::from(done.succeeded);
        times.push(done.ended - done.begun);
    }
    let figures = |(succeeded, mut times): (usize, Vec<u64>)| {
        times.sort_unstable();
        let share = |of_hundred: usize| times[(times.len() * of_hundred).div_ceil(100).saturating_sub(1)] as f64 / 1e3;
        OperationStats { all: times.len(), succeeded, p50: share(50), p99: share(99), most: share(100) }
    };
    took.into_iter().map(|(name, took)| (name, figures(took))).collect()
}

/// For each kind of fault, how many took effect, and how many were tried.
pub(super) fn by_kind(witnesses: &Observations) -> BTreeMap<FaultKind, (usize, usize)> {
    let mut kinds: BTreeMap<FaultKind, (usize, usize)> = BTreeMap::new();
    for strike in &witnesses.strikes {
        let (struck, all) = kinds.entry(strike.kind()).or_default();
        *struck += usize::from(strike.proof.is_ok());
        *all += 1;
    }
    kinds
}

/// The programs' resources before the faults, at the tenth minute and at the end.
pub(super) fn levels(witnesses: &Observations) -> String {
    let mut text = format!(
        "{:<10} {:<12} {:>12} {:>8} {:>8} {:>8}\n",
        "most of a", "when", "memory MiB", "files", "threads", "tasks"
    );
    let Some(spans) = resource_bounds::spans(witnesses) else { return text };
    for kind in ["gateway", "agent"] {
        for (when, span) in ["before", "minute 10", "in the end"].into_iter().zip(spans) {
            if let Some(PeakUsage { resident_kib, files, threads, tasks }) =
                resource_bounds::peak_usage(witnesses, kind, span)
            {
                let memory = resident_kib as f64 / 1024.0;
                // Writing to a String cannot fail.
                let _ =
                    writeln!(text, "{kind:<10} {when:<12} {memory:>12.1} {files:>8} {threads:>8} {:>8}", said(tasks));
            }
        }
    }
    text
}

/// A number that may be absent, as text.
fn said(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// The crash points: how many processes passed, were armed, and died.
pub(super) fn points(witnesses: &Observations) -> String {
    let points = &witnesses.evidence.points;
    let count = |is: fn(&CrashPoint) -> bool| points.iter().filter(|point| is(point)).count();
    let (passed, armed, struck) =
        (count(|point| point.passed > 0), count(|point| point.armed > 0), count(|point| point.struck > 0));
    let mut text = format!("{} points: {passed} passed, {armed} armed, {struck} struck\n", points.len());
    let _ = writeln!(text, "{:<42} {:>7} {:>7} {:>7}", "point", "passed", "armed", "struck");
    for CrashPoint { name, passed, armed, struck } in points {
        let _ = writeln!(text, "{name:<42} {passed:>7} {armed:>7} {struck:>7}");
    }
    text
}

/// Files: how many were taken, seen on devices, handed out and downloaded, and with how many bytes.
pub(super) fn files(witnesses: &Observations) -> String {
    let taken = witnesses.calls.iter().filter_map(|call| match (&call.asked, &call.seen) {
        (CallAction::Upload { .. }, AnswerContent::File(file)) => Some((file.id.as_str(), file.size)),
        _ => None,
    });
    let listed = witnesses.calls.iter().flat_map(|call| &call.artifacts);
    let listed = listed.map(|artifact| (artifact.id.as_str(), artifact.size));
    let seen = witnesses.turns.iter().flat_map(|turn| turn.files.digests.keys().map(|name| (&turn.job, name)));
    let fetched = witnesses.fetched.iter().map(|fetched| (fetched.artifact_id.as_str(), fetched.size));
    let seen: BTreeSet<_> = seen.collect();
    let sum = |files: BTreeMap<&str, u64>| {
        let mib = files.values().sum::<u64>() as f64 / 1024.0 / 1024.0;
        format!("{:>6} {mib:>8.1} MiB", files.len())
    };
    let in_parts = witnesses.fetched.iter().filter(|fetched| fetched.parts > 1).count();
    format!(
        "files taken      {}\nseen on devices  {:>6}\nhanded out       {}\ndownloaded       {}, {in_parts} in parts\n",
        sum(taken.collect()),
        seen.len(),
        sum(listed.collect()),
        sum(fetched.collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::OperationRecord;

    #[test]
    fn the_middle_and_the_slowest_of_some_operations() {
        let done = |took: u64| OperationRecord {
            caller: String::new(),
            operation: took,
            name: "submit".to_owned(),
            begun: 0,
            ended: took * 1000,
            tries: 1,
            succeeded: took != 3,
            run_id: None,
        };
        let witnesses = Observations { done: (1..=5).map(done).collect(), ..Observations::default() };
        let figures = OperationStats { all: 5, succeeded: 4, p50: 3.0, p99: 5.0, most: 5.0 };
        assert_eq!(by_name(&witnesses).get("submit"), Some(&figures));
    }
}
