//! Data beside text: what of schemas and data is accepted, and what a run then has to give.

use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{ManagementErrorCode, PublishEndpoint, TryEndpoint};
use deskgate_protocol::service::ServiceData;
use serde_json::{Value, json};

use crate::conversations::TestConversation;
use crate::support::call::TestResponse;
use crate::support::gateway::TestGateway;

/// A schema whose members have an order of their own.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "reason": { "type": "string" }, "count": { "type": "integer" } },
        "required": ["reason", "count"],
        "additionalProperties": false,
    })
}

fn takes_callers_schema() -> ServiceData {
    ServiceData { caller_schema: true, ..ServiceData::default() }
}

async fn publish(gateway: &TestGateway, endpoint_id: EndpointId, version: u32, data: ServiceData) {
    try_publish(gateway, endpoint_id, version, data).await.expect("published");
}

async fn try_publish(
    gateway: &TestGateway,
    endpoint_id: EndpointId,
    version: u32,
    data: ServiceData,
) -> Result<(), ManagementErrorCode> {
    let request = PublishEndpoint {
        app_id: gateway.device.app.id,
        endpoint_id,
        version,
        name: "typed".to_owned(),
        description: String::new(),
        definition_sha256: Sha256Digest::of(&version.to_be_bytes()),
        data: data.into(),
    };
    gateway.device.desktop.publish(request).await.map(drop).map_err(|refused| refused.code)
}

async fn submit(gateway: &TestGateway, endpoint_id: EndpointId, key: &str, body: &Value) -> TestResponse {
    let path = gateway.runs_of(endpoint_id);
    gateway.ask("POST", &path).header("Idempotency-Key", key).json(body).send().await
}

/// The flaws of a refusal: where, and of what kind.
fn flaws(refused: &TestResponse, code: &str) -> Vec<(String, String)> {
    let problem = refused.json();
    assert_eq!((refused.status, &problem["code"]), (422, &json!(code)), "{problem}");
    let errors = problem["errors"].as_array().expect("a list").iter();
    let text = |error: &Value, name: &str| error[name].as_str().expect("text").to_owned();
    errors.map(|error| (text(error, "pointer"), text(error, "code"))).collect()
}

#[tokio::test]
async fn a_runs_own_schema_is_stored_shown_and_offered_in_its_own_order() {
    let gateway = TestGateway::new().await;
    let endpoint_id = EndpointId::new();
    publish(&gateway, endpoint_id, 1, takes_callers_schema()).await;
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    let services = listed["endpoints"].as_array().expect("a list");
    let says = |id: EndpointId| services.iter().find(|service| service["id"] == json!(id)).expect("listed");
    assert_eq!(says(endpoint_id)["caller_schema"], true);
    assert_eq!(says(gateway.device.endpoint)["caller_schema"], false, "an older device says nothing of it");

    let output = json!({ "name": "answer", "schema": schema() });
    let body = json!({ "input": { "text": "How many?" }, "output": output });
    let accepted = submit(&gateway, endpoint_id, "one", &body).await;
    assert_eq!((accepted.status, &accepted.json()["output"]), (202, &output));
    let again = submit(&gateway, endpoint_id, "one", &body).await;
    assert_eq!(again.json()["run_id"], accepted.json()["run_id"]);
    let other = json!({ "input": { "text": "How many?" } });
    let reused = submit(&gateway, endpoint_id, "one", &other).await;
    assert_eq!(reused.json()["code"], "idempotency_key_reused", "the output is a part of the request");

    let (session, _) = gateway.device.connect().await;
    let offered = gateway.device.claim(session, 1).await;
    let asked = offered[0].output.as_ref().expect("it has an output");
    assert_eq!((asked.name.as_str(), &asked.schema), ("answer", &schema()));
    let text = asked.schema.to_string();
    assert!(text.find("reason") < text.find("count"), "models write members in the order of the schema: {text}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_with_its_place() {
    let gateway = TestGateway::new().await;
    let endpoint_id = EndpointId::new();
    publish(&gateway, endpoint_id, 1, takes_callers_schema()).await;
    let ask = async |output: Value| {
        let body = json!({ "input": { "text": "x" }, "output": output });
        submit(&gateway, endpoint_id, "x", &body).await
    };
    let deep = (0..30).fold(json!({}), |inner, _| json!({ "type": "object", "properties": { "a": inner } }));
    let many: serde_json::Map<_, _> = (0..501).map(|number| (format!("p{number}"), json!({}))).collect();
    for (schema, pointer) in [
        (json!({ "type": "array" }), "/output/schema/type"),
        (
            json!({ "type": "object", "properties": { "a": { "$ref": "https://example.com/a" } } }),
            "/output/schema/properties/a/$ref",
        ),
        (
            json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
            "/output/schema/properties/a/$ref",
        ),
        (json!({ "type": "object", "properties": { "a": { "type": 7 } } }), "/output/schema/properties/a/type"),
        (json!({ "type": "object", "properties": many }), "/output/schema"),
        (json!("no schema"), "/output/schema"),
    ] {
        let refused = ask(json!({ "name": "a", "schema": schema })).await;
        let found = flaws(&refused, "schema_unsupported");
        assert!(matches!(&found[..], [(at, code)] if at.starts_with(pointer) && code == "unsupported"), "{found:?}");
    }
    let refused = ask(json!({ "name": "a", "schema": deep })).await;
    assert_eq!(flaws(&refused, "schema_unsupported").len(), 1);

    let flaw = |pointer: &str, code: &str| (pointer.to_owned(), code.to_owned());
    for (output, expected) in [
        (json!("x"), vec![flaw("/output", "wrong_type")]),
        (json!({}), vec![flaw("/output/name", "required"), flaw("/output/schema", "required")]),
        (json!({ "name": "no spaces", "schema": schema() }), vec![flaw("/output/name", "out_of_range")]),
        (json!({ "name": "a".repeat(65), "schema": schema() }), vec![flaw("/output/name", "out_of_range")]),
        (
            json!({ "name": 7, "schema": schema(), "strict": true }),
            vec![flaw("/output/strict", "not_taken"), flaw("/output/name", "wrong_type")],
        ),
    ] {
        assert_eq!(flaws(&ask(output.clone()).await, "invalid_input"), expected, "{output}");
    }
    assert_eq!(gateway.database.value("SELECT count(*) FROM runs").await, "0", "nothing of it was accepted");
    gateway.stop().await;
}

#[tokio::test]
async fn a_service_with_schemas_of_its_own_checks_every_input_and_gives_every_run_its_output() {
    let gateway = TestGateway::new().await;
    let endpoint_id = EndpointId::new();
    let own = ServiceData { input_schema: Some(schema()), output_schema: Some(schema()), ..takes_callers_schema() };
    publish(&gateway, endpoint_id, 1, own.clone()).await;
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    let services = listed["endpoints"].as_array().expect("a list");
    let service = services.iter().find(|service| service["id"] == json!(endpoint_id)).expect("listed");
    assert_eq!((&service["input_schema"], &service["output_schema"]), (&schema(), &schema()));
    assert_eq!(service["caller_schema"], false, "it has its own");

    let ask = async |key: &str, data: Option<Value>| {
        let mut body = json!({ "input": { "text": "x" } });
        if let Some(data) = data {
            body["input"]["data"] = data;
        }
        submit(&gateway, endpoint_id, key, &body).await
    };
    let flaw = |pointer: &str, code: &str| (pointer.to_owned(), code.to_owned());
    let refused = ask("a", None).await;
    assert_eq!(flaws(&refused, "invalid_input"), [flaw("/input/data", "required")]);
    let refused = ask("a", Some(json!({ "reason": 7, "more": true }))).await;
    let found = flaws(&refused, "invalid_input");
    assert!(found.contains(&flaw("/input/data/reason", "schema_mismatch")), "{found:?}");
    assert!(found.contains(&flaw("/input/data", "schema_mismatch")), "{found:?}");
    let fits = json!({ "reason": "month", "count": 2 });
    let accepted = ask("a", Some(fits.clone())).await;
    assert_eq!(accepted.status, 202);
    let run = accepted.json();
    assert_eq!(run["output"], json!({ "name": "result", "schema": schema() }));
    assert_eq!(run["input"]["data"], fits);
    let body = json!({ "input": { "text": "x", "data": fits }, "output": { "name": "a", "schema": schema() } });
    let refused = submit(&gateway, endpoint_id, "b", &body).await;
    assert_eq!(flaws(&refused, "invalid_input"), [flaw("/output", "not_taken")]);
    let refused = submit(&gateway, gateway.device.endpoint, "b", &body).await;
    assert_eq!(flaws(&refused, "invalid_input"), [flaw("/output", "not_taken")], "an older device takes none");

    // What was accepted before keeps its output; what comes now is checked by what is published now.
    let changed = json!({ "type": "object", "required": ["month"] });
    let next = ServiceData { input_schema: Some(changed), ..ServiceData::default() };
    publish(&gateway, endpoint_id, 2, next).await;
    let path = format!("/api/v1/runs/{}", run["run_id"].as_str().expect("text"));
    assert_eq!(gateway.ask("GET", &path).send().await.json()["output"]["schema"], schema());
    assert_eq!(flaws(&ask("c", Some(fits)).await, "invalid_input"), [flaw("/input/data", "schema_mismatch")]);
    let accepted = ask("c", Some(json!({ "month": "2026-11" }))).await;
    assert_eq!((accepted.status, accepted.json().get("output")), (202, None));
    gateway.stop().await;
}

#[tokio::test]
async fn messages_and_owners_runs_are_checked_as_submissions_are() {
    let gateway = TestGateway::new().await;
    let endpoint_id = gateway.device.endpoint;
    let own = ServiceData { input_schema: Some(schema()), output_schema: Some(schema()), ..ServiceData::default() };
    let request = PublishEndpoint {
        app_id: gateway.device.app.id,
        endpoint_id,
        version: 2,
        name: "invoices".to_owned(),
        description: String::new(),
        definition_sha256: Sha256Digest::of(b"2"),
        data: own.into(),
    };
    gateway.device.desktop.publish(request).await.expect("published");
    let conversation = TestConversation::open(&gateway, "first").await;
    let say = async |body: Value| {
        let path = format!("/api/v1/conversations/{}/messages", conversation.id);
        gateway.ask("POST", &path).header("Idempotency-Key", "say").json(&body).send().await
    };
    let fits = json!({ "reason": "month", "count": 2 });
    let refused = say(json!({ "expected_generation": 1, "input": { "text": "x" } })).await;
    assert_eq!(flaws(&refused, "invalid_input"), [("/input/data".to_owned(), "required".to_owned())]);
    let body = json!({ "expected_generation": 1, "input": { "text": "x", "data": fits }, "output": { "name": "a", "schema": schema() } });
    assert_eq!(flaws(&say(body).await, "invalid_input"), [("/output".to_owned(), "not_taken".to_owned())]);
    let accepted = say(json!({ "expected_generation": 1, "input": { "text": "x", "data": fits } })).await;
    assert_eq!((accepted.status, &accepted.json()["output"]["name"]), (202, &json!("result")));

    let ask = |data| {
        gateway.device.desktop.try_endpoint(TryEndpoint { endpoint_id, input: "x".to_owned(), data, files: Vec::new() })
    };
    let refused = ask(Some(json!({ "reason": "month" }))).await.expect_err("it does not fit");
    assert_eq!(refused.code, ManagementErrorCode::Invalid);
    assert!(refused.message.contains("input.data") && refused.message.contains("count"), "{}", refused.message);
    assert!(ask(Some(fits)).await.expect("accepted").output.is_some());
    gateway.stop().await;
}

#[tokio::test]
async fn no_device_publishes_a_schema_that_cannot_be_used() {
    let gateway = TestGateway::new().await;
    let remote = json!({ "type": "object", "properties": { "a": { "$ref": "https://example.com/a" } } });
    for data in [
        ServiceData { input_schema: Some(remote.clone()), ..ServiceData::default() },
        ServiceData { output_schema: Some(remote), ..ServiceData::default() },
    ] {
        let refused = try_publish(&gateway, EndpointId::new(), 1, data).await;
        assert_eq!(refused, Err(ManagementErrorCode::Invalid));
    }
    gateway.stop().await;
}
