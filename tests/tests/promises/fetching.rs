//! Fetch by the real programs: a page of a host that is public, asked about, allowed by a rule, and denied by one.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use deskgate_tests::netns::{self, DnsServer};
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use deskgate_tests::{Folder, TestDevice};
use serde_json::{Value, json};

use crate::approvals::waiting;

/// A name, and an address that is public everywhere but on the island.
const HOST: &str = "news.example.com";
const ADDRESS: &str = "93.184.216.34";

async fn page(_: ReceivedRequest) -> Response {
    let page = "<html><head><title>News</title><script>alert(1)</script></head><body><h1>Lamps</h1><p>All lit.</p></body></html>";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

#[test]
fn a_page_is_read_once_its_owner_or_a_rule_allows_its_host_and_from_no_other() {
    netns::run_test(
        "fetching::a_page_is_read_once_its_owner_or_a_rule_allows_its_host_and_from_no_other",
        async || {
            let names = DnsServer::start().await;
            names.set_addresses(HOST, &[ADDRESS]);
            names.set_addresses("inside.example.com", &["10.0.0.7"]);
            let receiver = Receiver::start(&[HOST], page).await;
            let mut device = TestDevice::new();
            device.trust_certificate(&receiver.ca_file());
            device.start().await;
            device.wait_until_connected().await;
            let folder = Folder::new();
            let fetch = |url: &str| json!({ "tool": "Fetch", "arguments": { "url": url } });
            let answer = json!({ "text": "{{last_tool_result}}" });
            let url = format!("https://{HOST}/today");
            let model = folder.script("fetches", json!([fetch(&url), answer]));
            let backend = device.publish_here("asks", &folder, &["--model", &model, "--tools", "Fetch"]).await;

            // Without a rule its owner is asked, and sees the whole URL.
            let run_id = backend.submit("What is new?").await;
            let asked = waiting(&device).await;
            assert_eq!(receiver.requests().len(), 0, "nothing is told to a host before that");
            assert!(asked.to_string().contains(&url), "{asked}");
            device.cli(&["approval", "approve", asked["approval_id"].as_str().expect("a text")]).await.ok();
            let run = backend.wait_for_end(&run_id).await;
            let text = run["result"]["text"].as_str().unwrap_or_else(|| panic!("{run}"));
            assert!(text.contains("# Lamps") && text.contains("All lit.") && !text.contains("alert"), "{text}");
            assert!(text.starts_with(&format!("{url} (status 200, text/html)")), "{text}");
            let got = receiver.requests().swap_remove(0);
            assert_eq!((got.host.as_str(), got.line.as_str()), (HOST, "GET /today"));
            assert_eq!((got.header("cookie"), got.header("authorization"), got.header("referer")), ("", "", ""));

            // With a rule it is not; a host inside is refused whatever the rules say.
            let inside = fetch("https://inside.example.com/");
            let model = folder.script("both", json!([inside, fetch(&url), answer]));
            let rules = ["--allow", "Fetch:*.example.com"];
            let service = [&["--model", &model, "--tools", "Fetch"][..], &rules].concat();
            let backend = device.publish_here("allowed", &folder, &service).await;
            let run = backend.wait_for_end(&backend.submit("What is new?").await).await;
            assert!(run["result"]["text"].as_str().is_some_and(|text| text.contains("All lit.")), "{run}");
            assert_eq!(receiver.requests().len(), 2, "the host inside heard nothing");

            // A denied host is never asked.
            let model = folder.script("denied", json!([fetch(&url), answer]));
            let service = ["--model", &model, "--tools", "Fetch", "--deny", &format!("Fetch:{HOST}")];
            let backend = device.publish_here("denied", &folder, &service).await;
            let run = backend.wait_for_end(&backend.submit("What is new?").await).await;
            assert!(run["result"]["text"].as_str().is_some_and(|text| text.contains("rules")), "{run}");
            assert_eq!((receiver.requests().len(), &run["usage"]["tool_calls"]), (2, &Value::from(0)));
        },
    );
}
