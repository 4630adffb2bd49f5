//! Starts a program again in a network of its own, in which every address is this machine's: callbacks go to public
//! addresses only.

use std::ffi::OsStr;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use deskgate_tests::netns;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

use crate::report;

/// The variable that is set inside of the island, to the folder of the report.
const INSIDE_ENV: &str = "DESKGATE_HARNESS_INSIDE";

/// The folder of the report, if this program was started inside of the island.
pub fn inside() -> Option<PathBuf> {
    std::env::var_os(INSIDE_ENV).map(PathBuf::from)
}

/// Starts this program again on an island, with the same arguments, and returns how it ended. Its report goes to the
/// folder `name` of the target folder.
///
/// # Errors
/// The folder cannot be created, or the island cannot be made.
pub fn enter(name: &str, environment: &[(&str, &OsStr)]) -> anyhow::Result<ExitCode> {
    let mut again = netns::command(&std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).env(INSIDE_ENV, report::folder(name)?).envs(environment.iter().copied());
    let status = again.status().map_err(|error| anyhow::anyhow!("util-linux's unshare: {error}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs `work` inside of the island, until it ends or a signal comes. Dropping it stops what it started.
///
/// # Errors
/// Those of `work`; a signal.
pub fn run(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    // If the program outside ends, this one ends too.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    netns::arrange();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(until_interrupted(work))
}

/// Runs `work` until it ends or a signal comes. Dropping it stops what it started.
///
/// # Errors
/// Those of `work`; a signal.
pub async fn until_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => anyhow::bail!("interrupted; everything that was started is stopped"),
        _ = terminate.recv() => anyhow::bail!("told to stop; everything that was started is stopped"),
    }
}
