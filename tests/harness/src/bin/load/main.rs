//! `make load`: puts the whole product under load, and checks that nothing was lost, doubled or wrongly reported.
//!
//! | level | load |
//! |---|---|
//! | L1 | a rate of submissions to many devices over three gateways, each with a callback, beside open streams |
//! | L3 | very many runs wait for one sleeping device, which then wakes |
//! | L4 | ten times the rate of L1 |
//! | L6 | races: very many callers for the same single thing |
//!
//! | part | what it does |
//! |---|---|
//! | [`environment`] | three gateways on one PostgreSQL, the devices, the receiver of callbacks |
//! | [`submissions`] | submissions at their scheduled times, independent of earlier ones |
//! | [`steady_load`] [`device_wake`] [`races`] | the levels |
//! | [`report`] | the measurements, and what was wrong |
//!
//! It runs on an island, because callbacks go to public addresses only, and each level ends by itself.

mod device_wake;
mod environment;
mod races;
mod report;
mod steady_load;
mod submissions;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use deskgate_harness::island;
use futures_util::FutureExt;

use environment::LoadEnvironment;
use report::LoadReport;

/// Puts Deskgate under load; the report also goes to target/load.
#[derive(Debug, Parser)]
struct Options {
    /// What is tried, with commas
    #[arg(long, env = "LEVELS", value_delimiter = ',', value_enum, ignore_case = true, default_values = ["l1", "l3", "l4", "l6"])]
    levels: Vec<Scenario>,
    /// How long L1 lasts; L4 lasts a third of it
    #[arg(long, env = "LOAD_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=7200))]
    seconds: u32,
    /// Submissions in a second, in L1
    #[arg(long, env = "RATE", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Devices that execute
    #[arg(long, env = "DEVICES", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    devices: u32,
    /// Streams that are open in L1
    #[arg(long, env = "STREAMS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=5000))]
    streams: u32,
    /// Runs that wait for a sleeping device in L3
    #[arg(long, env = "RUNS", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// Racers of L6
    #[arg(long, env = "RACERS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=5000))]
    racers: u32,
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    L1,
    L3,
    L4,
    L6,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match island::inside() {
        Some(folder) => island::run(judged(&options, folder)),
        None => island::enter("load", &[]),
    };
    done.unwrap_or_else(|error| {
        eprintln!("load: {error:#}");
        ExitCode::FAILURE
    })
}

async fn judged(options: &Options, folder: PathBuf) -> anyhow::Result<ExitCode> {
    let report = loaded(options).await;
    report.write(&folder)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All levels, one after the other, on one site.
async fn loaded(options: &Options) -> LoadReport {
    let mut report = LoadReport::default();
    let mut site = LoadEnvironment::open(options.devices as usize).await;
    for level in &options.levels {
        println!("load: {level:?}");
        report.begin(format!("{level:?}"), &site);
        let tried = async {
            match level {
                Scenario::L1 => steady_load::beside_streams(&mut site, options, &mut report).await,
                Scenario::L3 => device_wake::from_sleep(&mut site, options.runs, &mut report).await,
                Scenario::L4 => steady_load::ten_times(&mut site, options, &mut report).await,
                Scenario::L6 => races::race(&mut site, options.racers as usize, &mut report).await,
            }
        };
        // A panic's message has been printed; the measurements so far are kept.
        if AssertUnwindSafe(tried).catch_unwind().await.is_err() {
            report.wrong("it could not go on".to_owned());
            break;
        }
        report.end(&site);
    }
    report
}
