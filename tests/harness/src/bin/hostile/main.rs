//! `make hostile`: hostile halves of the product against the real programs.
//!
//! A hostile gateway has what a taken-over one has: the paired host key, the control token, the identifiers and the
//! digests of every service. A hostile device is paired, beside the applications of an honest one. Each row of the
//! table is one behaviour. It counts only if the victim was shown to have read it, and it must have no effect: the
//! witnesses stand beside the product.
//!
//! | part | what it does |
//! |---|---|
//! | [`behaviour`] | the table's type: what is tried, what it attacks, what proves that it arrived |
//! | [`gateway`] | the hostile gateway, a file for each family of behaviours, and its judge |
//! | [`device`] | the hostile device, likewise |
//! | [`witnesses`] | folders byte for byte, memory and open files, texts that people are shown |
//! | [`report`] | the table on screen and in `target/hostile` |

mod behaviour;
mod device;
mod gateway;
mod report;
mod witnesses;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use deskgate_harness::island;
use deskgate_harness::report::folder;

/// Which half is hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    Gateway,
    Device,
}

/// Plays a hostile gateway and a hostile device; the table also goes to target/hostile.
#[derive(Debug, Parser)]
struct Options {
    /// Only this half
    #[arg(long, env = "SIDE")]
    side: Option<Side>,
    /// Only behaviours whose names contain this
    #[arg(long, env = "ONLY", default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(island::until_interrupted(judged(&options))),
        Err(error) => Err(error.into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("hostile: {error:#}");
        ExitCode::FAILURE
    })
}

/// Plays both halves and judges them.
async fn judged(options: &Options) -> anyhow::Result<ExitCode> {
    let folder = folder("hostile")?;
    let mut rows = Vec::new();
    if options.side != Some(Side::Device) {
        rows.extend(Box::pin(gateway::play(&options.only, &folder)).await?);
    }
    if options.side != Some(Side::Gateway) {
        rows.extend(Box::pin(device::play(&options.only, &folder)).await?);
    }
    let is_clean = report::write(&rows, &folder)?;
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
