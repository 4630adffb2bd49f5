//! States that differ in names alone are one state.
//!
//! Sessions and attempts are numbers that only ever grow, and are compared and never counted: what matters is which is
//! the newer one, and of attempts which is the next. Runs are like each other, and so are gateways.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{AgentMessage, GatewayMessage, JournalEntry, ModelState, RUN_COUNT, RunRow, RunStage};

impl ModelState {
    /// The state under canonical names, and a number for it.
    pub(super) fn named(mut self) -> (u64, Self) {
        for run in 0..RUN_COUNT {
            self.rename_attempts(run as u8);
        }
        self.rename_epochs();
        let other = self.with_runs_swapped();
        let (own, others) = (fingerprint(&self), fingerprint(&other));
        if own <= others { (own, self) } else { (others, other) }
    }

    /// By their order: the oldest that is still known is the first.
    fn rename_epochs(&mut self) {
        let of_runs = self.runs.iter().map(|run| run.epoch);
        let mut known: Vec<u8> = of_runs.chain(self.sessions.iter().map(|session| session.epoch)).collect();
        known.push(self.epoch);
        known.retain(|epoch| *epoch != 0);
        known.sort_unstable();
        known.dedup();
        let name = |epoch: u8| known.iter().position(|one| *one == epoch).map_or(0, |place| place as u8 + 1);
        for run in &mut self.runs {
            run.epoch = name(run.epoch);
        }
        for session in &mut self.sessions {
            session.epoch = name(session.epoch);
        }
        self.epoch = name(self.epoch);
    }

    /// By their distance from the oldest that is still known.
    fn rename_attempts(&mut self, run: u8) {
        let mut known = Vec::new();
        self.attempts(run, &mut |attempt| known.push(*attempt));
        known.retain(|attempt| *attempt != 0);
        let row = &mut self.runs[run as usize];
        if row.state == RunStage::Final {
            // A request for it gets the answer that it is over, and nothing more.
            let attempt = if known.contains(&row.attempt) { row.attempt } else { 0 };
            *row = RunRow { attempt, epoch: 0, unknown_attempt: 0, is_offered: false, is_reoffered: false, ..*row };
        }
        // A number that cannot occur any more counts as none.
        if row.unknown_attempt != row.attempt && !known.contains(&row.unknown_attempt) {
            row.unknown_attempt = 0;
        }
        let oldest = known.into_iter().chain([row.attempt, row.unknown_attempt]).filter(|attempt| *attempt != 0).min();
        let Some(by) = oldest.map(|oldest| oldest - 1).filter(|by| *by > 0) else { return };
        row.attempt -= row.attempt.min(by);
        row.unknown_attempt -= row.unknown_attempt.min(by);
        self.attempts(run, &mut |attempt| *attempt -= (*attempt).min(by));
    }

    /// Every mention of a run's attempt outside its row.
    fn attempts(&mut self, run: u8, see: &mut impl FnMut(&mut u8)) {
        let place = run as usize;
        for agent in &mut self.agents {
            of_entry(&mut agent.journal[place], see);
        }
        for session in &mut self.sessions {
            of_entry(&mut session.hello[place], see);
            for (_, attempt, _) in session.to_settle.iter_mut().filter(|(of, ..)| *of == run) {
                see(attempt);
            }
            for frame in &mut session.down {
                let (of, attempt) = frame.parts();
                if *of == run {
                    see(attempt);
                }
            }
            for frame in &mut session.up {
                let (of, attempt) = frame.parts();
                if *of == run {
                    see(attempt);
                }
            }
        }
    }

    fn with_runs_swapped(&self) -> Self {
        let mut other = self.clone();
        other.runs.reverse();
        other.effects.reverse();
        for agent in &mut other.agents {
            agent.journal.reverse();
            agent.intended.reverse();
            agent.work.reverse();
        }
        let swap = |run: &mut u8| *run = RUN_COUNT as u8 - 1 - *run;
        for session in &mut other.sessions {
            session.hello.reverse();
            session.to_settle.iter_mut().for_each(|(run, ..)| swap(run));
            session.to_settle.reverse();
            session.down.iter_mut().for_each(|frame| swap(frame.parts().0));
            session.up.iter_mut().for_each(|frame| swap(frame.parts().0));
        }
        other
    }
}

fn of_entry(entry: &mut JournalEntry, see: &mut impl FnMut(&mut u8)) {
    match entry {
        JournalEntry::None => {}
        JournalEntry::Taken(attempt)
        | JournalEntry::Running(attempt)
        | JournalEntry::Interrupted(attempt)
        | JournalEntry::Unknown(attempt)
        | JournalEntry::Again(attempt)
        | JournalEntry::Finished(attempt) => see(attempt),
    }
}

impl GatewayMessage {
    /// The run and the attempt.
    pub(super) fn parts(&mut self) -> (&mut u8, &mut u8) {
        match self {
            Self::Offer(run, attempt)
            | Self::Start(run, attempt)
            | Self::Ack(run, attempt)
            | Self::Heard(run, attempt)
            | Self::Revoke(run, attempt) => (run, attempt),
        }
    }
}

impl AgentMessage {
    /// The run and the attempt.
    pub(super) fn parts(&mut self) -> (&mut u8, &mut u8) {
        match self {
            Self::Accept(run, attempt)
            | Self::Refuse(run, attempt)
            | Self::Finish(run, attempt)
            | Self::Reconciled(run, attempt) => (run, attempt),
        }
    }
}

fn fingerprint(gateway: &ModelState) -> u64 {
    let mut hasher = DefaultHasher::new();
    gateway.hash(&mut hasher);
    hasher.finish()
}
