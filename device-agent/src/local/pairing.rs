//! Requests about pairing by an invitation. The agent pairs in the background, so that it goes on when a command or a page ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::invitation::Invitation;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::error_reply::{invalid, refused};
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use super::{LeftBehind, PreviewLeaving, SaveConnection};
use crate::link::pairing::{self, Paired};
use crate::link::{LinkError, Ssh};
use crate::settings::{ConnectionEdit, ConnectionSettings, Mode, Remote};

/// The pause before the gateway is dialled again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Reads an invitation and says where it leads, without dialling anything.
#[derive(Clone, Serialize, Deserialize)]
pub struct ReadInvitation {
    /// The line.
    pub line: String,
}

impl TypedRequest for ReadInvitation {
    type Response = InvitationView;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<InvitationView, ErrorReply> {
        let invitation = read(&self.line)?;
        let connection = handler.connection().await?;
        let changes_mode = connection.mode != Mode::Remote;
        let leaves = PreviewLeaving { mode: Mode::Remote, edit: fields(&invitation) }.answer(handler, asker).await?;
        Ok(InvitationView { changes_mode, leaves, ..InvitationView::of(&invitation) })
    }
}

/// Pairs this device by an invitation, in the background. Another pairing that is under way ends.
#[derive(Clone, Serialize, Deserialize)]
pub struct Pair {
    /// The line.
    pub line: String,
    /// Whether runs of the present gateway may be abandoned.
    pub abandon_runs: bool,
}

impl TypedRequest for Pair {
    type Response = PairingView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<PairingView, ErrorReply> {
        handler.pair(&self.line, self.abandon_runs).await
    }
}

/// Gets how far the pairing is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetPairing {}

impl TypedRequest for GetPairing {
    type Response = PairingView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<PairingView, ErrorReply> {
        Ok(handler.pairing.view())
    }
}

/// Ends a pairing that is under way, and forgets how the last one went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CancelPairing {}

impl TypedRequest for CancelPairing {
    type Response = PairingView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<PairingView, ErrorReply> {
        handler.pairing.cancel();
        Ok(handler.pairing.view())
    }
}

impl std::fmt::Debug for ReadInvitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadInvitation(…)")
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(…)")
    }
}

/// Where an invitation leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationView {
    /// What is dialled.
    pub ssh_address: String,
    /// The fingerprint that the server's host key must have.
    pub host_key: String,
    /// The account there.
    pub ssh_user: String,
    /// The control socket there.
    pub control_socket: String,
    /// When the invitation ends.
    pub expires_at: Timestamp,
    /// Whether the active mode is another one, so that access pauses.
    pub changes_mode: bool,
    /// What stays behind at the present gateway, if this is another one.
    pub leaves: Option<LeftBehind>,
}

impl InvitationView {
    fn of(invitation: &Invitation) -> Self {
        let Invitation { expires_at, ssh_address, host_key, ssh_user, control_socket, .. } = invitation.clone();
        Self { ssh_address, host_key, ssh_user, control_socket, expires_at, changes_mode: false, leaves: None }
    }
}

/// How far a pairing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PairingView {
    /// None is under way.
    None,
    /// The gateway is dialled.
    Dialling {
        /// What is dialled.
        ssh_address: String,
        /// Why the last try did not get through.
        trouble: Option<String>,
        /// When the invitation ends.
        expires_at: Timestamp,
    },
    /// The gateway has taken this device in; its administrator has to confirm it.
    Waiting {
        /// Where.
        ssh_address: String,
        /// What the administrator compares.
        short_code: String,
        /// Until when.
        expires_at: Timestamp,
    },
    /// It is paired, and the connection is active.
    Paired {
        /// Where.
        ssh_address: String,
    },
    /// It failed for good.
    Failed {
        /// Where.
        ssh_address: String,
        /// Why, and what to do next.
        why: String,
    },
}

impl PairingView {
    /// Whether it goes on.
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::Dialling { .. } | Self::Waiting { .. })
    }
}

/// The pairing that is under way, or how the last one went.
#[derive(Clone, Debug)]
pub struct PairingMonitor {
    view: watch::Sender<PairingView>,
    task: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
}

impl Default for PairingMonitor {
    fn default() -> Self {
        Self { view: watch::Sender::new(PairingView::None), task: Arc::default() }
    }
}

impl PairingMonitor {
    /// How far it is.
    pub fn view(&self) -> PairingView {
        self.view.borrow().clone()
    }

    /// Told of each change.
    pub fn watch(&self) -> watch::Receiver<PairingView> {
        self.view.subscribe()
    }

    fn cancel(&self) {
        drop(self.task.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.view.send_replace(PairingView::None);
    }
}

fn read(line: &str) -> Result<Invitation, ErrorReply> {
    let invitation: Invitation = line.parse().map_err(|error| invalid(format!("invitation: {error}")))?;
    if invitation.is_over() {
        let message = "invitation: it has expired, by this computer's clock. Ask the gateway's administrator for another one: \
                       deskgate-gateway admin device invite";
        return Err(refused(message.to_owned()));
    }
    Ok(invitation)
}

/// The fields of the remote mode that an invitation fills.
fn fields(invitation: &Invitation) -> ConnectionEdit {
    ConnectionEdit {
        ssh_address: Some(invitation.ssh_address.clone()),
        ssh_user: Some(invitation.ssh_user.clone()),
        control_socket: Some(invitation.control_socket.clone()),
        host_key: Some(invitation.host_key.clone()),
        pins: true,
        ..ConnectionEdit::default()
    }
}

impl RequestHandler {
    async fn pair(&self, line: &str, abandon_runs: bool) -> Result<PairingView, ErrorReply> {
        let invitation = read(line)?;
        let unusable = |error: crate::settings::InvalidSettings| invalid(format!("invitation: {error}"));
        let remote = Remote {
            ssh_address: invitation.ssh_address.clone(),
            ssh_user: invitation.ssh_user.clone(),
            control_socket: invitation.control_socket.clone(),
            host_key: Some(invitation.host_key.clone()),
            ..Remote::default()
        };
        // Only the invitation's host key counts: nothing that a server announced before.
        let ssh = Ssh { followed: None, ..remote.ssh(self.host_keys_file.clone()).map_err(unusable)? };
        let before = self.connection().await?;
        let mut after: ConnectionSettings = before.clone();
        after.edit(Mode::Remote, fields(&invitation));
        after.save(Mode::Remote).map_err(unusable)?;
        self.may_leave(&before, &after, abandon_runs)?;
        let device_name = self.device_name().await?;
        let mut task = self.pairing.task.lock().unwrap_or_else(PoisonError::into_inner);
        self.pairing.view.send_replace(PairingView::Dialling {
            ssh_address: invitation.ssh_address.clone(),
            trouble: None,
            expires_at: invitation.expires_at,
        });
        let handler = self.clone();
        let pairing = async move { handler.follow_invitation(invitation, ssh, device_name, abandon_runs).await };
        *task = Some(AbortOnDropHandle::new(tokio::spawn(pairing)));
        Ok(self.pairing.view())
    }

    async fn follow_invitation(&self, invitation: Invitation, ssh: Ssh, device_name: String, abandon_runs: bool) {
        let ssh_address = invitation.ssh_address.clone();
        let outcome = self.get_paired(&invitation, &ssh, &device_name).await;
        let saved = match outcome {
            Ok(Paired { device_id, control_token }) => {
                tracing::info!(%device_id, "paired by an invitation");
                let save = SaveConnection {
                    mode: Mode::Remote,
                    edit: fields(&invitation),
                    control_token: Some(control_token.reveal().to_owned()),
                    draft_only: false,
                    abandon_runs,
                };
                self.save(save).await.map(drop).map_err(|no| {
                    format!("This device is paired, but its connection could not be made active: {}", no.message)
                })
            }
            Err(why) => Err(why),
        };
        self.pairing.view.send_replace(match saved {
            Ok(()) => PairingView::Paired { ssh_address },
            Err(why) => {
                tracing::warn!(why, "pairing by an invitation failed");
                PairingView::Failed { ssh_address, why }
            }
        });
    }

    /// Tries until the device is paired, the invitation is over, or only a person can help.
    async fn get_paired(&self, invitation: &Invitation, ssh: &Ssh, device_name: &str) -> Result<Paired, String> {
        let short_code = self.key.public_key().short_code();
        loop {
            let invited = |expires_at| {
                let (ssh_address, short_code) = (invitation.ssh_address.clone(), short_code.clone());
                self.pairing.view.send_replace(PairingView::Waiting { ssh_address, short_code, expires_at });
            };
            let error = match pairing::pair(ssh, &invitation.token, &self.key, device_name, invited).await {
                Ok(paired) => return Ok(paired),
                Err(error) => error,
            };
            if let Some(why) = for_good(&error) {
                return Err(why);
            }
            if invitation.is_over() {
                return Err(format!("The invitation expired before it was confirmed. {error}"));
            }
            self.pairing.view.send_replace(PairingView::Dialling {
                ssh_address: invitation.ssh_address.clone(),
                trouble: Some(error.to_string()),
                expires_at: invitation.expires_at,
            });
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Why no further try can help, if that is so.
fn for_good(error: &LinkError) -> Option<String> {
    match error {
        LinkError::KeyNotAccepted { address, .. } => Some(format!(
            "The server at {address} does not take this invitation: it has expired, was refused, or, with the server's own sshd, \
             its line is not in the tunnel's authorized_keys. Ask the gateway's administrator for another one: deskgate-gateway admin \
             device invite"
        )),
        LinkError::Refused(refused) if refused.code == RefusedCode::InvitationOver => Some(refused.message.clone()),
        LinkError::Refused(refused) if refused.should_retry => None,
        LinkError::Refused(refused) => Some(refused.message.clone()),
        error if error.is_blocked() => Some(error.to_string()),
        _ => None,
    }
}
