//! `autostart`: whether the agent starts at login.

use clap::Subcommand;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;

use super::socket::Agent;
use crate::local::{GetAutostart, SetAutostart};

/// `deskgate autostart …`
#[derive(Debug, Subcommand)]
pub(super) enum Autostart {
    /// Start the agent when you log in, by a unit of your own systemd
    Enable,
    /// Do not start it any more; an agent that runs goes on
    Disable,
    /// Whether it starts, and by which file
    Show,
}

pub(super) async fn run(agent: Agent, command: Autostart, out: Output) -> Result<(), Failure> {
    let state = match command {
        Autostart::Enable => agent.ask(SetAutostart { enabled: true }).await?,
        Autostart::Disable => agent.ask(SetAutostart { enabled: false }).await?,
        Autostart::Show => agent.ask(GetAutostart {}).await?,
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
