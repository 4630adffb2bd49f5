//! One welcomed session: frames in, frames out, over any byte stream.
//!
//! Two tasks do the work, one for each direction, and both belong to the [`Session`]: its drop ends them and closes the
//! connection. Every queue is bounded. Heartbeats are *not* answered here: a `ping` comes out of [`Session::next`] like
//! any frame, so that `pong` proves that the loop which takes offers is alive.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deskgate_program::crash;
use deskgate_protocol::control::{DeviceFrame, GatewayFrame, Policy, Welcome};
use deskgate_protocol::frame::{self, FrameError};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use super::builtin::BoxedStream;
use super::conduct::ServerConduct;
use super::error::DisconnectReason;
use super::network;

/// How many frames may wait in each direction.
const FRAME_QUEUE_LEN: usize = 64;

pub(super) type ControlSocket = WebSocketStream<BoxedStream>;

/// An open session with the gateway.
#[derive(Debug)]
pub struct Session {
    welcome: Welcome,
    gateway_version: String,
    incoming: mpsc::Receiver<GatewayFrame>,
    outgoing: mpsc::Sender<DeviceFrame>,
    ending: Arc<SessionEnd>,
    tasks: JoinSet<()>,
}

impl Session {
    pub(super) fn start(
        socket: ControlSocket,
        welcome: Welcome,
        gateway_version: String,
        conduct: ServerConduct,
    ) -> Self {
        let ending = Arc::new(SessionEnd { conduct, ..SessionEnd::default() });
        let (arriving, incoming) = mpsc::channel(FRAME_QUEUE_LEN);
        let (outgoing, leaving) = mpsc::channel(FRAME_QUEUE_LEN);
        let (sink, stream) = socket.split();
        let beat = HeartbeatTimeouts::of(&welcome.policy);
        let mut tasks = JoinSet::new();
        tasks.spawn(read(stream, arriving, beat, Arc::clone(&ending)));
        tasks.spawn(write(sink, leaving, beat, Arc::clone(&ending)));
        Self { welcome, gateway_version, incoming, outgoing, ending, tasks }
    }

    /// The gateway's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The gateway's product version.
    pub fn gateway_version(&self) -> &str {
        &self.gateway_version
    }

    /// The next frame. `None`: the connection is lost, see [`Session::lost`]; connect again.
    ///
    /// The connection counts as lost when the gateway closed it, when no message came for three heartbeats, when the
    /// gateway read no data for two, or after an invalid frame. Must be called again soon each time: unread frames
    /// block the whole connection. Dropping the future loses no frame.
    pub async fn next(&mut self) -> Option<GatewayFrame> {
        self.incoming.recv().await
    }

    /// The queue for sending frames. A queued frame may still be lost: only the gateway's answer confirms it. Can be
    /// cloned, and outlives the session without keeping it open.
    pub fn sender(&self) -> mpsc::Sender<DeviceFrame> {
        self.outgoing.clone()
    }

    /// Why the connection is lost, once [`Session::next`] has returned `None`.
    pub fn lost(&self) -> Option<&DisconnectReason> {
        self.ending.why.get()
    }

    /// Runs work for as long as the session lasts.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Ends the session when its local address is lost: heartbeats would detect that late.
    pub(super) fn end_when_address_lost(&mut self, address: IpAddr) {
        let ending = self.ending();
        self.spawn(async move {
            network::wait_until_lost(address).await;
            ending.end(DisconnectReason::Moved);
        });
    }

    pub(super) fn ending(&self) -> Arc<SessionEnd> {
        Arc::clone(&self.ending)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ending.end(DisconnectReason::Dropped);
    }
}

/// How and why a session ends: the first reason counts.
#[derive(Debug, Default)]
pub(super) struct SessionEnd {
    why: OnceLock<DisconnectReason>,
    now: CancellationToken,
    conduct: ServerConduct,
}

impl SessionEnd {
    pub(super) fn end(&self, why: DisconnectReason) {
        // A later reason is only a consequence of the first.
        let _ = self.why.set(self.conduct.reason(why));
        self.now.cancel();
    }

    pub(super) fn why(&self) -> Option<DisconnectReason> {
        self.why.get().cloned()
    }
}

#[derive(Clone, Copy)]
struct HeartbeatTimeouts {
    silence: Duration,
    stuck: Duration,
}

impl HeartbeatTimeouts {
    fn of(policy: &Policy) -> Self {
        // A gateway's value must cause neither an endless wait nor none.
        let heartbeat = Duration::from_millis(policy.heartbeat_ms.clamp(1, 300_000));
        Self { silence: heartbeat * 3, stuck: heartbeat * 2 }
    }
}

async fn read(
    mut stream: SplitStream<ControlSocket>,
    arriving: mpsc::Sender<GatewayFrame>,
    beat: HeartbeatTimeouts,
    ending: Arc<SessionEnd>,
) {
    let why = loop {
        let message = tokio::select! {
            () = ending.now.cancelled() => return,
            message = timeout(beat.silence, stream.next()) => message,
        };
        let frame = match message {
            Err(_) => break DisconnectReason::Silent(beat.silence),
            Ok(message) => match decode_message(message) {
                Ok(Some(frame)) => frame,
                Ok(None) => continue,
                Err(why) => break why,
            },
        };
        let goodbye = match &frame {
            GatewayFrame::Bye { code, message } => Some(DisconnectReason::from_bye(*code, message)),
            _ => None,
        };
        tokio::select! {
            () = ending.now.cancelled() => return,
            sent = arriving.send(frame) => if sent.is_err() { break DisconnectReason::Dropped },
        }
        if let Some(why) = goodbye {
            break why;
        }
    };
    ending.end(why);
}

/// Reads one message. `Ok(None)`: it only shows that the connection is alive.
pub(super) fn decode_message<F: serde::de::DeserializeOwned>(
    message: Option<Result<Message, tungstenite::Error>>,
) -> Result<Option<F>, DisconnectReason> {
    match message {
        Some(Ok(Message::Text(text))) => match frame::decode(text.as_str()) {
            Ok(frame) => Ok(Some(frame)),
            Err(error @ FrameError::TooLarge(_)) => Err(DisconnectReason::TooLarge(error.to_string())),
            Err(error) => Err(DisconnectReason::Malformed(error.to_string())),
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(None),
        Some(Ok(Message::Binary(_))) => Err(DisconnectReason::Malformed("a binary message".to_owned())),
        Some(Ok(Message::Close(_))) | None => Err(DisconnectReason::Closed("by the gateway".to_owned())),
        Some(Err(tungstenite::Error::Capacity(error))) => Err(DisconnectReason::TooLarge(error.to_string())),
        Some(Err(error @ (tungstenite::Error::Utf8(_) | tungstenite::Error::AttackAttempt))) => {
            Err(DisconnectReason::Malformed(error.to_string()))
        }
        Some(Err(error)) => Err(broken(error)),
    }
}

/// A broken connection, in words for people who do not know WebSocket.
fn broken(error: tungstenite::Error) -> DisconnectReason {
    use tungstenite::Error::{AlreadyClosed, ConnectionClosed, Protocol};
    DisconnectReason::Closed(match error {
        Protocol(ProtocolError::ResetWithoutClosingHandshake) | AlreadyClosed => "it broke off".to_owned(),
        Protocol(ProtocolError::SendAfterClosing) | ConnectionClosed => "by the gateway".to_owned(),
        error => error.to_string(),
    })
}

async fn write(
    mut sink: SplitSink<ControlSocket, Message>,
    mut leaving: mpsc::Receiver<DeviceFrame>,
    beat: HeartbeatTimeouts,
    ending: Arc<SessionEnd>,
) {
    let mut batch = Vec::with_capacity(FRAME_QUEUE_LEN);
    loop {
        let sent = async {
            if leaving.recv_many(&mut batch, FRAME_QUEUE_LEN).await == 0 {
                // The session and all senders are dropped.
                return Err(DisconnectReason::Dropped);
            }
            let ends_a_run = batch.iter().any(|frame| matches!(frame, DeviceFrame::Finish { .. }));
            for frame in batch.drain(..) {
                let text = frame::encode(&frame).map_err(|error| DisconnectReason::OwnTooLarge(error.to_string()))?;
                within(beat.stuck, sink.feed(Message::text(text))).await?;
            }
            within(beat.stuck, sink.flush()).await?;
            crash::after(if ends_a_run { "session::finish_sent" } else { "" });
            Ok(())
        };
        let sent = tokio::select! {
            () = ending.now.cancelled() => return,
            sent = sent => sent,
        };
        if let Err(why) = sent {
            return ending.end(why);
        }
    }
}

async fn within(
    limit: Duration,
    work: impl Future<Output = Result<(), tungstenite::Error>>,
) -> Result<(), DisconnectReason> {
    match timeout(limit, work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(broken(error)),
        Err(_) => Err(DisconnectReason::Stuck(limit)),
    }
}
