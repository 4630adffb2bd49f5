//! A desktop notification for a pending approval: shown once, and withdrawn when the approval is over.

use std::os::unix::fs::PermissionsExt;

use deskgate_tests::{Backend, Folder, Notifier, TestDevice, until};
use serde_json::json;

use crate::approvals::waiting;
use crate::text;

async fn asking(device: &TestDevice, folder: &Folder) -> Backend {
    let write = json!({ "file_path": "reply.md", "content": "Dear customer\n" });
    let script = folder.script("writer", json!([{ "tool": "Write", "arguments": write }, { "text": "Done." }]));
    device.publish_here("A <b>shop</b>", folder, &["--model", &script, "--tools", "Read,Write"]).await
}

#[tokio::test]
async fn a_call_that_waits_is_told_of_once_and_the_notification_goes_when_it_is_decided() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let notifier = Notifier::start(&device).await;
    let backend = asking(&device, &folder).await;
    // A click opens the pages in the browser, which gets a file.
    let (programs, opened) = (device.programs(), device.folder().join("opened"));
    std::fs::create_dir(&programs).expect("a fresh folder");
    let browser = programs.join("xdg-open");
    std::fs::write(&browser, format!("#!/bin/sh\ncp \"$1\" {}\n", opened.display())).expect("writable");
    std::fs::set_permissions(&browser, PermissionsExt::from_mode(0o755)).expect("ours");

    let run_id = backend.submit("Answer.").await;
    let request = waiting(&device).await;
    let expected = json!([[
        "Deskgate",
        "Deskgate",
        "A &lt;b&gt;shop&lt;/b&gt; wants to run Write in reply.md",
        ["default", "Open"]
    ]]);
    until("the notification", async || {
        let shown = notifier.shown().await;
        if shown == expected { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(notifier.withdrawn().await, json!([]));
    notifier.is_clicked(1).await;
    until("the pages to be opened", async || {
        let page = std::fs::read_to_string(&opened).unwrap_or_default();
        if page.contains("/sign-in?code=") { Ok(()) } else { Err(page) }
    })
    .await;
    assert_eq!(
        text(&backend.wait_for_state(&run_id, "awaiting_approval").await, "/state"),
        "awaiting_approval",
        "no decision"
    );

    device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    until("the notification to be withdrawn", async || {
        let withdrawn = notifier.withdrawn().await;
        if withdrawn == json!([1]) { Ok(()) } else { Err(withdrawn.to_string()) }
    })
    .await;
    assert_eq!(notifier.shown().await, expected, "once");

    device.cli(&["notification", "set", "--hide-details", "true"]).await.ok();
    // A file that this run has not read could not be overwritten.
    std::fs::remove_file(folder.path().join("reply.md")).expect("written by the first run");
    let second = backend.submit("Answer again.").await;
    waiting(&device).await;
    until("a notification without details", async || match notifier.shown().await.get(1) {
        Some(shown) if shown[2] == "A tool call waits for your decision." => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    device.cli(&["notification", "set", "--approvals", "false"]).await.ok();
    device.cli(&["run", "stop", &second]).await.ok();
    backend.wait_for_end(&second).await;
    until("that to be withdrawn", async || {
        let withdrawn = notifier.withdrawn().await;
        if withdrawn == json!([1, 2]) { Ok(()) } else { Err(withdrawn.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn without_a_service_for_notifications_requests_wait_as_ever() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = asking(&device, &folder).await;
    let run_id = backend.submit("Answer.").await;
    let request = waiting(&device).await;
    device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    assert_eq!(device.log().count(&["WARN", "notification"]), 0);
}
