//! Invitations of devices: both sides of the administrator's commands.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use deskgate_protocol::invitation::{Invitation as Line, InvitationToken};
use deskgate_protocol::{InvitationId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{send_request, unexpected};
use super::service::{paired_details, view};
use super::state::AdminService;
use super::{AdminErrorCode, AdminReply, AdminRequest, PairedDevice, no};
use crate::domain::devices::PairError;
use crate::domain::invitations::{self, AnswerError, INVITATION_LASTS, MAX_INVITATION_LASTS};
use crate::store::invitations::{Invitation, InvitationState};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::{Cell, Tone};
use deskgate_program::output::Output;
use deskgate_program::records::{self, given};
use deskgate_program::terminal;

/// The newest invitations that are shown.
const MAX_LISTED: i64 = 100;
/// The account that devices name at the gateway's own listener, which looks at none.
const OWN_LISTENER_USER: &str = "deskgate";

/// `deskgate-gateway admin device invite`
#[derive(Debug, Args)]
pub struct InviteArgs {
    /// What you call it in the list of invitations
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// How long it is good for, as in 30m or 24h, at most 168h [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lasts: Option<Duration>,
    /// What devices dial, HOST:PORT [default: ssh.public_address, or the gateway's own SSH listener]
    #[arg(long, value_name = "HOST:PORT")]
    ssh_address: Option<String>,
    /// With the server's own sshd: the fingerprint of its host key [default: the first of control.sshd_host_keys]
    #[arg(long, value_name = "SHA256:…")]
    host_key: Option<String>,
    /// With the server's own sshd: the tunnel's account
    #[arg(long, value_name = "NAME")]
    ssh_user: Option<String>,
}

/// A request about invitations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum AdminInvitationRequest {
    /// Make one.
    Create {
        /// What the administrator calls it.
        note: Option<String>,
        /// How long it is good for, in seconds.
        lasts_s: u64,
        /// What devices dial, in place of what the gateway knows.
        ssh_address: Option<String>,
        /// The host key's fingerprint, in place of what the gateway knows.
        host_key: Option<String>,
        /// The tunnel's account, in place of what the gateway knows.
        ssh_user: Option<String>,
    },
    /// List the newest.
    List,
    /// Confirm the device that came with one.
    Confirm {
        /// Which.
        invitation_id: InvitationId,
        /// The short code of the device's key, as its user reads it out.
        short_code: String,
    },
    /// Refuse one.
    Refuse {
        /// Which.
        invitation_id: InvitationId,
    },
}

/// An invitation that was just made.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedInvitation {
    /// The one line for the desktop's owner, which is shown this once.
    pub line: String,
    /// The same without the secret.
    pub invitation: InvitationView,
    /// For the server's own sshd: the line that lets the invited device through until the invitation ends.
    pub authorized_keys: Option<String>,
}

impl std::fmt::Debug for CreatedInvitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreatedInvitation({})", self.invitation.invitation_id)
    }
}

/// An invitation, as administrators see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InvitationView {
    /// Its identifier.
    pub invitation_id: InvitationId,
    /// What the administrator calls it.
    pub note: Option<String>,
    /// open, waiting, confirmed, paired, refused or expired.
    pub state: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The name of the device that came with it last.
    pub device_name: Option<String>,
    /// The fingerprint of its key.
    pub fingerprint: Option<String>,
    /// The short code of its key, which its user compares.
    pub short_code: Option<String>,
    /// When it came.
    pub came_at: Option<Timestamp>,
}

impl From<Invitation> for InvitationView {
    fn from(invitation: Invitation) -> Self {
        let Invitation { invitation_id, note, state, created_at, expires_at, device, .. } = invitation;
        let key = device.as_ref().map(|device| device.public_key);
        Self {
            invitation_id,
            note,
            state: state.to_string(),
            created_at,
            expires_at,
            fingerprint: key.map(|key| key.fingerprint()),
            short_code: key.map(|key| key.short_code()),
            came_at: device.as_ref().map(|device| device.came_at),
            device_name: device.map(|device| device.name),
        }
    }
}

impl InvitationView {
    fn is_waiting(&self) -> bool {
        self.state == InvitationState::Waiting.as_str()
    }
}

/// `deskgate-gateway admin device invite`
pub(super) async fn invite(socket: &Path, invite: InviteArgs, out: Output) -> Result<(), Failure> {
    let InviteArgs { note, lasts, ssh_address, host_key, ssh_user } = invite;
    let lasts_s = lasts.unwrap_or(INVITATION_LASTS).as_secs();
    let ask = AdminInvitationRequest::Create { note, lasts_s, ssh_address, host_key, ssh_user };
    match send_request(socket, AdminRequest::Invitation(ask)).await? {
        AdminReply::Invited(created) => {
            out.result("invited/1", &created, || {
                let CreatedInvitation { line, invitation, authorized_keys } = &*created;
                let sshd = authorized_keys.as_ref().map(|keys| {
                    format!("\nThe server's sshd lets it through with this line in the tunnel's authorized_keys, until then:\n\n{keys}\n")
                });
                format!(
                    "One line for the desktop's owner, good for one device until {}. Hand it over privately:\n\n{line}\n{}\n\
                     There it is pasted into `deskgate pair`, or on the page Connection. Then compare the short code and confirm \
                     the device:\n  deskgate-gateway admin device invitations\n  deskgate-gateway admin device confirm CODE",
                    invitation.expires_at,
                    sshd.unwrap_or_default()
                )
            });
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

async fn all(socket: &Path) -> Result<Vec<InvitationView>, Failure> {
    match send_request(socket, AdminRequest::Invitation(AdminInvitationRequest::List)).await? {
        AdminReply::Invitations { invitations } => Ok(invitations),
        other => Err(unexpected(&other)),
    }
}

/// `deskgate-gateway admin device invitations`
pub(super) async fn show(socket: &Path, out: Output) -> Result<(), Failure> {
    let invitations = all(socket).await?;
    out.result("invitations/1", &json!({ "invitations": invitations }), || list(&invitations));
    Ok(())
}

fn list(invitations: &[InvitationView]) -> String {
    let heading = ["STATE", "ENDS", "NOTE", "DEVICE", "SHORT CODE", "FINGERPRINT", "ID"];
    let text =
        records::list(invitations, "Nobody is invited: deskgate-gateway admin device invite", &heading, |invitation| {
            let tone = match invitation.state.as_str() {
                "waiting" => Tone::Attention,
                "confirmed" | "paired" => Tone::Good,
                "open" => Tone::Waiting,
                _ => Tone::Quiet,
            };
            let text = |text: &Option<String>| Cell::from(text.clone().unwrap_or_default());
            vec![
                Cell::toned(&invitation.state, tone),
                invitation.expires_at.into(),
                text(&invitation.note),
                text(&invitation.device_name),
                text(&invitation.short_code),
                text(&invitation.fingerprint),
                Cell::id(invitation.invitation_id),
            ]
        });
    match invitations.iter().any(InvitationView::is_waiting) {
        true => {
            text + "\nCompare the short code with what the desktop shows. Then: deskgate-gateway admin device confirm CODE"
        }
        false => text,
    }
}

/// The waiting invitation that a short code, an identifier or its end means.
async fn find(socket: &Path, wanted: &str, only_waiting: bool) -> Result<InvitationView, Failure> {
    let plain = |code: &str| code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
    let means = |invitation: &InvitationView| {
        let id = invitation.invitation_id.to_string();
        let is_code = invitation.short_code.as_deref().is_some_and(|code| plain(code) == plain(wanted));
        is_code || (!only_waiting && (id == wanted || given::end_of_id(wanted).is_some_and(|end| id.ends_with(end))))
    };
    let all = all(socket).await?;
    let counts = |invitation: &&InvitationView| if only_waiting { invitation.is_waiting() } else { true };
    let mut matching = all.iter().filter(counts).filter(|invitation| means(invitation));
    match (matching.next(), matching.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(_), Some(_)) => Err(Failure::new(
            Exit::Failed,
            "several invitations are meant; give the identifier: deskgate-gateway admin device invitations",
        )),
        (None, _) => {
            let waiting = all.iter().filter(|invitation| invitation.is_waiting()).count();
            Err(Failure::new(
                Exit::Failed,
                format!(
                    "no invited device that waits is meant by this; {waiting} wait. Confirm nothing that its user did not read \
                     out to you, see: deskgate-gateway admin device invitations"
                ),
            ))
        }
    }
}

/// `deskgate-gateway admin device confirm`
pub(super) async fn confirm(
    socket: &Path,
    code: &str,
    print_authorized_keys: bool,
    out: Output,
) -> Result<(), Failure> {
    let invitation_id = find(socket, code, true).await?.invitation_id;
    let ask = AdminInvitationRequest::Confirm { invitation_id, short_code: code.to_owned() };
    match send_request(socket, AdminRequest::Invitation(ask)).await? {
        AdminReply::Paired(paired) => {
            let PairedDevice { device, .. } = &*paired;
            let line = super::commands::authorized_keys(device);
            if print_authorized_keys && !out.json {
                terminal::print(&line);
                return Ok(());
            }
            out.result("paired/1", &json!({ "device": device, "authorized_keys": line }), || {
                format!(
                    "Paired {} ({}). The desktop has what it needs, and connects by itself.\nWith the server's own sshd, this line \
                     lets it through from now on:\n\n{line}",
                    device.name, device.device_id
                )
            });
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

/// `deskgate-gateway admin device refuse`
pub(super) async fn refuse(socket: &Path, wanted: &str, out: Output) -> Result<(), Failure> {
    let invitation_id = find(socket, wanted, false).await?.invitation_id;
    match send_request(socket, AdminRequest::Invitation(AdminInvitationRequest::Refuse { invitation_id })).await? {
        AdminReply::Invitations { invitations } => {
            out.result("invitations/1", &json!({ "invitations": invitations }), || {
                "The invitation is of no use any more. Whoever came with it is told so.".to_owned()
            });
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

/// Answers a request about invitations.
pub(super) async fn answer(service: &AdminService, asked: AdminInvitationRequest) -> Result<AdminReply, AdminReply> {
    match asked {
        AdminInvitationRequest::Create { note, lasts_s, ssh_address, host_key, ssh_user } => {
            create(service, note, Duration::from_secs(lasts_s), [ssh_address, host_key, ssh_user]).await
        }
        AdminInvitationRequest::List => {
            let invitations = service.store.invitations(MAX_LISTED).await?;
            Ok(AdminReply::Invitations { invitations: invitations.into_iter().map(Into::into).collect() })
        }
        AdminInvitationRequest::Confirm { invitation_id, short_code } => {
            let device = invitations::confirm(&service.store, invitation_id, &short_code).await?;
            tracing::info!(device_id = %device.device_id, %invitation_id, "an invited device was confirmed");
            let details = paired_details(service);
            Ok(AdminReply::Paired(Box::new(PairedDevice { device: view(device), details })))
        }
        AdminInvitationRequest::Refuse { invitation_id } => {
            let refused = invitations::refuse(&service.store, invitation_id).await?;
            tracing::info!(%invitation_id, "an invitation was refused");
            Ok(AdminReply::Invitations { invitations: vec![refused.into()] })
        }
    }
}

async fn create(
    service: &AdminService,
    note: Option<String>,
    lasts: Duration,
    [ssh_address, host_key, ssh_user]: [Option<String>; 3],
) -> Result<AdminReply, AdminReply> {
    let invalid = |message: &str| no(AdminErrorCode::Invalid, message);
    if lasts < Duration::from_secs(60) || lasts > MAX_INVITATION_LASTS {
        return Err(invalid("an invitation lasts from 1m to 168h"));
    }
    if note.as_deref().is_some_and(|note| note.chars().count() > 200 || note.chars().any(char::is_control)) {
        return Err(invalid("a note has at most 200 characters, in one line"));
    }
    let own = service.host_keys.as_ref().filter(|_| ssh_user.is_none() && host_key.is_none());
    let (default_key, user) = match own {
        Some(keys) => (Some(keys.current().fingerprint()), OWN_LISTENER_USER.to_owned()),
        None => {
            let missing = "this gateway has no SSH listener of its own: name the tunnel's account with --ssh-user";
            let user = ssh_user.ok_or_else(|| no(AdminErrorCode::Refused, missing))?;
            (service.sshd_host_keys.first().map(|key| key.fingerprint()), user)
        }
    };
    let ssh_address = ssh_address.or_else(|| service.addresses.ssh_public.clone());
    let ssh_address = ssh_address.ok_or_else(|| {
        no(
            AdminErrorCode::Refused,
            "nobody knows what devices dial: name it with --ssh-address HOST:PORT, or set ssh.public_address",
        )
    })?;
    let host_key = host_key.or(default_key).ok_or_else(|| {
        no(
            AdminErrorCode::Refused,
            "nobody knows the host key of the server's sshd: name its fingerprint with --host-key, as printed by: ssh-keygen \
             -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )
    })?;
    let control_socket = service.control_socket.as_ref().map(|path| path.display().to_string());
    let control_socket = control_socket
        .ok_or_else(|| no(AdminErrorCode::Refused, "this gateway has no control socket: set control.socket"))?;
    let token = InvitationToken::generate();
    let line = |expires_at| {
        let (token, ssh_user) = (token.clone(), user.clone());
        Line {
            token,
            expires_at,
            ssh_address: ssh_address.clone(),
            host_key: host_key.clone(),
            ssh_user,
            control_socket: control_socket.clone(),
        }
        .line()
        .map_err(|error| no(AdminErrorCode::Invalid, error.to_string()))
    };
    // An invitation whose line cannot be written must not be made.
    line(Timestamp::now())?;
    let invitation = service.store.create_invitation(&token, note.as_deref(), lasts).await?;
    let text = line(invitation.expires_at)?;
    tracing::info!(invitation_id = %invitation.invitation_id, "a device was invited");
    // sshd reads the time in its own zone; with a Z it is UTC (sshd(8), "AUTHORIZED_KEYS FILE FORMAT").
    let until = invitation.expires_at.0.strftime("%Y%m%d%H%M%SZ");
    let authorized_keys = own.is_none().then(|| {
        format!(
            "restrict,port-forwarding,expiry-time=\"{until}\" {} {}",
            invitation.tunnel_key, invitation.invitation_id
        )
    });
    let created = CreatedInvitation { line: text.as_str().to_owned(), invitation: invitation.into(), authorized_keys };
    Ok(AdminReply::Invited(Box::new(created)))
}

impl From<AnswerError> for AdminReply {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::Pair(PairError::Store(error)) => return error.into(),
            AnswerError::Unknown(_) => AdminErrorCode::NotFound,
            AnswerError::Pair(PairError::Name(_)) => AdminErrorCode::Invalid,
            _ => AdminErrorCode::Refused,
        };
        no(code, error.to_string())
    }
}
