//! What callers send and get back is the same to the last digit; they find it again, and can take it back.

use deskgate_tests::backend::fresh_key;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use reqwest::Method;
use serde_json::{Value, json};

use crate::text;

async fn submit_raw(backend: &Backend, key: &str, body: &str) -> deskgate_tests::backend::ApiResponse {
    let path = format!("/agent-endpoints/{}/runs", backend.endpoint_id());
    let request = backend.request(Method::POST, &path).header("Idempotency-Key", key);
    let request = request.header("Content-Type", "application/json").body(body.to_owned());
    backend.send(request).await.expect("answered")
}

#[tokio::test]
async fn numbers_are_kept_to_the_last_digit_and_those_that_cannot_be_are_refused() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("shop", &folder, &[]).await;
    let key = fresh_key();
    let of = |number: &str| format!(r#"{{"input":{{"text":"Look.","order":{number}}}}}"#);
    let first = submit_raw(&backend, &key, &of("9223372036854775806")).await;
    assert_eq!(first.status, 202, "{}", first.body);
    let other = submit_raw(&backend, &key, &of("9223372036854775807")).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "idempotency_key_reused"), "{}", other.body);
    let again = submit_raw(&backend, &key, &of(" 9223372036854775806")).await;
    assert_eq!((again.status.as_u16(), text(&again.body, "/run_id")), (202, text(&first.body, "/run_id")));
    let run = backend.wait_for_end(text(&first.body, "/run_id")).await;
    assert_eq!(run["input"]["order"].to_string(), "9223372036854775806", "{run}");

    for number in ["18446744073709551616", "0.1000000000000000055", "1e-400"] {
        let refused = submit_raw(&backend, &fresh_key(), &of(number)).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (422, "invalid_input"), "{number}: {}", refused.body);
        let flaw = &refused.body["errors"][0];
        assert_eq!((text(flaw, "/pointer"), text(flaw, "/code")), ("/input/order", "number_not_exact"), "{flaw}");
    }
    let twice = submit_raw(&backend, &fresh_key(), r#"{"input":{"text":"a","\u0074ext":"b"}}"#).await;
    assert_eq!((twice.status.as_u16(), text(&twice.body, "/errors/0/code")), (422, "duplicate_member"));
    assert_eq!(text(&twice.body, "/errors/0/pointer"), "/input/text", "{}", twice.body);
}

#[tokio::test]
async fn the_messages_of_a_conversation_come_with_their_texts_in_one_call() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("echo", json!([{ "text": "You said: {{input}}" }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model]).await;
    let (talk, other) = (backend.conversation("one").await, backend.conversation("two").await);
    for said in ["first", "second", "third"] {
        backend.say_and_wait(&talk, 1, said).await;
    }
    backend.say_and_wait(&other, 1, "elsewhere").await;
    let page = backend.get(&format!("/conversations/{talk}/messages?limit=2")).await;
    let said = |page: &Value| -> Vec<_> {
        let texts = |run: &Value| (text(run, "/input/text").to_owned(), text(run, "/result/text").to_owned());
        page["data"].as_array().expect("a page").iter().map(texts).collect()
    };
    let pair = |said: &str| (said.to_owned(), format!("You said: {said}"));
    assert_eq!(said(&page), [pair("third"), pair("second")]);
    assert!(page["data"][0]["receipt"].is_null(), "lists have none: {page}");
    let cursor = text(&page, "/next_cursor");
    let rest = backend.get(&format!("/conversations/{talk}/messages?limit=2&cursor={cursor}")).await;
    assert_eq!((said(&rest), &rest["has_more"]), (vec![pair("first")], &json!(false)));

    // Long texts end a page early, and none is lost by that.
    let long = "x".repeat(250_000);
    for _ in 0..12 {
        backend.say_and_wait(&talk, 1, &long).await;
    }
    let (mut cursor, mut seen, mut pages) = (String::new(), 0, 0);
    loop {
        let page = backend.get(&format!("/conversations/{talk}/messages?limit=100{cursor}")).await;
        (seen, pages) = (seen + said(&page).len(), pages + 1);
        match page["has_more"].as_bool() {
            Some(true) => cursor = format!("&cursor={}", text(&page, "/next_cursor")),
            _ => break,
        }
    }
    assert_eq!((seen, pages), (15, 2), "some megabytes are one page");

    let operation = backend.reset(&talk, 1).await.expect("answered").body;
    backend.outcome(&operation).await;
    backend.say_and_wait(&talk, 2, "anew").await;
    let newest = backend.get(&format!("/conversations/{talk}/messages?generation=2")).await;
    assert_eq!(said(&newest), [pair("anew")]);
}

#[tokio::test]
async fn runs_are_found_by_their_labels() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("shop", &folder, &[]).await;
    let mut ids = Vec::new();
    for (order, shop) in [("4711", "a"), ("4711", "b"), ("4712", "a")] {
        let body = json!({ "input": { "text": "Look." }, "metadata": { "order": order, "the \"shop\"": shop } });
        let run = submit_raw(&backend, &fresh_key(), &body.to_string()).await.body;
        ids.push(text(&run, "/run_id").to_owned());
    }
    let found = async |query: &str| -> Vec<String> {
        let page = backend.get(&format!("/runs?{query}")).await;
        page["data"].as_array().expect("a page").iter().map(|run| text(run, "/run_id").to_owned()).collect()
    };
    assert_eq!(found("metadata[order]=4711").await, [ids[1].clone(), ids[0].clone()]);
    assert_eq!(found("metadata%5Border%5D=4711&metadata[the%20%22shop%22]=a").await, [ids[0].clone()]);
    assert_eq!(found("metadata[order]=4713").await, Vec::<String>::new());
    let wrong = backend.send(backend.request(Method::GET, "/runs?metadata=4711")).await.expect("answered");
    assert_eq!((wrong.status.as_u16(), wrong.code()), (422, "invalid_input"), "{}", wrong.body);
}

#[tokio::test]
async fn a_caller_deletes_the_content_of_an_ended_run_and_the_record_and_callbacks_say_so() {
    const SECRET: &str = "the customer is Ada Lovelace";
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.script("echo", json!([{ "text": "It says: {{input}}" }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let device_id = device.device_id().await;
    device.proxy().cut();
    gateway.wait_for_device_state(&device_id, "offline").await;
    let run_id = backend.submit(SECRET).await;
    let delete = async |run_id: &str| {
        let request = backend.request(Method::DELETE, &format!("/runs/{run_id}/content"));
        backend.send(request).await.expect("answered")
    };
    let early = delete(&run_id).await;
    assert_eq!((early.status.as_u16(), early.code()), (409, "run_not_ended"), "{}", early.body);
    device.proxy().heal();
    let before = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&before, "/result/text"), format!("It says: {SECRET}"));

    assert_eq!(delete(&run_id).await.status.as_u16(), 204);
    let after = backend.run(&run_id).await;
    assert!(after["input"].is_null() && after["result"].is_null(), "{after}");
    for kept in ["/state", "/usage", "/metadata", "/receipt", "/finished_at", "/last_sequence"] {
        assert_eq!(after.pointer(kept), before.pointer(kept), "{kept}");
    }
    assert_eq!(delete(&run_id).await.status.as_u16(), 204, "asked again");
    assert_eq!(backend.run(&run_id).await["content_deleted_at"], after["content_deleted_at"]);
    let events = backend
        .send(backend.request(Method::GET, &format!("/runs/{run_id}/events")).header("Accept", "application/json"))
        .await
        .expect("answered")
        .body;
    assert!(events.to_string().contains("content_deleted") && !events.to_string().contains("Ada"), "{events}");
    for table in postgres.rows("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'").await {
        let name = text(&table, "/name");
        let found = postgres.rows(&format!("SELECT t FROM \"{name}\" t WHERE t::text LIKE '%Ada Lovelace%'")).await;
        assert!(found.is_empty(), "{name} has it: {found:?}");
    }

    let unknown = delete("run_00000000000070008000000000000000").await;
    assert_eq!((unknown.status.as_u16(), unknown.code()), (404, "not_found"), "{}", unknown.body);

    // The receipt still shows who answered, and that nothing else was altered.
    let record = device.folder().join("record.json");
    std::fs::write(&record, after.to_string()).expect("writable");
    let fingerprint = text(&device.cli(&["app", "show", "shop"]).await.ok(), "/device_fingerprint").to_owned();
    let record = record.display().to_string();
    let checked = device.cli(&["verify-receipt", "--fingerprint", &fingerprint, &record]).await;
    assert_eq!(checked.exit, 0, "{}{}", checked.stdout, checked.stderr);
    // A gateway that only says that it deleted the content has to have none.
    let mut lie = before.clone();
    lie["content_deleted_at"] = after["content_deleted_at"].clone();
    lie["result"]["text"] = "another answer".into();
    std::fs::write(&record, lie.to_string()).expect("writable");
    let checked = device.cli(&["verify-receipt", "--fingerprint", &fingerprint, &record]).await;
    assert_eq!(checked.exit, 10, "{}{}", checked.stdout, checked.stderr);
}
