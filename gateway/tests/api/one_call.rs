//! Submissions whose answer is the end of their run, or its stream.

use std::time::{Duration, Instant};

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::notify::Topic;
use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::conversations::{TestConversation, report, start};
use crate::store::succeeded;
use crate::support::call::{TestRequest, TestResponse};
use crate::support::gateway::{TestGateway, patient, work};
use crate::support::stream::EventStreamReader;
use crate::support::until;

/// A submission that waits so many seconds, or says what else its query has.
fn asking(gateway: &TestGateway, key: &str, query: &str) -> TestRequest {
    let path = format!("{}?{query}", gateway.runs_of(gateway.device.endpoint));
    gateway.ask("POST", &path).header("Idempotency-Key", key).json(&work("hello"))
}

/// Submits, and returns once somebody waits for the end of the run, which is the newest.
async fn waiting(gateway: &TestGateway, request: TestRequest) -> JoinHandle<TestResponse> {
    let before = runs(gateway).await;
    let answer = tokio::spawn(request.send());
    until("the run is there", async || runs(gateway).await == before + 1).await;
    let list = gateway.ask("GET", "/api/v1/runs?limit=1").send().await.json();
    let run_id: RunId = list["data"][0]["run_id"].as_str().expect("a run").parse().expect("an identifier");
    until("its end is waited for", async || gateway.store().notifier().watchers(Topic::Run(run_id)) > 0).await;
    answer
}

async fn runs(gateway: &TestGateway) -> i64 {
    gateway.database.number("SELECT count(*) FROM runs").await
}

#[tokio::test]
async fn who_waits_for_the_end_gets_it_and_who_waits_in_vain_gets_202() {
    let gateway = TestGateway::new().await;
    let began = Instant::now();
    let vain = asking(&gateway, "vain", "wait=1").send().await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!((vain.status, &vain.json()["state"]), (202, &json!("waiting_for_device")), "{vain:?}");
    let stop = format!("/api/v1/runs/{}/stop", vain.run_id());
    assert_eq!(gateway.ask("POST", &stop).header("Idempotency-Key", "stop").send().await.status, 202);

    let answer = waiting(&gateway, asking(&gateway, "one", "wait=60")).await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    report(&gateway, session, run_id, succeeded(1)).await;
    let answer = answer.await.expect("no panic");
    let path = format!("/api/v1/runs/{run_id}");
    assert_eq!((answer.status, answer.header("location")), (200, Some(path.as_str())), "{answer:?}");
    assert_eq!(answer.json(), gateway.read(run_id).await.json());
    assert_eq!(answer.json()["phase"], "final");

    let again = asking(&gateway, "one", "wait=60").send().await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(again.json(), answer.json());
    // Who does not wait is told 202 as ever, of a run that has ended too.
    assert_eq!(gateway.submission("one").send().await.status, 202);
    gateway.stop().await;
}

#[tokio::test]
async fn who_accepts_a_stream_follows_the_run_from_its_record_on() {
    let gateway = TestGateway::new().await;
    let mut stream = EventStreamReader::open(gateway.submission("one")).await;
    let header = |stream: &EventStreamReader, name: &str| {
        stream.response.headers().get(name).map(|value| value.to_str().expect("text").to_owned())
    };
    let snapshot = stream.expect("run.snapshot").await;
    let run_id = snapshot.data["run_id"].as_str().expect("a run").to_owned();
    assert_eq!(snapshot.data["data"]["state"], "waiting_for_device");
    assert_eq!(header(&stream, "location"), Some(format!("/api/v1/runs/{run_id}")));
    assert_eq!(header(&stream, "idempotency-replayed"), None);
    stream.expect("run.accepted").await;
    let (session, _) = gateway.device.connect().await;
    let started = start(&gateway, session).await;
    assert_eq!(started.to_string(), run_id);
    report(&gateway, session, started, succeeded(1)).await;
    let rest = stream.rest().await;
    assert_eq!(rest.last().expect("events").event, "run.succeeded");

    let mut again = EventStreamReader::open(gateway.submission("one")).await;
    assert_eq!(header(&again, "idempotency-replayed").as_deref(), Some("true"));
    let names: Vec<_> = again.rest().await.into_iter().map(|sent| sent.event).collect();
    assert_eq!((names[0].as_str(), names.last().map(String::as_str)), ("run.snapshot", Some("run.succeeded")));
    assert_eq!(runs(&gateway).await, 1);

    // A stream names itself; who takes anything gets JSON.
    let anything = gateway.submission("two").header("Accept", "*/*").send().await;
    assert_eq!((anything.status, anything.header("content-type")), (202, Some("application/json")));
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_be_answered_so_is_refused_before_anything_is_accepted() {
    let gateway = TestGateway::new().await;
    let blind = gateway.device.restricted_key(|key| key.scopes = vec![Scope::RunsWrite]).await;
    let streaming = gateway.submission("one").header("Accept", "text/event-stream");
    for (request, status, code) in [
        (asking(&gateway, "one", "wait=1").key(&blind.text), 403, "insufficient_scope"),
        (streaming.key(&blind.text), 403, "insufficient_scope"),
        (asking(&gateway, "one", "wait=61"), 422, "invalid_input"),
        (asking(&gateway, "one", "wait=x"), 422, "invalid_input"),
        (asking(&gateway, "one", "waits=1"), 422, "invalid_input"),
    ] {
        let refused = request.send().await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{refused:?}");
    }
    assert_eq!(runs(&gateway).await, 0);
    assert_eq!(asking(&gateway, "blind", "wait=0").key(&blind.text).send().await.status, 202);

    gateway.stop().await;
}

#[tokio::test]
async fn without_a_place_to_wait_the_answer_is_202_at_once_and_other_bodies_are_taken_meanwhile() {
    let limits = CallerLimits { streams_per_application: 1, waits_per_application: 1, bodies_per_key: 1, ..patient() };
    let gateway = TestGateway::with(limits).await;
    let first = waiting(&gateway, asking(&gateway, "first", "wait=60")).await;
    let second = asking(&gateway, "second", "wait=60").send().await;
    assert_eq!((second.status, &second.json()["phase"]), (202, &json!("accepted")), "{second:?}");
    let streaming = || gateway.submission("first").header("Accept", "text/event-stream");
    let open = EventStreamReader::open(streaming()).await;
    let answer = streaming().send().await;
    assert_eq!((answer.status, answer.header("content-type")), (202, Some("application/json")), "{answer:?}");
    assert_eq!(answer.header("idempotency-replayed"), Some("true"), "a repetition finds its run");
    assert_eq!(runs(&gateway).await, 2);
    drop(open);
    first.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_accepted_is_told_whatever_ends_the_wait() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let created = gateway.device.restricted_key(|_| {}).await;
    let path = format!("{}?wait=60", gateway.runs_of(gateway.device.endpoint));
    let at_replica = asking(&gateway, "one", "wait=60").to(replica.addresses().http, &path);
    let stopped = tokio::spawn(at_replica.send());
    until("the run is there", async || runs(&gateway).await == 1).await;
    replica.stop().await;
    let answer = stopped.await.expect("no panic");
    assert_eq!((answer.status, &answer.json()["phase"]), (202, &json!("accepted")), "{answer:?}");

    let answer = waiting(&gateway, asking(&gateway, "two", "wait=60").key(&created.text)).await;
    gateway.device.revoke(created.key.key_id).await;
    let answer = answer.await.expect("no panic");
    assert_eq!((answer.status, &answer.json()["phase"]), (202, &json!("accepted")), "{answer:?}");

    // Who goes away takes nothing along.
    waiting(&gateway, asking(&gateway, "three", "wait=60")).await.abort();
    let (session, _) = gateway.device.connect().await;
    for _ in 0..3 {
        let run_id = start(&gateway, session).await;
        report(&gateway, session, run_id, succeeded(1)).await;
    }
    let list = gateway.ask("GET", "/api/v1/runs?state=succeeded").send().await.json();
    assert_eq!(list["data"].as_array().map(Vec::len), Some(3), "{list}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_is_answered_with_the_end_of_its_run_too() {
    let gateway = TestGateway::new().await;
    let (session, _) = gateway.device.connect().await;
    let conversation = TestConversation::open(&gateway, "case-1").await;
    let message =
        conversation.message("one", 1).to(gateway.gateway.addresses().http, &conversation.path("/messages?wait=60"));
    let answer = waiting(&gateway, message).await;
    let run_id = start(&gateway, session).await;
    report(&gateway, session, run_id, succeeded(1)).await;
    let answer: Value = answer.await.expect("no panic").json();
    assert_eq!((&answer["phase"], &answer["conversation_id"]), (&json!("final"), &json!(conversation.id)));

    let mut stream = EventStreamReader::open(conversation.message("two", 1)).await;
    assert_eq!(stream.expect("run.snapshot").await.data["data"]["conversation_id"], json!(conversation.id));
    gateway.stop().await;
}
