//! The shared commit before every 202.

use std::collections::HashSet;

use deskgate_gateway::store::admissions::{Admission, Admissions, Submission};
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::TestStore;

fn submission(test_store: &TestStore, identity: &str, body: &str) -> Submission {
    Submission {
        run_id: RunId::new(),
        app_id: test_store.device.app.id,
        subject: "anna".to_owned(),
        endpoint_id: test_store.device.endpoint,
        identity: Sha256Digest::of(identity.as_bytes()),
        fingerprint: Sha256Digest::of(body.as_bytes()),
        draft: None,
        input: r#"{"text":"hello"}"#.to_owned(),
        output: None,
        files: Vec::new(),
        checked_version: None,
        metadata: "{}".to_owned(),
        queue_ttl_s: 60,
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
        queue_open: true,
    }
}

/// Admits all at once through one committer, so that waiting submissions share a commit.
async fn admit(test_store: &TestStore, submissions: Vec<Submission>) -> Vec<Result<Admission, String>> {
    let tasks = Tasks::new(CancellationToken::new());
    let admissions = Admissions::start(&test_store.store, &tasks, &CommitLimit::fixed(1));
    let mut waiting = JoinSet::new();
    for (place, submission) in submissions.into_iter().enumerate() {
        let admissions = admissions.clone();
        waiting.spawn(async move { (place, admissions.admit(submission).await.map_err(|error| error.to_string())) });
    }
    let mut results = waiting.join_all().await;
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[tokio::test]
async fn twins_inside_one_commit_make_one_run_and_strangers_beside_them_their_own() {
    let test_store = TestStore::new().await;
    let mut wanted = Vec::new();
    for number in 0..100 {
        wanted.push(submission(&test_store, "twin", "body"));
        wanted.push(submission(&test_store, &format!("single {number}"), "body"));
    }
    wanted.push(submission(&test_store, "twin", "another body"));
    let results = admit(&test_store, wanted).await;
    let accepted = |results: &[&Result<Admission, String>]| {
        results.iter().filter(|result| matches!(result, Ok(Admission::Accepted(_)))).count()
    };
    let (twins, singles): (Vec<_>, Vec<_>) = results.iter().enumerate().partition(|(place, _)| place % 2 == 0);
    let twins: Vec<_> = twins.into_iter().map(|(_, result)| result).collect();
    let singles: Vec<_> = singles.into_iter().map(|(_, result)| result).collect();
    assert_eq!((accepted(&twins), accepted(&singles)), (1, 100));
    let known: HashSet<_> = twins
        .iter()
        .filter_map(|result| match result {
            Ok(Admission::Known { run_id, fingerprint }) => Some((*run_id, fingerprint.0)),
            _ => None,
        })
        .collect();
    assert_eq!(known.len(), 1, "all others are told of the same run");
    assert_eq!(test_store.database.value("SELECT count(*) FROM runs").await, "101");
    assert_eq!(test_store.database.value("SELECT count(*) FROM run_events WHERE sequence = 1").await, "101");
}

#[tokio::test]
async fn every_verdict_stands_beside_the_others_in_one_commit() {
    let test_store = TestStore::new().await;
    let first = submission(&test_store, "first", "body");
    let first_id = first.run_id;
    admit(&test_store, vec![first]).await;
    let stranger = crate::support::gateway::DeviceFixture::pair(&test_store.store).await;
    let paused = crate::support::gateway::DeviceFixture::pair(&test_store.store).await;
    paused.allow(false).await;
    let wanted = vec![
        submission(&test_store, "fresh", "body"),
        // Known comes before everything else that is wrong with it.
        Submission { queue_open: false, ..submission(&test_store, "first", "other") },
        Submission { endpoint_id: stranger.endpoint, ..submission(&test_store, "a", "body") },
        Submission { app_id: stranger.app.id, ..submission(&test_store, "b", "body") },
        Submission { queue_open: false, ..submission(&test_store, "c", "body") },
        Submission {
            app_id: paused.app.id,
            endpoint_id: paused.endpoint,
            queue_open: false,
            ..submission(&test_store, "d", "body")
        },
    ];
    let results = admit(&test_store, wanted).await;
    assert!(
        matches!(
            results.as_slice(),
            [
                Ok(Admission::Accepted(_)),
                Ok(Admission::Known { run_id, .. }),
                Ok(Admission::NoSuchEndpoint),
                Ok(Admission::NoSuchEndpoint),
                Ok(Admission::QueueFull),
                Ok(Admission::Paused),
            ] if *run_id == first_id
        ),
        "{results:?}"
    );
    assert_eq!(test_store.database.value("SELECT count(*) FROM runs").await, "2");
}

#[tokio::test]
async fn a_refused_twin_does_not_spoil_the_one_that_is_admitted() {
    let test_store = TestStore::new().await;
    // The same identity twice in one commit; only one of them found the queue open.
    let wanted = vec![
        Submission { queue_open: false, ..submission(&test_store, "twin", "body") },
        submission(&test_store, "twin", "body"),
    ];
    let results = admit(&test_store, wanted).await;
    let accepted = results.iter().filter(|result| matches!(result, Ok(Admission::Accepted(_)))).count();
    assert_eq!(accepted, 1, "{results:?}");
    assert_eq!(test_store.database.value("SELECT count(*) FROM runs").await, "1");
}
