//! Data as the result of a run: by a caller's schema or the service's, with a real device and with ones that lie.

use deskgate_protocol::control::{DeviceEvent, DeviceFrame, GatewayFrame};
use deskgate_protocol::run::{FinishReason, Outcome, RunResult, Usage};
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::frames::{next_offer, publish};
use crate::text;

/// A schema whose members have an order of their own.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "reason": { "type": "string" }, "count": { "type": "integer" } },
        "required": ["reason", "count"],
        "additionalProperties": false,
    })
}

fn asked(text: &str) -> Value {
    json!({ "input": { "text": text }, "output": { "name": "answer", "schema": schema() } })
}

fn fits() -> Value {
    json!({ "reason": "two letters", "count": 2 })
}

#[tokio::test]
async fn a_run_that_asks_for_data_gets_data_that_fits_or_fails() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let wrong = json!({ "result": { "reason": 7 } });
    let scripts = [
        ("at once", json!([{ "text": "I counted." }, { "result": fits() }]), Ok("I counted.")),
        ("after a look", json!([{ "tool": "Glob", "arguments": { "pattern": "*" } }, { "result": fits() }]), Ok("")),
        ("the second time", json!([wrong, { "delay_ms": 0 }, { "result": fits() }]), Ok("")),
        ("as a message", json!([{ "text": fits().to_string() }]), Ok("")),
        ("as a block", json!([{ "text": format!("```json\n{}\n```", fits()) }]), Ok("")),
        ("after a reminder", json!([{ "text": "Two." }, { "result": fits() }]), Ok("Two.")),
        (
            "never",
            json!([wrong, { "delay_ms": 0 }, wrong, { "delay_ms": 0 }, wrong]),
            Err("/reason: it is not of type"),
        ),
        ("in words", json!([{ "text": "Two letters, I should say." }]), Err("ended in words")),
    ];
    for (place, (name, steps, expected)) in scripts.into_iter().enumerate() {
        let model = folder.script(&format!("s{place}"), steps);
        let backend = device.publish_here(name, &folder, &["--model", &model, "--tools", "Read,Glob"]).await;
        let run = backend.run_body(&asked("How many?")).await;
        match expected {
            Ok(said) => {
                assert_eq!((text(&run, "/state"), &run["result"]["data"]), ("succeeded", &fits()), "{name}: {run}");
                assert_eq!(text(&run, "/result/finish_reason"), "completed");
                let told = text(&run, "/result/text");
                let expected = if said.is_empty() { fits().to_string() } else { said.to_owned() };
                assert_eq!(told, expected, "{name}");
            }
            Err(why) => {
                assert_eq!((text(&run, "/state"), run.get("result")), ("failed", None), "{name}: {run}");
                let error = &run["error"];
                assert_eq!((text(error, "/code"), text(error, "/effects")), ("output_mismatch", "none"), "{run}");
                assert!(error["retryable"] == true && text(error, "/message").contains(why), "{name}: {run}");
            }
        }
        let plain = backend.wait_for_end(&backend.submit("How many?").await).await;
        assert!(plain["result"].get("data").is_none(), "nobody asked for data: {plain}");
    }
}

#[tokio::test]
async fn what_a_service_takes_and_gives_is_its_owners_on_every_way_to_it() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let file = |name: &str, content: &Value| {
        let path = device.folder().join(name);
        std::fs::write(&path, content.to_string()).expect("writable");
        path.display().to_string()
    };
    let takes = json!({ "type": "object", "properties": { "month": { "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$" } },
        "required": ["month"] });
    let (input, output) = (file("input.json", &takes), file("output.json", &schema()));
    let model = folder.script("counts", json!([{ "text": "For {{input}}." }, { "result": fits() }]));
    let arguments = ["--model", &model, "--input-schema", &input, "--output-schema", &output];
    let backend = device.publish_here("shop", &folder, &arguments).await;
    let listed = backend.send(backend.request(reqwest::Method::GET, "/agent-endpoints")).await.expect("answered").body;
    let service = &listed["endpoints"][0];
    assert_eq!((&service["input_schema"], &service["output_schema"]), (&takes, &schema()), "{service}");
    assert_eq!(service["caller_schema"], false);

    let refused = backend.try_submit("a", "x").await.expect("answered");
    assert_eq!((refused.status.as_u16(), refused.code()), (422, "invalid_input"), "{}", refused.body);
    let run = backend.run_body(&json!({ "input": { "text": "letters", "data": { "month": "2026-11" } } })).await;
    assert_eq!((&run["result"]["data"], text(&run, "/result/text")), (&fits(), "For letters."), "{run}");

    let data = file("data.json", &json!({ "month": "2026-11" }));
    let tried = device.cli(&["service", "try", "shop", "--input", "x", "--data", &data, "--wait", "60s"]).await.ok();
    assert_eq!(tried["run"]["result"]["data"], fits(), "{tried}");
    let shown = device.plain_cli(&["run", "show", text(&tried, "/run/run_id")]).await.stdout;
    assert!(shown.contains("For x.") && shown.contains("\"count\": 2"), "{shown}");
    let bad = file("bad.json", &json!({ "month": "November" }));
    let refused = device.cli(&["service", "try", "shop", "--input", "x", "--data", &bad]).await;
    assert!(refused.exit != 0 && refused.stderr.contains("input.data.month"), "{}", refused.stderr);

    // A draft has schemas of its own.
    let narrower = file("narrower.json", &json!({ "type": "object", "required": ["count"] }));
    device.cli(&["service", "edit", "shop", "--output-schema", &narrower, "--input-schema", "none"]).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
    let tried = device.cli(&["service", "try", "shop", "--draft", "--input", "x", "--wait", "60s"]).await.ok();
    assert_eq!((&tried["run"]["endpoint_version"], &tried["run"]["result"]["data"]), (&json!(0), &fits()), "{tried}");
    assert_eq!(tried["run"]["output"]["schema"]["required"], json!(["count"]));
    let remote =
        file("remote.json", &json!({ "type": "object", "properties": { "a": { "$ref": "https://x.example/a" } } }));
    let refused = device.cli(&["service", "edit", "shop", "--output-schema", &remote]).await;
    assert!(refused.exit != 0 && refused.stderr.contains("/properties/a/$ref"), "{}", refused.stderr);
    let closed = ["service", "edit", "shop", "--output-schema", "none", "--caller-schema", "no"];
    device.cli(&closed).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
    device.cli(&["service", "publish", "shop"]).await.ok();
    let refused = backend.try_submit_body("b", &asked("x")).await.expect("answered");
    assert_eq!((refused.status.as_u16(), &refused.body["errors"][0]["pointer"]), (422, &json!("/output")));
}

#[tokio::test]
async fn later_messages_see_the_data_of_earlier_answers() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let model = folder.script("says", json!([{ "text": "{{earlier}}" }, { "result": fits() }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model]).await;
    let body = json!({ "endpoint_id": backend.endpoint_id(), "conversation_key": "one" });
    let open = backend.request(reqwest::Method::POST, "/conversations").header("Idempotency-Key", "open").json(&body);
    let conversation = backend.send(open).await.expect("answered").body;
    let path = format!("/conversations/{}/messages", text(&conversation, "/conversation_id"));
    let say = async |key: &str| {
        let mut body = asked("How many?");
        body["expected_generation"] = 1.into();
        let request = backend.request(reqwest::Method::POST, &path).header("Idempotency-Key", key).json(&body);
        let accepted = backend.send(request).await.expect("answered").body;
        backend.wait_for_end(text(&accepted, "/run_id")).await
    };
    assert_eq!(say("first").await["result"]["data"], fits());
    let second = say("second").await;
    assert!(text(&second, "/result/text").contains(&format!("assistant: {}", fits())), "{second}");
}

#[tokio::test]
async fn a_gateway_stores_no_success_whose_data_does_not_fit_whatever_a_device_says() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = RawIdentity::new(1);
    device.pair(&gateway, "desk").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    assert_eq!(postgres.change("UPDATE endpoints SET caller_schema = true").await, 1);
    let answers = [
        (Some(fits()), "succeeded"),
        (Some(json!({ "reason": "two", "count": "2" })), "failed"),
        (Some(json!({ "reason": "x".repeat(300 * 1024), "count": 2 })), "failed"),
        (Some(json!({ "reason": "two", "count": 9_007_199_254_740_993_u64 })), "failed"),
        (Some(Value::Null), "failed"),
        (None, "failed"),
    ];
    for (place, (data, state)) in answers.into_iter().enumerate() {
        // With an event that is stored with the end, and without one.
        for events in [0, 1] {
            line.send(&DeviceFrame::Ready { slots: 1, places: Vec::new(), full: Vec::new() }).await;
            let key = format!("{place}-{events}");
            let accepted = backend.try_submit_body(&key, &asked("x")).await.expect("answered").body;
            assert_eq!(accepted["phase"], "accepted", "{accepted}");
            let offer = next_offer(&mut line).await;
            assert_eq!(offer.run_id.to_string(), text(&accepted, "/run_id"));
            let (run_id, attempt) = (offer.run_id, offer.attempt);
            line.send(&DeviceFrame::Accept { run_id, attempt }).await;
            let usage = Usage::default();
            if events > 0 {
                let event = DeviceEvent::UsageUpdated { usage, model_unavailable: false };
                line.send(&DeviceFrame::Event { run_id, attempt, seq: 1, event }).await;
            }
            let result = RunResult {
                text: "Two.".to_owned(),
                data: data.clone().map(Box::new),
                finish_reason: FinishReason::Completed,
            };
            let outcome = Outcome::Succeeded { result, usage };
            line.send(&DeviceFrame::Finish { run_id, attempt, seq: events + 1, outcome, receipt: None }).await;
            loop {
                match line.next_answering_pings().await.expect("the line stays") {
                    GatewayFrame::Ack { through, .. } if through == events + 1 => break,
                    GatewayFrame::Start { .. } | GatewayFrame::Ack { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            let run = backend.run(text(&accepted, "/run_id")).await;
            assert_eq!(text(&run, "/state"), state, "{key}: {}", run["error"]);
            match state {
                "succeeded" => assert_eq!(run["result"]["data"], fits()),
                _ => {
                    assert_eq!(text(&run, "/error/code"), "output_mismatch");
                    assert_eq!((text(&run, "/error/effects"), run.get("result")), ("possible", None), "{run}");
                }
            }
        }
    }
}
