//! Asks the running gateway on its private socket, for the administrator's commands.

use std::path::Path;
use std::str::FromStr;

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::records::Noun;
use deskgate_program::socket::{self, CallError};
use deskgate_protocol::DeviceId;
use deskgate_protocol::management::{FindByEnd, RecordKind};

use super::{AdminErrorCode, AdminReply, AdminRequest, DeviceView};

const DEVICES: Noun = Noun { singular: "device", plural: "devices", list: "deskgate-gateway admin device list" };

pub(super) async fn send_request(socket: &Path, ask: AdminRequest) -> Result<AdminReply, Failure> {
    let answer = socket::call(socket, &ask).await.map_err(|error| match error {
        CallError::NotRunning { .. } => Failure::new(
            Exit::CannotReach,
            format!("{error}: the gateway is not running. Start it with: sudo systemctl start deskgate-gateway"),
        ),
        CallError::NotAllowed { .. } => Failure::new(
            Exit::NotAuthorised,
            format!("{error}. Use sudo, or ask for membership in the group that admin.group names"),
        ),
        CallError::Broken { .. } => Failure::new(Exit::Failed, error.to_string()),
    })?;
    match answer {
        AdminReply::No { code, message } => {
            let exit = match code {
                AdminErrorCode::Invalid | AdminErrorCode::NotFound => Exit::Failed,
                AdminErrorCode::Refused => Exit::Refused,
                AdminErrorCode::Unavailable => Exit::CannotReach,
            };
            Err(Failure::new(exit, message))
        }
        answer => Ok(answer),
    }
}

/// The records of all devices whose identifiers end like this.
pub(super) async fn find_by_end<I: FromStr>(socket: &Path, kind: RecordKind, end: &str) -> Result<Vec<I>, Failure> {
    match send_request(socket, AdminRequest::FindByEnd(FindByEnd { kind, end: end.to_owned() })).await? {
        AdminReply::Found(found) => Ok(found.parsed().collect()),
        other => Err(unexpected(&other)),
    }
}

/// Whether a risk was accepted by its name. Another name is a mistake.
pub(super) fn risk(accepted: Option<&str>, name: &str) -> Result<bool, Failure> {
    match accepted {
        None => Ok(false),
        Some(accepted) if accepted == name => Ok(true),
        Some(other) => {
            Err(Failure::new(Exit::Usage, format!("--accept-risk={other}: the risk of this command is {name}")))
        }
    }
}

pub(super) async fn done(socket: &Path, request: AdminRequest) -> Result<(), Failure> {
    match send_request(socket, request).await? {
        AdminReply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(answer: &AdminReply) -> Failure {
    // Of the other answers only a token holds a secret, which is not shown.
    let kind = match answer {
        AdminReply::Token { .. } => "a token",
        _ => "an answer of another kind",
    };
    Failure::new(Exit::Failed, format!("the gateway sent {kind}; are both of the same version?"))
}

pub(super) async fn devices(socket: &Path) -> Result<Vec<DeviceView>, Failure> {
    match send_request(socket, AdminRequest::DeviceList { limit: None, before: None }).await? {
        AdminReply::Devices { devices, .. } => Ok(devices),
        other => Err(unexpected(&other)),
    }
}

/// As [`find`]; without a name or identifier it says what there is, and `command` is what to type.
pub(super) async fn find_or_ask(socket: &Path, wanted: Option<&str>, command: &str) -> Result<DeviceView, Failure> {
    if let Some(wanted) = wanted {
        return find(socket, wanted).await;
    }
    let there = devices(socket).await?.into_iter().map(|device| (device.name, device.device_id.to_string()));
    Err(DEVICES.ask_for_one(command, there))
}

/// A device by its identifier, or by a name that only one has.
pub(super) async fn find(socket: &Path, wanted: &str) -> Result<DeviceView, Failure> {
    let mut all = devices(socket).await?;
    // An identifier means one device, whatever name another one has.
    if let Ok(id) = wanted.parse::<DeviceId>() {
        all.retain(|device| device.device_id == id);
    }
    DEVICES.named(wanted, all, |device| device.name.clone(), |device| device.device_id.to_string())
}
