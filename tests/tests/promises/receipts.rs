//! Receipts: what a gateway says of a run is compared with what the device has signed. A hostile gateway is one whose
//! tables were changed behind its back: what it then serves is what such a gateway would say.

use std::path::PathBuf;

use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_tests::device::CommandOutput;
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::{Value, json};

use crate::approvals::waiting;
use crate::frames::{answer, next_offer, publish, run_id};
use crate::text;

/// A device behind a gateway, a backend that calls it, and what the backend was told of the device's key.
struct ReceiptFixture {
    device: TestDevice,
    backend: Backend,
    folder: Folder,
    fingerprint: String,
    postgres: Postgres,
    _gateway: GatewayProcess,
}

impl ReceiptFixture {
    async fn open() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let (device, folder) = (TestDevice::paired_with(&gateway).await, Folder::new());
        let backend = device.publish(&gateway, "shop", &folder, &["--tools", "Read"]).await;
        let fingerprint = text(&device.cli(&["app", "show", "shop"]).await.ok(), "/device_fingerprint").to_owned();
        Self { device, backend, folder, fingerprint, postgres, _gateway: gateway }
    }

    async fn succeeded(&self, what: &str) -> Value {
        let run = self.backend.wait_for_end(&self.backend.submit(what).await).await;
        assert_eq!(text(&run, "/state"), "succeeded", "{run}");
        run
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path: PathBuf = self.device.folder().join(name);
        std::fs::write(&path, content).expect("writable");
        path.display().to_string()
    }

    async fn verify(&self, content: &str, more: &[&str]) -> CommandOutput {
        let file = self.file("to-verify", content);
        let command = ["verify-receipt", "--fingerprint", &self.fingerprint, &file];
        self.device.cli(&[&command, more].concat()).await
    }

    /// The members of a record that the verifier names.
    async fn named(&self, record: &Value) -> Vec<String> {
        let checked = self.verify(&record.to_string(), &[]).await;
        assert_eq!(checked.exit, 10, "{}{}", checked.stdout, checked.stderr);
        let violations = checked.value["violations"].as_array().expect("a list");
        let message = |violation: &Value| text(violation, "/message").split('`').nth(1).unwrap_or_default().to_owned();
        violations.iter().map(message).collect()
    }

    /// What the gateway says of a run after its tables were changed.
    async fn after(&self, change: &str, run: &Value) -> Value {
        let run_id = text(run, "/run_id");
        let id = run_id.trim_start_matches("run_");
        let changed = self.postgres.change(&change.replace("{id}", &format!("run_id = '{id}'"))).await;
        assert_eq!(changed, 1, "{change}");
        self.backend.run(run_id).await
    }

    /// The lines of the device's chain.
    async fn chain(&self) -> Vec<String> {
        let exported = self.device.plain_cli(&["audit", "export"]).await;
        assert_eq!(exported.exit, 0, "{}", exported.stderr);
        exported.stdout.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_backend_checks_the_outcome_of_its_run_by_what_the_device_signed() {
    let site = ReceiptFixture::open().await;
    let run = site.succeeded("What is here?").await;
    let app_id = site.device.cli(&["app", "show", "shop"]).await.ok();
    let input = site.file("input.json", r#"{ "text": "What is here?" }"#);
    let known = ["--input", &input, "--app", text(&app_id, "/app_id"), "--subject", "customer-1"];
    let checked = site.verify(&run.to_string(), &known).await.ok();
    assert_eq!((&checked["holds"], &checked["receipts"][0]["run_id"]), (&json!(true), &run["run_id"]));
    // Where its agent runs, an application is named as everywhere.
    for app in ["shop", &text(&app_id, "/app_id")[24..]] {
        let named = site.verify(&run.to_string(), &["--app", app, "--subject", "customer-1"]).await;
        assert_eq!(named.exit, 0, "{app}: {}", named.stderr);
        let wrong = site.verify(&run.to_string(), &["--app", app, "--subject", "customer-2"]).await;
        assert_eq!(wrong.exit, 10, "{app}: {}", wrong.stderr);
    }
    let elsewhere = TestDevice::new();
    let checked = ["verify-receipt", "--fingerprint", &site.fingerprint, "--subject", "customer-1", "--app"];
    let record = site.file("run.json", &run.to_string());
    assert_eq!(elsewhere.cli(&[&checked[..], &[text(&app_id, "/app_id"), &record]].concat()).await.exit, 0);
    let unnamed = elsewhere.cli(&[&checked[..], &["shop", &record]].concat()).await;
    assert!(unnamed.exit == 5 && unnamed.stderr.contains("give it whole: app_"), "{}", unnamed.stderr);
    let body = json!({ "type": "run.succeeded", "data": { "sequence": 5, "run": run } });
    assert_eq!(site.verify(&body.to_string(), &known).await.exit, 0, "a callback's body too");
    let events = site.backend.request(reqwest::Method::GET, &format!("/runs/{}/events", text(&run, "/run_id")));
    let events = site.backend.send(events.header("Accept", "application/json")).await.expect("an answer").body;
    let last = events["data"].as_array().and_then(|events| events.last()).expect("events").clone();
    assert_eq!(last["data"]["receipt"], run["receipt"], "the final event has it");

    let other = site.file("other.json", r#"{ "text": "Something else" }"#);
    let wrong = site.verify(&run.to_string(), &["--input", &other]).await;
    assert!(wrong.exit == 10 && wrong.stderr.contains("`input`"), "{}", wrong.stderr);
    let wrong = site.verify(&run.to_string(), &[&known[2..5], &["customer-2"]].concat()).await;
    assert!(wrong.exit == 10 && wrong.stderr.contains("`subject`"), "{}", wrong.stderr);
    let unpinned = ["verify-receipt", "--fingerprint", "SHA256:another", &site.file("run.json", &run.to_string())];
    let unpinned = site.device.cli(&unpinned).await;
    assert!(unpinned.exit == 10 && unpinned.stderr.contains("not one of those given"), "{}", unpinned.stderr);
    let shown = site.device.plain_cli(&["run", "show", text(&run, "/run_id")]).await;
    assert!(shown.stdout.contains("the record is what this device has signed"), "{}", shown.stdout);
}

#[tokio::test]
async fn a_gateway_that_alters_invents_or_exchanges_an_outcome_is_found() {
    let site = ReceiptFixture::open().await;
    let (run, other) = (site.succeeded("What is here?").await, site.succeeded("And what else?").await);
    assert_eq!(site.verify(&run.to_string(), &[]).await.exit, 0);
    let altered = site
        .after("UPDATE runs SET result = '{\"text\":\"Pay.\",\"finish_reason\":\"completed\"}' WHERE {id}", &run)
        .await;
    assert_eq!(site.named(&altered).await, ["result"]);
    let asked = site.after("UPDATE runs SET input = '{\"text\":\"Something else\"}' WHERE {id}", &other).await;
    assert_eq!(site.named(&asked).await, ["input"]);
    let swapped = format!("UPDATE runs SET receipt = '{}' WHERE {{id}}", text(&run, "/receipt"));
    let swapped = site.named(&site.after(&swapped, &other).await).await;
    assert!(swapped.contains(&"run_id".to_owned()) && swapped.contains(&"input".to_owned()), "{swapped:?}");
    let error = json!({ "code": "internal", "message": "No.", "retryable": true, "effects": "none" });
    let failed = format!("UPDATE runs SET state = 'failed', result = NULL, error = '{error}' WHERE {{id}}");
    assert_eq!(site.named(&site.after(&failed, &run).await).await, ["state", "error.code", "error", "result"]);
    let withheld = site.after("UPDATE runs SET receipt = NULL WHERE {id}", &run).await;
    let checked = site.verify(&withheld.to_string(), &[]).await;
    assert!(checked.exit == 10 && checked.stderr.contains("has no receipt"), "{}", checked.stderr);
    let forged = text(&run, "/receipt").rsplit_once('.').expect("a JWS").0.to_owned() + ".AAAA";
    let forged = site.after(&format!("UPDATE runs SET receipt = '{forged}' WHERE {{id}}"), &run).await;
    let checked = site.verify(&forged.to_string(), &[]).await;
    assert!(checked.exit == 10 && checked.stderr.contains("signature does not fit"), "{}", checked.stderr);
    let shown = site.device.plain_cli(&["run", "show", text(&run, "/run_id")]).await;
    assert!(shown.stdout.contains("signature does not fit"), "its owner sees it: {}", shown.stdout);
}

#[tokio::test]
async fn a_gateway_that_changes_what_a_failed_run_changed_is_found() {
    let site = ReceiptFixture::open().await;
    let model = site.folder.script("broken", json!([{ "error": { "kind": "model" } }]));
    let arguments = ["--model", &model, "--tools", "Read"];
    let service = site.device.add_service("shop", "broken", &site.folder, &arguments).await;
    let failing = Backend::new(site._gateway.http(), site.backend.key(), &service);
    let run = failing.wait_for_end(&failing.submit("Fail.").await).await;
    assert_eq!(text(&run, "/state"), "failed", "{run}");
    assert_eq!(site.verify(&run.to_string(), &[]).await.exit, 0);
    let mut changed = run;
    changed["error"]["effects"] = "known".into();
    assert_eq!(site.named(&changed).await, ["error.effects", "error"]);
}

#[tokio::test]
async fn a_chain_from_which_something_was_taken_or_in_which_something_was_moved_is_found() {
    let site = ReceiptFixture::open().await;
    for what in ["one", "two", "three"] {
        site.succeeded(what).await;
    }
    let chain = site.chain().await;
    assert!(chain.len() >= 6, "an offer and an outcome of each run");
    let verify = async |lines: &[String], more: &[&str]| site.verify(&lines.join("\n"), more).await;
    assert_eq!(verify(&chain, &[]).await.exit, 0);
    let without = [&chain[..2], &chain[3..]].concat();
    let found = verify(&without, &[]).await;
    assert!(found.exit == 10 && found.stderr.contains("receipts 3 to 3 are missing"), "{}", found.stderr);
    assert_eq!(verify(&without, &["--gaps-allowed"]).await.exit, 0, "a backend has only its own");
    let mut moved = chain.clone();
    moved.swap(2, 3);
    let found = verify(&moved, &[]).await;
    assert!(found.exit == 10 && found.stderr.contains("stands after receipt 4"), "{}", found.stderr);
    let twice = [&chain[..3], &chain[2..]].concat();
    let found = verify(&twice, &[]).await;
    assert!(found.exit == 10 && found.stderr.contains("stands here twice"), "{}", found.stderr);
    let file = site.device.folder().join("chain.jws").display().to_string();
    let exported = site.device.cli(&["audit", "export", &file]).await.ok();
    assert_eq!(exported["receipts"], chain.len());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_receipt_of_a_run_names_the_call_that_was_approved_and_the_one_that_was_denied() {
    let site = ReceiptFixture::open().await;
    let write = |name: &str| json!({ "tool": "Write", "arguments": { "file_path": name, "content": "x\n" } });
    let steps = json!([write("yes.txt"), write("no.txt"), { "text": "{{last_tool_result}}" }]);
    let model = site.folder.script("writer", steps);
    let arguments = ["--model", &model, "--tools", "Read,Write"];
    let service = site.device.add_service("shop", "writer", &site.folder, &arguments).await;
    let backend = Backend::new(site._gateway.http(), site.backend.key(), &service);
    let run_id = backend.submit("Write both.").await;
    let first = waiting(&site.device).await;
    site.device.cli(&["approval", "approve", text(&first, "/approval_id")]).await.ok();
    let second = until("the second request", async || {
        let listed = site.device.cli(&["approval", "list"]).await.ok();
        match listed["approvals"].as_array().map(Vec::as_slice) {
            Some([one]) if one["approval_id"] != first["approval_id"] => Ok(one.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    site.device.cli(&["approval", "deny", text(&second, "/approval_id")]).await.ok();
    let run = backend.wait_for_end(&run_id).await;
    let receipt = &site.verify(&run.to_string(), &[]).await.ok()["receipts"][0];
    assert_eq!(text(receipt, "/effects"), "known");
    for (index, status, decision, asked) in [(0, "ok", "approved", &first), (1, "not_run", "denied", &second)] {
        let call = &receipt["tools"][index];
        assert_eq!((text(call, "/name"), text(call, "/status")), ("Write", status), "{receipt}");
        assert_eq!(text(call, "/approval/decision"), decision);
        assert_eq!(call["approval"]["id"], asked["approval_id"]);
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_before_its_end_is_acknowledged_sends_the_same_receipt_and_signs_no_other() {
    let mut site = ReceiptFixture::open().await;
    site.succeeded("What is here?").await;
    let slow = site.folder.slow_answer(500, "late");
    let arguments = ["--model", &slow, "--tools", "Read"];
    let service = site.device.add_service("shop", "slow", &site.folder, &arguments).await;
    let backend = Backend::new(site._gateway.http(), site.backend.key(), &service);
    let run_id = backend.submit("Answer late.").await;
    site.device.wait_for_standing(&run_id, "running").await;
    // Nothing comes through any more, so the end is journalled and not acknowledged.
    site.device.proxy().freeze();
    site.device.wait_for_standing(&run_id, "finished").await;
    let signed = site.chain().await;
    site.device.kill_9();
    site.device.proxy().heal();
    site.device.start().await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/state"), "succeeded", "{run}");
    assert_eq!(signed.last().map(String::as_str), run["receipt"].as_str(), "the same");
    assert_eq!(site.chain().await, signed, "no other");
    assert_eq!(site.verify(&run.to_string(), &[]).await.exit, 0);
}

#[tokio::test]
async fn a_receipt_that_is_none_is_dropped_and_the_outcome_is_kept() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let persona = RawIdentity::new(77);
    persona.pair(&gateway, "desk").await.ok();
    let (mut line, _) = persona.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    let too_long = format!("{}.e30.AA", "a".repeat(64 * 1024));
    for (sent, kept) in [("e30.e30.AA", true), ("e30.e30", false), ("<b>.e30.AA", false), (too_long.as_str(), false)] {
        let run = line.answering_pings(backend.submit("anything")).await;
        line.send(&DeviceFrame::ready(1)).await;
        let attempt = next_offer(&mut line).await.attempt;
        let run_id = run_id(&run);
        line.send(&DeviceFrame::Accept { run_id, attempt }).await;
        assert_eq!(line.next_answering_pings().await.expect("open"), GatewayFrame::Start { run_id, attempt });
        let receipt = Some(sent.to_owned());
        line.send(&DeviceFrame::Finish { run_id, attempt, seq: 1, outcome: answer("done"), receipt }).await;
        assert_eq!(line.next_answering_pings().await.expect("open"), GatewayFrame::Ack { run_id, attempt, through: 1 });
        let record = line.answering_pings(backend.run(&run)).await;
        assert_eq!(text(&record, "/state"), "succeeded");
        assert_eq!(record["receipt"].as_str(), kept.then_some(sent), "{sent:.20}");
    }
}
