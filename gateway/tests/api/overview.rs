//! The overview's numbers match the runs, for every kind of end.

use std::time::Instant;

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_protocol::ApprovalId;
use deskgate_protocol::management::{Overview, StopRun};

use crate::store::{TestStore, failed, opened, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};
use crate::support::until;

async fn overview(test_store: &TestStore) -> Overview {
    test_store.device.desktop.overview().await.expect("answered")
}

#[tokio::test]
async fn the_overview_counts_every_run_once_whether_it_has_ended_or_not_and_whatever_ended_it() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let other = device.application("other").await;
    let elsewhere = device.service(&other, "theirs").await;
    let (session, _) = device.connect().await;
    let (done, broken) = (test_store.started(session).await, test_store.started(session).await);
    assert_eq!(test_store.one(session, done, 1, succeeded(1)).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, broken, 1, failed(1)).await, RecordOutcome::Done);
    let (asking, lost) = (test_store.started(session).await, test_store.started(session).await);
    test_store.one(session, asking, 1, opened(1, ApprovalId::new())).await;
    test_store.one(session, lost, 1, AttemptUpdate::Lose).await;
    let stopped = test_store.queue().await;
    device.desktop.stop_run(StopRun { run_id: stopped }).await.expect("stopped");
    let expiring = test_store.queue().await;
    let expire = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", expiring.uuid());
    test_store.database.execute(&expire).await;
    assert_eq!(test_store.store.expire_queued(LONG_LEASE).await.expect("done"), 1);
    test_store.queue().await;
    test_store.queue_for(elsewhere).await;

    let numbers = overview(&test_store).await;
    assert_eq!((numbers.waiting, numbers.in_progress), (2, 2));
    assert_eq!((numbers.needs.approvals, numbers.needs.reconciliations), (1, 1));
    let since = [numbers.needs.oldest_approval_at, numbers.needs.oldest_reconciliation_at];
    assert!(since.iter().all(|since| since.is_some_and(|since| since <= numbers.at)));
    assert_eq!((numbers.hours.len(), numbers.days.len()), (24, 7));
    // The hour or the day may have turned in between.
    let sum = |of: fn(&deskgate_protocol::management::Day) -> u32| numbers.days.iter().map(of).sum::<u32>();
    let ended = [sum(|day| day.succeeded), sum(|day| day.failed), sum(|day| day.cancelled), sum(|day| day.expired)];
    assert_eq!(ended, [1, 1, 1, 1]);
    assert_eq!(numbers.took.map(|took| took.runs), Some(2), "what never started took no time");
    assert_eq!(numbers.accepted_since(numbers.hours[0].began_at), 8);
    assert_eq!(numbers.hours[23].waiting, 2);
    let accepted: Vec<u32> = numbers.applications.iter().map(|app| app.accepted.iter().sum()).collect();
    assert_eq!(accepted, [7, 1]);
    let stranger = DeviceFixture::pair(&test_store.store).await.desktop.overview().await.expect("answered");
    assert_eq!((stranger.waiting, stranger.accepted_since(stranger.hours[0].began_at)), (0, 0));
}

#[tokio::test]
async fn the_queue_of_each_hour_follows_from_when_runs_came_and_left() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (early, late) = (test_store.started(session).await, test_store.queue().await);
    assert_eq!(test_store.one(session, early, 1, succeeded(1)).await, RecordOutcome::Done);
    // One waited from five hours ago until two hours ago, the other waits since three hours ago. Both are counted anew,
    // and the one as if it had ended now.
    test_store
        .database
        .execute(&format!(
            "DELETE FROM run_counts;
            UPDATE runs SET created_at = now() - interval '5 hours', started_at = now() - interval '2 hours',
                state = 'running', finished_at = NULL, purge_at = NULL, result = NULL WHERE run_id = '{early}';
            UPDATE runs SET state = 'failed', error = '{{}}', finished_at = now(), purge_at = now() WHERE run_id = '{early}';
            UPDATE runs SET created_at = now() - interval '3 hours' WHERE run_id = '{late}';
            INSERT INTO run_counts AS c SELECT r.device_id, n.what, n.began_at, r.app_id, 0, 0, count(*)
            FROM runs r CROSS JOIN LATERAL (
                VALUES ('open', 'epoch'), ('accepted', date_trunc('hour', r.created_at, 'UTC'))) n (what, began_at)
            GROUP BY 1, 2, 3, 4",
            early = early.uuid(),
            late = late.uuid()
        ))
        .await;
    let numbers = overview(&test_store).await;
    let waiting: Vec<u32> = numbers.hours.iter().rev().take(7).map(|hour| hour.waiting).collect();
    assert_eq!(waiting, [1, 1, 1, 2, 1, 1, 0]);
    let accepted: Vec<u32> = numbers.hours.iter().rev().take(7).map(|hour| hour.accepted).collect();
    assert_eq!(accepted, [0, 0, 0, 1, 0, 1, 0]);
    let took = numbers.took.expect("one");
    assert!((took.p50_ms as f64 / 7_200_000.0 - 1.0).abs() < 0.06, "{took:?}");
}

#[tokio::test]
async fn the_overview_reads_none_of_a_hundred_thousand_runs_that_wait_or_have_ended() {
    let test_store = TestStore::new().await;
    let run_id = test_store.queue().await;
    test_store.device.desktop.stop_run(StopRun { run_id }).await.expect("stopped");
    // Copied as they were accepted and as they ended, and counted as the migrations count what they find.
    let alike = "INSERT INTO runs SELECT r.* FROM runs d, generate_series(1, 100000) n,
        jsonb_populate_record(d, jsonb_build_object('run_id', gen_random_uuid(), 'identity',
            '\\x' || encode(sha256(n::text::bytea), 'hex'), 'state', 'failed', 'error', '{}'::jsonb,
            'finished_at', now() - random() * interval '6 days', 'started_at', now() - interval '7 days',
            'created_at', now() - random() * interval '24 hours')) r;
        INSERT INTO run_counts
            SELECT r.device_id, n.what, n.began_at, r.app_id, n.bucket, floor(random() * 16)::integer, sum(n.by)
            FROM runs r CROSS JOIN LATERAL counts_of(r) n WHERE r.state = 'failed' AND n.what <> 'open'
            GROUP BY 1, 2, 3, 4, 5, 6;
        INSERT INTO runs SELECT r.* FROM runs d, generate_series(1, 100000) n,
            jsonb_populate_record(d, jsonb_build_object('run_id', gen_random_uuid(), 'identity',
                '\\x' || encode(sha256(('waits' || n)::bytea), 'hex'), 'state', 'queued', 'error', NULL,
                'finished_at', NULL, 'purge_at', NULL)) r WHERE d.state = 'cancelled';
        INSERT INTO run_counts SELECT device_id, what, began_at, app_id, 0, -1, 100000
            FROM run_counts WHERE what = 'open' LIMIT 1";
    test_store.database.execute(alike).await;
    test_store.database.execute("VACUUM ANALYZE runs").await;
    let read =
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'runs'";
    let before: u64 = test_store.database.value(read).await.parse().expect("a number");
    for _ in 0..5 {
        let began = Instant::now();
        let numbers = overview(&test_store).await;
        println!("an overview within {:?}", began.elapsed());
        assert_eq!(numbers.days.iter().map(|day| day.failed).sum::<u32>(), 100_000);
        assert_eq!(numbers.waiting, 100_000);
    }
    let database = test_store.database;
    let scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'run_counts_pkey'";
    // Closed connections have reported everything to the server.
    drop((test_store.store, test_store.device));
    until("what was read is known", async || database.value(scans).await != "0").await;
    let after: u64 = database.value(read).await.parse().expect("a number");
    assert!(after - before < 100, "{} runs were read", after - before);
}

#[tokio::test]
async fn what_connections_that_are_gone_have_counted_is_added_up_and_stays() {
    let test_store = TestStore::new().await;
    test_store.queue().await;
    let open = "SELECT sum(count) FROM run_counts WHERE what = 'open'";
    let rows = "SELECT count(*) FROM run_counts WHERE what = 'open'";
    assert_eq!(test_store.database.value(open).await, "1");
    let folded = test_store.store.fold_counts().await.expect("done");
    assert!(folded <= 1, "who queued it may have gone already");
    // No process has such a number.
    for writer in [-1, -2] {
        let gone = format!(
            "INSERT INTO run_counts SELECT device_id, what, began_at, app_id, bucket, {writer}, 20 FROM run_counts
            WHERE what = 'open' LIMIT 1"
        );
        test_store.database.execute(&gone).await;
        assert!(test_store.store.fold_counts().await.expect("done") >= 1);
    }
    assert_eq!(
        (test_store.database.value(open).await, test_store.database.value(rows).await),
        ("41".into(), "1".into())
    );
    test_store
        .database
        .execute("UPDATE run_counts SET began_at = now() - interval '9 days' WHERE what = 'accepted'")
        .await;
    assert_eq!(test_store.store.forget_counts().await.expect("done"), 1, "only what belongs to a time is forgotten");
    assert_eq!(overview(&test_store).await.waiting, 41);
}
