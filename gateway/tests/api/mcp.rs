//! MCP: its two eras, who may ask, which call belongs to which run, and what becomes of a run whose call is given up. SDKs of MCP
//! are tried in `tests/tests/promises`.

use axum::body::Body;
use axum::http::Request;
use deskgate_gateway::http::router;
use deskgate_gateway::http::server::ListenerLimits;
use deskgate_protocol::management::{PublishEndpoint, Scope, SetAccess, UnpublishEndpoint};
use deskgate_protocol::service::ServiceData;
use deskgate_protocol::{EndpointId, RunId};
use http_body_util::BodyExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tower::ServiceExt;

use crate::conversations::{report, start};
use crate::store::succeeded;
use crate::support::call::{TestRequest, TestResponse};
use crate::support::gateway::TestGateway;
use crate::support::until;

const VERSION: &str = "2026-07-28";
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A message of the older era, in a session.
fn older(gateway: &TestGateway, number: u32, method: &str, params: Value) -> TestRequest {
    let body = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
    gateway.ask("POST", "/mcp").header("MCP-Protocol-Version", "2025-11-25").header("Mcp-Session-Id", "one").json(&body)
}

/// A request of the newer era, from a client that can do this.
fn newer_with(gateway: &TestGateway, capabilities: &Value, method: &str, mut params: Value) -> TestRequest {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    let call = gateway.ask("POST", "/mcp").header("MCP-Protocol-Version", VERSION).header("Mcp-Method", method);
    let call = match params["name"].as_str().or(params["taskId"].as_str()) {
        Some(name) => call.header("Mcp-Name", name),
        None => call,
    };
    call.json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn newer(gateway: &TestGateway, method: &str, params: Value) -> TestRequest {
    newer_with(gateway, &json!({}), method, params)
}

/// The parameters of a question that is not waited for.
fn question(more: &Value) -> Value {
    let mut arguments = json!({ "text": "hello", "wait_seconds": 0 });
    arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "name": "ask_invoices", "arguments": arguments })
}

fn result(answer: &TestResponse) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert!(body.get("error").is_none(), "{body}");
    body["result"].clone()
}

fn run_id_in(answer: &TestResponse) -> RunId {
    let told = result(answer)["structuredContent"]["run_id"].clone();
    told.as_str().unwrap_or_else(|| panic!("{answer:?}")).parse().expect("an identifier")
}

/// Status, code and message of an error of JSON-RPC.
fn error(answer: &TestResponse) -> (u16, i64, String) {
    let error = &answer.json()["error"];
    (
        answer.status,
        error["code"].as_i64().unwrap_or_default(),
        error["message"].as_str().unwrap_or_default().to_owned(),
    )
}

/// Status and code of a problem in an answer.
fn problem(answer: &TestResponse) -> (u16, String) {
    let body = answer.json();
    assert!(body["id"].is_number() && body["error"]["code"].is_i64(), "{body}");
    (answer.status, body["error"]["data"]["code"].as_str().unwrap_or_default().to_owned())
}

/// What a model is told of a call that was not carried out.
fn told(answer: &TestResponse) -> String {
    let result = result(answer);
    assert!(result["isError"] == true && result.get("structuredContent").is_none(), "{result}");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

async fn runs(gateway: &TestGateway) -> i64 {
    gateway.database.number("SELECT count(*) FROM runs").await
}

async fn state(gateway: &TestGateway, run_id: RunId) -> String {
    gateway.read(run_id).await.json()["state"].as_str().expect("a state").to_owned()
}

#[tokio::test]
async fn a_client_of_the_older_era_shakes_hands_and_one_of_the_newer_says_its_version_each_time() {
    let gateway = TestGateway::new().await;
    for (asked, answered) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2025-11-25"),
        (VERSION, "2025-11-25"),
    ] {
        let hello = gateway.ask("POST", "/mcp").json(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } },
        }));
        let answer = hello.send().await;
        assert_eq!(result(&answer)["protocolVersion"], answered);
        assert!(answer.header("mcp-session-id").is_some_and(|id| id.len() == 32));
        answer.assert_envelope();
    }
    let noted = gateway.ask("POST", "/mcp").json(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let noted = noted.send().await;
    assert_eq!((noted.status, noted.text.as_str()), (202, ""));
    assert_eq!(result(&older(&gateway, 1, "ping", json!({})).send().await), json!({}));
    let listed = result(&older(&gateway, 2, "tools/list", json!({})).send().await);
    assert_eq!((&listed["tools"][0]["name"], listed.get("resultType")), (&json!("ask_invoices"), None));
    for method in ["GET", "DELETE"] {
        assert_eq!(gateway.ask(method, "/mcp").send().await.status, 405);
    }
    assert_eq!(error(&older(&gateway, 3, "resources/list", json!({})).send().await).1, -32601);

    let discovered = newer(&gateway, "server/discover", json!({})).send().await;
    assert_eq!(discovered.header("mcp-session-id"), None);
    let discovered = result(&discovered);
    assert_eq!(discovered["supportedVersions"], json!([VERSION, "2025-11-25", "2025-06-18"]));
    assert_eq!(
        (&discovered["resultType"], &discovered["capabilities"]["extensions"][TASKS]),
        (&json!("complete"), &json!({}))
    );
    assert_eq!(result(&newer(&gateway, "tools/list", json!({})).send().await)["cacheScope"], "private");
    assert_eq!(
        error(&newer(&gateway, "resources/list", json!({})).send().await),
        (404, -32601, "Method not found: resources/list".into())
    );
    assert_eq!(error(&newer(&gateway, "ping", json!({})).send().await).0, 404, "there is none any more");
    gateway.stop().await;
}

#[tokio::test]
async fn headers_that_say_something_else_than_the_body_are_refused() {
    let gateway = TestGateway::new().await;
    let ask = || newer(&gateway, "tools/call", question(&json!({})));
    for wrong in [
        ask().without("MCP-Protocol-Version"),
        ask().header("MCP-Protocol-Version", "2025-11-25"),
        ask().more("MCP-Protocol-Version", VERSION),
        ask().without("Mcp-Method"),
        ask().header("Mcp-Method", "tools/list"),
        ask().more("Mcp-Method", "tools/call"),
        ask().without("Mcp-Name"),
        ask().header("Mcp-Name", "ask_other"),
        ask().header("Mcp-Name", "=?base64?!?="),
    ] {
        let answer = wrong.send().await;
        assert_eq!((error(&answer).0, error(&answer).1), (400, -32020), "{answer:?}");
    }
    let encoded = ask().header("Mcp-Name", "=?base64?YXNrX2ludm9pY2Vz?=").send().await;
    assert_eq!(result(&encoded)["structuredContent"]["phase"], "accepted");
    let unknown = ask().header("MCP-Protocol-Version", "2030-01-01");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2030-01-01", "io.modelcontextprotocol/clientCapabilities": {} } } });
    let answer = unknown.header("Mcp-Method", "tools/list").json(&body).send().await;
    assert_eq!((error(&answer).0, error(&answer).1), (400, -32022));
    assert_eq!(answer.json()["error"]["data"]["supported"][0], VERSION);
    let bare = newer_with(&gateway, &Value::Null, "tools/list", json!({})).send().await;
    assert_eq!((error(&bare).0, error(&bare).1), (400, -32602), "a client says what it can do");
    assert_eq!(runs(&gateway).await, 1);
    gateway.stop().await;
}

#[tokio::test]
async fn only_who_has_a_key_and_is_no_page_of_a_site_may_ask_and_for_no_more_than_the_key_allows() {
    let gateway = TestGateway::new().await;
    let list = || older(&gateway, 1, "tools/list", json!({}));
    let stranger = list().without("Authorization").send().await;
    assert_eq!((stranger.status, stranger.header("www-authenticate")), (401, Some("Bearer")), "it offers no other way");
    let page = list().header("Origin", "https://evil.example").send().await;
    assert_eq!((page.status, page.code()), (403, "origin_not_allowed".to_owned()));
    assert_eq!(
        list().header("Origin", "http://localhost:6274").send().await.status,
        200,
        "a page of the same computer"
    );
    assert_eq!(list().without("X-Gateway-Subject").send().await.code(), "subject_missing");

    let other = gateway.device.application("other").await;
    let stranger = list().key(&other.key).send().await;
    assert_eq!(result(&stranger)["tools"].as_array().map(Vec::len), Some(2), "no service of another application");
    let reads = gateway.device.restricted_key(|key| key.scopes = vec![Scope::EndpointsRead, Scope::RunsRead]).await;
    let listed = result(&list().key(&reads.text).send().await);
    assert_eq!(
        listed["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect::<Vec<_>>(),
        ["deskgate_run"]
    );
    let asked = older(&gateway, 2, "tools/call", question(&json!({}))).key(&reads.text).send().await;
    assert_eq!(problem(&asked), (403, "insufficient_scope".to_owned()));

    gateway.device.desktop.set_access(SetAccess { enabled: false }).await.expect("paused");
    let paused = older(&gateway, 3, "tools/call", question(&json!({}))).send().await;
    assert_eq!((problem(&paused), paused.header("retry-after").is_some()), ((503, "access_paused".to_owned()), true));
    assert_eq!(runs(&gateway).await, 0);
    gateway.stop().await;
}

fn publication(
    gateway: &TestGateway,
    endpoint_id: EndpointId,
    version: u32,
    name: &str,
    data: ServiceData,
) -> PublishEndpoint {
    PublishEndpoint {
        app_id: gateway.device.app.id,
        endpoint_id,
        version,
        name: name.to_owned(),
        description: "Knows".to_owned(),
        definition_sha256: deskgate_protocol::canonical::Sha256Digest::of(format!("{name} {version}").as_bytes()),
        data: data.into(),
    }
}

#[tokio::test]
async fn a_tool_keeps_its_name_until_its_owner_chooses_another_and_shares_it_with_none() {
    let gateway = TestGateway::new().await;
    let desktop = &gateway.device.desktop;
    let endpoint = gateway.device.endpoint;
    let named = async |id, version, name, chosen: Option<&str>| {
        let data = ServiceData { tool_name: chosen.map(str::to_owned), ..ServiceData::default() };
        desktop
            .publish(publication(&gateway, id, version, name, data))
            .await
            .expect("published")
            .tool_name
            .expect("a name")
    };
    assert_eq!(
        named(endpoint, 2, "Bills", None).await,
        "ask_invoices",
        "it is called otherwise now, and its callers need not care"
    );
    assert_eq!(named(EndpointId::new(), 1, "Invoices!", None).await, "ask_invoices_2");
    assert_eq!(named(endpoint, 3, "Bills", Some("bills")).await, "bills");
    assert_eq!(named(endpoint, 4, "Bills", None).await, "bills");
    let (one, two) = (EndpointId::new(), EndpointId::new());
    let at_once = tokio::join!(named(one, 1, "Größe", None), named(two, 1, "Grosse", None));
    let mut at_once = [at_once.0, at_once.1];
    at_once.sort();
    assert_eq!(at_once, ["ask_grosse", "ask_grosse_2"]);
    assert_eq!(named(one, 2, "Größe", Some("bills")).await, "bills_2");
    desktop.unpublish(UnpublishEndpoint { endpoint_id: one }).await.expect("unpublished");
    assert_eq!(named(EndpointId::new(), 1, "x", Some("bills_2")).await, "bills_2", "nobody has it now");
    for wrong in ["Bills", "deskgate_run", ""] {
        let data = ServiceData { tool_name: Some(wrong.to_owned()), ..ServiceData::default() };
        desktop.publish(publication(&gateway, EndpointId::new(), 1, "x", data)).await.expect_err("no name of a tool");
    }
    let reads = EndpointId::new();
    let data = ServiceData { read_only: true, ..ServiceData::default() };
    desktop.publish(publication(&gateway, reads, 1, "Reads", data)).await.expect("published");
    let only_reads = async || {
        let listed = result(&older(&gateway, 1, "tools/list", json!({})).send().await);
        let tool = listed["tools"].as_array().expect("a list").iter().find(|tool| tool["name"] == "ask_reads").cloned();
        tool.expect("listed")["annotations"]["readOnlyHint"].clone()
    };
    assert_eq!(only_reads().await, true);
    // As a program of before would publish another version.
    gateway.database.execute("UPDATE endpoints SET version = 2 WHERE tool_name = 'ask_reads'").await;
    assert_eq!(only_reads().await, false, "nobody said so of this version");
    let listed = result(&older(&gateway, 1, "tools/list", json!({})).send().await);
    let tool = listed["tools"].as_array().expect("a list").iter().find(|tool| tool["name"] == "bills").expect("listed");
    assert_eq!((&tool["title"], &tool["annotations"]["readOnlyHint"]), (&json!("Bills"), &json!(false)));
    assert!(tool["description"].as_str().is_some_and(|text| text.contains("Knows. It may take minutes")), "{tool}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_is_known_by_its_own_name_and_one_of_the_older_era_without_any_by_being_cut_off() {
    let gateway = TestGateway::new().await;
    let named = |text: &str| question(&json!({ "request_id": "order-1", "text": text }));
    let first = run_id_in(&older(&gateway, 1, "tools/call", named("a")).send().await);
    assert_eq!(run_id_in(&newer(&gateway, "tools/call", named("a")).send().await), first);
    let refused = result(&older(&gateway, 2, "tools/call", named("b")).send().await);
    assert!(refused["isError"] == true && refused.to_string().contains("idempotency_key_reused"), "{refused}");

    let used = |text: &str| {
        let mut params = question(&json!({ "text": text }));
        params["_meta"] = json!({ "claudecode/toolUseId": "toolu_1" });
        params
    };
    let second = run_id_in(&older(&gateway, 3, "tools/call", used("a")).send().await);
    assert_ne!(second, first, "another name");
    assert_eq!(run_id_in(&older(&gateway, 4, "tools/call", used("a")).send().await), second);

    let before = runs(&gateway).await;
    let waiting = tokio::spawn(older(&gateway, 5, "tools/call", question(&json!({ "wait_seconds": 280 }))).send());
    until("the run is there", async || runs(&gateway).await == before + 1).await;
    waiting.abort();
    let open = "SELECT count(*) FROM unkeyed_requests WHERE is_answered IS FALSE";
    until("the end of the connection is noticed", async || gateway.database.number(open).await == 1).await;
    run_id_in(&older(&gateway, 6, "tools/call", question(&json!({}))).send().await);
    assert_eq!(runs(&gateway).await, before + 1, "who was cut off and asks again finds its run");
    run_id_in(&older(&gateway, 7, "tools/call", question(&json!({}))).send().await);
    assert_eq!(runs(&gateway).await, before + 2, "who was answered asks anew");
    gateway.stop().await;
}

/// Begins a call whose answer is waited for, until its run is there; and the run.
async fn waited_for(gateway: &TestGateway, request: TestRequest) -> (tokio::task::JoinHandle<TestResponse>, RunId) {
    let newest = "SELECT run_id::text FROM runs ORDER BY created_at DESC LIMIT 1";
    let before = runs(gateway).await;
    let waiting = tokio::spawn(request.header("Accept", "application/json, text/event-stream").send());
    until("the run is there", async || runs(gateway).await == before + 1).await;
    let run_id: uuid::Uuid = gateway.database.value(newest).await.parse().expect("an identifier");
    (waiting, run_id.into())
}

#[tokio::test]
async fn a_call_that_its_client_cancels_is_stopped_at_any_gateway() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let (waiting, run_id) =
        waited_for(&gateway, older(&gateway, 7, "tools/call", question(&json!({ "wait_seconds": 200 })))).await;
    let cancel = |session: &str, number: Value| {
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": number } });
        let call = gateway.ask("POST", "/mcp").to(replica.addresses().http, "/mcp");
        call.header("MCP-Protocol-Version", "2025-11-25").header("Mcp-Session-Id", session).json(&body)
    };
    // Another client's call of the same number, another number, and a number that is written otherwise.
    for other in [
        cancel("two", json!(7)),
        cancel("one", json!(8)),
        cancel("one", json!("7")),
        cancel("one", json!(7)).subject("berta"),
    ] {
        assert_eq!(other.send().await.status, 202);
    }
    assert_eq!(state(&gateway, run_id).await, "waiting_for_device");
    let reads = gateway.device.restricted_key(|key| key.scopes.retain(|scope| *scope != Scope::RunsControl)).await;
    assert_eq!(cancel("one", json!(7)).key(&reads.text).send().await.status, 202, "it may not, and nothing happens");
    let timed_out = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 7, "reason": "McpError: MCP error -32001: Request timed out" } });
    assert_eq!(cancel("one", json!(7)).json(&timed_out).send().await.status, 202);
    assert_eq!(state(&gateway, run_id).await, "waiting_for_device", "the patience of a client is no wish of its user");
    until("its call is known", async || {
        assert_eq!(cancel("one", json!(7)).send().await.status, 202);
        state(&gateway, run_id).await == "cancelled"
    })
    .await;
    let answer = waiting.await.expect("answered");
    assert!(answer.text.contains("\"state\":\"cancelled\""), "{answer:?}");
    // A call that was cancelled before it was known.
    assert_eq!(cancel("one", json!(9)).send().await.status, 202);
    let late = run_id_in(&older(&gateway, 9, "tools/call", question(&json!({ "text": "late" }))).send().await);
    until("it is stopped too", async || state(&gateway, late).await == "cancelled").await;
    // Who asks the same as in a call that was cancelled asks anew.
    let again = run_id_in(&older(&gateway, 10, "tools/call", question(&json!({}))).send().await);
    assert_ne!(again, run_id);
    gateway.database.execute("UPDATE mcp_calls SET made_at = now() - interval '11 minutes'").await;
    assert!(gateway.store().forget_mcp_calls().await.expect("forgotten") >= 3);
    Box::pin(replica.stop()).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_closed_answer_stops_only_what_was_not_begun_and_nothing_that_can_be_asked_for_again() {
    let gateway = TestGateway::new().await;
    let wait = |more: Value| {
        let mut arguments = json!({ "wait_seconds": 200 });
        arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        question(&arguments)
    };
    let close = async |request: TestRequest| {
        let (waiting, run_id) = waited_for(&gateway, request).await;
        waiting.abort();
        run_id
    };
    let ends = async |run_id: RunId| until("it ends", async || state(&gateway, run_id).await == "cancelled").await;
    let plain = close(newer(&gateway, "tools/call", wait(json!({})))).await;
    ends(plain).await;
    // These go on: one can be asked for by its name, one is of the older era, one's key may not stop anything.
    let named = close(newer(&gateway, "tools/call", wait(json!({ "request_id": "a" })))).await;
    let older_one = close(older(&gateway, 1, "tools/call", wait(json!({})))).await;
    let key = gateway.device.restricted_key(|key| key.scopes.retain(|scope| *scope != Scope::RunsControl)).await;
    let powerless = close(newer(&gateway, "tools/call", wait(json!({}))).key(&key.text)).await;
    let (session, _) = gateway.device.connect().await;
    for going_on in [named, older_one, powerless] {
        assert_eq!(start(&gateway, session).await, going_on);
        report(&gateway, session, going_on, succeeded(1)).await;
    }
    // One that had begun goes on, unless its caller said otherwise.
    let (waiting, begun) = waited_for(&gateway, newer(&gateway, "tools/call", wait(json!({ "text": "b" })))).await;
    let (strict, strictly) = waited_for(
        &gateway,
        newer(&gateway, "tools/call", wait(json!({ "text": "c" }))).header("Deskgate-On-Disconnect", "stop"),
    )
    .await;
    for _ in 0..2 {
        start(&gateway, session).await;
    }
    waiting.abort();
    strict.abort();
    until("it is being stopped", async || state(&gateway, strictly).await == "cancelling").await;
    assert_eq!(state(&gateway, begun).await, "running");
    let wrong = newer(&gateway, "tools/call", wait(json!({}))).header("Deskgate-On-Disconnect", "maybe").send().await;
    assert_eq!(problem(&wrong), (422, "invalid_input".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn progress_is_told_to_who_wants_it_and_the_end_is_the_last_event() {
    let gateway = TestGateway::new().await;
    let mut params = question(&json!({ "wait_seconds": 200 }));
    params["_meta"] = json!({ "progressToken": "t1" });
    let (waiting, run_id) = waited_for(&gateway, newer(&gateway, "tools/call", params)).await;
    let (session, _) = gateway.device.connect().await;
    assert_eq!(start(&gateway, session).await, run_id);
    report(&gateway, session, run_id, succeeded(1)).await;
    let answer = waiting.await.expect("answered");
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events: Vec<Value> = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let (end, told) = events.split_last().expect("an end");
    assert_eq!(
        (&end["result"]["structuredContent"]["phase"], &end["result"]["isError"]),
        (&json!("final"), &json!(false))
    );
    let counts: Vec<_> = told.iter().map(|event| event["params"]["progress"].as_u64().expect("a number")).collect();
    assert!(counts.is_sorted() && told.iter().all(|event| event["params"]["progressToken"] == "t1"), "{told:?}");
    let words: Vec<_> = told.iter().map(|event| event["params"]["message"].as_str().expect("words")).collect();
    assert!(words.iter().any(|words| words.starts_with("waiting for the desktop (not connected")), "{words:?}");
    assert!(words.contains(&"the assistant works on it"), "{words:?}");
    // Who takes no stream is answered once, at the end.
    let (waiting, run_id) = {
        let before = runs(&gateway).await;
        let asked = older(&gateway, 2, "tools/call", question(&json!({ "wait_seconds": 200, "text": "x" })));
        let waiting = tokio::spawn(asked.header("Accept", "application/json").send());
        until("the run is there", async || runs(&gateway).await == before + 1).await;
        (waiting, start(&gateway, session).await)
    };
    report(&gateway, session, run_id, succeeded(1)).await;
    assert_eq!(result(&waiting.await.expect("answered"))["structuredContent"]["state"], "succeeded");
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_is_a_task_for_who_declares_the_extension() {
    let gateway = TestGateway::new().await;
    let can = json!({ "extensions": { TASKS: {} } });
    let call = |method: &str, params: Value| newer_with(&gateway, &can, method, params);
    let created = result(&call("tools/call", question(&json!({ "wait_seconds": 200 }))).send().await);
    assert_eq!(
        (&created["resultType"], &created["status"], &created["ttlMs"]),
        (&json!("task"), &json!("working"), &Value::Null)
    );
    let task = json!({ "taskId": created["taskId"] });
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    assert_eq!(created["taskId"], json!(run_id));
    assert_eq!(result(&call("tasks/get", task.clone()).send().await)["status"], "working");
    report(&gateway, session, run_id, succeeded(1)).await;
    let done = result(&call("tasks/get", task.clone()).send().await);
    assert_eq!(
        (&done["status"], &done["resultType"], &done["result"]["isError"]),
        (&json!("completed"), &json!("complete"), &json!(false))
    );
    assert!(done["ttlMs"].is_u64(), "{done}");

    let second = result(&call("tools/call", question(&json!({ "text": "second" }))).send().await);
    let second = json!({ "taskId": second["taskId"] });
    assert_eq!(result(&call("tasks/cancel", second.clone()).send().await), json!({ "resultType": "complete" }));
    assert_eq!(result(&call("tasks/get", second).send().await)["status"], "cancelled");
    assert_eq!(result(&call("tasks/update", task.clone()).send().await), json!({ "resultType": "complete" }));
    assert_eq!(error(&call("tasks/get", json!({ "taskId": "x" })).send().await).1, -32602);
    assert_eq!(error(&call("tasks/get", task.clone()).subject("berta").send().await).1, -32602, "another's task");
    assert_eq!(error(&call("tasks/result", task.clone()).send().await).1, -32601);
    let undeclared = newer(&gateway, "tasks/get", task.clone()).send().await;
    assert_eq!((error(&undeclared).0, error(&undeclared).1), (400, -32021));
    assert_eq!(undeclared.json()["error"]["data"]["requiredCapabilities"]["extensions"][TASKS], json!({}));
    assert_eq!(
        error(&older(&gateway, 1, "tasks/get", task).send().await).1,
        -32601,
        "another extension, of the same name"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_model_can_do_something_about_it_is_told_and_wrong_arguments_are_named() {
    let gateway = TestGateway::new().await;
    let ask =
        |arguments: Value| older(&gateway, 1, "tools/call", json!({ "name": "ask_invoices", "arguments": arguments }));
    let talk = json!({ "text": "a", "conversation": "c", "wait_seconds": 0 });
    let first = run_id_in(&ask(talk.clone()).send().await);
    let busy = result(&ask(json!({ "text": "b", "conversation": "c", "wait_seconds": 0 })).send().await);
    let said = busy["content"][0]["text"].as_str().expect("a text");
    assert!(busy["isError"] == true && said.contains("conversation_busy; it can be tried again"), "{said}");
    let run = gateway.read(first).await.json();
    let found = gateway.ask("GET", "/api/v1/conversations?conversation_key=c").send().await.json();
    assert_eq!(
        found["data"][0]["conversation_id"], run["conversation_id"],
        "a backend finds the conversation by its key"
    );

    for (arguments, member) in [
        (json!({}), "text"),
        (json!({ "text": "" }), "text"),
        (json!({ "text": 7 }), "text"),
        (json!({ "text": "x", "wait_seconds": 281 }), "wait_seconds"),
        (json!({ "text": "x", "wait_seconds": -1 }), "wait_seconds"),
        (json!({ "text": "x", "conversation": 7 }), "conversation"),
        (json!({ "text": "x", "request_id": "a\nb" }), "request_id"),
        (json!({ "text": "x", "data": {} }), "data"),
        (json!({ "text": "x", "a/b": 1 }), "a~1b"),
    ] {
        let said = told(&ask(arguments).send().await);
        assert!(said.starts_with(&format!("Nothing was done: the arguments are not taken.\n- {member}: ")), "{said}");
    }
    assert_eq!(error(&ask(json!([])).send().await).1, -32602);
    let unchosen =
        json!({ "text": "c", "conversation": "", "request_id": null, "data": null, "other": null, "wait_seconds": 0 });
    run_id_in(&ask(unchosen).send().await);
    assert_eq!(runs(&gateway).await, 2);

    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let data = ServiceData { input_schema: Some(schema), ..ServiceData::default() };
    gateway
        .device
        .desktop
        .publish(publication(&gateway, EndpointId::new(), 1, "Typed", data))
        .await
        .expect("published");
    let typed =
        |arguments: Value| older(&gateway, 2, "tools/call", json!({ "name": "ask_typed", "arguments": arguments }));
    let misfit = told(&typed(json!({ "text": "x", "data": { "n": "one" } })).send().await);
    assert!(misfit.contains("\n- data/n: "), "{misfit}");
    run_id_in(&typed(json!({ "text": "x", "data": { "n": 1 }, "wait_seconds": 0 })).send().await);

    let lost = RunId::new();
    for tool in ["deskgate_run", "deskgate_stop"] {
        let gone =
            older(&gateway, 3, "tools/call", json!({ "name": tool, "arguments": { "run_id": lost } })).send().await;
        assert!(result(&gone)["isError"] == true, "{gone:?}");
        let wrong =
            older(&gateway, 3, "tools/call", json!({ "name": tool, "arguments": { "run_id": "x" } })).send().await;
        assert!(told(&wrong).contains("- run_id: "));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn assistants_that_ask_each_other_in_a_circle_are_stopped() {
    let gateway = TestGateway::new().await;
    let deep = |depth: &str| older(&gateway, 1, "tools/call", question(&json!({}))).header("Deskgate-Depth", depth);
    run_id_in(&deep("3").send().await);
    for too_deep in [deep("4"), deep("255")] {
        assert_eq!(problem(&too_deep.send().await), (422, "loop_detected".to_owned()));
    }
    let refused = gateway.submission("a").header("Deskgate-Depth", "4").send().await;
    assert_eq!((refused.status, refused.code()), (422, "loop_detected".to_owned()));
    for wrong in [deep("-1"), deep("1").more("Deskgate-Depth", "1")] {
        assert_eq!(problem(&wrong.send().await), (422, "invalid_input".to_owned()));
    }
    let (session, _) = gateway.device.connect().await;
    assert_eq!(gateway.device.claim(session, 1).await[0].depth, 3, "its device passes it on");
    gateway.stop().await;
}

/// Anything that JSON can say.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "2.0",
        "tools/call",
        "tools/list",
        "initialize",
        "notifications/cancelled",
        "ask_invoices",
        "deskgate_run",
        "deskgate_stop",
        "name",
        "arguments",
        "text",
        "method",
        "params",
        "id",
        "_meta",
        "progressToken",
        "requestId",
        VERSION,
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_bodies_of_any_shape_are_answered_as_the_protocol_has_it() {
    let gateway = TestGateway::new().await;
    let api =
        crate::support::server::api(gateway.store(), ListenerLimits::default(), Default::default(), Default::default());
    let (router, runtime) = (router(api), Handle::current());
    let parts = (anything(), prop::option::of(anything()), any::<[bool; 5]>());
    let body = parts.prop_map(|(any, params, [whole, is_call, named, newer, numbered])| {
        if !whole {
            return any;
        }
        // Near enough to be understood.
        let mut body =
            json!({ "jsonrpc": "2.0", "method": if is_call { "tools/call" } else { "tools/list" }, "params": params });
        if named && body["params"].is_object() {
            body["params"]["name"] = json!("ask_invoices");
            body["params"]["arguments"] = any;
        }
        if newer && body["params"].is_object() {
            body["params"]["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": VERSION });
        }
        if numbered {
            body["id"] = json!(1);
        }
        body
    });
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    let key = gateway.device.app.key.clone();
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&body, |body| {
            let asked = Request::post("/mcp").header("host", "x").header("authorization", format!("Bearer {key}"));
            let asked = asked.header("x-gateway-subject", "anna").header("content-type", "application/json");
            let asked = asked.body(Body::from(body.to_string())).expect("a request");
            let (status, text) = runtime.block_on(async {
                let answer = router.clone().oneshot(asked).await.expect("it never fails");
                let status = answer.status().as_u16();
                (status, answer.into_body().collect().await.expect("a body").to_bytes())
            });
            let answer: Option<Value> = serde_json::from_slice(&text).ok();
            let is_proper = match (status, &answer) {
                (202, None) => text.is_empty(),
                (200 | 400 | 404 | 422 | 503, Some(answer)) if answer.get("jsonrpc").is_some() => {
                    answer["jsonrpc"] == "2.0" && (answer["result"].is_object() != answer["error"]["code"].is_i64())
                }
                (413 | 422 | 429, Some(answer)) => answer["code"].is_string(),
                _ => false,
            };
            prop_assert!(is_proper, "{body}: {status} {answer:?}");
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
    gateway.stop().await;
}
