//! Pages that stay open while the agent stops and starts again, and pages of two agents in one browser.

use std::net::TcpListener;

use deskgate_tests::{Browser, TestDevice, until};
use rustix::process::Signal;

use crate::enabled;

#[tokio::test]
async fn a_page_keeps_its_content_while_the_agent_is_away_and_is_fresh_when_it_is_back() {
    let Some(browser) = Browser::start().await else { return };
    let mut device = TestDevice::built_in().await;
    // Meanwhile agents of other tests may take the usual ports, and connections those that the system gives out. So it has
    // one that nobody takes by chance.
    let port = (20_000..30_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port");
    device.cli(&["settings", "set", "pages-port", &port.to_string()]).await.ok();
    device.stop(Signal::TERM).await;
    device.start().await;
    device.wait_until_connected().await;
    device.cli(&["app", "create", "Billing"]).await.ok();
    let page = browser.signed_in(&device).await;
    page.goto("/applications").await;
    page.wait_for_visible("#live >> text=/^Live$/").await;

    browser.tolerate(Some("Failed to load resource")).await;
    device.stop(Signal::TERM).await;
    page.wait_for_visible("#live >> text=Not live since").await;
    page.wait_for_visible("main >> text=Billing").await;
    device.start().await;
    device.wait_until_connected().await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    browser.tolerate(None).await;
    page.wait_for_visible("header >> text=connected").await;
    // The page is really live again.
    let before = enabled(&device).await;
    device.cli(&["access", if before { "pause" } else { "enable" }]).await.ok();
    page.wait_for_visible(if before { "header >> text=Access paused" } else { "header >> text=Access enabled" }).await;
}

/// Answers are half a second late, as on a busy computer, so that the second change falls into the first one's refresh.
#[tokio::test]
async fn a_change_during_a_refresh_is_shown_too() {
    let Some(browser) = Browser::start().await else { return };
    let device = TestDevice::built_in().await;
    device.cli(&["access", "enable"]).await.ok();
    let page = browser.signed_in(&device).await;
    page.wait_for_visible("#live >> text=/^Live$/").await;
    page.wait_for_visible("header >> text=Access enabled").await;
    page.evaluate(
        "(() => { const real = fetch; window.answered = 0;
            window.fetch = async (...asked) => {
                const answer = await real(...asked);
                window.answered += 1;
                await new Promise((done) => setTimeout(done, 500));
                return answer;
            }; })()",
    )
    .await;
    device.cli(&["access", "pause"]).await.ok();
    until("the page has its answer", async || match page.evaluate("window.answered").await.as_u64() {
        None | Some(0) => Err("not yet".to_owned()),
        Some(_) => Ok(()),
    })
    .await;
    device.cli(&["access", "enable"]).await.ok();
    page.wait_for_visible("header >> text=Access enabled").await;
}

#[tokio::test]
async fn two_agents_in_one_browser_do_not_disturb_each_other() {
    let Some(browser) = Browser::start().await else { return };
    let (one, other) = tokio::join!(TestDevice::built_in(), TestDevice::built_in());
    for device in [&one, &other] {
        device.cli(&["access", "enable"]).await.ok();
    }
    let first = browser.signed_in(&one).await;
    let second = first.tab().await;
    second.enter(&other).await;
    assert_ne!(first.origin().await, second.origin().await);
    first.reload().await;
    first.wait_for_visible(".side [aria-current] >> text=Overview").await;
    assert_eq!(first.cookies().await.len(), 2, "a cookie knows no port, so each has a name of its own");

    first.click("header >> text=Access enabled").await;
    first.click("dialog button >> text=Pause access").await;
    first.wait_for_visible("header >> text=Access paused").await;
    second.reload().await;
    second.wait_for_visible("header >> text=Access enabled").await;
    assert_eq!((enabled(&one).await, enabled(&other).await), (false, true));
}
