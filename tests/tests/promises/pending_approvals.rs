//! A caller's view of a pending approval, with the real programs.

use deskgate_tests::stream::{RunStream, StreamEvent};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::{Value, json};

use crate::text;

/// A service that writes `secret-plans.txt` after approval, and answers with the tool's result.
struct ApprovalFixture {
    gateway: GatewayProcess,
    device: TestDevice,
    folder: Folder,
    backend: Backend,
    _postgres: Postgres,
}

impl ApprovalFixture {
    async fn new(arguments: &[&str]) -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
        let input = json!({ "file_path": "secret-plans.txt", "content": "Buy lamps.\n" });
        let steps = json!([{ "tool": "Write", "arguments": input }, { "text": "{{last_tool_result}}" }]);
        let model = folder.script("writer", steps);
        let service = [&["--model", &model, "--tools", "Read,Write"], arguments].concat();
        let backend = device.publish(&gateway, "shop", &folder, &service).await;
        Self { gateway, device, folder, backend, _postgres: postgres }
    }

    /// A followed run that waits for an approval.
    async fn asking(&self) -> (String, RunStream) {
        let run_id = self.backend.submit("Plan.").await;
        let stream = RunStream::open(&self.backend, &run_id, 0).await.expect("a stream");
        let run = self.backend.wait_for_state(&run_id, "awaiting_approval").await;
        assert_eq!(text(&run, "/state_reason/code"), "approval_pending");
        (run_id, stream)
    }

    /// The open request at the device.
    async fn request(&self) -> String {
        until("a request to wait", async || {
            let listed = self.device.cli(&["approval", "list"]).await.ok();
            match listed["approvals"].as_array().map(Vec::as_slice) {
                Some([one]) => Ok(text(one, "/approval_id").to_owned()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    fn written(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("secret-plans.txt")).ok()
    }
}

/// All further events of a stream.
async fn rest(mut stream: RunStream) -> Vec<StreamEvent> {
    let mut all = Vec::new();
    while let Some(sent) = stream.next().await {
        all.push(sent);
    }
    all
}

/// The stored events about the run itself, dense and in order, without those of messages and tools.
fn story(shown: &[StreamEvent]) -> Vec<&str> {
    let numbers: Vec<u64> = shown.iter().filter_map(|sent| sent.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{shown:?}");
    let of_the_run = |sent: &&StreamEvent| sent.id.is_some() && sent.event.starts_with("run.");
    shown.iter().filter(of_the_run).map(|sent| sent.event.as_str()).collect()
}

fn said<'a>(shown: &'a [StreamEvent], event: &str) -> Vec<&'a Value> {
    shown.iter().filter(|sent| sent.event == event).map(|sent| &sent.data["data"]).collect()
}

#[tokio::test]
async fn a_caller_who_follows_a_run_sees_the_question_the_answer_and_the_end_and_no_arguments() {
    let site = ApprovalFixture::new(&[]).await;
    let (run_id, stream) = site.asking().await;
    let request = site.request().await;
    site.device.cli(&["approval", "approve", &request]).await.ok();
    let shown = rest(stream).await;
    let expected = ["run.accepted", "run.started", "run.awaiting_approval", "run.approval_resolved", "run.succeeded"];
    assert_eq!(story(&shown), expected);
    let question = said(&shown, "run.awaiting_approval")[0];
    assert_eq!((text(question, "/approval_id"), text(question, "/tool")), (request.as_str(), "Write"));
    let answer = json!({ "approval_id": request, "resolution": "approved" });
    assert_eq!(said(&shown, "run.approval_resolved"), [&answer]);
    let stored: Vec<_> = shown.iter().filter(|sent| !sent.event.starts_with("message.")).collect();
    let everything = format!("{:?}", stored.iter().map(|sent| &sent.data["data"]).collect::<Vec<_>>());
    assert!(!everything.contains("secret-plans") && !everything.contains("Buy lamps"), "{everything}");
    assert_eq!((site.written().as_deref(), site.device.executions(&run_id)), (Some("Buy lamps.\n"), 1));
}

#[tokio::test]
async fn a_refusal_is_seen_and_the_run_goes_on_without_the_call() {
    let site = ApprovalFixture::new(&[]).await;
    let (run_id, stream) = site.asking().await;
    let request = site.request().await;
    site.device.cli(&["approval", "deny", &request, "--reason", "Not today."]).await.ok();
    let shown = rest(stream).await;
    assert_eq!(story(&shown)[2..], ["run.awaiting_approval", "run.approval_resolved", "run.succeeded"]);
    assert_eq!(said(&shown, "run.approval_resolved")[0]["resolution"], "denied");
    let run = site.backend.run(&run_id).await;
    assert!(text(&run, "/result/text").contains("Not today."), "{run}");
    assert_eq!(site.written(), None);
}

#[tokio::test]
async fn what_nobody_decides_expires_as_such_and_may_end_the_run() {
    let site = ApprovalFixture::new(&["--approval-expiry", "1m", "--on-denial", "end"]).await;
    let (run_id, stream) = site.asking().await;
    let shown = rest(stream).await;
    assert_eq!(story(&shown)[2..], ["run.awaiting_approval", "run.approval_resolved", "run.failed"]);
    assert_eq!(said(&shown, "run.approval_resolved")[0]["resolution"], "expired");
    let run = site.backend.run(&run_id).await;
    assert_eq!((text(&run, "/error/code"), text(&run, "/error/effects")), ("approval_expired", "none"), "{run}");
    let active = run.pointer("/usage/active_seconds").and_then(Value::as_f64).expect("it is counted");
    assert!(active < 50.0, "the waiting does not count: {run}");
    assert_eq!(site.written(), None);
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_asks_ends_with_its_question_withdrawn() {
    let site = ApprovalFixture::new(&[]).await;
    let (run_id, stream) = site.asking().await;
    let request = site.request().await;
    let operation = site.backend.stop(&run_id).await;
    let stopped = json!({ "code": "stopped", "run_state": "cancelled" });
    assert_eq!(site.backend.outcome(&operation).await, stopped);
    let shown = rest(stream).await;
    let expected = ["run.awaiting_approval", "run.cancelling", "run.approval_resolved", "run.cancelled"];
    assert_eq!(story(&shown)[2..], expected);
    assert_eq!(said(&shown, "run.approval_resolved")[0]["resolution"], "withdrawn");
    assert_eq!(said(&shown, "run.cancelled")[0]["effects"], "none");
    let late = site.device.cli(&["approval", "approve", &request]).await;
    assert_ne!(late.exit, 0, "{}", late.stdout);
    assert_eq!(site.written(), None);
}

#[tokio::test]
async fn a_device_that_is_killed_while_it_asks_asks_anew_and_the_old_question_is_withdrawn() {
    let mut site = ApprovalFixture::new(&[]).await;
    let (run_id, stream) = site.asking().await;
    let old = site.request().await;
    site.device.kill_9();
    site.device.start().await;
    until("another request to wait", async || {
        let request = site.request().await;
        if request == old { Err(request) } else { Ok(()) }
    })
    .await;
    let new = site.request().await;
    assert_eq!(site.written(), None);
    site.device.cli(&["approval", "approve", &new]).await.ok();
    let shown = rest(stream).await;
    let expected = [
        "run.awaiting_approval",
        "run.approval_resolved",
        "run.restarted",
        "run.awaiting_approval",
        "run.approval_resolved",
        "run.succeeded",
    ];
    assert_eq!(story(&shown)[2..], expected);
    let answers = said(&shown, "run.approval_resolved");
    assert_eq!(answers[0], &json!({ "approval_id": old, "resolution": "withdrawn" }));
    assert_eq!(answers[1], &json!({ "approval_id": new, "resolution": "approved" }));
    assert_eq!((site.written().as_deref(), site.device.executions(&run_id)), (Some("Buy lamps.\n"), 2));
}

#[tokio::test]
async fn a_decision_that_is_made_while_the_gateway_is_dead_counts_and_is_seen_when_it_is_back() {
    let mut site = ApprovalFixture::new(&[]).await;
    let (run_id, stream) = site.asking().await;
    let request = site.request().await;
    site.gateway.kill_9();
    site.device.cli(&["approval", "approve", &request]).await.ok();
    until("the file to be written", async || site.written().ok_or_else(|| "it is not there".to_owned())).await;
    drop(stream);
    site.gateway.restart().await;
    let run = site.backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/state"), "succeeded", "{run}");
    let shown = rest(RunStream::open(&site.backend, &run_id, 0).await.expect("a stream")).await;
    let mut story = story(&shown);
    // The device may have been away beyond its lease.
    story.retain(|event| !event.contains("reconcil"));
    assert_eq!(story[2..], ["run.awaiting_approval", "run.approval_resolved", "run.succeeded"]);
    assert_eq!(site.device.executions(&run_id), 1);
}
