//! From a call of a service's tool to its run.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Input, Run};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::answer::{self, Asked};
use super::message::{Era, Message};
use super::{Failure, told};
use crate::domain::access::Caller;
use crate::domain::admission::{AdmittedRun, DEFAULT_DURATION_S, DEFAULT_QUEUE_TTL_S, RunRequest};
use crate::domain::body_quota::{MAX_BODY_BYTES, MAX_TEXT_BYTES};
use crate::domain::conversations::{self, OpenConversation};
use crate::domain::mcp_calls::{OnClose, OpenCall};
use crate::domain::refusal::{Flaw, Refusal};
use crate::http::error::Error;
use crate::http::problems::Code;
use crate::http::watched::Watch;
use crate::http::{Api, body, caller};

/// How long a call is waited for unless it says: less than the 60 seconds after which clients give up.
const DEFAULT_WAIT_S: u32 = 45;
/// How long it is waited for at most: less than the 300 seconds of clients that wait longest.
const MAX_WAIT_S: u32 = 280;
/// The most characters of a name that a caller gives to a conversation or a request.
const MAX_NAME_CHARS: usize = 255;
/// The most characters of the reason for a stop.
pub(super) const MAX_REASON_CHARS: usize = 120;

/// The identifier of the use of a tool for which Claude Code calls.
const TOOL_USE_KEY: &str = "claudecode/toolUseId";
/// What becomes of a run whose call is closed: `stop`, or it is absent.
const ON_DISCONNECT_HEADER: HeaderName = HeaderName::from_static("deskgate-on-disconnect");

/// The arguments of every service's tool, as JSON Schema. `talks`: the key may use conversations.
pub(super) fn properties(talks: bool) -> Value {
    let name = |description: &str| json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS, "description": description });
    let mut properties = json!({
        "text": { "type": "string", "minLength": 1, "description": "The task, or the question." },
        "request_id": name("Repeat it to get the same run instead of a second one."),
        "wait_seconds": wait_seconds(),
    });
    if talks {
        properties["conversation"] = name("Same value = same conversation.");
    }
    properties
}

/// The argument that says how long to wait, as JSON Schema.
pub(super) fn wait_seconds() -> Value {
    json!({
        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "default": DEFAULT_WAIT_S,
        "description": "How long to wait for the end. The work goes on behind it. Many clients give up after 60 seconds.",
    })
}

/// The arguments of a call, taken one by one.
pub(super) struct Arguments {
    members: Map<String, Value>,
    flaws: Vec<Flaw>,
}

impl Arguments {
    /// Takes them out of a call.
    pub(super) fn of(message: &mut Message) -> Result<Self, Failure> {
        match message.params.remove("arguments") {
            None | Some(Value::Null) => Ok(Self { members: Map::new(), flaws: Vec::new() }),
            Some(Value::Object(members)) => Ok(Self { members, flaws: Vec::new() }),
            Some(_) => Err(message.invalid_params(&[Flaw::new("/arguments", "wrong_type", "an object")]).into()),
        }
    }

    /// An argument that is there, and not null: models write null for what they do not choose.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    fn flaw(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        self.flaws.push(Flaw::new(format!("/arguments/{name}"), code, detail));
    }

    /// A text with so many characters at most, none of them a control character. An empty one is none.
    pub(super) fn name(&mut self, name: &str, most: usize) -> Option<String> {
        match self.take(name)? {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) if text.chars().count() <= most && !text.contains(char::is_control) => {
                return Some(text);
            }
            Value::String(_) => {
                self.flaw(name, "out_of_range", format!("1 to {most} characters, none of them a control character"));
            }
            _ => self.flaw(name, "wrong_type", "a string"),
        }
        None
    }

    /// How long to wait.
    pub(super) fn wait(&mut self) -> Duration {
        let seconds = match self.take("wait_seconds") {
            None => DEFAULT_WAIT_S,
            Some(value) => body::whole(&value).filter(|seconds| *seconds <= MAX_WAIT_S).unwrap_or_else(|| {
                self.flaw("wait_seconds", "out_of_range", format!("a whole number from 0 to {MAX_WAIT_S}"));
                0
            }),
        };
        Duration::from_secs(seconds.into())
    }

    /// The run that an earlier answer named.
    pub(super) fn run<T: std::str::FromStr>(&mut self) -> Option<T> {
        let detail = "the run_id of an earlier answer";
        match self.take("run_id") {
            Some(Value::String(text)) => {
                let run_id = text.parse().ok();
                if run_id.is_none() {
                    self.flaw("run_id", "out_of_range", detail);
                }
                return run_id;
            }
            Some(_) => self.flaw("run_id", "wrong_type", detail),
            None => self.flaw("run_id", "required", detail),
        }
        None
    }

    /// The input, and the same as JSON text.
    fn input(&mut self, takes_data: bool) -> Option<(Input, String)> {
        let mut more = Map::new();
        if takes_data && let Some(data) = self.take("data") {
            more.insert("data".to_owned(), data);
        }
        match self.take("text") {
            Some(Value::String(text)) if (1..=MAX_TEXT_BYTES).contains(&text.len()) => {
                let input = Input { text, more };
                if let Some(json) = serde_json::to_string(&input).ok().filter(|json| json.len() <= MAX_BODY_BYTES) {
                    return Some((input, json));
                }
                self.flaw("data", "out_of_range", format!("at most {MAX_BODY_BYTES} bytes, with the text"));
            }
            Some(Value::String(text)) => {
                let detail = format!("1 to {MAX_TEXT_BYTES} bytes of UTF-8; this has {}", text.len());
                self.flaw("text", "out_of_range", detail);
            }
            Some(_) => self.flaw("text", "wrong_type", "a string"),
            None => self.flaw("text", "required", "a string"),
        }
        None
    }

    /// Nothing is left, and nothing was wrong.
    pub(super) fn done(mut self, message: &Message) -> Result<(), Failure> {
        let left = std::mem::take(&mut self.members);
        for (name, _) in left.iter().filter(|(_, value)| !value.is_null()).take(8) {
            self.flaw(&name.replace('~', "~0").replace('/', "~1"), "not_taken", "the tool has no such argument");
        }
        if self.flaws.is_empty() { Ok(()) } else { Err(Failure::Told(message.result(told::wrong(&self.flaws)).into())) }
    }
}

/// A call of a service's tool.
pub(super) async fn call(
    api: Arc<Api>,
    caller: Caller,
    headers: &HeaderMap,
    mut message: Message,
) -> Result<Response, Failure> {
    api.admits()?;
    caller.needs(Scope::RunsWrite)?;
    caller.needs(Scope::RunsRead)?;
    let name = message.text("name")?;
    let found = api.store.endpoint_of_tool(caller.app_id(), name).await.map_err(Refusal::from)?;
    let Some(service) = found.filter(|service| caller.may_use(service.id)) else { return Err(unknown(&message)) };
    let mut arguments = Arguments::of(&mut message)?;
    let (conversation, request_id) =
        (arguments.name("conversation", MAX_NAME_CHARS), arguments.name("request_id", MAX_NAME_CHARS));
    let wait = arguments.wait();
    let input = arguments.input(service.input_schema.is_some());
    arguments.done(&message)?;
    let Some((input, input_json)) = input else { return Err(Refusal::Internal.into()) };
    // What is asked, without what only says which request it is, or how long to wait.
    let said = json!({ "service": service.id, "conversation": conversation, "input": input });
    let fingerprint = Sha256Digest::of_value(&said).map_err(|_| Refusal::Internal)?;
    drop(said);
    let name = own_name(&message, request_id);
    let on_close = on_close(headers, &message, name.is_some())?;
    let (traceparent, depth) = (traceparent(headers, &message), caller::depth(headers)?);
    let (idempotency_key, watch) = match (name, &message.era) {
        (Some(name), _) => (name, None),
        (None, Era::Handshake { .. }) => {
            let unkeyed = api.unkeyed.begin(&caller, "POST mcp", fingerprint, false).await?;
            (unkeyed.key().to_owned(), Some(unkeyed))
        }
        (None, Era::Stateless { .. }) => (format!("mcp-{}", uuid::Uuid::now_v7().simple()), None),
    };
    let request = RunRequest {
        endpoint_id: service.id,
        idempotency_key,
        fingerprint,
        input,
        input_json,
        files: Vec::new(),
        output: None,
        metadata: Default::default(),
        queue_ttl_s: DEFAULT_QUEUE_TTL_S,
        max_duration_s: DEFAULT_DURATION_S,
        traceparent,
        depth,
    };
    let given_key = watch.as_ref().map(|_| request.idempotency_key.clone());
    let (run, open) = match begun(&api, &caller, &message, on_close, given_key, conversation, request).await {
        Ok(begun) => begun,
        Err(refusal) => return refused(&message, refusal),
    };
    let mut response = match message.era {
        Era::Stateless { takes_tasks: true } => {
            let mut open = open;
            open.answered();
            message.result(told::created_task(&run))
        }
        _ => {
            let asked = Asked { message, run, wait, last_seen_at: service.device.last_seen_at };
            answer::answer(api, caller, headers, asked, Some(open)).await?
        }
    };
    if let Some(watch) = watch {
        response.extensions_mut().insert(Watch::of(watch));
    }
    Ok(response)
}

fn unknown(message: &Message) -> Failure {
    let name = message.params.get("name").and_then(Value::as_str).unwrap_or_default();
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(80).collect();
    message.unknown(&format!("Unknown tool: {name}")).into()
}

/// The name by which a call can come again: the Idempotency-Key of other calls.
fn own_name(message: &Message, request_id: Option<String>) -> Option<String> {
    let tool_use = message.meta.get(TOOL_USE_KEY).and_then(Value::as_str);
    let tool_use =
        tool_use.filter(|id| (1..=MAX_NAME_CHARS).contains(&id.len())).map(|id| format!("mcp-tool-use:{id}"));
    request_id.or(tool_use)
}

/// The caller's trace: of the header, or of the request itself.
fn traceparent(headers: &HeaderMap, message: &Message) -> Option<String> {
    let said = || message.meta.get("traceparent").and_then(Value::as_str).filter(|text| caller::is_traceparent(text));
    caller::traceparent(headers).or_else(|| said().map(str::to_owned))
}

/// The run of a call that begins to wait for it. To the end also if its client goes away meanwhile, so that it is known then what was
/// closed.
async fn begun(
    api: &Arc<Api>,
    caller: &Caller,
    message: &Message,
    on_close: OnClose,
    given_key: Option<String>,
    conversation: Option<String>,
    request: RunRequest,
) -> Result<(Run, OpenCall), Refusal> {
    let name = match (&message.era, &message.id) {
        (Era::Handshake { session: Some(session) }, Some(number)) => Some((session.clone(), number.clone())),
        _ => None,
    };
    let (api, caller) = (api.clone(), caller.clone());
    let begun = async move {
        let run = admitted(&api, &caller, conversation, request).await?.run;
        let open = api.mcp_calls.begin(&caller, run.run_id, on_close);
        if let Some((session, number)) = name {
            let noted = api.mcp_calls.note(&caller, (&session, &number), run.run_id, given_key.as_deref()).await;
            if let Err(refusal) = noted {
                tracing::warn!(run_id = %run.run_id, %refusal, "a call cannot be cancelled by its number");
            }
        }
        Ok((run, open))
    };
    tokio::spawn(begun.in_current_span()).await.unwrap_or(Err(Refusal::Internal))
}

/// What becomes of the run when its caller goes away. To close the answer is how a client of the newer era cancels; but one that can
/// come again by a name of its own may have lost its line.
fn on_close(headers: &HeaderMap, message: &Message, is_named: bool) -> Result<OnClose, Error> {
    match headers.get(ON_DISCONNECT_HEADER).map(|value| value.as_bytes()) {
        Some(b"stop") => Ok(OnClose::Stops),
        Some(_) => Err(Error::invalid_header(ON_DISCONNECT_HEADER.as_str(), "stop, or nothing")),
        None => match &message.era {
            Era::Stateless { .. } if !is_named => Ok(OnClose::StopsUnstarted),
            _ => Ok(OnClose::GoesOn),
        },
    }
}

async fn admitted(
    api: &Api,
    caller: &Caller,
    conversation: Option<String>,
    request: RunRequest,
) -> Result<AdmittedRun, Refusal> {
    let Some(conversation_key) = conversation else { return api.admission.admit(caller, request).await };
    caller.needs(Scope::ConversationsWrite)?;
    let wanted = OpenConversation {
        endpoint_id: request.endpoint_id,
        conversation_key,
        idempotency_key: request.idempotency_key.clone(),
        fingerprint: request.fingerprint,
    };
    let conversation = conversations::open(&api.store, caller, wanted).await?.conversation;
    let (id, generation) = (conversation.conversation_id, conversation.generation);
    api.admission.say(caller, id, generation, OnBusy::Reject, request).await
}

/// A call that made no run. What the model that called can do something about, it is told as the tool's answer.
fn refused(message: &Message, refusal: Refusal) -> Result<Response, Failure> {
    if let Refusal::Invalid(flaws) = refusal {
        let of_argument = |flaw: Flaw| Flaw { pointer: flaw.pointer.replacen("/input/", "/arguments/", 1), ..flaw };
        return Ok(message.result(told::wrong(&flaws.into_iter().map(of_argument).collect::<Vec<_>>())));
    }
    let error = Error::from(refusal);
    match error.code() {
        Code::ConversationBusy
        | Code::GenerationMismatch
        | Code::QueueFull
        | Code::RateLimited
        | Code::IdempotencyKeyReused
        | Code::RunPurged => Ok(message.result(told::refused(&error))),
        // Not published any more since it was looked for.
        Code::NotFound => Err(unknown(message)),
        _ => Err(error.into()),
    }
}
