//! A model provider that answers by the plan in each job's text, can be made faulty, and records a journal.
//!
//! It implements OpenAI's streaming format. A job's text is its plan: `job=j-7 plan=write delay=200 talk=c-1
//! generation=2`, or `plan=peek near=../beside/x far=/beside/x` to read there, or `plan=spread folder=/home/work` to ask for
//! several calls at once, or `plan=carry hand=out/a,out/b` to look at the files that it was given and hand some out. `tokens=` is
//! what each answer used up.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use deskgate_tests::vendors::{Move, check_of_a_service};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::carry::ShownFiles;
use super::model_behaviour::{Door, MODEL_ADDRESS, ModelBehaviour};
use super::spread::{self, Spread};
use crate::history::Clock;

/// The agent's words for a call with an unknown outcome.
const UNKNOWN_OUTCOME_TEXT: &str = "It may have happened";

/// The tokens that it says it read, unless a job names others, and those that it says it wrote.
const READ_TOKENS: u64 = 10;
const WRITTEN_TOKENS: u64 = 5;

/// One request as the model saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelTurn {
    pub(crate) job: String,
    /// Answers and results before it in this run; 0 for a run's first turn.
    pub(crate) place: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// `whole`, `gone` if the caller left, or its faulty behaviour.
    pub(crate) served: String,
    /// The conversation, if it is a message of one.
    pub(crate) talk: Option<String>,
    /// The generation that the message names, and those that the messages before it named.
    pub(crate) generations: Vec<u64>,
    /// Whether it got the content beside the folder.
    pub(crate) is_shown: bool,
    /// Whether it got a call with an unknown outcome.
    pub(crate) is_unsure: bool,
    /// The release that the service's instructions name.
    pub(crate) release: Option<u64>,
    /// What is wrong with the results of calls that it got.
    pub(crate) disorder: Option<String>,
    /// The tokens that it says it used up for its answer, if that is whole.
    pub(crate) tokens: u64,
    /// The microseconds after which it was asked to come again.
    pub(crate) pause: Option<u64>,
    /// What tools told it of files.
    #[serde(default)]
    pub(crate) files: ShownFiles,
}

#[derive(Clone)]
struct ModelState {
    clock: Clock,
    manner: watch::Sender<ModelBehaviour>,
    journal: Arc<Mutex<Vec<ModelTurn>>>,
}

/// The running server.
pub(crate) struct FakeModel {
    desktop: ModelState,
    address: String,
    _serving: AbortOnDropHandle<()>,
}

impl FakeModel {
    /// Starts it.
    pub(crate) async fn start(clock: Clock) -> Self {
        let desktop =
            ModelState { clock, manner: watch::Sender::new(ModelBehaviour::default()), journal: Arc::default() };
        let listener = Door::open(desktop.manner.subscribe()).await;
        let address = format!("http://{MODEL_ADDRESS}/v1");
        let router = axum::Router::new().fallback(answer).with_state(desktop.clone());
        let serving = async { axum::serve(listener, router).await.expect("it serves for ever") };
        Self { desktop, address, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    /// Its base URL.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &'static str {
        MODEL_ADDRESS
    }

    /// Sets its behaviour from now on.
    pub(crate) fn set_behaviour(&self, manner: ModelBehaviour) {
        self.desktop.manner.send_replace(manner);
    }

    /// Its requests so far.
    pub(crate) fn journal(&self) -> Vec<ModelTurn> {
        lock(&self.desktop.journal).clone()
    }

    /// How many requests it answered in a faulty way.
    pub(crate) fn disturbed(&self) -> usize {
        lock(&self.desktop.journal).iter().filter(|turn| is_disturbed(&turn.served)).count()
    }
}

fn is_disturbed(served: &str) -> bool {
    ModelBehaviour::FAULTS.iter().any(|manner| manner.name() == served)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry that is closed when the answer is sent, or the caller is gone.
struct OpenTurn {
    desktop: ModelState,
    place: usize,
}

impl OpenTurn {
    fn open(desktop: &ModelState, turn: ModelTurn) -> Self {
        let mut journal = lock(&desktop.journal);
        journal.push(ModelTurn { begun: desktop.clock.now(), served: "gone".to_owned(), ..turn });
        Self { desktop: desktop.clone(), place: journal.len() - 1 }
    }

    fn served(&self, how: &str) {
        how.clone_into(&mut lock(&self.desktop.journal)[self.place].served);
    }

    /// Notes that it is answered out of order.
    fn disturbed(&self, manner: ModelBehaviour) {
        let turn = &mut lock(&self.desktop.journal)[self.place];
        turn.served = manner.name();
        turn.pause = manner.pause().and_then(|pause| pause.as_micros().try_into().ok());
    }
}

impl Drop for OpenTurn {
    fn drop(&mut self) {
        lock(&self.desktop.journal)[self.place].ended = self.desktop.clock.now();
    }
}

async fn answer(State(desktop): State<ModelState>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(mut asked) = TurnRequest::read(&request) else {
        return match check_of_a_service(&request) {
            Some(Move::Call(calls)) => {
                let function = json!({ "name": calls[0].0, "arguments": calls[0].1.to_string() });
                let call = json!({ "index": 0, "id": "call-check", "type": "function", "function": function });
                whole(&[json!({ "tool_calls": [call] })], "tool_calls")
            }
            _ => whole(&[json!({ "content": "ready" })], "stop"),
        };
    };
    let entry = OpenTurn::open(&desktop, asked.turn.clone());
    asked.answer = entry.place;
    let mut manner = desktop.manner.subscribe();
    let now = *manner.borrow();
    if now != ModelBehaviour::Answers {
        entry.disturbed(now);
        if now == ModelBehaviour::Hangs {
            let _ = manner.wait_for(|manner| *manner != ModelBehaviour::Hangs).await;
        }
        return now.answer(&asked.text()).unwrap_or_else(close);
    }
    tokio::time::sleep(asked.delay).await;
    match asked.spread() {
        Some(spread) => spread.lay_pages(),
        None => asked.folder.iter().for_each(|folder| spread::clear_pages(&asked.turn.job, folder)),
    }
    entry.served("whole");
    asked.answer()
}

/// Ends the connection's task without a panic message.
fn close() -> Response {
    std::panic::resume_unwind(Box::new("closed on purpose"));
}

/// The parsed request.
struct TurnRequest {
    turn: ModelTurn,
    plan: String,
    delay: Duration,
    /// The paths that a job tries to read outside its folder.
    peeks: Vec<String>,
    /// The service's folder, if it asks for several calls there.
    folder: Option<PathBuf>,
    /// The paths that it hands out.
    hands_out: Vec<String>,
    /// Its place in the journal.
    answer: usize,
}

impl TurnRequest {
    /// `None` if it is not about a job, such as a check's question.
    fn read(request: &Value) -> Option<Self> {
        let messages = request["messages"].as_array()?;
        let last = messages.iter().rposition(|message| message["role"] == "user")?;
        let words = words(&messages[last]);
        let earlier = messages[..last].iter().filter(|message| message["role"] == "user").map(self::words);
        let generation = |words: &HashMap<String, String>| words.get("generation").and_then(|text| text.parse().ok());
        let generations = std::iter::once(words.clone()).chain(earlier).filter_map(|words| generation(&words));
        let word = |name: &str| words.get(name).cloned();
        let read_tokens = word("tokens").and_then(|text| text.parse().ok()).unwrap_or(READ_TOKENS);
        let delay = word("delay").and_then(|text| text.parse().ok()).unwrap_or_default();
        Some(Self {
            turn: ModelTurn {
                job: word("job")?,
                place: messages.len() - 1 - last,
                talk: word("talk"),
                generations: generations.collect(),
                is_shown: request["messages"].to_string().contains(super::desktop::CANARY_TEXT),
                is_unsure: messages[last..].iter().any(|message| message.to_string().contains(UNKNOWN_OUTCOME_TEXT)),
                release: messages[0]
                    .as_object()
                    .filter(|first| first["role"] == "system")
                    .and_then(|_| self::words(&messages[0]).get("release")?.parse().ok()),
                disorder: spread::disorder(messages),
                tokens: read_tokens + WRITTEN_TOKENS,
                files: ShownFiles::read(&messages[last..]),
                ..ModelTurn::default()
            },
            plan: word("plan")?,
            delay: Duration::from_millis(delay),
            peeks: ["near", "far"].into_iter().filter_map(word).collect(),
            folder: word("folder").map(PathBuf::from),
            hands_out: word("hand").iter().flat_map(|paths| paths.split(',')).map(str::to_owned).collect(),
            answer: 0,
        })
    }

    /// The tool call of this turn, with the effect log's entry; `None` in the last turn.
    fn call(&self) -> Option<String> {
        // An answer with a call and its result are two messages.
        let calls = self.turn.place / 2;
        let planned = match self.plan.as_str() {
            "write" | "ask" | "note" => 1,
            "write-twice" | "spend" => 2,
            "peek" => self.peeks.len(),
            _ => 0,
        };
        (calls < planned).then(|| format!("{}.{calls}", self.turn.job))
    }

    /// The calls of this turn, if it asks for several.
    fn spread(&self) -> Option<Spread<'_>> {
        let folder = self.folder.as_deref().filter(|_| self.plan == "spread" && self.turn.place == 0)?;
        Some(Spread { job: &self.turn.job, answer: self.answer, folder })
    }

    fn deltas(&self) -> (Vec<Value>, &'static str) {
        if let Some(spread) = self.spread() {
            return (vec![json!({ "tool_calls": spread.calls() })], "tool_calls");
        }
        if self.plan == "carry"
            && let Some(call) = self.turn.files.call(&self.turn.job, self.turn.place / 2, &self.hands_out)
        {
            return (vec![json!({ "tool_calls": [call] })], "tool_calls");
        }
        let Some(token) = self.call() else {
            return (vec![json!({ "content": "done " }), json!({ "content": self.turn.job })], "stop");
        };
        // One of them needs approval.
        let (name, arguments) = if self.plan == "peek" {
            ("Read", json!({ "file_path": self.peeks[self.turn.place / 2] }))
        } else if self.plan == "spend" {
            ("Read", json!({ "file_path": "orders.txt" }))
        } else if self.plan == "note" {
            (super::fake_tool_server::TOOL_NAME, json!({ "job": self.turn.job, "call": self.turn.place / 2 }))
        } else if self.plan == "ask" {
            ("Write", json!({ "file_path": super::effect_log::asked(&self.turn.job), "content": "as asked\n" }))
        } else {
            let command = format!("printf '%s %s\\n' {token} $(date +%s%N) >> {}", super::effect_log::LOG_FILE_NAME);
            ("Bash", json!({ "command": command }))
        };
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let call = json!({ "index": 0, "id": format!("call-{token}"), "type": "function", "function": function });
        (vec![json!({ "tool_calls": [call] })], "tool_calls")
    }

    fn text(&self) -> String {
        let (deltas, reason) = self.deltas();
        text(&deltas, reason, self.turn.tokens)
    }

    fn answer(&self) -> Response {
        events(Body::from(self.text()))
    }
}

/// The words `name=value` of a message.
fn words(message: &Value) -> HashMap<String, String> {
    let parts = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" "),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let word = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    parts.split_whitespace().filter_map(word).collect()
}

fn text(deltas: &[Value], reason: &str, tokens: u64) -> String {
    let chunk = |delta: &Value, reason: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
        format!("data: {}\n\n", json!({ "object": "chat.completion.chunk", "choices": choices }))
    };
    let pieces: String = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    let usage = json!({ "choices": [], "usage": {
        "prompt_tokens": tokens - WRITTEN_TOKENS, "completion_tokens": WRITTEN_TOKENS,
    } });
    format!("{pieces}{}data: {usage}\n\ndata: [DONE]\n\n", chunk(&json!({}), reason.into()))
}

fn whole(deltas: &[Value], reason: &str) -> Response {
    events(Body::from(text(deltas, reason, READ_TOKENS + WRITTEN_TOKENS)))
}

pub(super) fn events(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    #[test]
    fn a_job_is_read_from_the_newest_message_and_its_conversation_from_all() {
        let said = json!({ "role": "assistant", "content": "done a" });
        let messages =
            json!([user("job=a plan=say talk=c generation=1"), said, user("job=b plan=write talk=c generation=2")]);
        let asked = TurnRequest::read(&json!({ "messages": messages })).expect("a job");
        assert_eq!((asked.turn.job.as_str(), asked.turn.place), ("b", 0));
        assert_eq!(asked.turn.generations, [2, 1]);
        assert!(TurnRequest::read(&json!({ "messages": [user("Say: ready")] })).is_none());
    }

    #[test]
    fn a_job_that_writes_calls_once_and_then_ends() {
        let called = json!({ "role": "assistant", "tool_calls": [] });
        let result = json!({ "role": "tool", "content": "" });
        let at = |messages: Value| TurnRequest::read(&json!({ "messages": messages })).expect("a job").call();
        let job = user("job=a plan=write");
        assert_eq!(at(json!([job])), Some("a.0".to_owned()));
        assert_eq!(at(json!([job, called, result])), None);
        let job = user("job=a plan=write-twice");
        assert_eq!(at(json!([job, called, result])), Some("a.1".to_owned()));
    }

    #[test]
    fn a_job_that_peeks_asks_for_both_places_and_what_it_is_shown_is_noted() {
        let job = user("job=a plan=peek near=../x far=/x");
        let called = json!({ "role": "assistant", "tool_calls": [] });
        let at = |messages: Value| TurnRequest::read(&json!({ "messages": messages })).expect("a job");
        assert!(at(json!([job])).text().contains("../x"));
        let refused = at(json!([job, called, { "role": "tool", "content": "outside" }]));
        assert!(refused.text().contains("/x") && !refused.turn.is_shown);
        assert!(
            at(json!([job, called, { "role": "tool", "content": crate::testbed::desktop::CANARY_TEXT }])).turn.is_shown
        );
    }
}
