//! The control channel as its receiver holds it; the connection can take it back.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use russh::ChannelStream;
use russh::server::Msg;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The slot of the one channel of a connection.
///
/// The connection can empty it. Otherwise a receiver that holds its stream without reading would keep russh waiting in
/// a full queue, where it does not notice that the connection was cut.
#[derive(Clone, Default)]
pub(super) struct ChannelSlot(Arc<Mutex<Option<ChannelStream<Msg>>>>);

impl ChannelSlot {
    pub(super) fn fill(&self, channel: ChannelStream<Msg>) {
        *self.lock() = Some(channel);
    }

    pub(super) fn empty(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<ChannelStream<Msg>>> {
        // A poll that panicked leaves at worst a broken stream, which its reader notices.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll<T>(&self, poll: impl FnOnce(Pin<&mut ChannelStream<Msg>>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match self.lock().as_mut() {
            Some(channel) => poll(Pin::new(channel)),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

/// The receiver's end. Its drop ends the connection.
pub(super) struct ChannelEnd {
    pub(super) slot: ChannelSlot,
    pub(super) dropped: CancellationToken,
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.slot.empty();
        self.dropped.cancel();
    }
}

impl AsyncRead for ChannelEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.slot.poll(|channel| channel.poll_read(cx, buf))
    }
}

impl AsyncWrite for ChannelEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            // russh takes an empty write for an error.
            return Poll::Ready(Ok(0));
        }
        self.slot.poll(|channel| channel.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.slot.poll(|channel| channel.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.slot.poll(|channel| channel.poll_shutdown(cx))
    }
}
