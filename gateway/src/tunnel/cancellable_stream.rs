//! A byte stream that can be cut from outside.
//!
//! russh runs each connection in a task of its own that others cannot end. The token of the [`CancellableStream`]
//! beneath it can: after the cut every read and write fails, and so does the task.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream that ends when its token is cancelled.
pub struct CancellableStream<S> {
    stream: S,
    // One for each direction: they may be polled by different tasks, and a future notifies only one.
    read_cut: Pin<Box<WaitForCancellationFutureOwned>>,
    write_cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> CancellableStream<S> {
    /// Cancelling `cut` ends the stream in both directions.
    pub fn new(stream: S, cut: &CancellationToken) -> Self {
        let waiting = || Box::pin(cut.clone().cancelled_owned());
        Self { stream, read_cut: waiting(), write_cut: waiting() }
    }
}

fn check(cut: &mut Pin<Box<WaitForCancellationFutureOwned>>, cx: &mut Context<'_>) -> io::Result<()> {
    match cut.as_mut().poll(cx) {
        Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the line was cut")),
        Poll::Pending => Ok(()),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CancellableStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        check(&mut self.read_cut, cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CancellableStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        check(&mut self.write_cut, cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.write_cut, cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.write_cut, cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_cut_ends_a_read_that_is_waiting_and_a_write_that_is_stuck() {
        let cut = CancellationToken::new();
        let (near, far) = tokio::io::duplex(8);
        let (mut reading, mut writing) = tokio::io::split(CancellableStream::new(near, &cut));
        let read = tokio::spawn(async move { reading.read_u8().await });
        let write = tokio::spawn(async move { writing.write_all(&[0; 64]).await });
        tokio::task::yield_now().await;
        cut.cancel();
        for error in [
            read.await.expect("no panic").map(|_| ()).expect_err("cut"),
            write.await.expect("no panic").expect_err("cut"),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
        drop(far);
    }
}
