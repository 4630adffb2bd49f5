//! `open`: the management pages, in the person's own browser.

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;

use super::socket::AgentClient;
use crate::config::Home;
use crate::local::{OpenPages, opener};

/// `deskgate open`
#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// The page to begin with, such as approvals or runs
    page: Option<String>,
    /// Print the link instead; it works once, for a minute
    #[arg(long)]
    print: bool,
}

pub(super) async fn run(agent: AgentClient, open: OpenArgs, out: Output) -> Result<(), Failure> {
    let opened = agent.request(OpenPages { page: open.page.map(path) }).await?;
    if open.print || out.json {
        out.result("open/1", &opened, || opened.link.clone());
        return Ok(());
    }
    let home = Home::find().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
    match opener::open(&home.opener(), opened.link).await {
        Ok(()) => {
            out.result("open/1", &serde_json::json!({}), || "Opened in your browser.".to_owned());
            Ok(())
        }
        Err(why) => Err(Failure::new(Exit::Failed, format!("{why}. Print a link with: deskgate open --print"))),
    }
}

/// The path of a page in its address.
fn path(page: String) -> String {
    if page.starts_with('/') { page } else { format!("/{page}") }
}
