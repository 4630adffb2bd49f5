//! Approvals, and runs with an unknown outcome after a restart, with a raw device: the gateway's answer to each frame,
//! over lost connections and a killed gateway.

use deskgate_protocol::control::{
    ApprovalResolution, DeviceEvent, DeviceFrame, GatewayFrame, InFlightRun, InFlightStatus, Order, RevokeCode,
    ToolKind,
};
use deskgate_protocol::run::{Effects, Outcome, Usage};
use deskgate_protocol::{ApprovalId, RunId, Timestamp};
use deskgate_tests::raw::{RawConnection, RawIdentity};
use deskgate_tests::{Backend, GatewayProcess, Postgres};
use serde_json::{Value, json};

use crate::frames::{answer, next_offer, publish, run_id};
use crate::text;

/// A device that has started a run and reported one event of it.
struct SettlementFixture {
    gateway: GatewayProcess,
    persona: RawIdentity,
    line: RawConnection,
    backend: Backend,
    run: String,
    run_id: RunId,
    _postgres: Postgres,
}

impl SettlementFixture {
    async fn start() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let persona = RawIdentity::new(61);
        persona.pair(&gateway, "desk").await.ok();
        let (mut line, _) = persona.connect(&gateway, Vec::new()).await;
        let backend = publish(&mut line, &gateway).await;
        let run = line.answering_pings(backend.submit("anything")).await;
        line.send(&DeviceFrame::ready(1)).await;
        let attempt = next_offer(&mut line).await.attempt;
        let run_id = run_id(&run);
        let mut site = Self { gateway, persona, line, backend, run, run_id, _postgres: postgres };
        site.line.send(&DeviceFrame::Accept { run_id, attempt }).await;
        assert_eq!(site.next().await, GatewayFrame::Start { run_id, attempt });
        site.report(
            1,
            DeviceEvent::MessageCompleted {
                message_id: "m".to_owned(),
                text: "said".to_owned(),
                reasoning_summary: None,
            },
        )
        .await;
        site
    }

    async fn next(&mut self) -> GatewayFrame {
        self.line.next_answering_pings().await.expect("the line is open")
    }

    /// An event of the first attempt, which is acknowledged.
    async fn report(&mut self, seq: u64, event: DeviceEvent) {
        let run_id = self.run_id;
        self.line.send(&DeviceFrame::Event { run_id, attempt: 1, seq, event }).await;
        assert_eq!(self.next().await, GatewayFrame::Ack { run_id, attempt: 1, through: seq });
    }

    async fn finish(&mut self, attempt: u32, seq: u64, outcome: Outcome) {
        let run_id = self.run_id;
        self.line.send(&DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt: None }).await;
        assert_eq!(self.next().await, GatewayFrame::Ack { run_id, attempt, through: seq });
    }

    /// Reconnects with the run in this state.
    async fn comes_again(&mut self, status: InFlightStatus) {
        let held = InFlightRun { run_id: self.run_id, attempt: 1, status };
        self.line = self.persona.connect(&self.gateway, vec![held]).await.0;
    }

    /// Reconnects as after a restart, and gets the number of its stored events.
    async fn does_not_know(&mut self, stored: u64) {
        self.comes_again(InFlightStatus::Unknown).await;
        let ack = GatewayFrame::Ack { run_id: self.run_id, attempt: 1, through: stored };
        assert_eq!(self.next().await, ack);
        self.state("awaiting_reconciliation").await;
    }

    async fn state(&mut self, state: &str) -> Value {
        self.line.answering_pings(self.backend.wait_for_state(&self.run, state)).await
    }

    /// The run is offered again, with its next attempt.
    async fn is_offered_again(&mut self) {
        let offer = next_offer(&mut self.line).await;
        assert_eq!((offer.run_id, offer.attempt), (self.run_id, 2));
    }

    async fn events(&self) -> Vec<Value> {
        let path = format!("/runs/{}/events", self.run);
        let request = self.backend.request(reqwest::Method::GET, &path).header("Accept", "application/json");
        let answer = self.backend.send(request).await.expect("an answer");
        answer.body["data"].as_array().expect("a page").clone()
    }

    async fn names(&self) -> Vec<String> {
        self.events().await.iter().map(|event| text(event, "/type").to_owned()).collect()
    }
}

fn requested(approval_id: ApprovalId) -> DeviceEvent {
    let (call_id, tool) = ("call_1".to_owned(), "Write".to_owned());
    let expires_at = Timestamp(Timestamp::now().0 + std::time::Duration::from_secs(3600));
    DeviceEvent::ApprovalRequested { approval_id, call_id, tool, kind: ToolKind::Write, expires_at }
}

#[tokio::test]
async fn a_request_survives_a_killed_gateway_and_its_answer_counts_afterwards() {
    let mut site = SettlementFixture::start().await;
    let approval_id = ApprovalId::new();
    site.report(2, requested(approval_id)).await;
    site.state("awaiting_approval").await;
    site.gateway.kill_9();
    site.gateway.restart().await;
    site.comes_again(InFlightStatus::Running).await;
    let ack = GatewayFrame::Ack { run_id: site.run_id, attempt: 1, through: 2 };
    assert_eq!(site.next().await, ack, "the request is stored, so it is not asked again");
    let run = site.state("awaiting_approval").await;
    assert_eq!(text(&run, "/state_reason/code"), "approval_pending");
    // The connection breaks before the answer is acknowledged: the answer is sent twice and counts once.
    let resolved = DeviceEvent::ApprovalResolved { approval_id, resolution: ApprovalResolution::Approved };
    for _ in 0..2 {
        site.report(3, resolved.clone()).await;
    }
    site.state("running").await;
    site.finish(1, 4, answer("done")).await;
    let expected =
        ["run.started", "message.completed", "run.awaiting_approval", "run.approval_resolved", "run.succeeded"];
    assert_eq!(site.names().await[1..], expected);
    assert_eq!(site.events().await[4]["data"], json!({ "approval_id": approval_id, "resolution": "approved" }));
}

#[tokio::test]
async fn what_a_restarted_device_does_not_know_runs_again_by_its_users_word_and_then_once() {
    let mut site = SettlementFixture::start().await;
    for _ in 0..2 {
        site.does_not_know(1).await;
    }
    // Free slots are used for other runs, never for this one.
    let other = site.line.answering_pings(site.backend.submit("another")).await;
    site.line.send(&DeviceFrame::ready(4)).await;
    assert_eq!(next_offer(&mut site.line).await.run_id, run_id(&other));
    site.line.send(&DeviceFrame::Reconciled { run_id: site.run_id, attempt: 1 }).await;
    site.is_offered_again().await;
    // The offer is lost with the connection, whatever the device reports when it is back.
    for status in [InFlightStatus::Unknown, InFlightStatus::Interrupted] {
        site.comes_again(status).await;
        site.is_offered_again().await;
        site.line.send(&DeviceFrame::Reconciled { run_id: site.run_id, attempt: 1 }).await;
        site.is_offered_again().await;
    }
    site.line.send(&DeviceFrame::Accept { run_id: site.run_id, attempt: 2 }).await;
    assert_eq!(site.next().await, GatewayFrame::Start { run_id: site.run_id, attempt: 2 });
    site.finish(2, 1, answer("done")).await;
    let names = site.names().await;
    assert_eq!(names[3..], ["run.awaiting_reconciliation", "run.reconciled", "run.restarted", "run.succeeded"]);
}

#[tokio::test]
async fn a_person_decides_while_the_line_is_down_and_the_next_hello_begins_the_next_attempt() {
    let mut site = SettlementFixture::start().await;
    site.does_not_know(1).await;
    site.comes_again(InFlightStatus::Interrupted).await;
    site.is_offered_again().await;
    let events = site.events().await;
    let reconciled = events.iter().find(|event| event["type"] == "run.reconciled").expect("a decision lies between");
    assert_eq!(reconciled["data"], json!({ "state": "running", "by": "desktop_user" }));
}

#[tokio::test]
async fn a_stop_of_a_run_that_nobody_knows_the_end_of_is_confirmed_by_the_device_or_by_its_users_decision() {
    let mut site = SettlementFixture::start().await;
    site.does_not_know(1).await;
    let operation = site.backend.stop(&site.run).await;
    assert!(matches!(site.next().await, GatewayFrame::Control { order: Order::Stop { .. }, .. }));
    let outcome = Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() };
    site.finish(1, 2, outcome).await;
    let stopped = json!({ "code": "stopped", "run_state": "cancelled" });
    assert_eq!(site.backend.outcome(&operation).await, stopped);

    let mut site = SettlementFixture::start().await;
    site.does_not_know(1).await;
    let operation = site.backend.stop(&site.run).await;
    assert!(matches!(site.next().await, GatewayFrame::Control { .. }));
    // Decided before the stop arrived: the run does not begin again, and whether it changed something stays open.
    let run_id = site.run_id;
    site.line.send(&DeviceFrame::Reconciled { run_id, attempt: 1 }).await;
    assert_eq!(site.next().await, GatewayFrame::Revoke { run_id, attempt: 1, code: RevokeCode::AlreadyFinal });
    assert_eq!(site.backend.outcome(&operation).await, stopped);
    assert_eq!(site.events().await.last().expect("its end")["data"], json!({ "effects": "possible" }));
}
