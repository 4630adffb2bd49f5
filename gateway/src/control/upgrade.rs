//! Serves one stream: checks the control token, upgrades to a WebSocket, starts the handshake.

use std::time::Duration;

use deskgate_protocol::DeviceId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{GatewayFrame, SessionRefusal};
use deskgate_protocol::invitation::{INVITATION_SCHEME, InvitationToken};
use deskgate_protocol::secret::{ControlToken, digests_equal};
use deskgate_protocol::transfer::TRANSFERS_PATH;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use tokio_tungstenite::tungstenite::http::{StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::service::{ControlService, EntryMethod};
use super::wire::{self, BoxedControlStream};
use super::{handshake, invited, session, transfers};
use crate::domain::accounts::Grant;
use crate::domain::devices::refuse_for_now;
use crate::domain::invitations;

/// Seconds after which a device tries again that found no room.
const TURNED_AWAY_PAUSE_S: u64 = 15;
/// The time for the upgrade, and then again for the hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

type ControlSocket = WebSocketStream<BoxedControlStream>;

impl ControlService {
    /// Serves one private stream to its end.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, way: EntryMethod) {
        match self.upgrade(Box::new(stream)).await {
            Some((socket, Credential::ControlToken(token))) => self.admit(socket, way, Some(token)).await,
            Some((socket, Credential::Invitation(digest))) => self.receive_invited(socket, way, digest).await,
            Some((socket, Credential::Transfers)) => Box::pin(transfers::serve(self, socket)).await,
            None => {}
        }
    }

    /// Serves a device that came with an invitation's secret, which nobody has looked up.
    async fn receive_invited(&self, socket: ControlSocket, way: EntryMethod, digest: Sha256Digest) {
        let (reader, mut writer) = wire::split(socket);
        let refused = match (self.invited.try_acquire(), self.store.invitation_by_secret(digest).await) {
            (Ok(_place), Ok(Some(invitation))) => {
                return invited::serve(self, reader, writer, way, &invitation, HANDSHAKE_TIMEOUT).await;
            }
            (Ok(_), Ok(None)) => invitations::unknown(),
            (Ok(_), Err(_)) => Box::new(refuse_for_now("The gateway cannot use its database at the moment.")),
            (Err(_), _) => Box::new(SessionRefusal {
                retry_after_s: Some(TURNED_AWAY_PAUSE_S),
                ..refuse_for_now("Too many invited devices wait at the moment.")
            }),
        };
        let _ = timeout(HANDSHAKE_TIMEOUT, writer.send(&GatewayFrame::Refused(*refused))).await;
    }

    /// Tells the device of a private stream why it is not served now.
    pub(super) async fn turn_away(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, why: &str) {
        let Some((socket, credential)) = self.upgrade(Box::new(stream)).await else { return };
        if matches!(credential, Credential::Transfers) {
            // It tries again by itself.
            return;
        }
        let (_reader, mut writer) = wire::split(socket);
        let refused = SessionRefusal { retry_after_s: Some(TURNED_AWAY_PAUSE_S), ..refuse_for_now(why) };
        // A device that is gone needs no answer.
        let _ = timeout(HANDSHAKE_TIMEOUT, writer.send(&GatewayFrame::Refused(refused))).await;
    }

    /// Turns a stream with the control token, or an invitation's secret, into a WebSocket.
    async fn upgrade(&self, stream: BoxedControlStream) -> Option<(ControlSocket, Credential)> {
        let tokens = match self.store.control_tokens().await {
            Ok(tokens) => tokens,
            // Without a database no device can be admitted; it connects again.
            Err(error) => {
                tracing::warn!(%error, "a device came while the database was away");
                return None;
            }
        };
        let mut shown = None;
        #[allow(clippy::result_large_err, reason = "the signature is the WebSocket library's")]
        let upgrade = tokio_tungstenite::accept_hdr_async_with_config(
            stream,
            |request: &Request, response| {
                shown = Some(check(request, &tokens)?);
                Ok(response)
            },
            Some(wire::config()),
        );
        match self.stop.run_until_cancelled(timeout(HANDSHAKE_TIMEOUT, upgrade)).await? {
            Ok(Ok(socket)) => return shown.map(|credential| (socket, credential)),
            Ok(Err(error)) => tracing::info!(%error, "a stream on the control channel was turned away"),
            Err(_) => tracing::info!("a stream on the control channel asked for nothing in time"),
        }
        None
    }

    /// Serves a WebSocket to its end; its request was authorised with an account's token.
    pub async fn serve_account(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, grant: Grant) {
        let stream: BoxedControlStream = Box::new(stream);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(wire::config())).await;
        self.admit(socket, EntryMethod::Account(grant), None).await;
    }

    /// Serves a stream of transfers to its end; its request was authorised with an account's token.
    pub async fn serve_account_transfers(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let stream: BoxedControlStream = Box::new(stream);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(wire::config())).await;
        Box::pin(transfers::serve(self, socket)).await;
    }

    /// Serves a device to its end. `token`: the digest of the control token that it came with.
    async fn admit(&self, socket: ControlSocket, way: EntryMethod, token: Option<Sha256Digest>) {
        let (reader, writer) = wire::split(socket);
        let entered = handshake::enter(self, reader, writer, way, HANDSHAKE_TIMEOUT).await;
        if let Some(entered) = entered {
            let device_id: DeviceId = entered.session.device_id;
            let epoch = entered.session.epoch;
            tracing::info!(%device_id, epoch, "device connected");
            if let Some(token) = token {
                self.use_up_invitation(token).await;
            }
            let why = session::run(self, entered).await;
            tracing::info!(%device_id, epoch, %why, "device disconnected");
        }
    }
}

impl ControlService {
    /// Ends the invitation that gave a device the token that it came with. If that fails, it ends with the next session, or
    /// by itself.
    async fn use_up_invitation(&self, token: Sha256Digest) {
        match self.store.use_up_invitation(token).await {
            Ok(Some(invitation_id)) => tracing::info!(%invitation_id, "an invitation is used up"),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "it could not be noted that an invitation is used up"),
        }
    }
}

/// What a stream was opened with.
enum Credential {
    /// The digest of a control token, which admits any device; the hello says which one it is.
    ControlToken(Sha256Digest),
    /// The digest of an invitation's secret, which has to be looked up.
    Invitation(Sha256Digest),
    /// A control token, for a stream of transfers; each of its requests has a ticket.
    Transfers,
}

/// Checks what a stream is opened with.
#[allow(clippy::result_large_err, reason = "the signature is the WebSocket library's")]
fn check(request: &Request, tokens: &[Sha256Digest]) -> Result<Credential, ErrorResponse> {
    let deny = |status, text: &str| {
        let mut denied = ErrorResponse::new(Some(text.to_owned()));
        *denied.status_mut() = status;
        denied
    };
    let is_for_transfers = request.uri().path() == TRANSFERS_PATH;
    if !is_for_transfers && request.uri().path() != "/control" {
        return Err(deny(StatusCode::NOT_FOUND, "the control channel is at /control\n"));
    }
    let sent = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split_once(' '));
    let Some((scheme, sent)) = sent else {
        return Err(deny(StatusCode::UNAUTHORIZED, "the private control token is missing\n"));
    };
    if scheme == INVITATION_SCHEME && !is_for_transfers {
        return Ok(Credential::Invitation(InvitationToken::digest_of(sent)));
    }
    match sent.parse::<ControlToken>() {
        Ok(token) if tokens.iter().any(|known| digests_equal(known, &token.digest())) => match is_for_transfers {
            true => Ok(Credential::Transfers),
            false => Ok(Credential::ControlToken(token.digest())),
        },
        Ok(_) => Err(deny(StatusCode::UNAUTHORIZED, "the private control token is not valid\n")),
        Err(error) => Err(deny(StatusCode::UNAUTHORIZED, &format!("{error}\n"))),
    }
}
