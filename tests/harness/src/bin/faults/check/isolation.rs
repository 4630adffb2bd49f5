//! I13: resources of another application or subject look as if they did not exist: no answer names them, and a request
//! for one gets the same answer as for an unused identifier.

use super::{Observations, Violation};
use crate::history::ProbeRecord;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let told = |probed: &ProbeRecord| {
        let flaw = flaw(probed)?;
        Some(Violation::of("I13", probed.at, format!("{} asked {} and {flaw}", probed.by, probed.asked)))
    };
    witnesses.probed.iter().filter_map(told).collect()
}

fn flaw(probed: &ProbeRecord) -> Option<String> {
    let ProbeRecord { status, code, shows, twin, .. } = probed;
    if !shows.is_empty() {
        return Some(format!("was shown {}", shows.join(", ")));
    }
    if probed.is_list {
        return None;
    }
    if *status != 404 {
        return Some(format!("was answered {status} {code}"));
    }
    let (other_status, other_code) = twin.as_ref()?;
    let differs = (other_status, other_code) != (status, code);
    differs.then(|| format!("was answered {status} {code}, and for what nobody has {other_status} {other_code}"))
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;

    fn told(probed: ProbeRecord) -> String {
        texts(&check(&Observations { probed: vec![probed], ..Observations::default() }))
    }

    fn refused() -> ProbeRecord {
        let code = "not_found".to_owned();
        ProbeRecord { by: "s".to_owned(), status: 404, twin: Some((404, code.clone())), code, ..ProbeRecord::default() }
    }

    #[test]
    fn whoever_is_told_what_is_not_theirs_is_found() {
        assert_eq!(told(refused()), "");
        assert!(told(ProbeRecord { status: 200, ..refused() }).contains("was answered 200"));
        assert!(told(ProbeRecord { shows: vec!["run_1".to_owned()], ..refused() }).contains("was shown run_1"));
        assert!(told(ProbeRecord { code: "run_purged".to_owned(), ..refused() }).contains("and for what nobody has"));
    }

    #[test]
    fn a_list_may_be_answered_and_shows_nothing() {
        let list = ProbeRecord { is_list: true, status: 200, code: String::new(), twin: None, ..refused() };
        assert_eq!(told(list.clone()), "");
        assert!(told(ProbeRecord { shows: vec!["run_1".to_owned()], ..list }).contains("was shown run_1"));
    }
}
