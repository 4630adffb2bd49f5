use super::explore::{ExplorationResult, explore};
use super::independence::IndependenceResult;
use super::{Mistake, ModelState, independence, parallel};

type Explorer = fn(ModelState, Mistake) -> ExplorationResult;

fn holds(by: Explorer, runs: usize, faults: u8, at_least: usize) {
    let found = by(ModelState::new(runs, faults), Mistake::None);
    if let Some((wrong, way)) = found.wrong {
        panic!("{wrong}: {way:#?}");
    }
    assert!(found.states > at_least, "only {} states: the model does next to nothing", found.states);
}

#[test]
fn whatever_breaks_and_in_whatever_order_every_run_ends_and_none_does_twice_what_it_does() {
    holds(explore, 1, 2, 50_000);
    holds(explore, 2, 1, 30_000);
}

fn is_apart(looked_at: IndependenceResult, at_least: usize) {
    if let Some(step) = looked_at.wrong {
        panic!("this is wrong, or one run alone could not have come to it: {step:#?}");
    }
    assert!(looked_at.states > at_least, "only {} states", looked_at.states);
}

#[test]
fn whatever_happens_to_one_of_two_runs_could_have_happened_to_it_alone() {
    is_apart(independence::explore(ModelState::new(2, 1), Mistake::None), 30_000);
    is_apart(independence::walk(&ModelState::new(2, 3), 300), 3_000);
    let mistaken = independence::explore(ModelState::new(2, 0), Mistake::ForgetsAllEnds);
    assert!(mistaken.wrong.is_some(), "one run's end is lost with the other's in {} states", mistaken.states);
}

/// Takes minutes and gigabytes.
#[test]
#[ignore = "make model"]
fn the_same_holds_for_one_fault_more() {
    holds(parallel::explore, 1, 3, 1_000_000);
    holds(parallel::explore, 2, 2, 1_000_000);
    is_apart(independence::walk(&ModelState::new(2, 3), 100_000), 100_000);
}

#[test]
fn every_planted_mistake_is_found() {
    for (mistake, faults) in [
        (Mistake::AcceptWithoutFence, 1),
        (Mistake::IntentAfterEffect, 1),
        (Mistake::IntentsAreNotRead, 1),
        (Mistake::ForgottenWhenSent, 1),
        (Mistake::StartsWithoutStart, 1),
    ] {
        let found = explore(ModelState::new(1, faults), mistake);
        assert!(found.wrong.is_some(), "{mistake:?} does no harm in {} states", found.states);
    }
}

#[test]
fn both_ways_to_explore_know_the_same_states_and_find_the_same_mistakes() {
    let [near, far] = [explore, parallel::explore].map(|by: Explorer| by(ModelState::new(2, 1), Mistake::None).states);
    assert_eq!(near, far);
    let found = parallel::explore(ModelState::new(1, 1), Mistake::AcceptWithoutFence);
    let (_, way) = found.wrong.expect("a run does twice what it does");
    assert!(way.len() > 3 && way[0] == ModelState::new(1, 1).named().1, "{way:#?}");
}
