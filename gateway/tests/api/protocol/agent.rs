//! What agents do: journal, then say; and execute only what was started.

use super::{AGENTS, Down, Entry, GATEWAYS, Mistake, RUNS, Session, Up, Work, World};

impl Entry {
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

impl World {
    /// Every step that an agent or its owner can take.
    pub(super) fn agent_steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        // The copy comes only as a fault; the device itself always comes back.
        if !self.agents[0].is_connected {
            to.extend((0..GATEWAYS).map(|gateway| self.connected(0, gateway)));
        }
        for (place, session) in self.sessions.iter().enumerate() {
            if session.is_heard && !session.down.is_empty() {
                to.push(self.told(place, mistake));
            }
        }
        for agent in 0..AGENTS {
            for run in 0..RUNS {
                to.extend(self.worked(agent, run, mistake));
                to.extend(self.decided(agent, run));
            }
        }
    }

    /// Every fault that can come now.
    pub(super) fn fault_steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        let Some(faults) = self.faults.checked_sub(1) else { return };
        let struck = Self { faults, ..self.clone() };
        for gateway in 0..GATEWAYS {
            let mut next = struck.clone();
            while let Some(place) = next.sessions.iter().position(|session| session.gateway == gateway) {
                next.drop_session(place);
            }
            if next.sessions.len() < self.sessions.len() {
                to.push(next);
            }
        }
        for agent in 0..AGENTS {
            if self.agents[agent].is_connected || self.agents[agent].work != [Work::Idle; RUNS] {
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
            to.extend((0..GATEWAYS).map(|gateway| struck.connected(1, gateway)));
        }
        for (run, row) in self.runs.iter().enumerate() {
            // An offer that nobody answers in time.
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
        next.sessions.push(Session {
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

    /// The agent's end of a line is gone; what it said may still arrive.
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
        for run in 0..RUNS {
            died.work[run] = Work::Idle;
            if let Entry::Running(attempt) = died.journal[run] {
                let is_unknown = died.intended[run] && mistake != Mistake::IntentsAreNotRead;
                died.journal[run] = if is_unknown { Entry::Unknown(attempt) } else { Entry::Interrupted(attempt) };
            }
        }
        next
    }

    /// What its journal has of ends is said again.
    pub(super) fn welcomed(&mut self, agent: usize) {
        self.agents[agent].is_welcomed = true;
        for run in 0..RUNS {
            if let Entry::Finished(attempt) = self.agents[agent].journal[run] {
                self.say(agent, Up::Finish(run as u8, attempt));
            }
        }
    }

    fn say(&mut self, agent: usize, frame: Up) {
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
            Down::Offer(run, attempt) => next.offered(agent, run, attempt, mistake),
            Down::Start(run, attempt) => next.started(agent, run as usize, attempt),
            Down::Ack(run, attempt) => {
                let journal = &mut next.agents[agent].journal;
                if journal[run as usize] == Entry::Finished(attempt) {
                    journal[run as usize] = Entry::None;
                    if mistake == Mistake::ForgetsAllEnds {
                        *journal = [Entry::None; RUNS];
                    }
                }
            }
            Down::Heard(run, attempt) => {
                if next.agents[agent].journal[run as usize] == Entry::Again(attempt) {
                    next.say(agent, Up::Reconciled(run, attempt));
                }
            }
            Down::Revoke(run, attempt) => {
                let (run, device) = (run as usize, &mut next.agents[agent]);
                if device.journal[run].attempt() == attempt {
                    (device.journal[run], device.work[run]) = (Entry::None, Work::Idle);
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
            Entry::Finished(held) if held == attempt => return self.say(agent, Up::Finish(run, attempt)),
            Entry::Taken(held) | Entry::Running(held) if held == attempt => {}
            _ if entry.attempt() >= attempt => return,
            // The older one ends first.
            Entry::Running(held) => {
                device.work[place] = Work::Idle;
                device.journal[place] =
                    if device.intended[place] { Entry::Unknown(held) } else { Entry::Interrupted(held) };
                return self.say(agent, Up::Refuse(run, attempt));
            }
            Entry::Unknown(_) => {
                return self.say(agent, Up::Refuse(run, attempt));
            }
            _ => {
                device.journal[place] = Entry::Taken(attempt);
                device.intended[place] = false;
            }
        }
        self.say(agent, Up::Accept(run, attempt));
        if mistake == Mistake::StartsWithoutStart {
            self.started(agent, place, attempt);
        }
    }

    fn started(&mut self, agent: usize, run: usize, attempt: u8) {
        let device = &mut self.agents[agent];
        if device.journal[run] == Entry::Taken(attempt) {
            (device.journal[run], device.work[run]) = (Entry::Running(attempt), Work::Begun);
        }
    }

    /// The next step of an execution: what it will do is written down, done, and that it is over is written down.
    fn worked(&self, agent: usize, run: usize, mistake: Mistake) -> Option<Self> {
        let mut next = self.clone();
        let device = &mut next.agents[agent];
        let Entry::Running(attempt) = device.journal[run] else { return None };
        let early = mistake == Mistake::IntentAfterEffect;
        match device.work[run] {
            Work::Idle => return None,
            Work::Begun => {
                device.work[run] = Work::Intended;
                device.intended[run] = !early;
            }
            Work::Intended => {
                device.work[run] = Work::Done;
                next.effects[run] += 1;
            }
            Work::Done => {
                (device.work[run], device.journal[run]) = (Work::Idle, Entry::Finished(attempt));
                if mistake == Mistake::ForgottenWhenSent {
                    device.journal[run] = Entry::None;
                }
                next.say(agent, Up::Finish(run as u8, attempt));
            }
        }
        Some(next)
    }

    /// The owner looks at what a run has changed, and says how it is: it was done, or it is to run again.
    fn decided(&self, agent: usize, run: usize) -> Option<Self> {
        let Entry::Unknown(attempt) = self.agents[agent].journal[run] else { return None };
        let mut next = self.clone();
        let device = &mut next.agents[agent];
        device.intended[run] = false;
        if next.effects[run] > 0 {
            device.journal[run] = Entry::Finished(attempt);
            next.say(agent, Up::Finish(run as u8, attempt));
        } else {
            device.journal[run] = Entry::Again(attempt);
            next.say(agent, Up::Reconciled(run as u8, attempt));
        }
        Some(next)
    }
}
