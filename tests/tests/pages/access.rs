//! Pausing and enabling access to all published services of this computer.

use deskgate_tests::{Browser, TestDevice};
use serde_json::json;

use crate::enabled;

/// Whether the link to the question of access has focus.
const IS_ACCESS_FOCUSED_JS: &str = "new URL(document.activeElement.href ?? location.href).pathname.endsWith('/access')";
const FOCUSED_TEXT_JS: &str = "document.activeElement.textContent.trim()";

#[tokio::test]
async fn access_is_paused_and_enabled_in_a_dialog_and_by_keys_alone() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["access", "enable"]).await.ok();
    let page = browser.signed_in(&device).await;

    page.click("header >> text=Access enabled").await;
    page.wait_for_visible("dialog >> text=Pause access?").await;
    assert_eq!(page.evaluate(FOCUSED_TEXT_JS).await, json!("Cancel"), "who presses Enter at once changes nothing");
    page.click("dialog >> text=Cancel").await;
    page.wait_for_hidden("dialog").await;
    assert!(enabled(&device).await);
    page.click("header >> text=Access enabled").await;
    page.click("dialog button >> text=Pause access").await;
    page.wait_for_visible("header >> text=Access paused").await;
    assert!(!enabled(&device).await);

    // Only with the keyboard, from the top of a fresh page.
    page.reload().await;
    let mut steps = 0;
    while page.evaluate(IS_ACCESS_FOCUSED_JS).await != json!(true) {
        page.press("Tab").await;
        steps += 1;
        assert!(steps < 10, "the way to it is long: {}", page.evaluate(FOCUSED_TEXT_JS).await);
    }
    page.press("Enter").await;
    page.wait_for_visible("dialog >> text=Enable access?").await;
    page.press("Escape").await;
    page.wait_for_hidden("dialog").await;
    assert_eq!(page.evaluate(IS_ACCESS_FOCUSED_JS).await, json!(true), "focus came back");
    assert!(!enabled(&device).await);
    page.press("Enter").await;
    page.wait_for_visible("dialog >> text=Enable access?").await;
    assert_eq!(page.evaluate(FOCUSED_TEXT_JS).await, json!("Cancel"));
    page.press("Tab").await;
    assert_eq!(page.evaluate(FOCUSED_TEXT_JS).await, json!("Enable access"));
    page.press("Enter").await;
    page.wait_for_visible("header >> text=Access enabled").await;
    assert!(enabled(&device).await);

    // A change that was made elsewhere shows by itself.
    device.cli(&["access", "pause"]).await.ok();
    page.wait_for_visible("header >> text=Access paused").await;
}
