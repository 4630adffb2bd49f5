//! A run's stream in the form of this door.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::run::{EventType, Run, RunEvent};
use futures_util::stream::unfold;
use tokio::time::timeout;

use crate::domain::access::Caller;
use crate::domain::events::{EventStream, StreamFrame};
use crate::domain::runs;
use crate::http::Api;
use crate::http::events::STREAM_HEADERS;
use crate::http::held::broken_off;

/// Writes what happens in a run as server-sent events.
pub(super) trait RunWriter: Send + 'static {
    /// Whether an event of this type shows the run's record.
    fn shows_run(&self, kind: EventType) -> bool {
        kind.is_final()
    }

    /// A stored event; `run`: the record, for one that shows it.
    fn event(&mut self, event: &RunEvent, run: Option<&Run>);

    /// A piece of a message that is being written.
    fn piece(&mut self, delta: &MessageDelta);

    /// What is to be sent by now.
    fn out(&mut self) -> &mut String;

    /// A comment: readers skip it, and the connection is seen to live.
    fn comment(&mut self, text: &str) {
        let _ = write!(self.out(), ": {text}\n\n");
    }

    /// Whether the end was written, or its reader has it already.
    fn has_ended(&self) -> bool;
}

/// The answer that follows a run to its end, or is broken off. Its state is behind a pointer, so that an idle one is small.
pub(super) fn followed(api: Arc<Api>, caller: Caller, stream: EventStream, writer: impl RunWriter) -> Response {
    let silence = api.listener.heartbeat;
    let pieces = unfold(Some(Box::new((api, caller, stream, writer))), move |state| async move {
        let mut state = state?;
        loop {
            let (api, caller, stream, writer) = &mut *state;
            let written = std::mem::take(writer.out());
            if !written.is_empty() {
                return Some((Ok(Bytes::from(written)), Some(state)));
            }
            let is_told = match timeout(silence, stream.next()).await {
                Ok(None) if writer.has_ended() => return None,
                Ok(None) => None,
                Ok(Some(frame)) => tell(api, caller, writer, frame).await,
                Err(_) => {
                    writer.comment("nothing new");
                    Some(())
                }
            };
            if is_told.is_none() {
                return Some((Err(broken_off()), None));
            }
        }
    });
    (STREAM_HEADERS, Body::from_stream(pieces)).into_response()
}

/// `None`: the frame cannot be told.
async fn tell(api: &Api, caller: &Caller, writer: &mut impl RunWriter, frame: StreamFrame) -> Option<()> {
    match frame {
        StreamFrame::Snapshot(_) => {}
        StreamFrame::Said(said) => writer.piece(&said.delta),
        StreamFrame::Waiting(_) => writer.comment("run.waiting_for_device"),
        StreamFrame::Closing => writer.comment("stream.closing"),
        StreamFrame::Event(told) => {
            let event: RunEvent = serde_json::from_str(&told.json).ok()?;
            let run = match writer.shows_run(event.kind) {
                true => Some(runs::read(&api.store, caller, event.run_id, Duration::ZERO).await.ok()?),
                false => None,
            };
            writer.event(&event, run.as_ref());
        }
    }
    Some(())
}
