//! The agent is killed while a run writes: its owner decides about an unknown end, and no call runs twice.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{ApprovalResolution, InFlightStatus, Order, RefuseCode, RevokeCode, ToolKind};
use deskgate_protocol::ids::OperationId;
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::{RunError, RunErrorCode};
use deskgate_store::approvals::{ApprovalState, Decision, DecisionOutcome};
use deskgate_store::journal::MAX_CUT_OFFS;
use deskgate_store::journal::reconcile::OwnerFinding;
use deskgate_store::ledger::{IntentBasis, Plan, PlanPreview, PlannedCall, RequestDetails};
use serde_json::json;

use super::*;

fn call(n: u32) -> PlannedCall {
    let shown = PlanPreview::Change { before: None, after: Sha256Digest::of(b"new"), diff: "+new".to_owned() };
    let plan = Plan { place: Some("a.txt".to_owned()), shown };
    let (call_id, tool, arguments) = (format!("call_1_{n}"), "Write".to_owned(), json!({ "n": n }));
    PlannedCall { call_id, tool, kind: ToolKind::Write, arguments, plan }
}

/// The steps of an execution up to the moment of the kill, in the order of the real one.
pub(super) async fn work(
    what: &str,
    attempt: u32,
    journal: &deskgate_store::Ledger,
    leaving: CancellationToken,
    reports: &mpsc::Sender<Progress>,
    mut gate: watch::Receiver<bool>,
    stop: CancellationToken,
) -> Outcome {
    let asks = what.ends_with("ask");
    // Attempts never repeat each other's calls: a call that began may have happened.
    let call = |n| PlannedCall { arguments: json!({ "n": n, "attempt": attempt }), ..call(n) };
    if what.starts_with("write") {
        journal.begin(call(1), IntentBasis::Rules).await.expect("written");
        journal.note("call_1_1".to_owned(), true).await.expect("written");
    }
    if asks {
        let (endpoint_id, service, why) = (EndpointId::new(), "Reader".to_owned(), String::new());
        let asking = RequestDetails {
            endpoint_id,
            service,
            subject: None,
            why,
            follows: None,
            expiry: Duration::from_secs(600),
        };
        let (approval_id, expires_at) = journal.ask(call(1), asking).await.expect("written");
        let (call_id, tool, kind) = ("call_1_1".to_owned(), "Write".to_owned(), ToolKind::Write);
        let asked = DeviceEvent::ApprovalRequested { approval_id, call_id, tool, kind, expires_at };
        let _ = reports.send(Progress::Event(asked)).await;
    }
    if what == "intend" || what == "write-and-intend" {
        journal.begin(call(2), IntentBasis::Rules).await.expect("written");
    }
    let _ = reports.send(Progress::Event(message(1))).await;
    tokio::select! {
        _ = gate.wait_for(|open| *open) => answer("done"),
        () = stop.cancelled() => Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() },
        () = leaving.cancelled(), if asks => Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() },
    }
}

impl TestDevice {
    /// Takes a run, lets it come as far as it goes, and kills and restarts the agent.
    async fn killed_in(&mut self, what: &str) -> Offer {
        let offer = self.publish(4).await.offer(what);
        let (mut peer, _) = self.connect().await;
        peer.start(&offer).await;
        // The message is reported when the journal is complete.
        while !matches!(peer.frame().await, DeviceFrame::Event { event: DeviceEvent::MessageCompleted { .. }, .. }) {}
        self.crash().await;
        self.boot().await;
        offer
    }

    async fn settle(&self, offer: &Offer, finding: OwnerFinding) -> Result<(), ReconcileError> {
        soon("an answer", self.handle().reconcile(offer.run_id, finding, "uid 1".to_owned())).await
    }
}

fn unknown(offer: &Offer) -> Vec<InFlightRun> {
    vec![InFlightRun { run_id: offer.run_id, attempt: offer.attempt, status: InFlightStatus::Unknown }]
}

fn next(offer: &Offer) -> Offer {
    Offer { attempt: offer.attempt + 1, ..offer.clone() }
}

fn ack(offer: &Offer, through: u64) -> GatewayFrame {
    GatewayFrame::Ack { run_id: offer.run_id, attempt: offer.attempt, through }
}

fn reconciled(offer: &Offer) -> DeviceFrame {
    DeviceFrame::Reconciled { run_id: offer.run_id, attempt: offer.attempt }
}

fn interrupted(outcome: &Outcome) -> Effects {
    match outcome {
        Outcome::Failed { error: RunError { code: RunErrorCode::Interrupted, effects, .. }, .. } => *effects,
        other => panic!("not interrupted: {other:?}"),
    }
}

#[tokio::test]
async fn an_intent_without_outcome_waits_for_its_owner_and_is_never_executed_meanwhile() {
    for what in ["intend", "write", "write-and-intend"] {
        let mut device = TestDevice::new().await;
        let offer = device.killed_in(what).await;
        let (mut peer, in_flight) = device.connect().await;
        assert_eq!(in_flight, unknown(&offer), "{what}");
        assert_eq!(peer.ready().await, 1, "it keeps its slot");
        // A gateway that offers it anyway, or sends start, causes no execution.
        peer.send(GatewayFrame::Offer(next(&offer))).await;
        let (run_id, attempt) = (offer.run_id, 2);
        assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy });
        peer.send(GatewayFrame::Start { run_id, attempt: 1 }).await;
        peer.send(GatewayFrame::Ping).await;
        assert_eq!(peer.frame().await, DeviceFrame::Pong);
        device.until("it is shown", |status| status.runs[0].standing == ActiveRunState::AwaitingReconciliation).await;
        assert_eq!(device.ledger.of(offer.run_id), [1]);
    }
}

#[tokio::test]
async fn the_owners_word_ends_the_run_with_the_number_that_the_gateway_names() {
    for (what, finding, effects) in [
        ("intend", OwnerFinding::Finished, Effects::Known),
        ("intend", OwnerFinding::NotDone, Effects::None),
        ("write-and-intend", OwnerFinding::NotDone, Effects::Known),
        ("write", OwnerFinding::NotDone, Effects::Known),
    ] {
        let mut device = TestDevice::new().await;
        let offer = device.killed_in(what).await;
        let (mut peer, _) = device.connect().await;
        peer.send(ack(&offer, 3)).await;
        device.settle(&offer, finding).await.expect("settled");
        let (run_id, attempt, seq, outcome) = peer.finish().await;
        assert_eq!((run_id, attempt, seq, interrupted(&outcome)), (offer.run_id, 1, 4, effects), "{what} {finding:?}");
        let second = device.settle(&offer, OwnerFinding::RunAgain).await.expect_err("one word");
        assert!(matches!(second, ReconcileError::NotWaiting(_)), "{second}");
        peer.send(ack(&offer, 4)).await;
        device.until("it is settled", |status| status.runs.is_empty()).await;
        let audit = device.process().store.audit().list(Some(offer.run_id), 99).await.expect("readable");
        let said = (audit[0].what.as_str(), audit[0].who.as_str(), audit[0].answer.as_deref());
        assert_eq!(said, ("reconciled", "uid 1", Some(finding.as_str())));
    }
}

#[tokio::test]
async fn a_word_that_was_given_without_a_line_survives_a_restart_and_ends_the_run_when_there_is_one() {
    let mut device = TestDevice::new().await;
    let offer = device.killed_in("intend").await;
    device.settle(&offer, OwnerFinding::Finished).await.expect("settled");
    let again = device.settle(&offer, OwnerFinding::NotDone).await.expect_err("one word");
    assert!(matches!(again, ReconcileError::Settled(_)), "{again}");
    device.crash().await;
    device.boot().await;
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight, unknown(&offer));
    peer.send(ack(&offer, 0)).await;
    let (_, _, seq, outcome) = peer.finish().await;
    assert_eq!((seq, interrupted(&outcome)), (1, Effects::Known));
}

#[tokio::test]
async fn a_run_that_its_owner_wants_again_is_executed_in_its_next_attempt() {
    let mut device = TestDevice::new().await;
    let offer = device.killed_in("intend").await;
    let (mut peer, _) = device.connect().await;
    device.settle(&offer, OwnerFinding::RunAgain).await.expect("settled");
    peer.send(ack(&offer, 1)).await;
    assert_eq!(peer.frame().await, reconciled(&offer));
    // If that frame was lost with the connection, the next session sends it again.
    drop(peer);
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight, unknown(&offer));
    peer.send(ack(&offer, 1)).await;
    assert_eq!(peer.frame().await, reconciled(&offer));
    peer.start(&next(&offer)).await;
    device.gate.send_replace(true);
    let (_, attempt, _, outcome) = peer.finish().await;
    assert_eq!((attempt, outcome, device.ledger.of(offer.run_id)), (2, answer("done"), vec![1, 2]));
}

#[tokio::test]
async fn a_gateway_hears_that_nobody_knew_before_it_hears_that_the_run_is_to_run_again() {
    for restarts in [0, 1, 2] {
        let mut device = TestDevice::new().await;
        let offer = device.killed_in("write-and-intend").await;
        // No gateway has been notified yet.
        device.settle(&offer, OwnerFinding::RunAgain).await.expect("settled");
        device.until("it is shown", |status| status.runs[0].standing == ActiveRunState::Interrupted).await;
        for _ in 0..restarts {
            device.crash().await;
            device.boot().await;
        }
        let again = device.settle(&offer, OwnerFinding::NotDone).await.expect_err("one word");
        assert!(matches!(again, ReconcileError::Settled(_)), "{again}");
        let (mut peer, in_flight) = device.connect().await;
        assert_eq!(in_flight, unknown(&offer), "after {restarts} restarts");
        peer.send(GatewayFrame::Ping).await;
        assert_eq!(peer.frame().await, DeviceFrame::Pong, "it waits for the answer to its hello");
        peer.send(ack(&offer, 1)).await;
        assert_eq!(peer.frame().await, reconciled(&offer));
        peer.start(&next(&offer)).await;
        device.gate.send_replace(true);
        peer.finish().await;
        assert_eq!(device.ledger.of(offer.run_id), [1, 2]);
    }
}

#[tokio::test]
async fn the_next_attempt_of_a_run_that_runs_again_is_taken_also_when_its_first_offer_was_lost() {
    let mut device = TestDevice::new().await;
    let offer = device.killed_in("intend").await;
    device.settle(&offer, OwnerFinding::RunAgain).await.expect("settled");
    let (mut peer, _) = device.connect().await;
    // This gateway has every report from an earlier session: it answers with the offer and no `ack`.
    peer.start(&next(&offer)).await;
    device.gate.send_replace(true);
    assert_eq!(peer.finish().await.1, 2);
}

#[tokio::test]
async fn an_attempt_that_never_began_says_what_the_one_before_it_changed() {
    for (what, effects) in [("intend", Effects::Possible), ("write-and-intend", Effects::Known)] {
        for stopped in [true, false] {
            let mut device = TestDevice::new().await;
            let offer = device.killed_in(what).await;
            device.settle(&offer, OwnerFinding::RunAgain).await.expect("settled");
            let (mut peer, _) = device.connect().await;
            peer.send(ack(&offer, 1)).await;
            assert_eq!(peer.frame().await, reconciled(&offer));
            peer.send(GatewayFrame::Offer(next(&offer))).await;
            let (run_id, attempt) = (offer.run_id, 2);
            assert_eq!(peer.frame().await, DeviceFrame::Accept { run_id, attempt });
            if stopped {
                let operation_id = OperationId::new();
                peer.send(GatewayFrame::Control { operation_id, order: Order::Stop { run_id } }).await;
            } else {
                // Its definition is gone when the agent is restarted.
                device.process().store.damage_versions(offer.endpoint_id).await;
                device.crash().await;
                device.boot().await;
                peer = device.connect().await.0;
                assert_eq!(peer.frame().await, DeviceFrame::Accept { run_id, attempt });
            }
            peer.send(GatewayFrame::Start { run_id, attempt }).await;
            match peer.finish().await.3 {
                Outcome::Cancelled { effects: said, .. } if stopped => assert_eq!(said, effects),
                Outcome::Failed { error, .. } if !stopped => {
                    assert_eq!((error.code, error.effects), (RunErrorCode::DefinitionMismatch, effects));
                    assert!(!error.retryable, "what was changed is changed");
                }
                other => panic!("{what}: {other:?}"),
            }
            assert_eq!(device.ledger.of(run_id), [1]);
        }
    }
}

#[tokio::test]
async fn a_stop_of_a_run_whose_end_nobody_knows_ends_it_and_says_what_is_possible() {
    let mut device = TestDevice::new().await;
    let offer = device.killed_in("intend").await;
    let (mut peer, _) = device.connect().await;
    peer.send(ack(&offer, 1)).await;
    let operation_id = OperationId::new();
    peer.send(GatewayFrame::Control { operation_id, order: Order::Stop { run_id: offer.run_id } }).await;
    let (_, _, seq, outcome) = peer.finish().await;
    assert_eq!((seq, outcome), (2, Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() }));
    assert_eq!(peer.frame().await, DeviceFrame::ControlDone { operation_id, outcome: OutcomeCode::Stopped });
}

#[tokio::test]
async fn a_run_that_was_killed_while_a_person_was_asked_begins_again_and_the_old_request_counts_no_more() {
    let mut device = TestDevice::new().await;
    let offer = device.killed_in("ask").await;
    let approvals = device.process().store.approvals();
    assert_eq!(approvals.list(false).await.expect("readable"), []);
    let old = approvals.list(true).await.expect("readable").remove(0);
    assert_eq!(old.state, ApprovalState::Withdrawn);
    let late = approvals.decide(old.approval_id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Withdrawn));
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight[0].status, InFlightStatus::Interrupted, "nothing was written");
    peer.start(&next(&offer)).await;
    device.until("it asks anew", |status| status.runs[0].standing == ActiveRunState::AwaitingApproval).await;
    assert_eq!(approvals.list(false).await.expect("readable").len(), 1);
    device.gate.send_replace(true);
    peer.finish().await;
    assert_eq!(approvals.list(false).await.expect("readable"), [], "the end of the run closes what is open");
    assert_eq!(device.ledger.of(offer.run_id), [1, 2]);
}

#[tokio::test]
async fn an_agent_that_is_stopped_hastily_while_a_run_writes_does_not_say_that_nothing_was_written() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("intend");
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    while !matches!(peer.frame().await, DeviceFrame::Event { .. }) {}
    soon("it stops", device.handle().stop(true)).await;
    let TestProcess { task, .. } = device.process.take().expect("running");
    task.await.expect("it ended by itself");
    device.boot().await;
    assert_eq!(device.connect().await.1, unknown(&offer));
}

#[tokio::test]
async fn a_gentle_stop_waits_for_no_person_and_the_run_goes_on_as_after_a_crash() {
    for (what, status) in [("ask", InFlightStatus::Interrupted), ("write-and-ask", InFlightStatus::Unknown)] {
        let mut device = TestDevice::new().await;
        let service = device.publish(4).await;
        let (offer, other) = (service.offer(what), service.offer("wait"));
        let (mut peer, _) = device.connect().await;
        peer.start(&other).await;
        peer.start(&offer).await;
        while !matches!(peer.frame().await, DeviceFrame::Event { event: DeviceEvent::MessageCompleted { .. }, .. }) {}
        let handle = device.handle();
        let stopped = tokio::spawn(async move { handle.stop(false).await });
        let cut_off = |run: &ActiveRun| run.run_id == offer.run_id && run.standing != ActiveRunState::AwaitingApproval;
        device.until("it asks nobody", |status| status.runs.iter().any(cut_off)).await;
        if status == InFlightStatus::Unknown {
            let early = device.settle(&offer, OwnerFinding::NotDone).await.expect_err("the journal calls it running");
            assert!(matches!(early, ReconcileError::Stopped), "{early}");
        }
        // A run at work is awaited.
        device.gate.send_replace(true);
        let (run_id, attempt, seq, outcome) = peer.finish().await;
        assert_eq!((run_id, outcome), (other.run_id, answer("waited")));
        peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
        soon("it stops", stopped).await.expect("no panic");
        let TestProcess { task, .. } = device.process.take().expect("running");
        task.await.expect("it ended by itself");
        device.boot().await;
        assert_eq!(device.process().store.approvals().list(false).await.expect("readable"), []);
        let (_, in_flight) = device.connect().await;
        assert_eq!(in_flight, [InFlightRun { run_id: offer.run_id, attempt: 1, status }]);
    }
}

#[tokio::test]
async fn a_run_that_only_waits_for_a_person_outlasts_any_number_of_gentle_stops() {
    let mut device = TestDevice::new().await;
    let mut offer = device.publish(4).await.offer("ask");
    for _ in 0..=MAX_CUT_OFFS {
        let (mut peer, _) = device.connect().await;
        peer.start(&offer).await;
        device.until("it asks", |status| status.runs[0].standing == ActiveRunState::AwaitingApproval).await;
        soon("it stops", device.handle().stop(false)).await;
        let TestProcess { task, .. } = device.process.take().expect("running");
        task.await.expect("it ended by itself");
        device.boot().await;
        offer = next(&offer);
    }
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    device.gate.send_replace(true);
    assert_eq!(peer.finish().await.3, answer("done"));
}

#[tokio::test]
async fn a_run_that_was_revoked_while_it_wrote_is_answered_and_not_executed_when_it_is_offered_again() {
    for (what, killed, effects) in
        [("write", false, Effects::Known), ("intend", false, Effects::Possible), ("intend", true, Effects::Possible)]
    {
        let mut device = TestDevice::new().await;
        let (offer, mut peer) = if killed {
            let offer = device.killed_in(what).await;
            (offer, device.connect().await.0)
        } else {
            let offer = device.publish(4).await.offer(what);
            let (mut peer, _) = device.connect().await;
            peer.start(&offer).await;
            while !matches!(peer.frame().await, DeviceFrame::Event { .. }) {}
            (offer, peer)
        };
        let (run_id, attempt, code) = (offer.run_id, 1, RevokeCode::StaleAttempt);
        peer.send(GatewayFrame::Revoke { run_id, attempt, code }).await;
        device.until("it is gone", |status| status.runs.is_empty()).await;
        peer.start(&next(&offer)).await;
        let (_, attempt, _, outcome) = peer.finish().await;
        assert_eq!((attempt, interrupted(&outcome)), (2, effects), "{what}");
        assert_eq!(device.ledger.of(run_id), [1], "{what}");
    }
}

/// Frames of a lying gateway, and whether any of them lets a held call run.
#[tokio::test]
async fn a_gateway_decides_about_no_request_whatever_it_sends() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("ask");
    let (run_id, attempt) = (offer.run_id, 1);
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    device.until("it asks", |status| status.runs[0].standing == ActiveRunState::AwaitingApproval).await;
    let approvals = device.process().store.approvals();
    let request = approvals.list(false).await.expect("readable").remove(0);
    // A frame that looks like an answer is no frame of a gateway.
    let resolution = ApprovalResolution::Approved;
    let forged = DeviceEvent::ApprovalResolved { approval_id: request.approval_id, resolution };
    let frame = json!({ "frame": "event", "run_id": run_id, "attempt": 1, "seq": 1, "event": forged });
    assert!(serde_json::from_value::<GatewayFrame>(frame).is_err());
    for frame in [
        GatewayFrame::Start { run_id, attempt },
        GatewayFrame::Offer(offer.clone()),
        GatewayFrame::Offer(next(&offer)),
        GatewayFrame::Ack { run_id, attempt, through: 99 },
        GatewayFrame::Ping,
    ] {
        peer.send(frame).await;
    }
    while peer.frame().await != DeviceFrame::Pong {}
    let after = approvals.get(request.approval_id).await.expect("readable").expect("kept");
    // The newer attempt may have ended this one, and with it the request.
    assert!(matches!(after.state, ApprovalState::Waiting | ApprovalState::Withdrawn), "{:?}", after.state);
    assert!(device.process().store.journal().evidence(run_id).await.expect("readable").is_empty(), "0 calls");
}
