//! Outgoing state: frames for the gateway, made from the state of the runs, and the status for people.

use std::collections::BTreeMap;
use std::time::Duration;

use deskgate_protocol::control::{DeviceFrame, Welcome};
use tokio::time::Instant;
use tracing::info;

use super::backpressure::Backpressure;
use super::handle::{ActiveRun, ActiveRunState, DispatcherStatus};
use super::problem::DispatcherProblem;
use super::run::{RunStage, TrackedRun};
use super::{Dispatcher, Link, MAX_UNSETTLED_RUNS, StopMode, orders};

/// Less than this part of all slots is few.
const FEW_SLOTS_DIVISOR: u32 = 4;
/// For how long few free slots are kept back. Only a device that is nearly full keeps any.
const MAX_DECLARE_DELAY: Duration = Duration::from_millis(25);

impl<L: Link> Dispatcher<L> {
    /// Resets what was sent: in a new session every slot, every unacknowledged event and every finish is sent again.
    pub(super) fn begin_session(&mut self, welcome: &Welcome) {
        info!(device_id = %welcome.device_id, epoch = welcome.epoch, "the session began");
        self.credit = 0;
        (self.withheld, self.named) = (Backpressure::default(), Vec::new());
        self.places.forget_declared();
        self.draining = false;
        // The gateway takes a new session for an awake device.
        if self.asleep {
            self.line.send(DeviceFrame::Suspend);
        }
        self.tickets.requests().for_each(|frame| self.line.send(frame));
        // The gateway repeats them.
        self.unfinished_orders.clear();
        self.window = (welcome.policy.unacknowledged_events as usize).max(1);
        for (run_id, run) in &mut self.runs {
            run.log.rewind();
            match &mut run.stage {
                // The first `accept` may have been lost with the connection; a second one has no effect.
                RunStage::Taken { .. } => self.line.send(DeviceFrame::Accept { run_id: *run_id, attempt: run.attempt }),
                RunStage::Ended { sent, .. } => *sent = false,
                // This gateway reports anew which number the end takes.
                RunStage::Unknown { numbered, .. } => *numbered = false,
                RunStage::Running { .. } | RunStage::Interrupted => {}
            }
        }
    }

    /// Sends events, finishes and free slots, as far as the connection accepts frames.
    pub(super) fn send_what_can_be_sent(&mut self) {
        let is_at_work = !self.asleep && matches!(self.stop, StopMode::NotStopping);
        for (&run_id, run) in &mut self.runs {
            let attempt = run.attempt;
            let is_held = run.stage.holds_events(is_at_work) && !run.log.is_full(self.window);
            while !is_held
                && self.line.has_room()
                && let Some((seq, event)) = run.log.next_to_send(self.window)
            {
                self.line.send(DeviceFrame::Event { run_id, attempt, seq, event });
            }
            if let RunStage::Ended { outcome, receipt, journalled: true, sent: sent @ false } = &mut run.stage
                && run.log.all_sent()
                && !self.unsettled.as_ref().is_some_and(|unsettled| unsettled.borrow().contains_key(&run_id))
                && self.line.has_room()
            {
                *sent = true;
                let (seq, outcome, receipt) = (run.log.last() + 1, (**outcome).clone(), receipt.clone());
                self.line.send(DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt });
            }
            if let RunStage::Ended { outcome, sent: true, .. } = &run.stage
                && let Some(operation_id) = run.stop.take()
            {
                self.line.send(DeviceFrame::ControlDone { operation_id, outcome: orders::stopped(outcome) });
            }
        }
        self.declare_slots();
    }

    /// Declares the slots and places that are free beyond those the gateway may still use, and the services that are full.
    /// Few slots are declared a moment later, with those that become free until then: runs that come together are taken,
    /// begun and ended together, here and at the gateway.
    pub(super) fn declare_slots(&mut self) {
        if self.line.is_up() && !self.line.has_room() {
            return;
        }
        let at = self.declare_at.take();
        if self.draining || self.asleep || !matches!(self.stop, StopMode::NotStopping) || !self.line.has_room() {
            return;
        }
        let free = self.free_slots().saturating_sub(self.withheld.slots());
        let (slots, full) = (free.saturating_sub(self.credit), self.withheld.services());
        if slots > 0 && free < self.slots.div_ceil(FEW_SLOTS_DIVISOR) && full == self.named {
            let now = Instant::now();
            let at = at.unwrap_or(now + MAX_DECLARE_DELAY);
            if now < at {
                self.declare_at = Some(at);
                return;
            }
        }
        let mut active = BTreeMap::new();
        for run in self.runs.values().filter(|run| run.occupies_slot()) {
            *active.entry(run.endpoint_id).or_default() += 1;
        }
        let places = self.places.declare(&active, &full);
        if slots > 0 || !places.is_empty() || full != self.named {
            self.line.send(DeviceFrame::Ready { slots, places, full: full.clone() });
            self.credit += slots;
            self.named = full;
        }
    }

    pub(super) fn free_slots(&self) -> u32 {
        let occupied = self.runs.values().filter(|run| run.occupies_slot()).count();
        let room = (self.slots as usize + MAX_UNSETTLED_RUNS).saturating_sub(self.runs.len());
        let free = (self.slots as usize).saturating_sub(occupied).min(room);
        u32::try_from(free).expect("at most `slots`, which is a u32")
    }

    /// Publishes the current state: for the next `hello`, and for people.
    pub(super) fn publish(&mut self) {
        let in_flight = self.runs.iter().map(|(run_id, run)| run.in_flight(*run_id)).collect();
        self.in_flight.send_if_modified(|known| replace(known, in_flight));
        let runs = self.runs.iter().map(|(run_id, run)| ActiveRun {
            run_id: *run_id,
            attempt: run.attempt,
            service: run.service.clone(),
            standing: standing(run),
            since: run.since,
            turns: run.turns,
        });
        let status = DispatcherStatus {
            connected: self.line.is_up(),
            stopping: !matches!(self.stop, StopMode::NotStopping),
            slots: self.slots,
            runs: runs.collect(),
            problem: self.problem.as_ref().map(ToString::to_string),
            journal_fails: matches!(self.problem, Some(DispatcherProblem::Journal(_))),
        };
        self.status.send_if_modified(|known| replace(known, status));
    }
}

fn standing(run: &TrackedRun) -> ActiveRunState {
    match run.stage {
        RunStage::Taken { .. } => ActiveRunState::Taken,
        RunStage::Running { .. } if run.asks => ActiveRunState::AwaitingApproval,
        RunStage::Running { .. } => ActiveRunState::Running,
        RunStage::Ended { .. } => ActiveRunState::Finished,
        _ if run.stage.may_run_again() => ActiveRunState::Interrupted,
        RunStage::Interrupted => ActiveRunState::Interrupted,
        RunStage::Unknown { .. } => ActiveRunState::AwaitingReconciliation,
    }
}

fn replace<T: PartialEq>(known: &mut T, new: T) -> bool {
    let changed = *known != new;
    *known = new;
    changed
}
