//! Runs and conversations as people read them: by their words, and not by their identifiers.

use deskgate_tests::{Browser, Folder, TestDevice};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::{text, writer};

const QUESTION: &str = "How many are in stock?\n\tI need   forty of them, and they have to be in Bergen before the fair opens in the second week of May.";
const FIRST_WORDS: &str = "How many are in stock? I need forty of them, and they have to be in Bergen before the…";

#[tokio::test]
async fn runs_are_named_by_what_was_asked_and_a_conversation_reads_as_what_was_said() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("stock", json!([{ "text": "Forty-two <b>pieces</b>\n    are in Bergen." }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "none"]).await;
    let talk = backend.conversation("case 4711").await;
    let asked = backend.say(&talk, 1, QUESTION).await.expect("answered");
    let run_id = text(&asked.body, "/run_id").to_owned();
    backend.wait_for_end(&run_id).await;
    device.cli(&["conversations", "reset", &talk, "--wait", "60s"]).await.ok();
    let again = backend.say(&talk, 2, "And in Oslo?").await.expect("answered");
    backend.wait_for_end(text(&again.body, "/run_id")).await;

    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("reading");
    page.goto("/runs").await;
    assert_eq!(page.text(&format!("#row-{run_id} .what")).await, FIRST_WORDS);
    assert!(!page.text("main table").await.contains("run_"), "nobody has to read identifiers");
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }").await;
    page.click(&format!("#row-{run_id} button.id")).await;
    assert_eq!(page.evaluate("window.copied").await, json!(run_id), "the whole identifier");
    page.wait_for_visible("#said.toast >> text=Copied").await;
    judge.judge(&page, "runs").await;
    page.click(&format!("#row-{run_id} .what a")).await;
    page.wait_for_visible("h1 >> text=How many are in stock?").await;
    assert_eq!(page.evaluate("document.querySelector('#state button.id').title").await, json!(run_id));

    page.goto(&format!("/conversations/{talk}")).await;
    let turns = page.text("#messages ol").await;
    let order = ["I need   forty of them", "Forty-two <b>pieces</b>", "Generation 2", "And in Oslo?"];
    let places: Vec<_> =
        order.iter().map(|part| turns.find(part).unwrap_or_else(|| panic!("{part}: {turns}"))).collect();
    assert!(places.is_sorted(), "as it was said: {turns}");
    assert!(turns.contains("pieces</b>\n    are in Bergen."), "with its line breaks and its indentation: {turns:?}");
    judge.judge(&page, "conversation").await;
    for page_of_words in ["/runs", &format!("/conversations/{talk}"), &format!("/runs/{run_id}")] {
        page.look("light", 390).await;
        page.goto(page_of_words).await;
        let width = page.evaluate("document.documentElement.scrollWidth").await.as_u64();
        assert!(width.is_some_and(|width| width <= 390), "{page_of_words} is {width:?} pixels wide");
    }

    let found = device.plain_cli(&["find", &run_id]).await;
    assert!(found.stdout.contains("How many are in stock? I need forty of them, and they have…"), "{}", found.stdout);
    let listed = device.plain_cli(&["runs", "list"]).await;
    assert!(listed.stdout.contains("How many are in stock? I need forty of them,…"), "{}", listed.stdout);
    let listed = device.cli(&["runs", "list", "--limit", "1"]).await.ok();
    assert_eq!(text(&listed, "/runs/0/asked"), "And in Oslo?");
    judge.sentence(2);
}

#[tokio::test]
async fn a_run_reads_as_a_conversation_with_its_tool_calls_and_who_allowed_them() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let run_id = backend.submit("Answer the customer.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("run-conversation");
    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible("#input >> text=Answer the customer.").await;
    page.wait_for_visible(".turn >> text=I save it.").await;
    page.click(".tool summary >> text=Needs your decision").await;
    page.wait_for_visible(".tool .diff >> text=+Dear customer").await;
    judge.judge(&page, "asks").await;
    page.click(".tool >> text=Review").await;
    page.click("[data-allow]").await;
    backend.wait_for_end(&run_id).await;

    page.goto(&format!("/runs/{run_id}")).await;
    page.wait_for_visible(".tool >> text=Done").await;
    assert!(page.text(".tool summary").await.starts_with("Write"));
    page.tab_to("button", &format!("Copy identifier ending in {}", &run_id[run_id.len() - 4..])).await;
    page.click(".tool summary").await;
    page.wait_for_visible(".tool >> text=Allowed once").await;
    page.wait_for_visible("#result").await;
    assert_eq!(page.count("#steps:visible").await, 0, "events are for developers");
    page.click("#developer summary").await;
    page.wait_for_visible("#steps >> text=tool.completed").await;
    judge.judge(&page, "ended").await;
    judge.sentence(2);
}
