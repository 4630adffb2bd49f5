//! A hosted gateway: its user signs in through the pages of a third-party issuer, and works over that connection.

use deskgate_tests::issuer::{ALLOW_THIS_MACHINE, CLIENT_ID, Issuer};
use deskgate_tests::wait::{until, until_within};
use deskgate_tests::{Browser, Folder, GatewayProcess, Postgres, TestDevice};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

use crate::text;

/// Longer than several of the issuer's tokens, which last twenty seconds.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(90);

fn address(gateway: &GatewayProcess) -> String {
    format!("http://{}", gateway.http().get())
}

/// Begins a sign-in on the command line, and finishes it as this person in the browser.
async fn sign_in(device: &TestDevice, issuer: &Issuer, browser: &Browser, name: &str) {
    let invitation = device.cli(&["connection", "sign-in", "--no-wait"]).await.ok();
    issuer.accept(browser, text(&invitation, "/verification_uri_complete"), name).await;
    until("the sign-in to be noticed", async || {
        let account = device.cli(&["connection", "account"]).await.ok();
        if account["standing"] == "signed_in" { Ok(()) } else { Err(account.to_string()) }
    })
    .await;
}

/// A device that is connected to the hosted gateway with this person's account.
async fn connected(gateway: &GatewayProcess, issuer: &Issuer, browser: &Browser, name: &str) -> TestDevice {
    let device = TestDevice::for_remote().await;
    let address = address(gateway);
    device.cli(&["connection", "set", "--mode", "hosted", "--gateway-address", &address]).await.ok();
    sign_in(&device, issuer, browser, name).await;
    device.wait_until_connected().await;
    device
}

async fn problems(device: &TestDevice) -> Vec<String> {
    let report = device.cli(&["doctor"]).await.value;
    let problems = report["problems"].as_array().expect("a list");
    problems.iter().map(|problem| problem["code"].as_str().expect("a code").to_owned()).collect()
}

#[tokio::test]
async fn somebody_signs_in_in_a_browser_and_a_run_finishes_over_the_hosted_line() {
    let Some(browser) = Browser::start().await else { return };
    let Some(issuer) = Issuer::start(600).await else { return };
    let postgres = Postgres::shared().await;
    let gateway = issuer.gateway(&postgres).await;
    let device = TestDevice::for_remote().await;
    let page = browser.signed_in(&device).await;

    page.goto("/connection?mode=hosted").await;
    page.wait_for_visible("#account >> text=Nobody is signed in").await;
    page.fill("#gateway-address", "http://gateway.example.com").await;
    browser.tolerate(Some("Failed to load resource")).await;
    page.click("button >> text=Sign in").await;
    page.wait_for_visible("text=tokens travel over https").await;
    page.fill("#gateway-address", &address(&gateway)).await;
    page.click("button >> text=Sign in").await;
    page.wait_for_visible("#account >> text=A sign-in waits for you").await;
    let code = page.text("#user-code").await;
    let complete = page.evaluate("document.querySelector('#account a[href*=user_code]').href").await;
    assert!(complete.as_str().expect("an address").starts_with(issuer.url()), "{complete}");
    assert!(complete.as_str().expect("an address").contains(&code), "{code} in {complete}");
    assert!(page.accessibility_findings(None).await.is_empty());
    issuer.accept(&browser, complete.as_str().expect("an address"), "ada").await;
    // This page shows it by itself.
    page.wait_for_visible("#account >> text=Signed in with an account of").await;
    page.click("button >> text=Test connection").await;
    page.wait_for_visible("#tested >> text=The gateway let this device in").await;
    page.click("button.primary >> text=Save").await;
    page.wait_for_visible("text=Saved, and active now").await;
    let status = device.wait_until_connected().await;
    assert_eq!(status["mode"], "hosted");
    page.wait_for_visible("#line >> text=Hosted gateway").await;
    assert!(page.accessibility_findings(None).await.is_empty());

    let listed = gateway.admin(&["device", "list"]).await.ok();
    let account = format!("ada at {}", issuer.url());
    assert_eq!(listed["devices"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["devices"][0]["account"], json!(account), "{listed}");
    assert_eq!(listed["devices"][0]["name"], status["device_name"], "{listed}");
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run = backend.wait_for_end(&backend.submit("what stands here?").await).await;
    assert_eq!(run["state"], "succeeded", "{run}");

    // Neither half writes a token outside its place.
    let logs = device.log().own() + &gateway.log().own();
    assert!(!logs.contains("eyJ"), "a token is in a log");

    device.cli(&["connection", "sign-out"]).await.ok();
    let down = device.wait_for_line_state("disconnected").await;
    assert!(text(&down, "/line/why").contains("sign-in"), "{down}");
    assert_eq!(down["line"]["next_attempt_at"], Value::Null, "only a person can help: {down}");
    assert_eq!(issuer.revocation_count(), 1);
    assert!(problems(&device).await.contains(&"signed_out".to_owned()));
    page.goto("/connection").await;
    page.wait_for_visible("#account >> text=Nobody is signed in").await;

    // The device stays ada's, even if another account signs in on it.
    sign_in(&device, &issuer, &browser, "eve").await;
    let refused = device.wait_for_line_state("refused").await;
    assert_eq!(refused["line"]["refused"]["code"], "other_account", "{refused}");
    sign_in(&device, &issuer, &browser, "ada").await;
    device.wait_until_connected().await;
}

#[tokio::test]
async fn a_line_outlasts_its_tokens_and_an_issuer_that_is_away_for_a_while() {
    let Some(browser) = Browser::start().await else { return };
    let Some(issuer) = Issuer::start(20).await else { return };
    let postgres = Postgres::shared().await;
    let gateway = issuer.gateway(&postgres).await;
    let device = connected(&gateway, &issuer, &browser, "ada").await;
    let since = device.status().await["line"]["since"].clone();
    let refreshes = async |times: usize| {
        until_within(TOKEN_TIMEOUT, "newer tokens", async || {
            let refreshed = issuer.refresh_count();
            if refreshed >= times { Ok(()) } else { Err(format!("{refreshed} of {times}")) }
        })
        .await;
    };
    // Longer than the lifetime of two tokens.
    refreshes(4).await;
    assert_eq!(device.wait_until_connected().await["line"]["since"], since, "the same line");

    issuer.set_unavailable(true).await;
    until_within(TOKEN_TIMEOUT, "the issuer to be missed", async || {
        let problems = problems(&device).await;
        let account = device.cli(&["connection", "account"]).await.stdout;
        if account.contains("does not answer") { Ok(()) } else { Err(format!("{problems:?} {account}")) }
    })
    .await;
    assert_eq!(device.status().await["line"]["since"], since, "the line is up all the same");
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    issuer.set_unavailable(false).await;
    let before = issuer.refresh_count();
    refreshes(before + 2).await;
    assert_eq!(device.wait_until_connected().await["line"]["since"], since, "the same line");
    let run = backend.wait_for_end(&backend.submit("what stands here?").await).await;
    assert_eq!(run["state"], "succeeded", "{run}");
}

/// Writes a fresh certificate for this computer's own address, and its key.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
    let [certificate, key] = ["cert", "key"].map(|part| folder.join(format!("{name}-{part}.pem")));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("its own");
    (certificate, key)
}

#[tokio::test]
async fn the_line_stands_on_tls_and_whoever_shows_another_certificate_is_given_no_token() {
    let Some(browser) = Browser::start().await else { return };
    let Some(issuer) = Issuer::start(600).await else { return };
    let postgres = Postgres::shared().await;
    let folder = TempDir::with_prefix("deskgate-tls-").expect("a temporary folder");
    let (shown, key) = certificate(folder.path(), "gateway");
    let (other, _) = certificate(folder.path(), "other");
    let settings = [
        format!("hosted.issuer={}", issuer.url()),
        format!("hosted.client_id={CLIENT_ID}"),
        ALLOW_THIS_MACHINE.to_owned(),
        format!("server.tls.cert_file={}", shown.display()),
        format!("server.tls.key_file={}", key.display()),
    ];
    let gateway = GatewayProcess::start(&postgres, &settings.each_ref().map(String::as_str)).await;

    let mut device = TestDevice::for_remote().await;
    device.stop(Signal::TERM).await;
    device.trust_certificate(&shown);
    device.start().await;
    let address = format!("https://{}", gateway.http().get());
    device.cli(&["connection", "set", "--mode", "hosted", "--gateway-address", &address]).await.ok();
    sign_in(&device, &issuer, &browser, "ada").await;
    let status = device.wait_until_connected().await;
    assert_eq!(status["mode"], "hosted", "{status}");
    // A publication goes to the gateway over that connection.
    let place = Folder::new();
    device.publish(&gateway, "shop", &place, &[]).await;

    // The same address with a foreign certificate, as an attacker between the two would have.
    device.stop(Signal::TERM).await;
    device.trust_certificate(&other);
    device.start().await;
    let down = device.wait_for_line_state("disconnected").await;
    assert!(text(&down, "/line/why").contains("certificate"), "{down}");
    let refreshed = issuer.refresh_count();
    let problems = problems(&device).await;
    assert_eq!(problems.first().map(String::as_str), Some("certificate_not_trusted"), "{problems:?}");
    assert!(!problems.contains(&"signed_out".to_owned()), "nobody was signed out by that: {problems:?}");
    assert_eq!(issuer.refresh_count(), refreshed);

    device.stop(Signal::TERM).await;
    device.trust_certificate(&shown);
    device.start().await;
    device.wait_until_connected().await;
}
