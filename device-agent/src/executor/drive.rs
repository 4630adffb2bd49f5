//! Performs the effects that `turn` decides: model calls, questions to people, tools, events, stop and time limit.
//!
//! No task is spawned here. The model's stream and the tools' futures are part of this future and end with it; a tool on
//! its own thread is stopped when its future is dropped.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{Assistant, ModelEvent, ModelRequest};
use deskgate_definition::tool::ToolOutput;
use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::run::{Input, Outcome};
use deskgate_schema::DataSchema;
use deskgate_tools::Toolbox;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::delta_buffer::DeltaBuffer;
use super::recorder::RunRecorder;
use super::turn::{Turn, TurnEffect, TurnEvent};
use super::{Exchange, Progress};

/// How long stopped tools may take to end before the run ends without it. A command gets a request to end and is
/// killed two seconds later; only a system call that hangs, as on a dead network mount, takes longer. A tool that only
/// reads has no effect then; for one that writes, the outcome records that it may have had one.
const TOOL_GRACE: Duration = Duration::from_secs(3);

/// When the run began and when its time is over, in awake time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
}

impl RunClock {
    pub(super) fn elapsed(self) -> Duration {
        self.started.elapsed()
    }

    /// The limit of the run's time.
    pub(super) fn limit(self) -> Duration {
        self.deadline - self.started
    }

    /// Excludes a pause during which a person was asked.
    fn stand_still(&mut self, pause: Duration) {
        self.started += pause;
        self.deadline += pause;
    }
}

/// Drives a turn to its outcome. A panic in a part ends the run like any other failure.
pub(super) async fn run(
    mut turn: Turn,
    toolbox: &Toolbox,
    assistant: &dyn Assistant,
    record: &RunRecorder,
    clock: RunClock,
    reports: &mpsc::Sender<Progress>,
    stop: &CancellationToken,
) -> Outcome {
    let mut drive = RunDriver {
        toolbox,
        assistant,
        record,
        clock,
        reports,
        untold: None,
        pieces: DeltaBuffer::default(),
        stop,
        tools_stop: CancellationToken::new(),
        deadline: Box::pin(sleep_until(clock.deadline)),
        doing: Activity::Nothing,
        tools: FuturesUnordered::new(),
    };
    // After a panic the drive is not used again, and the turn only gives its end.
    match AssertUnwindSafe(drive.until_finished(&mut turn)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_panic) => turn.broken(drive.clock.elapsed()),
    }
}

struct RunDriver<'a> {
    toolbox: &'a Toolbox,
    assistant: &'a dyn Assistant,
    record: &'a RunRecorder,
    clock: RunClock,
    reports: &'a mpsc::Sender<Progress>,
    /// The request that a person is asked about, while the queue has no slot to report it.
    untold: Option<Progress>,
    pieces: DeltaBuffer,
    stop: &'a CancellationToken,
    tools_stop: CancellationToken,
    deadline: Pin<Box<Sleep>>,
    doing: Activity,
    /// The calls that run, beside it.
    tools: FuturesUnordered<BoxFuture<'static, TurnEvent>>,
}

/// The current activity beside running tools; there is one at a time.
enum Activity {
    Nothing,
    Model(BoxStream<'static, ModelEvent>),
    /// Planning a call, or a write to the journal.
    Step(BoxFuture<'static, TurnEvent>),
    /// A person is asked.
    Asking(BoxFuture<'static, TurnEvent>),
    Pause(Pin<Box<Sleep>>),
}

impl RunDriver<'_> {
    async fn until_finished(&mut self, turn: &mut Turn) -> Outcome {
        let mut event = TurnEvent::Started;
        // How many tokens the next model call may write by the budgets of the month, or what happens in its place.
        let mut reserved = Ok(u64::MAX);
        loop {
            let effects = turn.on(event, self.clock.elapsed());
            if self.tools.is_empty() && effects.iter().any(|effect| matches!(effect, TurnEffect::Finish(_))) {
                // Without it the last events are sent before the outcome, and not with it.
                let _ = self.reports.try_send(Progress::Ends);
            }
            for effect in effects {
                match effect {
                    TurnEffect::Reserve(expected) => reserved = self.record.reserve(expected).await,
                    TurnEffect::CallModel(request) => {
                        self.doing = self.call_model(request, std::mem::replace(&mut reserved, Ok(u64::MAX)));
                    }
                    TurnEffect::RetryIn(pause) => {
                        self.doing = Activity::Pause(Box::pin(tokio::time::sleep(jittered(pause))))
                    }
                    TurnEffect::Plan { tool, arguments, again } => {
                        self.doing = Activity::Step(self.plan(&tool, &arguments, again));
                    }
                    TurnEffect::Ask(request) => self.doing = Activity::Step(self.record.ask(request)),
                    TurnEffect::AwaitAnswer(approval_id) => {
                        self.doing = Activity::Asking(self.record.answer(approval_id))
                    }
                    TurnEffect::Withdraw(approval_id) => {
                        let resolution = self.record.withdraw(approval_id).await;
                        self.report(Progress::Event(DeviceEvent::ApprovalResolved { approval_id, resolution })).await;
                    }
                    TurnEffect::NotDone { approval_id, why } => self.record.not_done(approval_id, why).await,
                    TurnEffect::Begin { call, basis } => self.doing = Activity::Step(self.record.begin(call, basis)),
                    TurnEffect::Note { call_id, ok } => self.doing = Activity::Step(self.record.note(call_id, ok)),
                    TurnEffect::RunTool { call_id, name, arguments } => {
                        let call = self.toolbox.call(&name, arguments, self.tools_stop.clone());
                        self.tools.push(call.map(|result| TurnEvent::ToolFinished { call_id, result }).boxed());
                    }
                    TurnEffect::CheckData { schema, data } => self.doing = Activity::Step(check(schema, data)),
                    TurnEffect::Say(piece) => self.pieces.add(piece),
                    TurnEffect::KeepCall(call) => self.record.keep_call(*call).await,
                    TurnEffect::Emit(event) => self.report(Progress::Event(event)).await,
                    TurnEffect::Spent(spent) => self.record.spend(spent).await,
                    TurnEffect::KeepFailure(error) => self.record.keep_failure(*error).await,
                    TurnEffect::Remember { said, answer } => {
                        let request = Input { text: said, more: serde_json::Map::new() };
                        self.report(Progress::Summary(Exchange { request, answer })).await;
                    }
                    TurnEffect::Finish(outcome) => {
                        self.wind_up().await;
                        return outcome;
                    }
                }
            }
            event = self.next_event().await;
        }
    }

    /// Calls the model, as far as it was allowed.
    fn call_model(&self, mut request: ModelRequest, reserved: Result<u64, TurnEvent>) -> Activity {
        match reserved {
            Ok(u64::MAX) => Activity::Model(self.assistant.respond(request)),
            Ok(room) => {
                request.max_output_tokens = Some(request.max_output_tokens.map_or(room, |most| most.min(room)));
                Activity::Model(self.assistant.respond(request))
            }
            Err(instead) => Activity::Step(std::future::ready(instead).boxed()),
        }
    }

    /// The tool's plan for a call. The turn has answered unknown tool names before.
    fn plan(&self, tool: &str, arguments: &serde_json::Value, again: bool) -> BoxFuture<'static, TurnEvent> {
        let plan = if again { self.toolbox.plan_again(tool, arguments) } else { self.toolbox.plan(tool, arguments) };
        match plan {
            Some(plan) => plan.map(TurnEvent::Planned).boxed(),
            None => std::future::ready(TurnEvent::Planned(Err(ToolOutput::error("There is no such tool.")))).boxed(),
        }
    }

    /// Stop and deadline come first: a call that was only planned then never begins. While a person is asked, the run's
    /// time stands still.
    async fn next_event(&mut self) -> TurnEvent {
        let (asks, since) = (matches!(self.doing, Activity::Asking(_)), Instant::now());
        let event = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break TurnEvent::Stop,
                () = &mut self.deadline, if !asks => break TurnEvent::Deadline,
                Ok(room) = self.reports.reserve(), if self.untold.is_some() => {
                    if let Some(report) = self.untold.take() {
                        room.send(report);
                    }
                }
                () = self.pieces.due() => {
                    let pieces = self.pieces.take();
                    self.say(pieces);
                }
                Some(event) = self.tools.next() => break event,
                event = self.doing.next_event() => break event,
            }
        };
        if asks {
            self.clock.stand_still(since.elapsed());
            self.deadline.as_mut().reset(self.clock.deadline);
        }
        event
    }

    /// Drops pieces that do not fit into the queue.
    fn say(&self, pieces: Vec<MessageDelta>) {
        for piece in pieces {
            let _ = self.reports.try_send(Progress::Delta(piece));
        }
    }

    /// Waits for a slot in the queue, but not beyond a stop or the run's time. The report that a person is asked is
    /// sent while the question waits, when the run's time stands still.
    async fn report(&mut self, report: Progress) {
        if let Progress::Event(DeviceEvent::MessageCompleted { .. }) = report {
            let rest = self.pieces.finish();
            self.say(rest);
        }
        if let Some(before) = self.untold.take() {
            self.wait_for_room(before).await;
        }
        let Err(mpsc::error::TrySendError::Full(report)) = self.reports.try_send(report) else { return };
        match report {
            Progress::Event(DeviceEvent::ApprovalRequested { .. }) => self.untold = Some(report),
            _ => self.wait_for_room(report).await,
        }
    }

    async fn wait_for_room(&mut self, report: Progress) {
        tokio::select! {
            biased;
            // The receiver is gone: the outcome is still made, for the caller.
            _ = self.reports.send(report) => {}
            () = self.stop.cancelled() => {}
            () = sleep_until(self.clock.deadline) => {}
        }
    }

    /// Ends the current activity, and waits for the tools to end.
    async fn wind_up(&mut self) {
        self.tools_stop.cancel();
        self.doing = Activity::Nothing;
        // The outcome is decided: a panic of a tool no longer matters.
        let tools = std::mem::take(&mut self.tools).into_iter().map(|tool| AssertUnwindSafe(tool).catch_unwind());
        if tokio::time::timeout(TOOL_GRACE, futures_util::future::join_all(tools)).await.is_err() {
            tracing::warn!("a tool does not end after it was stopped: the file system may hang");
        }
    }
}

/// Checks data beside the tasks that serve: it may take a while. Nothing of it can hang.
fn check(schema: Arc<DataSchema>, data: serde_json::Value) -> BoxFuture<'static, TurnEvent> {
    let checking = tokio::task::spawn_blocking(move || schema.check(&data));
    checking.map(|checked| TurnEvent::Checked(checked.unwrap_or_else(|panic| panic!("a check: {panic}")))).boxed()
}

/// Up to a quarter longer, so that many runs do not come back to a provider at the same moment.
fn jittered(pause: Duration) -> Duration {
    pause + pause.mul_f64(rand::random::<f64>() / 4.0)
}

impl Activity {
    async fn next_event(&mut self) -> TurnEvent {
        let event = match self {
            // The turn always requests something before it waits.
            Self::Nothing => std::future::pending().await,
            Self::Model(stream) => match stream.next().await {
                Some(event) => return TurnEvent::Model(event),
                None => TurnEvent::ModelClosed,
            },
            Self::Step(step) | Self::Asking(step) => step.await,
            Self::Pause(pause) => {
                pause.await;
                TurnEvent::RetryDue
            }
        };
        *self = Self::Nothing;
        event
    }
}
