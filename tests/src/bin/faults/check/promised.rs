//! What single faults must show beyond the invariants.

use super::{Violation, Witnesses};
use crate::plan::Kind;
use crate::scene::REPLICAS;
use crate::strikes::{Strike, one_of};

/// Microseconds in which another gateway must have answered.
const SERVES: u64 = 1_000_000;
/// Three heartbeats of a second, and one for a machine with more to do than it can; in milliseconds.
const NOTICES: u64 = 4000;

/// Faults of a kind that were shown to have struck.
fn struck(witnesses: &Witnesses, kind: Kind) -> impl Iterator<Item = &Strike> {
    witnesses.strikes.iter().filter(move |strike| strike.kind() == kind && strike.proof.is_ok())
}

/// F1: within a second another gateway has answered somebody as it should.
pub(super) fn others_serve(witnesses: &Witnesses) -> Vec<Violation> {
    let silent = struck(witnesses, Kind::F1).filter(|strike| {
        let killed = one_of(strike.planned.target, REPLICAS);
        let answered = witnesses.calls.iter().filter(|call| call.replica != killed && call.begun >= strike.begun);
        !answered.into_iter().any(|call| call.ended <= strike.begun + SERVES && call.status.is_some_and(|s| s < 300))
    });
    silent
        .map(|strike| {
            let text = format!("nobody answered within a second of fault {}", strike.planned.number);
            Violation::of("F1", strike.begun, text)
        })
        .collect()
}

/// F17: agent and gateway both notice.
pub(super) fn silence_is_noticed(witnesses: &Witnesses) -> Vec<Violation> {
    let late = struck(witnesses, Kind::F17).filter(|strike| strike.noticed_ms.iter().any(|after| *after > NOTICES));
    late.map(|strike| {
        let text = format!("fault {} was noticed after {:?} ms only", strike.planned.number, strike.noticed_ms);
        Violation::of("F17", strike.begun, text)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::told::{call, calls, read, run, texts};
    use super::*;
    use crate::plan::Planned;

    fn strike(kind: Kind, noticed_ms: &[u64]) -> Strike {
        let planned = Planned { number: 0, kind, pause_ms: 0, lasts_ms: 0, target: 1, manner: 0 };
        Strike { planned, begun: 10, healed: 20, proof: Ok(String::new()), noticed_ms: noticed_ms.to_vec() }
    }

    #[test]
    fn a_killed_gateway_whose_like_are_silent_is_found() {
        let told = |at, replica| {
            let mut answered = calls(&[call("a", at, read("r"), run("r", "queued"))]);
            answered.calls[0].replica = replica;
            answered.strikes.push(strike(Kind::F1, &[]));
            answered
        };
        assert_eq!(others_serve(&told(15, 0)), []);
        assert!(texts(&others_serve(&told(15, 1))).contains("nobody answered"), "it is the one that was killed");
        assert!(texts(&others_serve(&told(2_000_000, 0))).contains("nobody answered"));
    }

    #[test]
    fn a_silence_that_one_end_does_not_notice_is_found() {
        let told =
            |noticed_ms: &[u64]| Witnesses { strikes: vec![strike(Kind::F17, noticed_ms)], ..Witnesses::default() };
        assert_eq!(silence_is_noticed(&told(&[3100, 2900])), []);
        assert!(texts(&silence_is_noticed(&told(&[3100, u64::MAX]))).contains("noticed after"));
    }
}
