//! `identity`: this device's key and name.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Subcommand;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;

use super::socket::{AgentClient, home};
use super::{RunAgent, daemon};
use crate::local::GetIdentity;

/// `deskgate identity …`
#[derive(Debug, Subcommand)]
pub(super) enum IdentityCommand {
    /// Show the name, the key's public half and its fingerprint
    Show,
    /// Write the identity file that the gateway's administrator pairs this device with
    Export {
        /// The file; it must not exist. - for standard output
        file: PathBuf,
    },
    /// Give this device a new key: what to do when the gateway refuses the old one for good
    Renew {
        /// Accept that it has to be paired again, and leaves its applications behind: lose-pairing
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
    },
}

/// Something that is shown with the fingerprint of this device's key, by which receipts are checked.
#[derive(serde::Serialize)]
pub(super) struct WithFingerprint<'a, T: serde::Serialize> {
    #[serde(flatten)]
    shown: &'a T,
    device_fingerprint: String,
}

/// The fingerprint of this device's key. Asked for before a key is made, which is shown once.
pub(super) async fn fingerprint(agent: &AgentClient) -> Result<String, Failure> {
    Ok(agent.request(GetIdentity {}).await?.fingerprint)
}

impl<'a, T: serde::Serialize> WithFingerprint<'a, T> {
    pub(super) fn of(shown: &'a T, device_fingerprint: String) -> Self {
        Self { shown, device_fingerprint }
    }

    /// The line for people.
    pub(super) fn line(&self) -> String {
        format!("\nFingerprint of this device, by which the backend checks receipts:\n{}", self.device_fingerprint)
    }
}

pub(super) async fn run(
    agent: AgentClient,
    command: IdentityCommand,
    out: Output,
    run_agent: RunAgent,
) -> Result<(), Failure> {
    if let IdentityCommand::Renew { accept_risk } = command {
        return renew(agent, accept_risk.as_deref(), out, run_agent).await;
    }
    let identity = agent.request(GetIdentity {}).await?;
    match command {
        IdentityCommand::Renew { .. } => unreachable!("it asks no agent who it is, and was done above"),
        IdentityCommand::Show => {
            let value = serde_json::json!({
                "device_name": identity.device_name,
                "public_key": identity.public_key,
                "fingerprint": identity.fingerprint,
                "short_code": identity.public_key.short_code(),
            });
            out.result("identity/1", &value, || {
                format!(
                    "name         {}\nfingerprint  {}\nshort code   {}\npublic key   {}",
                    identity.device_name,
                    identity.fingerprint,
                    identity.public_key.short_code(),
                    identity.public_key
                )
            });
        }
        IdentityCommand::Export { file } => {
            let text = serde_json::to_string_pretty(&identity)
                .map_err(|error| Failure::new(Exit::Failed, format!("the identity cannot be written: {error}")))?;
            if file.as_os_str() == "-" {
                terminal::print(&text);
                return Ok(());
            }
            let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&file);
            written.and_then(|mut file| writeln!(file, "{text}")).map_err(|error| Failure::file(&file, &error))?;
            out.result("identity/1", &serde_json::json!({ "file": file, "fingerprint": identity.fingerprint }), || {
                format!(
                    "Wrote {}. It holds no secret.\nFingerprint  {}\nOn the server: deskgate-gateway admin device add {}",
                    file.display(),
                    identity.fingerprint,
                    file.file_name().unwrap_or(file.as_os_str()).display()
                )
            });
        }
    }
    Ok(())
}

const RENEW_RISK: &str = "lose-pairing";

/// Renames the old key; the next start creates a new one. A running agent is stopped before and started again after it.
async fn renew(agent: AgentClient, accepted: Option<&str>, out: Output, run_agent: RunAgent) -> Result<(), Failure> {
    match accepted {
        Some(RENEW_RISK) => {}
        Some(other) => {
            return Err(Failure::new(
                Exit::Usage,
                format!("--accept-risk={other}: the risk of this command is {RENEW_RISK}"),
            ));
        }
        None => {
            let message = format!(
                "A new identity has to be paired again, and what the old one published stays behind. No changes were \
                 made.\nTo go on: deskgate identity renew --accept-risk={RENEW_RISK}"
            );
            return Err(Failure::new(Exit::Refused, message));
        }
    }
    let ran = daemon::end(&agent, false).await?;
    let key = home()?.key();
    let now = deskgate_protocol::Timestamp::now().0.as_second();
    let aside = key.with_extension(format!("replaced-{now}"));
    let moved = std::fs::rename(&key, &aside);
    moved.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", key.display())))?;
    if ran {
        daemon::start(daemon::StartArgs::again(), Output { json: false, quiet: true }, run_agent).await?;
    }
    out.result("identity-renewed/1", &serde_json::json!({ "old_key": aside, "started": ran }), || {
        let next = if ran { "" } else { "deskgate start, then " };
        format!(
            "The old key is {}. Pair the new one: {next}deskgate identity export FILE, and give that to the gateway's \
             administrator.",
            aside.display()
        )
    });
    Ok(())
}
