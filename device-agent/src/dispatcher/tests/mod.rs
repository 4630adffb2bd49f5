//! The dispatcher against a gateway on in-memory channels, with a real journal on disk.

mod chaos;
mod orders;
mod promises;
mod reconcile;
mod sleep;
mod trouble;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deskgate_definition::{ApprovalPolicy, CheckReport, Definition, Network, Provider, RunLimits, Service};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceEvent, DeviceFrame, GatewayFrame, InFlightRun, Offer, Policy, Welcome};
use deskgate_protocol::ids::{ApplicationId, DeviceId, DraftId, EndpointId, RunId};
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Effects, Input, Outcome, RunResult, Usage};
use deskgate_store::services::FreezeOutcome;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::*;

/// The time limit of a test; every test takes far less.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// A dial attempt, as the gateway sees it.
struct DialRequest {
    in_flight: Vec<InFlightRun>,
    answer: oneshot::Sender<TestSession>,
}

struct TestLink(mpsc::Sender<DialRequest>);

struct TestSession {
    welcome: Welcome,
    frames: mpsc::Receiver<GatewayFrame>,
    sender: mpsc::Sender<DeviceFrame>,
}

impl Link for TestLink {
    type Session = TestSession;

    async fn connect(&mut self, in_flight: InFlightReader) -> TestSession {
        loop {
            let (answer, session) = oneshot::channel();
            if self.0.send(DialRequest { in_flight: in_flight.get(), answer }).await.is_err() {
                return std::future::pending().await;
            }
            if let Ok(session) = session.await {
                return session;
            }
        }
    }
}

impl LinkSession for TestSession {
    fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    fn sender(&self) -> mpsc::Sender<DeviceFrame> {
        self.sender.clone()
    }

    async fn next(&mut self) -> Option<GatewayFrame> {
        self.frames.recv().await
    }
}

/// The gateway's end of a session.
struct Peer {
    to: mpsc::Sender<GatewayFrame>,
    from: mpsc::Receiver<DeviceFrame>,
}

impl Peer {
    async fn send(&self, frame: GatewayFrame) {
        soon("the device reads", self.to.send(frame)).await.expect("the device is there");
    }

    /// The next frame that is not about slots.
    async fn frame(&mut self) -> DeviceFrame {
        loop {
            match soon("a frame of the device", self.from.recv()).await.expect("the device is there") {
                DeviceFrame::Ready { .. } => {}
                frame => return frame,
            }
        }
    }

    async fn ready(&mut self) -> u32 {
        match soon("a frame of the device", self.from.recv()).await.expect("the device is there") {
            DeviceFrame::Ready { slots, .. } => slots,
            other => panic!("not about slots: {other:?}"),
        }
    }

    /// Slots and places of the next `ready`.
    async fn room(&mut self) -> (u32, BTreeMap<EndpointId, u32>) {
        match soon("a frame of the device", self.from.recv()).await.expect("the device is there") {
            DeviceFrame::Ready { slots, places, .. } => {
                (slots, places.into_iter().map(|named| (named.endpoint_id, named.places)).collect())
            }
            other => panic!("not about slots: {other:?}"),
        }
    }

    /// The next `ready` whose list of services differs from `before`.
    async fn full(&mut self, before: &[EndpointId]) -> (u32, Vec<EndpointId>) {
        let mut declared = 0;
        loop {
            match soon("a frame of the device", self.from.recv()).await.expect("the device is there") {
                DeviceFrame::Ready { slots, full, .. } if full == before => declared += slots,
                DeviceFrame::Ready { slots, full, .. } => return (declared + slots, full),
                _ => {}
            }
        }
    }

    /// The next `finish`; events before it are acknowledged.
    async fn finish(&mut self) -> (RunId, u32, u64, Outcome) {
        loop {
            match self.frame().await {
                DeviceFrame::Finish { run_id, attempt, seq, outcome, .. } => return (run_id, attempt, seq, outcome),
                DeviceFrame::Event { run_id, attempt, seq, .. } => {
                    self.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
                }
                other => panic!("not on the way to a finish: {other:?}"),
            }
        }
    }

    /// Offers a run and starts it.
    async fn start(&mut self, offer: &Offer) {
        let (run_id, attempt) = (offer.run_id, offer.attempt);
        self.send(GatewayFrame::Offer(offer.clone())).await;
        assert_eq!(self.frame().await, DeviceFrame::Accept { run_id, attempt });
        self.send(GatewayFrame::Start { run_id, attempt }).await;
    }
}

/// Every execution, in any process, in order.
#[derive(Clone, Default)]
struct ExecutionLog(Arc<Mutex<Vec<(RunId, u32)>>>);

impl ExecutionLog {
    fn of(&self, run_id: RunId) -> Vec<u32> {
        self.0.lock().expect("no panic").iter().filter(|(id, _)| *id == run_id).map(|(_, attempt)| *attempt).collect()
    }
}

/// A device: its disk, and its process while there is one.
struct TestDevice {
    home: tempfile::TempDir,
    ledger: ExecutionLog,
    /// Runs whose text begins with `wait` or `close` end when this is true.
    gate: watch::Sender<bool>,
    window: u32,
    slots: u32,
    event_delay: Duration,
    dials_in: mpsc::Sender<DialRequest>,
    dials: mpsc::Receiver<DialRequest>,
    process: Option<TestProcess>,
}

struct TestProcess {
    store: Store,
    handle: DispatcherHandle,
    task: JoinHandle<()>,
}

impl TestDevice {
    async fn new() -> Self {
        Self::with_slots(2).await
    }

    async fn with_slots(slots: u32) -> Self {
        let (dials_in, dials) = mpsc::channel(1);
        let home = tempfile::tempdir().expect("temporary folder");
        let ledger = ExecutionLog::default();
        let (gate, event_delay) = (watch::Sender::new(false), Duration::from_secs(3600));
        let mut device = Self { home, ledger, gate, window: 8, slots, event_delay, dials_in, dials, process: None };
        device.boot().await;
        device
    }

    async fn boot(&mut self) {
        let store = Store::open(self.home.path().join("deskgate.db"))
            .await
            .expect("opens")
            .signing_with(ReceiptSigner::from_seed([7; 32]));
        let link = TestLink(self.dials_in.clone());
        let execute = scripted(self.ledger.clone(), self.gate.subscribe(), store.clone());
        let config = DispatcherConfig { slots: self.slots, event_delay: self.event_delay };
        let made = Dispatcher::new(&store, link, execute, config).await;
        let (dispatcher, handle) = made.expect("the journal is readable");
        self.process = Some(TestProcess { store, handle, task: tokio::spawn(dispatcher.run()) });
    }

    /// As by kill -9: nothing is sent and nothing is flushed.
    async fn crash(&mut self) {
        let TestProcess { store, task, handle } = self.process.take().expect("running");
        task.abort();
        assert!(task.await.is_err_and(|end| end.is_cancelled()));
        drop((store, handle));
    }

    fn process(&self) -> &TestProcess {
        self.process.as_ref().expect("running")
    }

    fn handle(&self) -> DispatcherHandle {
        self.process().handle.clone()
    }

    /// Accepts the device, and returns the runs it reported as in flight.
    async fn connect(&mut self) -> (Peer, Vec<InFlightRun>) {
        loop {
            let dial = soon("the device dials", self.dials.recv()).await.expect("it never gives up");
            let (to, frames) = mpsc::channel(64);
            let (sender, from) = mpsc::channel(64);
            let policy = Policy {
                heartbeat_ms: 1000,
                lease_ms: 3000,
                offer_ms: 1000,
                unacknowledged_events: self.window,
                retention_s: None,
            };
            let welcome = Welcome { device_id: DeviceId::new(), epoch: 1, protocol: 2, policy, host_keys: Vec::new() };
            // The process behind this dial may have crashed meanwhile.
            if dial.answer.send(TestSession { welcome, frames, sender }).is_ok() {
                return (Peer { to, from }, dial.in_flight);
            }
        }
    }

    async fn publish(&self, concurrency: u32) -> PublishedVersion {
        self.publish_as("Reader", concurrency).await
    }

    async fn publish_as(&self, name: &str, concurrency: u32) -> PublishedVersion {
        publish(&self.process().store, self.home.path(), name, concurrency).await
    }

    /// Waits until the status is as wanted.
    async fn until(&self, what: &str, wanted: impl FnMut(&DispatcherStatus) -> bool) {
        let mut status = self.handle().watch();
        soon(what, status.wait_for(wanted)).await.expect("running");
    }
}

#[derive(Clone, Copy)]
struct PublishedVersion {
    endpoint_id: EndpointId,
    digest: Sha256Digest,
}

impl PublishedVersion {
    fn offer(&self, text: &str) -> Offer {
        Offer {
            run_id: RunId::new(),
            attempt: 1,
            endpoint_id: self.endpoint_id,
            endpoint_version: 1,
            definition_sha256: self.digest,
            subject: Some("customer-91".to_owned()),
            input: Input { text: text.to_owned(), more: serde_json::Map::new() },
            output: None,
            conversation: None,
            generation: None,
            max_duration_s: 60,
            traceparent: None,
            depth: 0,
        }
    }
}

async fn publish(store: &Store, folder: &Path, name: &str, concurrency: u32) -> PublishedVersion {
    let (service, report) = save(store, folder, name, concurrency).await;
    let frozen = store.services().freeze(service.draft_id, &service.draft, &report).await.expect("frozen");
    let FreezeOutcome::Frozen(frozen) = frozen else { panic!("{frozen:?}") };
    PublishedVersion { endpoint_id: frozen.endpoint_id, digest: frozen.digest }
}

/// Saves a service, whose checks pass.
async fn save(store: &Store, folder: &Path, name: &str, concurrency: u32) -> (Service, CheckReport) {
    let now = Timestamp::now();
    let draft = Definition {
        name: name.to_owned(),
        description: String::new(),
        working_directory: folder.to_owned(),
        provider: Provider::Scripted,
        model: "folder".to_owned(),
        reasoning: Default::default(),
        model_reads: None,
        cost_shown_to: Default::default(),
        data: Default::default(),
        instructions: format!("Answer, {concurrency} at a time."),
        tools: Vec::new(),
        skills: Vec::new(),
        mcp: Vec::new(),
        approvals: ApprovalPolicy::default(),
        protected: Vec::new(),
        network: Network::None,
        limits: RunLimits { concurrency, ..RunLimits::default() },
    };
    let report = CheckReport { definition_sha256: draft.digest(), checked_at: now, checks: Vec::new(), folder: None };
    let draft_id = DraftId::new();
    let (app_id, endpoint_id, published) = (ApplicationId::new(), None, None);
    let service =
        Service { draft_id, app_id, endpoint_id, draft, checks: None, created_at: now, changed_at: now, published };
    store.services().insert(&service).await.expect("saved");
    (service, report)
}

fn message(n: u64) -> DeviceEvent {
    DeviceEvent::MessageCompleted { message_id: format!("m{n}"), text: "said".to_owned(), reasoning_summary: None }
}

fn answer(text: &str) -> Outcome {
    let result = RunResult::completed(text);
    Outcome::Succeeded { result, usage: Usage::default() }
}

/// Executions that follow the submitted text: `say N`, `wait`, `close N` (its last events, and a wait), `linger` (which
/// ignores a stop), `break`, `large`; and in the real journal `intend`, `write`, `ask` and two of them, each followed by a wait.
fn scripted(ledger: ExecutionLog, gate: watch::Receiver<bool>, store: Store) -> ExecuteFn {
    Arc::new(move |job, reports, stop| {
        let (ledger, mut gate) = (ledger.clone(), gate.clone());
        let journal = store.ledger(job.offer.run_id, job.offer.attempt);
        Box::pin(async move {
            ledger.0.lock().expect("no panic").push((job.offer.run_id, job.offer.attempt));
            let text = job.offer.input.text;
            let words: Vec<_> = text.split(' ').collect();
            let count = words.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
            if words[0] == "close" {
                let _ = reports.send(Progress::Ends).await;
            }
            for n in 1..=count {
                let _ = reports.send(Progress::Event(message(n))).await;
            }
            if let "intend" | "write" | "write-and-intend" | "ask" | "write-and-ask" = words[0] {
                return reconcile::work(words[0], job.offer.attempt, &journal, job.leaving, &reports, gate, stop).await;
            }
            match words[0] {
                "break" => panic!("as told"),
                "large" => answer(&"x".repeat(200_000)),
                "wait" | "close" => tokio::select! {
                    _ = gate.wait_for(|open| *open) => answer("waited"),
                    () = stop.cancelled() => Outcome::Cancelled { effects: Effects::None, usage: Usage::default() },
                },
                "linger" => {
                    let _ = gate.wait_for(|open| *open).await;
                    Outcome::Cancelled { effects: Effects::None, usage: Usage::default() }
                }
                _ => answer("done"),
            }
        })
    })
}
