//! `identity`: who this device is.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Subcommand;
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::Output;

use super::socket::Agent;
use crate::local::GetIdentity;

/// `deskgate identity …`
#[derive(Debug, Subcommand)]
pub(super) enum Identity {
    /// Show the name, the key's public half and its fingerprint
    Show,
    /// Write the identity file that the gateway's administrator pairs this device with
    Export {
        /// The file; it must not exist. - for standard output
        file: PathBuf,
    },
}

pub(super) async fn run(agent: Agent, command: Identity, out: Output) -> Result<(), Failure> {
    let identity = agent.ask(GetIdentity {}).await?;
    match command {
        Identity::Show => {
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
        Identity::Export { file } => {
            let text = serde_json::to_string_pretty(&identity)
                .map_err(|error| Failure::new(Exit::Failed, format!("the identity cannot be written: {error}")))?;
            if file.as_os_str() == "-" {
                println!("{text}");
                return Ok(());
            }
            let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&file);
            written
                .and_then(|mut file| writeln!(file, "{text}"))
                .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))?;
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
