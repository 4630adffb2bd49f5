//! The body of an answer to a request without an Idempotency-Key: whether its end was handed over.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::domain::unkeyed_requests::UnansweredRequest;

/// A request on its way through the layers that make an answer. The last one watches the body.
#[derive(Clone)]
pub(super) struct Watch(Arc<Mutex<Option<UnansweredRequest>>>);

impl Watch {
    pub(super) fn of(request: UnansweredRequest) -> Self {
        Self(Arc::new(Mutex::new(Some(request))))
    }
}

/// Watches the body of an answer that is complete but for being sent.
pub(super) fn watched(mut response: Response) -> Response {
    let Some(watch) = response.extensions_mut().remove::<Watch>() else { return response };
    let request = watch.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    match request {
        Some(request) => response.map(|body| Body::new(WatchedBody { body, request })),
        None => response,
    }
}

struct WatchedBody {
    body: Body,
    request: UnansweredRequest,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // A body of known length is not asked again behind its last frame.
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.request.answered();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
