//! Spending, and its budgets, with a model that has a price.

use deskgate_tests::browser::BrowserPage;
use deskgate_tests::vendors::{ModelVendor, Move, Vendor};
use deskgate_tests::{Backend, Browser, Folder, TestDevice};
use serde_json::{Value, json};

use crate::accessibility::AccessibilityChecker;
use crate::raw_http::RawSession;
use crate::{FIELDS_JS, agree, choose, text};

/// A service whose model answers, and has answered once. Returns what that cost, in millionths of a dollar.
async fn spent_once(device: &TestDevice, vendor: &ModelVendor, folder: &Folder) -> (Backend, u64) {
    let (base_url, key_file) = (vendor.base_url(), vendor.key_file());
    let key_file = key_file.to_str().expect("a plain name");
    let set = ["provider", "set", "work", "--profile", "anthropic", "--base-url", &base_url, "--key-file", key_file];
    device.cli(&set).await.ok();
    let service = ["--provider", "work", "--model", Vendor::Anthropic.model()];
    let backend = device.publish_here("shop", folder, &service).await;
    backend.wait_for_end(&backend.submit("How many lamps?").await).await;
    let month = device.cli(&["spending"]).await.ok();
    (backend, month["services"][0]["cost"].as_u64().expect("priced"))
}

async fn budgets(device: &TestDevice) -> Value {
    device.cli(&["budget", "list"]).await.ok()["budgets"].clone()
}

/// An amount of which so many percent are spent, in dollars.
fn usd(cost: u64, percent: u64) -> String {
    format!("{:.6}", (cost * 100).div_ceil(percent) as f64 / 1e6)
}

#[tokio::test]
async fn a_budget_is_set_changed_and_removed_beside_what_is_spent() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let vendor = ModelVendor::start(Vendor::Anthropic, vec![Move::Say("Three lamps.".to_owned())]).await;
    let (backend, cost) = spent_once(&device, &vendor, &folder).await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("spending");
    page.goto("/").await;
    page.click("#spending >> text=Spending and budgets").await;
    page.wait_for_visible("h1 >> text=Spending and budgets").await;
    for row in ["device", backend.endpoint_id()] {
        let shown = page.text(&format!("#row-{row}")).await;
        assert!(shown.contains(&format!("${:.4}", cost as f64 / 1e6)) && shown.contains("none"), "{row}: {shown}");
    }
    judge.judge(&page, "without-budgets").await;

    page.click("#row-device >> text=Set budget").await;
    page.wait_for_visible("h1 >> text=Budget of all services").await;
    nonsense_is_refused_in_its_place(&page, &mut judge).await;
    assert_eq!(budgets(&device).await, json!([]), "nothing of it was kept");

    // Nine tenths are spent: the page, its banner and Health say so at once.
    save(&page, &usd(cost, 90), "").await;
    page.wait_for_visible("[role=status] >> text=The budget is saved").await;
    page.wait_for_visible("#row-device >> text=nearly all").await;
    page.wait_for_visible("#banner >> text=A budget is nearly used up").await;
    judge.judge(&page, "nearly-used-up").await;
    page.click("#banner >> text=What to do").await;
    save(&page, &usd(cost, 120), "5000000").await;
    page.wait_for_visible("#row-device >> text=used up").await;
    assert!(page.text("#row-device").await.contains("5,000,000 tokens"));
    judge.judge(&page, "used-up").await;
    page.goto("/health").await;
    page.click("#problems >> text=Fix…").await;
    assert_eq!(page.evaluate("document.querySelector('#tokens').value").await, json!("5000000"), "as it is set");
    judge.judge(&page, "used-up-form").await;
    page.goto("/").await;
    page.wait_for_visible("#spending >> text=Budget of all services").await;
    judge.judge(&page, "overview").await;

    page.goto("/spending/device").await;
    choose(&page, "link", "Remove budget…").await;
    agree(&page, "Remove the budget of all services?", "Remove budget").await;
    page.wait_for_visible("[role=status] >> text=The budget is removed").await;
    page.wait_for_hidden("#banner .problem").await;
    assert_eq!(budgets(&device).await, json!([]));
    for_one_service_and_one_application(&device, &page, &backend, &mut judge).await;
    judge.sentence(7);
}

/// Fills in the form, and saves.
async fn save(page: &BrowserPage, usd: &str, tokens: &str) {
    page.fill("#usd", usd).await;
    page.fill("#tokens", tokens).await;
    page.click("text=Save budget").await;
}

async fn nonsense_is_refused_in_its_place(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    for (usd, tokens, wrong) in
        [("much", "0", &["usd", "tokens"][..]), ("0", "", &["usd"]), ("", "1.5", &["tokens"]), ("-3", "7", &["usd"])]
    {
        page.fill("#usd", usd).await;
        page.fill("#tokens", tokens).await;
        let before = page.evaluate(FIELDS_JS).await;
        page.click("text=Save budget").await;
        for field in wrong {
            page.wait_for_visible(&format!("[role=alert] >> a[href='#{field}']")).await;
            page.wait_for_visible(&format!("#{field}-error")).await;
        }
        let invalid = "[...document.querySelectorAll('[aria-invalid=true]')].map((field) => field.id)";
        assert_eq!(page.evaluate(invalid).await, json!(wrong), "{usd} {tokens}");
        assert_eq!(page.evaluate(FIELDS_JS).await, before);
        if wrong.len() == 2 {
            judge.judge(page, "refused").await;
        }
    }
    save(page, "", "").await;
    page.wait_for_visible("[role=alert] >> text=dollars, tokens or both").await;
}

async fn for_one_service_and_one_application(
    device: &TestDevice,
    page: &BrowserPage,
    backend: &Backend,
    judge: &mut AccessibilityChecker,
) {
    let service = device.cli(&["service", "list"]).await.ok()["services"][0].clone();
    page.goto(&format!("/services/{}", text(&service, "/draft_id"))).await;
    page.click("#state >> text=Spending and budget").await;
    page.wait_for_visible("h1 >> text=Budget of the service shop").await;
    save(page, "2.5", "").await;
    page.wait_for_visible(&format!("#row-{} >> text=$2.50", backend.endpoint_id())).await;
    let set = budgets(device).await;
    assert_eq!(
        (&set[0]["scope"]["service"], &set[0]["budget"]),
        (&json!(backend.endpoint_id()), &json!({ "cost": 2_500_000 }))
    );
    page.goto(&format!("/applications/{}", text(&service, "/app_id"))).await;
    page.click("text=Spending and budget").await;
    page.wait_for_visible("h1 >> text=Budget of the application shop").await;
    save(page, "", "900000").await;
    page.wait_for_visible("[role=status] >> text=The budget is saved").await;
    judge.judge(page, "with-budgets").await;
    // The service's page has the other budget that holds for it.
    page.goto(&format!("/spending/{}", backend.endpoint_id())).await;
    page.wait_for_visible("#spent >> text=Budget of the application shop").await;
    judge.judge(page, "two-budgets").await;
    page.goto("/spending").await;
    page.click("text=Month before").await;
    page.wait_for_visible("text=No model was called.").await;
    judge.judge(page, "month-before").await;
}

#[tokio::test]
async fn a_budget_for_what_is_not_there_and_a_month_that_is_none_are_refused() {
    let device = TestDevice::built_in().await;
    let hand = RawSession::signed_in(&device).await;
    let (application, service) = ("app_0198f0f0000070008000000000000000", "ep_0198f0f0000070008000000000000000");
    for scope in [application, service, "everything", "%3Cimg%3E"] {
        let path = format!("/spending/{scope}");
        let answer = hand.get(&path).await;
        assert!(answer.status == 404 && !answer.body.contains("<img"), "{scope}: {answer:?}");
        assert_eq!(hand.post(&path, &hand.own(), &format!("token={}&usd=5", hand.token)).await.status, 404, "{scope}");
    }
    let nothing = hand.post("/spending/device", &hand.own(), &format!("token={}&usd=0&tokens=5", hand.token)).await;
    assert!(nothing.status == 422 && nothing.body.contains("value=\"0\""), "{nothing:?}");
    assert_eq!(hand.get("/spending?month=2026-13").await.status, 422);
    assert_eq!(hand.get("/spending/device/remove").await.status, 404);
    assert_eq!(budgets(&device).await, json!([]));
}
