//! What a request asks for: its turns, and which of its parameters are taken, ignored or refused.
//!
//! What a caller writes as instructions, and what was said before, is content like the rest: the assistant is shown it as
//! such. Its own instructions are its owner's, on the desktop.

use std::collections::BTreeMap;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::run::{Input, Output};
use deskgate_protocol::{ConversationId, FileId, RunId};
use serde_json::{Map, Value, json};

use super::run_of;
use crate::domain::body_quota::{MAX_BODY_BYTES, MAX_TEXT_BYTES};
use crate::domain::refusal::{Flaw, Refusal};
use crate::http::body;
use crate::http::error::Error;
use crate::http::request_body::RequestBody;

/// Parameters of a model that a published service does not have: its owner chose them.
const IGNORED_PARAMETERS: [&str; 26] = [
    "temperature",
    "top_p",
    "max_output_tokens",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "reasoning",
    "reasoning_effort",
    "verbosity",
    "truncation",
    "context_management",
    "include",
    "parallel_tool_calls",
    "max_tool_calls",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "prediction",
    "top_logprobs",
];
/// Parameters that change what comes back, so that they are not ignored, with the values that change nothing.
const REFUSED_PARAMETERS: [(&str, &[&str]); 11] = [
    ("tools", &["[]", "null"]),
    ("tool_choice", &["\"none\"", "\"auto\"", "null"]),
    ("functions", &["[]", "null"]),
    ("function_call", &["\"none\"", "\"auto\"", "null"]),
    ("n", &["1", "null"]),
    ("logprobs", &["false", "null"]),
    ("modalities", &["[\"text\"]", "null"]),
    ("audio", &["null"]),
    ("prompt", &["null"]),
    ("moderation", &["null"]),
    ("web_search_options", &["null"]),
];
const COMMON_PARAMETERS: [&str; 6] = ["model", "stream", "stream_options", "store", "metadata", "on_busy"];
const RESPONSE_PARAMETERS: [&str; 6] =
    ["input", "instructions", "background", "conversation", "previous_response_id", "text"];
const CHAT_PARAMETERS: [&str; 2] = ["messages", "response_format"];

/// Which of the two calls a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Response,
    Chat,
}

/// Where a response goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// In a conversation.
    Conversation(ConversationId),
    /// Behind a response, which must be the newest of its conversation.
    Response(RunId),
}

/// Who said a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
    /// `system` and `developer`.
    Instructions,
}

/// One turn of the input.
#[derive(Debug)]
enum Turn {
    Said(Role, String),
    /// Of the assistant, by the run that gave it.
    Reference(RunId),
}

/// A request, read and checked as far as it can be without the tables.
#[derive(Debug)]
pub(super) struct OpenAiRequest {
    /// The digest of the whole body.
    pub(super) fingerprint: Sha256Digest,
    /// The service, by identifier or name.
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether the usage is asked for as a chunk of a chat's stream.
    pub(super) includes_usage: bool,
    pub(super) background: bool,
    pub(super) store: bool,
    pub(super) continuation: Option<Continuation>,
    pub(super) on_busy: OnBusy,
    pub(super) output: Option<Output>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) files: Vec<FileId>,
    /// The parameters that are ignored.
    pub(super) ignored: Vec<&'static str>,
    instructions: Vec<String>,
    turns: Vec<Turn>,
}

/// Reads a request.
///
/// # Errors
/// The body is no JSON object within the limits, has a parameter that is not known or not taken, or one that is wrong.
pub(super) async fn read(incoming: &mut RequestBody<'_>, kind: Kind) -> Result<OpenAiRequest, Error> {
    let own: &[&str] = match kind {
        Kind::Response => &RESPONSE_PARAMETERS,
        Kind::Chat => &CHAT_PARAMETERS,
    };
    let refused = REFUSED_PARAMETERS.map(|(name, _)| name);
    let known = [&COMMON_PARAMETERS[..], own, &IGNORED_PARAMETERS, &refused].concat();
    let (fingerprint, members) = incoming.members(&known).await?;
    let mut reader = Reader { members, flaws: Vec::new(), files: Vec::new() };
    let request = reader.request(fingerprint, kind);
    match reader.flaws.is_empty() {
        true => Ok(request),
        false => Err(Refusal::Invalid(reader.flaws).into()),
    }
}

impl OpenAiRequest {
    /// The runs that the input refers to instead of repeating what they said.
    pub(super) fn references(&self) -> impl Iterator<Item = RunId> {
        self.turns.iter().filter_map(|turn| match turn {
            Turn::Reference(run_id) => Some(*run_id),
            Turn::Said(..) => None,
        })
    }

    /// The input of the run. `answers`: what the runs said that it refers to. Of one that goes on in a conversation, the device
    /// knows what was said before.
    ///
    /// # Errors
    /// It has no turn of a user at its end, or is too long.
    pub(super) fn input(&self, answers: &BTreeMap<RunId, String>, kind: Kind) -> Result<(Input, String), Refusal> {
        let pointer = if kind == Kind::Response { "/input" } else { "/messages" };
        let flaw = |code: &'static str, detail: String| Refusal::Invalid(vec![Flaw::new(pointer, code, detail)]);
        let mut turns: Vec<&Turn> = self.turns.iter().collect();
        // A run's messages are one turn of it.
        turns.dedup_by(
            |one, other| matches!((one, other), (Turn::Reference(one), Turn::Reference(other)) if one == other),
        );
        let said: Vec<(Role, &str)> = turns
            .into_iter()
            .filter_map(|turn| match turn {
                Turn::Said(role, text) => Some((*role, text.as_str())),
                Turn::Reference(run_id) => answers.get(run_id).map(|text| (Role::Assistant, text.as_str())),
            })
            .collect();
        let bytes = said.iter().map(|(_, text)| text.len()).fold(0, usize::saturating_add);
        if bytes > MAX_BODY_BYTES {
            return Err(flaw("out_of_range", format!("at most {MAX_BODY_BYTES} bytes with what its items refer to")));
        }
        let last = said.iter().rposition(|(role, _)| *role != Role::User).map_or(0, |place| place + 1);
        let (before, asked) = said.split_at(last);
        let text = asked.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n\n");
        if text.is_empty() {
            return Err(flaw("required", "its last message is of the role \"user\" and has a text".to_owned()));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(flaw("out_of_range", format!("at most {MAX_TEXT_BYTES} bytes since the last answer")));
        }
        let mut more = Map::new();
        if !before.is_empty() && self.continuation.is_none() {
            let turn = |(role, text): &(Role, &str)| json!({ "role": if *role == Role::User { "user" } else { "assistant" }, "text": text });
            more.insert("transcript".to_owned(), before.iter().map(turn).collect());
        }
        if !self.instructions.is_empty() {
            more.insert("caller_instructions".to_owned(), self.instructions.join("\n\n").into());
        }
        if !self.files.is_empty() {
            let files = self.files.iter().map(|file_id| json!({ "file_id": file_id }));
            more.insert("files".to_owned(), files.collect());
        }
        let input = Input { text, more };
        let written = serde_json::to_string(&input).map_err(|_| Refusal::Internal)?;
        if written.len() > MAX_BODY_BYTES {
            return Err(flaw("out_of_range", format!("at most {MAX_BODY_BYTES} bytes when it is written out")));
        }
        Ok((input, written))
    }
}

/// How many flaws are named. Nobody reads more.
const MAX_FLAWS: usize = 32;

struct Reader {
    members: Map<String, Value>,
    flaws: Vec<Flaw>,
    files: Vec<FileId>,
}

impl Reader {
    fn request(&mut self, fingerprint: Sha256Digest, kind: Kind) -> OpenAiRequest {
        let ignored = IGNORED_PARAMETERS.into_iter().filter(|name| self.take(name).is_some()).collect();
        for (name, harmless) in REFUSED_PARAMETERS {
            if self.take(name).is_some_and(|value| !harmless.contains(&value.to_string().as_str())) {
                let detail = "the service's owner chose its tools and its model";
                self.flaw(&format!("/{name}"), "not_taken", detail);
            }
        }
        let model = match self.take("model") {
            Some(Value::String(name)) if !name.is_empty() => name,
            other => {
                let code = if other.is_some() { "wrong_type" } else { "required" };
                self.flaw("/model", code, "the identifier or the name of a service, as /openai/v1/models lists them");
                String::new()
            }
        };
        let includes_usage = self.take("stream_options").is_some_and(|options| options["include_usage"] == true);
        let (stream, background) = (self.flag("stream", false), self.flag("background", false));
        let store = self.flag("store", kind == Kind::Response);
        let on_busy = body::on_busy(self.take("on_busy"), &mut self.flaws);
        let metadata = body::metadata(self.take("metadata"), &mut self.flaws);
        let continuation = self.continuation();
        let (name, pointer) = match kind {
            Kind::Response => ("text", "/text/format"),
            Kind::Chat => ("response_format", "/response_format"),
        };
        let format = self.take(name).map(|value| if kind == Kind::Response { value["format"].clone() } else { value });
        let output = format.and_then(|format| self.output(format, pointer));
        let (mut instructions, mut turns) = (Vec::new(), Vec::new());
        if let Some(value) = self.take("instructions") {
            match value {
                Value::String(text) => instructions.push(text),
                _ => self.flaw("/instructions", "wrong_type", "a string"),
            }
        }
        let said = match kind {
            Kind::Response => self.turns("input"),
            Kind::Chat => self.turns("messages"),
        };
        for turn in said {
            match turn {
                Turn::Said(Role::Instructions, text) => instructions.push(text),
                turn => turns.push(turn),
            }
        }
        OpenAiRequest {
            fingerprint,
            model,
            stream,
            includes_usage,
            background,
            store,
            continuation,
            on_busy,
            output,
            metadata,
            files: std::mem::take(&mut self.files),
            ignored,
            instructions,
            turns,
        }
    }

    /// A member that is there, and not null: SDKs write null for what was not chosen.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    fn flaw(&mut self, pointer: &str, code: &'static str, detail: &str) {
        if self.flaws.len() < MAX_FLAWS {
            self.flaws.push(Flaw::new(pointer, code, detail));
        }
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.take(name) {
            None => default,
            Some(Value::Bool(chosen)) => chosen,
            Some(_) => {
                self.flaw(&format!("/{name}"), "wrong_type", "true or false");
                default
            }
        }
    }

    fn continuation(&mut self) -> Option<Continuation> {
        let conversation = self.take("conversation").map(|value| match value {
            Value::Object(mut members) => members.remove("id").unwrap_or_default(),
            value => value,
        });
        let previous = self.take("previous_response_id");
        match (conversation, previous) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                self.flaw("/conversation", "not_taken", "previous_response_id says already where to go on");
                None
            }
            (Some(id), None) => {
                let found = id.as_str().and_then(|id| id.parse().ok()).map(Continuation::Conversation);
                if found.is_none() {
                    self.flaw(
                        "/conversation",
                        "out_of_range",
                        "the identifier of a conversation, as a response has it",
                    );
                }
                found
            }
            (None, Some(id)) => {
                let found = id.as_str().and_then(run_of).map(Continuation::Response);
                if found.is_none() {
                    self.flaw("/previous_response_id", "out_of_range", "the identifier of a response");
                }
                found
            }
        }
    }

    /// The data that is asked for.
    fn output(&mut self, format: Value, pointer: &str) -> Option<Output> {
        // The chat's form has its own members one level below.
        let inner = format.get("json_schema").unwrap_or(&format);
        match format["type"].as_str() {
            Some("text") | None if format.is_null() || format["type"] == "text" => None,
            Some("json_object") => Some(Output { name: "object".to_owned(), schema: json!({ "type": "object" }) }),
            Some("json_schema") => {
                let mut schema = inner["schema"].clone();
                // Libraries name an older draft, and write nothing that means another thing in ours.
                if let Value::Object(members) = &mut schema {
                    members.remove("$schema");
                }
                let output = json!({ "name": inner["name"], "schema": schema });
                let mut flaws = Vec::new();
                let output = body::output(Some(output), &mut flaws);
                let moved = flaws
                    .into_iter()
                    .map(|flaw| Flaw { pointer: flaw.pointer.replacen("/output", pointer, 1), ..flaw });
                self.flaws.extend(moved);
                output
            }
            _ => {
                self.flaw(pointer, "wrong_type", "of the type text, json_schema or json_object");
                None
            }
        }
    }

    fn turns(&mut self, name: &str) -> Vec<Turn> {
        let pointer = format!("/{name}");
        match self.take(name) {
            Some(Value::String(text)) if name == "input" => vec![Turn::Said(Role::User, text)],
            Some(Value::Array(items)) => items
                .into_iter()
                .enumerate()
                .filter_map(|(place, item)| self.turn(item, &format!("{pointer}/{place}")))
                .collect(),
            other => {
                let code = if other.is_some() { "wrong_type" } else { "required" };
                self.flaw(
                    &pointer,
                    code,
                    if name == "input" { "a text, or a list of messages" } else { "a list of messages" },
                );
                Vec::new()
            }
        }
    }

    fn turn(&mut self, item: Value, pointer: &str) -> Option<Turn> {
        match item["type"].as_str() {
            // A message may leave it out.
            None | Some("message") => {}
            // What a model thought is its own.
            Some("reasoning") => return None,
            Some("item_reference") => {
                let run_id = item["id"].as_str().and_then(run_of);
                if run_id.is_none() {
                    self.flaw(&format!("{pointer}/id"), "out_of_range", "the identifier of a message of a response");
                }
                return run_id.map(Turn::Reference);
            }
            Some(_) => {
                self.flaw(&format!("{pointer}/type"), "wrong_type", "that of a message");
                return None;
            }
        }
        let role = match item["role"].as_str() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::Instructions,
            _ => {
                self.flaw(&format!("{pointer}/role"), "wrong_type", "user, assistant, system or developer");
                return None;
            }
        };
        let text = match &item["content"] {
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                let texts = parts
                    .iter()
                    .enumerate()
                    .filter_map(|(place, part)| self.part(part, &format!("{pointer}/content/{place}")));
                texts.collect::<Vec<_>>().join("\n")
            }
            // An assistant that only called tools said nothing.
            Value::Null if role == Role::Assistant => return None,
            _ => {
                self.flaw(&format!("{pointer}/content"), "wrong_type", "a text, or a list of parts");
                return None;
            }
        };
        Some(Turn::Said(role, text))
    }

    /// The text of a part of a message. A file is noted.
    fn part(&mut self, part: &Value, pointer: &str) -> Option<String> {
        match part["type"].as_str() {
            Some("text" | "input_text" | "output_text") => match part["text"].as_str() {
                Some(text) => return Some(text.to_owned()),
                None => self.flaw(&format!("{pointer}/text"), "wrong_type", "a string"),
            },
            Some("refusal") => return part["refusal"].as_str().map(str::to_owned),
            Some("input_file" | "file") => {
                let inner = part.get("file").unwrap_or(part);
                match inner["file_id"].as_str().and_then(|id| id.parse().ok()) {
                    Some(file_id) => self.files.push(file_id),
                    None => {
                        let detail = "upload it with POST /api/v1/files, and name it by its file_id";
                        self.flaw(&format!("{pointer}/file_id"), "not_taken", detail);
                    }
                }
            }
            _ => self.flaw(&format!("{pointer}/type"), "wrong_type", "that of a text, or of a file that has a file_id"),
        }
        None
    }
}
