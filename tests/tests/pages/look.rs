//! How the pages are found one's way in: by the bar at the bottom of a narrow window, by the mark of the tab, and by list
//! and detail.

use deskgate_tests::browser::{BrowserPage, WindowOptions};
use deskgate_tests::{Browser, Folder, TestDevice, until};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::writer;

/// The mark of the tab, without the path of the pages.
async fn mark(page: &BrowserPage) -> String {
    let mark = page.evaluate("document.querySelector('link[rel=icon]').getAttribute('href')").await;
    mark.as_str().and_then(|mark| mark.rsplit('/').next()).expect("an address").to_owned()
}

#[tokio::test]
async fn a_narrow_window_has_five_places_at_its_bottom_and_all_others_behind_the_last() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let everywhere = page.count(".side .nav a").await;
    page.look("light", 390).await;
    page.wait_for_hidden(".side").await;
    assert_eq!(page.count(".bottom > :visible").await, 5);
    page.click(".bottom >> text=Runs").await;
    page.wait_for_visible("h1 >> text=Runs").await;
    page.wait_for_visible(".bottom [aria-current=page] >> text=Runs").await;

    page.click(".bottom >> text=More").await;
    page.wait_for_visible("#more >> text=Settings").await;
    let behind = page.count("#more a").await;
    // Besides the pages of the side bar there are search and shortcuts.
    assert_eq!(behind, everywhere - 4 + 2);
    page.click("#more >> text=Health").await;
    page.wait_for_visible("h1 >> text=Health").await;
    page.wait_for_visible(".bottom [aria-current=true] >> text=More").await;

    // By keys alone.
    page.tab_to("button", "More").await;
    page.press("Enter").await;
    page.wait_for_visible("#more >> text=Connection").await;
    page.tab_to("link", "Connection").await;
    page.press("Enter").await;
    page.wait_for_visible("h1 >> text=Connection").await;
}

#[tokio::test]
async fn the_bar_at_the_bottom_works_without_a_script() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let script = WindowOptions { script: Some(false), width: Some(390), ..WindowOptions::default() };
    let page = browser.window(script).await;
    page.goto(&device.page_link().await).await;
    page.click("text=Continue").await;
    page.click(".bottom >> text=More").await;
    page.click("#more >> text=Settings").await;
    page.wait_for_visible("h1 >> text=Settings").await;
}

#[tokio::test]
async fn the_mark_of_the_tab_shows_that_a_decision_waits() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    page.goto("/settings").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    assert_eq!(mark(&page).await, "mark.svg");
    let run_id = backend.submit("Answer.").await;
    let shown = async |wanted: &str| {
        until("the mark", async || match mark(&page).await {
            mark if mark == wanted => Ok(()),
            other => Err(other),
        })
        .await;
    };
    // The open page learns it by itself.
    shown("mark-waiting.svg").await;
    device.cli(&["run", "stop", &run_id]).await.ok();
    shown("mark.svg").await;
}

/// Two requests that wait at the same time, of two services.
#[tokio::test]
async fn requests_are_a_list_and_one_detail_by_mouse_by_keys_and_on_a_phone() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let mut backends = Vec::new();
    for app in ["first", "second"] {
        let write = json!({ "tool": "Write", "arguments": { "file_path": format!("{app}.txt"), "content": "Dear\n" } });
        let model = folder.script(app, json!([{ "text": "I save it." }, write, { "text": "Saved." }]));
        let backend = device.publish_here(app, &folder, &["--model", &model, "--tools", "Read,Write"]).await;
        let run_id = backend.submit("Answer.").await;
        backend.wait_for_state(&run_id, "awaiting_approval").await;
        backends.push((backend, run_id));
    }
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("inbox");
    page.goto("/approvals").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    assert_eq!(page.count("[data-card]:visible").await, 1, "one detail at a time");
    page.wait_for_visible("[data-card]:visible h2 >> text=first.txt").await;
    assert_eq!(page.text(".inbox [aria-current] b").await, "Write first.txt");
    judge.judge(&page, "list").await;

    page.click(".inbox > ul >> text=second.txt").await;
    page.wait_for_visible("[data-card]:visible h2 >> text=second.txt").await;
    assert_eq!(page.count("[data-card]:visible").await, 1);
    // What allows more is behind a menu, which Escape closes.
    page.click("[data-card]:visible summary >> text=Allow more…").await;
    page.wait_for_visible("[data-card]:visible button >> text=For the rest of this run").await;
    page.wait_for_visible("[data-card]:visible a >> text=Make a rule").await;
    page.press("Escape").await;
    page.wait_for_hidden("[data-card]:visible a >> text=Make a rule").await;
    assert_eq!(page.evaluate("document.activeElement.textContent").await, json!("Allow more…"));
    page.press("k").await;
    page.wait_for_visible("[data-card]:visible h2 >> text=first.txt").await;
    page.press("j").await;
    page.wait_for_visible("[data-card]:visible h2 >> text=second.txt").await;
    assert_eq!(page.text(".inbox [aria-current] b").await, "Write second.txt");
    // What is shown stays, whatever else changes.
    device.cli(&["run", "stop", &backends[0].1]).await.ok();
    page.wait_for_hidden(".inbox > ul >> text=first.txt").await;
    page.wait_for_visible("[data-card]:visible h2 >> text=second.txt").await;

    // A phone has the list, or the detail with a way back.
    page.look("light", 390).await;
    page.wait_for_visible("[data-card]:visible h2 >> text=second.txt").await;
    judge.judge(&page, "detail").await;
    page.look("light", 390).await;
    page.click("[data-card]:visible summary >> text=Deny and say why…").await;
    page.wait_for_visible("[data-card]:visible button >> text=Deny, and tell it").await;
    let wide = page.evaluate("document.documentElement.scrollWidth").await;
    assert!(wide.as_u64().is_some_and(|wide| wide <= 390), "{wide} pixels with an open menu");
    page.click("text=All requests").await;
    page.wait_for_hidden("[data-card] h2").await;
    page.click(".inbox > ul >> text=second.txt").await;
    page.click("[data-card]:visible [data-allow]").await;
    let (backend, run_id) = &backends[1];
    assert_eq!(backend.wait_for_end(run_id).await["state"], "succeeded");
    judge.sentence(2);
}

#[tokio::test]
async fn every_service_is_found_below_its_application_with_how_far_it_is() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let place = folder.path();
    let path = place.to_str().expect("a plain name");
    writer(&device, &folder).await;
    device.cli(&["app", "create", "Billing"]).await.ok();
    device.cli(&["service", "create", "Orders", "--app", "Billing", "--dir", path]).await.ok();
    let page = browser.signed_in(&device).await;
    page.click(".side >> text=Services").await;
    page.wait_for_visible("#services section:has-text('shop') .card >> text=Enabled").await;
    page.wait_for_visible("#services section:has-text('Billing') .card >> text=Draft").await;
    page.click("#services a >> text=Orders").await;
    page.wait_for_visible("h1 >> text=Orders").await;
}

#[tokio::test]
async fn a_desktop_window_shows_twelve_runs_without_scrolling() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("stock", json!([{ "text": "Forty-two." }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model, "--tools", "none"]).await;
    for number in 0..12 {
        let run_id = backend.submit(&format!("How many of number {number} are in stock?")).await;
        backend.wait_for_end(&run_id).await;
    }
    let page = browser.signed_in(&device).await;
    page.look("light", 1280).await;
    page.goto("/runs").await;
    page.wait_for_visible("tr.day >> text=Today").await;
    let rows = page.count("tbody tr[id]").await;
    let end =
        page.evaluate("[...document.querySelectorAll('tbody tr[id]')].at(-1).getBoundingClientRect().bottom").await;
    assert_eq!(rows, 12);
    assert!(end.as_f64().is_some_and(|end| end <= 800.0), "the last row ends at {end}");
    let mut judge = AccessibilityChecker::of("twelve");
    judge.judge(&page, "runs").await;
    judge.sentence(1);
}
