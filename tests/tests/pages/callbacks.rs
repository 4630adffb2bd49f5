//! An application's callback, from the first address to repeated deliveries.

use deskgate_tests::{Browser, TestDevice};
use serde_json::json;

use crate::{FIELDS_JS, text};

#[tokio::test]
async fn a_callback_is_set_tested_and_what_failed_is_sent_again() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["app", "create", "Billing"]).await.ok();
    let page = browser.signed_in(&device).await;
    page.goto("/deliveries").await;
    page.wait_for_visible("text=Nothing was delivered yet").await;
    page.goto("/applications").await;
    page.click("main >> text=Billing").await;
    page.click("text=Events and callbacks").await;
    page.wait_for_visible("text=Nothing is sent.").await;

    // A form that fails keeps its values.
    page.fill("#url", "https://localhost/hook").await;
    page.tick("input[value='run.started']", true).await;
    let filled = page.evaluate(FIELDS_JS).await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.click("button >> text=Set callback").await;
    page.wait_for_visible("[role=alert] >> text=only names of public hosts are possible").await;
    browser.tolerate(None).await;
    assert_eq!(page.evaluate(FIELDS_JS).await, filled);
    assert_eq!(page.evaluate("document.querySelector('#url').getAttribute('aria-invalid')").await, json!("true"));

    // Names under invalid never exist (RFC 6761).
    page.fill("#url", "https://hooks.invalid/in").await;
    page.click("button >> text=Set callback").await;
    let secret = page.text("#secret").await;
    assert!(secret.starts_with("whsec_"), "{secret}");
    page.tick("text=I have stored it", true).await;
    page.click("button >> text=Close").await;
    page.wait_for_visible("#state >> text=Blocked").await;
    assert!(!page.text("body").await.contains(&secret), "it is shown once");
    page.click("button >> text=Add hooks.invalid to the allowed hosts").await;
    page.wait_for_visible("#state >> text=On").await;
    let allowed = device.cli(&["allowlist", "show"]).await.ok();
    assert_eq!(allowed["hosts"], json!(["hooks.invalid"]));
    let shown = device.cli(&["callback", "show", "Billing"]).await.ok();
    let types = shown["callback"]["types"].as_array().expect("a list");
    assert!(types.contains(&json!("run.started")) && types.len() == 5, "{shown}");

    page.click("button >> text=Send a test event").await;
    page.wait_for_visible("#attempts >> text=DNS lookup failed").await;
    let listed = device.cli(&["delivery", "list"]).await.ok();
    assert_eq!(text(&listed, "/deliveries/0/type"), "webhook.test");
    assert_eq!(page.count("#attempts svg.timeline rect.failed").await, 1, "the attempt stands where it was in time");
    page.click("text=Send again…").await;
    page.wait_for_visible("dialog[open] >> text=with the same event ID").await;
    page.click("dialog button >> text=Send again").await;
    // The result shows by itself.
    page.wait_for_visible("#attempts tbody tr:nth-child(2)").await;

    page.goto("/deliveries").await;
    page.click("text=Recover failed since…").await;
    page.click("button >> text=Count them").await;
    page.wait_for_visible("[role=status] >> text=1 delivery of Billing failed").await;
    page.click("button >> text=Send them again").await;
    page.wait_for_visible("#deliveries >> text=webhook.test").await;

    page.goto("/applications").await;
    page.click("main >> text=Billing").await;
    page.click("text=Events and callbacks").await;
    page.click("text=Roll the secret…").await;
    page.click("dialog button >> text=Roll secret").await;
    let rolled = page.text("#secret").await;
    assert!(rolled.starts_with("whsec_") && rolled != secret);
    page.tick("text=I have stored it", true).await;
    page.click("button >> text=Close").await;
    page.wait_for_visible("#state >> text=Two secrets sign").await;
    page.click("button >> text=Switch off").await;
    page.wait_for_visible("#state >> text=You switched it off.").await;
    assert_eq!(device.cli(&["callback", "show", "Billing"]).await.ok()["callback"]["off"], "owner");

    page.goto("/deliveries/hosts").await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.fill("#hosts", "hooks.invalid, *.example.com").await;
    page.click("button >> text=Save").await;
    page.wait_for_visible("[role=alert] >> text=wildcards are not possible").await;
    browser.tolerate(None).await;
    page.fill("#hosts", "").await;
    page.click("button >> text=Save").await;
    page.goto("/deliveries/hosts").await;
    assert_eq!(device.cli(&["allowlist", "show"]).await.ok()["hosts"], json!([]));
}
