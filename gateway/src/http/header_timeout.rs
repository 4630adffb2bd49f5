//! A connection whose requests must begin in time.
//!
//! The HTTP version of a client is detected from its first bytes, and the HTTP stack has no timeout for those. Its
//! timeout for a head of HTTP/1.1 runs from the end of the request before, so that it would also close idle connections
//! that are kept for later, maybe while a request is on its way to them. The timeout here starts with a head's first
//! byte.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::active_requests::ActiveRequests;

/// The first bytes of an HTTP/2 connection (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail when a head does not come in time.
pub(super) struct HeaderTimeoutStream<S> {
    stream: S,
    under_way: ActiveRequests,
    /// Time for a head; half of it for the first bytes.
    time: Duration,
    version: HttpVersion,
    clock: Option<Deadline>,
}

enum HttpVersion {
    /// So many bytes were read, and match the beginning of [`HTTP2_PREFACE`].
    Unknown {
        alike: usize,
    },
    One,
    /// HTTP/2: its stack pings, and so notices a silent peer.
    Two,
}

/// The time by which something must have arrived.
struct Deadline {
    ends: Instant,
    /// The requests that had begun at its start: with one more, the head is complete.
    begun: u64,
    /// Created when there is something to wait for; most heads arrive at once.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> HeaderTimeoutStream<S> {
    /// A stream on which these requests are under way.
    pub(super) fn new(stream: S, under_way: ActiveRequests, time: Duration) -> Self {
        let clock = Deadline { ends: Instant::now() + time / 2, begun: 0, sleep: None };
        Self { stream, under_way, time, version: HttpVersion::Unknown { alike: 0 }, clock: Some(clock) }
    }

    /// Examines bytes that were read.
    fn note(&mut self, bytes: &[u8]) {
        match self.version {
            HttpVersion::Unknown { alike } => {
                let expected = HTTP2_PREFACE.get(alike..).unwrap_or_default();
                if !expected.starts_with(bytes) {
                    self.version = HttpVersion::One;
                    self.begin(self.under_way.begun());
                } else if expected.len() == bytes.len() {
                    (self.version, self.clock) = (HttpVersion::Two, None);
                } else {
                    self.version = HttpVersion::Unknown { alike: alike + bytes.len() };
                }
            }
            HttpVersion::One => {
                let begun = self.under_way.begun();
                let runs = self.clock.as_ref().is_some_and(|clock| clock.begun == begun);
                if !runs && self.under_way.is_quiet() {
                    self.begin(begun);
                }
            }
            HttpVersion::Two => {}
        }
    }

    fn begin(&mut self, begun: u64) {
        self.clock = Some(Deadline { ends: Instant::now() + self.time, begun, sleep: None });
    }

    /// Whether the time is up, now that there is nothing to read.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if self.clock.as_ref().is_some_and(|clock| clock.begun != self.under_way.begun()) {
            self.clock = None;
        }
        let Some(Deadline { ends, sleep, .. }) = &mut self.clock else { return false };
        let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(*ends)));
        sleep.as_mut().poll(cx).is_ready()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeaderTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                self.note(&buf.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.is_late(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeaderTimeoutStream<S> {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_millis(100);

    /// A stream with a client, and its requests under way.
    fn connection() -> (HeaderTimeoutStream<DuplexStream>, DuplexStream, ActiveRequests) {
        let (ours, theirs) = duplex(64);
        let under_way = ActiveRequests::default();
        (HeaderTimeoutStream::new(ours, under_way.clone(), TEST_TIMEOUT), theirs, under_way)
    }

    /// The next result: a byte, a failure, or nothing for longer than a head may take.
    async fn next(heads: &mut HeaderTimeoutStream<DuplexStream>) -> Option<io::ErrorKind> {
        match timeout(TEST_TIMEOUT * 3, heads.read_u8()).await {
            Ok(read) => read.err().map(|error| error.kind()),
            Err(_) => None,
        }
    }

    #[tokio::test]
    async fn a_head_that_stops_is_late_and_a_connection_that_waits_for_the_next_is_not() {
        let (mut heads, mut client, under_way) = connection();
        client.write_all(b"G").await.expect("there is room");
        assert_eq!(next(&mut heads).await, None);
        drop(under_way.enter());
        assert_eq!(next(&mut heads).await, None, "nothing was begun");
        client.write_all(b"G").await.expect("there is room");
        assert_eq!(next(&mut heads).await, None);
        assert_eq!(next(&mut heads).await, Some(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn whoever_says_nothing_at_first_is_late() {
        let (mut heads, _client, _under_way) = connection();
        assert_eq!(next(&mut heads).await, Some(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn what_a_connection_became_has_no_heads() {
        let (mut heads, mut client, under_way) = connection();
        client.write_all(b"GG").await.expect("there is room");
        assert_eq!(next(&mut heads).await, None);
        drop(under_way.enter());
        // The upgraded protocol sends before the end of HTTP was noticed.
        assert_eq!(next(&mut heads).await, None);
        under_way.end();
        for _ in 0..2 {
            assert_eq!(next(&mut heads).await, None);
            client.write_all(b"x").await.expect("there is room");
            assert_eq!(next(&mut heads).await, None);
        }
    }
}
