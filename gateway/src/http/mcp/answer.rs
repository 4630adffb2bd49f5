//! An answer that waits for a run: as a stream that tells how it goes, or held back until it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Run;
use deskgate_protocol::{RunId, Timestamp};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ask::{Arguments, MAX_REASON_CHARS};
use super::message::Message;
use super::{Failure, told};
use crate::domain::access::Caller;
use crate::domain::events::{EventStream, StreamFrame};
use crate::domain::mcp_calls::OpenCall;
use crate::domain::operations::{self, RequestIdentity, StopRequest};
use crate::domain::refusal::Refusal;
use crate::domain::runs;
use crate::http::Api;
use crate::http::accept::{self, EventFormat};
use crate::http::error::Error;
use crate::http::events::STREAM_HEADERS;
use crate::http::held::{Waited, Waiting};

/// The longest pause between two signs of life: some clients give up after 30 seconds without one.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(10);

/// What is asked of an answer.
pub(super) struct Asked {
    pub(super) message: Message,
    pub(super) run_id: RunId,
    /// How long it may wait.
    pub(super) wait: Duration,
    /// When the run's computer was last heard of.
    pub(super) last_seen_at: Option<Timestamp>,
}

/// A call of the tool that waits for a run.
pub(super) async fn read(
    api: Arc<Api>,
    caller: Caller,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, Failure> {
    caller.needs(Scope::RunsRead)?;
    let mut arguments = Arguments::of(&message);
    let (run_id, wait) = (arguments.run(), arguments.wait());
    arguments.done(&message)?;
    let run_id: RunId = run_id.ok_or(Refusal::Internal)?;
    match runs::read(&api.store, &caller, run_id, Duration::ZERO).await {
        Ok(_) => answer(api, caller, headers, Asked { message, run_id, wait, last_seen_at: None }, None).await,
        Err(refusal) => not_there(&message, refusal),
    }
}

/// A call of the tool that stops a run.
pub(super) async fn stop(api: Arc<Api>, caller: Caller, message: Message) -> Result<Response, Failure> {
    caller.needs(Scope::RunsControl)?;
    caller.needs(Scope::RunsRead)?;
    let mut arguments = Arguments::of(&message);
    let (run_id, reason) = (arguments.run(), arguments.name("reason", MAX_REASON_CHARS));
    arguments.done(&message)?;
    let run_id: RunId = run_id.ok_or(Refusal::Internal)?;
    let request = RequestIdentity {
        idempotency_key: format!("mcp-stop-{}", uuid::Uuid::now_v7().simple()),
        fingerprint: deskgate_protocol::canonical::Sha256Digest::of(b"{}"),
    };
    let stop = StopRequest { expected_attempt: None, reason };
    let stopped = operations::stop(&api.store, &caller, run_id, stop, request, api.limits.retention).await;
    let read = match stopped {
        Ok(_) => runs::read(&api.store, &caller, run_id, Duration::ZERO).await,
        Err(refusal) => Err(refusal),
    };
    match read {
        Ok(run) => {
            // That it was stopped is what was asked for.
            let mut result = told::result(&run);
            result["isError"] = json!(false);
            Ok(message.result(result))
        }
        Err(refusal) => not_there(&message, refusal),
    }
}

/// A run that is not there: the model that named it is told.
fn not_there(message: &Message, refusal: Refusal) -> Result<Response, Failure> {
    match refusal {
        Refusal::NotFound | Refusal::RunPurged => Ok(message.result(told::refused(&refusal.into()))),
        other => Err(other.into()),
    }
}

/// The answer to a call whose run is there. `open`: the call, if it made the run.
pub(super) async fn answer(
    api: Arc<Api>,
    caller: Caller,
    headers: &HeaderMap,
    asked: Asked,
    mut open: Option<OpenCall>,
) -> Result<Response, Failure> {
    let stream = match accept::form(headers) {
        _ if asked.wait.is_zero() => None,
        Some(EventFormat::Stream) => api.streams.open(&caller, asked.run_id, 0).await.ok().flatten(),
        _ => None,
    };
    if let Some(stream) = stream {
        let ends_at = Instant::now() + asked.wait;
        let telling = Telling {
            api,
            caller,
            asked,
            open,
            stream,
            ends_at,
            words: "accepted".to_owned(),
            told: 0,
            is_over: false,
        };
        let pieces = unfold(Box::new(telling), async |mut telling| {
            let piece = telling.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), telling))
        });
        return Ok((STREAM_HEADERS, Body::from_stream(pieces)).into_response());
    }
    let waiting = Waiting::for_end(api, caller, asked.run_id);
    let run = loop {
        match waiting.next(asked.wait, asked.wait).await? {
            Waited::Ended(run) | Waited::Over(run) => break run,
            Waited::Going => {}
        }
    };
    if let Some(open) = &mut open {
        open.answered();
    }
    let mut response = asked.message.result(told::result(&run));
    response.extensions_mut().insert(waiting.elapsed());
    Ok(response)
}

/// An answer that tells how its run goes until it ends, or its time is over.
struct Telling {
    api: Arc<Api>,
    caller: Caller,
    asked: Asked,
    /// Dropped with the answer: then the call was closed, unless it was answered.
    open: Option<OpenCall>,
    stream: EventStream,
    ends_at: Instant,
    /// How it stands.
    words: String,
    /// How often that was told.
    told: u64,
    is_over: bool,
}

impl Telling {
    /// The next piece of the answer; `None`: it is complete.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            let left = self.ends_at.saturating_duration_since(Instant::now());
            match timeout(left.min(SIGN_OF_LIFE_INTERVAL), self.stream.next()).await {
                Ok(Some(StreamFrame::Event(event))) if !event.kind.is_final() => {
                    let Some(words) = told::words(event.kind) else { continue };
                    self.words = words.to_owned();
                }
                Ok(Some(StreamFrame::Waiting(reason))) => self.words = told::waiting(&reason, self.asked.last_seen_at),
                Ok(Some(StreamFrame::Snapshot(run))) => match &run.state_reason {
                    Some(reason) => self.words = told::waiting(reason, self.asked.last_seen_at),
                    None => continue,
                },
                Ok(Some(StreamFrame::Said(_))) => continue,
                Err(_) if left > SIGN_OF_LIFE_INTERVAL => {}
                Ok(Some(StreamFrame::Event(_) | StreamFrame::Closing) | None) | Err(_) => {
                    return Some(self.last().await);
                }
            }
            if let Some(sign) = self.sign() {
                return Some(sign);
            }
        }
    }

    /// How it stands, for a client that wants to be told; for others a comment that shows that it goes on.
    fn sign(&mut self) -> Option<String> {
        self.told += 1;
        let Some(token) = self.asked.message.progress_token() else { return Some(": it goes on\n\n".to_owned()) };
        let params = json!({ "progressToken": token, "progress": self.told, "message": self.words });
        Some(event(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })))
    }

    /// The end of the answer: the run as it is now.
    async fn last(&mut self) -> String {
        self.is_over = true;
        let run = runs::read(&self.api.store, &self.caller, self.asked.run_id, Duration::ZERO).await;
        if let Some(open) = &mut self.open {
            open.answered();
        }
        event(&self.body(run))
    }

    fn body(&self, run: Result<Run, Refusal>) -> Value {
        match run {
            Ok(run) => self.asked.message.result_body(told::result(&run)),
            Err(refusal) => self.asked.message.broken(&Error::from(refusal)).body(),
        }
    }
}

fn event(data: &Value) -> String {
    format!("event: message\ndata: {data}\n\n")
}
