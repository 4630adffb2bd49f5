//! `uninstall`: ends what the agent does on this computer, removes what is asked, and says what stays.

use std::path::Path;

use clap::Args;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records::counted;
use serde_json::json;

use super::daemon;
use super::socket::{AgentClient, home};
use crate::local::autostart::Autostart;
use crate::local::{
    GetStatus, ListMcpServers, ListProviders, NewKey, SetMcpServer, SetProvider, SignOutMcpServer, Stop,
};

/// `deskgate uninstall`
#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    /// Delete the keys of model providers and MCP servers from this computer, and end the sign-ins there
    #[arg(long)]
    keys: bool,
    /// Delete everything that is kept in the agent's folder, and the keys: this device's identity, services, approvals and
    /// receipts, and with the built-in gateway its queue and results
    #[arg(long)]
    data: bool,
    /// Interrupt runs in progress, instead of letting them finish
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// The other systems' keys that the agent holds.
#[derive(Default)]
struct Keys {
    providers: Vec<String>,
    /// The MCP servers with a key, and those where somebody is signed in.
    servers: Vec<String>,
    sign_ins: Vec<String>,
}

impl Keys {
    async fn of(agent: &AgentClient) -> Result<Self, Failure> {
        let providers = agent.request(ListProviders {}).await?.into_iter();
        let mut keys = Self {
            providers: providers.filter(|provider| provider.has_key).map(|provider| provider.name).collect(),
            ..Self::default()
        };
        for server in agent.request(ListMcpServers {}).await? {
            if server.key_place.is_some() {
                keys.servers.push(server.name);
            } else if server.sign_in.is_some() {
                keys.sign_ins.push(server.name);
            }
        }
        Ok(keys)
    }

    fn count(&self) -> u32 {
        let all = self.providers.len() + self.servers.len() + self.sign_ins.len();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    async fn delete(self, agent: &AgentClient) -> Result<(), Failure> {
        for name in self.providers {
            let same = SetProvider {
                name,
                profile: None,
                api: None,
                base_url: None,
                api_version: None,
                plain_http: None,
                key: NewKey::Forget,
                key_place: None,
            };
            agent.request(same).await?;
        }
        for name in self.servers {
            agent.request(SetMcpServer { name, url: None, header: None, key: NewKey::Forget, key_place: None }).await?;
        }
        for name in self.sign_ins {
            agent.request(SignOutMcpServer { name }).await?;
        }
        Ok(())
    }
}

pub(super) async fn run(agent: AgentClient, uninstall: UninstallArgs, out: Output) -> Result<(), Failure> {
    let UninstallArgs { keys, data, now, confirmation } = uninstall;
    let folder = home()?.path().to_owned();
    let runs = match agent.request(GetStatus {}).await {
        Ok(_) => true,
        Err(failure) if failure.exit == Exit::CannotReach => false,
        Err(failure) => return Err(failure),
    };
    let held = match (runs, keys || data) {
        (true, true) => Keys::of(&agent).await?,
        // Only the agent opens the keyring.
        (false, true) if folder.exists() => {
            return Err(Failure::new(
                Exit::CannotReach,
                "the agent is not running, and some keys may be in the desktop's keyring. Start it first: deskgate start",
            ));
        }
        _ => Keys::default(),
    };
    confirmation.confirm(&question(runs, now, held.count(), data.then_some(folder.as_path())))?;
    let deleted_keys = held.count();
    held.delete(&agent).await?;
    if runs {
        agent.request(Stop { now }).await?;
        daemon::is_gone(&agent).await?;
    }
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    Autostart::of(&folder).and_then(|autostart| autostart.disable()).map_err(|error| failed(&error))?;
    if data && folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| Failure::file(&folder, &error))?;
    }
    let stays = what_stays(&folder);
    let value = json!({ "stopped": runs, "keys_deleted": deleted_keys, "data_deleted": data, "stays": stays });
    out.result("uninstalled/1", &value, || {
        let stays: String = stays.iter().map(|what| format!("\n  {what}")).collect();
        format!("The agent is stopped and does not start at login.\nWhat stays on this computer:{stays}")
    });
    Ok(())
}

fn question(runs: bool, now: bool, keys: u32, data: Option<&Path>) -> String {
    let stop = match (runs, now) {
        (true, false) => {
            "The agent is stopped once its runs in progress have finished, and does not start at login any more."
        }
        (true, true) => {
            "The agent is stopped at once, its runs in progress are interrupted, and it does not start at login any more."
        }
        (false, _) => "The agent does not start at login any more.",
    };
    let mut text = format!("Uninstall?\n  {stop}");
    if keys > 0 {
        text += &format!(
            "\n  {} of model providers and MCP servers are deleted here, and not revoked where they came from.",
            counted(keys, "key")
        );
    }
    if let Some(folder) = data {
        text += &format!(
            "\n  Everything in {} is deleted for good. A remote gateway goes on to know this device until its administrator \
             revokes it.",
            folder.display()
        );
    }
    text
}

/// What is left, each with how to remove it.
fn what_stays(folder: &Path) -> Vec<String> {
    let mut stays = Vec::new();
    if folder.exists() {
        stays.push(format!(
            "{}: identity, services, receipts and keys. To remove them: deskgate uninstall --data",
            folder.display()
        ));
    }
    if let Ok(program) = std::env::current_exe() {
        let how = match Path::new("/var/lib/dpkg/info/deskgate.list").exists() {
            true => "sudo apt remove deskgate",
            false => "delete the file",
        };
        stays.push(format!("the program {}. To remove it: {how}", program.display()));
    }
    stays.push("what runs changed in your folders".to_owned());
    stays
}
