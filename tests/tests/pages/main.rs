//! The management pages, in a real browser and by raw requests, against the real agent.

mod access;
mod accessibility;
mod applications;
mod approvals;
mod attacks;
mod callbacks;
mod cross_origin;
mod every_page;
mod first_success;
mod hosted;
mod journeys;
mod live;
mod look;
mod other_users;
mod pairing;
mod raw_http;
mod reading;
mod run_states;
mod service_editor;
mod services;
mod sibling_port;
mod signing_in;
mod spending;
mod webhooks;

use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Backend, Folder, TestDevice};
use serde_json::{Value, json};

/// A text member of a JSON document.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {pointer} in {value}"))
}

/// A service that writes `reply.txt` after approval, and answers with the tool's result.
async fn writer(device: &TestDevice, folder: &Folder) -> Backend {
    let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": "Dear customer\n" } });
    let model = folder.script("writer", json!([{ "text": "I save it." }, write, { "text": "{{last_tool_result}}" }]));
    device.publish_here("shop", folder, &["--model", &model, "--tools", "Read,Write"]).await
}

/// Presses Tab until a link or a button has focus, and then Enter.
async fn choose(page: &BrowserPage, role: &str, name: &str) {
    page.tab_to(role, name).await;
    page.press("Enter").await;
}

/// Confirms the open question: focus begins on Cancel, and moves to the answer.
async fn agree(page: &BrowserPage, question: &str, answer: &str) {
    page.wait_for_visible(&format!("dialog >> text={question}")).await;
    // Enter at once changes nothing.
    page.has_focus("link", "Cancel").await;
    choose(page, "button", answer).await;
}

/// All fields of a page with their values, as text.
const FIELDS_JS: &str =
    "JSON.stringify([...document.querySelectorAll('main form :is(input, textarea, select):not([type=hidden])')]
    .map((field) => [field.name, field.type, field.value, field.checked]))";

fn written(folder: &Folder) -> Option<String> {
    std::fs::read_to_string(folder.path().join("reply.txt")).ok()
}

/// Whether access is enabled, by the command line.
async fn enabled(device: &TestDevice) -> bool {
    device.status().await["access"]["enabled"].as_bool().expect("it is connected")
}
