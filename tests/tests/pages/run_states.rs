//! The pages with runs in all ten states, with an application that is being disabled, and without a gateway.

use deskgate_protocol::run::RunState;
use deskgate_tests::backend::fresh_key;
use deskgate_tests::browser::BrowserPage;
use deskgate_tests::logind::Logind;
use deskgate_tests::{Backend, Browser, Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::json;

use crate::accessibility::AccessibilityChecker;
use crate::text;

/// Longer than any test.
const ENDLESS_RUN_MS: u64 = 3_600_000;

/// One run in each state, and their services.
struct RunStatesFixture<'a> {
    gateway: &'a GatewayProcess,
    device: TestDevice,
    folder: &'a Folder,
}

impl RunStatesFixture<'_> {
    async fn service(&self, app: &str, model: &str, tools: &[&str]) -> Backend {
        self.device.publish(self.gateway, app, self.folder, &[&["--model", model], tools].concat()).await
    }

    /// Kills the agent after a write, so that its further effects are unknown. From then on it gets sleep signals.
    async fn cut_off(&mut self) -> (String, Logind) {
        let write =
            json!({ "tool": "Write", "arguments": { "file_path": "letter.txt", "content": "Dear customer\n" } });
        let model =
            self.folder.script("letters", json!([write, { "delay_ms": ENDLESS_RUN_MS }, { "text": "written" }]));
        let backend = self.service("Letters", &model, &["--tools", "Read,Write", "--allow", "Write"]).await;
        let run_id = backend.submit("Write the letter.").await;
        until("the write to be reported", async || {
            let events = self.device.events(&run_id).await;
            if events.iter().any(|event| event == "tool.completed") { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
        self.device.kill_9();
        let logind = Logind::start(&self.device).await;
        self.device.start().await;
        self.device.wait_until_connected().await;
        backend.wait_for_state(&run_id, "awaiting_reconciliation").await;
        (run_id, logind)
    }

    async fn asks(&self) -> String {
        let write = json!({ "tool": "Write", "arguments": { "file_path": "reply.txt", "content": "Dear customer\n" } });
        let model = self.folder.script("replies", json!([{ "text": "I save it." }, write, { "text": "Saved." }]));
        let backend = self.service("Replies", &model, &["--tools", "Read,Write"]).await;
        let run_id = backend.submit("Answer.").await;
        backend.wait_for_state(&run_id, "awaiting_approval").await;
        run_id
    }

    async fn ends(&self, app: &str, step: serde_json::Value, state: &str) -> String {
        let backend = self.service(app, &self.folder.script(app, json!([step])), &[]).await;
        let run_id = backend.submit("What is due?").await;
        assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), state);
        run_id
    }

    /// One running run, and others behind it: it takes long, and blocks its service.
    async fn queue(&self) -> Vec<String> {
        let backend =
            self.service("Reports", &self.folder.slow_answer(ENDLESS_RUN_MS, "late"), &["--tools", "Read,Write"]).await;
        let running = backend.submit("Write the report.").await;
        backend.wait_for_state(&running, "running").await;
        let mut runs = vec![running];
        for _ in 0..4 {
            runs.push(backend.submit("And the next one.").await);
        }
        let cancelled = backend.submit("Never mind.").await;
        self.device.cli(&["run", "stop", &cancelled]).await.ok();
        let path = format!("/agent-endpoints/{}/runs", backend.endpoint_id());
        let brief = backend.request(reqwest::Method::POST, &path).header("Idempotency-Key", fresh_key());
        let brief = brief.json(&json!({ "input": { "text": "Now or never." }, "queue_ttl_s": 1 }));
        let expired = text(&backend.send(brief).await.expect("answered").body, "/run_id").to_owned();
        for (run_id, state) in [(&cancelled, "cancelled"), (&expired, "expired")] {
            assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), state);
        }
        runs.extend([cancelled, expired]);
        runs
    }
}

/// Checks a run's page when the run is in a state that was not checked yet.
async fn look(
    judge: &mut AccessibilityChecker,
    seen: &mut Vec<RunState>,
    page: &BrowserPage,
    device: &TestDevice,
    run_id: &str,
) {
    let shown = device.cli(&["run", "show", run_id]).await.ok();
    let state: RunState = text(&shown, "/run/state").parse().expect("a state");
    if !seen.contains(&state) {
        seen.push(state);
        page.goto(&format!("/runs/{run_id}")).await;
        judge.judge(page, state.as_str()).await;
    }
}

#[tokio::test]
async fn runs_in_all_ten_states_and_what_needs_their_owner_are_fit_for_everybody() {
    let Some(browser) = Browser::start().await else { return };
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let folder = Folder::new();
    let mut runs =
        RunStatesFixture { gateway: &gateway, device: TestDevice::paired_with(&gateway).await, folder: &folder };
    let (cut_off, logind) = runs.cut_off().await;
    let mut all = vec![cut_off, runs.asks().await];
    all.push(runs.ends("Answers", json!({ "text": "The order of Ms Meier." }), "succeeded").await);
    all.push(
        runs.ends("Outages", json!({ "error": { "kind": "model", "message": "No such model." } }), "failed").await,
    );
    all.extend(runs.queue().await);
    let (device, running, queued) = (runs.device, all[4].clone(), all[5].clone());

    let page = browser.signed_in(&device).await;
    let mut judge = AccessibilityChecker::of("states");
    judge.judge(&page, "overview").await;
    page.goto("/runs").await;
    judge.judge(&page, "runs").await;
    page.goto("/runs?state=failed&find=nonsense").await;
    page.wait_for_visible("[role=alert]").await;
    judge.judge(&page, "runs-wrong-search").await;
    page.goto("/runs?state=awaiting_reconciliation").await;
    page.click("text=Decide about these").await;
    page.wait_for_visible("h2 >> text=Interrupted on this computer").await;
    judge.judge(&page, "unsettled").await;
    let mut seen = Vec::new();
    for run_id in &all {
        look(&mut judge, &mut seen, &page, &device, run_id).await;
    }
    page.goto(&format!("/runs/{running}")).await;
    page.click("text=Stop run…").await;
    page.wait_for_visible("dialog[open]").await;
    judge.judge(&page, "stop-dialog").await;

    // A run is in this state only for a moment.
    let uuid = running.trim_start_matches("run_");
    assert_eq!(postgres.change(&format!("UPDATE runs SET state = 'cancelling' WHERE run_id = '{uuid}'")).await, 1);
    look(&mut judge, &mut seen, &page, &device, &running).await;
    logind.announce_sleep().await;
    until("the gateway to know of the sleep", async || {
        let shown = device.cli(&["run", "show", &queued]).await.ok();
        if shown["run"]["state"] == "waiting_for_device" { Ok(()) } else { Err(shown["run"].to_string()) }
    })
    .await;
    look(&mut judge, &mut seen, &page, &device, &queued).await;
    logind.announce_wake().await;
    assert_eq!(seen.len(), RunState::ALL.len(), "{seen:?}");

    // Its run stays locked while another session's transaction is open.
    let held = postgres.lock_table("runs").await;
    device.cli(&["app", "disable", "Letters", "--yes"]).await.ok();
    page.goto("/applications").await;
    page.click("main >> text=Letters").await;
    page.wait_for_visible("#state >> text=Disabling").await;
    page.wait_for_visible("#state >> text=1 interrupted run needs your decision").await;
    assert_eq!(page.count("#state button:disabled >> text=Complete disabling").await, 1);
    assert_eq!(page.count("#services .stages").await, 0, "nothing of it is enabled any more");
    judge.judge(&page, "disabling").await;
    drop(held);
    // The open page learns by itself that its device has ended the run.
    page.wait_for_hidden("#state >> text=1 interrupted run needs your decision").await;

    // The open page asks by itself, and learns that the gateway is gone.
    browser.tolerate(Some("status of 503")).await;
    gateway.kill_9();
    device.wait_for_line_state("disconnected").await;
    page.wait_for_visible("header >> text=disconnected").await;
    page.goto("/").await;
    assert_eq!(page.count("#steps").await, 0, "what is done is not known, and not open again");
    judge.judge(&page, "overview-without-gateway").await;
    assert_eq!(page.goto("/runs").await, 503);
    judge.judge(&page, "runs-without-gateway").await;
    judge.sentence(17);
}
