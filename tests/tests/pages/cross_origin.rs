//! A foreign page on this computer, in the signed-in browser: the same site, and another origin.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use deskgate_tests::browser::BrowserPage;
use deskgate_tests::{Browser, TestDevice};
use serde_json::json;

use crate::enabled;

/// Serves an empty page on a port of its own, and returns its address.
async fn somebody_elses() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let router = Router::new().route(
        "/",
        get(async || Html("<!doctype html><link rel=icon href=data:,><title>Elsewhere</title><h1>Elsewhere</h1>")),
    );
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/")
}

#[tokio::test]
async fn a_page_of_another_origin_gets_nothing_and_changes_nothing() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    let (page, other) = beside(&browser, &device).await;
    a_name_that_was_led_to_this_computer_shows_nothing(&browser, &page, &other).await;
    who_opens_a_page_holds_no_handle_on_it(&page, &other).await;
    nothing_is_posted_read_or_framed_from_elsewhere(&browser, &device, &page, &other).await;
}

/// A signed-in page, and a foreign page beside it.
async fn beside(browser: &Browser, device: &TestDevice) -> (BrowserPage, BrowserPage) {
    let page = browser.signed_in(device).await;
    let other = page.tab().await;
    other.goto(&somebody_elses().await).await;
    (page, other)
}

async fn nothing_is_posted_read_or_framed_from_elsewhere(
    browser: &Browser,
    device: &TestDevice,
    page: &BrowserPage,
    other: &BrowserPage,
) {
    device.cli(&["access", "enable"]).await.ok();
    // As if the foreign page knew the path too.
    let mount = page.mount().await;
    page.goto("/access").await;
    // As if the foreign page had the token too.
    let token = page.evaluate("document.querySelector('[name=token]').value").await;
    let token = token.as_str().expect("text");
    browser.tolerate(Some("")).await;

    let sent = other
        .evaluate(&format!(
            "(async () => {{
                const told = [];
                const body = new URLSearchParams({{ token: {token:?}, enabled: 'no' }});
                for (const mode of ['cors', 'no-cors']) {{
                    for (const method of ['GET', 'POST']) {{
                        const ask = {{ method, mode, credentials: 'include', body: method === 'POST' ? body : undefined }};
                        told.push(await fetch({mount:?} + '/access', ask)
                            .then((answer) => answer.text(), () => ''));
                    }}
                }}
                return told;
            }})()"
        ))
        .await;
    assert_eq!(sent, json!(["", "", "", ""]), "it read something");

    other
        .evaluate(&format!(
            "(() => {{
                const frame = document.createElement('iframe');
                frame.src = {mount:?} + '/access';
                document.body.append(frame);
                return new Promise((done) => {{ frame.onload = () => done(true); }});
            }})()"
        ))
        .await;
    let framed = other
        .evaluate("(() => { try { return frames[0].document.body.innerHTML } catch { return 'closed' } })()")
        .await;
    assert!(!framed.to_string().contains("token"), "{framed}");
    assert_eq!(other.count("iframe >> internal:control=enter-frame >> form").await, 0, "it was framed");

    // The answer to a posted form replaces this page, so it comes last.
    other
        .evaluate(&format!(
            "(() => {{
                const form = document.createElement('form');
                [form.method, form.action] = ['post', {mount:?} + '/access'];
                form.innerHTML = '<input name=token value=\"' + {token:?} + '\"><input name=enabled value=no>';
                document.body.append(form);
                form.submit();
            }})()"
        ))
        .await;
    other.wait_for_visible("h1 >> text=Refused").await;
    assert!(enabled(device).await, "something was changed");
    browser.tolerate(None).await;

    // The same from the signed-in page succeeds, so the refusals above mean something.
    page.click("main button >> text=Pause access").await;
    page.wait_for_visible("header >> text=Access paused").await;
}

async fn a_name_that_was_led_to_this_computer_shows_nothing(
    browser: &Browser,
    page: &BrowserPage,
    other: &BrowserPage,
) {
    let mount = page.mount().await;
    let rebound = mount.replace("127.0.0.1", "rebound.example");
    browser.tolerate(Some("")).await;
    assert_eq!(other.goto(&format!("{rebound}/access")).await, 403);
    other.wait_for_visible("h1 >> text=Not at this address").await;
    other.wait_for_visible("text=rebound.example").await;
    let read = other.evaluate("fetch('/access').then((answer) => answer.text(), String)").await;
    assert!(!read.to_string().contains("token"), "{read}");
    browser.tolerate(None).await;
}

async fn who_opens_a_page_holds_no_handle_on_it(page: &BrowserPage, other: &BrowserPage) {
    let mount = page.mount().await;
    other.goto(&somebody_elses().await).await;
    let opened = other
        .evaluate(&format!(
            "(async () => {{
                const opened = window.open({mount:?} + '/access');
                const before = opened !== null;
                while (!opened.closed) await new Promise((next) => setTimeout(next, 20));
                return before;
            }})()"
        ))
        .await;
    assert_eq!(opened, json!(true), "it was opened, and whoever did it holds no handle on it");
}
