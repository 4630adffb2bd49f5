//! Approvals, decided by the desktop's owner on the command line.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::{Value, json};

use crate::health::SignedInClient;
use crate::text;

/// A service that writes `reply.txt` after approval, and answers with the tool's result.
async fn writer(device: &TestDevice, gateway: &GatewayProcess, folder: &Folder, arguments: &[&str]) -> Backend {
    let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": "Dear customer\n" } });
    let model = folder.script("writer", json!([{ "text": "I save it." }, write, { "text": "{{last_tool_result}}" }]));
    device.publish(gateway, "shop", folder, &[&["--model", &model, "--tools", "Read,Write"], arguments].concat()).await
}

/// The one open request.
pub(crate) async fn waiting(device: &TestDevice) -> Value {
    until("a request to wait", async || {
        let listed = device.cli(&["approval", "list"]).await.ok();
        match listed["approvals"].as_array().map(Vec::as_slice) {
            Some([one]) => Ok(one.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

fn written(folder: &Folder) -> Option<String> {
    std::fs::read_to_string(folder.path().join("reply.txt")).ok()
}

#[tokio::test]
async fn a_person_sees_the_whole_call_and_their_yes_lets_it_run_once() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let run_id = backend.submit("Answer.").await;
    let request = waiting(&device).await;
    assert_eq!((text(&request, "/tool"), text(&request, "/run_id")), ("Write", run_id.as_str()));
    assert_eq!(text(&request, "/subject"), "customer-1", "for whom it was submitted");
    assert!(device.plain_cli(&["approval", "list"]).await.stdout.contains("customer-1"));
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    device.wait_for_standing(&run_id, "awaiting_approval").await;
    let id = text(&request, "/approval_id");
    let shown = device.plain_cli(&["approval", "show", id]).await;
    for part in
        ["reply.txt", "+Dear customer", "shop", "customer-1\n", "I save it.", "nobody verified", "expires", "once"]
    {
        assert!(shown.stdout.contains(part), "{part:?} is missing in:\n{}", shown.stdout);
    }
    assert_eq!(written(&folder), None);
    device.cli(&["approval", "approve", id]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(written(&folder).as_deref(), Some("Dear customer\n"));
    let log = device.cli(&["approval", "log", "--run", &run_id]).await.ok();
    let what: Vec<_> = log["entries"].as_array().expect("a list").iter().map(|row| text(row, "/what")).collect();
    assert_eq!(what, ["executed", "decided", "requested"]);
    let by = text(&log["entries"][1], "/who");
    assert!(by.contains("uid "), "{by}");
}

#[tokio::test]
async fn of_two_people_who_decide_at_once_one_has_decided_and_the_other_learns_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let run_id = backend.submit("Answer.").await;
    let request = waiting(&device).await;
    let id = text(&request, "/approval_id");
    let approve = ["approval", "approve", id];
    let deny = ["approval", "deny", id, "--reason", "Not this one."];
    let (yes, no) = tokio::join!(device.cli(&approve), device.cli(&deny));
    let mut codes = [yes.exit, no.exit];
    codes.sort_unstable();
    assert_eq!(codes, [0, 6], "{} {}", yes.stderr, no.stderr);
    let run = backend.wait_for_end(&run_id).await;
    match yes.exit {
        0 => assert!(written(&folder).is_some()),
        _ => {
            assert_eq!(written(&folder), None);
            assert!(text(&run, "/result/text").contains("Not this one."), "{run}");
        }
    }
    let unknown = device.cli(&["approval", "approve", &format!("apr_{}", "0".repeat(32))]).await;
    assert_eq!(unknown.exit, 1, "{}", unknown.stderr);
}

#[tokio::test]
async fn a_denied_path_is_refused_without_asking_and_may_end_the_run() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let rules = ["--allow", "Write", "--deny", "Write:reply.txt", "--on-denial", "end"];
    let backend = writer(&device, &gateway, &folder, &rules).await;
    let run = backend.wait_for_end(&backend.submit("Answer.").await).await;
    assert_eq!((text(&run, "/error/code"), text(&run, "/error/effects")), ("approval_denied", "none"), "{run}");
    assert_eq!(written(&folder), None);
}

#[tokio::test]
async fn a_service_whose_run_waits_for_a_person_keeps_its_own_runs_in_the_queue_and_no_others() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let first = backend.submit("Answer.").await;
    device.wait_for_standing(&first, "awaiting_approval").await;
    // More than the device has slots.
    let mut behind = Vec::new();
    for _ in 0..6 {
        behind.push(backend.submit("Answer too.").await);
    }
    let other = device.publish(&gateway, "news", &folder, &["--tools", "Read"]).await;
    assert_eq!(text(&other.wait_for_end(&other.submit("What is here?").await).await, "/state"), "succeeded");
    for run_id in &behind {
        let run = backend.run(run_id).await;
        assert_eq!(text(&run, "/state"), "queued");
        // A claim already on its way when the service became full may bring one back.
        assert!(run["attempt"].as_u64() <= Some(2), "it was not offered again and again: {run}");
    }
}

#[tokio::test]
async fn a_stop_waits_for_no_decision_and_the_run_asks_anew_when_the_agent_is_back() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (mut device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let run_id = backend.submit("Answer.").await;
    let mut new = waiting(&device).await;
    // More often than the limit of restarts for a run.
    for _ in 0..3 {
        let old = new;
        device.wait_for_standing(&run_id, "awaiting_approval").await;
        let stopped = device.plain_cli(&["stop"]).await;
        assert!(stopped.exit == 0 && stopped.stdout.contains(&run_id), "{}{}", stopped.stdout, stopped.stderr);
        assert!(device.wait_for_exit().await.success());
        device.start().await;
        new = waiting(&device).await;
        assert_ne!(text(&new, "/approval_id"), text(&old, "/approval_id"));
        let late = device.cli(&["approval", "approve", text(&old, "/approval_id")]).await;
        assert_eq!((late.exit, written(&folder)), (6, None), "{}", late.stderr);
    }
    device.cli(&["approval", "approve", text(&new, "/approval_id")]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(written(&folder).as_deref(), Some("Dear customer\n"));
}

#[tokio::test]
async fn a_file_that_changed_under_its_request_is_asked_again() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    let backend = writer(&device, &gateway, &folder, &[]).await;
    let run_id = backend.submit("Answer.").await;
    let first = waiting(&device).await;
    folder.write("reply.txt", "by somebody else\n");
    let (id, former) = (text(&first, "/approval_id"), text(&first, "/approval_id"));
    device.cli(&["approval", "approve", id]).await.ok();
    let second = waiting(&device).await;
    let id = text(&second, "/approval_id");
    assert_ne!(id, former, "a request of its own");
    assert_eq!((text(&second, "/follows"), &second["again"]), (former, &json!(true)));
    let diff = text(&second, "/plan/shown/diff");
    assert!(diff.contains("-by somebody else") && diff.contains("+Dear customer"), "as the file is now: {diff}");
    assert_eq!(written(&folder).as_deref(), Some("by somebody else\n"), "nothing was written by the first");
    let shown = device.plain_cli(&["approval", "show", id]).await.stdout;
    assert!(shown.contains("has changed since") && shown.contains(former), "{shown}");
    let before = device.plain_cli(&["approval", "show", former]).await.stdout;
    assert!(before.contains("was not carried out") && before.contains(id), "{before}");
    device.cli(&["approval", "approve", id]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(written(&folder).as_deref(), Some("Dear customer\n"));
    let log = device.cli(&["approval", "log", "--run", &run_id]).await.ok();
    let what: Vec<_> = log["entries"].as_array().expect("a list").iter().map(|row| text(row, "/what")).collect();
    assert_eq!(what, ["executed", "decided", "requested", "decided", "requested"], "it ran once");
}

#[tokio::test]
async fn an_approved_edit_whose_text_is_gone_is_told_to_its_owner_as_not_carried_out() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
    folder.write("letter.txt", "Hello Ms Meier\n");
    let read = json!({ "tool": "Read", "arguments": { "file_path": "letter.txt" } });
    let edit = json!({ "file_path": "letter.txt", "old_string": "Hello", "new_string": "Dear" });
    let turns = json!([read, { "tool": "Edit", "arguments": edit }, { "text": "{{last_tool_result}}" }]);
    let model = folder.script("editor", turns);
    let backend = device.publish(&gateway, "letters", &folder, &["--model", &model, "--tools", "Read,Edit"]).await;
    let run_id = backend.submit("Polish it.").await;
    let request = waiting(&device).await;
    let id = text(&request, "/approval_id");
    folder.write("letter.txt", "Good morning\n");
    device.cli(&["approval", "approve", id]).await.ok();
    let run = backend.wait_for_end(&run_id).await;
    assert!(text(&run, "/result/text").contains("old_string is not in the file"), "{run}");
    let letter = std::fs::read_to_string(folder.path().join("letter.txt")).expect("it stays");
    assert_eq!(letter, "Good morning\n");
    let told = device.cli(&["approval", "show", id]).await.ok();
    assert_eq!(text(&told, "/state"), "approved");
    assert!(text(&told, "/not_done").contains("old_string is not in the file"), "{told}");
    let shown = device.plain_cli(&["approval", "show", id]).await.stdout;
    assert!(shown.contains("It was not carried out: old_string is not in the file"), "{shown}");
    let listed = device.plain_cli(&["approval", "list", "--all"]).await.stdout;
    assert!(listed.contains("approved, not carried out"), "{listed}");
    let browser = SignedInClient::of(&device).await;
    for path in ["/approvals?decided=true", &format!("/runs/{run_id}")] {
        let page = browser.page(path).await;
        assert!(page.contains("It was not carried out: old_string is not in the file"), "{path}: {page}");
    }
}
