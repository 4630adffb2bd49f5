//! The approvals page, kept open in a browser.

use deskgate_protocol::Timestamp;
use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, Folder, TestDevice, until};
use serde_json::{Value, json};

use crate::{text, writer, written};

/// How late an open page may show a request: far longer than it needs, so that a busy computer is no failure.
const MAX_DELAY_MS: i64 = 5_000;

async fn the_only_request(device: &TestDevice) -> Value {
    until("a request to wait", async || {
        let listed = device.cli(&["approval", "list"]).await.ok();
        match listed["approvals"].as_array().map(Vec::as_slice) {
            Some([one]) => Ok(one.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Waits for the card of a request, and returns how long after the request it appeared.
async fn shown(page: &BrowserPage, device: &TestDevice) -> i64 {
    let seen = page.wait_for_visible("[data-card] >> text=reply.txt").await;
    let request = the_only_request(device).await;
    let asked: Timestamp = text(&request, "/asked_at").parse().expect("a time");
    seen - asked.0.as_millisecond()
}

#[tokio::test]
async fn an_open_inbox_shows_a_request_at_once_and_every_answer_counts() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    page.goto("/approvals").await;
    page.wait_for_visible("text=Nothing waits for you").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;

    let run_id = backend.submit("Answer.").await;
    let late = shown(&page, &device).await;
    println!("the page showed the request {late} ms after it was asked");
    assert!(late < MAX_DELAY_MS, "{late} ms");
    let title = page.evaluate("document.title").await;
    assert!(title.as_str().expect("text").starts_with("(1) "), "{title}");
    let card = page.text("[data-card]").await;
    for part in ["Write", "shop", "I save it.", "nobody verified", "Dear customer"] {
        assert!(card.contains(part), "{part} is missing in: {card}");
    }
    // Approval takes two keys, never one. The second counts as the first left it, however fast it comes.
    let both = r#"for (const key of ["j", "a"])
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))"#;
    page.evaluate(both).await;
    page.has_focus("button", "Allow once").await;
    assert_eq!(written(&folder), None);
    page.press("Enter").await;
    page.wait_for_visible("text=Nothing waits for you").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(written(&folder).as_deref(), Some("Dear customer\n"));

    std::fs::remove_file(folder.path().join("reply.txt")).expect("it was written");
    let run_id = backend.submit("Answer again.").await;
    shown(&page, &device).await;
    page.click("summary >> text=Deny and say why…").await;
    page.fill("[data-card] input[name=reason]", "Ask Ms Meier first.").await;
    page.click("[data-deny]").await;
    page.wait_for_visible("text=Nothing waits for you").await;
    let run = backend.wait_for_end(&run_id).await;
    assert!(text(&run, "/result/text").contains("Ask Ms Meier first."), "{run}");
    assert_eq!(written(&folder), None);
    page.click("text=Decided").await;
    page.wait_for_visible("[data-card] >> text=Ask Ms Meier first.").await;
    assert_eq!(page.count("[data-card]").await, 2);
}

#[tokio::test]
async fn a_decision_can_be_undone_before_it_counts() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    page.goto("/approvals").await;
    let run_id = backend.submit("Answer.").await;
    shown(&page, &device).await;
    page.click("[data-allow]").await;
    page.wait_for_visible("#undo >> text=Allowed once").await;
    assert_eq!(page.count("[data-card]").await, 0, "it is decided, so far");
    let listed = device.cli(&["approval", "list"]).await.ok();
    assert_eq!(text(&listed, "/approvals/0/pending/decision"), "once", "{listed}");
    page.tab_to("button", "Undo").await;
    page.press("Enter").await;
    shown(&page, &device).await;
    assert_eq!(page.count("#undo button").await, 0);
    assert_eq!(text(&backend.run(&run_id).await, "/state"), "awaiting_approval");

    // The yes would have counted before this no does.
    page.click("[data-deny]").await;
    let run = backend.wait_for_end(&run_id).await;
    assert!(text(&run, "/result/text").contains("did not allow"), "{run}");
    assert_eq!(written(&folder), None);
}

#[tokio::test]
async fn a_request_is_decided_and_undone_on_the_page_of_its_run() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    let run_id = backend.submit("Answer.").await;
    the_only_request(&device).await;
    page.goto(&format!("/runs/{run_id}")).await;
    let asked = page.text("#talk .ask").await;
    for part in ["May it use Write on reply.txt?", "I save it.", "nobody verified", "Dear customer", "expires"] {
        assert!(asked.contains(part), "{part} is missing in: {asked}");
    }
    page.click("#talk .ask [data-allow]").await;
    page.wait_for_visible("#undo >> text=Allowed once").await;
    assert!(page.url().await.contains(&run_id), "it stays on the page of the run");
    assert_eq!(page.count("#talk .ask").await, 0, "it is decided, so far");
    page.tab_to("button", "Undo").await;
    page.press("Enter").await;
    page.wait_for_visible("#talk .ask").await;
    assert!(page.url().await.contains(&run_id));
    assert_eq!(written(&folder), None);

    page.click("#talk .ask summary >> text=Deny and say why…").await;
    page.fill("#talk .ask input[name=reason]", "Ask Ms Meier first.").await;
    page.click("#talk .ask [data-deny]").await;
    // What came of it is on the page without a reload.
    page.wait_for_visible("#result >> text=Ask Ms Meier first.").await;
    page.click(".tool summary >> text=Write").await;
    page.wait_for_visible(".tool[open] >> text=Denied").await;
    assert_eq!(written(&folder), None);
}

#[tokio::test]
async fn a_change_that_no_page_can_show_whole_names_the_command_that_does() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let content = format!("{}the very last line\n", format!("{}\n", "long ".repeat(30)).repeat(600));
    let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": content } });
    let model = folder.script("writer", json!([write, { "text": "{{last_tool_result}}" }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "Read,Write"]).await;
    let page = browser.signed_in(&device).await;
    page.goto("/approvals").await;
    backend.submit("Answer.").await;
    shown(&page, &device).await;
    let card = page.text("[data-card]").await;
    assert!(card.contains("This is not all that it changes") && !card.contains("the very last line"));
    let command = page.text("[data-card] code >> text=/^deskgate approval show/").await;
    let words: Vec<_> = command.split_whitespace().skip(1).collect();
    let shown = device.plain_cli(&words).await;
    assert!(shown.stdout.contains("the very last line"), "{command}: {}", shown.stderr);
}

#[tokio::test]
async fn a_request_that_was_decided_elsewhere_goes_away_and_a_late_answer_is_told_so() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    page.goto("/approvals").await;
    let run_id = backend.submit("Answer.").await;
    shown(&page, &device).await;
    // A page that was loaded before the decision, and receives no updates.
    let deaf = page.tab().await;
    deaf.goto(&page.url().await).await;
    deaf.evaluate("document.querySelectorAll('[data-live]').forEach((part) => part.removeAttribute('data-live'))")
        .await;

    let request = the_only_request(&device).await;
    device.cli(&["approval", "deny", text(&request, "/approval_id")]).await.ok();
    page.wait_for_visible("text=Nothing waits for you").await;
    assert_eq!(page.count("[data-card]").await, 0);
    deaf.click("[data-allow]").await;
    deaf.wait_for_visible("[role=alert]").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(written(&folder), None, "the first answer counts");
}

#[tokio::test]
async fn what_leaves_is_shown_before_it_leaves_and_on_the_page_of_its_run() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    std::fs::write(folder.path().join("letter.txt"), "Dear customer\n").expect("written");
    let steps = json!([
        { "tool": "Deliver", "arguments": { "file_path": "letter.txt", "name": "<b>letter.txt" } }, { "text": "Done." }
    ]);
    let model = folder.script("hands", steps);
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "Read,Deliver"]).await;
    let page = browser.signed_in(&device).await;
    page.goto("/approvals").await;
    let run_id = backend.submit("Answer.").await;
    page.wait_for_visible("[data-card] >> text=Dear customer").await;
    let card = page.text("[data-card]").await;
    for part in ["<b>letter.txt", "goes to the application", "14 bytes, text/plain, sha256"] {
        assert!(card.contains(part), "{part} is missing in: {card}");
    }
    page.click("[data-allow]").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/artifacts/0/state"), "stored");
    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible("#files >> text=Handed out").await;
    let files = page.text("#files").await;
    assert!(files.contains("<b>letter.txt") && files.contains("14 bytes, sha256"), "{files}");
}
