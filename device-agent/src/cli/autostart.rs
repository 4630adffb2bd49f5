//! `autostart`: whether the agent starts at login.

use clap::Subcommand;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;

use super::socket::AgentClient;
use crate::local::{GetAutostart, SetAutostart};

/// `deskgate autostart …`
#[derive(Debug, Subcommand)]
pub(super) enum AutostartCommand {
    /// Start the agent when you log in, by a unit of your own systemd
    Enable,
    /// Do not start it any more; an agent that runs goes on
    Disable,
    /// Whether it starts, and by which file
    Show,
}

pub(super) async fn run(agent: AgentClient, command: AutostartCommand, out: Output) -> Result<(), Failure> {
    let state = match command {
        AutostartCommand::Enable => agent.request(SetAutostart { enabled: true }).await?,
        AutostartCommand::Disable => agent.request(SetAutostart { enabled: false }).await?,
        AutostartCommand::Show => agent.request(GetAutostart {}).await?,
    };
    out.result("autostart/1", &state, || {
        let begin = match state.enabled {
            true => format!("The agent starts when you log in, by {}", state.unit.display()),
            false => "The agent does not start by itself. Have it started with: deskgate autostart enable".to_owned(),
        };
        state.problem.iter().fold(begin, |text, problem| format!("{text}\nproblem  {problem}"))
    });
    Ok(())
}
