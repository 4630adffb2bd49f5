//! I18: from ten seconds behind the last fault on, 99 of 100 new submissions are accepted at the first try, and the runs end.

use super::{Violation, Witnesses};

/// Submissions without which nothing can be said.
const LEAST: usize = 10;

pub(super) fn check(witnesses: &Witnesses) -> Vec<Violation> {
    let (from, to) = witnesses.calm;
    let is_calm = |begun: u64| (from..to).contains(&begun);
    let submitted: Vec<_> = witnesses.done.iter().filter(|done| done.name == "submit" && is_calm(done.begun)).collect();
    let mut violations = Vec::new();
    if submitted.len() < LEAST {
        let text = format!("only {} submissions were made when nothing was broken any more", submitted.len());
        violations.push(Violation::of("I18", from, text));
    }
    let late: Vec<_> = submitted.iter().filter(|done| !done.succeeded || done.tries > 1).collect();
    if late.len() * 100 > submitted.len() {
        let text = format!("{} of {} submissions were not accepted at the first try", late.len(), submitted.len());
        violations.push(Violation::of("I18", late[0].begun, text));
    }
    for run in witnesses.done.iter().filter(|done| done.name == "run" && is_calm(done.begun) && !done.succeeded) {
        let run_id = run.run_id.as_deref().unwrap_or_default();
        violations.push(Violation::of("I18", run.begun, format!("{run_id} began in calm and did not succeed")));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::told::{done, texts};
    use super::*;

    fn told(count: u64) -> Witnesses {
        let done = (0..count).flat_map(|at| [done("submit", 100 + at, "r"), done("run", 100 + at, "r")]).collect();
        Witnesses { done, calm: (100, 500), ..Witnesses::default() }
    }

    #[test]
    fn submissions_that_are_accepted_at_once_and_end_are_good() {
        assert_eq!(check(&told(100)), []);
    }

    #[test]
    fn too_few_too_late_and_unfinished_are_found() {
        assert!(texts(&check(&told(3))).contains("only 3 submissions"));
        let mut late = told(100);
        late.done[0].tries = 2;
        assert_eq!(check(&late), [], "one of a hundred may be");
        late.done[2].tries = 2;
        assert!(texts(&check(&late)).contains("2 of 100 submissions"));
        let mut unfinished = told(100);
        unfinished.done[1].succeeded = false;
        assert!(texts(&check(&unfinished)).contains("did not succeed"));
    }
}
