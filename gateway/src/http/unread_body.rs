//! The rest of a request's body that its answer did not wait for.
//!
//! Most refusals come before the body is read. What is left of it stands before the next request of the connection, so
//! it is read and thrown away, within a bound. Where that is too much the connection ends, and says so in the answer:
//! a peer that does not know would lose its next request there, and a proxy the next request of somebody else.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// How much of an unread body is thrown away, in bytes.
const MAX_DISCARDED_BYTES: u64 = 256 * 1024;
/// How long it may take to arrive.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A request's body on loan: what the borrower does not read is given back when this is dropped.
pub(super) struct LentBody<B: Body + Unpin> {
    body: Option<B>,
    /// `None`: the body was read to its end.
    lender: Option<oneshot::Sender<Option<B>>>,
    is_broken: bool,
}

/// Receives the rest of a body that was lent.
pub(super) struct BodyLender<B>(Option<oneshot::Receiver<Option<B>>>);

/// Lends a body.
pub(super) fn lend<B: Body + Unpin>(body: B) -> (LentBody<B>, BodyLender<B>) {
    let (lender, rest) = if body.is_end_stream() {
        (None, None)
    } else {
        let (lender, rest) = oneshot::channel();
        (Some(lender), Some(rest))
    };
    (LentBody { body: Some(body), lender, is_broken: false }, BodyLender(rest))
}

impl<B: Body<Data = Bytes> + Unpin> Body for LentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        match &frame {
            None => self.lender = None,
            Some(Err(_)) => self.is_broken = true,
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body + Unpin> Drop for LentBody<B> {
    fn drop(&mut self) {
        let Some(lender) = self.lender.take() else { return };
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            // Nobody waits for it any more when the connection has ended.
            let _ = lender.send(Some(body).filter(|_| !self.is_broken));
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> BodyLender<B> {
    /// Throws the rest away, once the borrower is done. False: there is more than that, so no other request can follow.
    /// `is_awaited`: whether the peer sends the body only when it is asked to (RFC 9110, section 10.1.1).
    pub(super) async fn discard(self, is_awaited: bool) -> bool {
        let Some(mut lent) = self.0 else { return true };
        match lent.try_recv() {
            Err(_) => true,
            Ok(None) => false,
            Ok(Some(_)) if is_awaited => false,
            Ok(Some(rest)) => tokio::time::timeout(DISCARD_TIMEOUT, discard(rest)).await.unwrap_or(false),
        }
    }
}

/// Reads a body to its end. False: it is too long, or broke off.
async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B) -> bool {
    let mut left = MAX_DISCARDED_BYTES;
    while body.size_hint().lower() <= left {
        let length = match body.frame().await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
        };
        let Some(rest) = left.checked_sub(length) else { return false };
        left = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body as AnyBody;
    use futures_util::stream;

    fn chunks(count: usize, bytes: usize) -> AnyBody {
        let chunk = move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes]));
        AnyBody::from_stream(stream::iter((0..count).map(chunk)))
    }

    #[tokio::test]
    async fn what_was_not_read_is_thrown_away_within_the_bound() {
        let most = MAX_DISCARDED_BYTES as usize;
        for (body, is_discarded) in [
            (AnyBody::from(vec![b'x'; most]), true),
            (AnyBody::from(vec![b'x'; most + 1]), false),
            (chunks(4, most / 4), true),
            (chunks(5, most / 4), false),
            (AnyBody::from_stream(stream::iter([Err::<Bytes, _>(std::io::Error::other("broken"))])), false),
            (AnyBody::from_stream(stream::pending::<Result<Bytes, std::io::Error>>()), false),
        ] {
            let (lent, lender) = lend(body);
            drop(lent);
            assert_eq!(lender.discard(false).await, is_discarded);
        }
    }

    #[tokio::test]
    async fn a_body_that_was_read_leaves_nothing_and_one_that_broke_off_ends_the_connection() {
        let (lent, lender) = lend(AnyBody::from("all of it"));
        assert_eq!(lent.collect().await.expect("readable").to_bytes(), "all of it");
        assert!(lender.discard(false).await);
        let (lent, lender) =
            lend(AnyBody::from_stream(stream::iter([Err::<Bytes, _>(std::io::Error::other("broken"))])));
        assert!(lent.collect().await.is_err());
        assert!(!lender.discard(false).await);
        // Nobody sends what was never asked for.
        let (lent, lender) = lend(AnyBody::from("to be asked for"));
        drop(lent);
        assert!(!lender.discard(true).await);
    }
}
