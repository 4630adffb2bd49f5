//! I24: a file that was taken is there as it came until it is deleted, and is not deleted while a run has it; one key is one file.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction, CallRecord, ListedFile};

/// A file by its first 201, with what was asked of it later.
struct TakenFile<'a> {
    call: &'a CallRecord,
    file: &'a ListedFile,
    deletes: Vec<&'a CallRecord>,
}

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = uploads(witnesses);
    let taken = taken(witnesses);
    for call in &witnesses.calls {
        let CallAction::FindFile { file_id } = &call.asked else { continue };
        let (Some(taken), Some(status)) = (taken.get(file_id.as_str()), call.status) else { continue };
        let is_gone = taken.deletes.iter().any(|delete| delete.status == Some(204) && delete.ended < call.begun);
        let may_be_gone = taken.deletes.iter().any(|delete| delete.status != Some(409) && delete.begun <= call.ended);
        match (&call.seen, status) {
            (AnswerContent::File(_), _) if is_gone => {
                violations.push(Violation::of("I24", call.begun, format!("{file_id} was deleted, and is there")));
            }
            (AnswerContent::File(file), _) => violations.extend(differs(taken.file, file, call.begun)),
            (_, 404) if !may_be_gone => {
                violations.push(Violation::of("I24", call.begun, format!("{file_id} was taken, and is not there")));
            }
            _ => {}
        }
    }
    violations.extend(deletes(witnesses, &taken));
    violations.extend(lists(witnesses, &taken));
    violations
}

/// Each file that was taken.
fn taken(witnesses: &Observations) -> BTreeMap<&str, TakenFile<'_>> {
    let mut taken = BTreeMap::new();
    for call in &witnesses.calls {
        if let (CallAction::Upload { .. }, AnswerContent::File(file)) = (&call.asked, &call.seen) {
            taken.entry(file.id.as_str()).or_insert(TakenFile { call, file, deletes: Vec::new() });
        }
    }
    for call in &witnesses.calls {
        if let CallAction::DeleteFile { file_id } = &call.asked
            && let Some(taken) = taken.get_mut(file_id.as_str())
        {
            taken.deletes.push(call);
        }
    }
    taken
}

fn differs(taken: &ListedFile, file: &ListedFile, at: impl Into<Option<u64>>) -> Option<Violation> {
    let content = |file: &ListedFile| format!("{:?} of {} bytes, {}", file.name, file.size, file.sha256);
    let text = || format!("{} was taken as {}, and is {}", taken.id, content(taken), content(file));
    (content(taken) != content(file)).then(|| Violation::of("I24", at, text()))
}

/// What uploads were answered.
fn uploads(witnesses: &Observations) -> Vec<Violation> {
    let (mut violations, mut of_keys, mut key_of) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for call in &witnesses.calls {
        let CallAction::Upload { key, size, sha256, changed } = &call.asked else { continue };
        let AnswerContent::File(file) = &call.seen else {
            if call.code == "idempotency_key_reused" && !changed {
                let text = format!("{key} is a conflict with its own bytes");
                violations.push(Violation::of("I24", call.begun, text));
            }
            continue;
        };
        let (known, owner) = (*of_keys.entry(key).or_insert(&file.id), *key_of.entry(&file.id).or_insert(key));
        let flaw = if *changed {
            format!("{key} was taken with other bytes")
        } else if (file.size, &file.sha256) != (*size, sha256) {
            format!("{key} has {size} bytes, {sha256}, and was taken as {} bytes, {}", file.size, file.sha256)
        } else if known != &file.id {
            format!("{key} is {known}, and then {}", file.id)
        } else if owner != key {
            format!("{} is of {owner}, and of {key}", file.id)
        } else {
            continue;
        };
        violations.push(Violation::of("I24", call.begun, flaw));
    }
    violations
}

/// What deletions were answered.
fn deletes(witnesses: &Observations, taken: &BTreeMap<&str, TakenFile<'_>>) -> Vec<Violation> {
    let runs = witnesses.runs_of_jobs();
    let mut violations = Vec::new();
    for (file_id, TakenFile { deletes, .. }) in taken {
        let given = witnesses.given.iter().filter(|given| given.files.iter().any(|file| file == file_id));
        let given: BTreeSet<_> = given.map(|given| given.job.as_str()).collect();
        for call in deletes {
            let has_run = given.iter().any(|job| runs.contains_key(job));
            let is_first = deletes.iter().all(|other| std::ptr::eq(*other, *call) || other.begun > call.begun);
            let flaw = match call.status {
                Some(204) if has_run => "was deleted, and a run has it",
                Some(409) if given.is_empty() => "is said to be in use, and no run was given it",
                Some(404) if is_first => "was taken, and was not there to be deleted",
                _ => continue,
            };
            violations.push(Violation::of("I24", call.begun, format!("{file_id} {flaw}")));
        }
    }
    violations
}

/// The lists of the end: every file that is there, once, and no other ones.
fn lists(witnesses: &Observations, taken: &BTreeMap<&str, TakenFile<'_>>) -> Vec<Violation> {
    let mut violations = Vec::new();
    // Uploads that no answer was got to may have made one file each.
    let mut untold: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let told = witnesses.calls.iter().filter_map(|call| match (&call.asked, &call.seen) {
        (CallAction::Upload { key, .. }, AnswerContent::File(_)) => Some(key.as_str()),
        _ => None,
    });
    let told: BTreeSet<_> = told.collect();
    for call in &witnesses.calls {
        if let CallAction::Upload { key, sha256, changed: false, .. } = &call.asked
            && !told.contains(key.as_str())
        {
            untold.entry(sha256).or_default().insert(key);
        }
    }
    let mut listed = BTreeSet::new();
    for file in witnesses.evidence.files.values().flatten() {
        if !listed.insert(file.id.as_str()) {
            violations.push(Violation::of("I24", None, format!("{} is listed twice", file.id)));
        }
        match taken.get(file.id.as_str()) {
            Some(TakenFile { deletes, .. }) if deletes.iter().any(|delete| delete.status == Some(204)) => {
                violations.push(Violation::of("I24", None, format!("{} was deleted, and is listed", file.id)));
            }
            Some(taken) => violations.extend(differs(taken.file, file, None)),
            None if untold.get_mut(file.sha256.as_str()).is_some_and(|keys| keys.pop_first().is_some()) => {}
            None => {
                violations.push(Violation::of("I24", None, format!("{} is listed, and nobody uploaded it", file.id)))
            }
        }
    }
    for (file_id, TakenFile { call, deletes, .. }) in taken {
        let is_kept = deletes.iter().all(|delete| delete.status == Some(409));
        // A desktop whose list could not be read has none.
        let has_list = witnesses.evidence.files.contains_key(&call.desktop);
        if is_kept && has_list && !listed.contains(file_id) {
            violations.push(Violation::of("I24", call.ended, format!("{file_id} was taken, and is not listed")));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, submit, texts};
    use super::*;
    use crate::history::GivenRecord;

    fn file(id: &str, sha256: &str) -> ListedFile {
        ListedFile {
            id: id.to_owned(),
            name: "a".to_owned(),
            size: 5,
            sha256: sha256.to_owned(),
            ..ListedFile::default()
        }
    }

    fn upload(at: u64, key: &str, sha256: &str, id: Option<&str>) -> CallRecord {
        let (key, sha256) = (key.to_owned(), sha256.to_owned());
        let seen = id.map_or(AnswerContent::Nothing, |id| AnswerContent::File(file(id, &sha256)));
        let status = id.map(|_| 201);
        let asked = CallAction::Upload { key, size: 5, sha256, changed: false };
        CallRecord { status, ..call("a", at, asked, seen) }
    }

    fn find(at: u64, found: Option<&str>) -> CallRecord {
        let seen = found.map_or(AnswerContent::Nothing, |sha256| AnswerContent::File(file("f1", sha256)));
        let status = Some(if found.is_some() { 200 } else { 404 });
        CallRecord { status, ..call("a", at, CallAction::FindFile { file_id: "f1".to_owned() }, seen) }
    }

    fn delete(at: u64, status: u16) -> CallRecord {
        let asked = CallAction::DeleteFile { file_id: "f1".to_owned() };
        CallRecord { status: Some(status), ..call("a", at, asked, AnswerContent::Nothing) }
    }

    fn told(records: &[CallRecord]) -> String {
        texts(&check(&calls(records)))
    }

    fn given(mut witnesses: Observations) -> Observations {
        witnesses.given.push(GivenRecord {
            job: "j".to_owned(),
            files: vec!["f1".to_owned()],
            ..GivenRecord::default()
        });
        witnesses
    }

    #[test]
    fn a_file_that_is_kept_until_it_is_deleted_is_good() {
        let good = [
            upload(0, "k", "x", Some("f1")),
            upload(2, "k", "x", Some("f1")),
            find(4, Some("x")),
            delete(6, 204),
            find(8, None),
            delete(10, 404),
        ];
        assert_eq!(told(&good), "");
        let held = [upload(0, "k", "x", Some("f1")), call("a", 2, submit("j"), run("r", "queued")), delete(4, 409)];
        assert_eq!(check(&given(calls(&held))), []);
    }

    #[test]
    fn a_file_that_is_lost_or_changed_or_comes_back_is_found() {
        let taken = upload(0, "k", "x", Some("f1"));
        assert!(told(&[taken.clone(), find(4, None)]).contains("f1 was taken, and is not there"));
        assert!(told(&[taken.clone(), find(4, Some("y"))]).contains("was taken as"));
        assert!(told(&[taken.clone(), delete(2, 204), find(4, Some("x"))]).contains("f1 was deleted, and is there"));
        assert!(told(&[taken.clone(), delete(2, 404)]).contains("not there to be deleted"));
        let mut other = taken;
        other.seen = AnswerContent::File(file("f1", "y"));
        assert!(told(&[other]).contains("was taken as 5 bytes, y"));
    }

    #[test]
    fn a_key_with_two_files_and_a_file_with_two_keys_are_found() {
        let first = upload(0, "k", "x", Some("f1"));
        assert!(told(&[first.clone(), upload(2, "k", "x", Some("f2"))]).contains("k is f1, and then f2"));
        assert!(told(&[first.clone(), upload(2, "l", "x", Some("f1"))]).contains("f1 is of k, and of l"));
        let mut listed = calls(&[first, upload(2, "l", "y", None)]);
        listed.evidence.files.insert(0, vec![file("f1", "x"), file("f2", "y")]);
        assert_eq!(check(&listed), [], "an upload without an answer may have made a file");
        listed.evidence.files.insert(0, vec![file("f1", "x"), file("f2", "y"), file("f3", "y")]);
        assert!(texts(&check(&listed)).contains("f3 is listed, and nobody uploaded it"));
        listed.evidence.files.insert(0, Vec::new());
        assert!(texts(&check(&listed)).contains("f1 was taken, and is not listed"));
    }

    #[test]
    fn a_file_that_is_deleted_under_a_run_or_held_by_none_is_found() {
        let all = [upload(0, "k", "x", Some("f1")), call("a", 2, submit("j"), run("r", "queued")), delete(4, 204)];
        assert!(texts(&check(&given(calls(&all)))).contains("f1 was deleted, and a run has it"));
        assert!(told(&[upload(0, "k", "x", Some("f1")), delete(4, 409)]).contains("no run was given it"));
    }
}
