//! `make faults`: breaks the whole product on purpose, and judges it by the records of witnesses.
//!
//! Three gateways of the real program share one PostgreSQL; two devices are connected over SSH; callers of several
//! kinds submit, send messages, reset, stop and follow. Faults are injected and healed one after the other, in an order
//! that a seed decides. Then the evidence is gathered, and the checker reports every violation of an invariant.
//!
//! | part | what it does |
//! |---|---|
//! | [`plan`] [`seed`] | decide beforehand which faults there are, when and for how long |
//! | [`testbed`] | the system under test, and the witnesses: the journals of model, tool server and receiver, and the
//! effect logs |
//! | [`callers`] | the load meanwhile, each with a [`history`] of its own |
//! | [`injection`] | the faults: inject, prove that they took effect, heal |
//! | [`pass`] | one pass from start to end |
//! | [`evidence`] [`database`] [`storage`] | the evidence that is gathered at the end |
//! | [`check`] | the invariants, as pure functions over the witnesses' records |
//! | [`report`] | the text and the page |
//!
//! It runs on an island, because callbacks go to public addresses only. Everything it starts listens there, uses
//! temporary folders, and is stopped at the end, on an error and on Ctrl-C.

mod callers;
mod check;
mod database;
mod evidence;
mod history;
mod injection;
mod pass;
mod plan;
mod report;
mod seed;
mod storage;
mod testbed;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use clap::Parser;
use deskgate_harness::island;
use deskgate_harness::report::folder as report_folder;
use deskgate_tests::process::CRASH_DIR_ENV;

use check::pass_validity::{self, PassRequirements};
use injection::POINT_FILTER_ENV;
use plan::FaultKind;
use report::PassReport;

/// Breaks Deskgate on purpose; the report also goes to target/faults.
#[derive(Debug, Parser)]
struct Options {
    /// Every kind of fault there is, for half an hour, instead of the usual ones
    #[arg(long)]
    long: bool,
    /// Programs that die at a point: three at each, or the pass does not count, unless it is told how many and where
    #[arg(long, conflicts_with = "long")]
    points: bool,
    /// How many faults are struck; without it 72, six of each kind in a long pass, or 210 that die at a point
    #[arg(long, env = "FAULTS")]
    faults: Option<usize>,
    /// Decides everything that is left to chance; without it one is chosen, and shown
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// Kinds of faults, with commas
    #[arg(long, env = "KINDS", value_delimiter = ',')]
    kinds: Vec<FaultKind>,
    /// Runs that must have ended for the pass to count; without it 1000, or 16 for each fault where there are fewer
    #[arg(long, env = "RUNS")]
    runs: Option<usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match island::inside() {
        Some(folder) => island::run(judged(&options, folder)),
        None => outside(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("faults: {error:#}");
        ExitCode::FAILURE
    })
}

/// Starts this program again on an island, with a seed and a folder for the points at which programs die.
fn outside(options: &Options) -> anyhow::Result<ExitCode> {
    let own = u64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?;
    let seed = options.seed.unwrap_or(own % 1_000_000).to_string();
    let points = report_folder("faults")?.join("points");
    let _ = std::fs::remove_dir_all(&points);
    std::fs::create_dir_all(&points).with_context(|| points.display().to_string())?;
    island::enter("faults", &[(CRASH_DIR_ENV, points.as_os_str()), ("SEED", seed.as_ref())])
}

/// Runs a pass and judges it.
async fn judged(options: &Options, folder: PathBuf) -> anyhow::Result<ExitCode> {
    let seed = options.seed.context("the one outside passes it on")?;
    let (usual, faults, deaths): (&[FaultKind], usize, usize) = match (options.long, options.points) {
        (true, _) => (&FaultKind::ALL_KINDS, 6 * FaultKind::ALL_KINDS.len(), 0),
        (_, true) => (&FaultKind::CRASH_POINT_PASS, 210, 3),
        _ => (&FaultKind::SHORT_PASS, 72, 0),
    };
    let is_whole = options.faults.is_none() && options.kinds.is_empty() && std::env::var_os(POINT_FILTER_ENV).is_none();
    let deaths = if is_whole { deaths } else { 0 };
    let faults = options.faults.unwrap_or(faults);
    let wanted = PassRequirements { faults, runs: options.runs.unwrap_or((faults * 16).min(1000)), deaths };
    let kinds = if options.kinds.is_empty() { usual } else { &options.kinds };
    let plan = plan::plan(seed, kinds, faults);
    let own = folder.join(format!("seed-{seed}"));
    let _ = std::fs::remove_dir_all(&own);
    std::fs::create_dir_all(&own).with_context(|| own.display().to_string())?;
    println!("faults: seed {seed}, {} faults", plan.len());
    let witnesses = Box::pin(pass::run(seed, &plan, wanted.runs, &own)).await;
    let report = PassReport {
        seed,
        violations: check::judge(&witnesses),
        reasons: pass_validity::shortfalls(&witnesses, wanted),
        witnesses: &witnesses,
    };
    report.write(&own, &folder)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
