//! Explores further than full states can be stored: it keeps only a number for each. The rules for every state are
//! checked; whether every run comes to an end is checked by [`explore`](super::explore).

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::explore::ExplorationResult;
use super::{Mistake, ModelState};

/// Shards of the visited states, so that threads seldom wait for each other.
const SHARD_COUNT: usize = 64;
/// States that a thread takes at a time.
const CHUNK_STATES: usize = 4096;

/// Each known state by its number, with the one that it came from.
struct VisitedStates([Mutex<HashMap<u64, u64>>; SHARD_COUNT]);

impl VisitedStates {
    fn with<T>(&self, state: u64, work: impl FnOnce(&mut HashMap<u64, u64>) -> T) -> T {
        work(&mut self.0[state as usize % SHARD_COUNT].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it was not known before.
    fn is_new(&self, state: u64, from: u64) -> bool {
        self.with(state, |known| match known.entry(state) {
            Slot::Occupied(_) => false,
            Slot::Vacant(free) => {
                free.insert(from);
                true
            }
        })
    }

    fn count(&self) -> usize {
        self.0.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// The numbers of the states that lead from the first to this one.
    fn way_to(&self, mut state: u64) -> Vec<u64> {
        let mut way = vec![state];
        while let Some(from) = self.with(state, |known| known.get(&state).copied()).filter(|from| *from != state) {
            way.push(from);
            state = from;
        }
        way.reverse();
        way
    }
}

/// A violated rule, after the state with this number.
type Counterexample = (&'static str, u64, ModelState);

/// Explores everything that can follow from `first`, a step further each time.
pub(super) fn explore(first: ModelState, mistake: Mistake) -> ExplorationResult {
    let known = VisitedStates(std::array::from_fn(|_| Mutex::default()));
    let (number, first) = first.named();
    known.is_new(number, number);
    let mut edge = vec![(number, first.clone())];
    while !edge.is_empty() {
        let pieces = Mutex::new(edge.chunks(CHUNK_STATES));
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let worked = thread::scope(|scope| {
            let work = || further(&pieces, mistake, &known);
            let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            working.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Vec<_>>()
        });
        let mut next = Vec::new();
        for part in worked {
            match part {
                Ok(part) => next.extend(part),
                Err((wrong, from, last)) => {
                    let mut way = walked(&first, &known.way_to(from), mistake);
                    way.push(last);
                    return ExplorationResult { states: known.count(), wrong: Some((wrong, way)) };
                }
            }
        }
        edge = next;
    }
    ExplorationResult { states: known.count(), wrong: None }
}

/// The new states one step after the chunks that this thread takes.
fn further<'a>(
    pieces: &Mutex<impl Iterator<Item = &'a [(u64, ModelState)]>>,
    mistake: Mistake,
    known: &VisitedStates,
) -> Result<Vec<(u64, ModelState)>, Counterexample> {
    let (mut new, mut steps) = (Vec::new(), Vec::new());
    loop {
        let Some(piece) = pieces.lock().unwrap_or_else(PoisonError::into_inner).next() else { return Ok(new) };
        for (from, gateway) in piece {
            gateway.steps(mistake, &mut steps);
            for next in steps.drain(..) {
                if let Err(wrong) = next.judge().and_then(|()| next.judge_step(gateway)) {
                    return Err((wrong, *from, next));
                }
                let (number, next) = next.named();
                if known.is_new(number, *from) {
                    new.push((number, next));
                }
            }
        }
    }
}

/// The states with these numbers, found again from the first.
fn walked(first: &ModelState, numbers: &[u64], mistake: Mistake) -> Vec<ModelState> {
    let mut way = vec![first.clone()];
    for wanted in &numbers[1..] {
        let mut steps = Vec::new();
        way.last().expect("it begins with one").steps(mistake, &mut steps);
        let next = steps.into_iter().map(ModelState::named).find(|(number, _)| number == wanted);
        way.push(next.expect("it was found there before").1);
    }
    way
}
