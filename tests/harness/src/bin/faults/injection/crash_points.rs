//! The points at which a program may die in a pass, and their records in the folder of crash points.
//!
//! These are the commits on the path of a run. The omitted ones belong to a start (migrations, reading the journal), to
//! single actions of an owner (publications, pairing), or to reads, which change nothing.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use deskgate_tests::process::CRASH_DIR_ENV;
use serde::{Deserialize, Serialize};

/// The points that a busy gateway passes again and again.
pub(crate) const GATEWAY_POINTS: [&str; 23] = [
    "admissions::admit_all",
    "admissions::look_again",
    "artifacts::add",
    "attempts::claim",
    "attempts::pass_over_lost_claims",
    "attempts::record",
    "confirmations::reset_done",
    "conversations::open",
    "deliveries::claim",
    "deliveries::settle",
    "leases::begin_session",
    "leases::renew_sessions",
    "events::progress",
    "files::create",
    "messages::accept",
    "messages::why_not",
    "objects::begin",
    "operations::ask",
    "operations::deliver",
    "upkeep::expire_queued",
    "upkeep::return_unaccepted_offers",
    "leases::suspend_lost_runs",
    "webhook_receipts::push_out",
];

/// The points of an agent: its journal, intents and outcomes, decisions, and sent frames.
pub(crate) const AGENT_POINTS: [&str; 14] = [
    "Approvals::decide",
    "Artifacts::add",
    "Artifacts::settle",
    "Journal::finish",
    "Journal::forget",
    "Journal::start",
    "Journal::take",
    "Ledger::answer",
    "Ledger::ask",
    "Ledger::before",
    "Ledger::begin",
    "Ledger::note",
    "Transcripts::close",
    "session::finish_sent",
];

/// One point in a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrashPoint {
    /// Its name, such as `after attempts::record`.
    pub(crate) name: String,
    /// How many processes passed it.
    pub(crate) passed: usize,
    /// How often it was armed in a process.
    pub(crate) armed: usize,
    /// How many processes died there.
    pub(crate) struck: usize,
}

/// The folder that the programs read.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    std::env::var_os(CRASH_DIR_ENV).map(PathBuf::from).context("make faults says where crash points are armed")
}

/// Every point that a pass has to reach.
fn all() -> impl Iterator<Item = String> {
    let both = |what: &'static str| ["before", "after"].map(|when| format!("{when} {what}"));
    // A send is a point only after it.
    GATEWAY_POINTS.into_iter().chain(AGENT_POINTS).flat_map(both).filter(|point| point != "before session::finish_sent")
}

/// Whether a point has one of these kinds.
pub(crate) fn is_of(point: &str, kinds: &[&str]) -> bool {
    point.split(' ').nth(1).is_some_and(|what| kinds.contains(&what))
}

/// Records that a point was armed in a process.
pub(crate) fn tried(folder: &Path, pid: u32, point: &str) -> anyhow::Result<()> {
    let file = folder.join(format!("{pid}.tried"));
    Ok(writeln!(std::fs::OpenOptions::new().append(true).create(true).open(file)?, "{point}")?)
}

/// Removes the death record of an earlier process with the same identifier: identifiers are reused.
pub(super) fn set_aside(folder: &Path, pid: u32) -> std::io::Result<()> {
    let file = folder.join(format!("{pid}.struck"));
    if !file.exists() {
        return Ok(());
    }
    let free = (1..).map(|turn| folder.join(format!("{pid}.{turn}.struck"))).find(|free| !free.exists());
    std::fs::rename(file, free.expect("not all of them are taken"))
}

/// How many processes died at each point so far.
pub(crate) fn struck(folder: &Path) -> BTreeMap<String, usize> {
    count(folder, "struck")
}

/// Every point that a pass has to reach, with its counts.
pub(crate) fn gather(folder: &Path) -> Vec<CrashPoint> {
    let [passed, armed, struck] = ["passed", "tried", "struck"].map(|ending| count(folder, ending));
    let of = |counts: &BTreeMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or_default();
    all()
        .map(|name| {
            let (passed, armed, struck) = (of(&passed, &name), of(&armed, &name), of(&struck, &name));
            CrashPoint { name, passed, armed, struck }
        })
        .collect()
}

/// How often each line occurs in the files with an extension.
fn count(folder: &Path, ending: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if file.path().extension().is_some_and(|found| found == ending) {
            for line in std::fs::read_to_string(file.path()).unwrap_or_default().lines() {
                *counts.entry(line.trim().to_owned()).or_default() += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_and_strikes_write_down_is_counted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writable");
        write("7.passed", "before attempts::claim\nafter attempts::claim\n");
        write("8.passed", "before attempts::claim\n");
        write("8.struck", "before attempts::claim");
        tried(folder.path(), 8, "before attempts::claim").expect("writable");
        let points = gather(folder.path());
        let found = points.iter().find(|point| point.name == "before attempts::claim");
        let name = "before attempts::claim".to_owned();
        assert_eq!(found, Some(&CrashPoint { name, passed: 2, armed: 1, struck: 1 }));
        assert_eq!(points.len(), 73, "46 of a gateway, 27 of an agent");
        set_aside(folder.path(), 8).expect("renamed");
        set_aside(folder.path(), 8).expect("nothing is there");
        assert!(!folder.path().join("8.struck").exists());
        write("8.struck", "before attempts::claim");
        set_aside(folder.path(), 8).expect("renamed");
        assert_eq!(struck(folder.path()).get("before attempts::claim"), Some(&2), "both still count");
    }

    #[test]
    fn every_point_of_a_gateway_is_one_in_its_source() {
        let mut source = String::new();
        let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway/src/store"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the sources are there").flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    source.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
                }
            }
        }
        for point in GATEWAY_POINTS {
            assert!(["-- ", "\""].iter().any(|before| source.contains(&format!("{before}{point}"))), "{point}");
        }
    }
}
