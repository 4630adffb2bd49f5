//! I25: a run works on exactly the bytes that it was given, or does not work: by the digests that the system's own program found on
//! the device, and by what Read showed of them.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction, CallRecord};
use crate::plan::FaultKind;

/// The error of a run whose files cannot be had.
const UNAVAILABLE_ERROR: &str = "file_unavailable";
/// The faults that leave a device no room for files.
const FULL_DISKS: [FaultKind; 2] = [FaultKind::FillDeviceDisk, FaultKind::FillByCommand];

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (runs, shown) = (witnesses.runs_of_jobs(), witnesses.seen_of_runs());
    let uploads = uploads(witnesses);
    for given in &witnesses.given {
        let Some(run_id) = runs.get(given.job.as_str()).and_then(|runs| runs.first()) else { continue };
        let told = |at: Option<u64>, text: String| Violation::of("I25", at, format!("{run_id} {text}"));
        let files: Vec<_> = given.files.iter().filter_map(|file| uploads.get(file.as_str())).collect();
        let mut expected: Vec<_> = files.iter().map(|upload| upload.sha256).collect();
        let sights = shown.get(run_id).map(Vec::as_slice).unwrap_or_default();
        for sight in sights {
            let named: Vec<_> = sight.call.files.iter().map(|file| file.sha256.as_str()).collect();
            if named != expected {
                let text = format!("was given {expected:?}, and shows {named:?}");
                violations.push(told(Some(sight.call.begun), text));
            }
        }
        let names: BTreeMap<_, _> = sights
            .iter()
            .flat_map(|sight| &sight.call.files)
            .map(|file| (file.name.clone(), file.sha256.clone()))
            .collect();
        expected.sort_unstable();
        for turn in witnesses.turns.iter().filter(|turn| turn.job == given.job && !turn.files.digests.is_empty()) {
            let mut found: Vec<_> = turn.files.digests.values().map(String::as_str).collect();
            found.sort_unstable();
            if found != expected {
                violations
                    .push(told(Some(turn.begun), format!("was given {expected:?}, and its device had {found:?}")));
            } else if turn.files.digests != names {
                let text =
                    format!("names its files {:?}, and its device {:?}", names.keys(), turn.files.digests.keys());
                violations.push(told(Some(turn.begun), text));
            }
            let first = turn.files.digests.values().next();
            let first = files.iter().find(|upload| Some(upload.sha256) == first.map(String::as_str));
            if let (Some(line), Some(upload)) = (&turn.files.first_line, first)
                && line != upload.key
            {
                let text = format!("was shown {line:?} for the file of {}", upload.key);
                violations.push(told(Some(turn.begun), text));
            }
        }
        let end = sights.iter().find(|sight| sight.phase == "final" && sight.call.error == UNAVAILABLE_ERROR);
        violations.extend(
            end.and_then(|end| Some(told(Some(end.call.begun), unavailable(witnesses, &given.job, end.call)?))),
        );
    }
    violations
}

/// What is wrong with the end of a run whose files could not be had.
fn unavailable(witnesses: &Observations, job: &str, end: &CallRecord) -> Option<String> {
    if end.effects != "none" {
        return Some(format!("had no files, and says that its effects are {:?}", end.effects));
    }
    if witnesses.turns.iter().any(|turn| turn.job == job) {
        return Some("had no files, and asked its model".to_owned());
    }
    let is_full = witnesses.was_disturbed(&FULL_DISKS, 0, end.ended);
    (!is_full).then(|| "could not have files that are there".to_owned())
}

/// The upload of a file.
struct Upload<'a> {
    key: &'a str,
    sha256: &'a str,
}

fn uploads(witnesses: &Observations) -> BTreeMap<&str, Upload<'_>> {
    let uploads = witnesses.calls.iter().filter_map(|call| match (&call.asked, &call.seen) {
        (CallAction::Upload { key, sha256, .. }, AnswerContent::File(file)) => {
            Some((file.id.as_str(), Upload { key, sha256 }))
        }
        _ => None,
    });
    uploads.collect()
}

/// How many runs were seen with their files on their devices.
pub(super) fn seen(witnesses: &Observations) -> usize {
    let is_seen = |job: &str| witnesses.turns.iter().any(|turn| turn.job == job && turn.files.first_line.is_some());
    witnesses.given.iter().filter(|given| is_seen(&given.job)).count()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, submit, texts};
    use super::*;
    use crate::history::{GivenRecord, ListedFile};
    use crate::testbed::carry::ShownFiles;
    use crate::testbed::fake_model::ModelTurn;

    fn told(device: &[(&str, &str)], line: &str) -> Observations {
        let file = |id: &str, name: &str, sha256: &str| ListedFile {
            id: id.to_owned(),
            name: name.to_owned(),
            sha256: sha256.to_owned(),
            ..ListedFile::default()
        };
        let upload = |key: &str, id: &str, sha256: &str| {
            let asked = CallAction::Upload { key: key.to_owned(), size: 0, sha256: sha256.to_owned(), changed: false };
            call("a", 0, asked, AnswerContent::File(file(id, "a", sha256)))
        };
        let mut ended = call("a", 5, read("r"), run("r", "succeeded"));
        ended.files = vec![file("f1", "a", "x"), file("f2", "a (2)", "y")];
        let submitted = CallRecord { files: ended.files.clone(), ..call("a", 2, submit("j"), run("r", "queued")) };
        let mut witnesses = calls(&[upload("k1", "f1", "x"), upload("k2", "f2", "y"), submitted, ended]);
        let files = vec!["f1".to_owned(), "f2".to_owned()];
        witnesses.given.push(GivenRecord { job: "j".to_owned(), files, ..GivenRecord::default() });
        let digests = device.iter().map(|(name, sha256)| ((*name).to_owned(), (*sha256).to_owned())).collect();
        let files = ShownFiles { digests, first_line: Some(line.to_owned()), ..ShownFiles::default() };
        witnesses.turns.push(ModelTurn { job: "j".to_owned(), files, ..ModelTurn::default() });
        witnesses
    }

    #[test]
    fn other_bytes_and_other_names_on_a_device_are_found() {
        let good = told(&[("a", "x"), ("a (2)", "y")], "k1");
        assert_eq!((check(&good), seen(&good)), (Vec::new(), 1));
        assert!(texts(&check(&told(&[("a", "x"), ("a (2)", "z")], "k1"))).contains("its device had"));
        assert!(texts(&check(&told(&[("a", "x")], "k1"))).contains("its device had"));
        assert!(texts(&check(&told(&[("a", "y"), ("a (2)", "x")], "k2"))).contains("names its files"));
        assert!(texts(&check(&told(&[("a", "x"), ("a (2)", "y")], "k3"))).contains("was shown \"k3\""));
        let mut other = good;
        other.calls[3].files.pop();
        assert!(texts(&check(&other)).contains("and shows [\"x\"]"));
    }

    #[test]
    fn files_that_are_there_are_to_be_had_and_without_them_nothing_happens() {
        let mut ended = told(&[("a", "x"), ("a (2)", "y")], "k1");
        (ended.calls[3].seen, ended.calls[3].effects) = (run("r", "failed"), "none".to_owned());
        ended.calls[3].error = UNAVAILABLE_ERROR.to_owned();
        assert!(texts(&check(&ended)).contains("asked its model"));
        ended.turns.clear();
        assert!(texts(&check(&ended)).contains("could not have files that are there"));
        ended.strikes.push(super::super::samples::strike(FaultKind::FillDeviceDisk, 1, ""));
        assert_eq!(check(&ended), []);
        ended.calls[3].effects = "possible".to_owned();
        assert!(texts(&check(&ended)).contains("its effects are \"possible\""));
    }
}
