//! Performs what `turn` decides: calls the model, runs tools, sends events, watches stop and time.
//!
//! Nothing is spawned here. The model's stream and the tool's future live in this future and end
//! with it; a tool that works on a thread of its own is told to stop when its future is dropped.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::run::{Input, Outcome};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::pieces::Pieces;
use super::turn::{Effect, Event, Turn};
use super::{Exchange, Progress};
use crate::assistant::{Assistant, ModelEvent};
use crate::tools::{ToolResult, Toolbox};

/// How long a stopped tool may take to end before the run ends without it. Only a system call that
/// hangs, as on a dead network mount, takes so long; a tool that only reads has no effect then.
const TOOL_GRACE: Duration = Duration::from_secs(2);

/// When the run began and when its time is over, in awake time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
}

impl Clock {
    pub(super) fn elapsed(self) -> Duration {
        self.started.elapsed()
    }
}

/// Drives a turn to its outcome. A panic of a part ends the run like any other failure.
pub(super) async fn run(
    mut turn: Turn,
    toolbox: &Toolbox,
    assistant: &dyn Assistant,
    clock: Clock,
    reports: &mpsc::Sender<Progress>,
    stop: &CancellationToken,
) -> Outcome {
    let drive = Drive {
        toolbox,
        assistant,
        clock,
        reports,
        pieces: Pieces::default(),
        stop,
        tools_stop: CancellationToken::new(),
        deadline: Box::pin(sleep_until(clock.deadline)),
        doing: Doing::Nothing,
    };
    // Nothing of the drive is used after a panic, and the turn is only asked for its end.
    match AssertUnwindSafe(drive.until_finished(&mut turn)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_panic) => turn.broken(clock.elapsed()),
    }
}

struct Drive<'a> {
    toolbox: &'a Toolbox,
    assistant: &'a dyn Assistant,
    clock: Clock,
    reports: &'a mpsc::Sender<Progress>,
    pieces: Pieces,
    stop: &'a CancellationToken,
    tools_stop: CancellationToken,
    deadline: Pin<Box<Sleep>>,
    doing: Doing,
}

/// What is under way: one thing at a time.
enum Doing {
    Nothing,
    Model(BoxStream<'static, ModelEvent>),
    Tool(BoxFuture<'static, ToolResult>),
    Pause(Pin<Box<Sleep>>),
}

impl Drive<'_> {
    async fn until_finished(mut self, turn: &mut Turn) -> Outcome {
        let mut event = Event::Started;
        loop {
            for effect in turn.on(event, self.clock.elapsed()) {
                match effect {
                    Effect::CallModel(request) => self.doing = Doing::Model(self.assistant.respond(request)),
                    Effect::RetryIn(pause) => self.doing = Doing::Pause(Box::pin(tokio::time::sleep(pause))),
                    Effect::RunTool { name, arguments } => {
                        self.doing = Doing::Tool(self.toolbox.call(&name, arguments, self.tools_stop.clone()));
                    }
                    Effect::Say(piece) => self.pieces.add(piece),
                    Effect::Emit(event) => self.report(Progress::Event(event)).await,
                    Effect::Remember { said, answer } => {
                        let request = Input { text: said, more: serde_json::Map::new() };
                        self.report(Progress::Summary(Exchange { request, answer })).await;
                    }
                    Effect::Finish(outcome) => {
                        self.wind_up().await;
                        return outcome;
                    }
                }
            }
            event = self.next_event().await;
        }
    }

    /// Stop and deadline come first: whatever was only planned then never begins.
    async fn next_event(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Event::Stop,
                () = &mut self.deadline => return Event::Deadline,
                () = self.pieces.due() => {
                    let pieces = self.pieces.take();
                    self.say(pieces);
                }
                event = self.doing.next_event() => return event,
            }
        }
    }

    /// Drops what there is no room for.
    fn say(&self, pieces: Vec<MessageDelta>) {
        for piece in pieces {
            let _ = self.reports.try_send(Progress::Delta(piece));
        }
    }

    /// Waits for room, but neither beyond a stop nor beyond the run's time.
    async fn report(&mut self, report: Progress) {
        if let Progress::Event(DeviceEvent::MessageCompleted { .. }) = report {
            let rest = self.pieces.finish();
            self.say(rest);
        }
        let Err(mpsc::error::TrySendError::Full(report)) = self.reports.try_send(report) else { return };
        tokio::select! {
            biased;
            // Nobody listens any more: the outcome is still made, for whoever asks for it.
            _ = self.reports.send(report) => {}
            () = self.stop.cancelled() => {}
            () = sleep_until(self.clock.deadline) => {}
        }
    }

    /// Ends what is under way, and sees a tool out.
    async fn wind_up(&mut self) {
        self.tools_stop.cancel();
        let Doing::Tool(tool) = std::mem::replace(&mut self.doing, Doing::Nothing) else { return };
        // The outcome is decided: a panic of the tool changes nothing any more.
        let tool = AssertUnwindSafe(tool).catch_unwind();
        if tokio::time::timeout(TOOL_GRACE, tool).await.is_err() {
            tracing::warn!("a tool does not end after it was stopped: the file system may hang");
        }
    }
}

impl Doing {
    async fn next_event(&mut self) -> Event {
        let event = match self {
            // The turn has always asked for something before it waits.
            Self::Nothing => std::future::pending().await,
            Self::Model(stream) => match stream.next().await {
                Some(event) => return Event::Model(event),
                None => Event::ModelClosed,
            },
            Self::Tool(tool) => Event::ToolFinished(tool.await),
            Self::Pause(pause) => {
                pause.await;
                Event::RetryDue
            }
        };
        *self = Self::Nothing;
        event
    }
}
