//! I11: a revoked key, application or device is refused after a second, its open stream ends within five seconds, and a
//! device's session within two.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::history::{CallAction, CallRecord};

/// Microseconds after a revocation's confirmation from which no request may succeed.
const REVOCATION_LIMIT_US: u64 = 1_000_000;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut calls: BTreeMap<&str, Vec<&CallRecord>> = BTreeMap::new();
    for call in &witnesses.calls {
        if let CallAction::Guest { name } = &call.asked {
            calls.entry(name).or_default().push(call);
        }
    }
    let mut violations = Vec::new();
    for revoked in &witnesses.revoked {
        let name = &revoked.name;
        let late = calls.get(name.as_str()).into_iter().flatten().filter(|call| {
            call.begun > revoked.acknowledged + REVOCATION_LIMIT_US && call.status.is_some_and(|status| status < 300)
        });
        for call in late {
            let after = (call.begun - revoked.acknowledged) / 1000;
            let text = format!("{name} was taken by replica {} {after} ms after its revocation", call.replica);
            violations.push(Violation::of("I11", call.begun, text));
        }
        if revoked.has_open && revoked.ended.is_none_or(|ended| ended > revoked.acknowledged + revoked.bound) {
            let after = revoked.ended.map(|ended| ended.saturating_sub(revoked.acknowledged) / 1000);
            let text = format!("what {name} had open ended {after:?} ms after its revocation");
            violations.push(Violation::of("I11", revoked.acknowledged, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, texts};
    use super::*;
    use crate::history::{AnswerContent, RevocationRecord};

    fn told(begun: u64, status: u16, ended: Option<u64>) -> Observations {
        let mut asked = call("cut", begun, CallAction::Guest { name: "g".to_owned() }, AnswerContent::Nothing);
        asked.status = Some(status);
        let revoked =
            RevocationRecord { name: "g".to_owned(), acknowledged: 1_000_000, ended, bound: 5_000_000, has_open: true };
        Observations { revoked: vec![revoked], ..calls(&[asked]) }
    }

    #[test]
    fn a_revoked_key_that_is_taken_a_second_later_is_found() {
        assert_eq!(check(&told(1_900_000, 200, Some(5_900_000))), [], "within the bounds");
        assert_eq!(check(&told(9_900_000, 401, Some(1_000_000))), []);
        assert!(texts(&check(&told(2_100_000, 200, Some(1_000_000)))).contains("1100 ms after its revocation"));
    }

    #[test]
    fn a_stream_that_goes_on_is_found() {
        assert!(texts(&check(&told(0, 200, Some(6_100_000)))).contains("Some(5100) ms after"));
        assert!(texts(&check(&told(0, 200, None))).contains("None ms after"));
    }
}
