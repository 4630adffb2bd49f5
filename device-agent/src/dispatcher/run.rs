//! The dispatcher's record of one run: its stage, and its events until they are acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use deskgate_definition::Definition;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::{DeviceEvent, InFlightRun, InFlightStatus, Offer};
use deskgate_protocol::ids::{EndpointId, OperationId};
use deskgate_protocol::run::Outcome;
use deskgate_store::journal::EndedAttempt;
use deskgate_store::journal::reconcile::Settlement;
use deskgate_store::transcripts::TranscriptPosition;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::executor::Progress;

pub(super) struct TrackedRun {
    pub(super) attempt: u32,
    pub(super) endpoint_id: EndpointId,
    pub(super) endpoint_version: u32,
    /// The service's name; empty for an entry of an earlier process that only has to be settled.
    pub(super) service: String,
    pub(super) since: Timestamp,
    pub(super) turns: u64,
    pub(super) stage: RunStage,
    pub(super) log: EventLog,
    /// The stop operation to answer when the run has ended.
    pub(super) stop: Option<OperationId>,
    /// The last position of its conversation's transcript that the execution sees.
    pub(super) said_before: Option<TranscriptPosition>,
    /// Whether a person is asked about one of its calls.
    pub(super) asks: bool,
}

pub(super) enum RunStage {
    /// Journalled; waits for `start`. `confirmed`: the start came, and the journal could not record it yet. Without a
    /// definition the run fails when it is started.
    Taken { offer: Box<Offer>, definition: Option<Arc<Definition>>, confirmed: bool },
    /// Executing. `revoked`: its outcome is no longer needed. `ends`: until when its last events wait for the outcome, so
    /// that the gateway stores both as one change.
    Running { reports: mpsc::Receiver<Progress>, stop: CancellationToken, revoked: bool, ends: Option<Instant> },
    /// Ended. Sent once it is journalled, with what was signed about it then.
    Ended { outcome: Box<Outcome>, receipt: Option<String>, journalled: bool, sent: bool },
    /// Cut off by a restart, or by an immediate stop of the agent; waits to be offered again.
    Interrupted,
    /// Cut off after it began to write: waits for its owner. `settled`: the owner's decision; `numbered`: the gateway
    /// has recorded it as unknown, and has reported which number its end takes.
    Unknown { settled: Option<Settlement>, numbered: bool },
}

impl RunStage {
    /// Ended just now: the journal does not know it yet.
    pub(super) fn ended(outcome: Outcome) -> Self {
        Self::Ended { outcome: Box::new(outcome), receipt: None, journalled: false, sent: false }
    }

    /// Until when its last events wait for its outcome.
    pub(super) fn ends(&self) -> Option<Instant> {
        if let Self::Running { ends, .. } = self { *ends } else { None }
    }

    /// Whether its last events wait now. They never do again once their time was over, or they must not.
    pub(super) fn holds_events(&mut self, may_wait: bool) -> bool {
        let Self::Running { ends, .. } = self else { return false };
        *ends = ends.filter(|until| may_wait && Instant::now() < *until);
        ends.is_some()
    }

    /// Whether the next attempt may be offered, which takes this one's slot.
    pub(super) fn may_run_again(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Unknown { settled: Some(Settlement::RunsAgain), .. })
    }
}

impl TrackedRun {
    pub(super) fn from_offer(offer: Offer, definition: Option<Arc<Definition>>) -> Self {
        Self {
            attempt: offer.attempt,
            endpoint_id: offer.endpoint_id,
            endpoint_version: offer.endpoint_version,
            service: definition.as_ref().map(|definition| definition.name.clone()).unwrap_or_default(),
            since: Timestamp::now(),
            turns: 0,
            stage: RunStage::Taken { offer: Box::new(offer), definition, confirmed: false },
            log: EventLog::default(),
            stop: None,
            said_before: None,
            asks: false,
        }
    }

    /// An entry of an earlier process that must not be executed in this state.
    pub(super) fn from_journal(offer: &Offer, ended: Option<EndedAttempt>) -> Self {
        let mut log = EventLog::default();
        let stage = match ended {
            None => RunStage::Interrupted,
            Some(EndedAttempt { seq, outcome, receipt, events }) => {
                log = EventLog::ending_before(seq, events);
                RunStage::Ended { outcome: Box::new(outcome), receipt, journalled: true, sent: false }
            }
        };
        let (attempt, endpoint_id, endpoint_version) = (offer.attempt, offer.endpoint_id, offer.endpoint_version);
        Self {
            attempt,
            endpoint_id,
            endpoint_version,
            service: String::new(),
            since: Timestamp::now(),
            turns: 0,
            stage,
            log,
            stop: None,
            said_before: None,
            asks: false,
        }
    }

    /// An entry of an earlier process whose end is unknown.
    pub(super) fn unknown(offer: &Offer, settled: Option<Settlement>) -> Self {
        let stage = RunStage::Unknown { settled, numbered: false };
        Self { stage, ..Self::from_journal(offer, None) }
    }

    /// Whether it uses one of the device's slots. An ended run releases its slot once it is journalled. An interrupted
    /// one keeps its slot, because the gateway restarts it without a declared slot; so does one that may become
    /// interrupted.
    pub(super) fn occupies_slot(&self) -> bool {
        match self.stage {
            RunStage::Taken { .. } | RunStage::Running { .. } | RunStage::Interrupted | RunStage::Unknown { .. } => {
                true
            }
            RunStage::Ended { journalled, .. } => !journalled,
        }
    }

    pub(super) fn in_flight(&self, run_id: deskgate_protocol::ids::RunId) -> InFlightRun {
        let status = match self.stage {
            RunStage::Taken { .. } => InFlightStatus::Taken,
            RunStage::Running { .. } | RunStage::Ended { journalled: false, .. } => InFlightStatus::Running,
            RunStage::Ended { .. } => InFlightStatus::Finished,
            RunStage::Interrupted => InFlightStatus::Interrupted,
            RunStage::Unknown { .. } => InFlightStatus::Unknown,
        };
        InFlightRun { run_id, attempt: self.attempt, status }
    }
}

/// The numbered events of one attempt that the gateway has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    acknowledged: u64,
    sent: u64,
    kept: VecDeque<DeviceEvent>,
}

impl EventLog {
    fn ending_before(finish: u64, events: Vec<DeviceEvent>) -> Self {
        let acknowledged = (finish - 1).saturating_sub(events.len() as u64);
        Self { acknowledged, sent: acknowledged, kept: events.into() }
    }

    /// For an attempt whose events were lost with the process: the gateway has them through this number.
    pub(super) fn after(through: u64) -> Self {
        Self { acknowledged: through, sent: through, kept: VecDeque::new() }
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64
    }

    pub(super) fn push(&mut self, event: DeviceEvent) {
        self.kept.push_back(event);
    }

    pub(super) fn unacknowledged(&mut self) -> &[DeviceEvent] {
        self.kept.make_contiguous()
    }

    pub(super) fn is_full(&self, window: usize) -> bool {
        self.kept.len() >= window
    }

    /// Everything through this number is durable at the gateway.
    pub(super) fn acknowledge(&mut self, through: u64) {
        let through = through.min(self.last());
        while self.acknowledged < through {
            self.kept.pop_front();
            self.acknowledged += 1;
        }
        self.sent = self.sent.max(self.acknowledged);
    }

    /// For a new session: unacknowledged events are sent again.
    pub(super) fn rewind(&mut self) {
        self.sent = self.acknowledged;
    }

    pub(super) fn all_sent(&self) -> bool {
        self.sent == self.last()
    }

    /// The next event to send, with its number, as long as fewer than `window` are unacknowledged.
    pub(super) fn next_to_send(&mut self, window: usize) -> Option<(u64, DeviceEvent)> {
        let under_way = (self.sent - self.acknowledged) as usize;
        let event = self.kept.get(under_way).filter(|_| under_way < window)?.clone();
        self.sent += 1;
        Some((self.sent, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> DeviceEvent {
        DeviceEvent::MessageCompleted { message_id: n.to_string(), text: String::new(), reasoning_summary: None }
    }

    #[test]
    fn events_go_out_in_order_within_the_window_and_again_from_the_last_acknowledged() {
        let mut log = EventLog::default();
        (1..=5).for_each(|n| log.push(event(n)));
        let sent = |log: &mut EventLog| std::iter::from_fn(|| log.next_to_send(3)).collect::<Vec<_>>();
        let numbered = |range: std::ops::RangeInclusive<u64>| range.map(|n| (n, event(n))).collect::<Vec<_>>();
        assert_eq!(sent(&mut log), numbered(1..=3));
        log.acknowledge(2);
        assert_eq!(sent(&mut log), numbered(4..=5));
        log.rewind();
        assert_eq!(sent(&mut log), numbered(3..=5));
        assert!(log.all_sent());
        log.acknowledge(u64::MAX);
        assert_eq!((log.last(), log.unacknowledged()), (5, &[] as &[_]));
    }

    #[test]
    fn a_log_read_from_the_journal_ends_before_its_finish() {
        let mut log = EventLog::ending_before(7, vec![event(5), event(6)]);
        assert_eq!(log.last(), 6);
        assert_eq!(log.next_to_send(9), Some((5, event(5))));
    }
}
