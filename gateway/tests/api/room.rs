//! Limits on the requests under way of one key, application or address.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use deskgate_gateway::domain;
use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::notify::Topic;
use deskgate_protocol::KeyId;
use deskgate_protocol::secret::ApplicationKey;
use serde_json::json;

use crate::support::call::{ExpectedProblem, TestRequest};
use crate::support::gateway::{TestGateway, work};
use crate::support::raw::RawConnection;
use crate::support::server::TestServer;
use crate::support::until;

async fn door(gateway: &TestGateway, callers: domain::CallerLimits) -> TestServer {
    TestServer::with(gateway.store(), ListenerAccess::default(), ListenerLimits::default(), callers).await
}

/// The head of a submission; `rest` is a part of its body, or announces its length.
fn head(gateway: &TestGateway, key: &str, rest: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\n{rest}",
        gateway.runs_of(gateway.device.endpoint),
        gateway.device.app.key
    )
}

/// A body whose reading has begun and that never arrives completely.
async fn half_a_body(gateway: &TestGateway, door: &TestServer, key: &str, length: &str) -> RawConnection {
    let mut raw = RawConnection::connect(door.address).await;
    assert!(raw.say(head(gateway, key, &format!("{length}\r\nExpect: 100-continue\r\n\r\n"))).await);
    // A server that reads a body announces that first.
    raw.hear_until(|heard| heard.starts_with("HTTP/1.1 100 Continue\r\n\r\n")).await;
    raw
}

#[tokio::test]
async fn a_key_has_room_for_so_many_bodies_and_no_byte_of_one_more_is_waited_for() {
    let gateway = TestGateway::new().await;
    let door = door(&gateway, domain::CallerLimits { bodies_per_key: 2, ..Default::default() }).await;
    let submission = |key: &str| {
        gateway.submission(key).to(door.address, &gateway.runs_of(gateway.device.endpoint)).json(&work("a"))
    };
    let length = "Content-Length: 26";
    let (mut first, second) =
        (half_a_body(&gateway, &door, "first", length).await, half_a_body(&gateway, &door, "second", length).await);

    let mut third = RawConnection::connect(door.address).await;
    assert!(third.say(head(&gateway, "third", "Content-Length: 26\r\n\r\n")).await);
    let heard = third.hear_until(|heard| heard.ends_with('}')).await;
    assert!(heard.starts_with("HTTP/1.1 429 ") && heard.contains("retry-after: 1\r\n"), "{heard}");
    let detail =
        "This key has too many requests with a body under way. Nothing was read; try again when some are answered.";
    let problem = ExpectedProblem::new(429, "rate_limited", "Rate limited", detail).retryable();
    submission("third").send().await.assert_problem(&problem);
    for path in ["/api/v1/conversations", "/api/v1/runs/run_x/stop", "/api/v1/conversations/conv_x/reset"] {
        let other = TestRequest::new(door.address, "POST", path).key(&gateway.device.app.key).subject("anna");
        let other = other.header("Idempotency-Key", "other").json(&json!({}));
        other.send().await.assert_problem(&problem);
    }
    let another = gateway.device.restricted_key(|_| {}).await.text;
    assert_eq!(submission("another").key(&another).send().await.status, 202, "each key has room of its own");
    let reading = TestRequest::new(door.address, "GET", "/api/v1/runs").key(&gateway.device.app.key).subject("anna");
    assert_eq!(reading.send().await.status, 200, "what has no body needs no room");

    assert!(first.say("{\"input\":{\"text\":\"hello\"}}").await);
    first.hear_until(|heard| heard.starts_with("HTTP/1.1 202 ")).await;
    assert_eq!(submission("after-the-first").send().await.status, 202, "who is answered makes room");
    drop(second);
    until("who is gone makes room", async || submission("after-the-second").send().await.status == 202).await;
    gateway.stop().await;
}

#[tokio::test]
async fn bodies_of_a_key_have_so_many_bytes_and_one_of_unknown_length_counts_as_the_largest() {
    let gateway = TestGateway::new().await;
    let door = door(&gateway, domain::CallerLimits { body_bytes_per_key: 1024 * 1024, ..Default::default() }).await;
    let submission = |key: &str| {
        gateway.submission(key).to(door.address, &gateway.runs_of(gateway.device.endpoint)).json(&work("a"))
    };
    let endless = half_a_body(&gateway, &door, "endless", "Transfer-Encoding: chunked").await;
    assert_eq!(submission("probe").send().await.code(), "rate_limited");
    drop(endless);
    until("it is gone", async || submission("probe").send().await.status == 202).await;

    let large = half_a_body(&gateway, &door, "large", "Content-Length: 1048570").await;
    assert_eq!(submission("probe").send().await.code(), "rate_limited");
    let too_large = gateway.submission("too-large").to(door.address, &gateway.runs_of(gateway.device.endpoint));
    assert_eq!(too_large.text("x".repeat(2_000_000)).send().await.status, 429);
    drop(large);
    until("it is gone", async || submission("probe").send().await.status == 202).await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_application_has_so_many_reads_that_wait_and_one_more_is_refused() {
    let gateway = TestGateway::new().await;
    let door = door(&gateway, domain::CallerLimits { waits_per_application: 2, ..Default::default() }).await;
    let run_id = gateway.submit("waited-for").await;
    let read = |query: &str| {
        let path = format!("/api/v1/runs/{run_id}{query}");
        TestRequest::new(door.address, "GET", &path).key(&gateway.device.app.key).subject("anna")
    };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2 {
        waiting.spawn(read("?wait=60").send());
    }
    until("both wait", async || gateway.store().notifier().watchers(Topic::Run(run_id)) == 2).await;
    let detail = "The application already has 2 reads waiting for a change here. Read without \"wait\", or try again.";
    let problem = ExpectedProblem::new(429, "rate_limited", "Rate limited", detail).retryable();
    read("?wait=60").send().await.assert_problem(&problem);
    let another = gateway.device.restricted_key(|_| {}).await.text;
    assert_eq!(read("?wait=1").key(&another).send().await.status, 429, "the keys of an application share its places");
    assert_eq!(read("").send().await.status, 200, "who does not wait needs no place");
    let other = gateway.device.application("other").await.key;
    assert_eq!(read("?wait=1").key(&other).send().await.status, 404, "each application has places of its own");
    door.draining.cancel();
    for answer in waiting.join_all().await {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(read("?wait=60").send().await.status, 200, "their places are free again");
    gateway.stop().await;
}

/// A server that trusts a proxy's client addresses, and refuses guessers.
async fn guarded(gateway: &TestGateway) -> TestServer {
    let callers = domain::CallerLimits {
        failed_authentications_per_minute: NonZeroU32::new(10).expect("not zero"),
        ..domain::CallerLimits::default()
    };
    let entrance = ListenerAccess { proxies: "127.0.0.0/8".parse().expect("a range"), ..ListenerAccess::default() };
    TestServer::with(gateway.store(), entrance, ListenerLimits::default(), callers).await
}

/// A list of services, asked for from an address.
fn list(door: &TestServer, key: &str, from: &str) -> TestRequest {
    let call = TestRequest::new(door.address, "GET", "/api/v1/agent-endpoints").key(key).subject("anna");
    call.header("X-Forwarded-For", from)
}

/// A key that does not exist.
fn guess() -> String {
    ApplicationKey::generate(KeyId::new()).reveal().to_owned()
}

#[tokio::test]
async fn a_good_key_whose_reading_fails_once_goes_on_beside_a_guesser() {
    let gateway = TestGateway::new().await;
    let door = guarded(&gateway).await;
    let (here, good) = ("203.0.113.1", &gateway.device.app.key);
    assert_eq!(list(&door, good, here).send().await.status, 200);
    let held = gateway.database.begin().await;
    held.execute("LOCK TABLE application_keys IN ACCESS EXCLUSIVE MODE").await;
    until("a reading fails", async || list(&door, good, here).send().await.status == 503).await;
    held.commit().await;
    until("guessers are turned away", async || list(&door, &guess(), here).send().await.status == 429).await;
    assert_eq!(list(&door, good, here).send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn an_address_from_which_keys_are_guessed_is_turned_away_and_a_good_key_beside_the_guesser_goes_on() {
    let gateway = TestGateway::new().await;
    let door = guarded(&gateway).await;
    let list = |key: &str, from: &str| list(&door, key, from);
    let (here, elsewhere, good) = ("203.0.113.1", "203.0.113.2", &gateway.device.app.key);
    let revoked = gateway.device.restricted_key(|_| {}).await;
    gateway.device.revoke(revoked.key.key_id).await;
    assert_eq!(list(good, here).send().await.status, 200);
    for _ in 0..200 {
        assert_eq!(list("nonsense", here).send().await.status, 401, "what cannot be a key costs nothing");
    }
    let mut guesses = 0;
    while list(&guess(), here).send().await.status == 401 {
        guesses += 1;
        assert!(guesses < 100, "nobody is turned away");
    }
    assert!(guesses >= 10, "turned away after {guesses}");
    let detail = "Too many requests from this address came with a key that is not valid. Wait, as Retry-After says, and try again.";
    let problem = ExpectedProblem::new(429, "rate_limited", "Rate limited", detail).retryable();
    let fresh = gateway.device.restricted_key(|_| {}).await.text;
    let refused = async |key: String| {
        until("turned away", async || list(&guess(), here).send().await.status == 429).await;
        list(&key, here).send().await
    };
    refused(guess()).await.assert_problem(&problem);
    assert_eq!(refused(revoked.text.clone()).await.status, 429, "it was good, and is so no more");
    let last = good.len() - 1;
    assert_eq!(refused(fresh.clone()).await.status, 429, "nobody knows yet whether it is good");
    assert_eq!(list(&good[..last], here).send().await.status, 401, "what cannot be a key is told so");
    // Longer than any reading of a key is cached.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        list(&guess(), here).send().await;
    }
    assert_eq!(refused(good.clone()).await.status, 200, "whoever was let in before goes on");
    assert_eq!(list(&fresh, elsewhere).send().await.status, 200, "elsewhere nobody failed");
    assert_eq!(refused(fresh).await.status, 200, "and now it is known");
    until("time forgives", async || list(&guess(), here).send().await.status == 401).await;
    gateway.stop().await;
}
