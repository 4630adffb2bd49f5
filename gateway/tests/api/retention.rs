//! The end of ended runs: deleted in time, and known as deleted to their owners only.

use deskgate_gateway::upkeep::{UpkeepCounts, run_once};
use deskgate_protocol::RunId;
use serde_json::json;

use crate::store::TestStore;
use crate::support::call::{ExpectedProblem, TestRequest, TestResponse, not_found};
use crate::support::gateway::{LONG_LEASE, work};
use crate::support::server::TestServer;

/// A public server on a store without other tasks.
struct IdleServer {
    test_store: TestStore,
    door: TestServer,
}

impl IdleServer {
    async fn new() -> Self {
        let test_store = TestStore::new().await;
        let door = TestServer::open(&test_store.store, Default::default()).await;
        Self { test_store, door }
    }

    fn ask(&self, method: &str, path: &str) -> TestRequest {
        TestRequest::new(self.door.address, method, path).key(&self.test_store.device.app.key).subject("anna")
    }

    async fn read(&self, run_id: RunId) -> TestResponse {
        self.ask("GET", &format!("/api/v1/runs/{run_id}")).send().await
    }

    async fn submission(&self, key: &str) -> TestResponse {
        let path = format!("/api/v1/agent-endpoints/{}/runs", self.test_store.device.endpoint);
        self.ask("POST", &path).header("Idempotency-Key", key).json(&work("hello")).send().await
    }

    /// Ends every run, and lets the retention of these be over.
    async fn end_all(&self, over: &[RunId]) {
        self.test_store.store.revoke_device(self.test_store.device.device_id, LONG_LEASE).await.expect("stored");
        for run_id in over {
            let statement = format!(
                "UPDATE runs SET finished_at = now() - interval '1 hour', purge_at = now() WHERE run_id = '{}'",
                run_id.uuid()
            );
            self.test_store.database.execute(&statement).await;
        }
    }

    async fn round(&self) -> UpkeepCounts {
        run_once(&self.test_store.store, LONG_LEASE).await.expect("done")
    }
}

#[tokio::test]
async fn a_run_whose_time_is_over_is_gone_to_its_owner_and_was_never_there_to_others() {
    let quiet = IdleServer::new().await;
    let (over, kept) = (quiet.submission("over").await.run_id(), quiet.submission("kept").await.run_id());
    let device = &quiet.test_store.device;
    let second = device.service(&device.app, "second").await;
    let limited = device.restricted_key(|key| key.endpoints = vec![second]).await.text;
    let other_app = device.application("other").await;
    quiet.end_all(&[over]).await;
    let done = quiet.round().await;
    assert_eq!(done, UpkeepCounts { purged: 1, ..UpkeepCounts::default() });
    assert_eq!(quiet.test_store.database.value("SELECT count(DISTINCT run_id) FROM run_events").await, "1");

    let path = format!("/api/v1/runs/{over}");
    let purged = ExpectedProblem::new(
        410,
        "run_purged",
        "Run purged",
        "This run has ended and was deleted when its time was over.",
    );
    quiet.read(over).await.assert_problem(&purged);
    quiet.ask("GET", &format!("{path}?wait=60")).send().await.assert_problem(&purged);
    for accept in ["application/json", "text/event-stream"] {
        quiet.ask("GET", &format!("{path}/events")).header("Accept", accept).send().await.assert_problem(&purged);
    }
    let strangers = [
        quiet.ask("GET", &path).subject("berta"),
        quiet.ask("GET", &path).key(&limited),
        quiet.ask("GET", &path).key(&other_app.key),
    ];
    for stranger in strangers {
        stranger.send().await.assert_problem(&not_found());
    }
    assert_eq!(quiet.read(kept).await.status, 200);
    let listed = quiet.ask("GET", "/api/v1/runs").send().await.json();
    assert_eq!((listed["data"].as_array().map(Vec::len), &listed["data"][0]["run_id"]), (Some(1), &json!(kept)));

    quiet.test_store.database.execute("UPDATE purged_runs SET forget_at = now()").await;
    let done = quiet.round().await;
    assert_eq!(done, UpkeepCounts { forgotten: 1, ..UpkeepCounts::default() });
    quiet.read(over).await.assert_problem(&not_found());
}

#[tokio::test]
async fn an_idempotency_key_is_kept_as_long_as_its_run_and_the_memory_of_it_as_long_again() {
    let quiet = IdleServer::new().await;
    let run_id = quiet.submission("key").await.run_id();
    quiet.end_all(&[]).await;
    quiet
        .test_store
        .database
        .execute("UPDATE runs SET finished_at = now() - interval '3 days', purge_at = now()")
        .await;
    assert_eq!(quiet.submission("key").await.run_id(), run_id);
    quiet.round().await;
    let left = "SELECT round(extract(epoch FROM forget_at - now()) / 3600) FROM purged_runs";
    assert_eq!(quiet.test_store.database.value(left).await, "72");
    // The device is gone, so new work finds no service: the key names nothing any more.
    quiet.submission("key").await.assert_problem(&not_found());
}

#[tokio::test]
async fn what_was_asked_of_a_run_goes_with_it() {
    let quiet = IdleServer::new().await;
    let run_id = quiet.submission("key").await.run_id();
    for key in ["stop-it", "stop-it-again"] {
        let stop = quiet.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", key);
        assert_eq!(stop.json(&json!({})).send().await.status, 202);
    }
    let left = "SELECT (SELECT count(*) FROM control_operations) || ' ' || (SELECT count(*) FROM request_identities)";
    assert_eq!(quiet.test_store.database.value(left).await, "2 2");
    quiet.end_all(&[run_id]).await;
    assert_eq!(quiet.round().await.purged, 1);
    assert_eq!(quiet.test_store.database.value(left).await, "0 0");
}

#[tokio::test]
async fn deletions_are_bounded_by_events_and_go_on_until_nothing_is_left() {
    let quiet = IdleServer::new().await;
    let mut runs = Vec::new();
    for key in ["one", "two", "three"] {
        runs.push(quiet.submission(key).await.run_id());
    }
    quiet.end_all(&runs).await;
    let more = "INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, n, gen_random_uuid(), 'message.completed', '{}' FROM runs, generate_series(3, 15000) n;
        UPDATE runs SET last_sequence = 15000";
    quiet.test_store.database.execute(more).await;
    assert_eq!(quiet.test_store.store.purge_runs().await.expect("deleted"), 2);
    assert_eq!(quiet.test_store.store.purge_runs().await.expect("deleted"), 1);
    assert_eq!(quiet.test_store.store.purge_runs().await.expect("deleted"), 0);
    assert_eq!(quiet.test_store.database.value("SELECT count(*) FROM run_events").await, "0");
}

#[tokio::test]
async fn openings_and_ended_resets_are_forgotten_in_time_and_the_conversation_and_open_resets_stay() {
    let quiet = IdleServer::new().await;
    let open = |key: &str, conversation_key: &str| {
        let body = json!({ "endpoint_id": quiet.test_store.device.endpoint, "conversation_key": conversation_key });
        quiet.ask("POST", "/api/v1/conversations").header("Idempotency-Key", key).json(&body).send()
    };
    for (key, conversation_key) in [("one", "case 1"), ("two", "case 2")] {
        let opened = open(key, conversation_key).await;
        assert_eq!(opened.status, 201, "{opened:?}");
        let id = opened.json()["conversation_id"].as_str().expect("a text").to_owned();
        let reset = quiet.ask("POST", &format!("/api/v1/conversations/{id}/reset")).header("Idempotency-Key", key);
        assert_eq!(reset.json(&json!({ "expected_generation": 1 })).send().await.status, 202);
    }
    let database = &quiet.test_store.database;
    database.execute("UPDATE request_identities SET created_at = now() - interval '1 day'").await;
    let end =
        "UPDATE control_operations SET state = 'completed', outcome = 'reset', completed_at = now() - interval '1 day'
        WHERE operation_id = (SELECT min(operation_id::text)::uuid FROM control_operations)";
    database.execute(end).await;
    let done = quiet.round().await;
    assert_eq!(done, UpkeepCounts { resets_forgotten: 1, openings_forgotten: 2, ..UpkeepCounts::default() });
    let left = "SELECT (SELECT count(*) FROM control_operations) || ' ' || (SELECT count(*) FROM request_identities)
        || ' ' || (SELECT count(*) FROM conversations)";
    assert_eq!(database.value(left).await, "1 1 2", "the reset that waits, its request, both conversations");
    assert_eq!(open("one", "case 1").await.status, 200, "the key asks anew and finds the conversation");
}

#[tokio::test]
async fn replicas_that_purge_together_delete_each_run_once_and_leave_none() {
    let quiet = IdleServer::new().await;
    let mut runs = Vec::new();
    for number in 0..30 {
        runs.push(quiet.submission(&format!("run-{number}")).await.run_id());
    }
    quiet.end_all(&runs).await;
    let rounds = (0..4).map(|_| {
        let store = quiet.test_store.store.clone();
        tokio::spawn(async move { run_once(&store, LONG_LEASE).await.expect("done").purged })
    });
    let mut purged = 0;
    for round in rounds.collect::<Vec<_>>() {
        purged += round.await.expect("no panic");
    }
    // One of them may have looked while another held the rows.
    purged += quiet.round().await.purged;
    assert_eq!(purged, 30);
    assert_eq!(quiet.test_store.database.value("SELECT count(*) FROM purged_runs").await, "30");
}

#[tokio::test]
async fn ended_runs_are_kept_no_longer_than_was_chosen_later_and_never_longer_than_was_promised() {
    let quiet = IdleServer::new().await;
    let mut runs = Vec::new();
    for key in ["old", "young"] {
        runs.push(quiet.submission(key).await.run_id());
    }
    quiet.end_all(&[]).await;
    let (database, store) = (&quiet.test_store.database, &quiet.test_store.store);
    database.execute("UPDATE runs SET purge_at = finished_at + interval '30 days'").await;
    let old = format!(
        "UPDATE runs SET finished_at = finished_at - interval '8 days', purge_at = purge_at - interval '8 days'
         WHERE run_id = '{}'",
        runs[0].uuid()
    );
    database.execute(&old).await;
    let days = |days: u64| std::time::Duration::from_secs(days * 24 * 3600);
    assert_eq!(store.ended_runs(days(7)).await.expect("counted"), (2, 1));
    assert_eq!(store.ended_runs(days(9)).await.expect("counted"), (2, 0));
    assert_eq!(store.shorten_retention(days(31)).await.expect("shortened"), 0, "nothing is kept longer than before");
    assert_eq!(quiet.round().await.purged, 0);
    assert_eq!(store.shorten_retention(days(7)).await.expect("shortened"), 2);
    assert_eq!(store.shorten_retention(days(7)).await.expect("shortened"), 0);
    assert_eq!(quiet.round().await.purged, 1);
    assert_eq!(store.ended_runs(days(7)).await.expect("counted"), (1, 0));
    assert_eq!(quiet.read(runs[0]).await.status, 410);
}
