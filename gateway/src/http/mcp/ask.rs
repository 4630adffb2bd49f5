//! From a call of a service's tool to its run.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Input;
use deskgate_protocol::service::Endpoint;
use serde_json::{Map, Value, json};

use super::answer::{self, Asked};
use super::message::{Era, Message};
use super::{Failure, told, tools};
use crate::domain::access::Caller;
use crate::domain::admission::{AdmittedRun, DEFAULT_DURATION_S, DEFAULT_QUEUE_TTL_S, RunRequest};
use crate::domain::body_quota::{MAX_BODY_BYTES, MAX_TEXT_BYTES};
use crate::domain::conversations::{self, OpenConversation};
use crate::domain::mcp_calls::OnClose;
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

/// The arguments of every service's tool, as JSON Schema.
pub(super) fn properties() -> Value {
    let name = |description: &str| json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS, "description": description });
    json!({
        "text": { "type": "string", "minLength": 1, "description": "The task, or the question." },
        "conversation": name("Same value = same conversation."),
        "request_id": name("Repeat it to get the same run instead of a second one."),
        "wait_seconds": wait_seconds(),
    })
}

/// The argument that says how long to wait, as JSON Schema.
pub(super) fn wait_seconds() -> Value {
    json!({
        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S, "default": DEFAULT_WAIT_S,
        "description": "How long to wait for the end. The work goes on behind it.",
    })
}

/// The arguments of a call, taken one by one.
pub(super) struct Arguments {
    members: Map<String, Value>,
    flaws: Vec<Flaw>,
}

impl Arguments {
    pub(super) fn of(message: &Message) -> Self {
        let (members, flaws) = match message.params.get("arguments") {
            None | Some(Value::Null) => (Map::new(), Vec::new()),
            Some(Value::Object(members)) => (members.clone(), Vec::new()),
            Some(_) => (Map::new(), vec![Flaw::new("/arguments", "wrong_type", "an object")]),
        };
        Self { members, flaws }
    }

    fn flaw(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        self.flaws.push(Flaw::new(format!("/arguments/{name}"), code, detail));
    }

    /// A text with so many characters at most, none of them a control character.
    pub(super) fn name(&mut self, name: &str, most: usize) -> Option<String> {
        match self.members.remove(name)? {
            Value::String(text) if (1..=most).contains(&text.chars().count()) && !text.contains(char::is_control) => {
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
        let seconds = match self.members.remove("wait_seconds") {
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
        match self.members.remove("run_id") {
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
        if takes_data && let Some(data) = self.members.remove("data") {
            more.insert("data".to_owned(), data);
        }
        match self.members.remove("text") {
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
        for name in std::mem::take(&mut self.members).keys().take(8) {
            self.flaw(&name.replace('~', "~0").replace('/', "~1"), "not_taken", "the tool has no such argument");
        }
        if self.flaws.is_empty() { Ok(()) } else { Err(message.invalid_params(&self.flaws).into()) }
    }
}

/// A call of a service's tool.
pub(super) async fn call(
    api: Arc<Api>,
    caller: Caller,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, Failure> {
    api.admits()?;
    caller.needs(Scope::RunsWrite)?;
    caller.needs(Scope::RunsRead)?;
    let name = message.text("name")?;
    let services = tools::services(&api, &caller).await?;
    let Some(service) = services.into_iter().find(|service| service.tool_name == name) else {
        let name: String = name.chars().filter(|letter| !letter.is_control()).take(80).collect();
        return Err(message.unknown(&format!("Unknown tool: {name}")).into());
    };
    let mut arguments = Arguments::of(&message);
    let (conversation, request_id) =
        (arguments.name("conversation", MAX_NAME_CHARS), arguments.name("request_id", MAX_NAME_CHARS));
    let wait = arguments.wait();
    let input = arguments.input(service.input_schema.is_some());
    arguments.done(&message)?;
    let Some((input, input_json)) = input else { return Err(Refusal::Internal.into()) };
    let on_close = on_close(headers, &message, request_id.is_some())?;
    // What is asked, without what only says which request it is, or how long to wait.
    let said = json!({ "service": service.id, "conversation": conversation, "input": input });
    let fingerprint = Sha256Digest::of_value(&said).map_err(|_| Refusal::Internal)?;
    let (idempotency_key, watch) = identity(&api, &caller, &message, request_id, fingerprint).await?;
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
        traceparent: caller::traceparent(headers),
        depth: caller::depth(headers)?,
    };
    let run = match admitted(&api, &caller, &service, conversation, request).await {
        Ok(admitted) => admitted.run,
        Err(error) => return refused(&message, error),
    };
    if let (Era::Handshake { session: Some(session) }, Some(number)) = (&message.era, &message.id) {
        api.mcp_calls.note(&caller, session, number, run.run_id).await?;
    }
    if message.era == (Era::Stateless { takes_tasks: true }) {
        return Ok(message.result(told::created_task(&run)));
    }
    let open = api.mcp_calls.begin(&caller, run.run_id, on_close);
    let asked = Asked { message, run_id: run.run_id, wait, last_seen_at: service.device.last_seen_at };
    let mut response = answer::answer(api, caller, headers, asked, Some(open)).await?;
    if let Some(watch) = watch {
        response.extensions_mut().insert(watch);
    }
    Ok(response)
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

/// The key of a call; and the call, if it has none of its own.
async fn identity(
    api: &Api,
    caller: &Caller,
    message: &Message,
    request_id: Option<String>,
    fingerprint: Sha256Digest,
) -> Result<(String, Option<Watch>), Refusal> {
    let tool_use = message.meta.get(TOOL_USE_KEY).and_then(Value::as_str).filter(|id| id.len() <= MAX_NAME_CHARS);
    match (request_id, tool_use, &message.era) {
        (Some(name), ..) => Ok((format!("mcp-request:{name}"), None)),
        (None, Some(name), _) => Ok((format!("mcp-tool-use:{name}"), None)),
        (None, None, Era::Handshake { .. }) => {
            let unkeyed = api.unkeyed.begin(caller, "POST mcp", fingerprint, false).await?;
            Ok((unkeyed.key().to_owned(), Some(Watch::of(unkeyed))))
        }
        (None, None, Era::Stateless { .. }) => Ok((format!("mcp-{}", uuid::Uuid::now_v7().simple()), None)),
    }
}

async fn admitted(
    api: &Api,
    caller: &Caller,
    service: &Endpoint,
    conversation: Option<String>,
    request: RunRequest,
) -> Result<AdmittedRun, Refusal> {
    let Some(conversation_key) = conversation else { return api.admission.admit(caller, request).await };
    caller.needs(Scope::ConversationsWrite)?;
    let wanted = OpenConversation {
        endpoint_id: service.id,
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
    let error = Error::from(refusal);
    match error.code() {
        Code::ConversationBusy
        | Code::GenerationMismatch
        | Code::QueueFull
        | Code::RateLimited
        | Code::IdempotencyKeyReused
        | Code::RunPurged => Ok(message.result(told::refused(&error))),
        Code::InvalidInput => Err(message.wrong_params(&error).into()),
        _ => Err(error.into()),
    }
}
