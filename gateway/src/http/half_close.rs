//! A connection whose last answer can be read.
//!
//! Closing a socket that has unread bytes, or receives more, resets the connection, and a reset may overtake the answer
//! before it. So where a peer is still sending, only the sending direction is closed, and what the peer sends is thrown
//! away until it has noticed.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::active_requests::ActiveRequests;

/// How long a peer may send nothing before it is taken for gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is thrown away at a time, in bytes.
const DISCARD_BYTES: usize = 8 * 1024;

/// A stream that ends, where something was left unread, only when the peer has ended too.
pub(super) struct HalfClosingStream<S> {
    stream: S,
    under_way: ActiveRequests,
    /// The time for the peer to end.
    patience: Duration,
    closing: Option<Closing>,
}

/// The end of a stream whose sending direction is closed.
struct Closing {
    ends: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl<S> HalfClosingStream<S> {
    /// A stream on which these requests are under way.
    pub(super) fn new(stream: S, under_way: ActiveRequests, patience: Duration) -> Self {
        Self { stream, under_way, patience, closing: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HalfClosingStream<S> {
    /// Throws away what comes, until the peer's end or the end of patience.
    fn poll_peer_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let closing = self.closing.get_or_insert_with(|| {
            let ends = Instant::now() + patience;
            Closing { ends, sleep: Box::pin(sleep_until(ends.min(Instant::now() + SILENCE_TIMEOUT))) }
        });
        if Instant::now() >= closing.sleep.deadline() {
            return Poll::Ready(());
        }
        let mut discarded = [MaybeUninit::uninit(); DISCARD_BYTES];
        loop {
            let mut buffer = ReadBuf::uninit(&mut discarded);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let silent_until = Instant::now() + SILENCE_TIMEOUT;
                    closing.sleep.as_mut().reset(closing.ends.min(silent_until));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return closing.sleep.as_mut().poll(cx),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HalfClosingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HalfClosingStream<S> {
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
        if self.closing.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.under_way.has_unread() { self.poll_peer_end(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_stream_with_something_unread_ends_when_its_peer_has_ended_or_patience_has() {
        for (peer_ends, patience) in [(true, TEST_TIMEOUT * 100), (false, TEST_TIMEOUT)] {
            let (ours, mut theirs) = duplex(1024);
            let under_way = ActiveRequests::default();
            under_way.leave_unread();
            let mut stream = HalfClosingStream::new(ours, under_way, patience);
            let closing = tokio::spawn(async move { stream.shutdown().await });
            let mut heard = Vec::new();
            assert_eq!(theirs.read_to_end(&mut heard).await.expect("its end"), 0);
            // More than the pipe holds, so somebody takes it.
            theirs.write_all(&[b'x'; 10_000]).await.expect("taken");
            assert!(!closing.is_finished());
            if peer_ends {
                drop(theirs);
            }
            timeout(TEST_TIMEOUT * 20, closing).await.expect("ended").expect("no panic").expect("closed");
        }
    }

    #[tokio::test]
    async fn a_stream_without_anything_unread_waits_for_nobody() {
        let (ours, _theirs) = duplex(64);
        let mut stream = HalfClosingStream::new(ours, ActiveRequests::default(), TEST_TIMEOUT * 100);
        timeout(TEST_TIMEOUT, stream.shutdown()).await.expect("at once").expect("closed");
    }
}
