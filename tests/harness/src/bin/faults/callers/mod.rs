//! The callers: each is a business system with its own choices, repeats what failed, and records all calls.

pub(crate) mod converser;
pub(crate) mod courier;
pub(crate) mod cut_off;
pub(crate) mod doors;
pub(crate) mod event_sender;
pub(crate) mod follower;
pub(crate) mod key_holder;
pub(crate) mod owner;
pub(crate) mod prober;
pub(crate) mod publisher;
pub(crate) mod refused_bodies;
pub(crate) mod reset_racer;
pub(crate) mod spender;
pub(crate) mod stale_finisher;
pub(crate) mod submitter;
pub(crate) mod tool_caller;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::history::{
    AnswerContent, CallAction, CallRecord, Histories, HistoryRecord, ListedFile, OperationRecord, digest,
};
use crate::seed::SeededRandom;
use crate::testbed::desktop::ServiceAccess;
use crate::testbed::leak_scan::LeakSource;
use crate::testbed::{REPLICA_COUNT, Testbed};

/// How long one operation is repeated.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of one request: longer than any wait in a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// How long an unused connection is kept: shorter than the pause before open connections are counted.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a read waits for a change, in seconds.
pub(crate) const READ_WAIT_SECONDS: u32 = 5;
/// The paths of the other forms of the API.
const OTHER_DOORS: [&str; 2] = ["/openai/", "/mcp"];
/// The subject of all requests.
pub(crate) const SUBJECT: &str = "customer-1";

/// The runs of one caller that have not ended, at most so many.
pub(crate) struct RunsInFlight {
    most: usize,
    runs: JoinSet<()>,
}

impl RunsInFlight {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, runs: JoinSet::new() }
    }

    /// Waits until one more may begin.
    pub(crate) async fn room(&mut self) {
        while self.runs.len() >= self.most {
            self.one().await;
        }
    }

    /// Follows one more to its end.
    pub(crate) fn spawn(&mut self, follow: impl Future<Output = ()> + Send + 'static) {
        self.runs.spawn(follow);
    }

    /// Waits until all have ended.
    pub(crate) async fn all(mut self) {
        while !self.runs.is_empty() {
            self.one().await;
        }
    }

    async fn one(&mut self) {
        if let Some(ended) = self.runs.join_next().await {
            ended.expect("a caller does not panic");
        }
    }
}

/// The stage of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PassStage {
    /// New operations begin.
    Open,
    /// Open operations are completed.
    Closing,
    /// Open operations are given up.
    Closed,
}

/// The state that all callers share.
pub(crate) struct CallerContext {
    pub(crate) testbed: Arc<Testbed>,
    pub(crate) seed: u64,
    pub(crate) histories: Histories,
    pub(crate) stage: watch::Receiver<PassStage>,
    http: Client,
    jobs: AtomicU64,
}

impl CallerContext {
    pub(crate) fn new(
        testbed: Arc<Testbed>,
        seed: u64,
        histories: Histories,
        stage: watch::Receiver<PassStage>,
    ) -> Self {
        let http = deskgate_tests::backend::client().timeout(REQUEST_TIMEOUT).pool_idle_timeout(POOL_IDLE_TIMEOUT);
        let http = http.build().expect("a client without TLS");
        Self { testbed, seed, histories, stage, http, jobs: AtomicU64::new(1) }
    }

    /// Whether new operations may begin.
    pub(crate) fn is_open(&self) -> bool {
        *self.stage.borrow() == PassStage::Open
    }

    /// Whether open operations are given up.
    pub(crate) fn is_closed(&self) -> bool {
        *self.stage.borrow() == PassStage::Closed
    }

    /// A new job name.
    pub(crate) fn fresh_job(&self) -> String {
        format!("job-{}", self.jobs.fetch_add(1, Ordering::Relaxed))
    }

    /// A caller with its own choices and history.
    pub(crate) fn caller(self: &Arc<Self>, name: &str) -> Caller {
        let dice = SeededRandom::of(self.seed, name);
        Caller { name: name.to_owned(), dice, operations: 0, business: self.clone() }
    }
}

/// One caller.
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) dice: SeededRandom,
    operations: u64,
    pub(crate) business: Arc<CallerContext>,
}

/// A request that may be repeated.
#[derive(Clone, Default)]
pub(crate) struct ApiRequest {
    pub(crate) name: &'static str,
    pub(crate) asked: CallAction,
    pub(crate) desktop: usize,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) key: Option<String>,
    pub(crate) body: Option<Value>,
    /// Further headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The signature headers, instead of an application key.
    pub(crate) signed: Option<Vec<(&'static str, String)>>,
    /// A body that is no document, and the part of the answer's that is wanted.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) range: Option<String>,
}

/// A complete answer.
pub(crate) struct ApiReply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) bytes: Bytes,
    pub(crate) seen: AnswerContent,
}

impl ApiReply {
    pub(crate) fn is_good(&self) -> bool {
        self.status < 300
    }

    /// The run it names.
    pub(crate) fn run_id(&self) -> Option<String> {
        self.seen.run_id().map(str::to_owned)
    }
}

impl Caller {
    /// A second caller that works at the same time as this one.
    pub(crate) fn fork(&mut self, what: &str) -> Caller {
        self.operations += 1;
        let dice = SeededRandom::of(self.dice.any(), what);
        // Both write into one history; their operations differ by what they concern.
        Caller { name: format!("{}-{what}", self.name), dice, operations: self.operations << 20, ..self.with_same() }
    }

    fn with_same(&self) -> Caller {
        Caller { name: String::new(), dice: self.dice.clone(), operations: 0, business: self.business.clone() }
    }

    /// The service of a desktop.
    pub(crate) fn service(&self, desktop: usize) -> &ServiceAccess {
        self.business.testbed.desktops[desktop].service()
    }

    fn build(&self, request: &ApiRequest, replica: usize) -> RequestBuilder {
        // Of other forms of the API the path is whole.
        let is_other = OTHER_DOORS.iter().any(|door| request.path.starts_with(door));
        let prefix = if is_other { "" } else { "/api/v1" };
        let url = format!("http://{}{prefix}{}", self.business.testbed.address(replica), request.path);
        let service = self.service(request.desktop);
        let mut built = self.business.http.request(request.method.clone(), url);
        built = match &request.signed {
            None => built.bearer_auth(&service.key).header("X-Gateway-Subject", SUBJECT),
            Some(headers) => headers.iter().fold(built, |built, (name, value)| built.header(*name, value)),
        };
        if let Some(key) = &request.key {
            built = built.header("Idempotency-Key", key);
        }
        built = request.headers.iter().fold(built, |built, (name, value)| built.header(*name, value));
        if let Some(range) = &request.range {
            built = built.header("Range", range);
        }
        match (&request.body, &request.bytes) {
            (Some(body), _) => built.json(body),
            (None, Some(bytes)) => built.body(bytes.clone()),
            (None, None) => built,
        }
    }

    /// Sends a request to one replica once, and records it. `None` if no complete answer arrived.
    pub(crate) async fn ask(&self, operation: u64, request: &ApiRequest, replica: usize) -> Option<ApiReply> {
        let clock = self.business.testbed.clock;
        let begun = clock.now();
        let answered = async {
            let response = self.build(request, replica).send().await?;
            let (status, retry_after) = (response.status().as_u16(), response.headers().contains_key(RETRY_AFTER));
            Ok::<_, reqwest::Error>((status, retry_after, response.bytes().await?))
        };
        let answered = answered.await.ok();
        let mut call = CallRecord {
            caller: self.name.clone(),
            operation,
            asked: request.asked.clone(),
            desktop: request.desktop,
            replica,
            begun,
            ended: clock.now(),
            ..CallRecord::default()
        };
        let reply = answered.map(|(status, retry_after, bytes)| {
            // An artifact has the bytes that its caller uploaded.
            if !matches!(request.asked, CallAction::Download { .. }) {
                let what = format!("an answer to {}", request.name);
                self.business.testbed.secrets.look(LeakSource::Answer, &what, &String::from_utf8_lossy(&bytes));
            }
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let (status, body) = doors::as_native(&request.path, status, body);
            let seen = see(&request.asked, status, &body);
            body["code"].as_str().unwrap_or_default().clone_into(&mut call.code);
            body["state_reason"]["code"].as_str().unwrap_or_default().clone_into(&mut call.reason);
            body["error"]["code"].as_str().unwrap_or_default().clone_into(&mut call.error);
            body["error"]["effects"].as_str().unwrap_or_default().clone_into(&mut call.effects);
            call.version = body["endpoint_version"].as_u64().unwrap_or_default();
            (call.files, call.artifacts) =
                (ListedFile::read_all(&body["input"]["files"]), ListedFile::read_all(&body["artifacts"]));
            (call.status, call.retry_after, call.seen) = (Some(status), retry_after, seen.clone());
            ApiReply { status, body, bytes, seen }
        });
        self.business.histories.note(&self.name, HistoryRecord::Call(Box::new(call)));
        reply
    }

    /// The number of the next operation.
    pub(crate) fn next_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    /// Repeats a request, each time at some replica, until the answer is final, and records the result. `None` if there
    /// was no such answer.
    pub(crate) async fn retry(&mut self, request: &ApiRequest) -> Option<ApiReply> {
        let operation = self.next_operation();
        let clock = self.business.testbed.clock;
        let (begun, deadline, mut tries) = (clock.now(), Instant::now() + OPERATION_TIMEOUT, 0);
        let mut replica = self.dice.below(REPLICA_COUNT);
        let reply = loop {
            // Like a load balancer, it takes another replica after one that did not answer.
            replica = (replica + 1 + self.dice.below(REPLICA_COUNT - 1)) % REPLICA_COUNT;
            tries += 1;
            let reply = self.ask(operation, request, replica).await;
            match reply {
                Some(reply) if reply.status != 429 && reply.status < 500 => break Some(reply),
                _ if Instant::now() > deadline || self.business.is_closed() => break None,
                // A backend pauses before it repeats.
                _ => sleep(Duration::from_millis(self.dice.within(30, 250))).await,
            }
        };
        // A refusal that names the state is a final answer, and forged requests must be refused. A file that is to be deleted may be
        // gone since the try before.
        let wanted = match request.asked {
            CallAction::Event { forged: true, .. } => &[401][..],
            CallAction::DeleteFile { .. } => &[404, 409],
            _ => &[409],
        };
        let succeeded = reply.as_ref().is_some_and(|reply| reply.is_good() || wanted.contains(&reply.status));
        let run_id = reply.as_ref().and_then(ApiReply::run_id);
        self.done(request.name, operation, begun, tries, succeeded, run_id);
        reply
    }

    /// Records the result of an operation.
    pub(crate) fn done(
        &self,
        name: &str,
        operation: u64,
        begun: u64,
        tries: u32,
        succeeded: bool,
        run_id: Option<String>,
    ) {
        let ended = self.business.testbed.clock.now();
        let (caller, name) = (self.name.clone(), name.to_owned());
        let done = OperationRecord { caller, operation, name, begun, ended, tries, succeeded, run_id };
        self.business.histories.note(&self.name, HistoryRecord::Done(done));
    }

    /// Reads a run once at some replica; with `wait`, waits until something changed.
    pub(crate) async fn read(&mut self, operation: u64, desktop: usize, run_id: &str, wait: u32) -> Option<ApiReply> {
        let replica = self.dice.below(REPLICA_COUNT);
        self.ask(operation, &read(desktop, run_id, wait), replica).await
    }

    /// Requests a run's stop.
    pub(crate) async fn stop(&mut self, desktop: usize, run_id: &str) -> Option<ApiReply> {
        let request = ApiRequest {
            name: "stop",
            asked: CallAction::Stop { run_id: run_id.to_owned() },
            desktop,
            method: Method::POST,
            path: format!("/runs/{run_id}/stop"),
            key: Some(self.business.fresh_job()),
            body: Some(serde_json::json!({})),
            ..ApiRequest::default()
        };
        self.retry(&request).await
    }

    /// Waits until an operation is completed or failed, as an operation of its own.
    pub(crate) async fn completed(&mut self, desktop: usize, operation_id: &str) -> Option<ApiReply> {
        let number = self.next_operation();
        let clock = self.business.testbed.clock;
        let (begun, mut tries) = (clock.now(), 0);
        let request = ApiRequest {
            name: "complete",
            asked: CallAction::Operation { operation_id: operation_id.to_owned() },
            desktop,
            method: Method::GET,
            path: format!("/control-operations/{operation_id}"),
            ..ApiRequest::default()
        };
        let reply = loop {
            tries += 1;
            let replica = self.dice.below(REPLICA_COUNT);
            let reply = self.ask(number, &request, replica).await;
            let is_over = |reply: &ApiReply| matches!(&reply.seen, AnswerContent::Operation { state, .. } if state == "completed" || state == "failed");
            match reply {
                Some(reply) if is_over(&reply) => break Some(reply),
                _ if self.business.is_closed() => break None,
                _ => sleep(Duration::from_millis(100)).await,
            }
        };
        self.done(request.name, number, begun, tries, reply.is_some(), None);
        reply
    }
}

/// A read of a run.
pub(crate) fn read(desktop: usize, run_id: &str, wait: u32) -> ApiRequest {
    ApiRequest {
        name: "read",
        asked: CallAction::Read { run_id: run_id.to_owned() },
        desktop,
        method: Method::GET,
        path: format!("/runs/{run_id}?wait={wait}"),
        ..ApiRequest::default()
    }
}

/// A submission of a job to the service of a desktop.
pub(crate) fn submission(caller: &Caller, desktop: usize, job: &str, text: &str, changed: bool) -> ApiRequest {
    submission_to(&caller.service(desktop).endpoint_id, desktop, job, text, changed)
}

/// A submission of a job to an endpoint.
fn submission_to(endpoint_id: &str, desktop: usize, job: &str, text: &str, changed: bool) -> ApiRequest {
    ApiRequest {
        name: "submit",
        asked: CallAction::Submit { job: job.to_owned(), changed },
        desktop,
        method: Method::POST,
        path: format!("/agent-endpoints/{endpoint_id}/runs"),
        key: Some(job.to_owned()),
        body: Some(serde_json::json!({ "input": { "text": text } })),
        ..ApiRequest::default()
    }
}

/// The parts of an answer that can be judged.
fn see(asked: &CallAction, status: u16, body: &Value) -> AnswerContent {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let (CallAction::Say { conversation, .. } | CallAction::Reset { conversation, .. }, Some(generation)) =
        (asked, body["current_generation"].as_u64())
    {
        return AnswerContent::Generation { conversation: conversation.clone(), generation };
    }
    if status >= 300 {
        return AnswerContent::Nothing;
    }
    if body["operation_id"].is_string() {
        return AnswerContent::Operation {
            operation_id: text(&body["operation_id"]),
            state: text(&body["state"]),
            code: text(&body["outcome"]["code"]),
            new_generation: body["outcome"]["new_generation"].as_u64(),
        };
    }
    if matches!(asked, CallAction::Upload { .. } | CallAction::FindFile { .. }) {
        return ListedFile::read(body).map_or(AnswerContent::Nothing, AnswerContent::File);
    }
    if matches!(asked, CallAction::Event { .. }) || body["door"].is_string() {
        return body["run_id"]
            .as_str()
            .map_or(AnswerContent::Nothing, |run_id| AnswerContent::Became { run_id: run_id.to_owned() });
    }
    if body["run_id"].is_string() {
        let outcome: Value =
            ["state", "result", "error", "finished_at"].iter().map(|name| body[*name].clone()).collect();
        return AnswerContent::Run {
            run_id: text(&body["run_id"]),
            phase: text(&body["phase"]),
            state: text(&body["state"]),
            attempt: body["attempt"].as_u64().unwrap_or_default(),
            digest: digest(&outcome),
        };
    }
    match body["conversation_id"].as_str() {
        Some(conversation) => AnswerContent::Conversation {
            conversation: conversation.to_owned(),
            generation: body["generation"].as_u64().unwrap_or_default(),
            state: text(&body["state"]),
            active: body["active_run_id"].as_str().map(str::to_owned),
        },
        None => AnswerContent::Nothing,
    }
}
