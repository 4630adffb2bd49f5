//! From the sign-in link of a fresh agent to a finished test run, by the overview's first steps.

use deskgate_tests::browser::{BrowserPage, WindowOptions};
use deskgate_tests::{Browser, Folder, TestDevice};

use crate::{agree, choose, enabled, text};

/// The question for the scripted assistant, and a text of its answer.
const QUESTION_TEXT: &str = "Which order is due on Friday?";
const ANSWER_TEXT: &str = "4711";

/// Waits until the command line shows the only run as done.
async fn the_run_is_done(device: &TestDevice) {
    let listed = device.cli(&["run", "list"]).await.ok();
    let [run] = &listed["runs"].as_array().expect("a list")[..] else { panic!("{listed}") };
    assert_eq!(text(run, "/state"), "succeeded", "{run}");
    let listed = device.cli(&["key", "list", "--app", "Billing"]).await.ok();
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(enabled(device).await);
}

#[tokio::test]
async fn a_newcomer_gets_from_the_link_to_a_finished_test_run_by_mouse() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let page = browser.signed_in(&device).await;

    page.click("#steps >> text=New application").await;
    page.fill("#name", "Billing").await;
    page.click("text=Create application").await;
    page.wait_for_visible("h1 >> text=Key created").await;
    page.tick("text=I have stored it", true).await;
    page.click("text=Close").await;

    page.click(".side >> text=Overview").await;
    page.click("#steps >> text=New service").await;
    page.click("main >> text=Answer questions").await;
    page.fill("#name", "Orders").await;
    page.fill("#working_directory", folder.path().to_str().expect("a plain name")).await;
    page.click("text=Save draft").await;
    page.wait_for_visible("h1 >> text=Orders").await;

    page.click(".side >> text=Overview").await;
    page.click("#steps a >> text=Check and publish").await;
    page.click("button >> text=Check capabilities").await;
    page.wait_for_visible("#checks >> text=PASS").await;
    page.click("a >> text=Publish…").await;
    page.click("dialog button >> text=Publish").await;
    page.wait_for_visible("#state >> text=Service ID").await;
    page.click("#stages >> text=Enable access…").await;
    page.click("dialog button >> text=Enable access").await;

    page.wait_for_visible("header >> text=Access enabled").await;
    page.click("#steps a >> text=Try it").await;
    page.fill("#try-input", QUESTION_TEXT).await;
    page.click("#try button >> text=Send").await;
    // The page is not reloaded.
    page.wait_for_visible("#trial >> text=Succeeded").await;
    page.wait_for_visible("#trial-answer >> text=orders.txt").await;
    page.click(".side >> text=Overview").await;
    page.wait_for_visible("#runs >> text=Succeeded").await;
    assert_eq!(page.count("#steps").await, 0, "all of it is done");
    the_run_is_done(&device).await;
}

#[tokio::test]
async fn a_newcomer_gets_from_the_link_to_a_finished_test_run_by_keys_alone() {
    let Some(browser) = Browser::start().await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let page = browser.window(WindowOptions::default()).await;
    page.goto(&device.page_link().await).await;
    page.wait_for_visible(".side [aria-current] >> text=Overview").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;

    choose(&page, "link", "New application").await;
    page.wait_for_visible("h1 >> text=New application").await;
    page.has_focus("textbox", "Name").await;
    page.types("Billing").await;
    page.press("Enter").await;
    page.wait_for_visible("h1 >> text=Key created").await;
    page.tab_to("checkbox", "I have stored it.").await;
    page.press("Space").await;
    choose(&page, "button", "Close").await;

    page.wait_for_visible("h1 >> text=Billing").await;
    choose(&page, "link", "New service").await;
    page.wait_for_visible("h1 >> text=New service").await;
    choose(&page, "link", "Answer questions").await;
    page.wait_for_visible("h1 >> text=New service: answer questions").await;
    page.has_focus("textbox", "Name").await;
    page.types("Orders").await;
    page.tab_to("textbox", "Folder").await;
    page.types(folder.path().to_str().expect("a plain name")).await;
    choose(&page, "button", "Save and check").await;
    page.wait_for_visible("#checks >> text=PASS").await;
    choose(&page, "link", "Publish…").await;
    agree(&page, "Publish Orders?", "Publish").await;
    page.wait_for_visible("#state >> text=Service ID").await;

    question_is_left_where_it_was_asked(&device, &page).await;
    choose(&page, "link", "Enable access…").await;
    agree(&page, "Enable access?", "Enable access").await;
    page.wait_for_visible(".side [aria-current] >> text=Overview").await;
    choose(&page, "link", "Try it").await;
    page.wait_for_visible("#try").await;
    page.tab_to("textbox", "What a caller would send").await;
    page.types(QUESTION_TEXT).await;
    choose(&page, "button", "Send").await;
    page.wait_for_visible("#trial >> text=Succeeded").await;
    page.wait_for_visible(&format!("#trial-answer >> text={ANSWER_TEXT}")).await;
    the_run_is_done(&device).await;
    focus_stays_when_what_has_it_is_replaced(&device, &page).await;
}

/// Escape closes a question, and focus returns to the element that opened it, even if that was replaced meanwhile.
async fn question_is_left_where_it_was_asked(device: &TestDevice, page: &BrowserPage) {
    choose(page, "link", "Enable access…").await;
    page.wait_for_visible("dialog >> text=Enable access?").await;
    page.press("Escape").await;
    page.wait_for_hidden("dialog").await;
    page.has_focus("link", "Enable access…").await;

    page.reload().await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    choose(page, "link", "Access paused").await;
    page.wait_for_visible("dialog >> text=Enable access?").await;
    device.cli(&["access", "enable"]).await.ok();
    page.wait_for_visible("header >> text=Access enabled").await;
    page.press("Escape").await;
    page.wait_for_hidden("dialog").await;
    page.has_focus("link", "Access enabled").await;
    device.cli(&["access", "pause"]).await.ok();
    page.wait_for_visible("header >> text=Access paused").await;
    page.has_focus("link", "Access paused").await;
}

async fn focus_stays_when_what_has_it_is_replaced(device: &TestDevice, page: &BrowserPage) {
    page.tab_to("link", "Overview").await;
    page.press("Enter").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    page.tab_to("link", "Access enabled").await;
    for (command, shown) in [("pause", "paused"), ("enable", "enabled")] {
        device.cli(&["access", command]).await.ok();
        page.wait_for_visible(&format!("header >> text=Access {shown}")).await;
        page.has_focus("link", &format!("Access {shown}")).await;
    }
}
