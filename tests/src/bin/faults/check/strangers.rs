//! I13: what belongs to another application or subject is to everybody else as if it did not exist: no answer names it, and
//! whoever asks for it is answered as for what nobody has.

use super::{Violation, Witnesses};
use crate::history::Probed;

pub(super) fn check(witnesses: &Witnesses) -> Vec<Violation> {
    let told = |probed: &Probed| {
        let flaw = flaw(probed)?;
        Some(Violation::of("I13", probed.at, format!("{} asked {} and {flaw}", probed.by, probed.asked)))
    };
    witnesses.probed.iter().filter_map(told).collect()
}

fn flaw(probed: &Probed) -> Option<String> {
    let Probed { status, code, shows, twin, .. } = probed;
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
    use super::super::told::texts;
    use super::*;

    fn told(probed: Probed) -> String {
        texts(&check(&Witnesses { probed: vec![probed], ..Witnesses::default() }))
    }

    fn refused() -> Probed {
        let code = "not_found".to_owned();
        Probed { by: "s".to_owned(), status: 404, twin: Some((404, code.clone())), code, ..Probed::default() }
    }

    #[test]
    fn whoever_is_told_what_is_not_theirs_is_found() {
        assert_eq!(told(refused()), "");
        assert!(told(Probed { status: 200, ..refused() }).contains("was answered 200"));
        assert!(told(Probed { shows: vec!["run_1".to_owned()], ..refused() }).contains("was shown run_1"));
        assert!(told(Probed { code: "run_purged".to_owned(), ..refused() }).contains("and for what nobody has"));
    }

    #[test]
    fn a_list_may_be_answered_and_shows_nothing() {
        let list = Probed { is_list: true, status: 200, code: String::new(), twin: None, ..refused() };
        assert_eq!(told(list.clone()), "");
        assert!(told(Probed { shows: vec!["run_1".to_owned()], ..list }).contains("was shown run_1"));
    }
}
