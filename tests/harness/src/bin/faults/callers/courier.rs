//! Uploads files, has runs work on them, and fetches what these hand out. Some uploads are repeated, some files deleted, also while a
//! run has them.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use deskgate_protocol::canonical::Sha256Digest;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::{ApiReply, ApiRequest, Caller, CallerContext, RunsInFlight, read, submission_to, submitter};
use crate::history::{AnswerContent, CallAction, FetchedRecord, GivenRecord, HistoryRecord, ListedFile, MadeRecord};
use crate::seed::SeededRandom;
use crate::testbed::carry::{ASKED_FOLDER, FREE_FOLDER, made};
use crate::testbed::{CALLER_INPUT, REPLICA_COUNT};

/// The most files of one run, and the most unfinished runs.
const MAX_FILES: u64 = 3;
const MAX_RUNS_IN_FLIGHT: usize = 3;
/// Bytes of a chunk in the gateways' storage: files about as long as one or two are of interest.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
const MAX_LARGE_BYTES: u64 = 9 * 1024 * 1024;
/// Bytes from which on no two files are the same: each begins with the key of its upload.
const MIN_BYTES: u64 = 64;
/// Names that have been trouble somewhere, in Unicode's composed form; some come twice, once with other capitals.
const NAMES: [&str; 10] = [
    "letter.txt",
    "LETTER.TXT",
    "Größe & Maß, 100%.csv",
    "-rf",
    ".hidden",
    "a b  c.tar.gz",
    "レポート 📈.pdf",
    "$(touch x);`id`'\".sh",
    "con.:?*<>|",
    "no-extension-but-a-name-that-is-as-long-as-it-may-be-because-somebody-wrote-the-whole-subject-of-a-letter-into-it-120-b",
];

/// Works while the pass is open, and returns when all its operations are over.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    let mut runs = RunsInFlight::new(MAX_RUNS_IN_FLIGHT);
    while business.is_open() {
        runs.room().await;
        let mut files = Vec::new();
        for _ in 0..caller.dice.within(1, MAX_FILES) {
            files.extend(upload(&mut caller, desktop).await);
        }
        if caller.dice.percent(20)
            && let Some(spare) = files.pop()
        {
            delete(&mut caller, desktop, &spare).await;
        }
        let mut carrying = caller.fork("carry");
        runs.spawn(async move {
            if !files.is_empty() {
                carry(&mut carrying, desktop, files).await;
            }
        });
        sleep(Duration::from_millis(caller.dice.within(100, 900))).await;
    }
    runs.all().await;
}

/// Uploads a file until it is taken. Returns it.
async fn upload(caller: &mut Caller, desktop: usize) -> Option<String> {
    let key = format!("file-{}", caller.business.fresh_job());
    let (name, size) = (NAMES[caller.dice.below(NAMES.len())], size(&mut caller.dice));
    let request = upload_of(desktop, &key, name, some_bytes(&mut caller.dice, &key, size), false);
    if caller.dice.percent(10) {
        let operation = caller.next_operation();
        join_all((0..REPLICA_COUNT).map(|replica| caller.ask(operation, &request, replica))).await;
    }
    let AnswerContent::File(file) = caller.retry(&request).await?.seen else { return None };
    match caller.dice.below(10) {
        0 => drop(caller.retry(&request).await),
        1 => {
            let bytes = some_bytes(&mut caller.dice, "other bytes under a key that is taken", MIN_BYTES + size / 2);
            caller.retry(&upload_of(desktop, &key, name, bytes, true)).await;
        }
        2 => drop(caller.retry(&find(desktop, &file.id)).await),
        _ => {}
    }
    Some(file.id)
}

fn upload_of(desktop: usize, key: &str, name: &str, bytes: Bytes, changed: bool) -> ApiRequest {
    let mut encoded = String::new();
    for byte in name.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    let (size, sha256) = (bytes.len() as u64, Sha256Digest::of(&bytes).to_string());
    ApiRequest {
        name: "upload",
        asked: CallAction::Upload { key: key.to_owned(), size, sha256, changed },
        desktop,
        method: Method::POST,
        path: format!("/files?name={encoded}"),
        key: Some(key.to_owned()),
        bytes: Some(bytes),
        ..ApiRequest::default()
    }
}

/// A look for a file.
pub(crate) fn find(desktop: usize, file_id: &str) -> ApiRequest {
    ApiRequest {
        name: "find",
        asked: CallAction::FindFile { file_id: file_id.to_owned() },
        desktop,
        path: format!("/files/{file_id}"),
        ..ApiRequest::default()
    }
}

async fn delete(caller: &mut Caller, desktop: usize, file_id: &str) {
    let request = ApiRequest {
        name: "delete",
        asked: CallAction::DeleteFile { file_id: file_id.to_owned() },
        desktop,
        method: Method::DELETE,
        path: format!("/files/{file_id}"),
        ..ApiRequest::default()
    };
    caller.retry(&request).await;
}

/// Few files are large, because all of them go to the device and most come back.
fn size(dice: &mut SeededRandom) -> u64 {
    match dice.below(100) {
        0..=9 => 0,
        10..=69 => dice.within(MIN_BYTES, 64 * 1024),
        70..=91 => dice.within(64 * 1024, 512 * 1024),
        92..=95 => dice.within(CHUNK_BYTES - 1, CHUNK_BYTES + 1),
        _ => dice.within(CHUNK_BYTES, MAX_LARGE_BYTES),
    }
}

/// Bytes that begin with a line that no other file has, and of which no part repeats another. Small ones are text.
fn some_bytes(dice: &mut SeededRandom, line: &str, size: u64) -> Bytes {
    let size = usize::try_from(size).expect("below a usize");
    let mut bytes = format!("{line}\n").into_bytes();
    while bytes.len() < size {
        let next = dice.any();
        match size {
            0..=65_536 => bytes.extend(format!("{next:016x}\n").bytes()),
            _ => bytes.extend(next.to_le_bytes()),
        }
    }
    bytes.truncate(size);
    bytes.into()
}

/// Has a run work on files, and takes what it hands out.
async fn carry(caller: &mut Caller, desktop: usize, files: Vec<String>) {
    let job = caller.business.fresh_job();
    let folder = if caller.dice.percent(12) { ASKED_FOLDER } else { FREE_FOLDER };
    let made = made(folder, &job);
    let mut paths: Vec<_> = made.iter().filter(|_| caller.dice.percent(60)).cloned().collect();
    if caller.dice.percent(15) {
        paths.extend(paths.first().cloned());
    }
    let given = GivenRecord { job: job.clone(), files: files.clone(), paths: paths.clone() };
    caller.business.histories.note(&caller.name, HistoryRecord::Given(given));
    let delay = caller.dice.within(0, 200);
    let text = format!("job={job} plan=carry delay={delay} hand={} note={CALLER_INPUT}", paths.join(","));
    let named: Vec<_> = files.iter().map(|file_id| json!({ "file_id": file_id })).collect();
    let body = Some(json!({ "input": { "text": text, "files": named } }));
    let request = submission_to(&caller.service(desktop).carrying_id, desktop, &job, &text, false);
    let reply = caller.retry(&ApiRequest { body, ..request }).await;
    let Some(run_id) = reply.as_ref().and_then(ApiReply::run_id) else { return };
    let (is_stopped, is_deleted) = (caller.dice.percent(6), caller.dice.percent(20));
    let (mut stopping, mut deleting, mut wait) = (caller.fork("stop"), caller.fork("delete"), caller.fork("wait"));
    tokio::join!(
        async {
            if is_stopped {
                submitter::stop(&mut stopping, desktop, &run_id).await;
            }
        },
        async {
            if is_deleted {
                // The run has it.
                delete(&mut deleting, desktop, &files[0]).await;
            }
        },
        submitter::ends(&mut wait, desktop, &run_id, is_stopped),
    );
    let Some(run) = caller.retry(&read(desktop, &run_id, 0)).await else { return };
    if run.body["phase"] != "final" {
        return;
    }
    for artifact in ListedFile::read_all(&run.body["artifacts"]) {
        if artifact.state == "stored" {
            fetch(caller, desktop, &run_id, &artifact).await;
        }
    }
    let own_folder = caller.business.testbed.desktops[desktop].carrying_folder();
    look_at(caller, &own_folder, &run_id, &job);
}

/// Downloads an artifact, in one part or in two.
async fn fetch(caller: &mut Caller, desktop: usize, run_id: &str, artifact: &ListedFile) {
    let parts = match artifact.size {
        2.. if caller.dice.percent(50) => {
            let first = caller.dice.within(1, artifact.size - 1);
            vec![Some(format!("bytes=0-{}", first - 1)), Some(format!("bytes={first}-"))]
        }
        _ => vec![None],
    };
    let (count, mut bytes) = (parts.len(), Vec::new());
    for range in parts {
        let request = ApiRequest {
            name: "download",
            asked: CallAction::Download { run_id: run_id.to_owned(), artifact_id: artifact.id.clone() },
            desktop,
            path: format!("/runs/{run_id}/artifacts/{}", artifact.id),
            range,
            ..ApiRequest::default()
        };
        match caller.retry(&request).await {
            Some(reply) if reply.is_good() => bytes.extend_from_slice(&reply.bytes),
            _ => return,
        }
    }
    let fetched = FetchedRecord {
        run_id: run_id.to_owned(),
        artifact_id: artifact.id.clone(),
        at: caller.business.testbed.clock.now(),
        parts: count,
        size: bytes.len() as u64,
        sha256: Sha256Digest::of(&bytes).to_string(),
    };
    caller.business.histories.note(&caller.name, HistoryRecord::Fetched(fetched));
}

/// Notes what a job has made, and takes it away.
fn look_at(caller: &Caller, folder: &Path, run_id: &str, job: &str) {
    for path in [FREE_FOLDER, ASKED_FOLDER].into_iter().flat_map(|folder| made(folder, job)) {
        let Ok(bytes) = std::fs::read(folder.join(&path)) else { continue };
        let _ = std::fs::remove_file(folder.join(&path));
        let (size, sha256) = (bytes.len() as u64, Sha256Digest::of(&bytes).to_string());
        let made = MadeRecord { run_id: run_id.to_owned(), path, size, sha256 };
        caller.business.histories.note(&caller.name, HistoryRecord::Made(made));
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::file::check_file_name;

    use super::*;

    #[test]
    fn every_name_is_one_and_no_two_files_are_the_same() {
        assert!(NAMES.iter().all(|name| check_file_name(name).is_ok()));
        let mut dice = SeededRandom::of(1, "files");
        for size in [MIN_BYTES, 65_536, 100_000] {
            let (one, other) = (some_bytes(&mut dice, "file-1", size), some_bytes(&mut dice, "file-2", size));
            assert!(one.starts_with(b"file-1\n") && one.len() as u64 == size && one != other);
        }
        assert!(some_bytes(&mut dice, "file-3", 0).is_empty());
    }
}
