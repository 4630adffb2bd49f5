//! Stops and resets: one answer at any moment, and no work after it.

use deskgate_protocol::control::Order;
use deskgate_protocol::ids::{ConversationId, OperationId};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::RunErrorCode;
use deskgate_store::transcripts::Earlier;

use super::*;

fn stop(operation_id: OperationId, run_id: RunId) -> GatewayFrame {
    GatewayFrame::Control { operation_id, order: Order::Stop { run_id } }
}

fn cancelled() -> Outcome {
    Outcome::Cancelled { effects: Effects::None, usage: Usage::default() }
}

impl Peer {
    /// The finish, followed by the answer to the stop.
    async fn stopped(&mut self, operation_id: OperationId) -> (Outcome, OutcomeCode) {
        let (run_id, attempt, seq, outcome) = self.finish().await;
        let DeviceFrame::ControlDone { operation_id: done, outcome: code } = self.frame().await else {
            panic!("no answer to the stop")
        };
        assert_eq!(done, operation_id);
        self.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
        (outcome, code)
    }
}

#[tokio::test]
async fn a_running_run_is_stopped_and_the_stop_answered_behind_its_finish() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait 1");
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    let operation = OperationId::new();
    for _ in 0..2 {
        peer.send(stop(operation, offer.run_id)).await;
    }
    assert_eq!(peer.stopped(operation).await, (cancelled(), OutcomeCode::Stopped));
    device.until("it is settled", |status| status.runs.is_empty()).await;
    // As if the answer had been lost with the connection.
    peer.send(stop(operation, offer.run_id)).await;
    let outcome = OutcomeCode::AlreadyFinal;
    assert_eq!(peer.frame().await, DeviceFrame::ControlDone { operation_id: operation, outcome });
}

#[tokio::test]
async fn a_stop_that_overtakes_the_start_leaves_nothing_to_execute() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait 1");
    let (run_id, attempt, operation) = (offer.run_id, 1, OperationId::new());
    let (mut peer, _) = device.connect().await;
    peer.send(GatewayFrame::Offer(offer.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Accept { run_id, attempt });
    peer.send(stop(operation, run_id)).await;
    peer.send(GatewayFrame::Start { run_id, attempt }).await;
    assert_eq!(peer.stopped(operation).await, (cancelled(), OutcomeCode::Stopped));
    assert_eq!(device.ledger.of(run_id), [] as [u32; 0]);
}

#[tokio::test]
async fn a_stop_of_an_interrupted_run_holds_for_its_next_attempt() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait 1");
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    device.crash().await;
    device.boot().await;
    let (mut peer, _) = device.connect().await;
    let operation = OperationId::new();
    peer.send(stop(operation, offer.run_id)).await;
    peer.start(&Offer { attempt: 2, ..offer.clone() }).await;
    assert_eq!(peer.stopped(operation).await, (cancelled(), OutcomeCode::Stopped));
    assert_eq!(device.ledger.of(offer.run_id), [1]);
}

#[tokio::test]
async fn a_stop_while_the_agent_itself_stops_in_haste_is_kept_for_its_next_start() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (stopped, lingering) = (service.offer("wait 1"), service.offer("linger 1"));
    let (mut peer, _) = device.connect().await;
    for offer in [&stopped, &lingering] {
        peer.start(offer).await;
        assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    }
    let handle = device.handle();
    let stopping = tokio::spawn(async move { handle.stop(true).await });
    let run_id = stopped.run_id;
    let is_cut_off = |status: &DispatcherStatus| {
        status.runs.iter().any(|run| run.run_id == run_id && run.standing == ActiveRunState::Interrupted)
    };
    device.until("one of two is cut off", is_cut_off).await;
    let operation = OperationId::new();
    peer.send(stop(operation, run_id)).await;
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong, "nothing is known yet of what becomes of it");
    device.gate.send_replace(true);
    soon("the agent stops", stopping).await.expect("no panic");

    device.process = None;
    device.boot().await;
    let (mut peer, in_flight) = device.connect().await;
    let found = in_flight.iter().find(|entry| entry.run_id == run_id).map(|entry| entry.status);
    assert_eq!(found, Some(InFlightStatus::Interrupted));
    peer.send(stop(operation, run_id)).await;
    peer.start(&Offer { attempt: 2, ..stopped }).await;
    assert_eq!(peer.stopped(operation).await, (cancelled(), OutcomeCode::Stopped));
    assert_eq!(device.ledger.of(run_id), [1]);
}

#[tokio::test]
async fn a_stop_after_the_end_does_not_change_it_also_when_both_were_cut_off_by_a_crash() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("say");
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    let finish = peer.frame().await;
    assert!(matches!(finish, DeviceFrame::Finish { .. }));
    device.crash().await;
    device.boot().await;
    let (mut peer, _) = device.connect().await;
    let operation = OperationId::new();
    peer.send(stop(operation, offer.run_id)).await;
    assert_eq!(peer.stopped(operation).await, (answer("done"), OutcomeCode::AlreadyFinal));
}

#[tokio::test]
async fn of_a_run_that_is_not_known_the_outcome_is_said_to_be_unknown() {
    let mut device = TestDevice::new().await;
    let (mut peer, _) = device.connect().await;
    let operation_id = OperationId::new();
    peer.send(stop(operation_id, RunId::new())).await;
    let outcome = OutcomeCode::OutcomeUnknown;
    assert_eq!(peer.frame().await, DeviceFrame::ControlDone { operation_id, outcome });
}

#[tokio::test]
async fn a_reset_is_answered_when_the_transcript_is_gone_however_often_it_comes() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let conversation = ConversationId::new();
    let message = |text| Offer { conversation: Some(conversation), generation: Some(1), ..service.offer(text) };
    let (mut peer, _) = device.connect().await;
    let seen = async |device: &TestDevice| {
        let seen = device.process().store.transcripts().seen_by(&message("next")).await.expect("readable");
        let Earlier::Exchanges(said) = seen else { panic!("it is its own") };
        said.into_iter().map(|said| (said.input.text, said.answer)).collect::<Vec<_>>()
    };
    peer.start(&message("say")).await;
    let (run_id, attempt, seq, _) = peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    assert_eq!(seen(&device).await, [("say".to_owned(), "done".to_owned())]);
    let operation_id = OperationId::new();
    for _ in 0..2 {
        peer.send(GatewayFrame::Control { operation_id, order: Order::Reset { conversation, generation: 1 } }).await;
        let outcome = OutcomeCode::Reset;
        assert_eq!(peer.frame().await, DeviceFrame::ControlDone { operation_id, outcome });
        assert_eq!(seen(&device).await, []);
    }
}

#[tokio::test]
async fn a_message_in_a_conversation_of_another_subject_is_not_executed_and_fails() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let conversation = ConversationId::new();
    let message = |subject: &str| Offer {
        conversation: Some(conversation),
        generation: Some(1),
        subject: Some(subject.to_owned()),
        ..service.offer("say")
    };
    let (mut peer, _) = device.connect().await;
    peer.start(&message("customer-91")).await;
    let (run_id, attempt, seq, _) = peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    let other = message("customer-92");
    peer.start(&other).await;
    let (run_id, _, seq, outcome) = peer.finish().await;
    let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((run_id, seq, error.code, error.effects), (other.run_id, 1, RunErrorCode::Internal, Effects::None));
    assert!(error.message.contains("belongs to another service or subject"), "{}", error.message);
    assert_eq!(device.ledger.of(other.run_id), [] as [u32; 0]);
}

#[tokio::test]
async fn a_reset_that_the_disk_refuses_is_answered_when_the_disk_has_room() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    // Enough of them to need a page of their own. What would go with a reset, and leave room for it, is in another
    // generation.
    let conversations: Vec<_> = (0..150).map(|_| ConversationId::new()).collect();
    for conversation in &conversations {
        peer.start(&Offer { conversation: Some(*conversation), generation: Some(2), ..service.offer("say") }).await;
        let (run_id, attempt, seq, _) = peer.finish().await;
        peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    }
    device.process().store.fill_up(true).await;
    let operations: Vec<_> = conversations.iter().map(|conversation| (OperationId::new(), *conversation)).collect();
    for (operation_id, conversation) in &operations {
        let order = Order::Reset { conversation: *conversation, generation: 1 };
        peer.send(GatewayFrame::Control { operation_id: *operation_id, order }).await;
    }
    let (operation_id, _) = *operations.last().expect("many");
    peer.send(GatewayFrame::Ping).await;
    while peer.frame().await != DeviceFrame::Pong {}
    device.process().store.fill_up(false).await;
    loop {
        if let DeviceFrame::ControlDone { operation_id: done, outcome: OutcomeCode::Reset } = peer.frame().await
            && done == operation_id
        {
            return;
        }
    }
}

#[tokio::test]
async fn a_conversation_that_was_silent_too_long_is_forgotten_by_the_agent_itself() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let message = Offer { conversation: Some(ConversationId::new()), generation: Some(1), ..service.offer("say") };
    let (mut peer, _) = device.connect().await;
    peer.start(&message).await;
    peer.finish().await;
    assert_eq!(device.process().store.transcripts_kept().await, 1);
    for (days, kept) in [(80, 1), (11, 0)] {
        device.process().store.age_transcripts(days).await;
        device.crash().await;
        device.boot().await;
        soon("it is forgotten", async {
            while device.process().store.transcripts_kept().await != kept {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
