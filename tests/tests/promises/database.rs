//! PostgreSQL goes away and comes back.

use std::time::{Duration, Instant};

use deskgate_tests::backend::fresh_key;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use tokio::task::JoinSet;

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn kill_9_of_postgres_under_load_loses_nothing_and_executes_nothing_twice() {
    let postgres = Postgres::start_exclusive().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(20, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow, "--concurrency", "4"]).await;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let backend = backend.clone();
        callers.spawn(async move {
            for _ in 0..25 {
                backend.submit_until_accepted(&fresh_key(), "Work.").await;
            }
        });
    }
    for so_many in [15, 60] {
        until("work to be under way", async || {
            let accepted = backend.accepted().len();
            if accepted >= so_many { Ok(()) } else { Err(format!("{accepted} accepted")) }
        })
        .await;
        postgres.kill_9().await;
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("every submission was accepted in the end");
    }
    assert_eq!(backend.accepted().len(), 100);
    everything_accepted_ended_once(&backend, &device).await;
    for run_id in backend.accepted() {
        assert_eq!(device.executions(&run_id), 1, "the device was never interrupted");
    }
    let rows = postgres.rows("SELECT count(*) AS runs FROM runs").await;
    assert_eq!(rows[0]["runs"], 100, "no submission made a second run");
}

#[tokio::test]
async fn without_its_database_the_gateway_says_503_and_goes_on_when_it_is_back() {
    let postgres = Postgres::start_exclusive().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(4000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let before = backend.submit("before").await;
    backend.wait_for_state(&before, "running").await;
    device.log().line(&["execution began", &before]).await;

    postgres.stop().await;
    let key = fresh_key();
    let refused = backend.try_submit(&key, "meanwhile").await.expect("the gateway answers");
    assert_eq!((refused.status.as_u16(), refused.code()), (503, "store_unavailable"), "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    let unread = backend.read(&before, 0).await.expect("the gateway answers");
    assert_eq!((unread.status.as_u16(), unread.code()), (503, "store_unavailable"), "{}", unread.body);
    // The device works on meanwhile and keeps the results.
    device.log().line(&["execution ended", &before]).await;

    postgres.start().await;
    let meanwhile = backend.submit_until_accepted(&key, "meanwhile").await;
    let after = backend.submit_until_accepted(&fresh_key(), "after").await;
    for run_id in [&before, &meanwhile, &after] {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/result/text"), "done");
        assert_eq!(device.executions(run_id), 1);
    }
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_gateway_that_keeps_the_line_and_answers_nothing_is_named_within_seconds() {
    let postgres = Postgres::start_exclusive().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    assert_eq!(device.status().await["gateway_is_silent"], false);
    // It answers pings, and waits for its database with everything else.
    postgres.freeze().await;
    let began = Instant::now();
    let shown = device.plain_cli(&["status"]).await;
    assert!(shown.stdout.contains("keeps the connection and does not answer"), "{}", shown.stdout);
    let status = device.status().await;
    assert_eq!(
        (&status["gateway_is_silent"], &status["line"]["state"]),
        (&true.into(), &"connected".into()),
        "{status}"
    );
    device.cli(&["approval", "list"]).await.ok();
    assert!(began.elapsed() < Duration::from_secs(12), "three commands took {:?}", began.elapsed());
    postgres.thaw().await;
    until("the gateway to answer", async || {
        let status = device.status().await;
        if status["access"].is_object() && status["gateway_is_silent"] == false {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}
