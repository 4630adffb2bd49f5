//! One transfer stream: what a device asks on it, one thing after the other, and the bytes.

use std::time::Duration;

use bytes::Bytes;
use deskgate_protocol::frame;
use deskgate_protocol::transfer::{MAX_PIECE_BYTES, TransferReply, TransferRequest};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::service::ControlService;
use super::wire::BoxedControlStream;
use crate::domain::files::MAX_UPLOAD_DURATION;
use crate::domain::transfers::owner::{OwnFile, OwnUpload};
use crate::domain::transfers::{AnnouncedArtifact, ArtifactUpload, FileBytes, TransferRefusal};

/// How long a stream may lie idle between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one message may take to come or to go.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the largest request; an artifact's description has up to 4,000.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
type TransferSocket = WebSocketStream<BoxedControlStream>;

/// Why a stream ends.
enum StreamEnd {
    /// The device closed it, or it broke or stalled.
    Gone,
    /// The device said what it does not say here.
    Violation(&'static str),
}

/// Serves a stream to its end.
pub(super) async fn serve(service: &ControlService, mut socket: TransferSocket) {
    let served = async {
        loop {
            one(service, &mut socket).await?;
        }
    };
    match Box::pin(service.stop.run_until_cancelled(served)).await {
        Some(Err(StreamEnd::Violation(what))) => tracing::warn!(what, "a transfer stream was cut"),
        Some(Ok(())) | Some(Err(StreamEnd::Gone)) | None => {}
    }
    let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
}

/// Serves one request.
async fn one(service: &ControlService, socket: &mut TransferSocket) -> Result<(), StreamEnd> {
    let request = match next(socket, IDLE_TIMEOUT).await? {
        Message::Text(text) if text.len() <= MAX_REQUEST_BYTES => text,
        _ => return Err(StreamEnd::Violation("a request that is none")),
    };
    let request = frame::decode(&request).map_err(|_| StreamEnd::Violation("a request that is none"))?;
    let transfers = &service.transfers;
    let answered = match request {
        TransferRequest::Get { ticket, file_id, offset } => match transfers.get(&ticket, file_id, offset).await {
            Ok(file) => return give(socket, file).await,
            Err(refused) => Err(refused),
        },
        TransferRequest::GetArtifact { ticket, run_id, artifact_id, offset } => {
            match transfers.get_artifact(&ticket, run_id, artifact_id, offset).await {
                Ok(artifact) => return give(socket, artifact).await,
                Err(refused) => Err(refused),
            }
        }
        TransferRequest::Put { ticket, artifact } => match transfers.put(&ticket, artifact).await {
            Ok(AnnouncedArtifact::Stored) => Ok(TransferReply::Done),
            Ok(AnnouncedArtifact::Upload(upload)) => take(socket, Incoming::Artifact(upload)).await?,
            Err(refused) => Err(refused),
        },
        TransferRequest::Upload { ticket, app_id, name, media_type, size, sha256 } => {
            match transfers.upload(&ticket, app_id, OwnFile { name, media_type, size, sha256 }).await {
                Ok(upload) => take(socket, Incoming::File(Box::new(upload))).await?,
                Err(refused) => Err(refused),
            }
        }
        TransferRequest::Missing { ticket, artifact } => {
            transfers.note_missing(&ticket, artifact).await.map(|()| TransferReply::Done)
        }
    };
    let reply = match answered {
        Ok(reply) => reply,
        Err(TransferRefusal { code, message }) => {
            tracing::info!(?code, message, "a transfer was refused");
            TransferReply::Refused { code, message }
        }
    };
    send(socket, &reply).await
}

/// Sends the bytes of a file. If they cannot all be read, the stream ends: the device asks again for what it lacks, and is told why.
async fn give(socket: &mut TransferSocket, file: FileBytes) -> Result<(), StreamEnd> {
    send(socket, &TransferReply::Sending { bytes: file.length }).await?;
    let mut bytes = file.bytes;
    loop {
        let mut piece = match bytes.try_next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return in_time(socket.flush()).await,
            Err(error) => {
                tracing::error!(%error, "a file broke off");
                return Err(StreamEnd::Gone);
            }
        };
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(MAX_PIECE_BYTES));
            // Small pieces, as a bucket's come, go together.
            in_time(socket.feed(Message::Binary(part))).await?;
        }
    }
}

/// What a device sends bytes of.
enum Incoming {
    Artifact(Box<ArtifactUpload>),
    File(Box<OwnUpload>),
}

impl Incoming {
    fn offset(&self) -> u64 {
        match self {
            Self::Artifact(upload) => upload.offset(),
            Self::File(_) => 0,
        }
    }

    fn missing(&self) -> u64 {
        match self {
            Self::Artifact(upload) => upload.missing(),
            Self::File(upload) => upload.missing(),
        }
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), TransferRefusal> {
        match self {
            Self::Artifact(upload) => upload.write(bytes).await,
            Self::File(upload) => upload.write(bytes).await,
        }
    }

    async fn finish(self) -> Result<TransferReply, TransferRefusal> {
        match self {
            Self::Artifact(upload) => upload.finish().await.map(|()| TransferReply::Done),
            Self::File(upload) => upload.finish().await.map(|file| TransferReply::Stored { file }),
        }
    }

    /// Keeps what came of an artifact, so that the device goes on there.
    async fn leave(self) {
        match self {
            Self::Artifact(upload) => upload.leave().await,
            Self::File(_) => {}
        }
    }
}

/// Takes the bytes of an artifact or of the owner's file.
async fn take(
    socket: &mut TransferSocket,
    mut upload: Incoming,
) -> Result<Result<TransferReply, TransferRefusal>, StreamEnd> {
    send(socket, &TransferReply::SendFrom { offset: upload.offset() }).await?;
    let until = Instant::now() + MAX_UPLOAD_DURATION;
    while upload.missing() > 0 {
        let time = STALL_TIMEOUT.min(until.saturating_duration_since(Instant::now()));
        let piece: Bytes = match next(socket, time).await {
            Ok(Message::Binary(piece)) if piece.len() <= MAX_PIECE_BYTES => piece,
            Ok(_) => return Err(StreamEnd::Violation("something else than the bytes that were announced")),
            Err(end) => {
                upload.leave().await;
                return Err(end);
            }
        };
        if let Err(refused) = upload.write(piece).await {
            return Ok(Err(refused));
        }
    }
    Ok(upload.finish().await)
}

/// The next message with content.
async fn next(socket: &mut TransferSocket, time: Duration) -> Result<Message, StreamEnd> {
    let until = Instant::now() + time;
    loop {
        match timeout_at(until, socket.next()).await {
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => return Err(StreamEnd::Gone),
            Ok(Some(Ok(message))) => return Ok(message),
        }
    }
}

async fn send(socket: &mut TransferSocket, reply: &TransferReply) -> Result<(), StreamEnd> {
    let text = frame::encode(reply).map_err(|_| StreamEnd::Gone)?;
    write(socket, Message::text(text)).await
}

async fn write(socket: &mut TransferSocket, message: Message) -> Result<(), StreamEnd> {
    in_time(socket.send(message)).await
}

async fn in_time<E>(writing: impl Future<Output = Result<(), E>>) -> Result<(), StreamEnd> {
    match timeout(STALL_TIMEOUT, writing).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(StreamEnd::Gone),
    }
}
