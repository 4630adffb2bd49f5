//! Serves a device that came with an invitation: it says who it is, and waits for the administrator's confirmation.

use std::time::Duration;

use deskgate_protocol::InvitationId;
use deskgate_protocol::control::{GatewayFrame, Hello, SessionRefusal};
use tokio::time::{interval, timeout};

use super::handshake::{self, Greeted};
use super::service::{ControlService, EntryMethod};
use super::wire::{FrameReader, FrameWriter};
use crate::domain::devices::{check_hello, refuse_for_now};
use crate::domain::invitations;
use crate::store::invitations::{Invitation, InvitationState};

/// How many invited devices may wait at once; a further one comes again.
pub const MAX_INVITED: usize = 32;
/// How often the administrator's answer is looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long an invited device may take to read a frame.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves an invited device to its end.
pub(super) async fn serve(
    service: &ControlService,
    mut reader: FrameReader,
    mut writer: FrameWriter,
    way: EntryMethod,
    invitation: &Invitation,
    time: Duration,
) {
    let refused = match introduce(service, &mut reader, &mut writer, &way, invitation, time).await {
        Ok(Some(hello)) => match wait(service, &mut reader, &mut writer, invitation.invitation_id, &hello).await {
            Ok(()) => return,
            Err(refused) => refused,
        },
        Ok(None) => return,
        Err(refused) => refused,
    };
    tracing::info!(code = ?refused.code, reason = refused.message, "invited device refused");
    let _ = timeout(SEND_TIMEOUT, writer.send(&GatewayFrame::Refused(*refused))).await;
}

/// Who it is. `None`: it went away.
async fn introduce(
    service: &ControlService,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    way: &EntryMethod,
    invitation: &Invitation,
    time: Duration,
) -> Result<Option<Hello>, Box<SessionRefusal>> {
    // It came through the tunnel with the invitation's key, and says hello with its own.
    if way.tunnel_key().is_some_and(|key| key != invitation.tunnel_key) {
        return Err(Box::new(refuse_for_now("The SSH key is not this invitation's.")));
    }
    let (challenged, greeted) = handshake::greet(service, reader, writer, way, None, time).await;
    let hello = match greeted {
        Greeted::Hello(hello) => hello,
        Greeted::Gone => return Ok(None),
        Greeted::Refused(refused) => return Err(refused),
    };
    check_hello(&challenged, &hello)?;
    invitations::device_name(&hello)?;
    Ok(Some(*hello))
}

async fn wait(
    service: &ControlService,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    invitation_id: InvitationId,
    hello: &Hello,
) -> Result<(), Box<SessionRefusal>> {
    let for_now = |_| Box::new(refuse_for_now("The gateway cannot use its database at the moment."));
    let name = invitations::device_name(hello)?;
    let noted = service.store.note_invited(invitation_id, &hello.public_key, name, &hello.device_version).await;
    let fingerprint = hello.public_key.fingerprint();
    if let Some(noted) = noted.map_err(for_now)? {
        tracing::info!(%invitation_id, fingerprint, "a device came with an invitation");
        let told = timeout(SEND_TIMEOUT, writer.send(&GatewayFrame::Invited { expires_at: noted.expires_at })).await;
        if !matches!(told, Ok(Ok(()))) {
            return Ok(());
        }
    }
    let mut looks = interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            // It has nothing more to say: either it went away, or it is no device.
            _ = reader.next() => return Ok(()),
            () = service.stop.cancelled() => return Err(Box::new(refuse_for_now("The gateway is stopping."))),
        }
        // Upkeep deletes nothing that still counts.
        let Some(invitation) = service.store.invitation(invitation_id).await.map_err(for_now)? else { return Ok(()) };
        if let Some(refused) = invitations::refusal(&invitation, &hello.public_key) {
            return Err(refused);
        }
        if invitation.state == InvitationState::Confirmed {
            break;
        }
    }
    let device = service.store.device_by_key(&hello.public_key).await.map_err(for_now)?;
    let Some(device) = device.filter(|device| device.revoked_at.is_none()) else {
        return Err(Box::new(refuse_for_now("This device was removed from the gateway again.")));
    };
    let given = invitations::give_token(&service.store, &service.cipher, invitation_id, &hello.public_key).await;
    let given = given.map_err(|error| {
        tracing::warn!(%invitation_id, %error, "an invited device could not be given its control token");
        Box::new(refuse_for_now("The gateway cannot give this device its control token at the moment."))
    })?;
    // Between the look and this it can only have ended, or been used up.
    let Some(control_token) = given else {
        let now = service.store.invitation(invitation_id).await.map_err(for_now)?;
        return match now.and_then(|invitation| invitations::refusal(&invitation, &hello.public_key)) {
            Some(refused) => Err(refused),
            None => Err(invitations::expired()),
        };
    };
    let device_id = device.device_id;
    tracing::info!(%invitation_id, %device_id, "an invited device is paired");
    let _ = timeout(SEND_TIMEOUT, writer.send(&GatewayFrame::Paired { device_id, control_token })).await;
    // The device closes once it has it.
    let _ = timeout(SEND_TIMEOUT, reader.next()).await;
    Ok(())
}
