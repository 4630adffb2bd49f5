//! The hostile device's connection to the real gateway's control socket.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use deskgate_protocol::control::{Challenge, GatewayFrame};
use deskgate_tests::GatewayProcess;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::task::AbortOnDropHandle;

use crate::behaviour::{Evidence, effect};

/// How long the gateway may take to answer or to hang up.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that the gateway told the hostile device, as text.
pub(super) type Heard = Arc<Mutex<Vec<String>>>;

/// A WebSocket on the control socket.
pub(super) type Socket = WebSocketStream<UnixStream>;

/// Opens the WebSocket at a path with a token. The error is the status.
pub(super) async fn socket(gateway: &GatewayProcess, path: &str, token: Option<&str>) -> anyhow::Result<Socket> {
    let stream = UnixStream::connect(gateway.control_socket()).await?;
    let mut request = format!("ws://deskgate{path}").into_client_request()?;
    if let Some(token) = token {
        request.headers_mut().insert("Authorization", format!("Bearer {token}").parse()?);
    }
    let opened = timeout(ANSWER_TIMEOUT, tokio_tungstenite::client_async(request, stream)).await;
    Ok(opened.context("the gateway does not answer the upgrade")??.0)
}

/// An open connection. Everything that the gateway sends is read at once, and pings are answered.
pub(super) struct Line {
    sink: SplitSink<Socket, Message>,
    frames: mpsc::UnboundedReceiver<Value>,
    _reading: AbortOnDropHandle<()>,
    next_request: u64,
}

impl Line {
    /// Reads a socket from now on.
    pub(super) fn over(socket: Socket, heard: &Heard) -> Self {
        let (sink, mut stream) = socket.split();
        let (sender, frames) = mpsc::unbounded_channel();
        let heard = Arc::clone(heard);
        let reading = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let Message::Text(text) = message else { continue };
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(text.as_str().to_owned());
                let Ok(frame) = serde_json::from_str(text.as_str()) else { continue };
                if sender.send(frame).is_err() {
                    return;
                }
            }
        }));
        Self { sink, frames, _reading: reading, next_request: 1_000_000 }
    }

    /// Connects and reads the challenge.
    pub(super) async fn challenged(gateway: &GatewayProcess, heard: &Heard) -> anyhow::Result<(Self, Challenge)> {
        let token = std::fs::read_to_string(gateway.control_token_file())?;
        let mut line = Self::over(socket(gateway, "/control", Some(token.trim())).await?, heard);
        let frame = line.next().await?.context("the gateway hung up instead of its challenge")?;
        match serde_json::from_value(frame)? {
            GatewayFrame::Challenge(challenge) => Ok((line, challenge)),
            other => bail!("no challenge but {other:?}"),
        }
    }

    /// Whether the gateway still holds it.
    pub(super) fn is_open(&self) -> bool {
        !self.frames.is_closed()
    }

    /// Sends a frame. The gateway may have hung up.
    pub(super) async fn send(&mut self, frame: Value) {
        self.send_message(Message::text(frame.to_string())).await;
    }

    /// Sends any message.
    pub(super) async fn send_message(&mut self, message: Message) {
        let _ = timeout(ANSWER_TIMEOUT, self.sink.send(message)).await;
    }

    /// The next frame; `None` if the gateway hung up.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        self.awaited(|_| true).await
    }

    /// The first frame that is wanted; pings before it are answered, other frames dropped. `None` if the gateway hung up.
    pub(super) async fn awaited(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Option<Value>> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match timeout_at(deadline, self.frames.recv()).await.context("the wanted frame does not come")? {
                Some(frame) if frame["frame"] == "ping" => self.send(json!({ "frame": "pong" })).await,
                Some(frame) if wanted(&frame) => return Ok(Some(frame)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// As [`Line::awaited`], and no ping is answered.
    pub(super) async fn awaited_unanswered(
        &mut self,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Option<Value>> {
        let deadline = Instant::now() + ANSWER_TIMEOUT * 2;
        loop {
            match timeout_at(deadline, self.frames.recv()).await.context("the wanted frame does not come")? {
                Some(frame) if wanted(&frame) => return Ok(Some(frame)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Asks something of the gateway. `None` if it hung up.
    pub(super) async fn ask(&mut self, request: Value) -> anyhow::Result<Option<Value>> {
        self.next_request += 1;
        let id = self.next_request;
        self.send(json!({ "frame": "request", "request_id": id, "by": "agent", "request": request })).await;
        self.awaited(|frame| frame["frame"] == "reply" && frame["request_id"] == id).await
    }

    /// Asks something behind everything else, and waits for the answer, or that the gateway hangs up: it has read all.
    pub(super) async fn read_it(&mut self) -> anyhow::Result<Evidence> {
        Ok(match self.ask(json!({ "call": "get_access" })).await? {
            Some(_) => Evidence::Answered("a request behind it".to_owned()),
            None => Evidence::HungUp("the session".to_owned()),
        })
    }

    /// As [`Line::read_it`]; the gateway must have hung up.
    pub(super) async fn must_hang_up(&mut self) -> anyhow::Result<Evidence> {
        match self.read_it().await? {
            evidence @ Evidence::HungUp(_) => Ok(evidence),
            other => Err(effect(format!("the gateway went on: {}", other.text()))),
        }
    }

    /// Sends an answer to a challenge, which must be refused or end the connection.
    pub(super) async fn must_refuse(&mut self, hello: Value) -> anyhow::Result<Evidence> {
        self.send(hello).await;
        match self.next().await? {
            Some(frame) if frame["frame"] == "refused" => Ok(Evidence::Answered(frame["code"].to_string())),
            Some(frame) if frame["frame"] == "bye" => Ok(Evidence::HungUp(frame["code"].to_string())),
            None => Ok(Evidence::HungUp("before the session".to_owned())),
            Some(other) => Err(effect(format!("the gateway answered {}", other["frame"]))),
        }
    }
}
