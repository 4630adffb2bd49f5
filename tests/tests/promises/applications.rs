//! What was disabled never works again, and goes when everything of it has ended.

use deskgate_tests::{Device, Folder, GatewayProcess, Postgres};
use serde_json::json;

use crate::text;

#[tokio::test]
async fn an_application_is_disabled_completed_and_removed_while_one_of_its_runs_waits_for_its_owner() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (Device::paired_with(&gateway).await, Folder::new());
    let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": "Dear customer\n" } });
    let model = folder.script("writer", json!([write, { "delay_ms": 600_000 }, { "text": "written" }]));
    let arguments = ["--model", &model, "--tools", "Read,Write", "--allow", "Write"];
    let backend = device.publish(&gateway, "shop", &folder, &arguments).await;
    let run_id = backend.submit("Answer.").await;
    deskgate_tests::until("the write to be reported", async || {
        let events = device.events(&run_id).await;
        if events.iter().any(|event| event == "tool.completed") { Ok(()) } else { Err(format!("{events:?}")) }
    })
    .await;
    device.kill_9();
    device.start().await;
    device.connected().await;
    device.standing(&run_id, "awaiting_reconciliation").await;

    // Nobody is there to be asked, so nothing is done; the question came with its numbers.
    let asked = device.cli(&["app", "disable", "shop"]).await;
    assert_eq!(asked.exit, 1, "{}", asked.stderr);
    let question = &asked.stderr;
    assert!(question.contains("1 run in progress") && question.contains("no changes made"), "{question}");
    assert_eq!(device.cli(&["app", "show", "shop"]).await.ok()["state"], "active");

    let disabled = device.cli(&["app", "disable", "shop", "--yes"]).await.ok();
    assert_eq!((text(&disabled, "/state"), &disabled["live_keys"]), ("disabling", &json!(0)), "{disabled}");
    let waits = device.cli(&["app", "complete-disabling", "shop"]).await;
    assert_eq!(waits.exit, 6, "{}", waits.stderr);
    assert!(waits.stderr.contains("1 run to be settled by you"), "{}", waits.stderr);
    let early = device.cli(&["app", "remove", "shop", "--yes"]).await;
    assert_eq!(early.exit, 6, "{}", early.stderr);

    device.cli(&["runs", "reconcile", &run_id, "--not-done"]).await.ok();
    deskgate_tests::until("disabling to be complete", async || {
        let said = device.cli(&["app", "complete-disabling", "shop"]).await;
        if said.exit == 0 { Ok(()) } else { Err(said.stderr) }
    })
    .await;
    assert_eq!(device.cli(&["app", "remove", "shop", "--yes"]).await.ok()["state"], "removed");
    assert_eq!(device.cli(&["app", "list"]).await.ok()["applications"], json!([]));
    let removed = device.cli(&["app", "removed"]).await.ok();
    assert_eq!((text(&removed, "/applications/0/name"), &removed["applications"][0]["runs"]), ("shop", &json!(1)));
    assert_eq!(device.cli(&["runs", "show", &run_id]).await.ok()["run"]["state"], "failed", "its history is kept");
    device.cli(&["app", "create", "shop"]).await.ok();
    assert_eq!(device.executions(&run_id), 1);
}
