//! From a byte stream to a welcomed session: WebSocket upgrade, challenge, hello, welcome.

use std::time::Duration;

use deskgate_protocol::control::{
    Challenge, DeviceFrame, GatewayFrame, Hello, InFlightRun, RefusedCode, SessionRefusal, Welcome,
};
use deskgate_protocol::frame::{self, MAX_FRAME_BYTES};
use deskgate_protocol::identity::{HelloProof, HostKeyProof, RecognisedServer};
use deskgate_protocol::ids::JournalId;
use deskgate_protocol::{Half, PROTOCOL_RANGE, VERSION, versions_match};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::handshake::client::{Request, generate_key};
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::builtin::BoxedStream;
use super::conduct::ServerConduct;
use super::error::{DisconnectReason, LinkError};
use super::session::{ControlSocket, Session, decode_message};
use super::{CONTROL_PATH, Credentials};
use crate::identity::DeviceKey;

/// The timeout of upgrade and handshake together.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest pause that a gateway may ask for, in seconds.
const MAX_RETRY_AFTER_SECONDS: u64 = 300;

/// How many bytes of ready frames are sent together.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// The channel that a connector opened.
pub(super) enum OpenedChannel {
    /// A stream to the control socket, which needs the control token.
    Private(BoxedStream),
    /// A WebSocket opened with an account's token, and this device's name.
    Account(Box<ControlSocket>, String),
}

/// The connection over which the handshake goes.
pub(super) struct HandshakeContext<'a> {
    /// The gateway's address, for people.
    pub(super) address: &'a str,
    /// By what its server was recognised.
    pub(super) server: RecognisedServer,
    pub(super) conduct: ServerConduct,
}

/// Performs the handshake until the gateway welcomes or refuses this device.
pub(super) async fn open(
    opened: OpenedChannel,
    credentials: &Credentials,
    in_flight: Vec<InFlightRun>,
    context: HandshakeContext<'_>,
) -> Result<Session, LinkError> {
    let HandshakeContext { address, conduct, .. } = &context;
    let late = |_| LinkError::Timeout {
        address: (*address).to_owned(),
        stage: "shaking hands with the gateway",
        limit: HANDSHAKE_TIMEOUT,
    };
    let greeted = timeout(HANDSHAKE_TIMEOUT, greet(opened, credentials, in_flight, &context)).await;
    greeted.map_err(late).and_then(|greeted| greeted).map_err(|error| conduct.error(error, address))
}

async fn greet(
    opened: OpenedChannel,
    credentials: &Credentials,
    in_flight: Vec<InFlightRun>,
    context: &HandshakeContext<'_>,
) -> Result<Session, LinkError> {
    let (mut socket, device_name) = match opened {
        OpenedChannel::Private(stream) => {
            let token = credentials.token.as_ref().ok_or(LinkError::WrongToken)?;
            (upgrade(stream, CONTROL_PATH, &format!("Bearer {}", token.reveal())).await?, None)
        }
        OpenedChannel::Account(socket, device_name) => (*socket, Some(device_name)),
    };
    let challenge = match receive(&mut socket).await? {
        GatewayFrame::Challenge(challenge) => challenge,
        GatewayFrame::Refused(refused) => return Err(is_refused(refused)),
        _ => return Err(LinkError::NotAGateway("it did not begin with a challenge".to_owned())),
    };
    if let Some(known) = &credentials.known_gateways {
        known.check(context.address, challenge.gateway_id)?;
    }
    // A gateway of another version gets its hello all the same, so that its administrator sees who was refused and why.
    // Its answer cannot overrule the check.
    let check = check_version(&challenge);
    let hello = hello(&challenge, &credentials.key, credentials.journal_id, &context.server, device_name, in_flight);
    let nonce = hello.nonce.clone().unwrap_or_default();
    let hello = frame::encode(&DeviceFrame::Hello(hello)).map_err(|error| LinkError::Lost(error.to_string()))?;
    let answer = async {
        socket.send(Message::text(hello)).await.map_err(|error| LinkError::Lost(error.to_string()))?;
        receive(&mut socket).await
    };
    match (answer.await, check) {
        (Ok(GatewayFrame::Refused(refused)), _) => Err(is_refused(refused)),
        (_, Err(refused)) => Err(LinkError::Refused(Box::new(refused))),
        (Ok(GatewayFrame::Welcome(mut welcome)), Ok(())) if agrees(&welcome, &challenge) => {
            let device = &credentials.key.public_key();
            let proof = HostKeyProof { gateway_id: challenge.gateway_id, nonce: &nonce, device };
            if !welcome.host_keys.iter().all(|key| proof.verify(&key.public_key, &key.signature)) {
                tracing::warn!("the gateway announced host keys, and did not prove that they are its own");
                welcome.host_keys.clear();
            }
            if let Some(known) = &credentials.known_gateways
                && let Err(error) = known.remember(context.address, challenge.gateway_id)
            {
                tracing::warn!(%error, "which gateway this is could not be noted, so another one would not be noticed");
            }
            Ok(Session::start(socket, welcome, challenge.gateway_version, context.conduct.clone()))
        }
        (Ok(_), Ok(())) => Err(LinkError::NotAGateway("it answered with neither welcome nor refusal".to_owned())),
        (Err(error), Ok(())) => Err(error),
    }
}

/// The limits of the WebSocket.
pub(super) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES))
        .read_buffer_size(16 * 1024)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 2 * MAX_FRAME_BYTES)
}

/// Turns a stream to the control socket into a WebSocket. `authorization`: a scheme and a secret.
pub(super) async fn upgrade(stream: BoxedStream, path: &str, authorization: &str) -> Result<ControlSocket, LinkError> {
    let mut authorization = HeaderValue::try_from(authorization).map_err(|_| LinkError::WrongToken)?;
    authorization.set_sensitive(true);
    let request = Request::builder()
        .uri(format!("ws://deskgate{path}"))
        .header("Host", "deskgate")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", generate_key())
        .header(AUTHORIZATION, authorization)
        .body(())
        .expect("every part is a constant of the right form or was checked above");
    match client_async_with_config(request, stream, Some(limits())).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) if response.status() == 401 => Err(LinkError::WrongToken),
        Err(Error::Http(response)) if response.status() == 503 => {
            Err(LinkError::Lost("it is not ready: HTTP status 503".to_owned()))
        }
        Err(Error::Http(response)) => Err(LinkError::NotAGateway(format!("HTTP status {}", response.status()))),
        Err(Error::Io(error)) => Err(LinkError::Lost(error.to_string())),
        Err(error) => Err(LinkError::NotAGateway(error.to_string())),
    }
}

/// The next frame.
pub(super) async fn receive(socket: &mut ControlSocket) -> Result<GatewayFrame, LinkError> {
    loop {
        match decode_message(socket.next().await) {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(DisconnectReason::Closed(why)) => return Err(LinkError::Lost(why)),
            Err(why) => return Err(LinkError::NotAGateway(why.to_string())),
        }
    }
}

/// A gateway's refusal, with a pause that is kept: a longer one is shortened, for the screen too.
pub(super) fn is_refused(mut refused: SessionRefusal) -> LinkError {
    refused.retry_after_s = refused.retry_after_s.map(|asked| asked.min(MAX_RETRY_AFTER_SECONDS));
    LinkError::Refused(Box::new(refused))
}

/// This device's answer to a challenge.
pub(super) fn hello(
    challenge: &Challenge,
    key: &DeviceKey,
    journal_id: Option<JournalId>,
    server: &RecognisedServer,
    device_name: Option<String>,
    in_flight: Vec<InFlightRun>,
) -> Hello {
    let proof = HelloProof {
        gateway_id: challenge.gateway_id,
        nonce: &challenge.nonce,
        gateway_version: &challenge.gateway_version,
        device_version: VERSION,
        server,
    };
    Hello {
        public_key: key.public_key(),
        device_version: VERSION.to_owned(),
        protocol: PROTOCOL_RANGE,
        signature: proof.sign(key.signing_key()),
        server: Some(server.clone()),
        device_name,
        nonce: Some(format!("{:032x}", rand::random::<u128>())),
        journal_id,
        in_flight,
    }
}

/// The specification's version rule, on the device's side.
pub(super) fn check_version(challenge: &Challenge) -> Result<(), SessionRefusal> {
    let gateway = &challenge.gateway_version;
    let upgrade = match versions_match(gateway, VERSION) {
        Err(half) => half,
        Ok(()) if PROTOCOL_RANGE.agree(challenge.protocol).is_some() => return Ok(()),
        Ok(()) if challenge.protocol.max < PROTOCOL_RANGE.min => Half::Gateway,
        Ok(()) => Half::Device,
    };
    let what = match upgrade {
        Half::Gateway => "upgrade the gateway",
        Half::Device => "upgrade Deskgate on this device",
    };
    Err(SessionRefusal {
        code: RefusedCode::VersionMismatch,
        message: format!("the versions do not match: {what} so that both have the same major and minor version"),
        should_retry: true,
        retry_after_s: None,
        gateway_version: gateway.chars().take(64).collect(),
        device_version: Some(VERSION.to_owned()),
        upgrade: Some(upgrade),
    })
}

fn agrees(welcome: &Welcome, challenge: &Challenge) -> bool {
    PROTOCOL_RANGE.agree(challenge.protocol) == Some(welcome.protocol)
}
