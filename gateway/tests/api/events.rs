//! The events of a run: as a stream, as pages, resumed, refused and ended.

use std::time::{Duration, Instant};

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::http::server;
use deskgate_gateway::notify::{MessagePiece, Topic};
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::RunId;
use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::run::EventType;
use serde_json::{Value, json};

use crate::store::{events as messages, succeeded};
use crate::support::call::{ExpectedProblem, TestRequest, client, not_found};
use crate::support::gateway::{LONG_LEASE, TestGateway};
use crate::support::raw::RawConnection;
use crate::support::server::TestServer;
use crate::support::stream::{EventStreamReader, SentEvent, events};
use crate::support::until;

/// A run that the device has taken and not yet started.
async fn claimed(gateway: &TestGateway) -> (RunId, SessionKey) {
    let (session, _) = gateway.device.connect().await;
    let run_id = gateway.submit("one").await;
    gateway.device.claim(session, 1).await;
    (run_id, session)
}

async fn write(gateway: &TestGateway, session: SessionKey, run_id: RunId, what: AttemptUpdate) {
    gateway.store().record(session, &[AttemptRecord { run_id, attempt: 1, what }], LONG_LEASE).await.expect("stored");
}

/// A run that has ended, with events from 1 to `count`.
async fn ended(gateway: &TestGateway, count: u64) -> RunId {
    let (run_id, session) = claimed(gateway).await;
    write(gateway, session, run_id, AttemptUpdate::Start).await;
    write(gateway, session, run_id, messages(1, count - 3)).await;
    write(gateway, session, run_id, succeeded(count - 2)).await;
    run_id
}

fn numbers(sent: &[SentEvent]) -> Vec<u64> {
    sent.iter().filter_map(|sent| sent.id).collect()
}

#[tokio::test]
async fn a_stream_begins_with_the_record_and_shows_every_event_until_the_final_one() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let (run_id, session) = claimed(&gateway).await;
    let here = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await;
    let there = EventStreamReader::open(gateway.ask("GET", "").to(replica.addresses().http, &events(run_id))).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(here.response.headers()[name], value);
    }
    for mut stream in [here, there] {
        let snapshot = stream.expect("run.snapshot").await;
        assert_eq!((snapshot.id, stream.retry.as_deref()), (None, Some("3000")));
        let record = gateway.read(run_id).await.json();
        let envelope = json!({ "run_id": run_id, "type": "run.snapshot", "data": record });
        if record["state"] == "queued" {
            assert_eq!(snapshot.data, envelope);
            assert_eq!(record["links"]["events"], json!(events(run_id)));
        }
        let accepted = stream.expect("run.accepted").await;
        assert_eq!(accepted.id, Some(1));
        let members: Vec<_> = accepted.data.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(members, ["event_id", "run_id", "sequence", "type", "created_at", "data"]);
        if record["state"] == "queued" {
            // What comes now is shown as it happens.
            write(&gateway, session, run_id, AttemptUpdate::Start).await;
            assert_eq!(stream.expect("run.started").await.id, Some(2));
            write(&gateway, session, run_id, messages(1, 3)).await;
            write(&gateway, session, run_id, succeeded(4)).await;
        } else {
            assert_eq!(stream.expect("run.started").await.id, Some(2));
        }
        let rest = stream.rest().await;
        assert_eq!(numbers(&rest), [3, 4, 5, 6]);
        assert_eq!(rest.last().map(|sent| sent.event.as_str()), Some("run.succeeded"));
    }
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_goes_on_behind_the_last_event_that_was_received() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 9).await;
    let ask = |query: &str| gateway.ask("GET", &format!("{}{query}", events(run_id)));
    let calls = [
        (ask(""), 1),
        (ask("?after=0"), 1),
        (ask("?after=4"), 5),
        (ask("?cursor=4"), 5),
        (ask("").header("Last-Event-ID", "4"), 5),
        // A client that comes again sends its first address and the newest number.
        (ask("?after=4").header("Last-Event-ID", "7"), 8),
        (ask("?after=4").header("Last-Event-ID", ""), 5),
        (ask("?after=8"), 9),
    ];
    for (call, first) in calls {
        let sent = EventStreamReader::open(call).await.rest().await;
        assert_eq!(sent[0].event, "run.snapshot");
        assert_eq!(numbers(&sent), (first..=9).collect::<Vec<_>>());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_of_an_ended_run_with_nothing_new_is_answered_so_that_an_event_source_ends() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 9).await;
    let ask = |query: &str| gateway.ask("GET", &format!("{}{query}", events(run_id)));
    for call in [
        ask("?after=9"),
        ask("?cursor=9"),
        ask("").header("Last-Event-ID", "9"),
        ask("?after=4").header("Last-Event-ID", "9"),
    ] {
        let over = call.clone().header("Accept", "text/event-stream").send().await;
        assert_eq!((over.status, over.text.as_str()), (204, ""));
        over.assert_envelope();
        // A page is empty, and its cursor stays valid.
        let page = call.send().await;
        let empty = json!({ "data": [], "next_cursor": "9", "has_more": false });
        assert_eq!((page.status, page.json()), (200, empty));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn events_come_as_a_page_to_everybody_who_does_not_name_the_stream() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 5).await;
    let ask = || gateway.ask("GET", &events(run_id)).without("Accept");
    let any = ["*/*", "application/json", "application/json, text/plain, */*", "text/html, */*;q=0.8", ""];
    for call in any.map(|accept| ask().header("Accept", accept)).into_iter().chain([ask()]) {
        let page = call.send().await;
        assert_eq!((page.status, page.header("content-type")), (200, Some("application/json")));
        assert_eq!(page.json()["next_cursor"], "5");
    }
    for accept in ["text/event-stream", "text/event-stream, */*", "application/json, text/event-stream"] {
        let stream = ask().header("Accept", accept).send().await;
        assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")), "{accept}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn pages_hold_what_the_stream_shows() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 130).await;
    let mut pages = Vec::new();
    let mut query = String::new();
    loop {
        let path = format!("{}{query}", events(run_id));
        let page = gateway.ask("GET", &path).header("Accept", "application/json").send().await;
        page.assert_envelope();
        let page = page.json();
        pages.extend(page["data"].as_array().expect("a list").clone());
        query = format!("?after={}", page["next_cursor"].as_str().expect("a cursor"));
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(query, "?after=130");
    let streamed = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await.rest().await;
    let streamed: Vec<Value> = streamed.into_iter().skip(1).map(|sent| sent.data).collect();
    assert_eq!(pages, streamed);
    let path = format!("{}?limit=2&after=3", events(run_id));
    let page = gateway.ask("GET", &path).header("Accept", "application/json").send().await.json();
    assert_eq!((&page["data"][1]["sequence"], &page["next_cursor"]), (&json!(5), &json!("5")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_cursor_that_was_never_given_out_is_refused() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 5).await;
    let detail =
        "This is no place in the run's events. Use the id of an event, or leave it out to begin with the first.";
    let problem = ExpectedProblem::new(400, "invalid_cursor", "Invalid cursor", detail);
    for accept in ["text/event-stream", "application/json"] {
        let ask = |query: &str| gateway.ask("GET", &format!("{}{query}", events(run_id))).header("Accept", accept);
        for query in
            ["?after=", "?after=x", "?after=-1", "?after=+1", "?after=1.0", "?after=6", "?cursor=99999999999999999999"]
        {
            ask(query).send().await.assert_problem(&problem);
        }
        for id in ["x", "6", "+1", "\u{e9}", "1,2"] {
            ask("").header("Last-Event-ID", id).send().await.assert_problem(&problem);
        }
        for query in ["?limit=0", "?limit=101", "?limit=x", "?until=3"] {
            assert_eq!(ask(query).send().await.code(), "invalid_input", "{query}");
        }
        let twice = ask("").header("Last-Event-ID", "3").more("Last-Event-ID", "4").send().await;
        let detail = "Last-Event-ID was sent more than once. Send the id of the last event that you received.";
        twice.assert_problem(&ExpectedProblem::new(400, "invalid_cursor", "Invalid cursor", detail));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_form_that_there_is_not_is_refused() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 5).await;
    let detail = "This address answers with text/event-stream or application/json, and Accept names neither.";
    let problem = ExpectedProblem::new(406, "not_acceptable", "Not acceptable", detail);
    gateway.ask("GET", &events(run_id)).header("Accept", "text/html").send().await.assert_problem(&problem);
    gateway.stop().await;
}

#[tokio::test]
async fn nobody_else_learns_that_the_run_exists() {
    let gateway = TestGateway::new().await;
    let run_id = ended(&gateway, 5).await;
    let other = gateway.device.application("other").await;
    let elsewhere = gateway.device.service(&gateway.device.app, "another").await;
    let restricted = gateway.device.restricted_key(|key| key.endpoints = vec![elsewhere]).await;
    for accept in ["text/event-stream", "application/json"] {
        let ask = || gateway.ask("GET", &events(run_id)).header("Accept", accept);
        for call in [
            ask().subject("bert"),
            ask().key(&other.key),
            ask().key(&restricted.text),
            ask().to(gateway.gateway.addresses().http, &events(RunId::new())),
            ask().to(gateway.gateway.addresses().http, "/api/v1/runs/conv_1/events"),
        ] {
            call.send().await.assert_problem(&not_found());
        }
        let writer =
            gateway.device.restricted_key(|key| key.scopes.retain(|scope| scope.as_str() == "runs:write")).await;
        assert_eq!(ask().key(&writer.text).send().await.code(), "insufficient_scope");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_that_begins_to_wait_for_its_device_says_so_without_a_number() {
    let gateway = TestGateway::new().await;
    let (session, _) = gateway.device.connect().await;
    let run_id = gateway.submit("one").await;
    let mut stream = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await;
    assert_eq!(stream.expect("run.snapshot").await.data["data"]["state"], "queued");
    stream.expect("run.accepted").await;
    gateway.store().end_session(session).await.expect("stored");
    let waiting = stream.expect("run.waiting_for_device").await;
    assert_eq!(waiting.id, None);
    assert_eq!(waiting.data["data"]["state_reason"]["code"], "device_offline");
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("stored");
    assert_eq!(stream.expect("run.cancelled").await.id, Some(2));
    assert_eq!(stream.next().await, None);
    gateway.stop().await;
}

#[tokio::test]
async fn what_the_assistant_writes_is_shown_on_every_replica_and_only_in_the_own_run() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let (run_id, session) = claimed(&gateway).await;
    write(&gateway, session, run_id, AttemptUpdate::Start).await;
    let mut streams = Vec::new();
    for address in [gateway.gateway.addresses().http, replica.addresses().http] {
        let mut stream = EventStreamReader::open(gateway.ask("GET", "").to(address, &events(run_id))).await;
        stream.expect("run.snapshot").await;
        stream.expect("run.accepted").await;
        stream.expect("run.started").await;
        streams.push(stream);
    }
    let delta = MessageDelta { message_id: "msg_1".to_owned(), offset: 3, text: "Gr\u{f6}\u{df}e\n".to_owned() };
    let said = MessagePiece { device_id: session.device_id, run_id, attempt: 1, after: 0, delta: delta.clone() };
    // Another device, or an old attempt, cannot send pieces here.
    gateway
        .store()
        .notifier()
        .publish_piece(MessagePiece { device_id: deskgate_protocol::DeviceId::new(), ..said.clone() });
    gateway.store().notifier().publish_piece(MessagePiece { attempt: 2, ..said.clone() });
    gateway.store().notifier().publish_piece(said);
    for stream in &mut streams {
        let shown = stream.expect("message.delta").await;
        assert_eq!(shown.id, None);
        assert_eq!(shown.data, json!({ "run_id": run_id, "type": "message.delta", "data": delta }));
    }
    write(&gateway, session, run_id, succeeded(1)).await;
    for mut stream in streams {
        assert_eq!(stream.expect("run.succeeded").await.id, Some(3));
        assert_eq!(stream.next().await, None);
    }
    // The piece is not stored.
    assert_eq!(numbers(&EventStreamReader::open(gateway.ask("GET", &events(run_id))).await.rest().await), [1, 2, 3]);
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_open_with_a_revoked_key_ends_within_five_seconds_on_every_replica() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let run_id = gateway.submit("one").await;
    let created = gateway.device.restricted_key(|_| {}).await;
    let mut streams = Vec::new();
    for address in [gateway.gateway.addresses().http, replica.addresses().http] {
        let mut stream =
            EventStreamReader::open(gateway.ask("GET", "").key(&created.text).to(address, &events(run_id))).await;
        stream.expect("run.snapshot").await;
        stream.expect("run.accepted").await;
        streams.push(stream);
    }
    let mut unharmed = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await;
    let path = format!("/api/v1/runs/{run_id}?wait=60");
    let watchers = || gateway.store().notifier().watchers(Topic::Run(run_id));
    let streaming = watchers();
    let waiting = tokio::spawn(gateway.ask("GET", &path).key(&created.text).send());
    until("the read waits", async || watchers() > streaming).await;

    gateway.device.revoke(created.key.key_id).await;
    let revoked = Instant::now();
    for mut stream in streams {
        assert_eq!(stream.next().await, None);
    }
    assert_eq!(waiting.await.expect("no panic").code(), "credential_invalid");
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    // The stream of the good key goes on.
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("stored");
    assert_eq!(numbers(&unharmed.rest().await), [1, 2]);
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_stops_tells_its_streams_to_go_on_elsewhere() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let run_id = gateway.submit("one").await;
    let mut stream =
        EventStreamReader::open(gateway.ask("GET", "").to(replica.addresses().http, &events(run_id))).await;
    stream.expect("run.snapshot").await;
    stream.expect("run.accepted").await;
    let began = Instant::now();
    let stopping = tokio::spawn(replica.stop());
    let closing = stream.expect("stream.closing").await;
    assert_eq!((closing.id, &closing.data["run_id"]), (None, &json!(run_id)));
    assert_eq!(stream.next().await, None);
    stopping.await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    gateway.stop().await;
}

#[tokio::test]
async fn an_application_opens_so_many_streams_and_a_place_is_free_when_one_is_left() {
    let gateway = TestGateway::with(CallerLimits { streams_per_application: 2, ..CallerLimits::default() }).await;
    let run_id = gateway.submit("one").await;
    let ask = || gateway.ask("GET", &events(run_id)).header("Accept", "text/event-stream");
    let first = EventStreamReader::open(ask()).await;
    let _second = EventStreamReader::open(ask()).await;
    let detail = "The application already has 2 event streams open here. Close some, or read the events page by page.";
    let problem = ExpectedProblem::new(429, "rate_limited", "Rate limited", detail).retryable();
    ask().send().await.assert_problem(&problem);
    assert_eq!(ask().header("Accept", "application/json").send().await.status, 200);
    drop(first);
    let client = client().build().expect("a client");
    until("a place is free", async || ask().open(&client).await.status() == 200).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_quiet_stream_shows_now_and_then_that_it_is_alive() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let limits = server::ListenerLimits { heartbeat: Duration::from_millis(200), ..Default::default() };
    let door = TestServer::open(gateway.store(), limits).await;
    let mut stream = EventStreamReader::open(gateway.ask("GET", "").to(door.address, &events(run_id))).await;
    stream.expect("run.snapshot").await;
    stream.expect("run.accepted").await;
    let quiet = Instant::now();
    stream.comment().await;
    stream.comment().await;
    assert!(quiet.elapsed() >= Duration::from_millis(300), "one for each silence: {:?}", quiet.elapsed());
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("stored");
    stream.expect("run.cancelled").await;
    assert_eq!(server::ListenerLimits::default().heartbeat, Duration::from_secs(15));
    gateway.stop().await;
}

/// A number that looks random and is the same in every run.
fn shuffled(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[tokio::test]
async fn ten_thousand_events_with_reconnects_at_random_arrive_once_and_in_order() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let addresses = [gateway.gateway.addresses().http, replica.addresses().http];
    let (run_id, session) = claimed(&gateway).await;
    write(&gateway, session, run_id, AttemptUpdate::Start).await;
    let store = gateway.store().clone();
    let writing = tokio::spawn(async move {
        let mut next = 1;
        while next < 9998 {
            let count = (1 + next % 37).min(9998 - next);
            let record = AttemptRecord { run_id, attempt: 1, what: messages(next, count) };
            store.record(session, &[record], LONG_LEASE).await.expect("stored");
            next += count;
        }
        let record = AttemptRecord { run_id, attempt: 1, what: succeeded(9998) };
        store.record(session, &[record], LONG_LEASE).await.expect("stored");
    });
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..4u64 {
        let ask = gateway.ask("GET", "");
        readers.spawn(follow_with_breaks(ask, addresses, run_id, reader + 1));
    }
    for (received, connections) in readers.join_all().await {
        assert_eq!(received, (1..=10_000).collect::<Vec<_>>());
        assert!(connections > 20, "{connections}");
    }
    writing.await.expect("no panic");
    replica.stop().await;
    gateway.stop().await;
}

/// Follows a run, breaks off after some events and goes on at either gateway.
async fn follow_with_breaks(
    ask: TestRequest,
    addresses: [std::net::SocketAddr; 2],
    run_id: RunId,
    mut seed: u64,
) -> (Vec<u64>, usize) {
    let (mut received, mut connections, mut done) = (Vec::new(), 0, false);
    while !done {
        let address = addresses[shuffled(&mut seed) as usize % 2];
        let mut call = ask.clone().to(address, &events(run_id));
        if let Some(last) = received.last() {
            call = call.header("Last-Event-ID", u64::to_string(last));
        }
        let mut stream = EventStreamReader::open(call).await;
        connections += 1;
        let breaks_after = 1 + shuffled(&mut seed) % 500;
        for _ in 0..breaks_after {
            let Some(sent) = stream.next().await else { break };
            received.extend(sent.id);
            done = sent.event == "run.succeeded";
        }
    }
    (received, connections)
}

#[tokio::test]
async fn whoever_reads_nothing_is_dropped_and_its_place_is_free() {
    let gateway = TestGateway::new().await;
    let (run_id, session) = claimed(&gateway).await;
    write(&gateway, session, run_id, AttemptUpdate::Start).await;
    // More than the kernel takes for a reader that does not read.
    let long = json!({ "message_id": "msg_1", "text": "x".repeat(60_000) });
    for place in 0..20 {
        let events = vec![(EventType::MessageCompleted, long.clone()); 16];
        write(&gateway, session, run_id, AttemptUpdate::Events { first: 1 + place * 16, events }).await;
    }
    write(&gateway, session, run_id, succeeded(321)).await;
    let unread = server::ListenerLimits { unread: Duration::from_secs(1), ..Default::default() };
    let door = TestServer::with(
        gateway.store(),
        server::ListenerAccess::default(),
        unread,
        CallerLimits { streams_per_application: 1, ..CallerLimits::default() },
    )
    .await;
    let mut raw = RawConnection::connect(door.address).await;
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\n\r\n",
        events(run_id),
        gateway.device.app.key
    );
    assert!(raw.say(&head).await);
    raw.hear_until(|heard| heard.contains("run.snapshot")).await;
    let ask = || gateway.ask("GET", "").to(door.address, &events(run_id)).header("Accept", "text/event-stream");
    assert_eq!(ask().send().await.code(), "rate_limited");
    let client = client().build().expect("a client");
    until("the place is free", async || ask().open(&client).await.status() == 200).await;
    until("the place is free again", async || ask().open(&client).await.status() == 200).await;
    // A client that reads gets everything, however long it is.
    let mut stream = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await;
    assert_eq!(numbers(&stream.rest().await).len(), 323);
    drop(raw);
    gateway.stop().await;
}
