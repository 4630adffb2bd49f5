//! The body of an answer while it is sent: in chunks, with a timer, and with a value that is held until its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::stream_timeout::StreamTimer;

/// The largest chunk that is handed over, in bytes. The last chunk is handed over as soon as there is space for a byte
/// of it, and its stream has no timer then. So each chunk of a long answer has memory of its own: a peer that reads
/// nothing keeps one for each of its streams in our buffers, however long the answers are.
const CHUNK_BYTES: usize = 16 * 1024;

/// A body that holds something until it was sent or is dropped.
pub(super) struct ResponseBody<H> {
    body: Body,
    /// The rest of the frame that was sent last.
    rest: Bytes,
    /// The stream's timer, on HTTP/2.
    stall: Option<Arc<StreamTimer>>,
    _held: H,
}

impl<H> ResponseBody<H> {
    /// Must be created in the task that sends the answer.
    pub(super) fn new(body: Body, held: H) -> Self {
        let stall = StreamTimer::current();
        if let Some(stall) = &stall {
            stall.offer();
        }
        Self { body, rest: Bytes::new(), stall, _held: held }
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_ok(|frame| match frame.into_data() {
            Ok(data) if data.len() > CHUNK_BYTES => self.piece(data),
            Ok(data) => Frame::data(data),
            Err(other) => other,
        })
    }

    /// The first part of something longer, in memory of its own.
    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        self.rest = data.split_off(data.len().min(CHUNK_BYTES));
        Frame::data(Bytes::copy_from_slice(&data))
    }
}

impl<H: Unpin> HttpBody for ResponseBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(stall) = this.stall.clone() else { return this.next(cx) };
        let waker = stall.taking(cx.waker());
        let frame = this.next(&mut Context::from_waker(&waker));
        if let Poll::Ready(Some(_)) = &frame {
            stall.offer();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, more) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + more);
        }
        hint.set_lower(hint.lower() + more);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_long_body_goes_out_in_pieces_and_whole() {
        let text: Bytes = (0..CHUNK_BYTES * 2 + 5).map(|place| (place % 251) as u8).collect();
        let mut outgoing = ResponseBody::new(Body::from(text.clone()), ());
        assert_eq!(outgoing.size_hint().exact(), Some(text.len() as u64));
        let (mut lengths, mut whole) = (Vec::new(), Vec::new());
        while let Some(frame) = outgoing.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            lengths.push(data.len());
            whole.extend_from_slice(&data);
            assert_eq!(outgoing.size_hint().exact(), Some((text.len() - whole.len()) as u64));
            assert_eq!(outgoing.is_end_stream(), whole.len() == text.len());
        }
        assert_eq!((lengths, whole), (vec![CHUNK_BYTES, CHUNK_BYTES, 5], text.to_vec()));
    }

    #[tokio::test]
    async fn a_piece_that_nobody_takes_does_not_keep_the_rest_of_a_long_body() {
        let text: Arc<[u8]> = vec![b'x'; CHUNK_BYTES * 4].into();
        let mut outgoing = ResponseBody::new(Body::from(Bytes::from_owner(text.clone())), ());
        let mut given = Vec::new();
        while let Some(frame) = outgoing.frame().await {
            given.push(frame.unwrap().into_data().unwrap());
        }
        drop(outgoing);
        assert_eq!((given.len(), Arc::strong_count(&text)), (4, 1));
    }
}
