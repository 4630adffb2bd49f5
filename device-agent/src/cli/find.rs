//! `find`: searches by identifier or name.

use clap::Args;
use deskgate_program::exit::Failure;
use deskgate_program::output::{Output, table};

use super::no_secret;
use super::socket::AgentClient;
use crate::local::{self, SearchResults};
use deskgate_program::visible;

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
    let row =
        |thing: &local::SearchHit| vec![thing.kind.word().to_owned(), visible::line(&thing.name), thing.id.clone()];
    let mut text = match found.things.is_empty() {
        true => "Nothing has this identifier or name.".to_owned(),
        false => table(&["KIND", "NAME", "ID"], &found.things.iter().map(row).collect::<Vec<_>>()),
    };
    if let Some(why) = &found.incomplete {
        text += &format!("\nOnly services and approvals were looked through: {why}");
    }
    text
}
