//! Frames in and out of the WebSocket.

use std::time::Duration;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_protocol::frame::{self, FrameError, MAX_FRAME_BYTES};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Any stream over which a device may connect.
pub(crate) trait ControlStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ControlStream for T {}

/// A boxed stream of any kind.
pub(crate) type BoxedControlStream = Box<dyn ControlStream>;

type ControlSocket = WebSocketStream<BoxedControlStream>;

/// The WebSocket's settings: frames of our size, nothing larger.
pub(super) fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_FRAME_BYTES)).max_frame_size(Some(MAX_FRAME_BYTES))
}

/// Why no further frame comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The other side closed, or the connection broke.
    #[error("the line is closed")]
    Closed,
    /// The text is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message that is not text.
    #[error("a message that is not text")]
    NotText,
}

/// The half that reads.
pub(super) struct FrameReader(SplitStream<ControlSocket>);

impl FrameReader {
    /// The next frame.
    pub(super) async fn next(&mut self) -> Result<DeviceFrame, WireError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(frame::decode(&text)?),
                Some(Ok(Message::Binary(_))) => return Err(WireError::NotText),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(tokio_tungstenite::tungstenite::Error::Capacity(error))) => {
                    tracing::debug!(%error, "a message over the limit");
                    return Err(FrameError::TooLarge(MAX_FRAME_BYTES + 1).into());
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(WireError::Closed),
            }
        }
    }
}

/// The half that writes.
pub(super) struct FrameWriter(SplitSink<ControlSocket, Message>);

impl FrameWriter {
    /// Sends one frame.
    pub(super) async fn send(&mut self, frame: &GatewayFrame) -> Result<(), WireError> {
        let text = frame::encode(frame)?;
        self.0.send(Message::text(text)).await.map_err(|_| WireError::Closed)
    }

    /// Sends frames from the queue, several in one write when they are ready, until the queue or the connection ends. A
    /// peer that reads nothing for the timeout ends it too.
    pub(super) async fn drain(mut self, mut queue: mpsc::Receiver<GatewayFrame>, patience: Duration) {
        let mut frames = Vec::new();
        while queue.recv_many(&mut frames, 64).await > 0 {
            let written = async {
                for frame in frames.drain(..) {
                    match frame::encode(&frame) {
                        Ok(text) => self.0.feed(Message::text(text)).await.map_err(|_| WireError::Closed)?,
                        // A frame that cannot be written must not block the others.
                        Err(error) => tracing::error!(%error, "a frame to the device cannot be sent and is left out"),
                    }
                }
                self.0.flush().await.map_err(|_| WireError::Closed)
            };
            match timeout(patience, written).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return tracing::debug!(%error, "the session's line cannot be written"),
                Err(_) => return tracing::warn!("the device does not read; its session ends"),
            }
        }
        // The other side sees the end either way.
        let _ = timeout(Duration::from_secs(1), self.0.close()).await;
    }
}

/// Both halves of an open WebSocket.
pub(super) fn split(socket: ControlSocket) -> (FrameReader, FrameWriter) {
    let (writer, reader) = socket.split();
    (FrameReader(reader), FrameWriter(writer))
}
