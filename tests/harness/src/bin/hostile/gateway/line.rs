//! A welcomed session of the desktop with the hostile gateway.

use std::time::Duration;

use anyhow::Context;
use deskgate_protocol::{PROTOCOL_RANGE, VERSION};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use russh::server::Handle;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::task::AbortOnDropHandle;

use super::shell::Upgraded;
use crate::behaviour::{Evidence, effect};

/// How long the desktop may take to answer or to hang up.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The control channel before the session, with everything that keeps it open.
pub(super) struct Greeting {
    pub(super) ssh: Handle,
    pub(super) socket: Upgraded,
    pub(super) serving: AbortOnDropHandle<()>,
}

impl Greeting {
    /// Sends a frame.
    pub(super) async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        Ok(timeout(ANSWER_TIMEOUT, self.socket.send(Message::text(frame.to_string()))).await??)
    }

    /// The next frame; `None` if the desktop hung up.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            return Ok(match timeout(ANSWER_TIMEOUT, self.socket.next()).await.context("the desktop is silent")? {
                Some(Ok(Message::Text(text))) => Some(serde_json::from_str(text.as_str())?),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                _ => None,
            });
        }
    }

    /// Waits until the desktop hangs up, whatever it sends before.
    pub(super) async fn hung_up(&mut self, after: &str) -> anyhow::Result<Evidence> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match timeout_at(deadline, self.socket.next()).await.context("the desktop stays")? {
                Some(Ok(_)) => {}
                _ => return Ok(Evidence::HungUp(after.to_owned())),
            }
        }
    }
}

/// The challenge of an honest gateway.
pub(super) fn challenge(gateway_id: &str) -> Value {
    json!({ "frame": "challenge", "nonce": "0123456789abcdef0123456789abcdef", "gateway_id": gateway_id,
        "gateway_version": VERSION, "protocol": PROTOCOL_RANGE })
}

/// The welcome of an honest gateway.
pub(super) fn welcome(device_id: &str, epoch: u64) -> Value {
    json!({ "frame": "welcome", "device_id": device_id, "epoch": epoch, "protocol": PROTOCOL_RANGE.max, "policy": {
        "heartbeat_ms": 15_000, "lease_ms": 45_000, "offer_ms": 15_000, "unacknowledged_events": 64,
    } })
}

/// An open session. Everything that the desktop sends is read at once.
pub(super) struct Line {
    pub(super) ssh: Handle,
    sink: SplitSink<Upgraded, Message>,
    frames: mpsc::UnboundedReceiver<Value>,
    _reading: AbortOnDropHandle<()>,
    serving: AbortOnDropHandle<()>,
}

impl Line {
    /// The session after a welcome.
    pub(super) fn after(greeting: Greeting) -> Self {
        let (sink, mut stream) = greeting.socket.split();
        let (sender, frames) = mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let Message::Text(text) = message else { continue };
                let Ok(frame) = serde_json::from_str(text.as_str()) else { continue };
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        let reading = AbortOnDropHandle::new(reading);
        Self { ssh: greeting.ssh, sink, frames, _reading: reading, serving: greeting.serving }
    }

    /// Whether the desktop still holds it.
    pub(super) fn is_open(&self) -> bool {
        !self.serving.is_finished() && !self.frames.is_closed()
    }

    /// Sends a frame. The desktop may have hung up; what it said before can still be read.
    pub(super) async fn send(&mut self, frame: Value) {
        self.send_text(frame.to_string()).await;
    }

    /// Sends any text.
    pub(super) async fn send_text(&mut self, text: String) {
        self.send_message(Message::text(text)).await;
    }

    /// Sends any message.
    pub(super) async fn send_message(&mut self, message: Message) {
        let _ = timeout(ANSWER_TIMEOUT, self.sink.send(message)).await;
    }

    /// The first frame that is wanted; those before it are dropped. `None` if the desktop hung up.
    pub(super) async fn awaited(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Option<Value>> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match timeout_at(deadline, self.frames.recv()).await.context("the wanted frame does not come")? {
                Some(frame) if wanted(&frame) => return Ok(Some(frame)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// The frames that come within a time.
    pub(super) async fn heard_for(&mut self, time: Duration) -> Vec<Value> {
        let deadline = Instant::now() + time;
        let mut heard = Vec::new();
        while let Ok(Some(frame)) = timeout_at(deadline, self.frames.recv()).await {
            heard.push(frame);
        }
        heard
    }

    /// Sends a ping behind everything else, and waits for the pong, or that the desktop hangs up: it has read all of it.
    pub(super) async fn read_it(&mut self) -> anyhow::Result<Evidence> {
        while self.frames.try_recv().is_ok() {}
        self.send(json!({ "frame": "ping" })).await;
        Ok(match self.awaited(|frame| frame["frame"] == "pong").await? {
            Some(_) => Evidence::Answered("a pong behind it".to_owned()),
            None => Evidence::HungUp("the session".to_owned()),
        })
    }

    /// As [`Line::read_it`]; the desktop must have hung up.
    pub(super) async fn must_hang_up(&mut self) -> anyhow::Result<Evidence> {
        match self.read_it().await? {
            evidence @ Evidence::HungUp(_) => Ok(evidence),
            other => Err(effect(format!("the desktop went on: {}", other.text()))),
        }
    }

    /// As [`Line::read_it`]; the desktop must have stayed.
    pub(super) async fn must_stay(&mut self) -> anyhow::Result<Evidence> {
        match self.read_it().await? {
            evidence @ Evidence::Answered(_) => Ok(evidence),
            other => Err(effect(format!("the desktop did not stay: {}", other.text()))),
        }
    }
}
