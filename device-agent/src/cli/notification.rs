//! `notification`: whether desktop notifications announce calls that wait for a decision.

use clap::{Args, Subcommand};
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;

use super::socket::AgentClient;
use crate::local::{GetNotifications, SetNotifications};
use crate::settings;

/// `deskgate notification …`
#[derive(Debug, Subcommand)]
pub(super) enum NotificationCommand {
    /// What is shown
    Show,
    /// Choose what is shown
    Set(NotificationSetArgs),
}

/// `deskgate notification set`
#[derive(Debug, Args)]
pub(super) struct NotificationSetArgs {
    /// Whether a tool call that waits for your decision shows a notification
    #[arg(long, value_name = "BOOL")]
    approvals: Option<bool>,
    /// Whether it names no service, tool or place
    #[arg(long, value_name = "BOOL")]
    hide_details: Option<bool>,
}

pub(super) async fn run(agent: AgentClient, command: NotificationCommand, out: Output) -> Result<(), Failure> {
    let now = match command {
        NotificationCommand::Show => agent.request(GetNotifications {}).await?,
        NotificationCommand::Set(set) => {
            agent.request(SetNotifications { on: set.approvals, hide_details: set.hide_details }).await?
        }
    };
    out.result("notifications/1", &now, || show(now).to_owned());
    Ok(())
}

fn show(now: settings::Notifications) -> &'static str {
    match (now.on, now.hide_details) {
        (true, false) => "A tool call that waits for your decision shows a notification with service, tool and place.",
        (true, true) => "A tool call that waits for your decision shows a notification without details.",
        (false, _) => "No notifications are shown.",
    }
}
