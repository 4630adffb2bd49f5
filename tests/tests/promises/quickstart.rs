//! `deskgate quickstart`: from nothing to a finished run, and again from everywhere between.

use std::process::Command;

use deskgate_tests::device::run;
use deskgate_tests::{Folder, TestDevice, until};
use rustix::process::Signal;
use serde_json::Value;

use crate::text;

/// A home without an agent, and a folder with something to read.
fn nothing() -> (TestDevice, Folder) {
    let (device, folder) = (TestDevice::new(), Folder::new());
    folder.write("README.md", "Invoices are in this folder.\n");
    (device, folder)
}

/// Runs lines in a shell, as a person would paste them.
async fn paste(lines: &str) -> Value {
    let mut shell = Command::new("sh");
    shell.args(["-euc", lines]);
    run(shell).await.ok()
}

#[tokio::test]
async fn one_command_makes_everything_and_the_line_that_it_prints_works() {
    let (device, folder) = nothing();
    let path = folder.path();
    let path = path.to_str().expect("a plain name");
    let asked = device.plain_cli(&["quickstart", path]).await;
    for part in ["Create the application \"Quickstart\" with a key", "may read files in", "Enable access", "--yes"] {
        assert!(asked.stderr.contains(part), "{part}: {}", asked.stderr);
    }
    assert_eq!(asked.exit, 1);
    assert_eq!(device.cli(&["app", "list"]).await.ok()["applications"], serde_json::json!([]), "nothing was made");

    let made = device.plain_cli(&["quickstart", path, "--yes"]).await;
    assert_eq!(made.exit, 0, "{}{}", made.stdout, made.stderr);
    assert!(made.stdout.contains("The first run is succeeded") && made.stdout.contains("README.md"), "{}", made.stdout);
    let printed = |start: &str| {
        let found: Vec<_> = made.stdout.lines().filter(|line| line.starts_with(start)).collect();
        assert_eq!(found.len(), 1, "{start} once: {}", made.stdout);
        found[0].to_owned()
    };
    let (key, curl) = (printed("APP_KEY=dgk_"), printed("printf"));
    assert!(!curl.contains("dgk_"), "{curl}");
    let accepted = paste(&format!("{key}\n{curl}")).await;
    let run_id = text(&accepted, "/run_id");
    assert_eq!(text(&paste(&format!("{key}\n{curl}")).await, "/run_id"), run_id, "pasted twice, it is the same run");
    let ended = device.cli(&["run", "show", run_id, "--wait", "60s"]).await.ok();
    assert_eq!(text(&ended, "/run/state"), "succeeded");
    let secret = key.trim_start_matches("APP_KEY=");
    assert!(!device.log_of_background().contains(secret), "no key is in the log");

    // Repeated, nothing is made or asked for, and no key is shown.
    let again = device.cli(&["quickstart", path]).await.ok();
    assert_eq!((text(&again, "/run/state"), &again["key"]), ("succeeded", &Value::Null), "{again}");
    assert_eq!(again["done"].as_array().map(Vec::len), Some(1), "only a run: {again}");
    let keys = device.cli(&["key", "list", "--app", "Quickstart"]).await.ok();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1), "{keys}");
    device.cli(&["stop", "--now"]).await.ok();
}

#[tokio::test]
async fn what_is_there_is_used_and_a_step_that_fails_says_what_was_done() {
    let (device, folder) = nothing();
    let path = folder.path();
    let path = path.to_str().expect("a plain name");
    let missing = device.cli(&["quickstart", "/nowhere/at/all", "--yes"]).await;
    assert_eq!(missing.exit, 2, "{}", missing.stderr);
    assert_eq!(device.cli(&["status"]).await.exit, 5, "nothing was started for a folder that is not there");
    // The whole of a file system may not be a service's folder, which a check finds.
    let failed = device.cli(&["quickstart", "/", "--name", "all", "--yes"]).await;
    assert_eq!(failed.exit, 10, "{}", failed.stderr);
    for part in ["cannot be published", "Done before that: The agent is started.", "Run the same command again"] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
    }
    let key = text(&failed.value, "/key").to_owned();
    assert!(key.starts_with("dgk_"), "the key was made, so it is shown: {}", failed.stdout);

    device.cli(&["service", "create", "papers", "--app", "Quickstart", "--dir", path]).await.ok();
    let other = Folder::new();
    let elsewhere = other.path();
    let taken = ["quickstart", elsewhere.to_str().expect("a plain name"), "--name", "papers", "--yes"];
    let refused = device.cli(&taken).await;
    assert!(refused.exit == 6 && refused.stderr.contains("for another folder"), "{}", refused.stderr);
    let made = device.cli(&["quickstart", path, "--yes"]).await.ok();
    assert_eq!((text(&made, "/run/state"), &made["key"]), ("succeeded", &Value::Null), "{made}");
    let accepted = paste(&format!("APP_KEY={key}\n{}", text(&made, "/curl"))).await;
    let shown = device.cli(&["service", "show", "papers"]).await.ok();
    assert_eq!(text(&shown, "/endpoint_id"), text(&accepted, "/endpoint_id"));

    device.cli(&["service", "disable", "papers"]).await.ok();
    let disabled = device.cli(&["quickstart", path]).await;
    assert!(disabled.exit == 6 && disabled.stderr.contains("deskgate service enable"), "{}", disabled.stderr);
    device.cli(&["service", "enable", "papers"]).await.ok();
    device.cli(&["access", "pause"]).await.ok();
    assert_eq!(device.cli(&["quickstart", path]).await.exit, 1, "access is a question of its own");
    device.cli(&["stop", "--now"]).await.ok();
}

#[tokio::test]
async fn ctrl_c_shows_the_key_that_was_made_and_the_run_that_was_begun_is_not_begun_again() {
    let (device, folder) = nothing();
    let path = folder.path();
    let path = path.to_str().expect("a plain name");
    let script = folder.slow_answer(6_000, "late");
    let command = ["quickstart", path, "--yes", "--provider", "scripted", "--model", &script];
    let begun = device.begin_cli(&command);
    let runs = async || device.cli(&["run", "list"]).await.value["runs"].as_array().map_or(0, Vec::len);
    until("the first run", async || if runs().await == 1 { Ok(()) } else { Err(begun.log.all()) }).await;
    begun.signal(Signal::INT);
    begun.log.line(&["APP_KEY=dgk_"]).await;
    let said = begun.log.own();
    let key = said.lines().find(|line| line.starts_with("APP_KEY=")).expect("shown").to_owned();

    let again = device.plain_cli(&command).await;
    assert_eq!(again.exit, 0, "{}", again.stderr);
    assert_eq!(runs().await, 1, "the same run: {}", again.stdout);
    assert!(again.stdout.contains("late"), "{}", again.stdout);
    // Every line that it prints works as it is.
    let hint = again.stdout.lines().find_map(|line| line.split_once("deskgate key create ")).expect("a hint").1;
    assert!(!again.stdout.contains('…'), "{}", again.stdout);
    let arguments: Vec<_> = ["key", "create"].into_iter().chain(hint.split_whitespace()).collect();
    device.cli(&arguments).await.ok();
    let curl = again.stdout.lines().find(|line| line.starts_with("printf")).expect("a call");
    text(&paste(&format!("{key}\n{curl}")).await, "/run_id");
    device.cli(&["stop", "--now"]).await.ok();
}

#[tokio::test]
async fn a_service_that_only_the_gateway_knows_to_be_unpublished_is_published_again() {
    let (device, folder) = nothing();
    let path = folder.path();
    let path = path.to_str().expect("a plain name");
    let made = device.cli(&["quickstart", path, "--yes"]).await.ok();
    // The agent's memory is of a time before its owner unpublished the service.
    device.cli(&["stop"]).await.ok();
    let closed = async || {
        let beside = device.home().join("deskgate.db-wal");
        until("the database to be closed", async || if beside.exists() { Err("open".to_owned()) } else { Ok(()) })
            .await;
    };
    closed().await;
    let (database, before) = (device.home().join("deskgate.db"), device.folder().join("before.db"));
    std::fs::copy(&database, &before).expect("copied");
    device.cli(&["start"]).await.ok();
    device.cli(&["service", "unpublish", text(&made, "/draft_id"), "--yes"]).await.ok();
    device.cli(&["stop"]).await.ok();
    closed().await;
    std::fs::copy(&before, &database).expect("put back");
    let again = device.cli(&["quickstart", path, "--yes"]).await.ok();
    assert_eq!(text(&again, "/run/state"), "succeeded", "{again}");
    assert!(again["done"].to_string().contains("is published"), "{again}");
    assert_eq!(text(&again, "/endpoint_id"), text(&made, "/endpoint_id"));
    device.cli(&["stop", "--now"]).await.ok();
}
