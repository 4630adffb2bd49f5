//! Accessibility of every linked page, and of those that only problems lead to: in light and dark, wide and narrow.

use deskgate_tests::browser::{BrowserPage, WindowOptions};
use deskgate_tests::{Browser, Folder, TestDevice};
use rustix::process::Signal;
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::raw_http::{RawSession, kind};
use crate::{text, writer};

/// The largest page, without what it loads.
const MAX_PAGE_BYTES: usize = 100_000;

/// Checks all linked pages.
async fn all(judge: &mut AccessibilityChecker, page: &BrowserPage, device: &TestDevice) {
    let hand = RawSession::signed_in(device).await;
    let mut names: Vec<String> = Vec::new();
    for (path, answer) in hand.every_page().await {
        // A file is saved, not shown.
        if !answer.header("content-type").starts_with("text/html") {
            continue;
        }
        assert!(answer.body.len() <= MAX_PAGE_BYTES, "{path} has {} bytes", answer.body.len());
        page.goto(&path).await;
        page.wait_for_visible("h1").await;
        let kind = kind(&path);
        let of_its_kind = names.iter().filter(|name| **name == kind).count();
        judge.judge(page, &format!("{} {}", if path == "/" { "overview" } else { &kind }, of_its_kind + 1)).await;
        names.push(kind);
    }
}

#[tokio::test]
async fn every_page_of_a_fresh_computer_is_fit_for_everybody() {
    let Some(browser) = Browser::start().await else { return };
    let mut device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("fresh");
    all(&mut judge, &page, &device).await;

    // The pages that only problems lead to.
    let link = device.page_link().await;
    let stranger = browser.window(WindowOptions::default()).await;
    let origin = page.origin().await;
    stranger.goto(&format!("{origin}/")).await;
    judge.judge(&stranger, "sign-in").await;
    // Chromium warns so about every page with a host name and without HTTPS.
    browser.tolerate(Some("Cross-Origin-Opener-Policy")).await;
    stranger.goto(&origin.replace("127.0.0.1", "rebound.example")).await;
    stranger.wait_for_visible("h1 >> text=Not at this address").await;
    let margin = stranger.evaluate("getComputedStyle(document.querySelector('main')).maxWidth").await;
    assert_ne!(margin, json!("none"), "what tells of the mistake has its style");
    judge.judge(&stranger, "wrong-host").await;
    browser.tolerate(None).await;
    stranger.goto(&link).await;
    stranger.wait_for_visible(".side [aria-current] >> text=Overview").await;
    stranger.goto(&link).await;
    stranger.wait_for_visible("[role=alert]").await;
    judge.judge(&stranger, "used-up").await;
    page.goto("/nowhere").await;
    judge.judge(&page, "nowhere").await;
    page.goto("/").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    browser.tolerate(Some("Failed to load resource")).await;
    device.stop(Signal::TERM).await;
    page.wait_for_visible("#live >> text=Not live since").await;
    judge.judge(&page, "agent-stopped").await;
    judge.sentence(10);
}

#[tokio::test]
async fn every_page_of_a_computer_in_use_is_fit_for_everybody() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let talk = backend.conversation("case 4711").await;
    device.cli(&["allowlist", "set", "hooks.invalid"]).await.ok();
    let callback = ["callback", "set", "shop", "--url", "https://hooks.invalid/in", "--event", "run.succeeded"];
    device.cli(&callback).await.ok();
    device.cli(&["delivery", "trigger", "run.failed", "--app", "shop"]).await.ok();
    let hook =
        ["hook", "create", "tickets", "--app", "shop", "--service", backend.endpoint_id(), "--scheme", "standard"];
    device.cli(&[&hook[..], &["--text", "{{ $.title }}", "--subject", "somebody"]].concat()).await.ok();
    device.cli(&["budget", "set", "--app", "shop", "--usd", "20", "--tokens", "5000000"]).await.ok();
    device.cli(&["budget", "set", "--service", "shop", "--usd", "5"]).await.ok();
    for app in ["Billing", "Helpdesk"] {
        device.cli(&["app", "create", app]).await.ok();
        device.cli(&["app", "disable", app, "--yes"]).await.ok();
    }
    device.cli(&["app", "complete-disabling", "Helpdesk"]).await.ok();
    device.cli(&["app", "remove", "Helpdesk", "--yes"]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("in-use");

    let run_id = backend.submit("Answer <b>this</b>.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    page.goto("/approvals").await;
    page.click("[data-allow]").await;
    backend.wait_for_end(&run_id).await;
    // A file that was not read before is not overwritten, so there would be no request.
    std::fs::remove_file(folder.path().join("reply.txt")).expect("it was written");
    let message = backend.say(&talk, 1, "Take your time.").await.expect("answered");
    backend.wait_for_state(text(&message.body, "/run_id"), "awaiting_approval").await;
    // A draft beside what is published, with something to compare.
    device.cli(&["service", "edit", "shop", "--description", "Answers letters."]).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
    all(&mut judge, &page, &device).await;

    page.goto("/applications/new").await;
    page.fill("#name", "shop").await;
    page.click("text=Create application").await;
    page.wait_for_visible("[role=alert]").await;
    judge.judge(&page, "failed-form").await;
    page.fill("#name", "News").await;
    page.click("text=Create application").await;
    page.wait_for_visible("#key").await;
    judge.judge(&page, "key-created").await;
    page.goto("/").await;
    page.click("header a[href$='/access']").await;
    page.wait_for_visible("dialog[open]").await;
    assert_eq!(page.evaluate("document.querySelector('dialog').open").await, json!(true));
    judge.judge(&page, "dialog").await;
    judge.sentence(20);
}
