//! Answers that must not differ, neither in their content nor in the work that finds them.
//!
//! Times cannot be compared on a busy machine. What takes the time can: the executed statements.

use std::num::NonZeroU32;

use deskgate_gateway::domain;
use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::Database as Address;
use deskgate_protocol::management::{CreateApplication, CreatedKey, Scope};
use deskgate_protocol::secret::ApplicationKey;
use deskgate_protocol::{ConversationId, KeyId, OperationId, RunId, Timestamp};
use serde_json::{Value, json};

use crate::support::call::TestRequest;
use crate::support::gateway::TestGateway;
use crate::support::server::TestServer;
use crate::support::tap::StatementTap;

/// A server whose statements are recorded.
struct TappedServer {
    tap: StatementTap,
    door: TestServer,
}

impl TappedServer {
    async fn new(gateway: &TestGateway) -> Self {
        let tap = StatementTap::on(&gateway.database);
        let (wake, _) = ChangeNotifier::new();
        let store = Address::new(&tap.url(), None, None).expect("a URL").open(false, wake).await.expect("opened");
        // So many that the limit is never reached.
        let failed_authentications_per_minute = NonZeroU32::MAX;
        let callers = domain::CallerLimits { failed_authentications_per_minute, ..Default::default() };
        let door = TestServer::with(&store, ListenerAccess::default(), ListenerLimits::default(), callers).await;
        Self { tap, door }
    }

    /// Status, body but for the request's identifier, and the statements.
    async fn ask(&self, call: TestRequest, path: &str) -> (u16, Value, Vec<String>) {
        self.tap.take();
        let reply = call.to(self.door.address, path).send().await;
        let mut body = reply.json();
        body.as_object_mut().expect("a problem").remove("request_id");
        let mut statements = self.tap.take();
        // Counted once a second for an application, whatever is asked for; and what a connection that is new begins with.
        statements.retain(|name| name != "runs::waiting" && name != "SET");
        (reply.status, body, statements)
    }
}

#[tokio::test]
async fn what_belongs_to_others_is_looked_for_and_answered_as_what_never_existed() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let other = device.application("other").await;
    let service = device.service(&device.app, "second").await;
    let limited = device.restricted_key(|key| key.endpoints = vec![service]).await.text;
    let run_id = gateway.submit("theirs").await;
    let asked = gateway.ask("POST", "/api/v1/conversations").header("Idempotency-Key", "open");
    let asked = asked.json(&json!({ "endpoint_id": device.endpoint, "conversation_key": "case" })).send().await.json();
    let conversation = asked["conversation_id"].as_str().expect("a text").to_owned();
    let stop = gateway.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", "stop");
    let operation = stop.send().await.json()["operation_id"].as_str().expect("a text").to_owned();
    let heard = TappedServer::new(&gateway).await;

    let generation = json!({ "expected_generation": 1 });
    let message = json!({ "expected_generation": 1, "input": { "text": "a" } });
    let work = json!({ "input": { "text": "a" } });
    let (run, conv, op) = (RunId::new(), ConversationId::new(), OperationId::new());
    for (method, theirs, none, body) in [
        ("GET", format!("/api/v1/runs/{run_id}"), format!("/api/v1/runs/{run}"), None),
        ("GET", format!("/api/v1/runs/{run_id}?wait=60"), format!("/api/v1/runs/{run}?wait=60"), None),
        ("GET", format!("/api/v1/runs/{run_id}/events"), format!("/api/v1/runs/{run}/events"), None),
        ("POST", format!("/api/v1/runs/{run_id}/stop"), format!("/api/v1/runs/{run}/stop"), None),
        ("GET", format!("/api/v1/conversations/{conversation}"), format!("/api/v1/conversations/{conv}"), None),
        (
            "POST",
            format!("/api/v1/conversations/{conversation}/reset"),
            format!("/api/v1/conversations/{conv}/reset"),
            Some(&generation),
        ),
        (
            "POST",
            format!("/api/v1/conversations/{conversation}/messages"),
            format!("/api/v1/conversations/{conv}/messages"),
            Some(&message),
        ),
        ("GET", format!("/api/v1/control-operations/{operation}"), format!("/api/v1/control-operations/{op}"), None),
        ("POST", gateway.runs_of(device.endpoint), gateway.runs_of(deskgate_protocol::EndpointId::new()), Some(&work)),
    ] {
        for (who, key, subject) in [
            ("another subject", &device.app.key, "berta"),
            ("another application", &other.key, "anna"),
            ("a key for another service", &limited, "anna"),
        ] {
            if who == "another subject" && theirs.contains("agent-endpoints") {
                continue; // Services belong to applications, not to subjects.
            }
            let call = gateway.call(method, "/").key(key).subject(subject).header("Idempotency-Key", "theirs");
            let call = body.map_or(call.clone(), |body| call.json(body));
            // Once, so that the key is known.
            heard.ask(call.clone(), &none).await;
            let (theirs, none) = (heard.ask(call.clone(), &theirs).await, heard.ask(call, &none).await);
            assert_eq!((theirs.0, &theirs.1["code"]), (404, &json!("not_found")), "{who}: {method} {none:?}");
            assert_eq!(without_key(theirs), without_key(none), "{who}: {method}");
        }
    }
    // An invalid identifier is not looked for: that depends on nothing that is stored.
    let nonsense = gateway.ask("GET", "/");
    let (status, body, _) = heard.ask(nonsense.clone(), &format!("/api/v1/runs/{conversation}")).await;
    let (expected, document, statements) = heard.ask(nonsense, &format!("/api/v1/runs/{run}")).await;
    assert_eq!((status, body), (expected, document));
    assert!(!statements.is_empty(), "the line is heard");
    gateway.stop().await;
}

/// A key is read again every half second.
fn without_key(mut answer: (u16, Value, Vec<String>)) -> (u16, Value, Vec<String>) {
    answer.2.retain(|name| !name.starts_with("applications::"));
    answer
}

#[tokio::test]
async fn every_key_that_is_not_good_is_looked_for_and_answered_alike() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let past: Timestamp = "2020-01-01T00:00:00Z".parse().expect("valid");
    let revoked = device.restricted_key(|_| {}).await;
    device.revoke(revoked.key.key_id).await;
    let expired = device.restricted_key(|key| key.expires_at = Some(past)).await.text;
    let elsewhere = device.restricted_key(|key| key.allowed_cidrs = vec!["192.0.2.0/24".to_owned()]).await.text;
    let CreatedKey { key, .. } = device.restricted_key(|key| key.scopes = vec![Scope::RunsRead]).await;
    let wrong_secret = ApplicationKey::generate(key.key_id).reveal().to_owned();
    let unknown = || ApplicationKey::generate(KeyId::new()).reveal().to_owned();
    // An application with no valid key any more.
    let disabled = device.desktop.create_application(CreateApplication { name: "gone".to_owned() }).await;
    device.revoke(disabled.expect("created").key.key.key_id).await;
    let heard = TappedServer::new(&gateway).await;
    let ask = async |key: &str, method: &str, path: &str| {
        heard.ask(gateway.call(method, "/").key(key).subject("anna"), path).await
    };
    for (method, path) in
        [("GET", "/api/v1/agent-endpoints"), ("GET", "/api/v1/capabilities"), ("POST", "/api/v1/conversations")]
    {
        let expected = ask(&unknown(), method, path).await;
        assert_eq!((expected.0, expected.2.as_slice()), (401, ["applications::key".to_owned()].as_slice()));
        for (what, key) in
            [("revoked", &revoked.text), ("expired", &expired), ("elsewhere", &elsewhere), ("secret", &wrong_secret)]
        {
            // The last reading is cached for half a second; a new one is the same for all.
            let answer = loop {
                let answer = ask(key, method, path).await;
                if !answer.2.is_empty() {
                    break answer;
                }
                assert_eq!((answer.0, &answer.1), (expected.0, &expected.1), "{what}: {method} {path}");
            };
            assert_eq!(answer, expected, "{what}: {method} {path}");
        }
    }
    gateway.stop().await;
}
