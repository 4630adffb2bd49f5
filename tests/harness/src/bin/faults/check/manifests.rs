//! I16: a run executes only under the manifest that it was accepted for: its model gets the instructions of that
//! version, whatever was published since.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let releases: BTreeMap<_, _> = witnesses
        .published
        .iter()
        .map(|published| ((published.desktop, published.version), published.release))
        .collect();
    let mut accepted: BTreeMap<&str, BTreeSet<(usize, u64)>> = BTreeMap::new();
    let jobs = witnesses.jobs_of_runs();
    for (run_id, sights) in witnesses.seen_of_runs() {
        let Some(job) = jobs.get(run_id) else { continue };
        let versions = sights.iter().map(|sight| (sight.call.desktop, sight.call.version));
        accepted.entry(job).or_default().extend(versions.filter(|(_, version)| *version > 0));
    }
    let mut violations = Vec::new();
    for (job, versions) in &accepted {
        if versions.len() > 1 {
            violations.push(Violation::of("I16", None, format!("{job} was shown with the versions {versions:?}")));
        }
    }
    for turn in &witnesses.turns {
        let version = accepted.get(&turn.job[..]).and_then(|versions| versions.first());
        let Some((version, release)) = version.and_then(|version| Some((version, releases.get(version)?))) else {
            continue;
        };
        if turn.release != Some(*release) {
            let text = format!(
                "{} was accepted for version {}, which is release {release}, and asked its model with release {:?}",
                turn.job, version.1, turn.release
            );
            violations.push(Violation::of("I16", turn.begun, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, submit, texts};
    use super::*;
    use crate::history::PublicationRecord;
    use crate::testbed::fake_model::ModelTurn;

    fn told(versions: &[u64], release: u64) -> Observations {
        let shown = versions.iter().map(|version| {
            let mut call = call("a", *version, submit("j"), run("run_1", "queued"));
            call.version = *version;
            call
        });
        let published = [(1, 10), (2, 20)].map(|(version, release)| PublicationRecord { desktop: 0, version, release });
        let turn = ModelTurn { job: "j".to_owned(), release: Some(release), ..ModelTurn::default() };
        let shown: Vec<_> = shown.collect();
        Observations { published: published.to_vec(), turns: vec![turn], ..calls(&shown) }
    }

    #[test]
    fn instructions_of_another_version_are_found() {
        assert_eq!(check(&told(&[2], 20)), []);
        assert!(texts(&check(&told(&[1], 20))).contains("accepted for version 1, which is release 10"));
    }

    #[test]
    fn a_version_that_changes_is_found() {
        assert!(texts(&check(&told(&[1, 2], 10))).contains("was shown with the versions"));
    }
}
