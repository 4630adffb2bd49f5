//! Failures on the device itself: its disk, its data, an execution that panics.

use deskgate_protocol::control::RefuseCode;
use deskgate_protocol::run::RunErrorCode;

use super::*;

#[tokio::test]
async fn a_journal_that_cannot_be_written_refuses_offers_and_says_so() {
    let mut device = TestDevice::new().await;
    let mut offer = device.publish(4).await.offer("say 1");
    offer.input.text += &" x".repeat(100_000);
    let (mut peer, _) = device.connect().await;
    device.process().store.fill_up(true).await;
    peer.send(GatewayFrame::Offer(offer.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id: offer.run_id, attempt: 1, code: RefuseCode::Busy });
    device.until("the problem is shown", |status| status.problem.is_some()).await;
    device.process().store.fill_up(false).await;
    device.until("the problem is gone without a new offer", |status| status.problem.is_none()).await;
    offer.attempt = 2;
    peer.start(&offer).await;
    peer.finish().await;
}

#[tokio::test]
async fn offers_that_come_together_and_cannot_be_journalled_are_all_refused_and_their_slots_are_kept_back() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    device.process().store.fill_up(true).await;
    let mut offers = [service.offer("say 1"), service.offer("say 1")];
    for offer in &mut offers {
        offer.input.text += &" x".repeat(100_000);
        peer.send(GatewayFrame::Offer(offer.clone())).await;
    }
    let mut refused = Vec::new();
    while refused.len() < offers.len() {
        match soon("an answer", peer.from.recv()).await {
            Some(DeviceFrame::Refuse { run_id, attempt: 1, code: RefuseCode::Busy }) => refused.push(run_id),
            Some(DeviceFrame::Ready { slots: 0, .. }) => {}
            other => panic!("a slot that is declared now would bring a run again at once: {other:?}"),
        }
    }
    assert_eq!(refused, offers.each_ref().map(|offer| offer.run_id));
    device.until("the problem is shown", |status| status.problem.is_some()).await;
    device.process().store.fill_up(false).await;
    device.until("the problem is gone", |status| status.problem.is_none()).await;
    for offer in &mut offers {
        offer.attempt = 2;
        peer.start(offer).await;
        peer.finish().await;
    }
}

#[tokio::test]
async fn a_definition_that_cannot_be_read_stops_its_own_service_only_and_is_called_by_its_name() {
    let mut device = TestDevice::new().await;
    let (damaged, sound) = (device.publish_as("Damaged", 4).await, device.publish(4).await);
    device.process().store.damage_versions(damaged.endpoint_id).await;
    let (mut peer, _) = device.connect().await;
    let offer = damaged.offer("say 1");
    peer.send(GatewayFrame::Offer(offer.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id: offer.run_id, attempt: 1, code: RefuseCode::Busy });
    device.until("the problem is shown", |status| status.problem.is_some()).await;
    let problem = device.handle().status().problem.expect("shown");
    assert!(problem.contains(&damaged.endpoint_id.to_string()) && !problem.contains("journal"), "{problem}");
    peer.start(&sound.offer("say 1")).await;
    peer.finish().await;
}

#[tokio::test]
async fn a_finish_that_cannot_be_journalled_is_kept_and_sent_once_it_can() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    device.process().store.fill_up(true).await;
    peer.start(&service.offer("large")).await;
    device.until("the problem is shown", |status| status.problem.is_some()).await;
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong, "no finish goes out that is not on disk");
    device.process().store.fill_up(false).await;
    assert_eq!(peer.finish().await.2, 1);
}

#[tokio::test]
async fn an_execution_that_breaks_down_still_ends_in_one_outcome() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    peer.start(&service.offer("break 2")).await;
    let (_, _, seq, outcome) = peer.finish().await;
    assert!(matches!(outcome, Outcome::Failed { error, .. } if error.code == RunErrorCode::Internal));
    assert_eq!(seq, 3);
}

#[tokio::test]
async fn a_taken_run_whose_definition_is_gone_fails_when_it_is_started_and_the_others_go_on() {
    let mut device = TestDevice::new().await;
    let (service, damaged) = (device.publish(4).await, device.publish_as("Damaged", 4).await);
    let gone = Offer { endpoint_version: 9, ..service.offer("say") };
    let (unreadable, whole) = (damaged.offer("say"), service.offer("say"));
    let store = &device.process().store;
    for offer in [&gone, &unreadable, &whole] {
        store.journal().take(offer).await.expect("taken");
    }
    store.damage_versions(damaged.endpoint_id).await;
    device.crash().await;
    device.boot().await;
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight.iter().map(|entry| entry.status).collect::<Vec<_>>(), [InFlightStatus::Taken; 3]);
    for _ in 0..3 {
        assert!(matches!(peer.frame().await, DeviceFrame::Accept { .. }));
    }
    for (offer, expected) in [
        (&gone, Some((RunErrorCode::DefinitionMismatch, Effects::None))),
        (&unreadable, Some((RunErrorCode::DefinitionMismatch, Effects::None))),
        (&whole, None),
    ] {
        let (run_id, attempt) = (offer.run_id, 1);
        peer.send(GatewayFrame::Start { run_id, attempt }).await;
        let (finished, _, seq, outcome) = peer.finish().await;
        let found = match outcome {
            Outcome::Failed { error, .. } => Some((error.code, error.effects)),
            _ => None,
        };
        assert_eq!((finished, found), (run_id, expected));
        peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    }
    device.until("all are settled", |status| status.runs.is_empty()).await;
    assert_eq!((device.ledger.of(gone.run_id), device.ledger.of(unreadable.run_id)), (vec![], vec![]));
}
