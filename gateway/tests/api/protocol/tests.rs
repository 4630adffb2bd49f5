use super::explore::explore;
use super::{Mistake, World};

fn holds(runs: usize, faults: u8, at_least: usize) {
    let found = explore(World::new(runs, faults), Mistake::None);
    if let Some((wrong, way)) = found.wrong {
        panic!("{wrong}: {way:#?}");
    }
    assert!(found.states > at_least, "only {} states: the model does next to nothing", found.states);
}

#[test]
fn whatever_breaks_and_in_whatever_order_every_run_ends_and_none_does_twice_what_it_does() {
    holds(1, 2, 50_000);
    holds(2, 1, 50_000);
}

/// Takes minutes and gigabytes.
#[test]
#[ignore = "make model"]
fn the_same_holds_for_one_fault_more() {
    holds(1, 3, 1_000_000);
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
        let found = explore(World::new(1, faults), mistake);
        assert!(found.wrong.is_some(), "{mistake:?} does no harm in {} states", found.states);
    }
}
