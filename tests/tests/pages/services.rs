//! A service from its first draft to its second version, and the providers it may use.

use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, Folder, TestDevice};
use serde_json::{Value, json};

use crate::accessibility::AccessibilityChecker;
use crate::{FIELDS_JS, text};

const PROVIDER_KEY: &str = "sk-ant-canary-of-the-pages-0123456789";

#[tokio::test]
async fn a_service_is_drafted_mended_published_and_edited_again() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    device.cli(&["app", "create", "Billing"]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("services");
    page.goto("/applications").await;
    page.click("main >> text=Billing").await;
    page.click("text=New service").await;
    judge.judge(&page, "gallery").await;
    page.click("main >> text=Begin with nothing chosen").await;
    a_draft_that_is_none_keeps_every_field(&page, &mut judge).await;
    what_fails_its_check_cannot_be_published(&page, &mut judge).await;
    page.fill("#working_directory", folder.path().to_str().expect("a plain name")).await;
    page.click("text=Save and check").await;
    page.wait_for_visible("#checks >> text=PASS").await;
    page.wait_for_hidden("#checks >> text=FAIL").await;
    publish(&page, &mut judge).await;
    let first = service(&device).await;
    assert_eq!(first["published"]["version"], 1, "{first}");

    a_new_draft_stands_beside_what_is_published(&device, &page, &mut judge).await;
    what_was_changed_elsewhere_is_not_written_over(&device, &page, &mut judge).await;
    judge.sentence(6);
}

/// The only service, as the command line shows it.
async fn service(device: &TestDevice) -> Value {
    let listed = device.cli(&["service", "list"]).await.ok();
    let [service] = &listed["services"].as_array().expect("a list")[..] else { panic!("{listed}") };
    service.clone()
}

async fn a_draft_that_is_none_keeps_every_field(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.fill("#name", "Orders").await;
    page.click("summary >> text=Advanced").await;
    page.fill("#description", "Answers questions\nabout orders.").await;
    page.fill("#working_directory", "relative/path").await;
    page.tick("input[value=Edit]", false).await;
    assert_eq!(page.count("#freely_in:visible").await, 0);
    page.click("text=Before changes outside one folder").await;
    page.fill("#freely_in", "drafts").await;
    page.click("summary >> text=Rules for single files").await;
    page.fill("#rules", "permit everything").await;
    page.fill("#max_turns", "many").await;
    let before = page.evaluate(FIELDS_JS).await;
    page.click("text=Save draft").await;
    page.wait_for_visible("[role=alert] >> text=Nothing was saved").await;
    assert_eq!(page.evaluate(FIELDS_JS).await, before);
    let invalid = page.evaluate("[...document.querySelectorAll('[aria-invalid=true]')].map((field) => field.id)").await;
    assert_eq!(invalid, json!(["working_directory", "rules", "max_turns"]));
    assert_eq!(page.evaluate("document.activeElement.id").await, json!("working_directory"));
    page.wait_for_visible("#max_turns").await;
    // The first of them has focus, and what they are in is open. Each message at the top links to its field.
    for field in ["working_directory", "rules", "max_turns"] {
        page.click(&format!("[role=alert] a[href='#{field}']")).await;
        assert_eq!(page.evaluate("document.activeElement.id").await, json!(field));
    }
    judge.judge(page, "failed-form").await;
}

async fn what_fails_its_check_cannot_be_published(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.fill("#rules", "").await;
    page.fill("#max_turns", "10").await;
    let folder = Folder::new();
    page.fill("#working_directory", folder.path().to_str().expect("a plain name")).await;
    page.click("text=Save draft").await;
    page.wait_for_visible("#checks >> text=Not checked yet").await;
    folder.vanish();
    page.click("text=Check capabilities").await;
    page.wait_for_visible("#checks >> text=FAIL").await;
    page.wait_for_visible("#stages >> text=failed").await;
    assert_eq!(page.count("#state button:disabled >> text=Publish").await, 1);
    judge.judge(page, "failed-check").await;
}

async fn publish(page: &BrowserPage, judge: &mut AccessibilityChecker) {
    page.click("#state a.primary >> text=Publish…").await;
    page.wait_for_visible("dialog >> text=Publish Orders?").await;
    judge.judge(page, "publish-dialog").await;
    page.click("dialog button >> text=Publish").await;
    page.wait_for_visible("#endpoint-id").await;
}

async fn a_new_draft_stands_beside_what_is_published(
    device: &TestDevice,
    page: &BrowserPage,
    judge: &mut AccessibilityChecker,
) {
    page.fill("#instructions", "Answer in one sentence.").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("#changes >> text=Answer in one sentence.").await;
    page.wait_for_visible("#stages >> text=this draft not").await;
    judge.judge(page, "edited-again").await;
    let edited = service(device).await;
    assert_eq!(edited["published"]["version"], 1, "callers keep what is published: {edited}");
    page.click("text=Check capabilities").await;
    page.click("#state a.primary >> text=Publish…").await;
    page.wait_for_visible("dialog >> text=It replaces version 1").await;
    page.click("dialog button >> text=Publish").await;
    page.wait_for_visible("#state >> text=Version 2 is published").await;
    assert_eq!(page.count("#changes").await, 0);
}

async fn what_was_changed_elsewhere_is_not_written_over(
    device: &TestDevice,
    page: &BrowserPage,
    judge: &mut AccessibilityChecker,
) {
    let draft_id = text(&service(device).await, "/draft_id").to_owned();
    page.click("summary >> text=Advanced").await;
    page.fill("#description", "Mine.").await;
    device.cli(&["service", "edit", &draft_id, "--description", "Theirs."]).await.ok();
    page.click("text=Save draft").await;
    page.wait_for_visible("[role=alert] >> text=changed elsewhere").await;
    assert_eq!(page.evaluate("document.querySelector('#description').value").await, json!("Mine."));
    assert_eq!(service(device).await["draft"]["description"], "Theirs.");
    judge.judge(page, "changed-elsewhere").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("#changes >> text=Mine.").await;
}

#[tokio::test]
async fn a_provider_names_a_wrong_secret_and_keeps_its_own() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("providers");
    page.goto("/settings").await;
    page.click("main >> text=Model providers and their keys").await;
    page.click("text=New provider").await;
    page.fill("#name", "work").await;
    page.fill("#base_url", "http://127.0.0.1:9").await;
    let wrong = deskgate_protocol::secret::ControlToken::generate();
    page.fill("#key", wrong.reveal()).await;
    page.click("text=Save provider").await;
    page.wait_for_visible("[role=alert] >> text=control token").await;
    assert!(!page.evaluate("document.documentElement.outerHTML").await.to_string().contains(wrong.reveal()));
    assert_eq!(page.evaluate("document.querySelector('#base_url').value").await, json!("http://127.0.0.1:9"));
    judge.judge(&page, "wrong-secret").await;
    page.fill("#key", PROVIDER_KEY).await;
    page.click("text=Save provider").await;
    page.wait_for_visible("h1 >> text=Model providers").await;
    let saved = || std::fs::read_to_string(device.home().join("providers/work.json")).expect("it was saved");
    assert!(saved().contains(PROVIDER_KEY));

    page.click("main >> text=work").await;
    page.wait_for_visible("text=saved · leave blank to keep").await;
    assert!(!page.evaluate("document.documentElement.outerHTML").await.to_string().contains(PROVIDER_KEY));
    judge.judge(&page, "saved").await;
    page.click("text=Save provider").await;
    page.wait_for_visible("h1 >> text=Model providers").await;
    assert!(saved().contains(PROVIDER_KEY), "a blank field keeps it");
    // The key does not go to another address either.
    page.click("main >> text=work").await;
    page.fill("#base_url", "http://127.0.0.1:10").await;
    page.click("text=Save provider").await;
    page.wait_for_visible("[role=alert]").await;
    assert!(saved().contains("127.0.0.1:9"), "{}", saved().replace(PROVIDER_KEY, "…"));
    judge.judge(&page, "another-address").await;

    page.goto("/providers").await;
    page.click("text=Remove…").await;
    page.wait_for_visible("dialog >> text=No service names it.").await;
    judge.judge(&page, "remove-dialog").await;
    page.click("dialog button >> text=Remove provider").await;
    page.wait_for_visible("text=No model provider yet").await;
    assert!(!device.home().join("providers/work.json").exists());
    judge.sentence(4);
}

/// The only service, or none.
async fn stage(device: &TestDevice) -> Option<String> {
    let listed = device.cli(&["service", "list"]).await.ok();
    listed["services"].as_array().expect("a list").first().map(|service| text(service, "/stage").to_owned())
}

#[tokio::test]
async fn a_service_is_renamed_disabled_unpublished_and_removed_from_its_page() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("slow", json!([{ "delay_ms": 600_000 }, { "text": "done" }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model]).await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("service-life");
    let address = format!("/services/{}", text(&service(&device).await, "/draft_id"));
    let (running, queued) = (backend.submit("Take your time.").await, backend.submit("And this?").await);
    backend.wait_for_state(&running, "running").await;

    page.goto(&address).await;
    page.click("#life summary").await;
    judge.judge(&page, "menu").await;
    page.click("#life a[href$='/disable']").await;
    page.wait_for_visible("dialog >> text=What was accepted is executed").await;
    judge.judge(&page, "disable-dialog").await;
    page.click("dialog button >> text=Disable service").await;
    page.wait_for_visible("#stages >> text=this service is disabled").await;
    assert_eq!(stage(&device).await.as_deref(), Some("disabled"));
    page.click("#life summary").await;
    page.click("#life a[href$='/enable']").await;
    page.click("dialog button >> text=Enable service").await;
    page.wait_for_hidden("#stages >> text=this service is disabled").await;

    // By keyboard alone.
    page.goto(&address).await;
    page.tab_to("DisclosureTriangle", "More…").await;
    page.press("Enter").await;
    page.press("Tab").await;
    page.has_focus("link", "Rename…").await;
    page.press("Enter").await;
    page.wait_for_visible("dialog >> text=Callers see shop until").await;
    judge.judge(&page, "rename-dialog").await;
    page.has_focus("link", "Cancel").await;
    page.fill("dialog #step-name", "").await;
    page.tab_to("textbox", "New name").await;
    page.types("Orders").await;
    page.press("Enter").await;
    page.wait_for_visible("h1 >> text=Orders").await;

    page.click("#life summary").await;
    page.click("#life a[href$='/unpublish']").await;
    page.wait_for_visible("dialog >> text=1 queued run, cancelled").await;
    page.wait_for_visible("dialog >> text=1 started run, stopped").await;
    judge.judge(&page, "unpublish-dialog").await;
    page.click("dialog a[data-cancel]").await;
    assert_eq!(text(&backend.run(&queued).await, "/state"), "queued", "what was asked and not confirmed is not done");
    page.click("#life summary").await;
    page.click("#life a[href$='/unpublish']").await;
    page.click("dialog button >> text=Unpublish service").await;
    page.wait_for_visible("#state >> text=It has no service ID").await;
    for run_id in [&running, &queued] {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), "cancelled");
    }

    page.click("#life summary").await;
    page.click("#life a[href$='/move']").await;
    page.wait_for_visible("dialog >> text=There is no other active application").await;
    judge.judge(&page, "nowhere-to-move").await;
    page.click("dialog a[data-cancel]").await;
    page.click("#life summary").await;
    page.click("#life a[href$='/remove']").await;
    page.wait_for_visible("dialog >> text=It cannot be put back").await;
    page.click("dialog button >> text=Remove service").await;
    page.wait_for_visible("h1 >> text=shop").await;
    assert_eq!(stage(&device).await, None);
    page.goto("/runs").await;
    page.wait_for_visible("main >> text=(removed)").await;
    judge.sentence(5);
}

#[tokio::test]
async fn the_page_of_a_service_whose_application_was_removed_offers_nothing_that_cannot_work() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    device.publish_here("shop", &folder, &[]).await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("ended-service");
    let address = format!("/services/{}", text(&service(&device).await, "/draft_id"));
    device.cli(&["app", "disable", "shop", "--yes", "--wait", "2m"]).await.ok();
    page.goto(&address).await;
    page.wait_for_visible("main >> text=Its application shop was disabled").await;
    device.cli(&["app", "remove", "shop", "--yes"]).await.ok();
    page.goto(&address).await;
    page.wait_for_visible("main >> text=Its application shop was removed").await;
    for gone in ["Publish…", "Check capabilities", "Save draft", "What a caller would send"] {
        assert_eq!(page.count(&format!("main >> text={gone}")).await, 0, "{gone}");
    }
    judge.judge(&page, "ended").await;

    device.cli(&["app", "create", "Billing"]).await.ok();
    page.click("text=Move to another application…").await;
    page.wait_for_visible("dialog #step-app").await;
    judge.judge(&page, "move-dialog").await;
    page.click("dialog button >> text=Move service").await;
    page.wait_for_visible("#state >> text=It has no service ID").await;
    page.click("#state a.primary >> text=Publish…").await;
    page.click("dialog button >> text=Publish").await;
    page.wait_for_visible("#endpoint-id").await;
    assert_eq!(stage(&device).await.as_deref(), Some("published"));

    page.click("#life summary").await;
    page.click("#life a[href$='/duplicate']").await;
    page.fill("dialog #step-name", " ").await;
    page.click("dialog button >> text=Duplicate").await;
    page.wait_for_visible("[role=alert]").await;
    judge.judge(&page, "no-name").await;
    page.fill("#step-name", "Copy").await;
    page.click("button >> text=Duplicate").await;
    page.wait_for_visible("h1 >> text=Copy").await;
    judge.sentence(3);
}
