//! One device's session, from welcome to goodbye.

use std::time::Duration;

use deskgate_protocol::control::{
    ByeCode, DeviceFrame, GatewayFrame, MAX_CONCURRENT_REQUESTS, MAX_DELTA_BYTES, MAX_RECALLED_RUNS, ManagementResult,
    MessageDelta, RefuseCode, ServicePlaces,
};
use deskgate_protocol::management::{AskedBy, ManagementError, ManagementErrorCode, ManagementRequest};
use deskgate_protocol::receipt::jws::looks_like_receipt;
use deskgate_protocol::{EndpointId, RunId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::capacity::DeviceCapacity;
use super::credential::{CredentialEnd, CredentialLifetime};
use super::handshake::AdmittedDevice;
use super::progress::ReportProgress;
use super::recorder::{self, DeviceNotice, DeviceReport, RecorderError};
use super::service::ControlService;
use super::wire::WireError;
use super::{claims, events, management, orders, recalls};
use crate::domain::devices::Settlement;
use crate::notify::{MessagePiece, Topic};
use crate::store::Error as StoreError;
use crate::store::artifacts::HeldAttempt;
use crate::store::attempts::{AttemptRecord, AttemptUpdate};
use crate::store::leases::{HeldRun, SessionKey};

/// Frames to the device that may wait in the queue.
const OUTGOING_CAPACITY: usize = 256;
/// Reports that may wait to be written. When the queue is full, no frame is read until the recorder has space: within a
/// moment it either goes on or ends the session.
const REPORT_CAPACITY: usize = 128;
/// Bytes of a message's identifier.
const MAX_MESSAGE_ID_BYTES: usize = 64;
/// Larger numbers are never valid.
const MAX_SEQ: u64 = 1 << 53;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error("the line ended")]
    Line,
    #[error("{1}")]
    Bye(ByeCode, String),
}

enum SessionEvent {
    Frame(Result<DeviceFrame, WireError>),
    Heartbeat,
    DeviceChanged,
    Renewed(Result<bool, StoreError>),
    Recorder(RecorderError),
    WriterEnded,
    GatewayStops,
    RequestAnswered,
    Passed(Result<(), CredentialEnd>),
    Room,
}

/// Runs a session to its end.
pub(super) async fn run(service: &ControlService, entered: AdmittedDevice) -> SessionEnd {
    let AdmittedDevice { mut reader, writer, session, grant, held, settlements, may_recall } = entered;
    let (frames, outgoing) = mpsc::channel(OUTGOING_CAPACITY);
    let (reports, reported) = mpsc::channel(REPORT_CAPACITY);
    let (room, declared) = watch::channel(DeviceCapacity::default());
    let mut writing = AbortOnDropHandle::new(tokio::spawn(writer.drain(outgoing, service.clocks.heartbeat * 2)));
    let mut recording =
        AbortOnDropHandle::new(tokio::spawn(recorder::record(service.clone(), session, reported, frames.clone())));
    let claiming = claims::offer(service.clone(), session, declared, frames.clone());
    let claiming = AbortOnDropHandle::new(tokio::spawn(claiming));
    let mut live = DeviceSession {
        service,
        session,
        frames: frames.clone(),
        reports,
        room,
        requests: JoinSet::new(),
        reported: ReportProgress::default(),
        pass: CredentialLifetime::new(grant),
        unanswered_pings: 0,
        asleep_since: None,
        may_recall,
    };
    let settled = live.settle(&held, settlements).await;
    let delivering = orders::deliver(service.clone(), session, frames.clone());
    let delivering = AbortOnDropHandle::new(tokio::spawn(delivering));
    let recalling = recalls::ask(service.clone(), session, frames.clone());
    let recalling = may_recall.then(|| AbortOnDropHandle::new(tokio::spawn(recalling)));
    let reports = live.reports.clone();

    let mut watcher = service.store.notifier().watch(Topic::Session(session.device_id));
    let mut heartbeat = interval_at(Instant::now() + service.clocks.heartbeat, service.clocks.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewal: JoinSet<Result<bool, StoreError>> = JoinSet::new();
    // Changes between the start of the session and the registration of the watcher.
    renewal.spawn(current(service.clone(), session));
    let mut good_until = Instant::now() + service.clocks.lease;
    let mut verdict = settled;
    let why = loop {
        if let Err(why) = verdict {
            break why;
        }
        let event = tokio::select! {
            frame = reader.next(), if reports.capacity() > 0 => SessionEvent::Frame(frame),
            _ = reports.reserve(), if reports.capacity() == 0 => SessionEvent::Room,
            _ = heartbeat.tick() => SessionEvent::Heartbeat,
            () = watcher.changed() => SessionEvent::DeviceChanged,
            Some(renewed) = renewal.join_next() => SessionEvent::Renewed(renewed.unwrap_or_else(|error| Err(StoreError::Data(error.to_string())))),
            stopped = &mut recording => SessionEvent::Recorder(stopped.unwrap_or(RecorderError::SessionEnded)),
            _ = &mut writing => SessionEvent::WriterEnded,
            Some(_) = live.requests.join_next() => SessionEvent::RequestAnswered,
            passed = live.pass.next_result() => SessionEvent::Passed(passed),
            () = service.stop.cancelled() => SessionEvent::GatewayStops,
        };
        verdict = match event {
            SessionEvent::Frame(Ok(frame)) => live.take(frame),
            SessionEvent::Frame(Err(WireError::Closed)) | SessionEvent::WriterEnded => Err(SessionEnd::Line),
            SessionEvent::Frame(Err(error)) => Err(violation(error.to_string())),
            SessionEvent::Heartbeat => {
                renewal.spawn(renew(service.clone(), session));
                live.ping()
            }
            SessionEvent::DeviceChanged => {
                renewal.spawn(current(service.clone(), session));
                Ok(())
            }
            SessionEvent::Renewed(Ok(true)) => {
                good_until = Instant::now() + service.clocks.lease.saturating_sub(service.clocks.heartbeat);
                Ok(())
            }
            SessionEvent::RequestAnswered | SessionEvent::Room => Ok(()),
            SessionEvent::Passed(passed) => {
                passed.map_err(|over| SessionEnd::Bye(ByeCode::SignInExpired, over.to_string()))
            }
            SessionEvent::Renewed(Ok(false)) => Err(ended(service, session).await),
            SessionEvent::Renewed(Err(error)) if Instant::now() < good_until => {
                tracing::warn!(device_id = %session.device_id, %error, "the session could not be renewed; trying again");
                Ok(())
            }
            SessionEvent::Renewed(Err(error)) => Err(SessionEnd::Bye(ByeCode::Unavailable, error.to_string())),
            SessionEvent::Recorder(RecorderError::Replaced) => Err(replaced()),
            SessionEvent::Recorder(RecorderError::Gap(run_id)) => {
                Err(violation(format!("events of {run_id} are missing")))
            }
            SessionEvent::Recorder(_) => Err(SessionEnd::Bye(
                ByeCode::Unavailable,
                "the gateway cannot use its database at the moment".to_owned(),
            )),
            SessionEvent::GatewayStops => live.drain(),
        };
    };
    drop((claiming, delivering, recalling));
    live.goodbye(&why).await;
    drop((live, reports, frames));
    // Pending reports are still written, and the goodbye still sent, within a moment.
    let _ = timeout(Duration::from_secs(2), async {
        if !recording.is_finished() {
            let _ = (&mut recording).await;
        }
    })
    .await;
    if let Err(error) = service.store.end_session(session).await {
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

struct DeviceSession<'a> {
    service: &'a ControlService,
    session: SessionKey,
    frames: mpsc::Sender<GatewayFrame>,
    reports: mpsc::Sender<DeviceReport>,
    room: watch::Sender<DeviceCapacity>,
    requests: JoinSet<()>,
    reported: ReportProgress,
    /// The connection's lifetime, if it belongs to an account.
    pass: CredentialLifetime,
    unanswered_pings: u32,
    /// When it announced its sleep.
    asleep_since: Option<Instant>,
    /// Whether the word of its journal counts for runs of before a restore.
    may_recall: bool,
}

impl DeviceSession<'_> {
    /// Handles a frame without waiting for anything.
    fn take(&mut self, frame: DeviceFrame) -> Result<(), SessionEnd> {
        match frame {
            DeviceFrame::Hello(_) => Err(violation("a second hello".to_owned())),
            DeviceFrame::Pong => self.is_there(),
            DeviceFrame::Suspend => self.fall_asleep(),
            DeviceFrame::Resume => self.awake(),
            DeviceFrame::Ready { slots, places, full } => self.ready(slots, &places, full),
            DeviceFrame::Accept { run_id, attempt } => {
                self.report(AttemptRecord { run_id, attempt, what: AttemptUpdate::Start })
            }
            DeviceFrame::Refuse { run_id, attempt, code } => {
                let what = match code {
                    RefuseCode::Busy => AttemptUpdate::Return,
                    RefuseCode::DefinitionMismatch => AttemptUpdate::Mismatch,
                };
                tracing::info!(%run_id, attempt, ?code, device_id = %self.session.device_id, "offer refused");
                self.report(AttemptRecord { run_id, attempt, what })
            }
            DeviceFrame::Event { seq, .. } | DeviceFrame::Finish { seq, .. } if !(1..=MAX_SEQ).contains(&seq) => {
                Err(violation(format!("the number {seq}")))
            }
            DeviceFrame::Event { run_id, attempt, seq, event } => {
                self.reported.note(run_id, attempt, seq);
                self.report(AttemptRecord { run_id, attempt, what: events::stored_update(seq, event) })
            }
            DeviceFrame::Delta { run_id, attempt, delta } => self.pass_on(run_id, attempt, delta),
            DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt } => {
                self.reported.forget(run_id);
                let receipt = self.plausible(run_id, receipt);
                self.report(AttemptRecord {
                    run_id,
                    attempt,
                    what: AttemptUpdate::End { seq, outcome, is_checked: false, receipt },
                })
            }
            DeviceFrame::Reconciled { run_id, attempt } => {
                self.report(AttemptRecord { run_id, attempt, what: AttemptUpdate::RunAgain })
            }
            DeviceFrame::Recalled { never_had } if !self.may_recall || never_had.len() > MAX_RECALLED_RUNS => {
                Err(violation("an answer about runs that nobody asked for".to_owned()))
            }
            DeviceFrame::Recalled { never_had } => self.queue(DeviceReport::Word(DeviceNotice::NeverHad(never_had))),
            DeviceFrame::ControlDone { operation_id, outcome } => {
                self.queue(DeviceReport::Word(DeviceNotice::Done(operation_id, outcome)))
            }
            DeviceFrame::RequestTicket { run_id, attempt } => {
                let held = HeldAttempt { device_id: self.session.device_id, run_id, attempt };
                // Whether it holds is judged when it is used.
                self.say(GatewayFrame::Ticket { run_id, attempt, ticket: self.service.transfers.ticket(&held) });
                Ok(())
            }
            DeviceFrame::Token { access_token } => match &self.service.verifier {
                Some(verifier) if self.pass.present(verifier.clone(), access_token) => Ok(()),
                _ => Err(violation("a token that nobody waits for".to_owned())),
            },
            DeviceFrame::Request { request_id, by, request } => self.answer(request_id, by, request),
        }
    }

    /// A receipt is kept and passed on, and judged by whoever asked for the run. What is none is dropped.
    fn plausible(&self, run_id: RunId, receipt: Option<String>) -> Option<String> {
        let plausible = receipt.as_deref().is_none_or(looks_like_receipt);
        if !plausible {
            tracing::warn!(%run_id, device_id = %self.session.device_id, "the device sent a receipt that is none; dropped");
        }
        receipt.filter(|_| plausible)
    }

    /// A device that answers a lease after it announced its sleep is awake.
    fn is_there(&mut self) -> Result<(), SessionEnd> {
        self.unanswered_pings = 0;
        if self.asleep_since.is_some_and(|since| since.elapsed() > self.service.clocks.lease) {
            return self.awake();
        }
        Ok(())
    }

    fn fall_asleep(&mut self) -> Result<(), SessionEnd> {
        self.asleep_since = Some(Instant::now());
        self.queue(DeviceReport::Word(DeviceNotice::Asleep))
    }

    fn awake(&mut self) -> Result<(), SessionEnd> {
        self.asleep_since = None;
        self.queue(DeviceReport::Word(DeviceNotice::Awake))
    }

    fn ready(&mut self, slots: u32, places: &[ServicePlaces], full: Vec<EndpointId>) -> Result<(), SessionEnd> {
        let mut added = Ok(());
        self.room.send_modify(|capacity| added = capacity.add(slots, places, full));
        added.map_err(violation)
    }

    /// Forwards a piece of a message. The feeds of listening streams check that the run is this device's.
    fn pass_on(&self, run_id: RunId, attempt: u32, delta: MessageDelta) -> Result<(), SessionEnd> {
        if delta.text.len() > MAX_DELTA_BYTES || delta.message_id.len() > MAX_MESSAGE_ID_BYTES {
            return Err(violation("a piece of a message that is too long".to_owned()));
        }
        let after = self.reported.of(run_id, attempt);
        self.service.store.notifier().publish_piece(MessagePiece {
            device_id: self.session.device_id,
            run_id,
            attempt,
            after,
            delta,
        });
        Ok(())
    }

    fn report(&mut self, record: AttemptRecord) -> Result<(), SessionEnd> {
        self.queue(DeviceReport::Run(record))
    }

    fn queue(&mut self, report: DeviceReport) -> Result<(), SessionEnd> {
        self.reports.try_send(report).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => violation("a report that there was no room for".to_owned()),
            mpsc::error::TrySendError::Closed(_) => SessionEnd::Line,
        })
    }

    fn answer(&mut self, request_id: u64, by: AskedBy, request: ManagementRequest) -> Result<(), SessionEnd> {
        if self.requests.len() >= MAX_CONCURRENT_REQUESTS {
            let message =
                format!("{MAX_CONCURRENT_REQUESTS} requests are under way already; try again when one is answered");
            let error = ManagementError { code: ManagementErrorCode::Conflict, message };
            self.say(GatewayFrame::Reply { request_id, result: ManagementResult::Error(error) });
            return Ok(());
        }
        let desktop = self.service.desktop(self.session.device_id).asked_by(by);
        let frames = self.frames.clone();
        self.requests.spawn(async move {
            let result = management::answer(desktop, request).await;
            // A session that ended needs no answer.
            let _ = frames.send(GatewayFrame::Reply { request_id, result }).await;
        });
        Ok(())
    }

    /// Decides on the runs that the device held when it connected.
    async fn settle(&mut self, held: &[HeldRun], settlements: Vec<(RunId, u32, Settlement)>) -> Result<(), SessionEnd> {
        for (run_id, attempt, settlement) in settlements {
            let stored = held.iter().find(|run| run.run_id == run_id).map_or(0, |run| run.device_seq);
            self.reported.note(run_id, attempt, stored);
            let ack = GatewayFrame::Ack { run_id, attempt, through: stored };
            let what = match settlement {
                Settlement::Start { in_doubt: false } => AttemptUpdate::Start,
                Settlement::Start { in_doubt: true } => {
                    self.note(AttemptRecord { run_id, attempt, what: AttemptUpdate::Reconcile }).await;
                    AttemptUpdate::Start
                }
                Settlement::Return => AttemptUpdate::Return,
                Settlement::Restart => AttemptUpdate::Restart,
                Settlement::OfferAgain { in_doubt } => {
                    if in_doubt {
                        self.note(AttemptRecord { run_id, attempt, what: AttemptUpdate::Reconcile }).await;
                    }
                    let unavailable = |error: StoreError| SessionEnd::Bye(ByeCode::Unavailable, error.to_string());
                    let offer = self.service.store.offer(self.session, run_id).await.map_err(unavailable)?;
                    if let Some(offer) = offer {
                        self.say_in_turn(GatewayFrame::Offer(offer)).await;
                    }
                    continue;
                }
                Settlement::Cancel { held } => AttemptUpdate::Cancel { held },
                Settlement::Lose => AttemptUpdate::Lose,
                Settlement::Resume { in_doubt: true } => {
                    self.say_in_turn(ack).await;
                    AttemptUpdate::Reconcile
                }
                Settlement::Unknown => {
                    self.say_in_turn(ack).await;
                    AttemptUpdate::Unknown
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
            self.note(AttemptRecord { run_id, attempt, what }).await;
        }
        Ok(())
    }

    /// Queues a record, and waits for space. Only before anything is read: the recorder makes the space.
    async fn note(&self, record: AttemptRecord) {
        // A recorder that ended ends the session too.
        let _ = self.reports.send(DeviceReport::Run(record)).await;
    }

    /// Queues a frame, and waits for space. Only before anything is read: the writer makes the space.
    async fn say_in_turn(&self, frame: GatewayFrame) {
        // A writer that ended ends the session too.
        let _ = self.frames.send(frame).await;
    }

    fn ping(&mut self) -> Result<(), SessionEnd> {
        if self.unanswered_pings >= 2 {
            return Err(SessionEnd::Bye(ByeCode::Unresponsive, "two pings were not answered".to_owned()));
        }
        self.unanswered_pings += 1;
        self.say(GatewayFrame::Ping);
        Ok(())
    }

    fn drain(&mut self) -> Result<(), SessionEnd> {
        self.say(GatewayFrame::Drain);
        Err(SessionEnd::Bye(ByeCode::Unavailable, "the gateway stops".to_owned()))
    }

    async fn goodbye(&mut self, why: &SessionEnd) {
        if let SessionEnd::Bye(code, message) = why {
            let bye = GatewayFrame::Bye { code: *code, message: message.clone() };
            let _ = timeout(Duration::from_secs(1), self.frames.send(bye)).await;
        }
    }

    /// Queues a frame. A full queue belongs to a device that does not read, which the pings find out.
    fn say(&self, frame: GatewayFrame) {
        let _ = self.frames.try_send(frame);
    }
}

async fn renew(service: ControlService, session: SessionKey) -> Result<bool, StoreError> {
    service.renewals.renew(session).await
}

async fn current(service: ControlService, session: SessionKey) -> Result<bool, StoreError> {
    service.store.session_is_current(session).await
}

/// Why a session is not current any more.
async fn ended(service: &ControlService, session: SessionKey) -> SessionEnd {
    match service.store.device(session.device_id).await {
        Ok(Some(device)) if device.revoked_at.is_none() && device.epoch == session.epoch => {
            SessionEnd::Bye(ByeCode::Unavailable, "the session's lease ran out before it was renewed".to_owned())
        }
        Ok(Some(device)) if device.revoked_at.is_some() => {
            SessionEnd::Bye(ByeCode::Revoked, "this device was removed from the gateway".to_owned())
        }
        _ => replaced(),
    }
}

fn replaced() -> SessionEnd {
    SessionEnd::Bye(ByeCode::Replaced, "a newer session with this device's key took over".to_owned())
}

fn violation(message: String) -> SessionEnd {
    SessionEnd::Bye(ByeCode::ProtocolViolation, message)
}
