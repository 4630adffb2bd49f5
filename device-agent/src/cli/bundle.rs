//! `bundle`: the support bundle as one text file; its contents are listed before it is written.

use std::path::PathBuf;

use clap::Args;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;

use super::socket::{AgentClient, home};
use crate::local::{MakeBundle, of_disk};

/// `deskgate bundle`
#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    /// Where to; nothing may be there yet
    #[arg(long, value_name = "FILE", default_value = "deskgate-support.txt")]
    output: PathBuf,
    #[command(flatten)]
    confirmation: Confirmation,
}

pub(super) async fn run(agent: AgentClient, make: BundleArgs, out: Output) -> Result<(), Failure> {
    let (bundle, running) = match agent.request(MakeBundle {}).await {
        Ok(bundle) => (bundle, true),
        // An agent that does not start is a reason to need support.
        Err(failure) if failure.exit == Exit::CannotReach => (of_disk(&home()?), false),
        Err(failure) => return Err(failure),
    };
    if !running {
        terminal::report("The agent is not running, so it is not asked.");
    }
    let withheld = "No keys, no inputs, results, instructions or contents of files.";
    bundle.write("Deskgate", withheld, &make.output, make.confirmation, out)
}
