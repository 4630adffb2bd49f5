//! A disabled application never works again, and is completed when all of its work has ended.

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::text;

#[tokio::test]
async fn an_application_is_disabled_and_removed_once_its_run_that_nobody_knew_the_end_of_has_ended() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
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
    device.wait_until_connected().await;
    device.wait_for_standing(&run_id, "awaiting_reconciliation").await;

    // Without a terminal nothing is done; the question was printed with its numbers.
    let asked = device.cli(&["app", "disable", "shop"]).await;
    assert_eq!(asked.exit, 1, "{}", asked.stderr);
    let question = &asked.stderr;
    assert!(question.contains("1 started run, stopped") && question.contains("no changes made"), "{question}");
    assert_eq!(device.cli(&["app", "show", "shop"]).await.ok()["state"], "active");

    for early in [["app", "complete-disabling", "shop"].as_slice(), &["app", "remove", "shop", "--yes"]] {
        let refused = device.cli(early).await;
        assert_eq!(refused.exit, 6, "{early:?}: {}", refused.stderr);
    }

    let disabled = device.cli(&["app", "disable", "shop", "--wait", "2m", "--yes"]).await.ok();
    assert_eq!((text(&disabled, "/state"), &disabled["live_keys"]), ("disabled", &json!(0)), "{disabled}");
    assert_eq!(device.cli(&["app", "remove", "shop", "--yes"]).await.ok()["state"], "removed");
    assert_eq!(device.cli(&["app", "list"]).await.ok()["applications"], json!([]));
    let removed = device.cli(&["app", "removed"]).await.ok();
    assert_eq!((text(&removed, "/applications/0/name"), &removed["applications"][0]["runs"]), ("shop", &json!(1)));
    let shown = device.cli(&["run", "show", &run_id]).await.ok();
    assert_eq!(text(&shown, "/run/state"), "cancelled", "its history is kept: {shown}");
    assert_eq!(text(&shown, "/run/stop/requested_by"), "desktop_user", "{shown}");
    let listed = device.cli(&["run", "list", "--app", "shop"]).await.ok();
    assert_eq!(text(&listed, "/runs/0/run_id"), run_id, "{listed}");
    let activity = device.cli(&["app", "activity", "--app", "shop"]).await.ok();
    let newest = (text(&activity, "/entries/0/what"), text(&activity, "/entries/0/by"));
    assert_eq!(newest, ("application.removed", "cli"), "{activity}");
    device.cli(&["app", "create", "shop"]).await.ok();
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn what_a_removed_application_did_is_exported_line_by_line_by_command_and_page_alike() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    // A run with more events than one reply has, and more runs than one reply has.
    let look = json!({ "tool": "Glob", "arguments": { "pattern": "*" } });
    let steps: Vec<Value> = (0..24).map(|_| look.clone()).chain([json!({ "text": "looked" })]).collect();
    let backend = device.publish_here("shop", &folder, &["--model", &folder.script("looker", json!(steps))]).await;
    let looked = backend.submit("Look around.").await;
    assert_eq!(text(&backend.wait_for_end(&looked).await, "/state"), "succeeded");
    for number in 0..27 {
        let run_id = backend.submit(&format!("again {number}")).await;
        device.cli(&["run", "stop", &run_id, "--wait", "60s"]).await.ok();
    }
    device.cli(&["app", "disable", "shop", "--yes", "--wait", "2m"]).await.ok();
    device.cli(&["app", "remove", "shop", "--yes"]).await.ok();

    let file = folder.path().join("shop.jsonl");
    let output = file.to_str().expect("a plain name");
    let exported = device.cli(&["app", "export", "shop", "--output", output]).await.ok();
    assert_eq!(exported["runs"], json!(28), "{exported}");
    let written = std::fs::read_to_string(&file).expect("written");
    let lines: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    assert_eq!(lines.len(), 28);
    let line = lines.iter().find(|line| text(line, "/run/run_id") == looked).expect("each run has a line");
    let mut shown = device.cli(&["run", "show", &looked]).await.ok();
    for only_shown in ["schema", "receipt_verdict", "calls"] {
        shown.as_object_mut().expect("an object").remove(only_shown).expect("it is shown");
    }
    assert_eq!(*line, shown, "a line says what the run's own command says");
    assert!(line["events"].as_array().is_some_and(|events| events.len() > 40), "with all of its events");
    assert!(lines.iter().all(|line| text(line, "/run/input/text").len() > 5), "{written}");

    let again = device.cli(&["app", "export", "shop", "--output", output]).await;
    assert_eq!(again.exit, 1, "what is there stays there: {}", again.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), written);
    assert_eq!(device.plain_cli(&["app", "export", "shop"]).await.stdout, written);
    let unknown = device.cli(&["app", "export", "app_00000000000000000000000000000001"]).await;
    assert_eq!((unknown.exit, unknown.stdout.as_str()), (1, ""), "{}", unknown.stderr);

    let visitor = Visitor::of(&device).await;
    let page = visitor.page("/removed").await.text;
    let link = page.split("href=\"").map(|rest| rest.split('"').next().unwrap_or_default());
    let link = link.into_iter().find(|link| link.ends_with("/export.jsonl")).expect("a link");
    assert_eq!(visitor.page(link).await.text, written);
    let unknown = visitor.page("/applications/app_00000000000000000000000000000001/export.jsonl").await;
    assert_eq!(unknown.status.as_u16(), 404);
}
