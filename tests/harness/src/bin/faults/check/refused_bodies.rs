//! I23: a body that is refused before it is read is answered all the same, and no request behind it on the connection is lost.

use super::{Observations, Violation};
use crate::history::RefusedBodyRecord;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let told = |record: &RefusedBodyRecord| {
        let what = match record.refused {
            None => "had no answer".to_owned(),
            Some(status) => format!("was refused with {status}, and the request behind it had no answer"),
        };
        let text =
            format!("a body of {} bytes of {} at gateway {} {what}", record.bytes, record.caller, record.replica);
        Violation::of("I23", record.begun, text)
    };
    let is_lost = |record: &&RefusedBodyRecord| record.refused.is_none() || record.is_kept && record.behind.is_none();
    witnesses.refused_bodies.iter().filter(is_lost).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;

    #[test]
    fn a_refusal_that_does_not_arrive_and_a_request_that_is_lost_behind_one_are_found() {
        let record = |refused, is_kept, behind| RefusedBodyRecord { refused, is_kept, behind, ..Default::default() };
        let of = |records: &[RefusedBodyRecord]| {
            check(&Observations { refused_bodies: records.to_vec(), ..Observations::default() })
        };
        assert_eq!(of(&[record(Some(400), true, Some(200)), record(Some(400), false, None)]), []);
        assert!(texts(&of(&[record(None, false, None)])).contains("had no answer"));
        assert!(texts(&of(&[record(Some(400), true, None)])).contains("the request behind it had no answer"));
    }
}
