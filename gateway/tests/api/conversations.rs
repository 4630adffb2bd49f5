//! Conversations through the public API; the device is played by the store's own calls.

use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::{ConversationId, EndpointId, RunId};
use serde_json::{Value, json};

use crate::store::succeeded;
use crate::support::call::{ExpectedProblem, TestRequest, TestResponse, not_found};
use crate::support::gateway::{LONG_LEASE, TestGateway};

/// A conversation of anna's, with calls in it.
pub(crate) struct TestConversation<'a> {
    pub(crate) gateway: &'a TestGateway,
    pub(crate) id: ConversationId,
}

impl<'a> TestConversation<'a> {
    pub(crate) async fn open(gateway: &'a TestGateway, key: &str) -> Self {
        let opened = opening(gateway, key, key).send().await;
        assert_eq!(opened.status, 201, "{opened:?}");
        let id = opened.json()["conversation_id"].as_str().expect("a text").parse().expect("an identifier");
        Self { gateway, id }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/conversations/{}{rest}", self.id)
    }

    pub(crate) async fn read(&self) -> Value {
        let reply = self.gateway.ask("GET", &self.path("")).send().await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Its state, generation and active run.
    pub(crate) async fn stands(&self) -> (String, u64, Option<String>) {
        let record = self.read().await;
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        (text("state").expect("a text"), record["generation"].as_u64().expect("a number"), text("active_run_id"))
    }

    pub(crate) fn message(&self, key: &str, generation: u32) -> TestRequest {
        let body = json!({ "expected_generation": generation, "input": { "text": "hello" } });
        self.gateway.ask("POST", &self.path("/messages")).header("Idempotency-Key", key).json(&body)
    }

    pub(crate) fn reset(&self, key: &str, generation: u32) -> TestRequest {
        let body = json!({ "expected_generation": generation });
        self.gateway.ask("POST", &self.path("/reset")).header("Idempotency-Key", key).json(&body)
    }
}

fn opening(gateway: &TestGateway, idempotency_key: &str, conversation_key: &str) -> TestRequest {
    let body = json!({ "endpoint_id": gateway.device.endpoint, "conversation_key": conversation_key });
    gateway.ask("POST", "/api/v1/conversations").header("Idempotency-Key", idempotency_key).json(&body)
}

/// The device takes the oldest run and starts it.
pub(crate) async fn start(gateway: &TestGateway, session: SessionKey) -> RunId {
    let offers = gateway.device.claim(session, 1).await;
    let run_id = offers[0].run_id;
    assert_eq!(report(gateway, session, run_id, AttemptUpdate::Start).await, RecordOutcome::Done);
    run_id
}

pub(crate) async fn report(
    gateway: &TestGateway,
    session: SessionKey,
    run_id: RunId,
    what: AttemptUpdate,
) -> RecordOutcome {
    let record = AttemptRecord { run_id, attempt: 1, what };
    gateway.store().record(session, &[record], LONG_LEASE).await.expect("written")[0]
}

fn conflict<'a>(code: &'a str, title: &'a str, detail: &'a str, members: Value) -> ExpectedProblem<'a> {
    ExpectedProblem::new(409, code, title, detail).with(members)
}

const BUSY_DETAIL: &str = "The conversation has a message or a reset under way. Wait for its end and try again.";

#[tokio::test]
async fn the_same_business_key_is_the_same_conversation_and_only_for_its_subject_and_application() {
    let gateway = TestGateway::new().await;
    let first = opening(&gateway, "one", "case 4711").send().await;
    let record = first.json();
    assert_eq!((first.status, &record["generation"], &record["state"]), (201, &json!(1), &json!("idle")));
    assert_eq!(record["conversation_key"], "case 4711");
    let path = format!("/api/v1/conversations/{}", record["conversation_id"].as_str().expect("a text"));
    assert_eq!(first.header("location"), Some(path.as_str()));
    assert_eq!(gateway.ask("GET", &path).send().await.json(), record);

    let again = opening(&gateway, "two", "case 4711").send().await;
    assert_eq!((again.status, again.json(), again.header("idempotency-replayed")), (200, record.clone(), None));
    let replayed = opening(&gateway, "one", "case 4711").send().await;
    assert_eq!((replayed.status, replayed.header("idempotency-replayed")), (201, Some("true")));
    let replayed = opening(&gateway, "two", "case 4711").send().await;
    assert_eq!((replayed.status, replayed.json()), (200, record.clone()));
    let detail = "This Idempotency-Key was used for a request with a different body. New work needs a new key.";
    let members = json!({ "existing_conversation_id": record["conversation_id"] });
    let reused = conflict("idempotency_key_reused", "Idempotency-Key reused", detail, members);
    opening(&gateway, "one", "another").send().await.assert_problem(&reused);

    let of_berta = opening(&gateway, "one", "case 4711").subject("berta").send().await;
    assert_eq!(of_berta.status, 201);
    assert_ne!(of_berta.json()["conversation_id"], record["conversation_id"]);
    gateway.ask("GET", &path).subject("berta").send().await.assert_problem(&not_found());
    let other = gateway.device.application("shipping").await;
    gateway.ask("GET", &path).key(&other.key).send().await.assert_problem(&not_found());
    opening(&gateway, "x", "case 4711").key(&other.key).send().await.assert_problem(&not_found());
    gateway.ask("GET", "/api/v1/conversations/run_1").send().await.assert_problem(&not_found());
    gateway.stop().await;
}

#[tokio::test]
async fn lists_show_a_callers_own_conversations_and_the_messages_of_one() {
    let gateway = TestGateway::new().await;
    let mut opened = Vec::new();
    for key in ["first", "second", "third"] {
        opened.insert(0, TestConversation::open(&gateway, key).await.read().await);
    }
    let list = async |query: &str| gateway.ask("GET", &format!("/api/v1/conversations?{query}")).send().await;
    let page = list("limit=2").await.json();
    assert_eq!((&page["data"], &page["has_more"]), (&json!(opened[..2]), &json!(true)));
    let cursor = page["next_cursor"].as_str().expect("more");
    let rest = list(&format!("limit=2&cursor={cursor}")).await.json();
    assert_eq!(rest, json!({ "data": opened[2..], "has_more": false }));
    let named = format!("conversation_key=second&endpoint_id={}", gateway.device.endpoint);
    assert_eq!(list(&named).await.json(), json!({ "data": [opened[1]], "has_more": false }));

    let other = gateway.device.service(&gateway.device.app, "other").await;
    let limited = gateway.device.restricted_key(|key| key.endpoints = vec![other]).await.text;
    let empty = json!({ "data": [], "has_more": false });
    let everything = || gateway.ask("GET", "/api/v1/conversations");
    for stranger in [everything().subject("berta"), everything().key(&limited)] {
        assert_eq!(stranger.send().await.json(), empty);
    }
    assert_eq!(list("cursor=x").await.code(), "invalid_cursor");
    assert_eq!(list(&format!("limit=1&cursor={cursor}&endpoint_id={other}")).await.code(), "invalid_cursor");
    assert_eq!(list("conversation_key=%00").await.code(), "invalid_input");

    let (talk, silent) = (TestConversation::open(&gateway, "fourth").await, &opened[0]["conversation_id"]);
    let said = talk.message("one", 1).send().await.run_id();
    gateway.submit("no-message").await;
    let runs = async |of: &str| gateway.ask("GET", &format!("/api/v1/runs?conversation_id={of}")).send().await.json();
    let found = runs(&talk.id.to_string()).await;
    assert_eq!((found["data"].as_array().map(Vec::len), &found["data"][0]["run_id"]), (Some(1), &json!(said)));
    assert_eq!(runs(silent.as_str().expect("a text")).await, empty);
    gateway.stop().await;
}

#[tokio::test]
async fn twenty_openings_at_once_make_one_conversation() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let calls = (0..20).map(|n| {
        let call = opening(&gateway, &format!("key-{}", n % 7), "one");
        if n % 2 == 0 { call } else { call.to(replica.addresses().http, "/api/v1/conversations") }.send()
    });
    let replies = futures_util::future::join_all(calls).await;
    let ids: std::collections::BTreeSet<_> =
        replies.iter().map(|reply| reply.json()["conversation_id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{replies:?}");
    let made = replies.iter().filter(|reply| reply.status == 201 && reply.header("idempotency-replayed").is_none());
    assert_eq!(made.count(), 1, "{replies:?}");
    assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 201)), "{replies:?}");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_conversation_has_one_run_at_a_time_and_is_free_in_the_commit_of_its_end() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let accepted = talk.message("one", 1).send().await;
    let run = accepted.json();
    let run_id = accepted.run_id();
    assert_eq!((&run["conversation_id"], &run["generation"]), (&json!(talk.id), &json!(1)));
    assert_eq!(gateway.read(run_id).await.json()["conversation_id"], json!(talk.id));
    assert_eq!(talk.stands().await, ("busy".to_owned(), 1, Some(run_id.to_string())));

    let busy =
        conflict("conversation_busy", "Conversation busy", BUSY_DETAIL, json!({ "active_run_id": run_id })).retryable();
    talk.message("two", 1).send().await.assert_problem(&busy);
    talk.reset("reset", 1).send().await.assert_problem(&busy);
    let replayed = talk.message("one", 1).send().await;
    assert_eq!((replayed.run_id(), replayed.header("idempotency-replayed")), (run_id, Some("true")));
    let detail = "This Idempotency-Key was used for a request with a different body. New work needs a new key.";
    let reused =
        conflict("idempotency_key_reused", "Idempotency-Key reused", detail, json!({ "existing_run_id": run_id }));
    talk.message("one", 2).send().await.assert_problem(&reused);

    let (session, _) = gateway.device.connect().await;
    let offers = gateway.device.claim(session, 9).await;
    assert_eq!((offers.len(), offers[0].conversation, offers[0].generation), (1, Some(talk.id), Some(1)));
    assert_eq!(report(&gateway, session, run_id, AttemptUpdate::Start).await, RecordOutcome::Done);
    assert_eq!(report(&gateway, session, run_id, succeeded(1)).await, RecordOutcome::Done);
    assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    assert_eq!(talk.message("one", 1).send().await.json()["state"], "succeeded", "the replay finds what became of it");
    assert_ne!(talk.message("two", 1).send().await.run_id(), run_id);
    gateway.stop().await;
}

#[tokio::test]
async fn every_way_a_run_can_end_frees_its_conversation() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let (session, _) = gateway.device.connect().await;

    let expired = talk.message("expires", 1).send().await.run_id();
    gateway
        .database
        .execute(&format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", expired.uuid()))
        .await;
    gateway.store().expire_queued(LONG_LEASE).await.expect("expired");
    assert_eq!(talk.stands().await.0, "idle");

    talk.message("mismatch", 1).send().await.run_id();
    let declined = gateway.device.claim(session, 1).await[0].run_id;
    assert_eq!(report(&gateway, session, declined, AttemptUpdate::Mismatch).await, RecordOutcome::Done);
    assert_eq!(talk.stands().await.0, "idle");

    talk.message("removed", 1).send().await.run_id();
    start(&gateway, session).await;
    assert_eq!(talk.stands().await.0, "busy");
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("revoked");
    assert_eq!(talk.stands().await.0, "idle");
    talk.message("gone", 1).send().await.assert_problem(&not_found());
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_names_the_generation_it_means_and_a_reset_raises_it_once() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let detail = "The conversation is in generation 1. Read it and decide whether the request still fits.";
    let other = conflict("generation_mismatch", "Generation mismatch", detail, json!({ "current_generation": 1 }));
    talk.message("early", 2).send().await.assert_problem(&other);
    talk.reset("early", 2).send().await.assert_problem(&other);

    let asked = talk.reset("reset", 1).send().await;
    assert_eq!(asked.status, 202, "{asked:?}");
    let operation = asked.json();
    assert_eq!((&operation["kind"], &operation["state"]), (&json!("conversation.reset"), &json!("pending")));
    assert_eq!(operation["target"], json!({ "conversation_id": talk.id }));
    assert_eq!(talk.stands().await, ("resetting".to_owned(), 1, None));
    let busy = conflict(
        "conversation_busy",
        "Conversation busy",
        BUSY_DETAIL,
        json!({ "operation_id": operation["operation_id"] }),
    );
    talk.message("meanwhile", 1).send().await.assert_problem(&busy.retryable());
    assert_eq!(talk.reset("another", 1).send().await.json()["operation_id"], operation["operation_id"]);

    let (session, _) = gateway.device.connect().await;
    let told = gateway.store().deliver(session, OrderSelection::New).await.expect("delivered");
    assert_eq!(told.len(), 1);
    assert!(
        gateway.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty(),
        "once in a session"
    );
    let path = asked.header("location").expect("an address").to_owned();
    assert_eq!(gateway.ask("GET", &path).send().await.json()["state"], "delivered");
    let (newer, _) = gateway.device.connect().await;
    assert_eq!(
        gateway.store().deliver(newer, OrderSelection::New).await.expect("delivered"),
        told,
        "again in the next"
    );
    for session in [session, newer, newer] {
        gateway.store().operation_done(session, told[0].0, OutcomeCode::Reset, LONG_LEASE).await.expect("written");
        let expected = if session == newer { 2 } else { 1 };
        assert_eq!(talk.stands().await.1, expected, "an older session changes nothing, a repetition neither");
    }
    assert_eq!(talk.stands().await.0, "idle");
    let done = gateway.ask("GET", &path).send().await.json();
    assert_eq!(
        (&done["state"], &done["outcome"]),
        (&json!("completed"), &json!({ "code": "reset", "new_generation": 2 }))
    );
    let replayed = talk.reset("another", 1).send().await;
    assert_eq!((replayed.json(), replayed.header("idempotency-replayed")), (done, Some("true")));
    assert_eq!(talk.message("after", 2).send().await.json()["generation"], 2);
    gateway.stop().await;
}

#[tokio::test]
async fn a_reset_that_its_device_can_no_longer_carry_out_fails_and_changes_nothing() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let asked = talk.reset("reset", 1).send().await;
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("revoked");
    gateway.store().fail_resets_of_revoked_devices().await.expect("failed");
    let operation = gateway.ask("GET", asked.header("location").expect("an address")).send().await.json();
    assert_eq!((&operation["state"], &operation["error"]["code"]), (&json!("failed"), &json!("device_removed")));
    assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_that_is_limited_to_other_services_does_not_learn_of_a_conversation() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let reset = talk.reset("reset", 1).send().await;
    let other = gateway.device.service(&gateway.device.app, "other").await;
    let limited = gateway.device.restricted_key(|key| key.endpoints = vec![other]).await.text;
    let path = reset.header("location").expect("an address").to_owned();
    for call in [
        gateway.ask("GET", &talk.path("")),
        talk.message("m", 1),
        talk.reset("r", 1),
        opening(&gateway, "o", "case"),
        gateway.ask("GET", &path),
    ] {
        call.key(&limited).send().await.assert_problem(&not_found());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_said_member_by_member() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let flaws = |reply: &TestResponse| {
        assert_eq!((reply.status, reply.code()), (422, "invalid_input".to_owned()), "{reply:?}");
        let json = reply.json();
        let errors = json["errors"].as_array().expect("a list");
        errors.iter().map(|flaw| format!("{} {}", flaw["pointer"], flaw["code"]).replace('"', "")).collect::<Vec<_>>()
    };
    let post = |path: &str, body: Value| gateway.ask("POST", path).header("Idempotency-Key", "x").json(&body).send();
    let opened = post("/api/v1/conversations", json!({ "conversation_key": "" })).await;
    assert_eq!(flaws(&opened), ["/endpoint_id required", "/conversation_key out_of_range"]);
    let opened = post("/api/v1/conversations", json!({ "endpoint_id": 7, "conversation_key": "a\u{0}" })).await;
    assert_eq!(flaws(&opened), ["/endpoint_id wrong_type", "/conversation_key out_of_range"]);
    let draft = post("/api/v1/conversations", json!({ "endpoint_id": "draft_1", "conversation_key": "a" })).await;
    draft.assert_problem(&not_found());
    let unknown = json!({ "endpoint_id": EndpointId::new(), "conversation_key": "a" });
    post("/api/v1/conversations", unknown).await.assert_problem(&not_found());
    for (path, body) in [("/messages", json!({ "input": { "text": "x" } })), ("/reset", json!({}))] {
        assert_eq!(flaws(&post(&talk.path(path), body).await), ["/expected_generation required"]);
    }
    let body = json!({ "expected_generation": 0, "input": {} });
    let said = post(&talk.path("/messages"), body).await;
    assert_eq!(flaws(&said), ["/expected_generation out_of_range", "/input/text required"]);
    let unknown = post(&talk.path("/reset"), json!({ "expected_generation": 1, "files": true })).await;
    assert_eq!((unknown.status, unknown.code()), (422, "unknown_field".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn while_access_is_paused_nothing_new_is_said_and_what_was_said_is_found() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let run_id = talk.message("one", 1).send().await.run_id();
    gateway.device.allow(false).await;
    for call in [talk.message("two", 1), opening(&gateway, "new", "new")] {
        let reply = call.send().await;
        assert_eq!((reply.status, reply.code()), (503, "access_paused".to_owned()));
    }
    assert_eq!(talk.message("one", 1).send().await.run_id(), run_id);
    assert_eq!(opening(&gateway, "again", "case").send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_waited_for_the_end_before_it_comes_behind_it_also_by_the_clock() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let (session, _) = gateway.device.connect().await;
    let moment = |time: &Value| time.as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok()).expect("a time");
    let mut before = talk.message("first", 1).send().await.run_id();
    let mut waited = 0;
    // Often enough for every connection of the gateway to know the statement: its first time is spent on parsing and
    // planning.
    for round in 0..30 {
        assert_eq!(start(&gateway, session).await, before);
        // The next message begins before this one ends, and looks at the conversation after it.
        let held = gateway.database.begin().await;
        held.execute("LOCK TABLE endpoints IN ACCESS EXCLUSIVE MODE").await;
        let end = async {
            gateway.database.waits_for_a_lock("messages::admit").await;
            assert_eq!(report(&gateway, session, before, succeeded(1)).await, RecordOutcome::Done);
            held.commit().await;
        };
        let message = || talk.message(&round.to_string(), 1).send();
        let (mut said, ()) = tokio::join!(message(), end);
        waited += usize::from(said.status == 202);
        // The gateway gave it up before the end; sent again, it waits for nothing.
        while said.status == 503 {
            said = message().await;
        }
        let next = said.run_id();
        let (ended, began) = (gateway.read(before).await.json(), gateway.read(next).await.json());
        assert!(moment(&began["created_at"]) >= moment(&ended["finished_at"]), "{ended} {began}");
        before = next;
    }
    assert!(waited >= 20, "only {waited} waited long enough");
    gateway.stop().await;
}
