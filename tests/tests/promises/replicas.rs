//! Two gateways on one database.

use deskgate_tests::gateway::RELATIVE_SOCKET_SETTING;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::everything_accepted_ended_once;

#[tokio::test]
async fn two_hundred_concurrent_submissions_with_one_idempotency_key_through_two_replicas_make_one_run() {
    let postgres = Postgres::shared().await;
    let (one, other) = (GatewayProcess::start(&postgres, &[]).await, GatewayProcess::start(&postgres, &[]).await);
    let device = TestDevice::paired_with(&one).await;
    let folder = Folder::new();
    let through_one = device.publish(&one, "shop", &folder, &[]).await;
    let through_other = through_one.through(other.http());

    let backends = [&through_one, &through_other];
    let submissions = (0..200).map(|n: usize| backends[n % 2].try_submit("the-one-key", "Do it once."));
    let answers: Vec<_> = join_all(submissions).await.into_iter().map(|answer| answer.expect("answered")).collect();
    for answer in &answers {
        assert_eq!(answer.status.as_u16(), 202, "{}", answer.body);
    }
    let fresh = answers.iter().filter(|answer| !answer.headers.contains_key("idempotency-replayed")).count();
    assert_eq!(fresh, 1, "exactly one of the answers is the first one");
    assert_eq!(through_one.accepted().len(), 1, "{:?}", through_one.accepted());
    let rows = postgres.rows("SELECT count(*) AS runs FROM runs").await;
    assert_eq!(rows[0]["runs"], 1);
    everything_accepted_ended_once(&through_other, &device).await;

    // The same key with another body is a conflict on both, and makes no run.
    for backend in backends {
        let refused = backend.try_submit("the-one-key", "Do something else.").await.expect("answered");
        assert_eq!((refused.status.as_u16(), refused.code()), (409, "idempotency_key_reused"), "{}", refused.body);
    }
    assert_eq!(postgres.rows("SELECT count(*) AS runs FROM runs").await[0]["runs"], 1);
}

#[tokio::test]
async fn a_newer_session_replaces_an_older_one_on_the_other_replica_within_a_second() {
    let postgres = Postgres::shared().await;
    let (one, other) = (GatewayProcess::start(&postgres, &[]).await, GatewayProcess::start(&postgres, &[]).await);
    let older = TestDevice::paired_with(&one).await;
    let device_id = older.device_id().await;
    let mut newer = older.with_the_same_key().await;
    let invitation = newer.pair(&other, &[]).await;
    newer.connect(other.ssh(), &invitation, &other.control_token_file()).await.ok();

    let connected = other.log().line(&["device connected", &device_id]).await;
    let disconnected = one.log().line(&["device disconnected", &device_id, "newer session"]).await;
    let time = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("the gateway logs JSON");
        line["timestamp"].as_str().expect("a time").parse::<deskgate_protocol::Timestamp>().expect("RFC 3339")
    };
    let took = time(&disconnected).0.duration_since(time(&connected).0).as_secs_f64();
    println!("the older session ended {:.1} ms after the newer one began", took * 1000.0);
    // The goodbye is logged after the older session's connection was closed cleanly, which may take a moment; a TCP
    // timeout, or the next heartbeat after 15 s, would be far beyond this.
    assert!(took < 5.0, "took {took} s");
    older.log().line(&["the gateway ended the session", "Replaced"]).await;
}

#[tokio::test]
async fn a_run_submitted_to_one_replica_is_executed_by_the_device_on_the_other() {
    let postgres = Postgres::shared().await;
    let (one, other) = (GatewayProcess::start(&postgres, &[]).await, GatewayProcess::start(&postgres, &[]).await);
    let device = TestDevice::paired_with(&one).await;
    let folder = Folder::new();
    let backend = device.publish(&one, "shop", &folder, &[]).await.through(other.http());
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    assert_eq!(backend.through(one.http()).run(&run_id).await, run, "both replicas say the same");
}

#[tokio::test]
async fn a_gateway_that_was_frozen_changes_nothing_when_it_thaws() {
    let postgres = Postgres::shared().await;
    let clocks = [RELATIVE_SOCKET_SETTING, "control.heartbeat_ms=1000", "control.lease_ms=5000"];
    let zombie = GatewayProcess::start(&postgres, &clocks).await;
    let other = zombie.replica().await;
    let device = TestDevice::paired_with(&zombie).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let slow = folder.slow_answer(3000, "done");
    let backend = device.publish(&zombie, "shop", &folder, &["--model", &slow]).await.through(other.http());
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;

    zombie.process().signal(Signal::STOP);
    device.proxy().lead_to(other.ssh().get());
    device.proxy().cut();
    device.proxy().heal();
    other.log().line(&["device connected", &device_id]).await;
    let run = backend.wait_for_end(&run_id).await;
    let later = backend.submit("One more.").await;
    backend.wait_for_end(&later).await;

    // The frozen replica resumes and still believes that the device is its own.
    zombie.process().signal(Signal::CONT);
    zombie.log().line(&["device disconnected", &device_id]).await;
    assert_eq!(backend.through(zombie.http()).run(&run_id).await, run);
    other.wait_for_device_state(&device_id, "connected").await;
    backend.wait_for_end(&backend.submit("And one more.").await).await;
    everything_accepted_ended_once(&backend, &device).await;
    for run_id in backend.accepted() {
        assert_eq!(device.executions(&run_id), 1);
    }
}

#[tokio::test]
async fn a_run_in_the_hands_of_a_replaced_session_is_not_executed_by_the_newer_one() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let older = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(12_000, "done");
    let backend = older.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    older.log().line(&["execution began", &run_id]).await;

    let mut newer = older.with_the_same_key().await;
    let invitation = newer.pair(&gateway, &[]).await;
    newer.connect(gateway.ssh(), &invitation, &gateway.control_token_file()).await.ok();
    // The newer session does not know the run: its outcome is unknown.
    gateway.log().line(&["the device no longer knows this run", &run_id]).await;
    newer.kill_9();
    // The older agent comes back with the run, and its outcome counts.
    everything_accepted_ended_once(&backend, &older).await;
    assert_eq!((older.executions(&run_id), newer.executions(&run_id)), (1, 0));
    let events = older.events(&run_id).await;
    let place = |name: &str| events.iter().position(|event| event == name).expect("it happened");
    assert!(place("run.awaiting_reconciliation") < place("run.reconciled"), "{events:?}");
}
