//! `access`: whether callers have access.

use clap::Subcommand;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_protocol::management::{GetAccess, SetAccess};

use super::socket::AgentClient;

/// `deskgate access …`
#[derive(Debug, Subcommand)]
pub(super) enum AccessCommand {
    /// Let callers use what is published
    Enable,
    /// Refuse new requests; runs in progress finish
    Pause,
    /// Whether access is enabled, and where
    Show,
}

pub(super) async fn run(agent: AgentClient, command: AccessCommand, out: Output) -> Result<(), Failure> {
    let access = match command {
        AccessCommand::Enable => agent.manage(SetAccess { enabled: true }).await?,
        AccessCommand::Pause => agent.manage(SetAccess { enabled: false }).await?,
        AccessCommand::Show => agent.manage(GetAccess {}).await?,
    };
    out.result("access/1", &access, || match access.enabled {
        true => format!("Access is enabled at {}", access.address),
        false => format!("Access is paused at {}. Enable it with: deskgate access enable", access.address),
    });
    Ok(())
}
