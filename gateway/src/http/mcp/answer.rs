//! An answer that waits for a run: as a stream that tells how it goes, or held back until it has ended.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Phase, Run};
use deskgate_protocol::{RunId, Timestamp};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::ask::{Arguments, MAX_REASON_CHARS};
use super::message::Message;
use super::{Failure, told};
use crate::domain::access::Caller;
use crate::domain::events::{EventStream, StreamFrame};
use crate::domain::mcp_calls::OpenCall;
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
    /// The run as it was read.
    pub(super) run: Run,
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
    mut message: Message,
) -> Result<Response, Failure> {
    caller.needs(Scope::RunsRead)?;
    let mut arguments = Arguments::of(&mut message)?;
    let (run_id, wait) = (arguments.run(), arguments.wait());
    arguments.done(&message)?;
    let run_id: RunId = run_id.ok_or(Refusal::Internal)?;
    match runs::read(&api.store, &caller, run_id, Duration::ZERO).await {
        Ok(run) => answer(api, caller, headers, Asked { message, run, wait, last_seen_at: None }, None).await,
        Err(refusal) => not_there(&message, refusal),
    }
}

/// A call of the tool that stops a run.
pub(super) async fn stop(api: Arc<Api>, caller: Caller, mut message: Message) -> Result<Response, Failure> {
    caller.needs(Scope::RunsControl)?;
    caller.needs(Scope::RunsRead)?;
    let mut arguments = Arguments::of(&mut message)?;
    let (run_id, reason) = (arguments.run(), arguments.name("reason", MAX_REASON_CHARS));
    arguments.done(&message)?;
    let run_id: RunId = run_id.ok_or(Refusal::Internal)?;
    let stopped = match api.mcp_calls.stop(&caller, run_id, None, reason).await {
        Ok(()) => runs::read(&api.store, &caller, run_id, Duration::ZERO).await,
        Err(refusal) => Err(refusal),
    };
    match stopped {
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
        Refusal::NotFound | Refusal::RunPurged | Refusal::RateLimited => {
            Ok(message.result(told::refused(&refusal.into())))
        }
        other => Err(other.into()),
    }
}

/// The answer to a call whose run is there. `open`: the call, if its run may end with it.
pub(super) async fn answer(
    api: Arc<Api>,
    caller: Caller,
    headers: &HeaderMap,
    asked: Asked,
    mut open: Option<OpenCall>,
) -> Result<Response, Failure> {
    let Asked { message, run, wait, last_seen_at } = asked;
    let (message, run_id) = (message.without_params(), run.run_id);
    let stream = match accept::form(headers) {
        _ if wait.is_zero() || run.phase == Phase::Final => None,
        // What happened before is no news.
        Some(EventFormat::Stream) => api.streams.open(&caller, run_id, run.last_sequence).await.ok().flatten(),
        _ => None,
    };
    if let Some(stream) = stream {
        let (now, words) = (Instant::now(), told::standing(&run, last_seen_at));
        let telling = Telling {
            api,
            caller,
            message,
            last_seen_at,
            open,
            stream,
            ends_at: now + wait,
            next_sign_at: now,
            words,
            told: 0,
            is_over: false,
        };
        let pieces = unfold(Box::new(telling), async |mut telling| {
            let piece = telling.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), telling))
        });
        return Ok((STREAM_HEADERS, Body::from_stream(pieces)).into_response());
    }
    let waiting = Waiting::for_end(api, caller, run_id);
    let run = loop {
        match waiting.next(wait, wait).await? {
            Waited::Ended(run) | Waited::Over(run) => break run,
            Waited::Going => {}
        }
    };
    if let Some(open) = &mut open {
        open.answered();
    }
    let mut response = message.result(told::result(&run));
    response.extensions_mut().insert(waiting.elapsed());
    Ok(response)
}

/// An answer that tells how its run goes until it ends, or its time is over.
struct Telling {
    api: Arc<Api>,
    caller: Caller,
    message: Message,
    last_seen_at: Option<Timestamp>,
    /// Dropped with the answer: then the call was closed, unless it was answered.
    open: Option<OpenCall>,
    stream: EventStream,
    ends_at: Instant,
    next_sign_at: Instant,
    /// How it stands.
    words: String,
    /// How often that was told.
    told: u64,
    is_over: bool,
}

impl Telling {
    /// The next piece of the answer; `None`: it is complete.
    async fn next(&mut self) -> Option<String> {
        loop {
            let now = Instant::now();
            if self.is_over {
                return None;
            } else if now >= self.ends_at {
                return Some(self.last().await);
            } else if now >= self.next_sign_at {
                return Some(self.sign());
            }
            let words = match timeout_at(self.ends_at.min(self.next_sign_at).into(), self.stream.next()).await {
                Err(_) => continue,
                Ok(Some(StreamFrame::Event(event))) if !event.kind.is_final() => {
                    told::words(event.kind).map(str::to_owned)
                }
                Ok(Some(StreamFrame::Waiting(reason))) => Some(told::waiting(&reason, self.last_seen_at)),
                Ok(Some(StreamFrame::Snapshot(run))) => Some(told::standing(&run, self.last_seen_at)),
                Ok(Some(StreamFrame::Said(_))) => None,
                Ok(Some(StreamFrame::Event(_) | StreamFrame::Closing)) => return Some(self.last().await),
                // The key ended, or the tables cannot be read.
                Ok(None) => return Some(self.end(Err(Refusal::StoreUnavailable))),
            };
            if let Some(words) = words.filter(|words| *words != self.words) {
                self.words = words;
                return Some(self.sign());
            }
        }
    }

    /// How it stands, for a client that wants to be told; for others a comment that shows that it goes on.
    fn sign(&mut self) -> String {
        self.told += 1;
        self.next_sign_at = Instant::now() + SIGN_OF_LIFE_INTERVAL;
        let Some(token) = self.message.progress_token() else { return ": it goes on\n\n".to_owned() };
        let params = json!({ "progressToken": token, "progress": self.told, "message": self.words });
        event(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    }

    /// The end of the answer: the run as it is now.
    async fn last(&mut self) -> String {
        let run = runs::read(&self.api.store, &self.caller, self.stream.run_id(), Duration::ZERO).await;
        self.end(run)
    }

    fn end(&mut self, run: Result<Run, Refusal>) -> String {
        self.is_over = true;
        if let Some(open) = &mut self.open {
            open.answered();
        }
        event(&match run {
            Ok(run) => self.message.result_body(told::result(&run)),
            Err(refusal) => self.message.broken(&Error::from(refusal)).body(),
        })
    }
}

fn event(data: &Value) -> String {
    format!("event: message\ndata: {data}\n\n")
}
