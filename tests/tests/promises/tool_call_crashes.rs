//! kill -9 of the agent at each step of a writing tool call, in the order of its journal entries.
//!
//! | time of the kill | what is held at that moment |
//! |---|---|
//! | before an intent to write | the model, which takes a while |
//! | while an approval is open | the person; see `reconciliation` |
//! | when the intent is on disk, before the effect | the command, which waits for a file |
//! | after the effect, before its outcome is on disk | the command, which waits for another file |
//! | when the outcome is on disk, and the run goes on | the model; see `reconciliation` |
//! | when the run's end is on disk, before it is reported | the network, in both directions |
//! | when it was reported, before the gateway's answer | the network, in one direction |

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::json;

use crate::approvals::waiting;
use crate::text;

/// Waits for `begin`, leaves a line in `effect`, and waits for `end`.
const WAITING_COMMAND: &str = "while [ ! -e begin ]; do sleep 0.05; done; echo done >>effect
while [ ! -e end ]; do sleep 0.05; done";

/// A service that runs the command without approval, and then answers.
struct CrashFixture {
    _postgres: Postgres,
    _gateway: GatewayProcess,
    device: TestDevice,
    folder: Folder,
    backend: Backend,
}

impl CrashFixture {
    async fn new() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
        let command = json!({ "tool": "Bash", "arguments": { "command": WAITING_COMMAND } });
        let model = folder.script("strikes", json!([command, { "text": "done" }]));
        let service = ["--model", &model, "--tools", "Bash", "--allow", "Bash"];
        let backend = device.publish(&gateway, "shop", &folder, &service).await;
        Self { _postgres: postgres, _gateway: gateway, device, folder, backend }
    }

    /// Submits a run that has begun its command; this is reported when the intent is on disk.
    async fn in_its_command(&self) -> String {
        let run_id = self.backend.submit("Work.").await;
        until("the command to begin", async || match self.count(&run_id, "tool.started").await {
            0 => Err("it has not".to_owned()),
            _ => Ok(()),
        })
        .await;
        run_id
    }

    /// The same, with the effect done.
    async fn behind_its_effect(&self) -> String {
        let run_id = self.in_its_command().await;
        self.folder.write("begin", "");
        until("the effect", async || match self.effects() {
            0 => Err("there is none".to_owned()),
            _ => Ok(()),
        })
        .await;
        run_id
    }

    /// How often the command took effect.
    fn effects(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("effect")).map_or(0, |text| text.lines().count())
    }

    async fn struck(&mut self) {
        self.device.kill_9();
        self.device.start().await;
    }

    async fn count(&self, run_id: &str, event: &str) -> usize {
        self.device.events(run_id).await.iter().filter(|name| *name == event).count()
    }

    /// The run waits for its owner, who sees a call with an unknown outcome.
    async fn waits_for_its_owner(&self, run_id: &str) {
        self.backend.wait_for_state(run_id, "awaiting_reconciliation").await;
        let shown = self.device.cli(&["run", "show", run_id]).await.ok();
        let evidence = &shown["evidence"][0];
        let seen = (text(evidence, "/tool"), &evidence["ok"], text(evidence, "/arguments/command"));
        assert_eq!(seen, ("Bash", &json!(null), WAITING_COMMAND), "{shown}");
        assert_eq!(self.device.executions(run_id), 1);
    }
}

#[tokio::test]
async fn a_run_killed_before_it_meant_to_write_starts_again_by_itself_and_what_it_does_is_done_once() {
    let mut site = CrashFixture::new().await;
    let command = json!({ "tool": "Bash", "arguments": { "command": "echo done >>effect" } });
    site.folder.script("strikes", json!([{ "delay_ms": 600_000 }, command, { "text": "done" }]));
    let run_id = site.backend.submit("Work.").await;
    site.device.wait_for_standing(&run_id, "running").await;
    site.device.kill_9();
    site.folder.script("strikes", json!([command, { "text": "done" }]));
    site.device.start().await;
    assert_eq!(site.backend.wait_for_end(&run_id).await["state"], "succeeded");
    assert_eq!((site.effects(), site.device.executions(&run_id)), (1, 2));
    assert_eq!(site.count(&run_id, "run.restarted").await, 1);
    assert_eq!(site.count(&run_id, "run.awaiting_reconciliation").await, 0);
}

#[tokio::test]
async fn a_run_killed_in_its_second_attempt_too_is_given_up_and_says_that_nothing_was_changed() {
    let mut site = CrashFixture::new().await;
    site.folder.script("strikes", json!([{ "delay_ms": 600_000 }, { "text": "done" }]));
    let run_id = site.backend.submit("Work.").await;
    for attempt in 1..=2 {
        site.device.wait_for_standing(&run_id, "running").await;
        assert_eq!(site.device.executions(&run_id), attempt);
        site.struck().await;
    }
    let run = site.backend.wait_for_end(&run_id).await;
    let error = (text(&run, "/error/code"), text(&run, "/error/effects"));
    assert_eq!((error, site.device.executions(&run_id)), (("internal", "none"), 2), "{run}");
}

#[tokio::test]
async fn a_run_killed_between_intent_and_effect_waits_and_its_next_attempt_asks_before_it_does_the_same() {
    let mut site = CrashFixture::new().await;
    let run_id = site.in_its_command().await;
    site.struck().await;
    site.waits_for_its_owner(&run_id).await;
    // The file that the command waited for: no process is left that could go on.
    site.folder.write("begin", "");
    site.folder.write("end", "");
    site.device.cli(&["run", "reconcile", &run_id, "--run-again"]).await.ok();
    // The rules allow it, but it may have happened.
    let request = waiting(&site.device).await;
    assert_eq!((text(&request, "/tool"), &request["attempt"]), ("Bash", &json!(2)), "{request}");
    assert_eq!(site.effects(), 0);
    site.device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
    assert_eq!(site.backend.wait_for_end(&run_id).await["state"], "succeeded");
    assert_eq!((site.effects(), site.device.executions(&run_id)), (1, 2));
}

#[tokio::test]
async fn a_run_killed_between_effect_and_outcome_waits_and_is_never_done_again_by_itself() {
    let mut site = CrashFixture::new().await;
    let run_id = site.behind_its_effect().await;
    site.struck().await;
    site.waits_for_its_owner(&run_id).await;
    // Neither after a further start, nor over a new connection.
    site.device.proxy().cut();
    site.struck().await;
    site.device.proxy().heal();
    site.device.wait_until_connected().await;
    site.waits_for_its_owner(&run_id).await;
    site.device.cli(&["run", "reconcile", &run_id, "--finished"]).await.ok();
    let run = site.backend.wait_for_end(&run_id).await;
    let error = (text(&run, "/error/code"), text(&run, "/error/effects"));
    assert_eq!((error, site.effects()), (("interrupted", "known"), 1), "{run}");
    assert_eq!(site.device.executions(&run_id), 1);
}

#[tokio::test]
async fn a_run_killed_when_its_end_is_on_disk_and_untold_ends_as_it_did_with_its_effect_once() {
    let mut site = CrashFixture::new().await;
    let run_id = site.behind_its_effect().await;
    site.device.proxy().freeze();
    site.folder.write("end", "");
    site.device.wait_for_standing(&run_id, "finished").await;
    site.device.kill_9();
    // The bytes that the network held back are lost with it.
    site.device.proxy().cut();
    assert_eq!(site.backend.run(&run_id).await["state"], "running");
    site.device.proxy().heal();
    site.device.start().await;
    ended_once(&site, &run_id).await;
}

#[tokio::test]
async fn a_run_killed_when_its_end_was_told_and_not_acknowledged_ends_once() {
    let mut site = CrashFixture::new().await;
    let run_id = site.behind_its_effect().await;
    site.device.proxy().deafen();
    site.folder.write("end", "");
    let ended = site.backend.wait_for_end(&run_id).await;
    site.device.wait_for_standing(&run_id, "finished").await;
    site.device.kill_9();
    site.device.proxy().cut();
    site.device.proxy().heal();
    site.device.start().await;
    ended_once(&site, &run_id).await;
    assert_eq!(site.backend.run(&run_id).await, ended, "it is told once more, and changes nothing");
}

/// It succeeded with one execution, and the device has the gateway's acknowledgement.
async fn ended_once(site: &CrashFixture, run_id: &str) {
    let run = site.backend.wait_for_end(run_id).await;
    assert_eq!((text(&run, "/state"), text(&run, "/result/text")), ("succeeded", "done"), "{run}");
    until("the device to be done with it", async || {
        let runs = site.device.status().await["work"]["runs"].clone();
        if runs == json!([]) { Ok(()) } else { Err(runs.to_string()) }
    })
    .await;
    assert_eq!((site.effects(), site.device.executions(run_id)), (1, 1));
    for (event, times) in [("run.succeeded", 1), ("run.restarted", 0), ("run.awaiting_reconciliation", 0)] {
        assert_eq!(site.count(run_id, event).await, times, "{event}");
    }
}
