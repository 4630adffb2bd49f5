//! An application from its creation to the list of removed ones, and forms that fail.

use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, Folder, TestDevice};
use serde_json::json;

use crate::{FIELDS_JS, text};

/// Longer than any test: such a run ends only by a stop.
const ENDLESS_RUN_MS: u64 = 3_600_000;

/// Confirms that the shown key is stored; it is then shown no more. Returns the key.
async fn stored(page: &BrowserPage) -> String {
    let key = page.text("#key").await;
    assert!(key.starts_with("dgk_"), "{key}");
    page.click("button >> text=Close").await;
    // Without the tick nothing happens.
    assert_eq!(page.evaluate("document.querySelector('input[type=checkbox]').validity.valid").await, json!(false));
    page.tick("text=I have stored it", true).await;
    page.click("button >> text=Close").await;
    page.wait_for_visible("#keys").await;
    assert!(!page.url().await.contains('?'), "nothing of the form stays in the address");
    assert!(!page.text("body").await.contains(&key), "it is shown once");
    key
}

#[tokio::test]
async fn an_application_is_created_keyed_disabled_and_removed() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    page.click(".side >> text=Applications").await;
    page.click("text=New application").await;
    page.fill("#name", "Billing").await;
    page.click("text=Create application").await;
    page.wait_for_visible("h1 >> text=Key created").await;
    let first = stored(&page).await;
    // A run is in progress when it is disabled.
    let folder = Folder::new();
    let slow = folder.slow_answer(ENDLESS_RUN_MS, "never");
    let endpoint_id = device.add_service("Billing", "Ask", &folder, &["--model", &slow]).await;
    device.cli(&["access", "enable"]).await.ok();
    let backend = device.caller_here(&first, &endpoint_id).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    let address = page.url().await.trim_end_matches('?').to_owned();

    page.click("text=New key").await;
    page.fill("#name", "reader").await;
    for scope in ["runs:write", "runs:control", "conversations:write", "conversations:control", "files:write"] {
        page.tick(&format!("input[value='{scope}']"), false).await;
    }
    page.fill("#subject", "customer-7").await;
    page.click("text=Create key").await;
    let narrow = stored(&page).await;
    let listed = device.cli(&["key", "list", "--app", "Billing"]).await.ok();
    let of = |name: &str| {
        let keys = listed["keys"].as_array().expect("a list");
        keys.iter().find(|key| key["name"] == name).unwrap_or_else(|| panic!("no {name} in {listed}")).clone()
    };
    let reader = of("reader");
    assert_eq!(reader["fixed_subject"], "customer-7");
    assert_eq!(reader["scopes"].as_array().map(Vec::len), Some(4), "{reader}");

    let row = format!("#row-{}", text(&reader, "/key_id"));
    page.click(&format!("{row} >> text=Roll…")).await;
    page.tick("dialog input[value=now]", true).await;
    page.click("dialog button >> text=Roll key").await;
    page.wait_for_visible("h1 >> text=Key created").await;
    let rolled = stored(&page).await;
    assert!(rolled != narrow && narrow != first);
    page.wait_for_hidden(&format!("{row} >> text=Roll…")).await;

    // The end of another key is no confirmation.
    page.click("tr:has-text('Active') >> nth=0 >> text=Revoke…").await;
    page.fill("dialog #confirm", "nope").await;
    page.click("dialog button >> text=Revoke key").await;
    page.wait_for_visible("[role=alert] >> text=Nothing was changed").await;
    let asked = page.text("label[for=confirm] strong").await;
    page.fill("#confirm", &asked).await;
    page.click("button >> text=Revoke key").await;
    page.wait_for_visible("tr >> text=Revoked").await;
    assert_eq!(page.url().await, address);

    page.click("text=Disable application…").await;
    page.fill("dialog #confirm", "billing").await;
    page.click("dialog button >> text=Disable application").await;
    page.wait_for_visible("[role=alert] >> text=Nothing was changed").await;
    page.fill("#confirm", "Billing").await;
    page.click("button >> text=Disable application").await;
    // The page learns by itself that the run has ended, and then offers completion. If the run ended while the
    // application was being disabled, there is nothing left to complete.
    page.wait_for_visible("#state form button:enabled, #state a[href$='/remove']").await;
    if page.count("#state form button:enabled").await > 0 {
        page.click("button:enabled >> text=Complete disabling").await;
    }
    page.wait_for_visible("#head >> text=Disabled").await;
    page.click("text=Remove from list…").await;
    page.click("dialog button >> text=Remove from list").await;
    page.wait_for_visible("h1 >> text=Removed").await;
    page.click("main >> text=Billing").await;
    page.wait_for_visible("text=This is its history").await;
    assert_eq!(
        page.count("main form, main a.button:not([href$=\".jsonl\"])").await,
        0,
        "it can be taken along, and that is all"
    );
}

#[tokio::test]
async fn a_form_that_fails_keeps_every_field_and_says_what_is_wrong() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["app", "create", "Billing"]).await.ok();
    let page = browser.signed_in(&device).await;
    page.goto("/applications/new").await;
    page.fill("#name", "Billing").await;
    page.click("text=Create application").await;
    page.wait_for_visible("[role=alert]").await;
    assert_eq!(page.evaluate("document.querySelector('#name').value").await, json!("Billing"));
    assert_eq!(page.evaluate("document.querySelector('#name').getAttribute('aria-invalid')").await, json!("true"));

    page.goto("/applications").await;
    page.click("main >> text=Billing").await;
    page.click("text=New key").await;
    page.fill("#name", "prod").await;
    page.tick("input[value='runs:control']", false).await;
    page.fill("#subject", "customer-7").await;
    page.fill("#expires", "2099-12-24").await;
    page.fill("#networks", "10.0.0.0/8, not a range").await;
    let before = page.evaluate(FIELDS_JS).await;
    page.click("text=Create key").await;
    page.wait_for_visible("[role=alert]").await;
    assert_eq!(page.evaluate(FIELDS_JS).await, before);
    let listed = device.cli(&["key", "list", "--app", "Billing"]).await.ok();
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(1), "{listed}");
}
