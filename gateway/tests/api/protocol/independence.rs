//! Two runs are independent: each step of both is, for either, a step that it could have taken alone, or none. Where
//! that holds, two runs do nothing wrong that one alone would not do. That they end is checked by
//! [`explore`](super::explore).

use std::collections::{HashMap, HashSet};

use super::{ExecutionStage, JournalEntry, Mistake, ModelState, RUN_COUNT};

/// The number of explored states, and the first step that one run alone could not have taken.
pub(super) struct IndependenceResult {
    /// Different states.
    pub(super) states: usize,
    pub(super) wrong: Option<Box<[ModelState; 2]>>,
}

/// The states of one run alone: for each, regardless of its faults, how many may still come in it at most.
type SingleRunStates = HashMap<u64, u8>;

/// Explores every step that can follow from `first`.
pub(super) fn explore(first: ModelState, mistake: Mistake) -> IndependenceResult {
    let (number, first) = first.named();
    let mut known = HashSet::from([number]);
    let (mut edge, mut steps) = (vec![first], Vec::new());
    while let Some(gateway) = edge.pop() {
        if let Some(next) = gateway.stepped(mistake, &mut steps) {
            return IndependenceResult { states: known.len(), wrong: Some(Box::new([gateway, next])) };
        }
        for (number, next) in steps.drain(..).map(ModelState::named) {
            if known.insert(number) {
                edge.push(next);
            }
        }
    }
    IndependenceResult { states: known.len(), wrong: None }
}

/// Steps of a random walk: more than two runs need with three faults.
const MAX_WALK_STEPS: usize = 80;
/// Of so many steps one is a fault, so that something is under way when it comes.
const STEPS_PER_FAULT: u64 = 8;

/// Explores the neighbours of so many random walks, the same ones each time.
pub(super) fn walk(first: &ModelState, ways: usize) -> IndependenceResult {
    let (mut steps, mut chance, mut known) = (Vec::new(), 1_u64, HashSet::new());
    let mut below = |most: u64| {
        // Knuth's MMIX; its upper half is the better one.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % most
    };
    for _ in 0..ways {
        let mut gateway = first.clone();
        for _ in 0..MAX_WALK_STEPS {
            if let Some(next) = gateway.stepped(Mistake::None, &mut steps) {
                return IndependenceResult { states: known.len(), wrong: Some(Box::new([gateway, next])) };
            }
            let is_calm = |next: &ModelState| next.faults == gateway.faults;
            if below(STEPS_PER_FAULT) > 0 && steps.iter().any(is_calm) {
                steps.retain(is_calm);
            }
            if steps.is_empty() {
                break;
            }
            let (number, next) = steps.swap_remove(below(steps.len() as u64) as usize).named();
            steps.clear();
            known.insert(number);
            gateway = next;
        }
    }
    IndependenceResult { states: known.len(), wrong: None }
}

impl ModelState {
    /// Everything that can follow; and a violation among it, or a state that one of the runs alone could not have
    /// reached.
    fn stepped(&self, mistake: Mistake, steps: &mut Vec<Self>) -> Option<Self> {
        let alone: [SingleRunStates; RUN_COUNT] = std::array::from_fn(|run| self.alone(run).follows(mistake));
        self.steps(mistake, steps);
        let is_good = |next: &Self| next.judge().and_then(|()| next.judge_step(self)).is_ok();
        let is_alike = |next: &Self, run: usize| {
            let (number, faults) = next.alone(run).without_faults();
            alone[run].get(&number).is_some_and(|most| *most >= faults)
        };
        steps.iter().find(|next| !is_good(next) || !(0..RUN_COUNT).all(|run| is_alike(next, run))).cloned()
    }

    /// The state as one run sees it: the other one ended before, and leaves no frames.
    fn alone(&self, run: usize) -> Self {
        let mut alone = self.clone();
        let (others, is_own) = (ModelState::new(0, 0), |of: u8| usize::from(of) == run);
        for other in (0..RUN_COUNT).filter(|other| *other != run) {
            (alone.runs[other], alone.effects[other]) = (others.runs[other], others.effects[other]);
            for agent in &mut alone.agents {
                (agent.journal[other], agent.intended[other], agent.work[other]) =
                    (JournalEntry::None, false, ExecutionStage::Idle);
            }
            for session in &mut alone.sessions {
                session.hello[other] = JournalEntry::None;
            }
        }
        for session in &mut alone.sessions {
            session.to_settle.retain(|(of, ..)| is_own(*of));
            session.down.retain_mut(|frame| is_own(*frame.parts().0));
            session.up.retain_mut(|frame| is_own(*frame.parts().0));
        }
        alone.tidy();
        alone
    }

    /// The state itself, and everything that is one step further.
    fn follows(&self, mistake: Mistake) -> SingleRunStates {
        let mut steps = vec![self.clone()];
        self.steps(mistake, &mut steps);
        let mut follows = SingleRunStates::new();
        for (number, faults) in steps.into_iter().map(Self::without_faults) {
            let most = follows.entry(number).or_insert(faults);
            *most = faults.max(*most);
        }
        follows
    }

    /// Its number without faults to come, and how many can.
    fn without_faults(self) -> (u64, u8) {
        let faults = self.faults;
        (Self { faults: 0, ..self }.named().0, faults)
    }
}
