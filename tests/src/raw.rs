//! A device that sends single frames on the private control socket.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use deskgate_protocol::control::{Challenge, DeviceFrame, GatewayFrame, Hello, InFlightRun, SessionRefusal, Welcome};
use deskgate_protocol::identity::{HelloProof, IdentityFile, PublicKey, RecognisedServer};
use deskgate_protocol::{JournalId, PROTOCOL_RANGE, ProtocolRange, Timestamp, VERSION, frame};
use ed25519_dalek::SigningKey;
use futures_util::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::device::CommandOutput;
use crate::gateway::GatewayProcess;
use crate::wait::WAIT_TIMEOUT;

/// A key, and the versions it claims.
#[derive(Clone, Debug)]
pub struct RawIdentity {
    /// The key.
    pub key: SigningKey,
    /// The version it claims.
    pub version: String,
    /// The protocols it claims.
    pub protocol: ProtocolRange,
    /// The journal it claims to keep.
    pub journal_id: Option<JournalId>,
}

impl RawIdentity {
    /// An identity of this version; different seeds are different devices.
    pub fn new(seed: u8) -> Self {
        Self::of_key([seed; 32])
    }

    /// One of many, by its number.
    pub fn numbered(number: u16) -> Self {
        let mut key = [0xa5; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        Self::of_key(key)
    }

    fn of_key(key: [u8; 32]) -> Self {
        let key = SigningKey::from_bytes(&key);
        Self { key, version: VERSION.to_owned(), protocol: PROTOCOL_RANGE, journal_id: None }
    }

    /// Its public key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::of(&self.key)
    }

    /// Its identity file.
    pub fn identity(&self, name: &str) -> String {
        let identity = IdentityFile::sign(&self.key, name, Timestamp::now());
        serde_json::to_string(&identity).expect("plain data")
    }

    /// Pairs it through a gateway's administrator.
    pub async fn pair(&self, gateway: &GatewayProcess, name: &str) -> CommandOutput {
        let file = gateway.folder().join(format!("{name}.json"));
        std::fs::write(&file, self.identity(name)).expect("writable");
        gateway.admin(&["device", "add", file.to_str().expect("a plain name")]).await
    }

    /// The answer to a challenge.
    pub fn hello(&self, challenge: &Challenge, in_flight: Vec<InFlightRun>) -> DeviceFrame {
        // The control socket is behind an sshd; this one's key is whatever is not known there.
        let server = RecognisedServer::HostKey(self.public_key());
        let proof = HelloProof {
            gateway_id: challenge.gateway_id,
            nonce: &challenge.nonce,
            gateway_version: &challenge.gateway_version,
            device_version: &self.version,
            server: &server,
        };
        DeviceFrame::Hello(Hello {
            public_key: self.public_key(),
            device_version: self.version.clone(),
            protocol: self.protocol,
            signature: proof.sign(&self.key),
            server: Some(server.clone()),
            device_name: None,
            nonce: None,
            journal_id: self.journal_id,
            in_flight,
        })
    }

    /// Opens a session, which must be welcomed.
    pub async fn connect(&self, gateway: &GatewayProcess, in_flight: Vec<InFlightRun>) -> (RawConnection, Welcome) {
        let (mut line, challenge) = RawConnection::open_to_challenge(gateway).await;
        line.send(&self.hello(&challenge, in_flight)).await;
        match line.next().await {
            Some(GatewayFrame::Welcome(welcome)) => (line, welcome),
            other => panic!("not let in: {other:?}"),
        }
    }

    /// Tries to open a session, which must be refused, and returns the refusal.
    pub async fn is_refused(&self, gateway: &GatewayProcess) -> SessionRefusal {
        let (mut line, challenge) = RawConnection::open_to_challenge(gateway).await;
        line.send(&self.hello(&challenge, Vec::new())).await;
        match line.next().await {
            Some(GatewayFrame::Refused(refused)) => refused,
            other => panic!("not refused: {other:?}"),
        }
    }
}

/// An open WebSocket on a gateway's control socket.
#[derive(Debug)]
pub struct RawConnection(WebSocketStream<UnixStream>);

impl RawConnection {
    /// Connects to the private control listener with a token.
    ///
    /// # Errors
    /// The status with which it was refused.
    pub async fn open(gateway: &GatewayProcess, token: &str) -> Result<Self, u16> {
        Self::at(&gateway.control_socket(), token).await
    }

    /// Connects to the control socket at a path with a token.
    ///
    /// # Errors
    /// The status with which it was refused.
    pub async fn at(socket: &Path, token: &str) -> Result<Self, u16> {
        Self::authorized(socket, &format!("Bearer {token}")).await
    }

    /// Connects to the control socket at a path with a scheme and a secret.
    ///
    /// # Errors
    /// The status with which it was refused.
    pub async fn authorized(socket: &Path, authorization: &str) -> Result<Self, u16> {
        let stream = UnixStream::connect(socket).await.expect("the gateway listens");
        let mut request = "ws://deskgate/control".into_client_request().expect("a plain address");
        request.headers_mut().insert("Authorization", authorization.parse().expect("visible characters"));
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("no WebSocket: {error}"),
        }
    }

    /// Connects with the right token and waits for the challenge.
    pub async fn open_to_challenge(gateway: &GatewayProcess) -> (Self, Challenge) {
        let token = std::fs::read_to_string(gateway.control_token_file()).expect("the gateway made it");
        let mut line = Self::open(gateway, token.trim()).await.expect("the right token");
        match line.next().await {
            Some(GatewayFrame::Challenge(challenge)) => (line, challenge),
            other => panic!("no challenge: {other:?}"),
        }
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: &DeviceFrame) {
        self.send_text(frame::encode(frame).expect("within the limit")).await;
    }

    /// Sends any text. The gateway may have closed the connection; its earlier frames can still be read.
    pub async fn send_text(&mut self, text: String) {
        let _ = self.0.send(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) {
        let _ = self.0.send(message).await;
    }

    /// The next frame; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<GatewayFrame> {
        timeout(WAIT_TIMEOUT, self.receive()).await.expect("a frame or the end")
    }

    async fn receive(&mut self) -> Option<GatewayFrame> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Some(frame::decode(&text).expect("the gateway sends frames")),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(_) | Err(_)) | None => return None,
            }
        }
    }

    /// The next frame that is not a ping; pings are answered.
    pub async fn next_answering_pings(&mut self) -> Option<GatewayFrame> {
        let next = timeout(WAIT_TIMEOUT, async {
            loop {
                match self.next().await {
                    Some(GatewayFrame::Ping) => self.send(&DeviceFrame::Pong).await,
                    other => return other,
                }
            }
        });
        next.await.expect("a frame other than a ping, or the end")
    }

    /// The result of `other`; meanwhile pings are answered. No other frame may arrive.
    pub async fn answering_pings<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                frame = self.receive() => match frame {
                    Some(GatewayFrame::Ping) => self.send(&DeviceFrame::Pong).await,
                    frame => panic!("instead of pings came {frame:?}"),
                },
            }
        }
    }

    /// The next frame, if one arrives within `limit`.
    pub async fn next_within(&mut self, limit: Duration) -> Option<GatewayFrame> {
        timeout(limit, self.next()).await.ok().flatten()
    }
}
