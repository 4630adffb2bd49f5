//! Keys in the desktop's keyring: they move there and back, and a locked keyring stops only the runs that need it.

use std::os::unix::fs::OpenOptionsExt;

use deskgate_tests::device::CommandOutput;
use deskgate_tests::keyring::Keyring;
use deskgate_tests::model::{MODEL_KEY, ModelServer};
use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Backend, Folder, TestDevice};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::models::configure;
use crate::text;

fn answers() -> Value {
    json!([
        { "match": { "userMessage": "Hello" }, "response": { "content": "Good day" } },
    ])
}

async fn kept_in(device: &TestDevice, place: &str) -> CommandOutput {
    device.cli(&["settings", "set", "secrets", place]).await
}

/// Whether the provider's key is in its file.
fn is_in_file(device: &TestDevice) -> bool {
    std::fs::read_to_string(device.home().join("providers/work.json")).expect("it is there").contains(MODEL_KEY)
}

async fn says_good_day(backend: &Backend) {
    let run = backend.wait_for_end(&backend.submit("Hello").await).await;
    assert_eq!(run["result"]["text"], "Good day", "{run}");
}

#[tokio::test]
async fn keys_move_to_the_keyring_and_back_and_a_move_that_ends_in_the_middle_loses_none() {
    let Some(model) = ModelServer::start(answers()).await else { return };
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    let key_file = model.key_file(MODEL_KEY);
    let key_file = key_file.to_str().expect("a plain name");
    device.cli(&["mcp", "set", "crm", "--url", "https://tools.example.com/mcp", "--key-file", key_file]).await.ok();

    let none = kept_in(&device, "keyring").await;
    assert_eq!(none.exit, 6, "{}", none.stderr);
    assert!(none.stderr.contains("no keyring that answers") && is_in_file(&device), "{}", none.stderr);
    let misread = kept_in(&device, MODEL_KEY).await;
    assert!(misread.exit == 2 && !(misread.stdout + &misread.stderr).contains(MODEL_KEY), "no key is repeated");

    let keyring = Keyring::start(&device).await;
    let damaged = device.home().join("providers/zulu.json");
    drop(std::fs::File::options().write(true).create_new(true).mode(0o600).open(&damaged).expect("writable"));
    let cut = kept_in(&device, "keyring").await;
    assert!(cut.exit == 6 && cut.stderr.contains("damaged"), "{}", cut.stderr);
    assert!(!is_in_file(&device) && keyring.entries().await == 1, "one was moved, and one was not reached");
    assert_eq!(text(&device.cli(&["settings", "show"]).await.ok(), "/key_place"), "file");
    std::fs::remove_file(&damaged).expect("ours");
    let backend = device.publish_here("shop", &folder, &["--provider", "work", "--model", "m-1"]).await;
    says_good_day(&backend).await;

    assert_eq!(text(&kept_in(&device, "keyring").await.ok(), "/key_place"), "keyring");
    assert_eq!(keyring.entries().await, 2, "the server's as well");
    let server = std::fs::read_to_string(device.home().join("mcp/crm.json")).expect("it is there");
    assert!(!server.contains(MODEL_KEY), "no key stays in a file");
    let listed = device.cli(&["provider", "list"]).await.ok();
    assert_eq!(text(&listed, "/providers/0/key_place"), "keyring", "{listed}");
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    assert!(!is_in_file(&device) && keyring.entries().await == 2, "a new key goes there, and the old one is deleted");
    device.cli(&["mcp", "remove", "crm", "--yes"]).await.ok();
    assert_eq!(keyring.entries().await, 1, "what is removed is removed there too");
    says_good_day(&backend).await;

    assert_eq!(text(&kept_in(&device, "file").await.ok(), "/key_place"), "file");
    assert!(is_in_file(&device) && keyring.entries().await == 0, "nothing stays there");
    says_good_day(&backend).await;
    assert!(!device.log().all().contains(MODEL_KEY), "no key is logged");
}

#[tokio::test]
async fn one_key_moves_by_its_form_or_command_and_its_place_is_named_wherever_it_is_shown() {
    let Some(model) = ModelServer::start(answers()).await else { return };
    let device = TestDevice::built_in().await;
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    let key_file = model.key_file(MODEL_KEY);
    let key_file = key_file.to_str().expect("a plain name");
    let visitor = Visitor::of(&device).await;
    let provider = device.cli(&["provider", "list"]).await.ok()["providers"][0].clone();
    let form = |place: &'static str| {
        [("profile", "compatible"), ("base_url", text(&provider, "/base_url")), ("key", ""), ("key_place", place)]
    };

    let away = visitor.send("/providers/work", &form("keyring")).await;
    assert_eq!(away.status, reqwest::StatusCode::UNPROCESSABLE_ENTITY, "{}", away.text);
    assert!(
        away.text.contains("no keyring that answers") && away.text.contains("href=\"#key_place\""),
        "{}",
        away.text
    );
    assert!(away.text.contains("value=\"keyring\" checked") && is_in_file(&device), "no silent fall back");
    let crm = ["mcp", "set", "crm", "--url", "https://tools.example.com/mcp", "--key-file", key_file];
    let away = device.cli(&[&crm[..], &["--key-place", "keyring"]].concat()).await;
    assert!(away.exit == 6 && !device.home().join("mcp/crm.json").exists(), "{}", away.stderr);

    let keyring = Keyring::start(&device).await;
    assert_eq!(visitor.send("/providers/work", &form("keyring")).await.redirect_target(), "/providers");
    assert!(!is_in_file(&device) && keyring.entries().await == 1);
    device.cli(&crm).await.ok();
    let servers = || async { device.cli(&["mcp", "list"]).await.ok()["servers"][0].clone() };
    assert_eq!(servers().await["key_place"], "file", "the other one stays where it is");
    assert!(visitor.page("/providers").await.text.contains("saved in the desktop&#39;s keyring"));
    assert!(visitor.page("/providers/work").await.text.contains("It is in the desktop&#39;s keyring"));
    assert!(visitor.page("/mcp").await.text.contains("saved in a file that only you can read"));
    assert!(visitor.page("/settings").await.text.contains("1 in the desktop's keyring"));
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    assert!(!is_in_file(&device) && keyring.entries().await == 1, "a key that is replaced stays where it was");
    let moved = device.plain_cli(&["mcp", "set", "crm", "--key-place", "keyring"]).await;
    assert!(moved.stdout.contains("with a key in the desktop's keyring"), "{}", moved.stdout);
    assert_eq!((servers().await["key_place"].clone(), keyring.entries().await), (json!("keyring"), 2));

    keyring.lock().await;
    let locked = visitor.send("/settings/secrets", &[("secrets", "file")]).await;
    assert_eq!(locked.status, reqwest::StatusCode::CONFLICT, "{}", locked.text);
    assert!(locked.text.contains("locked") && !is_in_file(&device), "{}", locked.text);
    assert!(visitor.page("/health").await.text.contains("The keyring cannot be read"));
    let mut keyring = keyring;
    keyring.unlock().await;
    assert_eq!(
        visitor.send("/settings/secrets", &[("secrets", "file")]).await.redirect_target(),
        "/settings?said=moved#secrets"
    );
    assert!(is_in_file(&device) && keyring.entries().await == 0, "every key is back");
}

#[tokio::test]
async fn a_keyring_that_is_locked_or_hangs_stops_only_runs_that_need_a_key_and_loses_none() {
    let Some(model) = ModelServer::start(answers()).await else { return };
    let (mut device, folder) = (TestDevice::built_in().await, Folder::new());
    configure(&device, &model, "compatible", "/v1", MODEL_KEY).await;
    let mut keyring = Keyring::start(&device).await;
    kept_in(&device, "keyring").await.ok();
    let backend = device.publish_here("shop", &folder, &["--provider", "work", "--model", "m-1"]).await;
    let plain = device.add_service("shop", "plain", &folder, &[]).await;
    let created = device.cli(&["key", "create", "second", "--app", "shop"]).await.ok();
    let other = device.caller_here(text(&created, "/text"), &plain).await;
    let key_file = model.key_file(MODEL_KEY);
    let new_key = ["provider", "set", "work", "--key-file", key_file.to_str().expect("a plain name")];

    keyring.lock().await;
    only_runs_without_a_key_work(&mut device, &backend, &other).await;
    let doctor = device.cli(&["doctor"]).await;
    assert!(doctor.exit == 10 && doctor.stdout.contains("keyring_shut"), "{}", doctor.stdout);
    for refused in [kept_in(&device, "file").await, device.cli(&new_key).await] {
        assert!(refused.exit == 6 && refused.stderr.contains("locked"), "{}", refused.stderr);
    }
    assert!(!is_in_file(&device) && keyring.entries().await == 1, "nothing is lost, and nothing was put elsewhere");

    keyring.unlock().await;
    says_good_day(&backend).await;
    let doctor = device.cli(&["doctor"]).await;
    assert!(!doctor.stdout.contains("keyring_shut"), "{}", doctor.stdout);

    keyring.suspend();
    only_runs_without_a_key_work(&mut device, &backend, &other).await;
    let hung = kept_in(&device, "file").await;
    assert!(hung.exit == 6 && hung.stderr.contains("does not answer") && !is_in_file(&device), "{}", hung.stderr);
    keyring.resume();
    kept_in(&device, "file").await.ok();
    assert!(is_in_file(&device));
    says_good_day(&backend).await;
    assert!(!device.log().all().contains(MODEL_KEY), "no key is logged");
}

/// Also after a restart, which does not wait for a keyring.
async fn only_runs_without_a_key_work(device: &mut TestDevice, keyed: &Backend, plain: &Backend) {
    device.stop(Signal::TERM).await;
    device.start().await;
    device.wait_until_connected().await;
    let run = keyed.wait_for_end(&keyed.submit("Hello").await).await;
    assert_eq!((&run["state"], &run["error"]["effects"]), (&json!("failed"), &json!("none")), "{run}");
    let run = plain.wait_for_end(&plain.submit("Look.").await).await;
    assert_eq!(run["state"], "succeeded", "{run}");
}
