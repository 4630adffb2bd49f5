//! Pairing by an invitation on the page Connection: one paste, and the administrator's confirmation.

use deskgate_tests::{Browser, Folder, GatewayProcess, Postgres, TestDevice};

use crate::accessibility::AccessibilityChecker;
use crate::text;

#[tokio::test]
async fn one_paste_and_one_confirmation_pair_a_computer_while_the_page_stays_open() {
    let Some(browser) = Browser::start().await else { return };
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    device.cli(&["app", "create", "Billing"]).await.ok();
    let path = folder.path().display().to_string();
    device.cli(&["service", "create", "Letters", "--app", "Billing", "--dir", &path]).await.ok();
    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("pairing");

    page.goto("/connection?mode=remote").await;
    page.fill("#invitation", "dgt_not-an-invitation").await;
    page.click("#pair button >> text=Pair").await;
    page.wait_for_visible("#invitation-wrong >> text=this is a private control token").await;
    assert!(!page.text("body").await.contains("dgt_not"), "no secret comes back");

    let invited = gateway.admin(&["device", "invite"]).await.ok();
    page.fill("#invitation", text(&invited, "/line")).await;
    page.press("Enter").await;
    page.wait_for_visible("#pairing >> text=Waiting for the administrator").await;
    let code = page.text("#short-code").await;
    assert_eq!(text(&device.cli(&["identity", "show"]).await.ok(), "/short_code"), code);
    judge.judge(&page, "waiting").await;
    page.look("dark", 390).await;
    let width = page.evaluate("document.documentElement.scrollWidth").await.as_u64();
    assert!(width.is_some_and(|width| width <= 390), "{width:?} pixels wide");
    judge.judge(&page, "waiting, narrow and dark").await;
    page.look("light", 1280).await;

    // It goes on when the page is left, and when nobody looks.
    page.goto("/runs").await;
    page.goto("/connection?mode=remote").await;
    page.wait_for_visible("#pairing >> text=Waiting for the administrator").await;
    gateway.admin(&["device", "confirm", &code]).await.ok();
    page.wait_for_visible("#pairing >> text=Paired").await;
    device.wait_until_connected().await;
    page.wait_for_visible("#line >> text=Remote").await;
    judge.judge(&page, "paired").await;
    let filled = page.evaluate("document.querySelector('#ssh-address').value").await;
    page.reload().await;
    let after = page.evaluate("document.querySelector('#ssh-address').value").await;
    assert_eq!(after.as_str(), Some(gateway.ssh().get().to_string().as_str()), "before: {filled}");

    // What belongs to the gateway before is shown apart, and made again here by one click.
    page.goto("/services").await;
    page.wait_for_visible("h2 >> text=at the built-in gateway").await;
    judge.judge(&page, "elsewhere").await;
    page.click("button >> text=Make it here too").await;
    page.wait_for_visible("#key").await;
    page.goto("/services").await;
    page.wait_for_visible("text=This gateway has an application of this name").await;
    assert_eq!(page.count("h3 >> text=Letters").await, 2);
    judge.sentence(4);
}

#[tokio::test]
async fn a_waiting_pairing_is_stopped_on_the_page_and_a_refusal_is_told_there() {
    let Some(browser) = Browser::start().await else { return };
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let page = browser.signed_in(&device).await;
    let invited = gateway.admin(&["device", "invite"]).await.ok();
    page.goto("/connection?mode=remote").await;
    page.fill("#invitation", text(&invited, "/line")).await;
    page.click("#pair button >> text=Pair").await;
    page.wait_for_visible("#pairing >> text=Waiting for the administrator").await;
    page.click("#pairing button >> text=Stop waiting").await;
    page.wait_for_visible("#pair").await;
    assert_eq!(page.count("#short-code").await, 0);

    page.fill("#invitation", text(&invited, "/line")).await;
    page.click("#pair button >> text=Pair").await;
    page.wait_for_visible("#short-code").await;
    let code = page.text("#short-code").await;
    gateway.admin(&["device", "refuse", &code]).await.ok();
    page.wait_for_visible("#pairing >> text=refused this invitation").await;
    let mut judge = AccessibilityChecker::of("pairing-in-trouble");
    judge.judge(&page, "refused").await;

    // Nobody answers there: it is dialled until the invitation expires.
    let invited = gateway.admin(&["device", "invite"]).await.ok();
    gateway.kill_9();
    page.fill("#invitation", text(&invited, "/line")).await;
    page.click("#pair button >> text=Pair").await;
    page.wait_for_visible("#pairing >> text=The invitation expires").await;
    judge.judge(&page, "dialling").await;
    judge.sentence(2);
}
