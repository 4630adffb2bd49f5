//! I19: the database is consistent, and no program logged an impossible state.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let evidence = &witnesses.evidence;
    evidence.database.iter().chain(&evidence.logged).map(|flaw| Violation::of("I19", None, flaw.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_of_the_database_and_of_a_log_are_found() {
        let mut witnesses = Observations::default();
        assert_eq!(check(&witnesses), []);
        witnesses.evidence.database.push("an index".to_owned());
        witnesses.evidence.logged.push("a panic".to_owned());
        assert_eq!(check(&witnesses).len(), 2);
    }
}
