//! Health, readiness and metrics report the true state.

use deskgate_gateway::ops::health_check::send_request;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;

#[tokio::test]
async fn without_its_database_a_gateway_lives_and_is_not_ready_until_it_is_back() {
    let postgres = Postgres::start_exclusive().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let ops = gateway.ops().get();
    assert_eq!(gateway.command_line(&["ready"]).await.exit, 0);
    postgres.stop().await;
    let said = gateway.command_line(&["ready"]).await;
    assert_eq!(said.exit, 1, "{}", said.stdout);
    assert!(said.stderr.contains("[-] database: "), "{}", said.stderr);
    assert_eq!(gateway.command_line(&["healthcheck"]).await.exit, 0, "killing it would not bring the database back");
    let metrics = send_request(ops, "/metrics").await.expect("what the process counts is there");
    assert!(metrics.contains("deskgate_build_info") && !metrics.contains("deskgate_queue_depth"), "{metrics}");
    postgres.start().await;
    until("readiness to come back", async || send_request(ops, "/readyz?verbose").await).await;

    gateway.stop(Signal::TERM).await;
    let said = gateway.command_line(&["healthcheck"]).await;
    assert_eq!(said.exit, 1);
    assert!(said.stderr.contains("nothing answers on"), "{}", said.stderr);
}

#[tokio::test]
async fn a_run_is_found_by_the_same_words_in_the_logs_of_both_halves() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let path = format!("/agent-endpoints/{}/runs", backend.endpoint_id());
    let request = backend.request(reqwest::Method::POST, &path).header("Idempotency-Key", "traced");
    let request = request.header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"));
    let request = request.header("X-Request-Id", "request-of-the-test");
    let answer =
        backend.send(request.json(&serde_json::json!({ "input": { "text": "Hello" } }))).await.expect("answered");
    assert_eq!(answer.headers["x-request-id"], "request-of-the-test");
    let run_id = answer.body["run_id"].as_str().expect("accepted");
    let field = |name: &str, value: &str| format!("\"{name}\":\"{value}\"");
    let (run, trace) = (field("run_id", run_id), field("trace_id", trace_id));
    let request = field("request_id", "request-of-the-test");
    gateway.log().line(&["run accepted", &run, &trace, &request]).await;
    device.log().line(&["took a run", run_id, trace_id]).await;
    device.log().line(&["execution began", run_id, trace_id]).await;
    gateway.log().line(&["run ended", &run]).await;
}
