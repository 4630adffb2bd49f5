//! The answers of the HTTP stack itself, in the gateway's own words.
//!
//! What cannot be read as a request never reaches a handler: the stack for HTTP/1.1 answers it with a status and an empty body, and
//! has no place to say more. So its answers are recognised on their way out, and a problem document goes in their place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::to_bytes;
use axum::http::header;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::active_requests::ActiveRequests;
use super::error::{self, Error};
use super::{fresh_id, server, write_common_headers};

/// The most headers of a request; the stack takes no more.
const MAX_HEADERS: usize = 100;

/// A stream on which the stack's own answers are exchanged.
pub(super) struct SpeakingStream<S> {
    stream: S,
    under_way: ActiveRequests,
    /// Our answer, and how much of it is written.
    ours: Option<(Vec<u8>, usize)>,
}

impl<S> SpeakingStream<S> {
    /// A stream on which these requests are under way.
    pub(super) fn new(stream: S, under_way: ActiveRequests) -> Self {
        Self { stream, under_way, ours: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SpeakingStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SpeakingStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // It speaks for itself only when no request is under way.
        if this.ours.is_none()
            && this.under_way.is_quiet()
            && let Some((begin, error)) = automatic(bytes)
        {
            if begin > 0 {
                // The end of an answer before it.
                return Pin::new(&mut this.stream).poll_write(cx, &bytes[..begin]);
            }
            this.under_way.leave_unread();
            this.ours = Some((answer(error, &bytes[begin..]), 0));
        }
        let Some((ours, written)) = &mut this.ours else { return Pin::new(&mut this.stream).poll_write(cx, bytes) };
        while *written < ours.len() {
            match ready!(Pin::new(&mut this.stream).poll_write(cx, &ours[*written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                more => *written += more,
            }
        }
        this.ours = None;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The stack's own answer is a head alone.
        match parts {
            [only] => self.poll_write(cx, only),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, parts),
        }
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

/// Where an answer of the stack itself begins, if these bytes end with one, and what it means.
fn automatic(bytes: &[u8]) -> Option<(usize, Error)> {
    const BEGIN: &[u8] = b"HTTP/1.1 4";
    let bytes_before_end = bytes.strip_suffix(b"\r\n\r\n")?;
    let begin = bytes_before_end.windows(BEGIN.len()).rposition(|window| window == BEGIN)?;
    let head = std::str::from_utf8(&bytes_before_end[begin..]).ok()?;
    // Every answer of a handler names its request.
    if head.contains("\r\n\r\n") || !head.contains("\r\ncontent-length: 0") || head.contains("\r\nx-request-id:") {
        return None;
    }
    let error = match head.get(9..12)? {
        "400" => Error::malformed_request(
            "The request is not HTTP/1.1: its request line, a header or the length of its body cannot be read. The connection \
             ends here.",
        ),
        "414" | "431" => Error::head_too_large_or_long(server::MAX_HEAD_BYTES, MAX_HEADERS),
        _ => return None,
    };
    Some((begin, error))
}

/// A whole answer of HTTP/1.1 in the place of an automatic one, after which the connection ends.
fn answer(error: Error, automatic: &[u8]) -> Vec<u8> {
    let id = fresh_id();
    let mut response = error.into_response();
    error::complete(&mut response, &id, false);
    write_common_headers(response.headers_mut(), id);
    let (parts, body) = response.into_parts();
    // A problem document is in memory.
    let body = to_bytes(body, usize::MAX).now_or_never().and_then(Result::ok).unwrap_or_default();
    let mut answer = format!("HTTP/1.1 {}\r\n", parts.status).into_bytes();
    let date = automatic.split_inclusive(|byte| *byte == b'\n').find(|line| line.starts_with(b"date: "));
    answer.extend_from_slice(date.unwrap_or_default());
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != header::CONNECTION) {
        answer.extend_from_slice(name.as_str().as_bytes());
        answer.extend_from_slice(b": ");
        answer.extend_from_slice(value.as_bytes());
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(format!("connection: close\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
    answer.extend_from_slice(&body);
    answer
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const AUTOMATIC: &str =
        "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\ndate: Sat\r\n\r\n";
    const HANDLED: &str = "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n";

    async fn passed(writes: &[&str], under_way: ActiveRequests) -> String {
        // A pipe that is shorter than the answer.
        let (ours, mut theirs) = duplex(64);
        let writes: Vec<String> = writes.iter().map(|&text| text.to_owned()).collect();
        let writing = tokio::spawn(async move {
            let mut stream = SpeakingStream::new(ours, under_way);
            for text in writes {
                stream.write_all(text.as_bytes()).await.expect("written");
            }
            stream.shutdown().await.expect("ended");
        });
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.expect("text");
        writing.await.expect("no panic");
        heard
    }

    #[tokio::test]
    async fn an_empty_answer_of_the_stack_becomes_a_problem_document_and_every_other_passes() {
        let under_way = ActiveRequests::default();
        let heard = passed(&[&format!("{HANDLED}{AUTOMATIC}")], under_way.clone()).await;
        let ours = heard.strip_prefix(HANDLED).unwrap_or_else(|| panic!("{heard}"));
        assert!(ours.starts_with("HTTP/1.1 431 "), "{ours}");
        assert!(ours.contains("content-type: application/problem+json\r\n") && ours.ends_with('}'), "{ours}");
        assert!(ours.contains("\r\ndate: Sat\r\n"), "{ours}");
        let (head, body) = ours.split_once("\r\n\r\n").expect("a body");
        assert!(
            head.contains(&format!("\r\ncontent-length: {}", body.len())) && head.contains("\r\nconnection: close"),
            "{head}"
        );
        assert!(under_way.has_unread());

        let quiet = ActiveRequests::default();
        let others = [HANDLED, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 431 Request\r\n"];
        assert_eq!(passed(&others, quiet.clone()).await, others.concat());
        assert!(!quiet.has_unread());
        let busy = ActiveRequests::default();
        let _request = busy.enter();
        assert_eq!(passed(&[AUTOMATIC], busy.clone()).await, AUTOMATIC);
    }
}
