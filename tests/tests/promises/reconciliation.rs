//! kill -9 of the agent while a run writes, waits for approval, or has written: no outcome is guessed, no run repeats
//! silently.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::json;

use crate::approvals::waiting;
use crate::text;

/// A service that writes `reply.txt` and then takes a while.
async fn writer(device: &TestDevice, gateway: &GatewayProcess, folder: &Folder, arguments: &[&str]) -> Backend {
    let model = slow(folder);
    device.publish(gateway, "shop", folder, &[&["--model", &model, "--tools", "Read,Write"], arguments].concat()).await
}

fn slow(folder: &Folder) -> String {
    let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": "Dear customer\n" } });
    folder.script("writer", json!([write, { "delay_ms": 600_000 }, { "text": "written" }]))
}

/// Kills the agent once the write is in the journal with its outcome, and starts it again.
async fn killed_after_its_write(device: &mut TestDevice, backend: &Backend) -> String {
    let run_id = writes(device, backend).await;
    device.kill_9();
    device.start().await;
    device.wait_until_connected().await;
    backend.wait_for_state(&run_id, "awaiting_reconciliation").await;
    device.wait_for_standing(&run_id, "awaiting_reconciliation").await;
    run_id
}

/// A run that has written and still executes.
async fn writes(device: &TestDevice, backend: &Backend) -> String {
    let run_id = backend.submit("Answer.").await;
    deskgate_tests::until("the write to be reported", async || {
        let events = device.events(&run_id).await;
        if events.iter().any(|event| event == "tool.completed") { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    run_id
}

#[tokio::test]
async fn a_run_that_had_written_waits_for_its_owner_who_sees_what_is_on_disk() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &["--allow", "Write"]).await;
    let run_id = killed_after_its_write(&mut device, &backend).await;
    let shown = device.cli(&["run", "show", &run_id]).await.ok();
    let evidence = &shown["evidence"][0];
    assert_eq!((text(evidence, "/tool"), text(evidence, "/on_disk")), ("Write", "as_planned"), "{shown}");
    assert_eq!(evidence["ok"], true);
    let plain = device.plain_cli(&["run", "show", &run_id]).await.stdout;
    assert!(plain.contains("run reconcile") && plain.contains("as the tool call was to make it"), "{plain}");

    device.cli(&["run", "reconcile", &run_id, "--finished"]).await.ok();
    let run = backend.wait_for_end(&run_id).await;
    let error = (text(&run, "/state"), text(&run, "/error/code"), text(&run, "/error/effects"));
    assert_eq!(error, ("failed", "interrupted", "known"), "{run}");
    let again = device.cli(&["run", "reconcile", &run_id, "--run-again"]).await;
    assert_eq!(again.exit, 6, "{}", again.stderr);
    let events = device.events(&run_id).await;
    assert_eq!(events.iter().filter(|event| *event == "run.reconciled").count(), 1, "{events:?}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn a_run_that_its_owner_wants_again_runs_again_once_and_the_events_say_so() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &["--allow", "Write"]).await;
    let run_id = killed_after_its_write(&mut device, &backend).await;
    folder.script("writer", json!([{ "text": "again" }]));
    device.cli(&["run", "reconcile", &run_id, "--run-again"]).await.ok();
    ran_again(&device, &backend, &run_id).await;
}

#[tokio::test]
async fn a_decision_before_the_gateway_knew_that_there_was_one_to_make_is_told_in_its_order() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &["--allow", "Write"]).await;
    let run_id = writes(&device, &backend).await;
    gateway.kill_9();
    device.kill_9();
    device.start().await;
    device.wait_for_standing(&run_id, "awaiting_reconciliation").await;
    folder.script("writer", json!([{ "text": "again" }]));
    device.cli(&["run", "reconcile", &run_id, "--run-again"]).await.ok();
    device.kill_9();
    device.start().await;
    device.wait_for_standing(&run_id, "interrupted").await;
    gateway.restart().await;
    ran_again(&device, &backend, &run_id).await;
}

/// It ended in its second attempt, and its events show why.
async fn ran_again(device: &TestDevice, backend: &Backend, run_id: &str) {
    let run = backend.wait_for_end(run_id).await;
    assert_eq!(text(&run, "/result/text"), "again", "{run}");
    let events = device.events(run_id).await;
    let place =
        |name: &str| events.iter().position(|event| event == name).unwrap_or_else(|| panic!("{name}: {events:?}"));
    assert!(place("run.awaiting_reconciliation") < place("run.reconciled"), "{events:?}");
    assert!(place("run.reconciled") < place("run.succeeded"), "{events:?}");
    assert_eq!(device.executions(run_id), 2);
}

#[tokio::test]
async fn a_run_that_was_killed_while_it_asked_asks_anew_and_writes_once() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let run_id = backend.submit("Answer.").await;
    let first = waiting(&device).await;
    device.kill_9();
    device.start().await;
    device.wait_for_standing(&run_id, "awaiting_approval").await;
    let second = waiting(&device).await;
    assert_ne!(first["approval_id"], second["approval_id"]);
    let late = device.cli(&["approval", "approve", text(&first, "/approval_id")]).await;
    assert_eq!(late.exit, 6, "{}", late.stderr);
    assert!(!folder.path().join("reply.txt").exists());
    device.cli(&["approval", "approve", text(&second, "/approval_id")]).await.ok();
    deskgate_tests::until("the file to be written", async || {
        if folder.path().join("reply.txt").exists() { Ok(()) } else { Err("it is not there".to_owned()) }
    })
    .await;
    assert_eq!(device.executions(&run_id), 2);
    let events = device.events(&run_id).await;
    assert_eq!(events.iter().filter(|event| *event == "run.restarted").count(), 1, "{events:?}");
    // Stopped while it takes a while: the write remains, and the caller learns that.
    device.cli(&["run", "stop", &run_id]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "cancelled");
}

/// Wherever the kill falls between the approval and the end: an existing file is written a second time only with the
/// owner's decision, and a run that restarts by itself had written nothing.
#[tokio::test]
async fn a_kill_at_whatever_moment_of_a_write_ends_in_a_question_or_in_nothing_written() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &["--ask", "Write"]).await;
    let file = folder.path().join("reply.txt");
    for looks in [0, 100, 1_000, 10_000, 10_000_000] {
        let run_id = backend.submit("Answer.").await;
        let request = waiting(&device).await;
        device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
        // Killed after this many reads, or as soon as the file exists.
        let _ = (0..looks).find(|_| file.exists());
        device.kill_9();
        device.start().await;
        let standing = deskgate_tests::until("the run to be settled or to ask again", async || {
            let runs = device.status().await["work"]["runs"].clone();
            let standing = runs[0]["standing"].as_str().unwrap_or_default().to_owned();
            if standing.starts_with("awaiting") { Ok(standing) } else { Err(runs.to_string()) }
        })
        .await;
        if standing == "awaiting_approval" {
            assert!(!file.exists(), "after {looks} looks it began again though it had written");
            device.cli(&["run", "stop", &run_id]).await.ok();
        } else {
            assert_eq!(device.executions(&run_id), 1);
            device.cli(&["run", "reconcile", &run_id, "--not-done"]).await.ok();
        }
        backend.wait_for_end(&run_id).await;
        let _ = std::fs::remove_file(&file);
    }
}
