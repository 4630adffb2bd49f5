//! The protocol of runs as a small machine, explored exhaustively: two gateways on one database, two agents with one
//! key (the second runs on a copy), one run or two, up to three faults, every order of everything.
//!
//! A step is one commit, one frame taken, or one fault. The product's own [`settle`] decides about the runs of a device
//! that is back; the rest repeats in a few lines the statements of `store::attempts` and the device's dispatcher.
//! Between any two steps a process can die and a connection can break; frames that were under way then may still arrive
//! at a gateway that has not noticed.
//!
//! All states with three faults can be explored for one run, and with two for two. For two runs with three,
//! [`independence`] shows something else, in all states with one fault and in many with three: each run only does what
//! it could have done alone.

mod agent;
mod explore;
mod gateway;
mod independence;
mod parallel;
mod symmetry;
mod tests;

use deskgate_gateway::domain::devices::Settlement;

/// Runs, all for the one device.
const RUN_COUNT: usize = 2;
/// Gateways that the device can connect to.
const GATEWAY_COUNT: u8 = 2;
/// Agents with the device's key: its own, and a copy with a journal of its own.
const AGENT_COUNT: usize = 2;

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelState {
    runs: [RunRow; RUN_COUNT],
    /// The device's newest session, as the database has it.
    epoch: u8,
    sessions: Vec<ModelSession>,
    agents: [AgentProcess; AGENT_COUNT],
    /// How often each run had its effect.
    effects: [u8; RUN_COUNT],
    /// Faults that may still come.
    faults: u8,
}

/// A run's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RunRow {
    state: RunStage,
    is_offered: bool,
    attempt: u8,
    epoch: u8,
    unknown_attempt: u8,
    is_reoffered: bool,
}

/// A run's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RunStage {
    Queued,
    Running,
    InDoubt,
    Final,
}

/// One session as its gateway has it, with the frames under way on its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelSession {
    gateway: u8,
    agent: u8,
    /// 0: the hello was not processed yet.
    epoch: u8,
    /// Whether its agent still listens.
    is_heard: bool,
    hello: [JournalEntry; RUN_COUNT],
    to_settle: Vec<(u8, u8, Settlement)>,
    down: Vec<GatewayMessage>,
    up: Vec<AgentMessage>,
}

/// Frames of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GatewayMessage {
    Offer(u8, u8),
    Start(u8, u8),
    Ack(u8, u8),
    /// That a run is unknown is stored: its owner's decision may follow.
    Heard(u8, u8),
    Revoke(u8, u8),
}

/// Frames of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AgentMessage {
    Accept(u8, u8),
    Refuse(u8, u8),
    Finish(u8, u8),
    Reconciled(u8, u8),
}

/// A process with its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AgentProcess {
    is_connected: bool,
    /// From the moment that its session is the newest.
    is_welcomed: bool,
    journal: [JournalEntry; RUN_COUNT],
    /// Whether a writing step was begun in this attempt. In the journal, too.
    intended: [bool; RUN_COUNT],
    /// The work in memory.
    work: [ExecutionStage; RUN_COUNT],
}

/// A run and its attempt in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum JournalEntry {
    None,
    Taken(u8),
    Running(u8),
    Interrupted(u8),
    Unknown(u8),
    /// Its owner looked, and has it run again.
    Again(u8),
    Finished(u8),
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ExecutionStage {
    Idle,
    Begun,
    Intended,
    Done,
}

/// Mistakes that the model must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// An acceptance counts in any session and attempt.
    AcceptWithoutFence,
    /// A tool's effect happens before the journal records its intent.
    IntentAfterEffect,
    /// An interrupted run is started again without regard to the journal's intents.
    IntentsAreNotRead,
    /// The journal forgets an end when it was sent, not when it was acknowledged.
    ForgottenWhenSent,
    /// A device executes when it took an offer, without waiting for the start to be durable.
    StartsWithoutStart,
    /// An acknowledgement for one run counts for all.
    ForgetsAllEnds,
}

impl ModelState {
    /// `runs` that wait; the others have ended.
    fn new(runs: usize, faults: u8) -> Self {
        let run = RunRow {
            state: RunStage::Queued,
            is_offered: false,
            attempt: 0,
            epoch: 0,
            unknown_attempt: 0,
            is_reoffered: false,
        };
        let over = |number| number >= runs;
        let agent = AgentProcess {
            is_connected: false,
            is_welcomed: false,
            journal: [JournalEntry::None; RUN_COUNT],
            intended: [false; RUN_COUNT],
            work: [ExecutionStage::Idle; RUN_COUNT],
        };
        Self {
            runs: std::array::from_fn(
                |number| if over(number) { RunRow { state: RunStage::Final, ..run } } else { run },
            ),
            epoch: 0,
            sessions: Vec::new(),
            agents: [agent; AGENT_COUNT],
            effects: std::array::from_fn(|number| over(number).into()),
            faults,
        }
    }

    /// The rules for every state; `Err`: the violated one.
    fn judge(&self) -> Result<(), &'static str> {
        if self.effects.iter().any(|times| *times > 1) {
            return Err("a run did twice what it does");
        }
        for (number, run) in self.runs.iter().enumerate() {
            if run.state == RunStage::Final && self.effects[number] == 0 {
                return Err("a run succeeded that did nothing");
            }
            let executing = self.agents.iter().filter(|agent| agent.work[number] != ExecutionStage::Idle).count();
            if executing > 1 {
                return Err("two agents execute a run at the same time");
            }
        }
        Ok(())
    }

    /// The rules for a step from `before`; a final state stays.
    fn judge_step(&self, before: &Self) -> Result<(), &'static str> {
        let mut pairs = before.runs.iter().zip(&self.runs);
        if pairs.any(|(was, is)| was.state == RunStage::Final && was != is) {
            return Err("a final run changed");
        }
        let is_over = |run: usize| before.runs[run].state == RunStage::Final;
        if (0..RUN_COUNT).any(|run| is_over(run) && self.effects[run] > before.effects[run]) {
            return Err("a run did something after its end");
        }
        Ok(())
    }

    /// Whether everything that was accepted has ended.
    fn is_over(&self) -> bool {
        self.runs.iter().all(|run| run.state == RunStage::Final)
    }
}
