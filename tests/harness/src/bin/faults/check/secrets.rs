//! I14: secrets are only where they are allowed.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let evidence = &witnesses.evidence;
    let mut violations: Vec<_> = evidence.leaked.iter().map(|leak| Violation::of("I14", None, leak.clone())).collect();
    if evidence.secrets == 0 {
        violations.push(Violation::of("I14", None, "no secret was looked for".to_owned()));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;

    #[test]
    fn a_leak_is_found_and_so_is_a_search_for_nothing() {
        let mut witnesses = Observations::default();
        assert!(texts(&check(&witnesses)).contains("no secret was looked for"));
        witnesses.evidence.secrets = 3;
        assert_eq!(check(&witnesses), []);
        witnesses.evidence.leaked.push("the key is in a log".to_owned());
        assert!(texts(&check(&witnesses)).contains("the key is in a log"));
    }
}
