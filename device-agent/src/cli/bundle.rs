//! `bundle`: the support bundle as one text file; its contents are listed before it is written.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use serde_json::json;

use super::confirmation::Confirmation;
use super::socket::{AgentClient, home};
use crate::local::{MakeBundle, of_disk};

/// `deskgate bundle`
#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    /// Where to; nothing may be there yet
    #[arg(long, value_name = "FILE", default_value = "deskgate-support.txt")]
    output: PathBuf,
    #[command(flatten)]
    consent: Confirmation,
}

pub(super) async fn run(agent: AgentClient, make: BundleArgs, out: Output) -> Result<(), Failure> {
    let (bundle, running) = match agent.request(MakeBundle {}).await {
        Ok(bundle) => (bundle, true),
        // An agent that does not start is a reason to need support.
        Err(failure) if failure.exit == Exit::CannotReach => (of_disk(&home()?), false),
        Err(failure) => return Err(failure),
    };
    let without = if running { "" } else { "The agent is not running, so it is not asked.\n" };
    let question = format!(
        "{without}{} will hold, and you can read it before you send it:\n{}No keys, no inputs, results, instructions or \
         contents of files.",
        make.output.display(),
        bundle.contents()
    );
    make.consent.confirm(&question)?;
    let failed = |error: std::io::Error| Failure::file(&make.output, &error);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&make.output).map_err(failed)?;
    file.write_all(bundle.text("Deskgate").as_bytes()).map_err(failed)?;
    let parts: Vec<_> = bundle.parts.iter().map(|part| &part.name).collect();
    out.result("bundle/1", &json!({ "file": make.output, "parts": parts }), || {
        format!("Written to {}. Read it before you send it.", make.output.display())
    });
    Ok(())
}
