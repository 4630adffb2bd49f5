//! The command line as people and programs use it: short on a terminal, exact in a pipe, errors as JSON, the same verbs.

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::text;

#[tokio::test]
async fn a_terminal_shows_ages_short_identifiers_and_colours_and_takes_what_it_shows() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("service", json!([{ "text": "Done." }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("Which invoices are overdue?").await;
    backend.wait_for_end(&run_id).await;
    let short = format!("…{}", &run_id[run_id.len() - 4..]);

    let piped = device.plain_cli(&["run", "list"]).await;
    assert!(piped.exit == 0 && piped.stdout.contains(&run_id) && !piped.stdout.contains('\u{1b}'), "{}", piped.stdout);
    let created = device.cli(&["run", "show", &run_id]).await.ok();
    assert!(piped.stdout.contains(text(&created, "/run/created_at")), "{}", piped.stdout);

    let shown = device.terminal_cli(&["run", "list"]).await;
    assert_eq!(shown.exit, 0, "{}", shown.stdout);
    assert!(shown.stdout.contains(&short) && !shown.stdout.contains(&run_id), "{}", shown.stdout);
    assert!(shown.stdout.contains(" ago") || shown.stdout.contains(" now"), "{}", shown.stdout);
    assert!(shown.stdout.contains("\u{1b}[32msucceeded\u{1b}[0m"), "{:?}", shown.stdout);

    // What the list shows is what a command takes.
    for given in [short.as_str(), short.trim_start_matches('…'), run_id.as_str()] {
        assert_eq!(text(&device.cli(&["run", "show", given]).await.ok(), "/run/run_id"), run_id);
    }
    let app_id = text(&device.cli(&["app", "show", "shop"]).await.ok(), "/app_id").to_owned();
    let by_end = device.cli(&["run", "list", "--app", &app_id[app_id.len() - 4..]]).await.ok();
    assert_eq!(by_end["runs"][0]["run_id"], json!(run_id));
    let draft_id = text(&device.cli(&["service", "show", "shop"]).await.ok(), "/draft_id").to_owned();
    let by_end = device.cli(&["service", "show", &format!("…{}", &draft_id[draft_id.len() - 6..])]).await.ok();
    assert_eq!(by_end["draft_id"], json!(draft_id));
    let nobody = device.cli(&["run", "show", "…0000"]).await;
    assert!(nobody.exit == 1 && nobody.stderr.contains("deskgate run list"), "{}", nobody.stderr);
    // The names of before are taken, and in no help.
    assert_eq!(device.cli(&["runs", "list"]).await.ok()["runs"][0]["run_id"], json!(run_id));
    assert!(!device.plain_cli(&["--help"]).await.stdout.contains("  runs "));
}

#[tokio::test]
async fn an_end_finds_any_record_however_old_and_several_are_named() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let oldest = backend.submit("What is here?").await;
    backend.wait_for_end(&oldest).await;
    // Two hundred newer ones, all of which end alike.
    let newer = "INSERT INTO runs SELECT r.* FROM runs d, generate_series(1, 200) n, jsonb_populate_record(d, jsonb_build_object(
        'run_id', ('f' || lpad(to_hex(n), 27, '0') || 'beef')::uuid, 'identity', '\\x' || encode(sha256(n::text::bytea), 'hex'))) r";
    assert_eq!(postgres.change(newer).await, 200);
    let end = &oldest[oldest.len() - 8..];
    assert_eq!(text(&device.cli(&["run", "show", end]).await.ok(), "/run/run_id"), oldest);
    assert_eq!(text(&gateway.admin(&["run", "show", end]).await.ok(), "/run/run_id"), oldest);
    let listed = device.cli(&["run", "list", "--find", &format!("…{end}")]).await.ok();
    assert_eq!((listed["runs"].as_array().map(Vec::len), text(&listed, "/runs/0/run_id")), (Some(1), oldest.as_str()));
    for asked in [&["run", "show", "beef"][..], &["run", "list", "--find", "beef"]] {
        let several = device.cli(asked).await;
        assert!(several.exit == 1 && several.stderr.matches("beef").count() > 5, "{}", several.stderr);
    }
    let nothing = device.cli(&["run", "list", "--find", "0000000000"]).await;
    assert!(nothing.exit == 1 && nothing.stderr.contains("ends in 0000000000"), "{}", nothing.stderr);
    let app_id = text(&device.cli(&["app", "show", "shop"]).await.ok(), "/app_id").to_owned();
    assert_eq!(text(&gateway.admin(&["app", "show", &app_id[28..]]).await.ok(), "/application/app_id"), app_id);
}

#[tokio::test]
async fn a_program_reads_errors_as_json_and_an_unknown_word_is_answered_with_those_there_are() {
    let device = TestDevice::new();
    let error = |raw: &str| serde_json::from_str::<Value>(raw.trim()).expect("one JSON value");
    for (words, exit, code, says) in [
        (&["status"][..], 5, "cannot_reach", "deskgate start"),
        (&["run", "list", "--state", "asleep"], 2, "usage", "choose one of queued, waiting_for_device, running"),
        (&["run", "frobnicate"], 2, "usage", "deskgate run has the commands list, show"),
        (&["frobnicate"], 2, "usage", "deskgate has the commands quickstart, start"),
    ] {
        let told = device.raw_cli(words).await;
        let value = error(&told.stderr);
        assert_eq!((told.exit, text(&value, "/code"), text(&value, "/schema")), (exit, code, "error/1"), "{value}");
        assert!(text(&value, "/message").contains(says) && told.stdout.is_empty(), "{value}");
    }
    let help = device.raw_cli(&["--help"]).await;
    assert!(help.exit == 0 && help.stdout.contains("Examples:") && help.stderr.is_empty(), "{}", help.stdout);
}

#[tokio::test]
async fn hosts_are_added_and_removed_one_at_a_time() {
    let device = TestDevice::built_in().await;
    let hosts = async || device.cli(&["allowlist", "show"]).await.ok()["hosts"].clone();
    for host in ["hooks.example.com", "other.example.com", "hooks.example.com"] {
        device.cli(&["allowlist", "add", host]).await.ok();
    }
    assert_eq!(hosts().await, json!(["hooks.example.com", "other.example.com"]));
    device.cli(&["allowlist", "remove", "hooks.example.com"]).await.ok();
    assert_eq!(hosts().await, json!(["other.example.com"]));
    let again = device.cli(&["allowlist", "remove", "hooks.example.com"]).await;
    assert!(again.exit == 1 && again.stderr.contains("deskgate allowlist show"), "{}", again.stderr);
}

#[tokio::test]
async fn an_agent_restarts_and_is_uninstalled_with_what_is_asked_and_no_more() {
    let device = TestDevice::new();
    let pid = |status: &Value| status["pid"].as_u64().expect("a process");
    let first = device.cli(&["start"]).await.ok();
    device.cli(&["provider", "set", "work", "--profile", "ollama", "--no-key"]).await.ok();
    let second = device.cli(&["restart"]).await.ok();
    assert_ne!(pid(&first), pid(&second));

    let asked = device.cli(&["uninstall", "--data"]).await;
    assert!(asked.exit == 1 && asked.stderr.contains("deleted for good"), "{}", asked.stderr);
    assert_eq!(pid(&device.cli(&["status"]).await.ok()), pid(&second), "nothing was done without a yes");

    let done = device.cli(&["uninstall", "--yes"]).await.ok();
    assert_eq!((&done["stopped"], &done["data_deleted"]), (&json!(true), &json!(false)), "{done}");
    assert!(done["stays"][0].as_str().is_some_and(|what| what.contains("uninstall --data")), "{done}");
    assert!(device.home().join("identity_ed25519").exists());
    assert_eq!(device.cli(&["status"]).await.exit, 5);

    // The keyring is the agent's to open.
    let refused = device.cli(&["uninstall", "--data", "--yes"]).await;
    assert!(refused.exit == 5 && refused.stderr.contains("deskgate start"), "{}", refused.stderr);
    device.cli(&["start"]).await.ok();
    device.cli(&["uninstall", "--data", "--yes"]).await.ok();
    assert!(!device.home().exists());
    device.cli(&["uninstall", "--data", "--yes"]).await.ok();
}
