//! I26: what a run handed out is listed once, in its own record only, and is downloaded as it was in the service's folder.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation};
use crate::history::{CallAction, DecisionTopic, ListedFile};
use crate::plan::FaultKind;
use crate::testbed::carry::ASKED_FOLDER;

/// The faults that leave a device no room for copies.
const FULL_DISKS: [FaultKind; 2] = [FaultKind::FillDeviceDisk, FaultKind::FillByCommand];

/// A final record's artifacts, and when they were seen.
type Listed<'a> = BTreeMap<&'a str, (&'a [ListedFile], u64)>;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let (mut listed, mut violations) = (Listed::new(), Vec::new());
    for (run_id, sights) in witnesses.seen_of_runs() {
        for sight in sights.iter().filter(|sight| sight.phase == "final") {
            let (now, at) = (sight.call.artifacts.as_slice(), sight.call.begun);
            let (known, _) = *listed.entry(run_id).or_insert((now, at));
            if known != now {
                let text = format!("{run_id} listed {known:?} at its end, and then {now:?}");
                violations.push(Violation::of("I26", at, text));
            }
        }
    }
    violations.extend(lists(witnesses, &listed));
    violations.extend(handed_out(witnesses, &listed));
    violations.extend(downloads(witnesses, &listed));
    violations
}

/// Whether each list has what its own run was to hand out, once, with its event.
fn lists(witnesses: &Observations, listed: &Listed<'_>) -> Vec<Violation> {
    let (mut violations, mut owners) = (Vec::new(), BTreeMap::new());
    let jobs = witnesses.jobs_of_runs();
    let approved = witnesses.decided.iter().filter(|decided| decided.matter == DecisionTopic::Call && decided.is_yes);
    let approved: BTreeSet<_> = approved.map(|decided| decided.run_id.as_str()).collect();
    for (run_id, (artifacts, at)) in listed {
        let given = witnesses.given.iter().find(|given| jobs.get(run_id) == Some(&given.job.as_str()));
        for artifact in *artifacts {
            let owner = *owners.entry(artifact.id.as_str()).or_insert((*run_id, artifact));
            let is_asked = artifact.description.starts_with(&format!("{ASKED_FOLDER}/"));
            let flaw = if owner.0 != *run_id {
                format!("is of {} too", owner.0)
            } else if !std::ptr::eq(owner.1, artifact) {
                "is there twice".to_owned()
            } else if given.is_none_or(|given| !given.paths.contains(&artifact.description)) {
                format!("is {:?}, which it was not to hand out", artifact.description)
            } else if is_asked && !approved.contains(run_id) {
                "was not approved by the owner".to_owned()
            } else if artifact.state == "missing" && !witnesses.was_disturbed(&FULL_DISKS, 0, *at) {
                "is missing, and nothing took its bytes away".to_owned()
            } else if !["stored", "missing"].contains(&artifact.state.as_str()) {
                format!("is {:?}", artifact.state)
            } else {
                continue;
            };
            violations.push(Violation::of("I26", *at, format!("{run_id} lists {}, which {flaw}", artifact.id)));
        }
        let told = witnesses.count_events(run_id, "artifact.created");
        if witnesses.evidence.events.contains_key(*run_id) && told != artifacts.len() {
            let text = format!("{run_id} lists {} artifacts, and told of {told}", artifacts.len());
            violations.push(Violation::of("I26", *at, text));
        }
    }
    violations
}

/// Whether everything is listed of which a model was told that it was handed out, in the attempt whose end became the run's.
fn handed_out(witnesses: &Observations, listed: &Listed<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (runs, seen) = (witnesses.runs_of_jobs(), witnesses.seen_of_runs());
    for given in &witnesses.given {
        let Some(run_id) = runs.get(given.job.as_str()).and_then(|runs| runs.first()) else { continue };
        let has_succeeded =
            seen.get(run_id).is_some_and(|sights| sights.iter().any(|sight| sight.state == "succeeded"));
        let turns = witnesses.turns.iter().filter(|turn| turn.job == given.job && turn.served == "whole");
        let (Some((artifacts, at)), Some(last)) = (listed.get(run_id), turns.max_by_key(|turn| turn.begun)) else {
            continue;
        };
        for name in last.files.handed_out.iter().filter(|_| has_succeeded) {
            let count = artifacts.iter().filter(|artifact| artifact.name == *name).count();
            if count != 1 {
                let text = format!("{run_id} handed {name:?} out, and lists it {count} times");
                violations.push(Violation::of("I26", *at, text));
            }
        }
    }
    violations
}

/// Whether every download is what the record says, and what the service's folder had.
fn downloads(witnesses: &Observations, listed: &Listed<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let find = |run_id: &str, id: &str| listed.get(run_id)?.0.iter().find(|artifact| artifact.id == id);
    for fetched in &witnesses.fetched {
        let Some(artifact) = find(&fetched.run_id, &fetched.artifact_id) else { continue };
        if (fetched.size, &fetched.sha256) != (artifact.size, &artifact.sha256) {
            let text = format!(
                "{} is listed with {} bytes, {}, and {} bytes, {}, came in {} parts",
                artifact.id, artifact.size, artifact.sha256, fetched.size, fetched.sha256, fetched.parts
            );
            violations.push(Violation::of("I26", fetched.at, text));
        }
    }
    for call in &witnesses.calls {
        let CallAction::Download { run_id, artifact_id } = &call.asked else { continue };
        let is_stored = find(run_id, artifact_id).is_some_and(|artifact| artifact.state == "stored");
        if let Some(status @ (404 | 410 | 416)) = call.status.filter(|_| is_stored) {
            let text = format!("{artifact_id} is stored, and its download was answered {status} {}", call.code);
            violations.push(Violation::of("I26", call.begun, text));
        }
    }
    for made in &witnesses.made {
        let artifacts = listed.get(made.run_id.as_str()).map(|(artifacts, _)| *artifacts).unwrap_or_default();
        for artifact in artifacts.iter().filter(|artifact| artifact.description == made.path) {
            if (made.size, &made.sha256) != (artifact.size, &artifact.sha256) {
                let text = format!("{} is not what {} had in {}", artifact.id, made.run_id, made.path);
                violations.push(Violation::of("I26", None, text));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, events, read, run, submit, texts};
    use super::*;
    use crate::history::{AnswerContent, CallRecord, DecisionRecord, FetchedRecord, GivenRecord, MadeRecord};
    use crate::testbed::carry::ShownFiles;
    use crate::testbed::fake_model::ModelTurn;

    fn artifact(id: &str, name: &str, path: &str) -> ListedFile {
        let [id, name, description] = [id, name, path].map(str::to_owned);
        ListedFile { id, name, size: 3, sha256: "x".to_owned(), state: "stored".to_owned(), description }
    }

    fn told(artifacts: &[ListedFile]) -> Observations {
        let ended = CallRecord { artifacts: artifacts.to_vec(), ..call("a", 5, read("r"), run("r", "succeeded")) };
        let mut witnesses = calls(&[call("a", 0, submit("j"), run("r", "queued")), ended]);
        let paths = vec!["out/j".to_owned(), "ask/j".to_owned()];
        witnesses.given.push(GivenRecord { job: "j".to_owned(), paths, ..GivenRecord::default() });
        let files = ShownFiles { handed_out: vec!["a".to_owned()], ..ShownFiles::default() };
        let (job, served) = ("j".to_owned(), "whole".to_owned());
        witnesses.turns.push(ModelTurn { job, served, files, ..ModelTurn::default() });
        witnesses.evidence.events.insert("r".to_owned(), events(&vec!["artifact.created"; artifacts.len()]));
        let (run_id, artifact_id, sha256) = ("r".to_owned(), "art_1".to_owned(), "x".to_owned());
        witnesses.made.push(MadeRecord {
            run_id: run_id.clone(),
            path: "out/j".to_owned(),
            size: 3,
            sha256: sha256.clone(),
        });
        witnesses.fetched.push(FetchedRecord { run_id, artifact_id, at: 9, parts: 2, size: 3, sha256 });
        witnesses
    }

    #[test]
    fn what_is_listed_once_and_comes_as_it_was_is_good() {
        assert_eq!(check(&told(&[artifact("art_1", "a", "out/j")])), []);
    }

    #[test]
    fn lists_that_lack_something_or_have_it_twice_or_of_another_run_are_found() {
        let good = artifact("art_1", "a", "out/j");
        let found = |artifacts: &[ListedFile]| texts(&check(&told(artifacts)));
        assert!(found(&[]).contains("handed \"a\" out, and lists it 0 times"));
        assert!(found(&[good.clone(), good.clone()]).contains("which is there twice"));
        assert!(found(&[good.clone(), artifact("art_2", "b", "out/other")]).contains("was not to hand out"));
        let missing = ListedFile { state: "missing".to_owned(), ..good.clone() };
        assert!(found(&[missing]).contains("nothing took its bytes away"));
        let mut untold = told(std::slice::from_ref(&good));
        untold.evidence.events.insert("r".to_owned(), events(&["run.succeeded"]));
        assert!(texts(&check(&untold)).contains("lists 1 artifacts, and told of 0"));
        let mut changed = told(std::slice::from_ref(&good));
        changed.calls.push(call("a", 7, read("r"), run("r", "succeeded")));
        assert!(texts(&check(&changed)).contains("at its end, and then []"));
        let mut shared = told(std::slice::from_ref(&good));
        shared.calls.push(CallRecord { artifacts: vec![good], ..call("a", 7, read("s"), run("s", "succeeded")) });
        assert!(texts(&check(&shared)).contains("which is of r too"));
    }

    #[test]
    fn what_its_owner_was_not_asked_about_is_found() {
        let mut asked = told(&[artifact("art_1", "a", "out/j"), artifact("art_2", "b", "ask/j")]);
        assert!(texts(&check(&asked)).contains("was not approved by the owner"));
        let (run_id, matter) = ("r".to_owned(), DecisionTopic::Call);
        asked.decided.push(DecisionRecord { run_id, at: 3, matter, is_yes: true, is_taken: true });
        assert_eq!(check(&asked), []);
    }

    #[test]
    fn other_bytes_than_those_of_the_record_or_of_the_folder_are_found() {
        let good = [artifact("art_1", "a", "out/j")];
        let mut other = told(&good);
        other.fetched[0].size = 2;
        assert!(texts(&check(&other)).contains("2 bytes, x, came in 2 parts"));
        let mut other = told(&good);
        other.made[0].sha256 = "y".to_owned();
        assert!(texts(&check(&other)).contains("art_1 is not what r had in out/j"));
        let mut other = told(&good);
        let asked = CallAction::Download { run_id: "r".to_owned(), artifact_id: "art_1".to_owned() };
        other.calls.push(CallRecord { status: Some(410), ..call("a", 9, asked, AnswerContent::Nothing) });
        assert!(texts(&check(&other)).contains("art_1 is stored, and its download was answered 410"));
    }
}
