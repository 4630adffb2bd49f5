//! Pairs this device by an invitation: through the tunnel with the invitation's key, at the control channel with its secret,
//! and then with this device's own key.

use std::time::Duration;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_protocol::identity::RecognisedServer;
use deskgate_protocol::invitation::{INVITATION_SCHEME, InvitationToken};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{DeviceId, Timestamp, frame};
use futures_util::SinkExt;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::CONTROL_PATH;
use super::error::LinkError;
use super::handshake::{self, HANDSHAKE_TIMEOUT};
use super::ssh::SshStream;
use super::target::Ssh;
use crate::identity::DeviceKey;

/// What a confirmed device gets.
#[derive(Debug)]
pub struct Paired {
    /// Its identifier on the gateway.
    pub device_id: DeviceId,
    /// Opens the control channel from now on.
    pub control_token: ControlToken,
}

/// Shows this device to the gateway of an invitation, and waits for its administrator. `invited` is told until when, once
/// the gateway has taken the device in.
///
/// # Errors
/// Why it was not paired. Another try may help where the line broke or the gateway could not work.
pub async fn pair(
    ssh: &Ssh,
    token: &InvitationToken,
    key: &DeviceKey,
    device_name: &str,
    invited: impl Fn(Timestamp),
) -> Result<Paired, LinkError> {
    let SshStream { stream, host_key, conduct, .. } = Box::pin(ssh.reach(&DeviceKey::of_invitation(token))).await?;
    let server = RecognisedServer::HostKey(host_key);
    let address = ssh.address();
    let introduced = introduce(stream, token, key, device_name, server);
    let late = |_| LinkError::Timeout {
        address: address.clone(),
        stage: "shaking hands with the gateway",
        limit: HANDSHAKE_TIMEOUT,
    };
    let introduced = timeout(HANDSHAKE_TIMEOUT, introduced).await.map_err(late).and_then(|introduced| introduced);
    let mut socket = introduced.map_err(|error| conduct.error(error, &address))?;
    loop {
        match handshake::receive(&mut socket).await {
            Ok(GatewayFrame::Invited { expires_at }) => invited(expires_at),
            Ok(GatewayFrame::Paired { device_id, control_token }) => {
                // The gateway waits for this; that it comes changes nothing.
                let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
                return Ok(Paired { device_id, control_token });
            }
            Ok(GatewayFrame::Refused(refused)) => return Err(handshake::is_refused(refused)),
            Ok(_) => {
                return Err(LinkError::NotAGateway("it answered an invited device with something else".to_owned()));
            }
            Err(error) => return Err(conduct.error(error, &address)),
        }
    }
}

/// Sends the hello of this device.
async fn introduce(
    stream: super::BoxedStream,
    token: &InvitationToken,
    key: &DeviceKey,
    device_name: &str,
    server: RecognisedServer,
) -> Result<super::session::ControlSocket, LinkError> {
    let authorization = format!("{INVITATION_SCHEME} {}", *token.secret());
    let mut socket = handshake::upgrade(stream, CONTROL_PATH, &authorization).await?;
    let challenge = match handshake::receive(&mut socket).await? {
        GatewayFrame::Challenge(challenge) => challenge,
        GatewayFrame::Refused(refused) => return Err(handshake::is_refused(refused)),
        _ => return Err(LinkError::NotAGateway("it did not begin with a challenge".to_owned())),
    };
    handshake::check_version(&challenge).map_err(|refused| LinkError::Refused(Box::new(refused)))?;
    let hello = handshake::hello(&challenge, key, None, &server, Some(device_name.to_owned()), Vec::new());
    let hello = frame::encode(&DeviceFrame::Hello(hello)).map_err(|error| LinkError::Lost(error.to_string()))?;
    socket.send(Message::text(hello)).await.map_err(|error| LinkError::Lost(error.to_string()))?;
    Ok(socket)
}
