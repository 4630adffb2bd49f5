//! A part of I5: an end that a device reports in an outdated attempt or session does not count.

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let changed = witnesses.stale.iter().filter(|stale| stale.ended != stale.wanted);
    changed
        .map(|stale| {
            let text = format!("{} ended as \"{}\", said in {} that was over", stale.run_id, stale.ended, stale.over);
            Violation::of("I5", stale.at, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;
    use crate::history::StaleFinishRecord;

    #[test]
    fn an_end_of_an_attempt_that_was_over_is_found() {
        let told = |ended: &str| {
            let (wanted, ended) = ("newer".to_owned(), ended.to_owned());
            let stale =
                StaleFinishRecord { run_id: "r".to_owned(), at: 1, over: "an attempt".to_owned(), wanted, ended };
            Observations { stale: vec![stale], ..Observations::default() }
        };
        assert_eq!(check(&told("newer")), []);
        assert!(texts(&check(&told("older"))).contains("r ended as \"older\", said in an attempt that was over"));
    }
}
