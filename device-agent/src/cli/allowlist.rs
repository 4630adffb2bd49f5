//! `allowlist`: the hosts that callbacks may go to.

use clap::Subcommand;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::visible;
use deskgate_protocol::management::{Allowlist as Record, SetAllowlist, ShowAllowlist};

use super::socket::AgentClient;

/// `deskgate allowlist …`
#[derive(Debug, Subcommand)]
pub(super) enum AllowlistCommand {
    /// The hosts that callbacks may go to
    Show,
    /// Allow one host more
    Add {
        /// Its exact name, such as hooks.example.com
        host: String,
    },
    /// Allow one host no more; its callbacks fail from the next attempt on
    Remove {
        /// Its exact name
        host: String,
    },
    /// Replace them; without any, no callback is sent anywhere
    #[command(
        after_help = "Only a built-in gateway takes its list from the desktop. Another one's is set on its server."
    )]
    Set {
        /// Exact names, such as hooks.example.com; commas or spaces between them
        #[arg(value_delimiter = ',')]
        host: Vec<String>,
    },
}

pub(super) async fn run(agent: AgentClient, command: AllowlistCommand, out: Output) -> Result<(), Failure> {
    let allowlist = match command {
        AllowlistCommand::Show => agent.manage(ShowAllowlist {}).await?,
        AllowlistCommand::Add { host } => {
            let mut hosts = agent.manage(ShowAllowlist {}).await?.hosts;
            if !hosts.contains(&host) {
                hosts.push(host);
            }
            agent.manage(SetAllowlist { hosts }).await?
        }
        AllowlistCommand::Remove { host } => {
            let mut hosts = agent.manage(ShowAllowlist {}).await?.hosts;
            let before = hosts.len();
            hosts.retain(|known| *known != host);
            if hosts.len() == before {
                let message = format!("{} is not on the list; see: deskgate allowlist show", visible::line(&host));
                return Err(Failure::new(Exit::Failed, message));
            }
            agent.manage(SetAllowlist { hosts }).await?
        }
        AllowlistCommand::Set { host } => {
            let hosts = host.into_iter().filter(|host| !host.trim().is_empty()).collect();
            agent.manage(SetAllowlist { hosts }).await?
        }
    };
    out.result("allowlist/1", &allowlist, || describe(&allowlist));
    Ok(())
}

fn describe(allowlist: &Record) -> String {
    let hosts = match allowlist.hosts.as_slice() {
        [] => "No host is allowed: no callback is sent anywhere.".to_owned(),
        hosts => hosts.join("\n"),
    };
    let whose = match allowlist.is_yours {
        true => "",
        false => "\nThis gateway's administrator sets the list, on its server.",
    };
    hosts + whose
}
