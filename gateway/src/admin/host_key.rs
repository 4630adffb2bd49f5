//! `deskgate-gateway admin host-key …`: shows and replaces the keys of the SSH listener.

use std::path::Path;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{risk, send_request, unexpected};
use super::state::AdminService;
use super::{AdminErrorCode, AdminReply, AdminRequest, no};
use crate::tunnel::{HostKey, HostKeys};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;

/// `deskgate-gateway admin host-key …`; alone, it shows the key.
#[derive(Debug, Subcommand)]
pub enum HostKeyCommand {
    /// Make the next host key, and tell every device that connects that it will be shown in future
    Announce,
    /// Show the announced key from now on, and the old one never again
    Rotate {
        /// Accept what that does to devices that do not know the new key: block-devices
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
    },
}

/// A request about the gateway's host keys.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminHostKeyRequest {
    /// Show the keys.
    Show,
    /// Announce the next one.
    Announce,
    /// Replace the current key with the announced one.
    Rotate {
        /// Even if devices do not know it yet.
        even_if_unknown: bool,
    },
}

/// The host keys of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostKeysView {
    /// The key in use.
    #[serde(flatten)]
    pub current: HostKeyView,
    /// The announced key.
    pub next: Option<NextHostKey>,
}

/// One host key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostKeyView {
    /// `SHA256:…`
    pub fingerprint: String,
    /// The key as a line of a known-hosts file.
    pub public_key: String,
}

/// The key that will be shown in future.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextHostKey {
    /// The key.
    #[serde(flatten)]
    pub key: HostKeyView,
    /// Names of the paired devices that have received it.
    pub told: Vec<String>,
    /// Names of the paired devices that have not.
    pub not_told: Vec<String>,
}

fn view(key: &HostKey) -> HostKeyView {
    HostKeyView { fingerprint: key.fingerprint(), public_key: key.public_key().to_string() }
}

/// The gateway's answer.
pub(super) async fn answer(service: &AdminService, ask: AdminHostKeyRequest) -> Result<AdminReply, AdminReply> {
    let Some(keys) = &service.host_keys else { return Ok(AdminReply::HostKeys { keys: None }) };
    match ask {
        AdminHostKeyRequest::Show => {}
        AdminHostKeyRequest::Announce => {
            let next = keys.announce().map_err(|error| no(AdminErrorCode::Refused, error.to_string()))?;
            tracing::info!(fingerprint = next.fingerprint(), "the next host key is announced");
        }
        AdminHostKeyRequest::Rotate { even_if_unknown } => {
            let not_told = current(service, keys).await?.next.map(|next| next.not_told).unwrap_or_default();
            if !not_told.is_empty() && !even_if_unknown {
                let message = format!(
                    "{} would refuse this gateway: they were never told of the new host key, so their users would have to \
                     pin it by hand. No changes were made.\nWait until they have connected, or go on with: deskgate-gateway \
                     admin host-key rotate --accept-risk=block-devices",
                    not_told.join(", ")
                );
                return Err(no(AdminErrorCode::Refused, message));
            }
            let old = keys.current().fingerprint();
            let new = keys.rotate().map_err(|error| no(AdminErrorCode::Refused, error.to_string()))?;
            tracing::info!(old, new = new.fingerprint(), "the host key was replaced");
        }
    }
    Ok(AdminReply::HostKeys { keys: Some(Box::new(current(service, keys).await?)) })
}

async fn current(service: &AdminService, keys: &HostKeys) -> Result<HostKeysView, AdminReply> {
    let next = match keys.next() {
        Some(next) => {
            let (told, not_told) = service.store.devices_by_host_key(&next.fingerprint()).await?;
            Some(NextHostKey { key: view(&next), told, not_told })
        }
        None => None,
    };
    Ok(HostKeysView { current: view(&keys.current()), next })
}

/// Runs the command.
pub(super) async fn run(socket: &Path, command: Option<HostKeyCommand>, out: Output) -> Result<(), Failure> {
    let asked = match command {
        None => AdminHostKeyRequest::Show,
        Some(HostKeyCommand::Announce) => AdminHostKeyRequest::Announce,
        Some(HostKeyCommand::Rotate { accept_risk }) => {
            AdminHostKeyRequest::Rotate { even_if_unknown: risk(accept_risk.as_deref(), "block-devices")? }
        }
    };
    match send_request(socket, AdminRequest::HostKey(asked)).await? {
        AdminReply::HostKeys { keys: Some(keys) } => {
            out.result("host-key/1", &json!(keys), || shown(&keys));
            Ok(())
        }
        AdminReply::HostKeys { keys: None } => {
            let message = "This gateway has no SSH listener. Set ssh.listen, or use the host key of this server's sshd:\n  \
                           ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub";
            Err(Failure::new(Exit::NotSetUp, message))
        }
        other => Err(unexpected(&other)),
    }
}

fn shown(keys: &HostKeysView) -> String {
    let current = format!("{}\n{}", keys.current.fingerprint, keys.current.public_key);
    let Some(next) = &keys.next else { return current };
    let named = |names: &[String]| if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    format!(
        "{current}\n\nAnnounced, to be shown after `deskgate-gateway admin host-key rotate`:\n{}\n{}\nKnown to: {}\nNot yet \
         known to: {}",
        next.key.fingerprint,
        next.key.public_key,
        named(&next.told),
        named(&next.not_told)
    )
}
