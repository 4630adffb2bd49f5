//! The gateway's side of the WebSocket, as far as the link needs it.

use deskgate_protocol::control::{
    Challenge, DeviceFrame, GatewayFrame, Policy, ProvenHostKey, SessionRefusal, Welcome,
};
use deskgate_protocol::frame::{decode, encode};
use deskgate_protocol::identity::{HelloProof, HostKeyProof, PublicKey};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{DeviceId, GatewayId, PROTOCOL_RANGE, VERSION};
use ed25519_dalek::SigningKey;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

#[derive(Clone)]
pub struct FakeGateway {
    pub id: GatewayId,
    pub token: ControlToken,
    pub version: String,
    pub heartbeat_ms: u64,
    pub refuse: Option<SessionRefusal>,
    /// The host keys that it announces, and the keys that sign them.
    pub host_keys: Vec<(PublicKey, SigningKey)>,
}

impl FakeGateway {
    pub fn new() -> Self {
        Self {
            id: GatewayId::new(),
            token: ControlToken::generate(),
            version: VERSION.to_owned(),
            heartbeat_ms: 15_000,
            refuse: None,
            host_keys: Vec::new(),
        }
    }

    /// Greets one device. `None`: it was not accepted.
    pub async fn greet<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Option<GatewaySide<S>> {
        let expected = format!("Bearer {}", self.token.reveal());
        #[allow(clippy::result_large_err)]
        let check = |request: &Request, response: Response| {
            let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
            if request.uri().path() == "/control" && token == Some(expected.as_str()) {
                Ok(response)
            } else {
                let mut refusal = ErrorResponse::new(None);
                *refusal.status_mut() = tokio_tungstenite::tungstenite::http::StatusCode::UNAUTHORIZED;
                Err(refusal)
            }
        };
        let mut side = GatewaySide(accept_hdr_async(stream, check).await.ok()?);
        let nonce = format!("{:032x}", rand::random::<u128>());
        let challenge = Challenge {
            nonce: nonce.clone(),
            gateway_id: self.id,
            gateway_version: self.version.clone(),
            protocol: PROTOCOL_RANGE,
        };
        side.send(&GatewayFrame::Challenge(challenge)).await;
        let Some(DeviceFrame::Hello(hello)) = side.next().await else { return None };
        let proof = HelloProof {
            gateway_id: self.id,
            nonce: &nonce,
            gateway_version: &self.version,
            device_version: &hello.device_version,
            server: hello.server.as_ref().expect("a device says whom it recognised"),
        };
        assert!(proof.verify(&hello.public_key, &hello.signature), "the proof holds");
        if let Some(refused) = &self.refuse {
            side.send(&GatewayFrame::Refused(refused.clone())).await;
            return None;
        }
        let policy = Policy {
            heartbeat_ms: self.heartbeat_ms,
            lease_ms: 45_000,
            offer_ms: 15_000,
            unacknowledged_events: 64,
            retention_s: None,
        };
        let proof = HostKeyProof {
            gateway_id: self.id,
            nonce: hello.nonce.as_deref().expect("a device has its own nonce"),
            device: &hello.public_key,
        };
        let announce = |(public_key, signer): &(PublicKey, SigningKey)| ProvenHostKey {
            public_key: *public_key,
            signature: proof.sign(signer),
        };
        let host_keys = self.host_keys.iter().map(announce).collect();
        let welcome = Welcome { device_id: DeviceId::new(), epoch: 1, protocol: PROTOCOL_RANGE.max, policy, host_keys };
        side.send(&GatewayFrame::Welcome(welcome)).await;
        Some(side)
    }

    /// Greets one device and then answers each of its frames with a ping, until it leaves.
    pub async fn echo<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) {
        let Some(mut side) = self.greet(stream).await else { return };
        while side.next().await.is_some() {
            side.send(&GatewayFrame::Ping).await;
        }
    }
}

#[derive(Debug)]
pub struct GatewaySide<S>(pub WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> GatewaySide<S> {
    /// The other side verifies that the frame arrives.
    pub async fn send(&mut self, frame: &GatewayFrame) {
        let _ = self.0.send(Message::text(encode(frame).expect("encodes"))).await;
    }

    pub async fn next(&mut self) -> Option<DeviceFrame> {
        loop {
            match self.0.next().await?.ok()? {
                Message::Text(text) => return Some(decode(text.as_str()).expect("a frame")),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }
}
