//! The call of the Chat Completions API.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{FinishReason, Run, RunEvent, RunState, Usage};
use serde_json::{Value, json};

use super::error::of_run;
use super::request::{self, Kind};
use super::response::{last_text, message_text};
use super::run_stream::{RunWriter, followed};
use super::{RunHeaders, admit};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::refusal::Refusal;
use crate::http::Api;
use crate::http::error::Error;
use crate::http::held::{Waited, Waiting};
use crate::http::request_body::{ReceivedRequest, RequestBody};

/// How long an answer is held back at most: Node's `fetch` gives up after 300 seconds without a head.
const MAX_HELD_TIME: Duration = Duration::from_secs(280);

/// `POST /openai/v1/chat/completions`
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::RunsWrite, Scope::RunsRead])?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let asked = request::read(&mut incoming, Kind::Chat).await?;
    drop(incoming);
    let (admitted, watch) = admit::admit(&api, &caller, &headers, &asked, Kind::Chat).await?;
    let run = admitted.run;
    let about = RunHeaders { run_id: run.run_id, replayed: admitted.replayed, ignored: asked.ignored, watch };
    if asked.stream {
        // Refused, the request was not answered: its repetition finds the run.
        let stream = api.streams.open(&caller, run.run_id, 0).await?.ok_or(Refusal::NotFound)?;
        let chunks = Chunks::new(run, asked.includes_usage);
        return Ok(about.write(followed(api, caller, stream, chunks)));
    }
    let waiting = Waiting::for_end(api, caller, run.run_id);
    let mut response = match waiting.next(MAX_HELD_TIME, MAX_HELD_TIME).await? {
        Waited::Ended(run) => match completion(&run) {
            Ok(body) => Json(body).into_response(),
            Err(error) => error.into_response(),
        },
        Waited::Going | Waited::Over(_) => Error::run_still_going(run.run_id).into_response(),
    };
    response.extensions_mut().insert(waiting.elapsed());
    Ok(about.write(response))
}

/// The run that has ended, as a completion.
fn completion(run: &Run) -> Result<Value, Error> {
    let Some((text, finish_reason)) = answer(run) else { return Err(Error::run_unsuccessful(run)) };
    let message = json!({ "role": "assistant", "content": text, "refusal": null, "annotations": [] });
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason });
    let mut body = json!({ "object": "chat.completion", "choices": [choice], "usage": run.usage.as_ref().map(usage) });
    write_head(&mut body, run);
    Ok(body)
}

/// The text of a run that succeeded, and why it ends there.
fn answer(run: &Run) -> Option<(String, &'static str)> {
    let result = run.result.as_ref().filter(|_| run.state == RunState::Succeeded)?;
    let reason = match result.finish_reason {
        FinishReason::Completed => "stop",
        FinishReason::Length => "length",
    };
    Some((result.data.as_deref().map_or_else(|| result.text.clone(), Value::to_string), reason))
}

fn write_head(body: &mut Value, run: &Run) {
    body["id"] = json!(format!("chatcmpl-{}", run.run_id.uuid().simple()));
    body["created"] = json!(run.created_at.0.as_second());
    body["model"] = json!(run.endpoint_id);
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": { "cached_tokens": usage.cached_input_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// Makes a chat's chunks of a run's events.
struct Chunks {
    run: Run,
    includes_usage: bool,
    /// The text of the present message that was sent.
    sent: String,
    /// Whether the present message is sent only once it is complete.
    is_silent: bool,
    /// The last complete message.
    last: Option<String>,
    has_ended: bool,
    out: String,
}

impl Chunks {
    fn new(run: Run, includes_usage: bool) -> Self {
        let mut chunks = Self {
            run,
            includes_usage,
            sent: String::new(),
            is_silent: false,
            last: None,
            has_ended: false,
            out: String::new(),
        };
        chunks.choice(json!({ "role": "assistant", "content": "" }), None);
        chunks
    }

    fn choice(&mut self, delta: Value, finish_reason: Option<&str>) {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.chunk(json!([choice]), None);
    }

    fn chunk(&mut self, choices: Value, usage: Option<Value>) {
        let mut body = json!({ "object": "chat.completion.chunk", "choices": choices });
        write_head(&mut body, &self.run);
        if self.includes_usage {
            body["usage"] = usage.unwrap_or_default();
        }
        self.data(&body);
    }

    fn data(&mut self, data: &Value) {
        let _ = write!(self.out, "data: {data}\n\n");
    }

    fn text(&mut self, text: &str) {
        // Messages of one run are paragraphs of one answer.
        if self.sent.is_empty() && self.last.is_some() {
            self.choice(json!({ "content": "\n\n" }), None);
        }
        self.choice(json!({ "content": text }), None);
        self.sent.push_str(text);
    }

    fn complete(&mut self, whole: String) {
        match whole.strip_prefix(self.sent.as_str()) {
            Some("") => {}
            Some(rest) => self.text(rest),
            // The model began anew, and what was sent cannot be taken back: the whole follows it.
            None => {
                self.choice(json!({ "content": "\n\n" }), None);
                self.choice(json!({ "content": whole }), None);
            }
        }
        (self.sent, self.is_silent, self.last) = (String::new(), false, Some(whole));
    }

    /// The end, with what no message had.
    fn end(&mut self, run: &Run) {
        self.has_ended = true;
        match answer(run) {
            Some((_, reason)) => {
                match last_text(run, self.last.as_deref()) {
                    // The rest of a message is no paragraph of its own.
                    Some(text) if run.output.is_none() && self.last.is_some() => {
                        self.choice(json!({ "content": text }), None)
                    }
                    Some(text) => self.text(&text),
                    None => {}
                }
                self.choice(json!({}), Some(reason));
                if self.includes_usage {
                    self.chunk(json!([]), run.usage.as_ref().map(usage));
                }
                self.out.push_str("data: [DONE]\n\n");
            }
            None => {
                let mut error = of_run(run.state, run.error.as_ref()).unwrap_or_default();
                error["param"] = Value::Null;
                self.data(&json!({ "error": error }));
            }
        }
    }
}

impl RunWriter for Chunks {
    fn event(&mut self, event: &RunEvent, run: Option<&Run>) {
        match (run, message_text(event)) {
            (Some(run), _) => self.end(run),
            // Of a run with data only the data is told.
            (None, Some(text)) if self.run.output.is_none() => self.complete(text),
            (None, _) => self.comment(event.kind.as_str()),
        }
    }

    fn piece(&mut self, delta: &MessageDelta) {
        // What was sent cannot be taken back.
        self.is_silent |= delta.offset != self.sent.chars().count() as u64;
        if !self.is_silent && !delta.text.is_empty() && self.run.output.is_none() {
            self.text(&delta.text);
        }
    }

    fn out(&mut self) -> &mut String {
        &mut self.out
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
