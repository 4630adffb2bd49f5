//! I8: a run's stored events are dense from 1 and end with the one final event; a follower sees each event once over
//! any number of connections, the same as in the JSON form.

use super::{Observations, Violation};
use crate::history::{FollowRecord, StoredEvent};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (run_id, events) in &witnesses.evidence.events {
        let numbers: Vec<_> = events.iter().map(|event| event.sequence).collect();
        if numbers.iter().zip(1..).any(|(number, wanted)| *number != wanted) || numbers.is_empty() {
            violations.push(Violation::of("I8", None, format!("the events of {run_id} are numbered {numbers:?}")));
        }
        if events.iter().rev().skip(1).any(StoredEvent::is_final) {
            violations.push(Violation::of("I8", None, format!("something follows the final event of {run_id}")));
        }
    }
    for followed in &witnesses.followed {
        let stored = witnesses.evidence.events.get(&followed.run_id).map(Vec::as_slice).unwrap_or_default();
        if let Some(flaw) = flaw(followed, stored) {
            let text = format!("{} followed {} and {flaw}", followed.caller, followed.run_id);
            violations.push(Violation::of("I8", None, text));
        }
    }
    violations
}

fn flaw(followed: &FollowRecord, stored: &[StoredEvent]) -> Option<String> {
    let mut last = 0;
    for event in followed.connections.iter().flat_map(|connection| &connection.events) {
        if event.sequence != last + 1 {
            return Some(format!("saw {} after {last}", event.sequence));
        }
        last = event.sequence;
        if stored.get(usize::try_from(last).unwrap_or(usize::MAX) - 1) != Some(event) {
            return Some(format!("saw another {} {last} than the JSON form shows", event.kind));
        }
    }
    let is_short = followed.is_whole && last != stored.len() as u64;
    is_short.then(|| format!("was told that {last} of {} events are all", stored.len()))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{events, texts};
    use super::*;
    use crate::history::StreamConnection;

    const EVENT_TYPES: [&str; 3] = ["run.accepted", "run.started", "run.succeeded"];

    fn told(connections: &[&[usize]]) -> Observations {
        let all = events(&EVENT_TYPES);
        let connection = |places: &&[usize]| StreamConnection {
            after: 0,
            events: places.iter().map(|place| all[*place].clone()).collect(),
            ..StreamConnection::default()
        };
        let connections = connections.iter().map(connection).collect();
        let followed = FollowRecord { caller: "a".to_owned(), run_id: "r".to_owned(), connections, is_whole: true };
        let mut witnesses = Observations { followed: vec![followed], ..Observations::default() };
        witnesses.evidence.events.insert("r".to_owned(), all);
        witnesses
    }

    #[test]
    fn each_event_once_over_two_connections_is_good() {
        assert_eq!(check(&told(&[&[0], &[1, 2]])), []);
    }

    #[test]
    fn an_event_twice_or_missing_is_found() {
        assert!(texts(&check(&told(&[&[0, 1], &[1, 2]]))).contains("saw 2 after 2"));
        assert!(texts(&check(&told(&[&[0], &[2]]))).contains("saw 3 after 1"));
        assert!(texts(&check(&told(&[&[0, 1]]))).contains("2 of 3 events are all"));
    }

    #[test]
    fn an_event_that_says_something_else_is_found() {
        let mut other = told(&[&[0, 1, 2]]);
        other.followed[0].connections[0].events[1].digest = 99;
        assert!(texts(&check(&other)).contains("saw another run.started 2"));
    }

    #[test]
    fn a_hole_in_the_stored_events_or_something_behind_the_end_is_found() {
        let mut hole = told(&[]);
        hole.followed.clear();
        assert_eq!(check(&hole), []);
        hole.evidence.events.get_mut("r").expect("it is there").remove(1);
        assert!(texts(&check(&hole)).contains("numbered [1, 3]"));
        hole.evidence.events.insert("r".to_owned(), events(&["run.accepted", "run.failed", "run.started"]));
        assert!(texts(&check(&hole)).contains("something follows"));
    }
}
