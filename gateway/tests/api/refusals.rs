//! Refusals of requests: not there, not now, not like this.

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::http::server;
use deskgate_protocol::{DraftId, EndpointId, RunId};
use serde_json::json;

use crate::support::call::{ExpectedProblem, TestRequest, not_found};
use crate::support::gateway::{DeviceFixture, LONG_LEASE, TestGateway, work};
use crate::support::server::TestServer;
use crate::support::until;

#[tokio::test]
async fn what_may_not_be_seen_looks_exactly_like_what_is_not_there() {
    let test_gateway = TestGateway::new().await;
    let device = &test_gateway.device;
    let (own, other_app, other_desk) = (
        test_gateway.submit("own").await,
        device.application("other").await,
        DeviceFixture::pair(test_gateway.store()).await,
    );
    let of_other_app = {
        let endpoint = device.service(&other_app, "foreign").await;
        let call = test_gateway.submission("x").key(&other_app.key);
        call.to(test_gateway.gateway.addresses().http, &test_gateway.runs_of(endpoint)).send().await.run_id()
    };
    let draft = DraftId::from(device.endpoint.uuid());
    let mut answers = Vec::new();
    let mut ask = async |call: TestRequest| {
        let reply = call.header("X-Request-Id", "same").send().await;
        reply.assert_problem(&not_found());
        let mut headers = reply.headers.clone();
        // What the key has left goes by how often it asks, not by what it asks for.
        for changing in ["date", "ratelimit", "ratelimit-policy"] {
            headers.remove(changing);
        }
        answers.push((reply.text, headers));
    };
    for run in [
        of_other_app.to_string(),
        RunId::new().to_string(),
        device.endpoint.to_string(),
        own.to_string().replacen("run_", "conv_", 1),
        own.to_string().to_uppercase(),
        own.uuid().to_string(),
        "run_".to_owned(),
        "%ff%fe".to_owned(),
        "%00".to_owned(),
        "%2e%2e%2fruns".to_owned(),
        "run_'%20OR%201=1--".to_owned(),
    ] {
        ask(test_gateway.ask("GET", &format!("/api/v1/runs/{run}"))).await;
    }
    ask(test_gateway.ask("GET", &format!("/api/v1/runs/{own}")).subject("berta")).await;
    for endpoint in [
        other_desk.endpoint.to_string(),
        EndpointId::new().to_string(),
        draft.to_string(),
        own.to_string(),
        "ep_".to_owned(),
        "%ff".to_owned(),
    ] {
        let path = format!("/api/v1/agent-endpoints/{endpoint}/runs");
        ask(test_gateway.submission("y").to(test_gateway.gateway.addresses().http, &path)).await;
    }
    let distinct: Vec<_> = answers.iter().filter(|answer| **answer != answers[0]).collect();
    assert!(distinct.is_empty(), "{distinct:?} differ from {:?}", answers[0]);
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_mistyped_path_is_told_apart_from_an_identifier_that_is_not_found() {
    let test_gateway = TestGateway::new().await;
    let detail = "No call has this path. Compare it with those in the reference at /api/v1/docs.";
    let problem = ExpectedProblem::new(404, "path_not_found", "Path not found", detail);
    let runs = format!("{}/", test_gateway.runs_of(test_gateway.device.endpoint));
    for path in
        ["/", "/api/v1", "/api/v1/runs/", "/api/v1/runz", "/api/v2/agent-endpoints", "/metrics", "/livez", &runs]
    {
        test_gateway.ask("GET", path).send().await.assert_problem(&problem);
        test_gateway.call("POST", path).send().await.assert_problem(&problem);
    }
    test_gateway.ask("GET", &format!("/api/v1/runs/{}", RunId::new())).send().await.assert_problem(&not_found());
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_time_whose_plus_was_not_escaped_is_refused_with_how_to_write_it() {
    let test_gateway = TestGateway::new().await;
    let read = async |time: &str| test_gateway.ask("GET", &format!("/api/v1/runs?created_after={time}")).send().await;
    let refused = read("2026-11-21T09:14:50+01:00").await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_input"));
    let detail = refused.json()["detail"].as_str().expect("a text").to_owned();
    assert!(detail.starts_with("created_after is a time.") && detail.contains("write it as %2B"), "{detail}");
    assert_eq!(read("2026-11-21T09:14:50%2B01:00").await.status, 200);
    let other = read("yesterday").await.json()["detail"].clone();
    assert_eq!(other, "created_after is a time, as in 2026-11-21T09:14:50.123Z.");
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_parameter_that_there_is_not_is_named_with_those_that_there_are() {
    let test_gateway = TestGateway::new().await;
    let run_id = test_gateway.submit("one").await;
    for accept in ["text/event-stream", "application/json"] {
        let path = format!("/api/v1/runs/{run_id}/events?until=3");
        let refused = test_gateway.ask("GET", &path).header("Accept", accept).send().await;
        let detail = "\"until\" is no parameter of this call. It takes: after, cursor, limit.";
        assert_eq!((refused.status, &refused.json()["detail"]), (422, &json!(detail)), "{accept}");
    }
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_refused_with_what_it_takes() {
    let test_gateway = TestGateway::new().await;
    let run = format!("/api/v1/runs/{}", RunId::new());
    let runs = test_gateway.runs_of(test_gateway.device.endpoint);
    for (method, path, allow) in [
        ("POST", "/api/v1/agent-endpoints", "GET,HEAD"),
        ("DELETE", "/api/v1/agent-endpoints", "GET,HEAD"),
        ("GET", runs.as_str(), "POST"),
        ("PUT", runs.as_str(), "POST"),
        ("DELETE", run.as_str(), "GET,HEAD"),
        ("PROPFIND", run.as_str(), "GET,HEAD"),
    ] {
        let detail = format!("This address does not take {method}. The Allow header names what it takes.");
        let reply = test_gateway.ask(method, path).send().await;
        reply.assert_problem(&ExpectedProblem::new(405, "method_not_allowed", "Method not allowed", &detail));
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
    test_gateway.stop().await;
}

#[tokio::test]
async fn paused_access_a_full_queue_and_a_reused_key_say_so() {
    let limits = CallerLimits { waiting_runs_per_application: 2, ..CallerLimits::default() };
    let test_gateway = TestGateway::with(limits).await;
    let first = test_gateway.submit("first").await;
    let reused = test_gateway.submission("first").json(&work("another")).send().await;
    let detail = "This Idempotency-Key was used for a request with a different body. New work needs a new key.";
    reused.assert_problem(
        &ExpectedProblem::new(409, "idempotency_key_reused", "Idempotency-Key reused", detail)
            .with(json!({ "existing_run_id": first })),
    );

    test_gateway.submit("second").await;
    let detail = "The application already has 2 runs waiting for its devices. Nothing was accepted; try again later.";
    let full = ExpectedProblem::new(429, "queue_full", "Queue full", detail).retryable();
    test_gateway.submission("third").send().await.assert_problem(&full);
    assert_eq!(test_gateway.submission("second").send().await.status, 202, "a repetition needs no room");
    let (session, _) = test_gateway.device.connect().await;
    assert_eq!(test_gateway.device.claim(session, 1).await.len(), 1);
    until("there is room again", async || test_gateway.submission("third").send().await.status == 202).await;

    test_gateway.device.allow(false).await;
    let detail = "The owner of this service has paused external access. Nothing was accepted; try again later.";
    let paused = ExpectedProblem::new(503, "access_paused", "Access paused", detail).retryable();
    let reply = test_gateway.submission("fourth").send().await;
    reply.assert_problem(&paused);
    assert_eq!(reply.header("retry-after"), Some("60"));
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_removed_device_takes_its_services_with_it() {
    let test_gateway = TestGateway::new().await;
    let run_id = test_gateway.submit("early").await;
    assert!(test_gateway.store().revoke_device(test_gateway.device.device_id, LONG_LEASE).await.expect("stored"));
    test_gateway.submission("late").send().await.assert_problem(&not_found());
    assert_eq!(test_gateway.submission("early").send().await.run_id(), run_id, "what was accepted is found");
    let run = test_gateway.read(run_id).await.json();
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("cancelled"), &json!("device_removed")));
    let listed = test_gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    assert_eq!(listed, json!({ "endpoints": [] }));
    test_gateway.stop().await;
}

#[tokio::test]
async fn a_door_that_drains_admits_nothing_and_still_answers_questions() {
    let test_gateway = TestGateway::new().await;
    let door = TestServer::open(test_gateway.store(), server::ListenerLimits::default()).await;
    let run_id = test_gateway.submit("before").await;
    door.draining.cancel();
    let detail = "This gateway is stopping. Nothing was accepted; try again.";
    let problem = ExpectedProblem::new(503, "draining", "Draining", detail).retryable();
    let path = test_gateway.runs_of(test_gateway.device.endpoint);
    let reply = test_gateway.submission("after").to(door.address, &path).send().await;
    reply.assert_problem(&problem);
    assert_eq!(reply.header("retry-after"), Some("1"));
    let began = std::time::Instant::now();
    let read = test_gateway.ask("GET", "/").to(door.address, &format!("/api/v1/runs/{run_id}?wait=60")).send().await;
    assert_eq!((read.status, began.elapsed().as_secs() < 30), (200, true), "nobody is kept waiting");
    assert_ne!(test_gateway.submission("after").send().await.run_id(), run_id, "nothing was stored");
    test_gateway.stop().await;
}

#[tokio::test]
async fn without_a_database_every_route_says_store_unavailable_and_recovers_by_itself() {
    use deskgate_gateway::store::cluster::{Cluster, ClusterConfig};
    use deskgate_gateway::{DatabaseSettings, Gateway, Settings};
    let (data, state) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let cluster = Cluster::start(ClusterConfig::new(data.path())).await.expect("PostgreSQL starts");
    let mut settings = Settings::built_in(state.path().to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url: cluster.url(), listen_url: None, ca_file: None, migrate: true });
    let gateway = Gateway::start(settings).await.expect("started");
    let device = DeviceFixture::pair(gateway.store()).await;
    let ask = |method: &str, path: &str| {
        TestRequest::new(gateway.addresses().http, method, path).key(&device.app.key).subject("anna")
    };
    let runs = format!("/api/v1/agent-endpoints/{}/runs", device.endpoint);
    let submit = |key: &str| ask("POST", &runs).header("Idempotency-Key", key).json(&work("hello"));
    let run_id = submit("before").send().await.run_id();
    cluster.stop().await;

    let detail = "The gateway cannot reach its database. Try again with the same Idempotency-Key.";
    let problem = ExpectedProblem::new(503, "store_unavailable", "Store unavailable", detail).retryable();
    let began = std::time::Instant::now();
    for call in [
        ask("GET", "/api/v1/agent-endpoints"),
        ask("GET", &format!("/api/v1/runs/{run_id}")),
        ask("GET", &format!("/api/v1/runs/{run_id}?wait=5")),
        submit("during"),
        submit("before"),
    ] {
        let reply = call.send().await;
        reply.assert_problem(&problem);
        assert_eq!(reply.header("retry-after"), Some("2"));
    }
    assert!(began.elapsed().as_secs() < 15, "each within three seconds: {:?}", began.elapsed());

    let cluster = Cluster::start(ClusterConfig::new(data.path())).await.expect("PostgreSQL starts again");
    until("the gateway works again", async || submit("during").send().await.status == 202).await;
    assert_eq!(submit("before").send().await.run_id(), run_id, "what was accepted is still there");
    gateway.stop().await;
    cluster.stop().await;
}
