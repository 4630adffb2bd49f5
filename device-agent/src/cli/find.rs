//! `find`: searches by identifier or name.

use clap::Args;
use deskgate_program::exit::Failure;
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records;

use super::no_secret;
use super::socket::AgentClient;
use crate::local::{self, SearchResults};

/// `deskgate find`
#[derive(Debug, Args)]
pub(super) struct FindArgs {
    /// An identifier, or a name or a part of one
    text: String,
}

pub(super) async fn run(agent: AgentClient, find: FindArgs, out: Output) -> Result<(), Failure> {
    no_secret("TEXT", &find.text)?;
    let found = agent.request(local::Find { text: find.text }).await?;
    out.result("found/1", &found, || show(&found));
    Ok(())
}

fn show(found: &SearchResults) -> String {
    let heading = ["KIND", "NAME", "ID"];
    let mut text = records::list(&found.things, "Nothing has this identifier or name.", &heading, |hit| {
        vec![hit.kind.as_str().into(), hit.name.clone().into(), Cell::Id(hit.id.clone())]
    });
    if let Some(why) = &found.incomplete {
        text += &format!("\nOnly services and approvals were looked through: {why}");
    }
    text
}
