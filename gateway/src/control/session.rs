//! One device, from welcome to goodbye.

use std::time::Duration;

use deskgate_protocol::control::{
    ByeCode, DELTA_LIMIT, DeviceFrame, GatewayFrame, MAX_FULL, MAX_REQUESTS, ManagementResult, MessageDelta, RefuseCode,
};
use deskgate_protocol::management::{AskedBy, ManagementError, ManagementErrorCode, ManagementRequest};
use deskgate_protocol::{EndpointId, RunId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::claims::Room;
use super::door::Door;
use super::handshake::Entered;
use super::pass::{Over, Pass};
use super::recorder::{self, Report, Stopped, Word};
use super::reported::Reported;
use super::wire::Ended;
use super::{claims, events, management, orders};
use crate::domain::devices::Settlement;
use crate::store::Error as StoreError;
use crate::store::attempts::{Record, What};
use crate::store::devices::{HeldRun, SessionKey};
use crate::wake::{Said, Topic};

/// Frames to the device that may wait in the queue.
const OUTGOING: usize = 256;
/// Reports that may wait to be written. When they do, nothing more is read until the recorder has
/// room: it either goes on within a moment or ends the session.
const REPORTS: usize = 128;
/// Slots that a device may declare at once.
const MAX_SLOTS: u32 = 1024;
/// Bytes of a message's identifier.
const MESSAGE_ID: usize = 64;
/// Numbers beyond this are nobody's.
const LAST_SEQ: u64 = 1 << 53;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    #[error("the line ended")]
    Line,
    #[error("{1}")]
    Bye(ByeCode, String),
}

enum Event {
    Frame(Result<DeviceFrame, Ended>),
    Heartbeat,
    DeviceChanged,
    Renewed(Result<bool, StoreError>),
    Recorder(Stopped),
    WriterEnded,
    GatewayStops,
    RequestAnswered,
    Passed(Result<(), Over>),
    Room,
}

/// Runs a session to its end.
pub(super) async fn run(door: &Door, entered: Entered) -> Why {
    let Entered { mut reader, writer, session, grant, held, settlements } = entered;
    let (frames, outgoing) = mpsc::channel(OUTGOING);
    let (reports, reported) = mpsc::channel(REPORTS);
    let (room, declared) = watch::channel(Room::default());
    let mut writing = AbortOnDropHandle::new(tokio::spawn(writer.drain(outgoing, door.clocks.heartbeat * 2)));
    let mut recording =
        AbortOnDropHandle::new(tokio::spawn(recorder::record(door.clone(), session, reported, frames.clone())));
    let claiming = claims::offer(door.clone(), session, declared, frames.clone());
    let claiming = AbortOnDropHandle::new(tokio::spawn(claiming));
    let mut live = Session {
        door,
        session,
        frames: frames.clone(),
        reports,
        room,
        requests: JoinSet::new(),
        reported: Reported::default(),
        pass: Pass::new(grant),
        unanswered_pings: 0,
        asleep_since: None,
    };
    let settled = live.settle(&held, settlements).await;
    let delivering = orders::deliver(door.clone(), session, frames.clone());
    let delivering = AbortOnDropHandle::new(tokio::spawn(delivering));
    let reports = live.reports.clone();

    let mut watcher = door.store.wake().watch(Topic::Session(session.device_id));
    let mut heartbeat = interval_at(Instant::now() + door.clocks.heartbeat, door.clocks.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewal: JoinSet<Result<bool, StoreError>> = JoinSet::new();
    // What changed between the beginning of the session and the watching.
    renewal.spawn(current(door.clone(), session));
    let mut good_until = Instant::now() + door.clocks.lease;
    let mut verdict = settled;
    let why = loop {
        if let Err(why) = verdict {
            break why;
        }
        let event = tokio::select! {
            frame = reader.next(), if reports.capacity() > 0 => Event::Frame(frame),
            _ = reports.reserve(), if reports.capacity() == 0 => Event::Room,
            _ = heartbeat.tick() => Event::Heartbeat,
            () = watcher.changed() => Event::DeviceChanged,
            Some(renewed) = renewal.join_next() => Event::Renewed(renewed.unwrap_or_else(|error| Err(StoreError::Data(error.to_string())))),
            stopped = &mut recording => Event::Recorder(stopped.unwrap_or(Stopped::SessionEnded)),
            _ = &mut writing => Event::WriterEnded,
            Some(_) = live.requests.join_next() => Event::RequestAnswered,
            passed = live.pass.judged() => Event::Passed(passed),
            () = door.stop.cancelled() => Event::GatewayStops,
        };
        verdict = match event {
            Event::Frame(Ok(frame)) => live.take(frame),
            Event::Frame(Err(Ended::Closed)) | Event::WriterEnded => Err(Why::Line),
            Event::Frame(Err(error)) => Err(violation(error.to_string())),
            Event::Heartbeat => {
                renewal.spawn(renew(door.clone(), session));
                live.ping()
            }
            Event::DeviceChanged => {
                renewal.spawn(current(door.clone(), session));
                Ok(())
            }
            Event::Renewed(Ok(true)) => {
                good_until = Instant::now() + door.clocks.lease.saturating_sub(door.clocks.heartbeat);
                Ok(())
            }
            Event::RequestAnswered | Event::Room => Ok(()),
            Event::Passed(passed) => passed.map_err(|over| Why::Bye(ByeCode::SignInExpired, over.to_string())),
            Event::Renewed(Ok(false)) => Err(ended(door, session).await),
            Event::Renewed(Err(error)) if Instant::now() < good_until => {
                tracing::warn!(device_id = %session.device_id, %error, "the session could not be renewed; trying again");
                Ok(())
            }
            Event::Renewed(Err(error)) => Err(Why::Bye(ByeCode::Unavailable, error.to_string())),
            Event::Recorder(Stopped::Replaced) => Err(replaced()),
            Event::Recorder(Stopped::Gap(run_id)) => Err(violation(format!("events of {run_id} are missing"))),
            Event::Recorder(_) => {
                Err(Why::Bye(ByeCode::Unavailable, "the gateway cannot use its database at the moment".to_owned()))
            }
            Event::GatewayStops => live.drain(),
        };
    };
    drop((claiming, delivering));
    live.goodbye(&why).await;
    drop((live, reports, frames));
    // Whatever was reported is still written, and the goodbye still sent, within a moment.
    let _ = timeout(Duration::from_secs(2), async {
        if !recording.is_finished() {
            let _ = (&mut recording).await;
        }
    })
    .await;
    if let Err(error) = door.store.end_session(session).await {
        tracing::debug!(%error, "the end of the session could not be written");
    }
    let _ = timeout(Duration::from_secs(1), async {
        if !writing.is_finished() {
            let _ = (&mut writing).await;
        }
    })
    .await;
    why
}

struct Session<'a> {
    door: &'a Door,
    session: SessionKey,
    frames: mpsc::Sender<GatewayFrame>,
    reports: mpsc::Sender<Report>,
    room: watch::Sender<Room>,
    requests: JoinSet<()>,
    reported: Reported,
    /// How long the line is good, if it is an account's.
    pass: Pass,
    unanswered_pings: u32,
    /// When it announced its sleep.
    asleep_since: Option<Instant>,
}

impl Session<'_> {
    /// Acts on a frame without waiting for anything.
    fn take(&mut self, frame: DeviceFrame) -> Result<(), Why> {
        match frame {
            DeviceFrame::Hello(_) => Err(violation("a second hello".to_owned())),
            DeviceFrame::Pong => self.is_there(),
            DeviceFrame::Suspend => self.fall_asleep(),
            DeviceFrame::Resume => self.awake(),
            DeviceFrame::Ready { slots, full } => self.ready(slots, full),
            DeviceFrame::Accept { run_id, attempt } => self.report(Record { run_id, attempt, what: What::Start }),
            DeviceFrame::Refuse { run_id, attempt, code } => {
                let what = match code {
                    RefuseCode::Busy => What::Return,
                    RefuseCode::DefinitionMismatch => What::Mismatch,
                };
                tracing::info!(%run_id, attempt, ?code, device_id = %self.session.device_id, "offer refused");
                self.report(Record { run_id, attempt, what })
            }
            DeviceFrame::Event { seq, .. } | DeviceFrame::Finish { seq, .. } if !(1..=LAST_SEQ).contains(&seq) => {
                Err(violation(format!("the number {seq}")))
            }
            DeviceFrame::Event { run_id, attempt, seq, event } => {
                self.reported.note(run_id, attempt, seq);
                self.report(Record { run_id, attempt, what: events::written(seq, event) })
            }
            DeviceFrame::Delta { run_id, attempt, delta } => self.pass_on(run_id, attempt, delta),
            DeviceFrame::Finish { run_id, attempt, seq, outcome } => {
                self.reported.forget(run_id);
                self.report(Record { run_id, attempt, what: What::End { seq, outcome } })
            }
            DeviceFrame::Reconciled { run_id, attempt } => {
                self.report(Record { run_id, attempt, what: What::RunAgain })
            }
            DeviceFrame::ControlDone { operation_id, outcome } => {
                self.queue(Report::Word(Word::Done(operation_id, outcome)))
            }
            DeviceFrame::Token { access_token } => match &self.door.judge {
                Some(judge) if self.pass.present(judge.clone(), access_token) => Ok(()),
                _ => Err(violation("a token that nobody waits for".to_owned())),
            },
            DeviceFrame::Request { request_id, by, request } => self.answer(request_id, by, request),
        }
    }

    /// Whoever still answers a lease after it announced its sleep does not sleep.
    fn is_there(&mut self) -> Result<(), Why> {
        self.unanswered_pings = 0;
        if self.asleep_since.is_some_and(|since| since.elapsed() > self.door.clocks.lease) {
            return self.awake();
        }
        Ok(())
    }

    fn fall_asleep(&mut self) -> Result<(), Why> {
        self.asleep_since = Some(Instant::now());
        self.queue(Report::Word(Word::Asleep))
    }

    fn awake(&mut self) -> Result<(), Why> {
        self.asleep_since = None;
        self.queue(Report::Word(Word::Awake))
    }

    fn ready(&mut self, slots: u32, full: Vec<EndpointId>) -> Result<(), Why> {
        if slots > MAX_SLOTS || full.len() > MAX_FULL {
            return Err(violation(format!("{slots} slots at once, and {} full services", full.len())));
        }
        self.room.send_modify(|room| *room = Room { slots: room.slots + u64::from(slots), full });
        Ok(())
    }

    /// Whether the run is this device's is asked where somebody listens.
    fn pass_on(&self, run_id: RunId, attempt: u32, delta: MessageDelta) -> Result<(), Why> {
        if delta.text.len() > DELTA_LIMIT || delta.message_id.len() > MESSAGE_ID {
            return Err(violation("a piece of a message that is too long".to_owned()));
        }
        let after = self.reported.of(run_id, attempt);
        self.door.store.wake().said(Said { device_id: self.session.device_id, run_id, attempt, after, delta });
        Ok(())
    }

    fn report(&mut self, record: Record) -> Result<(), Why> {
        self.queue(Report::Run(record))
    }

    fn queue(&mut self, report: Report) -> Result<(), Why> {
        self.reports.try_send(report).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => violation("a report that there was no room for".to_owned()),
            mpsc::error::TrySendError::Closed(_) => Why::Line,
        })
    }

    fn answer(&mut self, request_id: u64, by: AskedBy, request: ManagementRequest) -> Result<(), Why> {
        if self.requests.len() >= MAX_REQUESTS {
            let message = format!("{MAX_REQUESTS} requests are under way already; try again when one is answered");
            let error = ManagementError { code: ManagementErrorCode::Conflict, message };
            self.say(GatewayFrame::Reply { request_id, result: ManagementResult::Error(error) });
            return Ok(());
        }
        let desktop = self.door.desktop(self.session.device_id).asked_by(by);
        let frames = self.frames.clone();
        self.requests.spawn(async move {
            let result = management::answer(desktop, request).await;
            // A session that ended needs no answer.
            let _ = frames.send(GatewayFrame::Reply { request_id, result }).await;
        });
        Ok(())
    }

    /// What is to be done about the runs that the device held when it came.
    async fn settle(&mut self, held: &[HeldRun], settlements: Vec<(RunId, u32, Settlement)>) -> Result<(), Why> {
        for (run_id, attempt, settlement) in settlements {
            let stored = held.iter().find(|run| run.run_id == run_id).map_or(0, |run| run.device_seq);
            self.reported.note(run_id, attempt, stored);
            let ack = GatewayFrame::Ack { run_id, attempt, through: stored };
            let what = match settlement {
                Settlement::Start { in_doubt: false } => What::Start,
                Settlement::Start { in_doubt: true } => {
                    self.note(Record { run_id, attempt, what: What::Reconcile }).await;
                    What::Start
                }
                Settlement::Return => What::Return,
                Settlement::Restart => What::Restart,
                Settlement::OfferAgain { in_doubt } => {
                    if in_doubt {
                        self.note(Record { run_id, attempt, what: What::Reconcile }).await;
                    }
                    let unavailable = |error: StoreError| Why::Bye(ByeCode::Unavailable, error.to_string());
                    let offer = self.door.store.offer(self.session, run_id).await.map_err(unavailable)?;
                    if let Some(offer) = offer {
                        self.say_in_turn(GatewayFrame::Offer(offer)).await;
                    }
                    continue;
                }
                Settlement::Cancel { held } => What::Cancel { held },
                Settlement::Lose => What::Lose,
                Settlement::Resume { in_doubt: true } => {
                    self.say_in_turn(ack).await;
                    What::Reconcile
                }
                Settlement::Unknown => {
                    self.say_in_turn(ack).await;
                    What::Unknown
                }
                Settlement::Resume { in_doubt: false } | Settlement::ExpectFinish => {
                    self.say_in_turn(ack).await;
                    continue;
                }
                Settlement::Revoke(code) => {
                    self.say_in_turn(GatewayFrame::Revoke { run_id, attempt, code }).await;
                    continue;
                }
            };
            self.note(Record { run_id, attempt, what }).await;
        }
        Ok(())
    }

    /// Queues a record when there is room. Only before anything is read: the recorder makes the room.
    async fn note(&self, record: Record) {
        // A recorder that ended ends the session too.
        let _ = self.reports.send(Report::Run(record)).await;
    }

    /// Queues a frame when there is room. Only before anything is read: the writer makes the room.
    async fn say_in_turn(&self, frame: GatewayFrame) {
        // A writer that ended ends the session too.
        let _ = self.frames.send(frame).await;
    }

    fn ping(&mut self) -> Result<(), Why> {
        if self.unanswered_pings >= 2 {
            return Err(Why::Bye(ByeCode::Unresponsive, "two pings were not answered".to_owned()));
        }
        self.unanswered_pings += 1;
        self.say(GatewayFrame::Ping);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Why> {
        self.say(GatewayFrame::Drain);
        Err(Why::Bye(ByeCode::Unavailable, "the gateway stops".to_owned()))
    }

    async fn goodbye(&mut self, why: &Why) {
        if let Why::Bye(code, message) = why {
            let bye = GatewayFrame::Bye { code: *code, message: message.clone() };
            let _ = timeout(Duration::from_secs(1), self.frames.send(bye)).await;
        }
    }

    /// Queues a frame. A queue that is full belongs to a device that does not read, which the
    /// pings will find out.
    fn say(&self, frame: GatewayFrame) {
        let _ = self.frames.try_send(frame);
    }
}

async fn renew(door: Door, session: SessionKey) -> Result<bool, StoreError> {
    door.store.renew_session(session, door.clocks.lease).await
}

async fn current(door: Door, session: SessionKey) -> Result<bool, StoreError> {
    door.store.session_is_current(session).await
}

/// Why a session is not current any more.
async fn ended(door: &Door, session: SessionKey) -> Why {
    match door.store.device(session.device_id).await {
        Ok(Some(device)) if device.revoked_at.is_none() && device.epoch == session.epoch => {
            Why::Bye(ByeCode::Unavailable, "the session's lease ran out before it was renewed".to_owned())
        }
        Ok(Some(device)) if device.revoked_at.is_some() => {
            Why::Bye(ByeCode::Revoked, "this device was removed from the gateway".to_owned())
        }
        _ => replaced(),
    }
}

fn replaced() -> Why {
    Why::Bye(ByeCode::Replaced, "a newer session with this device's key took over".to_owned())
}

fn violation(message: String) -> Why {
    Why::Bye(ByeCode::ProtocolViolation, message)
}
