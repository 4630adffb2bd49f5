//! The editor of a service: templates, the folder picker, the models of a provider, and a test run beside the form.

use deskgate_tests::browser::{BrowserPage, WindowOptions};
use deskgate_tests::{Browser, Folder, TestDevice, until};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::{choose, text, writer, written};

/// A folder with folders in it, one of them hidden and one a link.
fn shelf() -> Folder {
    let folder = Folder::new();
    for name in ["drafts", "letters", ".cache"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    std::os::unix::fs::symlink("letters", folder.path().join("post")).expect("made");
    folder
}

async fn value(page: &BrowserPage, field: &str) -> String {
    let value = page.evaluate(&format!("document.querySelector('{field}').value")).await;
    value.as_str().expect("text").to_owned()
}

/// The editor of a new service of the application Billing, from a template.
async fn begin(device: &TestDevice, page: &BrowserPage, template: &str) {
    device.cli(&["app", "create", "Billing"]).await.ok();
    page.goto("/services").await;
    page.click("text=New service").await;
    page.click(&format!("main >> text={template}")).await;
    page.wait_for_visible("#name").await;
}

#[tokio::test]
async fn schemas_are_written_in_the_form_and_data_is_tried_and_shown() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, shelf());
    let model = folder.script("counts", json!([{ "text": "I counted." }, { "result": { "count": 2 } }]));
    device.publish_here("shop", &folder, &["--model", &model]).await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("editor");
    let shown = device.cli(&["service", "show", "shop"]).await.ok();
    page.goto(&format!("/services/{}", text(&shown, "/draft_id"))).await;
    page.click("#advanced summary >> nth=0").await;
    page.fill("#input_schema", "{").await;
    choose(&page, "button", "Save and check").await;
    page.wait_for_visible("#advanced .wrong >> text=input_schema: it is not JSON").await;
    assert_eq!(value(&page, "#input_schema").await, "{", "what was written stays");
    judge.judge(&page, "schema-wrong").await;
    page.fill("#input_schema", r#"{"type": "object", "required": ["month"]}"#).await;
    page.fill("#output_schema", r#"{"type": "object", "properties": {"count": {"$ref": "https://x.example/"}}}"#).await;
    choose(&page, "button", "Save and check").await;
    page.wait_for_visible("#advanced .wrong >> text=output_schema: /properties/count/$ref").await;
    page.fill("#output_schema", r#"{"type": "object", "properties": {"count": {"type": "integer"}}}"#).await;
    choose(&page, "button", "Save and check").await;
    page.wait_for_visible("#checks >> text=PASS").await;
    let shown = device.cli(&["service", "show", "shop"]).await.ok();
    assert_eq!(shown["draft"]["data"]["input_schema"]["required"], json!(["month"]), "{shown}");

    page.fill("#try-input", "How many?").await;
    page.fill("#try-data", "[").await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.click("#try button >> text=Send").await;
    page.wait_for_visible("#try >> text=The data is not JSON").await;
    browser.tolerate(None).await;
    page.fill("#try-data", r#"{"month": "2026-11"}"#).await;
    page.click("#try button >> text=Send").await;
    page.wait_for_visible("#trial >> text=Succeeded").await;
    page.wait_for_visible("#trial-data >> text=\"count\": 2").await;
    judge.judge(&page, "typed-trial").await;
    page.click("#trial >> text=Open this run").await;
    page.wait_for_visible("#input-data >> text=2026-11").await;
    page.wait_for_visible("#data >> text=\"count\": 2").await;
    page.wait_for_visible("#talk >> text=I counted.").await;
    judge.judge(&page, "typed-run").await;
    judge.sentence(3);
}

#[tokio::test]
async fn a_service_is_tried_with_files_that_are_chosen_in_the_form() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder, mine) = (TestDevice::built_in().await, shelf(), tempfile::tempdir().expect("new"));
    let steps = json!([{ "tool": "Read", "arguments": { "file_path": "@files/Größe.csv" } }, { "text": "{{last_tool_result}}" }]);
    let model = folder.script("reads", steps);
    device.publish_here("shop", &folder, &["--model", &model, "--takes-files", "yes"]).await;
    let shown = device.cli(&["service", "show", "shop"]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("editor");
    page.goto(&format!("/services/{}", text(&shown, "/draft_id"))).await;
    let (table, other, large) = (mine.path().join("Größe.csv"), mine.path().join("b.txt"), mine.path().join("large"));
    std::fs::write(&table, "a,b\nc,d\n").expect("written");
    std::fs::write(&other, "").expect("written");
    std::fs::File::create(&large).and_then(|file| file.set_len(64 * 1024 * 1024 + 1)).expect("sparse");

    page.fill("#try-input", "What is in it?").await;
    page.give("#try-files", &[&table, &large]).await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.click("#try button >> text=Send").await;
    page.wait_for_visible("#try [role=alert] >> text=\"large\" is too large").await;
    browser.tolerate(None).await;
    assert_eq!(value(&page, "#try-input").await, "What is in it?", "what was written stays");
    judge.judge(&page, "file-too-large").await;
    page.give("#try-files", &[&table, &other]).await;
    page.click("#try button >> text=Send").await;
    page.wait_for_visible("#trial >> text=Succeeded").await;
    page.wait_for_visible("#trial-answer >> text=a,b").await;
    page.click("#trial >> text=Open this run").await;
    page.wait_for_visible("#given >> text=Größe.csv").await;
    page.wait_for_visible("#given >> text=b.txt").await;
    judge.judge(&page, "files-given").await;
    judge.sentence(2);
    until("nothing to be left of the forms", async || {
        let left = std::fs::read_dir(device.home().join("uploads")).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} folders")) }
    })
    .await;
}

#[tokio::test]
async fn a_service_begins_as_a_template_and_its_folder_is_picked_by_mouse() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, shelf());
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("editor");
    begin(&device, &page, "Write drafts").await;
    judge.judge(&page, "drafts-begun").await;
    page.fill("#name", "Letters").await;
    page.fill("#instructions", "Write letters.").await;

    // The home directory is where it begins, and no service may have it.
    page.click("button >> text=Browse…").await;
    page.wait_for_visible("dialog >> text=No service may have this folder").await;
    assert_eq!(page.count("dialog button:disabled >> text=Use this folder").await, 1);
    judge.judge(&page, "picker-home").await;
    page.fill("#picker_typed", folder.path().to_str().expect("a plain name")).await;
    page.click("dialog button >> text=Go").await;
    page.wait_for_visible("dialog .folders >> text=letters >> nth=0").await;
    page.wait_for_visible("dialog .folders li:has-text('post') >> text=link to").await;
    assert_eq!(page.count("dialog .folders >> text=.cache").await, 0);
    page.click("dialog >> text=Show 1 hidden too").await;
    page.wait_for_visible("dialog .folders >> text=.cache").await;
    judge.judge(&page, "picker").await;
    page.click("dialog .folders >> text=drafts").await;
    page.wait_for_visible("dialog >> text=No folder in it").await;
    page.click("dialog .folders >> text=Up to").await;
    page.click("dialog .folders >> text=.cache").await;
    page.wait_for_visible("dialog >> text=No folder in it").await;
    page.click("dialog button >> text=Use this folder").await;
    page.wait_for_hidden("dialog").await;
    assert_eq!(value(&page, "#working_directory").await, folder.path().join(".cache").display().to_string());
    // What was typed meanwhile stayed, and nothing was saved.
    assert_eq!(value(&page, "#name").await, "Letters");
    assert_eq!(value(&page, "#instructions").await, "Write letters.");
    assert_eq!(device.cli(&["service", "list"]).await.ok()["services"], json!([]));

    // A folder that is not there is said, and leads back.
    page.fill("#working_directory", folder.path().join("gone").to_str().expect("a plain name")).await;
    page.click("button >> text=Browse…").await;
    page.wait_for_visible("dialog .wrong >> text=cannot be used").await;
    judge.judge(&page, "picker-missing").await;
    page.click("dialog >> text=Cancel").await;
    page.wait_for_hidden("dialog").await;

    // A path from ~ is understood, and shown whole.
    let inner = device.home().with_file_name("person").join("papers");
    std::fs::create_dir_all(&inner).expect("made");
    page.fill("#working_directory", "~/papers").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("h1 >> text=Letters").await;
    assert_eq!(value(&page, "#working_directory").await, inner.display().to_string());
    let saved = device.cli(&["service", "show", "Letters"]).await.ok();
    assert_eq!(saved["draft"]["tools"], json!(["Read", "Grep", "Glob", "Edit", "Write"]));
    assert_eq!(saved["draft"]["instructions"], "Write letters.");
    judge.sentence(4);
}

#[tokio::test]
async fn a_folder_is_picked_by_keys_alone() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, shelf());
    let page = browser.signed_in(&device).await;
    begin(&device, &page, "Help with code").await;
    page.has_focus("textbox", "Name").await;
    page.types("Shop").await;
    page.tab_to("textbox", "Folder").await;
    page.types(folder.path().to_str().expect("a plain name")).await;
    choose(&page, "button", "Browse…").await;
    page.wait_for_visible("dialog >> text=Choose a folder").await;
    page.has_focus("textbox", "Path").await;
    choose(&page, "button", "letters").await;
    page.wait_for_visible("dialog >> text=No folder in it").await;
    page.has_focus("button", "Up to").await;
    choose(&page, "button", "Use this folder").await;
    page.wait_for_hidden("dialog").await;
    page.has_focus("textbox", "Folder").await;
    assert_eq!(value(&page, "#working_directory").await, folder.path().join("letters").display().to_string());
    // Escape leaves the picker, and Enter in a field saves, and does not browse.
    choose(&page, "button", "Browse…").await;
    page.wait_for_visible("dialog >> text=Choose a folder").await;
    page.press("Escape").await;
    page.wait_for_hidden("dialog").await;
    page.tab_to("textbox", "Name").await;
    page.press("Enter").await;
    page.wait_for_visible("h1 >> text=/^Shop$/").await;
    let saved = device.cli(&["service", "show", "Shop"]).await.ok();
    assert_eq!(saved["draft"]["tools"], json!(["Read", "Grep", "Glob", "Edit", "Write", "Bash"]));
}

#[tokio::test]
async fn picker_and_models_work_without_a_script_and_keep_what_was_typed() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, shelf());
    // Nobody listens there.
    let url = "http://127.0.0.1:9/v1";
    device.cli(&["provider", "set", "away", "--profile", "compatible", "--base-url", url]).await.ok();
    let page = browser.window(WindowOptions { script: Some(false), ..WindowOptions::default() }).await;
    page.goto(&device.page_link().await).await;
    page.click("text=Continue").await;
    begin(&device, &page, "Answer questions").await;
    page.fill("#name", "Orders").await;
    page.fill("#working_directory", folder.path().to_str().expect("a plain name")).await;
    page.click("summary >> text=Advanced").await;
    page.fill("#max_turns", "7").await;
    page.click("button >> text=Browse…").await;
    page.click(".folders >> text=drafts").await;
    page.click("button >> text=Use this folder").await;
    page.wait_for_visible("h1 >> text=New service: answer questions").await;
    page.choose("#provider", "away").await;
    page.click("#model + button").await;
    // What fails is told beside the field, and everything else goes on.
    page.wait_for_visible("#models >> text=cannot be listed").await;
    page.fill("#model", "some-model").await;
    page.click("text=Save draft").await;
    page.wait_for_visible("h1 >> text=/^Orders$/").await;
    let saved = device.cli(&["service", "show", "Orders"]).await.ok();
    assert_eq!(text(&saved, "/draft/working_directory"), folder.path().join("drafts").to_str().expect("plain"));
    assert_eq!((&saved["draft"]["limits"]["max_turns"], &saved["draft"]["model"]), (&json!(7), &json!("some-model")));
    assert_eq!(saved["draft"]["provider"], "away");
}

#[tokio::test]
async fn a_test_run_streams_beside_the_form_is_allowed_there_and_leaves_what_is_typed() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    writer(&device, &folder).await;
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("try");
    let listed = device.cli(&["service", "list"]).await.ok();
    page.goto(&format!("/services/{}", text(&listed, "/services/0/draft_id"))).await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    assert_eq!(value(&page, "#try-of").await, "published");
    page.fill("#instructions", "Not saved yet.").await;

    page.fill("#try-input", "Answer the customer.").await;
    page.click("#try button >> text=Send").await;
    page.wait_for_visible("#trial >> text=I save it.").await;
    page.wait_for_visible("#trial >> text=May it use Write on").await;
    judge.judge(&page, "waits").await;
    page.click("#trial button >> text=Allow once").await;
    // What it was decided can be undone for a moment, in place.
    page.wait_for_visible("#try #undo >> text=Allowed once").await;
    page.wait_for_visible("#trial >> text=Succeeded").await;
    page.wait_for_visible("#trial summary >> text=Write").await;
    until("the file", async || written(&folder).ok_or_else(|| "not yet".to_owned())).await;
    assert_eq!(value(&page, "#instructions").await, "Not saved yet.");
    judge.judge(&page, "succeeded").await;

    // By keys, and with access paused meanwhile: the refusal is told in the panel, and the text is kept.
    device.cli(&["access", "pause"]).await.ok();
    page.wait_for_visible("header >> text=Access paused").await;
    page.fill("#try-input", "Once more.").await;
    browser.tolerate(Some("Failed to load resource")).await;
    choose(&page, "button", "Send").await;
    page.wait_for_visible("#try [role=alert] >> text=access is paused").await;
    browser.tolerate(None).await;
    assert_eq!(value(&page, "#try-input").await, "Once more.");
    judge.judge(&page, "refused").await;
    assert_eq!(value(&page, "#instructions").await, "Not saved yet.");
    judge.sentence(3);
}
