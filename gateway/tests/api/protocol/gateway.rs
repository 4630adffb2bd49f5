//! The steps of gateways and their database. Every write is fenced by attempt and session, as the statements are.

use deskgate_gateway::domain::devices::{Settlement, settle};
use deskgate_gateway::store::leases::HeldRun;
use deskgate_protocol::RunId;
use deskgate_protocol::control::{InFlightRun, InFlightStatus};
use deskgate_protocol::run::RunState;

use super::{AgentMessage, GatewayMessage, JournalEntry, Mistake, ModelState, RUN_COUNT, RunStage};

fn id(run: usize) -> RunId {
    RunId::from(uuid::Uuid::from_u128(run as u128))
}

fn number(run_id: RunId) -> u8 {
    run_id.uuid().as_u128() as u8
}

impl ModelState {
    /// Every step that a gateway or the database can take.
    pub(super) fn gateway_steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        for (place, session) in self.sessions.iter().enumerate() {
            if session.epoch == 0 {
                to.push(self.entered(place));
            } else if !session.to_settle.is_empty() {
                // The product does so in one order; here in any, so that runs are like each other.
                to.extend((0..session.to_settle.len()).map(|entry| self.settled(place, entry)));
            } else if !session.up.is_empty() {
                to.push(self.heard(place, mistake));
            }
            // A replaced or broken session is noticed at some time.
            if !session.is_heard || (session.epoch != 0 && session.epoch < self.epoch) {
                let mut next = self.clone();
                next.drop_session(place);
                to.push(next);
            }
            for run in 0..RUN_COUNT {
                to.extend(self.claimed(place, run));
            }
        }
        for run in 0..RUN_COUNT {
            to.extend(self.lease_over(run));
        }
    }

    pub(super) fn drop_session(&mut self, place: usize) {
        let session = self.sessions.remove(place);
        if session.is_heard {
            self.agents[session.agent as usize].is_connected = false;
            self.agents[session.agent as usize].is_welcomed = false;
        }
    }

    /// `leases::begin_session`, and the effect of the hello.
    fn entered(&self, place: usize) -> Self {
        let mut next = self.clone();
        next.epoch += 1;
        let epoch = next.epoch;
        let mut held = Vec::new();
        for (number, run) in next.runs.iter_mut().enumerate() {
            let state = match run.state {
                RunStage::Queued if run.is_offered => RunState::Queued,
                RunStage::Running => RunState::Running,
                RunStage::InDoubt => RunState::AwaitingReconciliation,
                RunStage::Queued | RunStage::Final => continue,
            };
            run.epoch = epoch;
            let attempt = u32::from(run.attempt);
            held.push(HeldRun {
                run_id: id(number),
                attempt,
                state,
                device_seq: 0,
                stopping: false,
                is_reoffered: run.is_reoffered,
            });
        }
        let session = &mut next.sessions[place];
        let in_flight: Vec<_> = (0..RUN_COUNT).filter_map(|run| in_flight(run, session.hello[run])).collect();
        session.hello = [JournalEntry::None; RUN_COUNT];
        session.epoch = epoch;
        let settlements = settle(&held, &in_flight).into_iter();
        session.to_settle = settlements.map(|(run, attempt, what)| (number(run), attempt as u8, what)).collect();
        if session.is_heard {
            let agent = session.agent as usize;
            next.welcomed(agent);
        }
        next
    }

    fn settled(&self, place: usize, entry: usize) -> Self {
        let mut next = self.clone();
        let (run, attempt, settlement) = next.sessions[place].to_settle.remove(entry);
        let epoch = next.sessions[place].epoch;
        let held = next.runs[run as usize];
        let is_ours = held.attempt == attempt && held.epoch == epoch;
        let is_started = matches!(held.state, RunStage::Running | RunStage::InDoubt);
        match settlement {
            Settlement::Start { in_doubt } => {
                if in_doubt && is_ours && held.state == RunStage::InDoubt {
                    next.runs[run as usize].state = RunStage::Running;
                }
                next.start(place, run, attempt);
            }
            Settlement::Return if is_ours && held.state == RunStage::Queued => {
                next.runs[run as usize].is_offered = false
            }
            Settlement::Restart if is_ours && is_started => next.begin_again(place, run),
            Settlement::OfferAgain { in_doubt } => {
                if in_doubt && is_ours && held.state == RunStage::InDoubt {
                    next.runs[run as usize].state = RunStage::Running;
                }
                if held.epoch == epoch && held.state != RunStage::Final {
                    next.sessions[place].down.push(GatewayMessage::Offer(run, held.attempt));
                }
            }
            Settlement::Lose if is_ours && held.state == RunStage::Running => {
                next.runs[run as usize].state = RunStage::InDoubt;
            }
            Settlement::Resume { in_doubt: true } if is_ours && held.state == RunStage::InDoubt => {
                next.runs[run as usize].state = RunStage::Running;
            }
            Settlement::Unknown if is_ours && is_started => {
                next.runs[run as usize].state = RunStage::InDoubt;
                next.runs[run as usize].unknown_attempt = attempt;
                next.sessions[place].down.push(GatewayMessage::Heard(run, attempt));
            }
            Settlement::Revoke(_) => next.sessions[place].down.push(GatewayMessage::Revoke(run, attempt)),
            _ => {}
        }
        next
    }

    /// `attempts::claim`: only for the newest session, each with a fresh attempt.
    fn claimed(&self, place: usize, run: usize) -> Option<Self> {
        let session = &self.sessions[place];
        let row = self.runs[run];
        let is_free = row.state == RunStage::Queued && !row.is_offered;
        if session.epoch != self.epoch || session.epoch == 0 || !session.to_settle.is_empty() || !is_free {
            return None;
        }
        let mut next = self.clone();
        let row = &mut next.runs[run];
        (row.attempt, row.epoch, row.is_offered) = (row.attempt + 1, session.epoch, true);
        let offer = GatewayMessage::Offer(run as u8, row.attempt);
        next.sessions[place].down.push(offer);
        Some(next)
    }

    /// The lease was not renewed: started runs may have been executed.
    fn lease_over(&self, run: usize) -> Option<Self> {
        let row = self.runs[run];
        let is_kept = self.sessions.iter().any(|session| session.epoch == row.epoch && session.is_heard);
        (row.state == RunStage::Running && !is_kept).then(|| {
            let mut next = self.clone();
            next.runs[run].state = RunStage::InDoubt;
            next
        })
    }

    fn heard(&self, place: usize, mistake: Mistake) -> Self {
        let mut next = self.clone();
        let frame = next.sessions[place].up.remove(0);
        let epoch = next.sessions[place].epoch;
        match frame {
            AgentMessage::Accept(run, attempt) if mistake == Mistake::AcceptWithoutFence => {
                next.runs[run as usize].state = RunStage::Running;
                next.sessions[place].down.push(GatewayMessage::Start(run, attempt));
            }
            AgentMessage::Accept(run, attempt) => next.start(place, run, attempt),
            AgentMessage::Refuse(run, attempt) => {
                let row = &mut next.runs[run as usize];
                if (row.attempt, row.epoch, row.state) == (attempt, epoch, RunStage::Queued) {
                    row.is_offered = false;
                } else if (row.attempt, row.epoch) == (attempt, epoch) && row.state != RunStage::Final {
                    next.sessions[place].down.push(GatewayMessage::Offer(run, attempt));
                }
            }
            AgentMessage::Finish(run, attempt) => {
                if next.is_replaced(place, run, attempt) {
                    next.drop_session(place);
                    return next;
                }
                let row = &mut next.runs[run as usize];
                let is_ours = (row.attempt, row.epoch) == (attempt, epoch);
                let answer = match row.state {
                    RunStage::Running | RunStage::InDoubt if is_ours => {
                        (row.state, row.attempt) = (RunStage::Final, attempt);
                        GatewayMessage::Ack(run, attempt)
                    }
                    RunStage::Final if row.attempt == attempt => GatewayMessage::Ack(run, attempt),
                    _ => GatewayMessage::Revoke(run, attempt),
                };
                next.sessions[place].down.push(answer);
            }
            AgentMessage::Reconciled(run, attempt) => {
                let row = next.runs[run as usize];
                let is_said = row.unknown_attempt == attempt && row.epoch == epoch;
                if is_said && row.attempt == attempt && row.state == RunStage::InDoubt {
                    next.begin_again(place, run);
                } else if is_said && row.attempt == attempt + 1 && row.state != RunStage::Final {
                    next.sessions[place].down.push(GatewayMessage::Offer(run, row.attempt));
                }
            }
        }
        next
    }

    /// Whether a newer session holds the attempt, and the one that reports it has to end.
    fn is_replaced(&self, place: usize, run: u8, attempt: u8) -> bool {
        let row = self.runs[run as usize];
        row.attempt == attempt && self.sessions[place].epoch < row.epoch && row.state != RunStage::Final
    }

    /// `attempts::start`, and the answer to the device.
    fn start(&mut self, place: usize, run: u8, attempt: u8) {
        if self.is_replaced(place, run, attempt) {
            return self.drop_session(place);
        }
        let (row, session) = (&mut self.runs[run as usize], &mut self.sessions[place]);
        let is_ours = (row.attempt, row.epoch) == (attempt, session.epoch);
        let answer = match row.state {
            RunStage::Queued if is_ours && row.is_offered => {
                (row.state, row.is_offered) = (RunStage::Running, false);
                GatewayMessage::Start(run, attempt)
            }
            RunStage::Running if is_ours => {
                row.is_reoffered = false;
                GatewayMessage::Start(run, attempt)
            }
            _ => GatewayMessage::Revoke(run, attempt),
        };
        session.down.push(answer);
    }

    /// `attempts::restart`, and the offer that follows it.
    fn begin_again(&mut self, place: usize, run: u8) {
        let row = &mut self.runs[run as usize];
        (row.state, row.attempt, row.is_reoffered) = (RunStage::Running, row.attempt + 1, true);
        let offer = GatewayMessage::Offer(run, row.attempt);
        self.sessions[place].down.push(offer);
    }
}

fn in_flight(run: usize, entry: JournalEntry) -> Option<InFlightRun> {
    let (attempt, status) = match entry {
        JournalEntry::None => return None,
        JournalEntry::Taken(attempt) => (attempt, InFlightStatus::Taken),
        JournalEntry::Running(attempt) => (attempt, InFlightStatus::Running),
        JournalEntry::Interrupted(attempt) | JournalEntry::Again(attempt) => (attempt, InFlightStatus::Interrupted),
        JournalEntry::Unknown(attempt) => (attempt, InFlightStatus::Unknown),
        JournalEntry::Finished(attempt) => (attempt, InFlightStatus::Finished),
    };
    Some(InFlightRun { run_id: id(run), attempt: attempt.into(), status })
}
