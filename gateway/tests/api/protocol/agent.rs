//! The agents' steps: journal first, then report; and execute only what was started.

use super::{
    AGENT_COUNT, AgentMessage, ExecutionStage, GATEWAY_COUNT, GatewayMessage, JournalEntry, Mistake, ModelSession,
    ModelState, RUN_COUNT,
};

impl JournalEntry {
    fn attempt(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Taken(attempt)
            | Self::Running(attempt)
            | Self::Interrupted(attempt)
            | Self::Unknown(attempt)
            | Self::Again(attempt)
            | Self::Finished(attempt) => attempt,
        }
    }
}

impl ModelState {
    /// Every step that an agent or its owner can take.
    pub(super) fn agent_steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        // The copy comes only as a fault; the device itself always comes back.
        if !self.agents[0].is_connected {
            to.extend((0..GATEWAY_COUNT).map(|gateway| self.connected(0, gateway)));
        }
        for (place, session) in self.sessions.iter().enumerate() {
            if session.is_heard && !session.down.is_empty() {
                to.push(self.told(place, mistake));
            }
        }
        for agent in 0..AGENT_COUNT {
            for run in 0..RUN_COUNT {
                to.extend(self.worked(agent, run, mistake));
                to.extend(self.decided(agent, run));
            }
        }
    }

    /// Every fault that can come now.
    pub(super) fn fault_steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        let Some(faults) = self.faults.checked_sub(1) else { return };
        let struck = Self { faults, ..self.clone() };
        for gateway in 0..GATEWAY_COUNT {
            let mut next = struck.clone();
            while let Some(place) = next.sessions.iter().position(|session| session.gateway == gateway) {
                next.drop_session(place);
            }
            if next.sessions.len() < self.sessions.len() {
                to.push(next);
            }
        }
        for agent in 0..AGENT_COUNT {
            if self.agents[agent].is_connected || self.agents[agent].work != [ExecutionStage::Idle; RUN_COUNT] {
                to.push(struck.killed(agent, mistake));
            }
        }
        for place in 0..self.sessions.len() {
            if self.sessions[place].is_heard {
                let mut next = struck.clone();
                next.hang_up(place);
                to.push(next);
            }
        }
        if !self.agents[1].is_connected {
            to.extend((0..GATEWAY_COUNT).map(|gateway| struck.connected(1, gateway)));
        }
        for (run, row) in self.runs.iter().enumerate() {
            // An offer without an answer in time.
            if row.is_offered {
                let mut next = struck.clone();
                next.runs[run].is_offered = false;
                to.push(next);
            }
        }
    }

    fn connected(&self, agent: usize, gateway: u8) -> Self {
        let mut next = self.clone();
        next.agents[agent].is_connected = true;
        next.sessions.push(ModelSession {
            gateway,
            agent: agent as u8,
            epoch: 0,
            is_heard: true,
            hello: next.agents[agent].journal,
            to_settle: Vec::new(),
            down: Vec::new(),
            up: Vec::new(),
        });
        next
    }

    /// The agent's end of a connection is gone; frames that it sent may still arrive.
    fn hang_up(&mut self, place: usize) {
        let session = &mut self.sessions[place];
        session.is_heard = false;
        session.down.clear();
        let agent = &mut self.agents[session.agent as usize];
        (agent.is_connected, agent.is_welcomed) = (false, false);
    }

    /// By `kill -9`, and started again: `journal::recover`.
    fn killed(&self, agent: usize, mistake: Mistake) -> Self {
        let mut next = self.clone();
        if let Some(place) = next.sessions.iter().position(|it| it.agent == agent as u8 && it.is_heard) {
            next.hang_up(place);
        }
        let died = &mut next.agents[agent];
        for run in 0..RUN_COUNT {
            died.work[run] = ExecutionStage::Idle;
            if let JournalEntry::Running(attempt) = died.journal[run] {
                let is_unknown = died.intended[run] && mistake != Mistake::IntentsAreNotRead;
                died.journal[run] =
                    if is_unknown { JournalEntry::Unknown(attempt) } else { JournalEntry::Interrupted(attempt) };
            }
        }
        next
    }

    /// What its journal has of ends is said again.
    pub(super) fn welcomed(&mut self, agent: usize) {
        self.agents[agent].is_welcomed = true;
        for run in 0..RUN_COUNT {
            if let JournalEntry::Finished(attempt) = self.agents[agent].journal[run] {
                self.say(agent, AgentMessage::Finish(run as u8, attempt));
            }
        }
    }

    fn say(&mut self, agent: usize, frame: AgentMessage) {
        let session = self.sessions.iter_mut().find(|session| session.agent == agent as u8 && session.is_heard);
        if let Some(session) = session.filter(|_| self.agents[agent].is_welcomed) {
            session.up.push(frame);
        }
    }

    fn told(&self, place: usize, mistake: Mistake) -> Self {
        let mut next = self.clone();
        let frame = next.sessions[place].down.remove(0);
        let agent = next.sessions[place].agent as usize;
        match frame {
            GatewayMessage::Offer(run, attempt) => next.offered(agent, run, attempt, mistake),
            GatewayMessage::Start(run, attempt) => next.started(agent, run as usize, attempt),
            GatewayMessage::Ack(run, attempt) => {
                let journal = &mut next.agents[agent].journal;
                if journal[run as usize] == JournalEntry::Finished(attempt) {
                    journal[run as usize] = JournalEntry::None;
                    if mistake == Mistake::ForgetsAllEnds {
                        *journal = [JournalEntry::None; RUN_COUNT];
                    }
                }
            }
            GatewayMessage::Heard(run, attempt) => {
                if next.agents[agent].journal[run as usize] == JournalEntry::Again(attempt) {
                    next.say(agent, AgentMessage::Reconciled(run, attempt));
                }
            }
            GatewayMessage::Revoke(run, attempt) => {
                let (run, device) = (run as usize, &mut next.agents[agent]);
                if device.journal[run].attempt() == attempt {
                    (device.journal[run], device.work[run]) = (JournalEntry::None, ExecutionStage::Idle);
                }
            }
        }
        next
    }

    fn offered(&mut self, agent: usize, run: u8, attempt: u8, mistake: Mistake) {
        let device = &mut self.agents[agent];
        let place = run as usize;
        let entry = device.journal[place];
        match entry {
            JournalEntry::Finished(held) if held == attempt => {
                return self.say(agent, AgentMessage::Finish(run, attempt));
            }
            JournalEntry::Taken(held) | JournalEntry::Running(held) if held == attempt => {}
            _ if entry.attempt() >= attempt => return,
            // The older one ends first.
            JournalEntry::Running(held) => {
                device.work[place] = ExecutionStage::Idle;
                device.journal[place] =
                    if device.intended[place] { JournalEntry::Unknown(held) } else { JournalEntry::Interrupted(held) };
                return self.say(agent, AgentMessage::Refuse(run, attempt));
            }
            JournalEntry::Unknown(_) => {
                return self.say(agent, AgentMessage::Refuse(run, attempt));
            }
            _ => {
                device.journal[place] = JournalEntry::Taken(attempt);
                device.intended[place] = false;
            }
        }
        self.say(agent, AgentMessage::Accept(run, attempt));
        if mistake == Mistake::StartsWithoutStart {
            self.started(agent, place, attempt);
        }
    }

    fn started(&mut self, agent: usize, run: usize, attempt: u8) {
        let device = &mut self.agents[agent];
        if device.journal[run] == JournalEntry::Taken(attempt) {
            (device.journal[run], device.work[run]) = (JournalEntry::Running(attempt), ExecutionStage::Begun);
        }
    }

    /// The next step of an execution: its intent is recorded, it is done, and its end is recorded.
    fn worked(&self, agent: usize, run: usize, mistake: Mistake) -> Option<Self> {
        let mut next = self.clone();
        let device = &mut next.agents[agent];
        let JournalEntry::Running(attempt) = device.journal[run] else { return None };
        let early = mistake == Mistake::IntentAfterEffect;
        match device.work[run] {
            ExecutionStage::Idle => return None,
            ExecutionStage::Begun => {
                device.work[run] = ExecutionStage::Intended;
                device.intended[run] = !early;
            }
            ExecutionStage::Intended => {
                device.work[run] = ExecutionStage::Done;
                next.effects[run] += 1;
            }
            ExecutionStage::Done => {
                (device.work[run], device.journal[run]) = (ExecutionStage::Idle, JournalEntry::Finished(attempt));
                if mistake == Mistake::ForgottenWhenSent {
                    device.journal[run] = JournalEntry::None;
                }
                next.say(agent, AgentMessage::Finish(run as u8, attempt));
            }
        }
        Some(next)
    }

    /// The owner examines what a run has changed, and decides: it was done, or it is to run again.
    fn decided(&self, agent: usize, run: usize) -> Option<Self> {
        let JournalEntry::Unknown(attempt) = self.agents[agent].journal[run] else { return None };
        let mut next = self.clone();
        let device = &mut next.agents[agent];
        device.intended[run] = false;
        if next.effects[run] > 0 {
            device.journal[run] = JournalEntry::Finished(attempt);
            next.say(agent, AgentMessage::Finish(run as u8, attempt));
        } else {
            device.journal[run] = JournalEntry::Again(attempt);
            next.say(agent, AgentMessage::Reconciled(run as u8, attempt));
        }
        Some(next)
    }
}
