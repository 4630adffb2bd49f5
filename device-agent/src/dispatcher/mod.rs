//! The dispatcher: owns the active runs, and is the only user of `link`.
//!
//! One loop: it waits for an event, handles it, then sends every frame that can be sent. The order of journal and
//! frames makes a crash harmless:
//!
//! | step | on disk before |
//! |---|---|
//! | `accept` is sent | the entry is `taken` |
//! | execution begins | the gateway's `start`, and the entry is `running` |
//! | a tool writes | its intent, which the executor puts there |
//! | `finish` is sent | the entry is `finished`, with its unacknowledged events |
//!
//! Frames and ends that have come by the same moment are handled together, so that their entries share one wait for the disk.
//!
//! Facts for the gateway are kept in the runs themselves (their stage, their log of numbered events) and sent from
//! there: a new session simply sends them again.

mod backpressure;
mod calls;
mod executions;
mod gathered;
pub mod handle;
mod line;
mod offers;
mod orders;
mod outgoing;
mod places;
mod problem;
mod reconcile;
mod refusals;
mod run;
pub mod sleep;
mod tickets;
mod writing;

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::control::{ByeCode, DeviceFrame, GatewayFrame, InFlightRun, InFlightStatus, Order};
use deskgate_protocol::ids::{EndpointId, OperationId, RunId};
use deskgate_protocol::management::{AskedBy, ManagementRequest};
use deskgate_protocol::run::Outcome;
use deskgate_store::{self, Audit, Journal, Services, Settings, Store, Transcripts};
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::executor::{Job, Progress};
use crate::services::CallError;
use crate::transfers::{TicketRequest, UnsettledCounts};
use backpressure::Backpressure;
use calls::PendingCalls;
use gathered::GatheredFrames;
pub use handle::{ActiveRun, ActiveRunState, DispatcherHandle, DispatcherStatus, GLANCE_TIMEOUT, ReconcileError};
use handle::{Command, MANAGEMENT_REPLY_TIMEOUT};
use line::{GatewayLine, LineEvent};
pub use line::{InFlightReader, Link, LinkSession};
use places::Places;
use problem::DispatcherProblem;
use refusals::RefusalRate;
use run::{RunStage, TrackedRun};
use tickets::PendingTickets;
pub use writing::{UnfinishedMessage, Writing};

/// The interval for repeating failed journal writes.
const JOURNAL_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stopping agent waits for outstanding starts and acknowledgements, once no run executes.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long an execution may take to stop before it is abandoned.
const EXECUTION_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many events may be unacknowledged before a gateway has sent its own limit.
const DEFAULT_EVENT_WINDOW: usize = 64;
/// How often conversations that are silent too long are deleted.
const TRANSCRIPT_SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// How many ended runs may wait for their acknowledgement before new ones are refused.
const MAX_UNSETTLED_RUNS: usize = 64;
/// How many frames, reports or ends are handled together.
const MAX_GATHERED: usize = 64;
/// How many commands may wait for the loop.
const COMMAND_QUEUE_LEN: usize = 32;

/// Executes one job: [`crate::executor::execute`], or a test's replacement.
pub type ExecuteFn = Arc<
    dyn Fn(Job, mpsc::Sender<Progress>, CancellationToken) -> Pin<Box<dyn Future<Output = Outcome> + Send>>
        + Send
        + Sync,
>;

/// The dispatcher's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatcherConfig {
    /// How many runs may be active at once, over all services.
    pub slots: u32,
    /// For how long the last events of a run wait for its outcome, which may have many temporary files to remove first.
    pub event_delay: Duration,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self { slots: 4, event_delay: Duration::from_millis(100) }
    }
}

/// The dispatcher, ready to [`run`](Self::run).
pub struct Dispatcher<L: Link> {
    line: GatewayLine<L>,
    journal: Journal,
    transcripts: Transcripts,
    settings: Settings,
    audit: Audit,
    services: Services,
    execute: ExecuteFn,
    slots: u32,
    event_delay: Duration,

    runs: BTreeMap<RunId, TrackedRun>,
    executions: JoinSet<Outcome>,
    tasks: HashMap<tokio::task::Id, RunId>,
    /// Operations that could not be carried out yet, because the disk failed.
    unfinished_orders: BTreeMap<OperationId, Order>,
    calls: PendingCalls,
    tickets: PendingTickets,
    /// The artifacts that are still to be sent.
    unsettled: Option<watch::Receiver<UnsettledCounts>>,
    commands: mpsc::Receiver<Command>,

    /// Slots declared in this session that the gateway has not used.
    credit: u32,
    /// The places of each service, and those that the gateway has not used.
    places: Places,
    withheld: Backpressure,
    /// Refusals of offers for which there is no room, until it is declared what is free.
    busy: Vec<DeviceFrame>,
    /// How many refused offers are signed.
    refusals: RefusalRate,
    /// The services that the gateway was asked to hold back.
    named: Vec<EndpointId>,
    /// When the slots that are free are declared at the latest, while they are few.
    declare_at: Option<Instant>,
    /// The gateway stops: no more slots are declared in this session.
    draining: bool,
    /// The computer is about to sleep, or sleeps: until it is awake, no slots are declared and no runs taken.
    asleep: bool,
    window: usize,
    stop: StopMode,
    /// Cancelled by any stop: executions stop waiting for a person.
    leaving: CancellationToken,
    retry_at: Option<Instant>,
    /// When silent conversations are deleted next.
    sweep_at: Instant,
    problem: Option<DispatcherProblem>,

    in_flight: watch::Sender<Vec<InFlightRun>>,
    status: watch::Sender<DispatcherStatus>,
    writing: watch::Sender<Writing>,
}

#[derive(Clone, Copy, Debug)]
enum StopMode {
    NotStopping,
    /// Waits for executions, without asking a person. `until` is set once no run executes, and ends the wait.
    Graceful {
        until: Option<Instant>,
    },
    /// Executions were stopped and are abandoned at this moment.
    Now {
        until: Instant,
    },
}

#[derive(Debug)]
enum DispatcherEvent {
    Line(LineEvent),
    Command(Command),
    TicketAsked(TicketRequest),
    ArtifactSettled,
    Reported(RunId, Progress),
    Ended(Result<(tokio::task::Id, Outcome), JoinError>),
    TimeCame,
    StopTime,
}

impl<L: Link> Dispatcher<L> {
    /// Reads the journal and creates the dispatcher; the work begins with [`Self::run`].
    ///
    /// # Errors
    /// The database cannot be read or written, or the journal is damaged. A damaged definition of a taken run is no
    /// error here.
    pub async fn new(
        store: &Store,
        link: L,
        execute: ExecuteFn,
        config: DispatcherConfig,
    ) -> Result<(Self, DispatcherHandle), deskgate_store::Error> {
        let (journal, services) = (store.journal(), store.services());
        let mut runs = BTreeMap::new();
        for entry in journal.recover().await? {
            let offer = entry.offer;
            let run = match entry.status {
                InFlightStatus::Taken => {
                    TrackedRun::from_offer(offer.clone(), offers::definition_left(&services, &offer).await?)
                }
                InFlightStatus::Unknown => TrackedRun::unknown(&offer, entry.settled),
                _ => TrackedRun::from_journal(&offer, entry.ended),
            };
            runs.insert(offer.run_id, run);
        }
        let (commands_in, commands) = mpsc::channel(COMMAND_QUEUE_LEN);
        let (status, status_out) =
            watch::channel(DispatcherStatus { slots: config.slots, ..DispatcherStatus::default() });
        let (in_flight, in_flight_now) = watch::channel(Vec::new());
        let dispatcher = Self {
            line: GatewayLine::new(link, InFlightReader(in_flight_now)),
            journal,
            transcripts: store.transcripts(),
            settings: store.settings(),
            audit: store.audit(),
            services,
            execute,
            slots: config.slots,
            event_delay: config.event_delay,
            runs,
            executions: JoinSet::new(),
            tasks: HashMap::new(),
            unfinished_orders: BTreeMap::new(),
            calls: PendingCalls::default(),
            tickets: PendingTickets::default(),
            unsettled: None,
            commands,
            credit: 0,
            places: Places::new(store.services().publications()),
            withheld: Backpressure::default(),
            busy: Vec::new(),
            refusals: RefusalRate::default(),
            named: Vec::new(),
            declare_at: None,
            draining: false,
            asleep: false,
            window: DEFAULT_EVENT_WINDOW,
            stop: StopMode::NotStopping,
            leaving: CancellationToken::new(),
            retry_at: None,
            sweep_at: Instant::now(),
            problem: None,
            in_flight,
            status,
            writing: watch::Sender::default(),
        };
        let writing = dispatcher.writing.subscribe();
        Ok((
            dispatcher,
            DispatcherHandle {
                by: AskedBy::Agent,
                commands: commands_in,
                status: status_out,
                writing,
                patience: MANAGEMENT_REPLY_TIMEOUT,
            },
        ))
    }

    /// The same, which gets the tickets that transfers ask for, and sends the end of a run when none of its artifacts is left to send.
    #[must_use]
    pub fn with_transfers(
        self,
        requests: mpsc::Receiver<TicketRequest>,
        unsettled: watch::Receiver<UnsettledCounts>,
    ) -> Self {
        Self { tickets: PendingTickets::of(requests), unsettled: Some(unsettled), ..self }
    }

    /// Works until it is stopped. Dropping the future aborts every execution, which then counts as cut off, as after a
    /// crash.
    pub async fn run(mut self) {
        loop {
            self.places.learn(&self.services).await;
            self.send_what_can_be_sent();
            self.publish();
            if self.is_done() {
                return;
            }
            let happening = self.next_happening().await;
            self.act(happening).await;
        }
    }

    async fn next_happening(&mut self) -> DispatcherEvent {
        let stop_time = match self.stop {
            StopMode::NotStopping => None,
            StopMode::Graceful { until } => until,
            StopMode::Now { until } => Some(until),
        };
        let declare_at = self.declare_at.filter(|_| self.line.has_room());
        let again = [self.retry_at, self.withheld.until(), declare_at, Some(self.sweep_at)].into_iter().flatten();
        let again = again.chain(self.runs.values().filter_map(|run| run.stage.ends())).min();
        let Self { line, commands, executions, runs, window, tickets, unsettled, .. } = self;
        tokio::select! {
            news = line.next() => DispatcherEvent::Line(news),
            Some(command) = commands.recv() => DispatcherEvent::Command(command),
            request = tickets.next() => DispatcherEvent::TicketAsked(request),
            () = changed(unsettled) => DispatcherEvent::ArtifactSettled,
            (run_id, report) = executions::next_report(runs, *window) => DispatcherEvent::Reported(run_id, report),
            Some(ended) = executions.join_next_with_id() => DispatcherEvent::Ended(ended),
            () = sleep_until(again) => DispatcherEvent::TimeCame,
            () = sleep_until(stop_time) => DispatcherEvent::StopTime,
        }
    }

    async fn act(&mut self, happening: DispatcherEvent) {
        match happening {
            DispatcherEvent::Line(LineEvent::Up(welcome)) => {
                self.begin_session(&welcome);
                self.note_retention(welcome.policy.retention_s).await;
            }
            DispatcherEvent::Line(LineEvent::Frame(frame)) => {
                let more = self.line.frames_that_are_there(MAX_GATHERED - 1);
                self.act_on_frames(iter::once(frame).chain(more)).await;
            }
            DispatcherEvent::Line(LineEvent::Lost) => self.calls.fail_all(),
            DispatcherEvent::Line(LineEvent::Room) => {}
            DispatcherEvent::Command(Command::Call { by, request, answer }) => self.begin_call(by, request, answer),
            DispatcherEvent::Command(Command::Stop { now }) => self.begin_stop(now),
            DispatcherEvent::Command(Command::Suspend) => {
                self.asleep = true;
                self.send_what_can_be_sent();
                self.line.send(DeviceFrame::Suspend);
            }
            DispatcherEvent::Command(Command::Resume) => self.resume(),
            DispatcherEvent::Command(Command::Reconcile { run_id, finding, who, answer }) => {
                // A caller that gave up sees the result in the status.
                let _ = answer.send(self.reconcile(run_id, finding, &who).await);
            }
            DispatcherEvent::TicketAsked(request) => {
                let held = self.runs.get(&request.run_id).is_some_and(|run| run.attempt == request.attempt);
                // Dropped, it tells that the attempt is not this device's. One that is asked for while there is no line is asked for
                // with the next session.
                if held && let Some(frame) = self.tickets.add(request) {
                    self.line.send(frame);
                }
            }
            // What can be sent now is sent in any case.
            DispatcherEvent::ArtifactSettled => {}
            DispatcherEvent::Reported(run_id, report) => {
                self.note_report(run_id, report).await;
                for _ in 1..MAX_GATHERED {
                    let next = executions::next_report(&mut self.runs, self.window).now_or_never();
                    let Some((run_id, report)) = next else { break };
                    self.note_report(run_id, report).await;
                }
            }
            DispatcherEvent::Ended(ended) => {
                let more = iter::from_fn(|| self.executions.try_join_next_with_id());
                let ended = iter::once(ended).chain(more.take(MAX_GATHERED - 1)).collect();
                self.end_executions(ended).await;
            }
            DispatcherEvent::TimeCame => self.look_after().await,
            DispatcherEvent::StopTime => self.abandon_executions(),
        }
    }

    /// Frames about different runs have no order among each other: those of one kind are acted on together.
    async fn act_on_frames(&mut self, frames: impl Iterator<Item = GatewayFrame>) {
        let mut gathered = GatheredFrames::default();
        for frame in frames {
            let Some(frame) = gathered.add(frame) else { continue };
            self.act_on_gathered(std::mem::take(&mut gathered)).await;
            if let Some(frame) = gathered.add(frame) {
                self.act_on_frame(frame).await;
            }
        }
        self.act_on_gathered(gathered).await;
    }

    /// What is settled makes room for what is offered.
    async fn act_on_gathered(&mut self, gathered: GatheredFrames) {
        self.acknowledge(gathered.acks).await;
        self.confirm(gathered.starts).await;
        self.consider(gathered.offers).await;
    }

    async fn act_on_frame(&mut self, frame: GatewayFrame) {
        match frame {
            GatewayFrame::Control { operation_id, order } => self.carry_out(operation_id, order).await,
            GatewayFrame::Revoke { run_id, attempt, code } => {
                debug!(%run_id, attempt, ?code, "the gateway revoked an attempt");
                self.revoke(run_id, attempt).await;
            }
            GatewayFrame::Recall { runs } => self.recall(runs).await,
            GatewayFrame::Reply { request_id, result } => self.calls.end(request_id, result),
            GatewayFrame::Ticket { run_id, attempt, ticket } => self.tickets.end(run_id, attempt, &ticket),
            GatewayFrame::Ping => self.line.send(DeviceFrame::Pong),
            GatewayFrame::Drain => self.draining = true,
            GatewayFrame::Bye { code, message } => {
                info!(?code, message, "the gateway ended the session");
                if code == ByeCode::Revoked {
                    self.revoke_all().await;
                }
            }
            GatewayFrame::Challenge(_)
            | GatewayFrame::Welcome(_)
            | GatewayFrame::Refused(_)
            | GatewayFrame::Invited { .. }
            | GatewayFrame::Paired { .. } => {
                warn!("a frame of the handshake came after it; ignored");
            }
            GatewayFrame::Offer(_) | GatewayFrame::Start { .. } | GatewayFrame::Ack { .. } => {
                unreachable!("these are gathered, and the first one always fits")
            }
        }
    }

    fn begin_call(
        &mut self,
        by: AskedBy,
        request: ManagementRequest,
        answer: oneshot::Sender<Result<serde_json::Value, CallError>>,
    ) {
        if !self.line.is_up() {
            let _ = answer.send(Err(CallError::NotConnected));
        } else if let Some(frame) = self.calls.begin(by, request, answer) {
            self.line.send(frame);
        }
    }

    fn begin_stop(&mut self, now: bool) {
        self.leaving.cancel();
        match (now, self.stop) {
            (true, StopMode::NotStopping | StopMode::Graceful { .. }) => {
                self.stop = StopMode::Now { until: Instant::now() + EXECUTION_STOP_TIMEOUT };
                self.stop_executions();
            }
            (false, StopMode::NotStopping) => self.stop = StopMode::Graceful { until: None },
            (_, _) => {}
        }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.withheld.reset_after_sleep();
            self.line.send(DeviceFrame::Resume);
        }
    }

    fn abandon_executions(&mut self) {
        self.executions.abort_all();
        if let StopMode::Now { until } = &mut self.stop {
            // An execution that blocks its thread cannot be abandoned yet.
            *until = Instant::now() + EXECUTION_STOP_TIMEOUT;
        }
    }

    fn is_done(&mut self) -> bool {
        match self.stop {
            StopMode::NotStopping => false,
            StopMode::Now { .. } => self.executions.is_empty(),
            StopMode::Graceful { until } => {
                let unsafe_to_leave = |run: &TrackedRun| matches!(run.stage, RunStage::Ended { journalled: false, .. });
                if !self.executions.is_empty() || self.runs.values().any(unsafe_to_leave) {
                    self.stop = StopMode::Graceful { until: None };
                    return false;
                }
                let until = until.unwrap_or_else(|| Instant::now() + SHUTDOWN_GRACE);
                self.stop = StopMode::Graceful { until: Some(until) };
                let waits = |run: &TrackedRun| matches!(run.stage, RunStage::Taken { .. } | RunStage::Ended { .. });
                !self.line.is_up() || Instant::now() >= until || !self.runs.values().any(waits)
            }
        }
    }

    /// What the gateway deletes after this time is deleted here as well, at once and with each sweep.
    async fn note_retention(&mut self, seconds: Option<u64>) {
        match self.settings.set_gateway_retention(seconds).await {
            Ok(()) => self.sweep_at = Instant::now(),
            Err(error) => warn!(%error, "how long the gateway keeps runs could not be noted"),
        }
    }

    /// Timed work: deletes silent conversations, declares withheld slots, repeats failed writes.
    async fn look_after(&mut self) {
        let now = Instant::now();
        if self.sweep_at <= now {
            self.sweep_at = now + TRANSCRIPT_SWEEP_INTERVAL;
            if let Err(error) = self.transcripts.forget_silent().await {
                warn!(%error, "silent conversations could not be forgotten; trying again later");
            }
            if let Err(error) = self.audit.forget_old().await {
                warn!(%error, "the oldest of the audit could not be deleted; trying again later");
            }
        }
        if self.withheld.until().is_some_and(|until| until <= now) {
            self.withheld.release();
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.retry().await;
        }
    }

    fn retry_soon(&mut self) {
        self.retry_at.get_or_insert_with(|| Instant::now() + JOURNAL_RETRY_INTERVAL);
    }
}

async fn changed(unsettled: &mut Option<watch::Receiver<UnsettledCounts>>) {
    let changed = match unsettled {
        Some(unsettled) => unsettled.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending().await
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
