//! Connection, settings and health pages, as their owner uses them.

use std::os::unix::fs::PermissionsExt;

use deskgate_protocol::ids::KeyId;
use deskgate_protocol::secret::{ApplicationKey, ControlToken};
use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, Notifier, TestDevice, until};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::{FIELDS_JS, enabled, text, writer};

/// The pin of an unrelated server's key.
const HOST_KEY_PIN: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn each_mode_of_the_connection_keeps_its_own_draft_and_another_mode_pauses_access() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["access", "enable"]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("connection");
    page.goto("/connection").await;
    drafts_are_kept_apart(&page).await;
    a_save_that_fails_keeps_every_field(&page, &mut judge).await;
    a_test_says_how_far_it_came(&page, &mut judge).await;
    a_draft_is_discarded_after_a_question(&page, &mut judge).await;
    assert_eq!(device.status().await["mode"], "builtin");
    assert!(enabled(&device).await, "nothing of all that is in force");

    remote(&page).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("[role=status] >> text=Saved, and active now").await;
    page.wait_for_visible("header >> text=Remote gateway").await;
    judge.judge(&page, "nobody-there").await;
    page.click(".tabs >> text=Built-in").await;
    page.wait_for_visible("text=pauses access until you enable it again").await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("header >> text=Built-in, connected").await;
    page.wait_for_visible("header >> text=Access paused").await;
    assert!(!enabled(&device).await);
    judge.sentence(4);
}

#[tokio::test]
async fn another_mode_says_in_numbers_what_stays_behind_before_it_becomes_active() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["app", "create", "shop"]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("leaving");
    page.goto("/connection?mode=remote").await;
    page.wait_for_visible("#pair >> text=1 application and 1 key belong to the built-in gateway").await;
    remote(&page).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("h1 >> text=Go to another gateway?").await;
    page.wait_for_visible("text=1 application and 1 key belong to the built-in gateway").await;
    judge.judge(&page, "question").await;
    page.click("text=Cancel").await;
    page.wait_for_visible("#ssh-address").await;
    assert_eq!(device.status().await["mode"], "builtin");
    assert_eq!(page.evaluate("document.querySelector('#ssh-address').value").await, json!("127.0.0.1:9"));
    page.click("button >> text=Save >> nth=0").await;
    page.click("text=Save, and go there").await;
    page.wait_for_visible("header >> text=Remote gateway").await;
    judge.sentence(1);
}

/// Fills the form of a remote gateway at an address without a server.
async fn remote(page: &BrowserPage) {
    page.fill("#ssh-address", "127.0.0.1:9").await;
    page.fill("#host-key", HOST_KEY_PIN).await;
    page.fill("#control-token", ControlToken::generate().reveal()).await;
}

async fn drafts_are_kept_apart(page: &BrowserPage) {
    page.fill("#listen", "127.0.0.1:18080").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("[role=status] >> text=The draft is kept").await;
    page.click(".tabs >> text=Remote").await;
    page.fill("#ssh-address", "gateway.example:7822").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("[role=status] >> text=The draft is kept").await;
    assert_eq!(page.count(".tabs .chip >> text=draft").await, 2);
    // What was typed and not saved is a draft too, once another mode is looked at.
    page.fill("#ssh-user", "typed").await;
    page.click(".tabs >> text=Hosted").await;
    page.wait_for_visible("#gateway-address").await;
    page.click(".tabs >> text=Remote").await;
    page.wait_for_visible("#ssh-user").await;
    assert_eq!(page.evaluate("document.querySelector('#ssh-user').value").await, json!("typed"));
    page.fill("#ssh-user", "deskgate").await;
    page.click(".tabs >> text=Built-in").await;
    page.wait_for_visible("#listen").await;
    assert_eq!(page.evaluate("document.querySelector('#listen').value").await, json!("127.0.0.1:18080"));
    page.click(".tabs >> text=Remote").await;
    page.wait_for_visible("#ssh-address").await;
    assert_eq!(page.evaluate("document.querySelector('#ssh-address').value").await, json!("gateway.example:7822"));
}

async fn a_save_that_fails_keeps_every_field(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.fill("#ssh-address", "no host at all").await;
    page.fill("#host-key", "SHA1:old").await;
    page.fill("#control-socket", "relative.sock").await;
    let before = page.evaluate(FIELDS_JS).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("[role=alert] >> a[href='#host-key']").await;
    assert_eq!(page.evaluate(FIELDS_JS).await, before);
    // A key of the wrong kind is named in the error, and is not stored anywhere.
    let key = ApplicationKey::generate(KeyId::new());
    page.fill("#control-token", key.reveal()).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("#control-token-wrong >> text=application key").await;
    assert!(!page.evaluate("document.documentElement.outerHTML").await.to_string().contains(key.reveal()));
    judge.judge(page, "failed-form").await;
}

async fn a_test_says_how_far_it_came(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.fill("#control-socket", "/run/gate.sock").await;
    remote(page).await;
    page.click("text=Test connection").await;
    page.wait_for_visible("#tested [role=alert]").await;
    judge.judge(page, "tested").await;
}

async fn a_draft_is_discarded_after_a_question(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.click("text=Discard draft…").await;
    page.wait_for_visible("dialog >> text=Discard the draft?").await;
    judge.judge(page, "discard-dialog").await;
    page.click("dialog >> text=Keep it").await;
    page.wait_for_hidden("dialog").await;
    assert_eq!(page.evaluate("document.querySelector('#ssh-address').value").await, json!("127.0.0.1:9"));
    page.click("text=Discard draft…").await;
    page.click("dialog button >> text=Discard draft").await;
    page.wait_for_visible("[role=status] >> text=The draft is gone").await;
    assert_eq!(page.evaluate("document.querySelector('#ssh-address').value").await, json!(""));
    assert_eq!(page.count(".tabs .chip >> text=draft").await, 1, "the other mode's stays");
}

#[tokio::test]
async fn settings_are_kept_and_a_problem_of_health_comes_goes_and_comes_back_by_itself() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("upkeep");
    settings(&page, &mut judge).await;
    health(&device, &page, &mut judge).await;
    judge.sentence(5);
}

async fn settings(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.goto("/settings").await;
    page.fill("#q", "delete days").await;
    page.press("Enter").await;
    page.wait_for_hidden("#about").await;
    assert_eq!((page.count("#retention").await, page.count(".rail li").await), (1, 1));
    page.fill("#q", "no such words").await;
    page.press("Enter").await;
    page.wait_for_visible("text=No setting has these words").await;
    judge.judge(page, "settings-nothing-found").await;
    page.click("main >> text=Show all >> nth=0").await;
    page.wait_for_visible("#about").await;
    page.fill("#device-name", "The office desk").await;
    page.fill("#slots", "a few").await;
    page.tick("input[name=theme][value=dark]", true).await;
    let before = page.evaluate(FIELDS_JS).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible("[role=alert] >> a[href='#slots']").await;
    assert_eq!(page.evaluate(FIELDS_JS).await, before);
    judge.judge(page, "settings-failed-form").await;
    page.fill("#slots", "3").await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible(".bar.good[role=status]").await;
    page.wait_for_visible(".side >> text=The office desk").await;
    page.wait_for_visible("text=Start the agent again for the other number").await;
    let paper = "getComputedStyle(document.body).backgroundColor";
    let dark = page.evaluate(paper).await;
    judge.judge(page, "settings-saved").await;
    page.tick("input[name=theme][value=system]", true).await;
    page.click("button >> text=Save >> nth=0").await;
    page.wait_for_visible(".bar.good[role=status]").await;
    assert_ne!(page.evaluate(paper).await, dark, "against the system's light");
    page.tick("input[name=hide-details]", true).await;
    page.click("#notifications >> text=Save").await;
    page.wait_for_visible(".bar.good[role=status]").await;
    assert_eq!(page.evaluate("document.querySelector('[name=hide-details]').checked").await, json!(true));
}

async fn health(device: &TestDevice, page: &BrowserPage, judge: &mut AccessibilityChecker) {
    let key = device.folder().join("key");
    std::fs::write(&key, "sk-canary-0123456789").expect("writable");
    let key = key.to_str().expect("a plain name");
    device.cli(&["provider", "set", "work", "--profile", "anthropic", "--key-file", key]).await.ok();
    let file = device.home().join("providers/work.json");
    let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("ours");
    page.goto("/health").await;
    page.wait_for_visible("text=Nothing is wrong").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    mode(0o644);
    // The next look, here by the command line, also updates the open page.
    device.cli(&["doctor"]).await;
    page.wait_for_visible("#problems article >> text=A private file is open to others").await;
    page.wait_for_visible("nav .count").await;
    judge.judge(page, "health-problem").await;
    page.goto("/").await;
    page.wait_for_visible("#banner >> text=A private file is open to others").await;
    judge.judge(page, "banner").await;
    page.click("#banner >> text=What to do").await;
    page.click("button >> text=Snooze for a day").await;
    page.wait_for_visible("text=Snoozed or ignored").await;
    assert_eq!((page.count("#problems article").await, page.count("nav .count").await), (0, 0));
    judge.judge(page, "health-left-out").await;
    page.click("text=Show it again").await;
    page.wait_for_visible("#problems article").await;
    mode(0o600);
    device.cli(&["doctor"]).await;
    page.wait_for_visible("text=Nothing is wrong").await;

    page.fill("#log", "nothing holds this").await;
    page.click("button >> text=Filter").await;
    page.wait_for_visible("#log-lines .empty").await;
    page.click("text=Download support bundle…").await;
    page.wait_for_visible("h1 >> text=Download a support bundle?").await;
    assert!(page.count("main li").await > 3, "it says what it holds");
    page.click("text=Back to Health").await;
    page.click("button >> text=Run all checks").await;
    page.wait_for_visible("text=Nothing is wrong").await;
}

#[tokio::test]
async fn a_click_on_a_notification_leads_to_the_request_itself() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, deskgate_tests::Folder::new());
    let notifier = Notifier::start(&device).await;
    let opened = device.folder().join("opened.html");
    std::fs::create_dir(device.programs()).expect("a fresh folder");
    let opener = device.programs().join("xdg-open");
    std::fs::write(&opener, format!("#!/bin/sh\ncp \"$1\" {}\n", opened.display())).expect("writable");
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).expect("ours");
    let backend = writer(&device, &folder).await;
    let run_id = backend.submit("Answer.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    until("the notification", async || {
        let shown = notifier.shown().await;
        if shown.as_array().is_some_and(|shown| shown.len() == 1) { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    notifier.is_clicked(1).await;
    let file = until("the pages to be opened", async || {
        let page = std::fs::read_to_string(&opened).unwrap_or_default();
        if page.ends_with("</a>\n") { Ok(page) } else { Err(page) }
    })
    .await;
    let link = file.split("url=").nth(1).and_then(|rest| rest.split('"').next()).expect("it leads on");

    let page = browser.window(deskgate_tests::browser::WindowOptions::default()).await;
    // As a browser reads the file.
    page.goto(&link.replace("&amp;", "&")).await;
    page.wait_for_visible("[data-card]:target >> text=reply.txt").await;
    let listed = device.cli(&["approval", "list"]).await.ok();
    let request = text(&listed, "/approvals/0/approval_id").to_owned();
    assert!(page.url().await.ends_with(&format!("/approvals#{request}")), "{}", page.url().await);
    assert_eq!(page.evaluate("document.activeElement.id").await, json!(request), "its keys count from here");
    page.click("[data-card]:target [data-allow]").await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");

    // A typed link to any own page is followed, and one to a foreign page is not.
    let link = device.plain_cli(&["open", "--print", "runs"]).await.stdout;
    page.goto(link.trim()).await;
    page.wait_for_visible("h1 >> text=Runs").await;
    assert_eq!(device.plain_cli(&["open", "--print", "//evil.example/"]).await.exit, 2);
}
