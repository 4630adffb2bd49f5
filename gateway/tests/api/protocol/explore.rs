//! Explores every reachable state, and checks that each of them comes to an end.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::{ExecutionStage, JournalEntry, Mistake, ModelSession, ModelState};

/// The result of an exploration.
pub(super) struct ExplorationResult {
    /// How many states there are.
    pub(super) states: usize,
    /// The violated rule, and the states that lead to it.
    pub(super) wrong: Option<(&'static str, Vec<ModelState>)>,
}

/// Explores everything that can follow from `first`, in the order of its distance.
pub(super) fn explore(first: ModelState, mistake: Mistake) -> ExplorationResult {
    let mut numbers = HashMap::from([(first.clone(), 0_u32)]);
    let (mut worlds, mut parents, mut before) = (vec![first], vec![0_u32], vec![Vec::new()]);
    let mut steps = Vec::new();
    let mut at = 0;
    while at < worlds.len() {
        let gateway = worlds[at].clone();
        gateway.steps(mistake, &mut steps);
        for next in steps.drain(..) {
            if let Err(wrong) = next.judge().and_then(|()| next.judge_step(&gateway)) {
                let mut way = way_to(at as u32, &worlds, &parents);
                way.push(next);
                return ExplorationResult { states: worlds.len(), wrong: Some((wrong, way)) };
            }
            let (_, next) = next.named();
            let number = match numbers.entry(next) {
                Slot::Occupied(known) => *known.get(),
                Slot::Vacant(free) => {
                    let number = worlds.len() as u32;
                    worlds.push(free.key().clone());
                    free.insert(number);
                    parents.push(at as u32);
                    before.push(Vec::new());
                    number
                }
            };
            before[number as usize].push(at as u32);
        }
        at += 1;
    }
    let wrong = stuck(&worlds, &before).map(|at| ("a run never ends", way_to(at, &worlds, &parents)));
    ExplorationResult { states: worlds.len(), wrong }
}

/// A state from which no path leads to the end of all runs. Where the copy holds one, only the copy can help: that is
/// an operator's fault, and the run waits for a person.
fn stuck(worlds: &[ModelState], before: &[Vec<u32>]) -> Option<u32> {
    let mut ends = vec![false; worlds.len()];
    let mut open: Vec<u32> = Vec::new();
    for (at, gateway) in worlds.iter().enumerate() {
        if gateway.is_over() || gateway.agents[1].journal.iter().any(|entry| *entry != JournalEntry::None) {
            ends[at] = true;
            open.push(at as u32);
        }
    }
    while let Some(at) = open.pop() {
        for &earlier in &before[at as usize] {
            if !std::mem::replace(&mut ends[earlier as usize], true) {
                open.push(earlier);
            }
        }
    }
    ends.iter().position(|ends| !ends).map(|at| at as u32)
}

fn way_to(mut at: u32, worlds: &[ModelState], parents: &[u32]) -> Vec<ModelState> {
    let mut way = vec![worlds[at as usize].clone()];
    while at != 0 {
        at = parents[at as usize];
        way.push(worlds[at as usize].clone());
    }
    way.reverse();
    way
}

impl ModelState {
    /// Everything that can follow.
    pub(super) fn steps(&self, mistake: Mistake, to: &mut Vec<Self>) {
        self.gateway_steps(mistake, to);
        self.agent_steps(mistake, to);
        self.fault_steps(mistake, to);
        to.iter_mut().for_each(Self::tidy);
    }

    /// Sets everything that cannot matter any more to the same value in all states.
    pub(super) fn tidy(&mut self) {
        for agent in &mut self.agents {
            for run in 0..super::RUN_COUNT {
                if !matches!(agent.journal[run], JournalEntry::Running(_) | JournalEntry::Unknown(_)) {
                    agent.intended[run] = false;
                    agent.work[run] = ExecutionStage::Idle;
                }
            }
        }
        // A connection without a listener and without frames under way leads to nothing, except the newest: runs are
        // offered there until that is noticed.
        let newest = self.epoch;
        let is_said = |it: &ModelSession| !it.up.is_empty() || !it.to_settle.is_empty();
        self.sessions.retain(|it| it.is_heard || it.epoch == 0 || it.epoch == newest || is_said(it));
        self.sessions.sort_by_key(|session| (session.epoch, session.agent, session.is_heard));
        // One gateway is like the other.
        if self.sessions.first().is_some_and(|first| first.gateway != 0) {
            for session in &mut self.sessions {
                session.gateway = 1 - session.gateway;
            }
        }
    }
}
