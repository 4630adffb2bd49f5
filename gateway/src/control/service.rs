//! Serves one stream: checks the control token, upgrades to a WebSocket, starts the handshake.

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::secret::{ControlToken, digests_equal};
use deskgate_protocol::{DeviceId, GatewayId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::wire::{self, BoxedControlStream};
use super::{handshake, session};
use crate::domain::CallerLimits;
use crate::domain::accounts::Grant;
use crate::domain::admission::AdmissionService;
use crate::domain::desktop::{CallbackContext, Desktop};
use crate::domain::devices::SessionTimings;
use crate::encryption::DataCipher;
use crate::hosted::TokenVerifier;
use crate::store::Store;
use crate::tunnel::HostKeys;

/// What every session needs.
#[derive(Clone)]
pub struct ControlService {
    /// The database.
    pub store: Store,
    /// This gateway's identifier.
    pub gateway_id: GatewayId,
    /// The times of a session.
    pub clocks: SessionTimings,
    /// Admits the owner's own runs.
    pub admission: AdmissionService,
    /// Callers' limits, among them the retention of ended runs.
    pub limits: CallerLimits,
    /// The gateway's part in callbacks.
    pub callbacks: CallbackContext,
    /// Encrypts the secrets of webhooks.
    pub cipher: DataCipher,
    /// The address that backends use, without `/api/v1`.
    pub public_url: String,
    /// Verifies the tokens of accounts; `None`: accounts are not accepted.
    pub verifier: Option<TokenVerifier>,
    /// The keys of its own SSH listener; `None`: there is none.
    pub host_keys: Option<HostKeys>,
    /// Cancelled when the gateway stops.
    pub stop: CancellationToken,
}

/// How a device reached the handshake.
#[derive(Clone, Debug)]
pub(super) enum EntryMethod {
    /// Over a private connection, with the control token; with the key that the tunnel authenticated, if it was one of
    /// ours.
    Private(Option<PublicKey>),
    /// Over the public address, with an account's token.
    Account(Grant),
}

/// The time for the upgrade, and then again for the hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl ControlService {
    /// The management service of one device.
    pub fn desktop(&self, device_id: DeviceId) -> Desktop {
        let (store, url) = (self.store.clone(), self.public_url.clone());
        let (admission, cipher, retention) = (self.admission.clone(), self.cipher.clone(), self.limits.retention);
        Desktop::new(store, device_id, admission, cipher, url, retention, self.callbacks.clone())
    }

    /// Serves one stream to its end. `tunnel_key` is the key that the tunnel authenticated.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        tunnel_key: Option<PublicKey>,
    ) {
        let stream: BoxedControlStream = Box::new(stream);
        let tokens = match self.store.control_tokens().await {
            Ok(tokens) => tokens,
            // Without a database no device can be admitted; it connects again.
            Err(error) => return tracing::warn!(%error, "a device came while the database was away"),
        };
        #[allow(clippy::result_large_err, reason = "the signature is the WebSocket library's")]
        let upgrade = tokio_tungstenite::accept_hdr_async_with_config(
            stream,
            |request: &Request, response| check(request, response, &tokens),
            Some(wire::config()),
        );
        let Some(upgraded) = self.stop.run_until_cancelled(timeout(HANDSHAKE_TIMEOUT, upgrade)).await else { return };
        let socket = match upgraded {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return tracing::info!(%error, "a stream on the control channel was turned away"),
            Err(_) => return tracing::info!("a stream on the control channel asked for nothing in time"),
        };
        self.admit(socket, EntryMethod::Private(tunnel_key)).await;
    }

    /// Serves a WebSocket to its end; its request was authorised with an account's token.
    pub async fn serve_account(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, grant: Grant) {
        let stream: BoxedControlStream = Box::new(stream);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(wire::config())).await;
        self.admit(socket, EntryMethod::Account(grant)).await;
    }

    async fn admit(&self, socket: WebSocketStream<BoxedControlStream>, way: EntryMethod) {
        let (reader, writer) = wire::split(socket);
        let entered = handshake::enter(self, reader, writer, way, HANDSHAKE_TIMEOUT).await;
        if let Some(entered) = entered {
            let device_id: DeviceId = entered.session.device_id;
            let epoch = entered.session.epoch;
            tracing::info!(%device_id, epoch, "device connected");
            let why = session::run(self, entered).await;
            tracing::info!(%device_id, epoch, %why, "device disconnected");
        }
    }
}

/// Checks the control token, which admits any device; the hello says which one it is.
#[allow(clippy::result_large_err, reason = "the signature is the WebSocket library's")]
fn check(request: &Request, response: Response, tokens: &[Sha256Digest]) -> Result<Response, ErrorResponse> {
    let deny = |status, text: &str| {
        let mut denied = ErrorResponse::new(Some(text.to_owned()));
        *denied.status_mut() = status;
        denied
    };
    if request.uri().path() != "/control" {
        return Err(deny(StatusCode::NOT_FOUND, "the control channel is at /control\n"));
    }
    let sent = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("Bearer "));
    let Some(sent) = sent else {
        return Err(deny(StatusCode::UNAUTHORIZED, "the private control token is missing\n"));
    };
    match sent.parse::<ControlToken>() {
        Ok(token) if tokens.iter().any(|known| digests_equal(known, &token.digest())) => Ok(response),
        Ok(_) => Err(deny(StatusCode::UNAUTHORIZED, "the private control token is not valid\n")),
        Err(error) => Err(deny(StatusCode::UNAUTHORIZED, &format!("{error}\n"))),
    }
}
