//! A connection that must begin in time.
//!
//! Which version of HTTP a client speaks is found out from its first bytes, and nobody else waits
//! with a clock for those: the time for a head runs only when the version is known. So a client that
//! says nothing, or only the beginning of HTTP/2's preface, would be held for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What an HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail when its first bytes do not show a version in time.
pub(super) struct FirstBytes<S> {
    stream: S,
    /// Bytes that were read and are the beginning of [`PREFACE`].
    alike: usize,
    /// Gone as soon as the version is known.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> FirstBytes<S> {
    /// Waits `patience` for the first bytes.
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, alike: 0, patience: Some(Box::pin(sleep(patience))) }
    }

    fn note(&mut self, bytes: &[u8]) {
        let expected = PREFACE.get(self.alike..).unwrap_or_default();
        self.alike += bytes.len();
        if !expected.starts_with(bytes) || expected.len() == bytes.len() {
            self.patience = None;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if self.patience.is_some() => {
                self.note(&buf.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => match self.patience.as_mut().map(|patience| patience.as_mut().poll(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                _ => Poll::Pending,
            },
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
