//! A stream for transfers: opened like the control channel, beside it.

use std::time::Duration;

use bytes::Bytes;
use deskgate_protocol::frame;
use deskgate_protocol::transfer::{MAX_PIECE_BYTES, TRANSFERS_PATH, TransferReply, TransferRequest};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::OpenedTransport;
use super::error::LinkError;
use super::handshake::{self, OpenedChannel};
use super::session::ControlSocket;
use super::status::{LinkHandle, Route};

/// How long one message may take to come or to go.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a gateway may take to answer a request: it may read an artifact's beginning again, or write its end.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// An open stream. Dropping it closes the connection.
pub struct TransferStream {
    outgoing: SplitSink<ControlSocket, Message>,
    incoming: SplitStream<ControlSocket>,
    /// What came while something was sent.
    early: Option<Message>,
}

impl LinkHandle {
    /// Opens a stream by the route in force.
    ///
    /// # Errors
    /// Why not.
    pub async fn open_transfers(&self) -> Result<TransferStream, LinkError> {
        let Route { connector, credentials } = self.route();
        let OpenedTransport { opened, .. } = Box::pin(connector.open(&credentials.key, TRANSFERS_PATH)).await?;
        let socket = match opened {
            OpenedChannel::Account(socket, _) => *socket,
            OpenedChannel::Private(stream) => {
                let token = credentials.token.as_ref().ok_or(LinkError::WrongToken)?;
                let authorization = format!("Bearer {}", token.reveal());
                let upgraded = handshake::upgrade(stream, TRANSFERS_PATH, &authorization);
                let late = |_| LinkError::Lost("it did not answer in time".to_owned());
                timeout(handshake::HANDSHAKE_TIMEOUT, upgraded).await.map_err(late)??
            }
        };
        let (outgoing, incoming) = socket.split();
        Ok(TransferStream { outgoing, incoming, early: None })
    }
}

impl TransferStream {
    /// Asks, and returns the answer.
    ///
    /// # Errors
    /// The stream broke, stalled, or said what is no answer.
    pub async fn ask(&mut self, request: &TransferRequest) -> Result<TransferReply, LinkError> {
        let text = frame::encode(request).map_err(|error| LinkError::Lost(error.to_string()))?;
        self.write(Message::text(text)).await?;
        self.reply().await
    }

    /// The next answer.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn reply(&mut self) -> Result<TransferReply, LinkError> {
        match self.next(REPLY_TIMEOUT).await? {
            Message::Text(text) => frame::decode(&text).map_err(|error| LinkError::NotAGateway(error.to_string())),
            _ => Err(LinkError::NotAGateway("it sent bytes that nobody asked for".to_owned())),
        }
    }

    /// The next bytes of a file.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn bytes(&mut self) -> Result<Bytes, LinkError> {
        match self.next(STALL_TIMEOUT).await? {
            Message::Binary(bytes) if bytes.len() <= MAX_PIECE_BYTES => Ok(bytes),
            _ => Err(LinkError::NotAGateway("it sent something else than the bytes of a file".to_owned())),
        }
    }

    /// Sends bytes of an artifact.
    ///
    /// # Errors
    /// The stream broke or stalled.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), LinkError> {
        self.write(Message::Binary(bytes)).await
    }

    /// Writes a message, and reads meanwhile: a connection that ended is told to its reader alone.
    async fn write(&mut self, message: Message) -> Result<(), LinkError> {
        let Self { outgoing, incoming, early } = self;
        let ended = async {
            loop {
                match read(incoming).await {
                    Ok(message) if early.is_none() => *early = Some(message),
                    Ok(_) => return LinkError::NotAGateway("it sent what nobody asked for".to_owned()),
                    Err(error) => return error,
                }
            }
        };
        tokio::select! {
            written = timeout(STALL_TIMEOUT, outgoing.send(message)) => match written {
                Ok(written) => written.map_err(|error| LinkError::Lost(error.to_string())),
                Err(_) => Err(LinkError::Lost("it takes no bytes".to_owned())),
            },
            error = ended => Err(error),
        }
    }

    async fn next(&mut self, time: Duration) -> Result<Message, LinkError> {
        match self.early.take() {
            Some(message) => Ok(message),
            None => match timeout(time, read(&mut self.incoming)).await {
                Ok(message) => message,
                Err(_) => Err(LinkError::Lost("it sends nothing".to_owned())),
            },
        }
    }
}

/// The next message with content.
async fn read(incoming: &mut SplitStream<ControlSocket>) -> Result<Message, LinkError> {
    loop {
        match incoming.next().await {
            None | Some(Ok(Message::Close(_))) => return Err(LinkError::Lost("it closed the stream".to_owned())),
            Some(Err(error)) => return Err(LinkError::Lost(error.to_string())),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(message)) => return Ok(message),
        }
    }
}
