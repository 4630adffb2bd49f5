//! A browser signs in by a one-time link.

use deskgate_tests::browser::WindowOptions;
use deskgate_tests::{Browser, TestDevice};
use serde_json::json;

use crate::{enabled, text};

#[tokio::test]
async fn a_link_signs_one_browser_in_and_nobody_afterwards() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let link = device.page_link().await;
    let (first, second) =
        (browser.window(WindowOptions::default()).await, browser.window(WindowOptions::default()).await);

    first.goto(&link).await;
    first.wait_for_visible(".side [aria-current] >> text=Overview").await;
    let (url, mount) = (first.url().await, first.mount().await);
    assert_eq!(url, format!("{mount}/"), "the code is in the address no more");
    let path = mount.rsplit('/').next().expect("a path");
    assert!(path.len() == 22 && !link.contains(path), "the link leads below a path that it does not name: {url}");
    first.reload().await;
    first.wait_for_visible(".side [aria-current] >> text=Overview").await;
    let [cookie] = &first.cookies().await[..] else { panic!("{:?}", first.cookies().await) };
    assert!(text(cookie, "/name").starts_with("ui_"), "{cookie}");
    assert_eq!((&cookie["httpOnly"], &cookie["sameSite"]), (&json!(true), &json!("Strict")), "{cookie}");
    assert_eq!(cookie["expires"], json!(-1), "it ends with the browser");
    assert_eq!(cookie["path"], json!(format!("/{path}/")), "{cookie}");
    assert_eq!(first.evaluate("document.cookie").await, json!(""), "no script reads it");

    second.goto(&link).await;
    second.wait_for_visible("[role=alert] >> text=used up").await;
    assert_eq!(second.cookies().await, Vec::<serde_json::Value>::new());
    let origin = first.origin().await;
    second.goto(&format!("{origin}/applications")).await;
    second.wait_for_visible("h1 >> text=Open from your computer").await;

    // A browser that preloads a link only reads it, and sends nothing.
    let link = device.page_link().await;
    let ahead = browser.window(WindowOptions { script: Some(false), ..WindowOptions::default() }).await;
    ahead.goto(&link).await;
    ahead.wait_for_visible("text=Continue").await;
    assert_eq!(ahead.cookies().await, Vec::<serde_json::Value>::new());
    let code = link.split_once("code=").expect("the link has a code").1;
    second.click("summary >> text=I have a link code").await;
    second.fill("#code", code).await;
    second.click("button >> text=Continue").await;
    second.wait_for_visible(".side [aria-current] >> text=Overview").await;
    ahead.click("text=Continue").await;
    ahead.wait_for_visible("[role=alert] >> text=used up").await;
    first.goto("/").await;
}

#[tokio::test]
async fn without_its_script_everything_works_but_what_is_live() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.window(WindowOptions { script: Some(false), ..WindowOptions::default() }).await;
    page.goto(&device.page_link().await).await;
    page.click("text=Continue").await;
    page.wait_for_visible(".side [aria-current] >> text=Overview").await;
    let before = enabled(&device).await;
    page.click("header a[href$='/access']").await;
    page.click("form.question button").await;
    page.wait_for_visible(".side [aria-current] >> text=Overview").await;
    assert_eq!(enabled(&device).await, !before);
    page.goto("/applications").await;
    page.click("text=New application").await;
    page.fill("#name", "Billing").await;
    page.click("text=Create application").await;
    assert!(page.text("#key").await.starts_with("dgk_"));
    page.tick("text=I have stored it", true).await;
    page.click("text=Close").await;
    page.click("text=Revoke…").await;
    page.click("a >> text=Cancel").await;
    page.wait_for_visible("h1 >> text=Billing").await;
}

#[tokio::test]
async fn a_page_that_is_left_open_says_that_its_browser_was_signed_out() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let page = browser.signed_in(&device).await;
    let (other, writing) = (page.tab().await, page.tab().await);
    let mount = page.mount().await;
    for tab in [&other, &writing] {
        tab.goto(&format!("{mount}/applications/new")).await;
        tab.wait_for_visible("#live >> text=/^Live$/").await;
    }
    // A fragment and the skip link stay on their page.
    other.goto(&format!("{mount}/settings#about")).await;
    other.wait_for_visible("#about:target").await;
    other.evaluate("document.querySelector('a.skip').click()").await;
    assert_eq!(other.url().await, format!("{mount}/settings#main"));
    other.wait_for_visible("#live >> text=/^Live$/").await;
    writing.fill("#name", "Billing").await;

    browser.tolerate(Some("Failed to load resource")).await;
    page.goto("/settings/sign-out").await;
    page.click("button >> text=Sign out").await;
    page.wait_for_visible("h1 >> text=Open from your computer").await;
    other.wait_for_visible("h1 >> text=Open from your computer").await;
    writing.wait_for_visible("#live >> text=Signed out. Open these pages again with: deskgate open").await;
    assert_eq!(writing.evaluate("document.querySelector('#name').value").await, json!("Billing"), "it stays");
    browser.tolerate(None).await;

    page.enter(&device).await;
    assert_ne!(page.mount().await, mount);
    page.goto("/runs").await;
    page.wait_for_visible("h1 >> text=Runs").await;
}
