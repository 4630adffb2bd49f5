//! The deliveries that callers read: their own subject's only.

use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::management::{OpenListener, TestCallback};
use serde_json::{Value, json};

use super::{callback, deliveries};
use crate::support::call::TestRequest;
use crate::support::gateway::{TestGateway, work};

async fn list(call: TestRequest) -> Vec<Value> {
    let reply = call.send().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_caller_sees_the_deliveries_of_its_own_application_and_subject_only() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    callback(device, &[CallbackEvent::RunAccepted]).await;
    let listen = OpenListener { app_id: device.app.id, types: Vec::new() };
    device.desktop.open_listener(listen).await.expect("opened");
    device.desktop.test_callback(TestCallback { app_id: device.app.id }).await.expect("queued");
    let other = device.application("other").await;
    let second = device.service(&device.app, "second").await;
    let mine = [gateway.submit("one").await, gateway.submit("two").await];
    let submit = |endpoint, subject: &'static str, key: &'static str| {
        gateway
            .call("POST", &gateway.runs_of(endpoint))
            .key(&device.app.key)
            .subject(subject)
            .header("Idempotency-Key", key)
    };
    let bertas = submit(device.endpoint, "berta", "three").json(&work("hello")).send().await.run_id();
    let elsewhere = submit(second, "anna", "four").json(&work("hello")).send().await.run_id();
    // Four runs for the callback and the listener, and a test.
    assert_eq!(deliveries(device).await.len(), 9);

    let ids = |list: &[Value]| list.iter().map(|one| one["run_id"].clone()).collect::<Vec<_>>();
    let all = list(gateway.ask("GET", "/api/v1/deliveries")).await;
    assert_eq!(ids(&all), [json!(elsewhere), json!(mine[1]), json!(mine[0])]);
    assert!(all.iter().all(|one| one["type"] == "run.accepted" && one["url_host"] == super::CALLBACK_HOST));
    let of_run = format!("/api/v1/deliveries?run_id={}", mine[0]);
    assert_eq!(ids(&list(gateway.ask("GET", &of_run)).await), [json!(mine[0])]);
    assert_eq!(list(gateway.ask("GET", "/api/v1/deliveries?state=exhausted")).await.len(), 0);
    let berta = |path: &str| gateway.call("GET", path).key(&device.app.key).subject("berta");
    assert_eq!(ids(&list(berta("/api/v1/deliveries")).await), [json!(bertas)]);
    assert_eq!(list(berta(&of_run)).await.len(), 0, "another subject's run has no deliveries");
    let stranger = |path: &str| gateway.call("GET", path).key(&other.key).subject("anna");
    assert_eq!(list(stranger("/api/v1/deliveries")).await.len(), 0);
    assert_eq!(list(stranger(&of_run)).await.len(), 0);
    let limited = device.restricted_key(|key| key.endpoints = vec![second]).await.text;
    let seen = list(gateway.call("GET", "/api/v1/deliveries").key(&limited).subject("anna")).await;
    assert_eq!(ids(&seen), [json!(elsewhere)]);

    // Page by page it is the same list.
    let (mut pages, mut path) = (Vec::new(), "/api/v1/deliveries?limit=1".to_owned());
    loop {
        let page = gateway.ask("GET", &path).send().await.json();
        pages.extend(page["data"].as_array().expect("a list").clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/deliveries?limit=1&cursor={next}");
    }
    let numbers = |list: &[Value]| list.iter().map(|one| one["delivery_id"].clone()).collect::<Vec<_>>();
    assert_eq!(numbers(&pages), numbers(&all));
    let cursor = gateway.ask("GET", "/api/v1/deliveries?limit=1").send().await.json()["next_cursor"].clone();
    let taken = format!("/api/v1/deliveries?cursor={}", cursor.as_str().expect("a cursor"));
    assert_eq!(berta(&taken).send().await.status, 400, "a cursor is good for its own list");
    for wrong in ["run_id=1", "state=lost", "limit=0", "subject=berta"] {
        assert_eq!(gateway.ask("GET", &format!("/api/v1/deliveries?{wrong}")).send().await.status, 422, "{wrong}");
    }
    gateway.stop().await;
}
