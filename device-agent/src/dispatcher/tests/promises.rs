//! The dispatcher's guarantees, one test each.

use deskgate_protocol::control::{InFlightStatus, ManagementResult, RefuseCode, RevokeCode};
use deskgate_protocol::ids::ConversationId;
use deskgate_protocol::management::{GetAccess, ManagementError, ManagementErrorCode, ManagementRequest};
use deskgate_protocol::receipt::jws::SignedReceipt;
use deskgate_protocol::receipt::{OfferAnswer, ReceiptEntry};
use deskgate_protocol::run::RunErrorCode;
use deskgate_store::journal::reconcile::OwnerFinding;
use serde_json::json;

use super::*;
use crate::services::GatewayClient;

#[tokio::test]
async fn a_run_goes_from_offer_to_acknowledged_finish_with_dense_event_numbers() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("say 3");
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!((in_flight, peer.ready().await), (vec![], 2));
    peer.start(&offer).await;
    let (run_id, attempt) = (offer.run_id, 1);
    for seq in 1..=3 {
        assert_eq!(peer.frame().await, DeviceFrame::Event { run_id, attempt, seq, event: message(seq) });
    }
    let DeviceFrame::Finish { seq: 4, outcome, receipt: Some(_), .. } = peer.frame().await else { panic!("no finish") };
    assert_eq!(outcome, answer("done"));
    peer.send(GatewayFrame::Ack { run_id, attempt, through: 4 }).await;
    device.until("the run is settled", |status| status.runs.is_empty()).await;
    assert_eq!(device.process().store.journal().in_flight().await.expect("readable"), []);
    assert_eq!(device.ledger.of(run_id), [1]);
}

#[tokio::test]
async fn the_last_events_of_a_run_are_sent_with_its_outcome_and_earlier_only_if_the_gateway_takes_no_more_at_once() {
    for window in [8, 2] {
        let mut device = TestDevice::new().await;
        device.window = window;
        let service = device.publish(4).await;
        let (mut peer, _) = device.connect().await;
        let (closing, attempt) = (service.offer("close 3"), 1);
        let run_id = closing.run_id;
        let event = |seq| DeviceFrame::Event { run_id, attempt, seq, event: message(seq) };
        peer.start(&closing).await;
        let mut sent = 0;
        if window == 2 {
            assert_eq!([peer.frame().await, peer.frame().await], [event(1), event(2)]);
            peer.send(GatewayFrame::Ack { run_id, attempt, through: 2 }).await;
            sent = 2;
        }
        // Others go by, one after the other.
        for _ in 0..10 {
            let other = service.offer("say 1");
            peer.start(&other).await;
            let (ended, _, seq, _) = peer.finish().await;
            assert_eq!((ended, seq), (other.run_id, 2));
            peer.send(GatewayFrame::Ack { run_id: ended, attempt, through: 2 }).await;
        }
        device.gate.send_replace(true);
        for seq in sent + 1..=3 {
            assert_eq!(peer.frame().await, event(seq));
        }
        assert!(matches!(peer.frame().await, DeviceFrame::Finish { run_id: ended, seq: 4, .. } if ended == run_id));
    }
}

#[tokio::test]
async fn the_last_events_do_not_wait_for_an_outcome_that_is_slow_or_for_a_computer_that_sleeps_or_an_agent_that_stops()
{
    for why in ["slow", "asleep", "stops"] {
        let mut device = TestDevice::new().await;
        if why == "slow" {
            device.crash().await;
            device.event_delay = Duration::from_millis(100);
            device.boot().await;
        }
        let service = device.publish(4).await;
        let (mut peer, _) = device.connect().await;
        let closing = service.offer("close 3");
        let run_id = closing.run_id;
        peer.start(&closing).await;
        let handle = device.handle();
        let _told = tokio::spawn(async move {
            match why {
                "asleep" => handle.suspend().await,
                "stops" => handle.stop(false).await,
                _ => {}
            }
        });
        let mut seen = 0;
        while seen < 3 {
            if let DeviceFrame::Event { run_id: of, seq, .. } = peer.frame().await
                && of == run_id
            {
                seen += 1;
                assert_eq!(seq, seen, "{why}");
            }
        }
        device.gate.send_replace(true);
        while !matches!(peer.frame().await, DeviceFrame::Finish { run_id: ended, seq: 4, .. } if ended == run_id) {}
    }
}

#[tokio::test]
async fn a_finish_that_was_not_acknowledged_is_sent_again_after_a_restart() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("say 3");
    let (run_id, attempt) = (offer.run_id, 1);
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    let ended = |status: &DispatcherStatus| status.runs.iter().any(|run| run.standing == ActiveRunState::Finished);
    device.until("it is journalled", ended).await;
    // It may have been sent already: it was not acknowledged.
    let first = loop {
        if let finish @ DeviceFrame::Finish { .. } = peer.frame().await {
            break finish;
        }
    };
    device.crash().await;
    device.boot().await;
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight, [InFlightRun { run_id, attempt, status: InFlightStatus::Finished }]);
    for seq in 1..=3 {
        assert_eq!(peer.frame().await, DeviceFrame::Event { run_id, attempt, seq, event: message(seq) });
    }
    assert_eq!(peer.frame().await, first, "also what was signed about it");
    assert_eq!(device.ledger.of(run_id), [1]);
}

#[tokio::test]
async fn repeated_and_late_frames_execute_nothing_twice() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait");
    let (run_id, attempt) = (offer.run_id, 1);
    let (mut peer, _) = device.connect().await;
    let (start, ack) = (GatewayFrame::Start { run_id, attempt }, GatewayFrame::Ack { run_id, attempt, through: 1 });
    peer.send(start.clone()).await;
    for _ in 0..2 {
        peer.send(GatewayFrame::Offer(offer.clone())).await;
        assert_eq!(peer.frame().await, DeviceFrame::Accept { run_id, attempt });
    }
    peer.send(ack.clone()).await;
    peer.send(start.clone()).await;
    peer.send(start.clone()).await;
    device.until("it runs", |status| status.runs.iter().any(|run| run.standing == ActiveRunState::Running)).await;
    device.gate.send_replace(true);
    let finish = peer.frame().await;
    assert!(matches!(&finish, DeviceFrame::Finish { seq: 1, outcome, .. } if *outcome == answer("waited")));
    peer.send(GatewayFrame::Offer(offer.clone())).await;
    assert_eq!(peer.frame().await, finish);
    for frame in [ack.clone(), ack, start.clone(), GatewayFrame::Offer(offer.clone()), start] {
        peer.send(frame).await;
    }
    assert_eq!(peer.frame().await, finish, "a settled run that is offered again is answered with its finish");
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong);
    assert_eq!(device.ledger.of(run_id), [1]);
}

#[tokio::test]
async fn an_interrupted_run_is_executed_again_once_and_a_third_time_never() {
    let mut device = TestDevice::new().await;
    let mut offer = device.publish(4).await.offer("wait 2");
    let run_id = offer.run_id;
    for attempt in 1..=2 {
        let (mut peer, _) = device.connect().await;
        peer.start(&offer).await;
        assert!(matches!(peer.frame().await, DeviceFrame::Event { seq: 1, .. }));
        device.crash().await;
        device.boot().await;
        let (mut peer, in_flight) = device.connect().await;
        assert_eq!(in_flight, [InFlightRun { run_id, attempt, status: InFlightStatus::Interrupted }]);
        // The same attempt is not started again, only the next one.
        peer.send(GatewayFrame::Offer(offer.clone())).await;
        peer.send(GatewayFrame::Start { run_id, attempt }).await;
        peer.send(GatewayFrame::Ping).await;
        assert_eq!(peer.frame().await, DeviceFrame::Pong);
        offer.attempt += 1;
    }
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    let DeviceFrame::Finish { attempt: 3, seq: 1, outcome: Outcome::Failed { error, .. }, .. } = peer.frame().await
    else {
        panic!("not a failure")
    };
    assert_eq!((error.code, error.effects, error.retryable), (RunErrorCode::Internal, Effects::None, true));
    assert_eq!(device.ledger.of(run_id), [1, 2]);
}

#[tokio::test]
async fn an_interrupted_run_keeps_its_slot_and_its_restart_is_taken_whatever_else_runs() {
    let mut device = TestDevice::new().await;
    let service = device.publish(1).await;
    let interrupted = service.offer("wait 1");
    let (mut peer, _) = device.connect().await;
    peer.start(&interrupted).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    device.crash().await;
    device.boot().await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 1, "one of two slots is the interrupted run's");
    let other = device.publish_as("Other", 4).await;
    for offer in [other.offer("wait"), Offer { attempt: 2, ..interrupted.clone() }] {
        peer.start(&offer).await;
    }
    // The restart used no declared slot, so there is none to declare again.
    device.gate.send_replace(true);
    let mut declared = 0;
    while declared < 2 {
        match soon("finish or ready", peer.from.recv()).await.expect("there") {
            DeviceFrame::Ready { slots, .. } => declared += slots,
            DeviceFrame::Finish { .. } | DeviceFrame::Event { .. } => {}
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert_eq!((declared, device.ledger.of(interrupted.run_id)), (2, vec![1, 2]));
}

#[tokio::test]
async fn a_draft_is_executed_once_and_with_what_its_owner_wrote_alone() {
    let mut device = TestDevice::new().await;
    let store = device.process().store.clone();
    let (service, report) = save(&store, device.home.path(), "Letters", 4).await;
    let said = PublishedVersion { endpoint_id: EndpointId::new(), digest: service.draft.digest() }.offer("say 1");
    let (mut peer, _) = device.connect().await;
    let services = store.services();
    let prepare = || services.prepare_trial(service.draft_id, &service.draft, &report, &said.input);
    let trial = prepare().await.expect("written").expect("there");
    let of_draft = Offer { endpoint_id: trial.endpoint_id, endpoint_version: trial.version, ..said.clone() };
    let own = Offer { run_id: RunId::new(), ..of_draft.clone() };
    let more = serde_json::Map::from_iter([("data".to_owned(), 1.into())]);
    let refused = [
        Offer { input: Input { text: "say 2".to_owned(), ..said.input.clone() }, ..own.clone() },
        Offer { input: Input { more, ..said.input.clone() }, ..own.clone() },
        Offer { conversation: Some(ConversationId::new()), generation: Some(1), ..own.clone() },
        Offer { endpoint_version: 1, ..own.clone() },
        Offer { definition_sha256: Sha256Digest::of(b"another"), ..own.clone() },
    ];
    for offer in &refused {
        peer.send(GatewayFrame::Offer(offer.clone())).await;
        let (run_id, code) = (offer.run_id, RefuseCode::DefinitionMismatch);
        assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt: 1, code }, "{offer:?}");
    }
    peer.start(&of_draft).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    peer.send(GatewayFrame::Offer(own.clone())).await;
    let refusal = |frame: &DeviceFrame| matches!(frame, DeviceFrame::Refuse { run_id, .. } if *run_id == own.run_id);
    while !refusal(&peer.frame().await) {}
    assert_eq!((device.ledger.of(of_draft.run_id), device.ledger.of(own.run_id)), (vec![1], vec![]));
    assert_eq!(services.last_trial(trial.endpoint_id).await.expect("readable"), Some(of_draft.run_id));

    // Another trial is another draft's place, and publication begins with version 1.
    prepare().await.expect("written").expect("there");
    assert_eq!(services.last_trial(trial.endpoint_id).await.expect("readable"), None);
    let frozen = services.freeze(service.draft_id, &service.draft, &report).await.expect("frozen");
    assert!(matches!(frozen, FreezeOutcome::Frozen(frozen) if frozen.version == 1), "{frozen:?}");
}

#[tokio::test]
async fn an_offer_for_another_definition_or_version_is_refused() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    let mut other_digest = service.offer("say 1");
    other_digest.definition_sha256 = Sha256Digest::of(b"another");
    let mut other_version = service.offer("say 1");
    other_version.endpoint_version = 2;
    let mut other_service = service.offer("say 1");
    other_service.endpoint_id = EndpointId::new();
    for offer in [other_digest, other_version, other_service] {
        peer.send(GatewayFrame::Offer(offer.clone())).await;
        let (run_id, code) = (offer.run_id, RefuseCode::DefinitionMismatch);
        assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt: 1, code });
    }
    assert!(device.ledger.0.lock().expect("no panic").is_empty());
    let receipts = device.process().store.receipts().after(0, 100).await.expect("readable");
    let signed = receipts.iter().map(|text| SignedReceipt::read(text).expect("good").receipt.entry);
    let refused = |entry: ReceiptEntry| matches!(entry, ReceiptEntry::Offer(offer) if offer.answer == OfferAnswer::DefinitionMismatch);
    assert_eq!(signed.map(refused).collect::<Vec<_>>(), [true; 3], "what was asked stands in the chain");
}

#[tokio::test]
async fn slots_are_never_exceeded_and_each_is_declared_again_when_it_is_free() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    let offers = [service.offer("wait"), service.offer("wait")];
    for offer in &offers {
        peer.start(offer).await;
    }
    // A gateway that offers more than was declared.
    let excess = service.offer("wait");
    peer.send(GatewayFrame::Offer(excess.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id: excess.run_id, attempt: 1, code: RefuseCode::Busy });
    device.until("both run", |status| status.runs.iter().all(|run| run.standing == ActiveRunState::Running)).await;
    device.gate.send_replace(true);
    let (mut finished, mut declared) = (0, 0);
    while (finished, declared) != (2, 2) {
        match soon("finish or ready", peer.from.recv()).await.expect("there") {
            DeviceFrame::Finish { .. } => finished += 1,
            DeviceFrame::Ready { slots, .. } => declared += slots,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(device.ledger.of(excess.run_id), [] as [u32; 0]);
}

#[tokio::test]
async fn a_service_runs_no_more_at_once_than_it_allows() {
    let mut device = TestDevice::new().await;
    let service = device.publish(1).await;
    let (mut peer, _) = device.connect().await;
    peer.start(&service.offer("wait")).await;
    let second = service.offer("wait");
    peer.send(GatewayFrame::Offer(second.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id: second.run_id, attempt: 1, code: RefuseCode::Busy });
    device.gate.send_replace(true);
    let (run_id, attempt, seq, _) = peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    peer.start(&Offer { attempt: 2, ..second }).await;
    peer.finish().await;
}

#[tokio::test]
async fn each_service_has_its_places_declared_with_the_slots_and_each_again_when_its_run_is_over() {
    let mut device = TestDevice::new().await;
    let (one, many) = (device.publish_as("One", 1).await, device.publish_as("Many", 4).await);
    let (mut peer, _) = device.connect().await;
    let places = BTreeMap::from([(one.endpoint_id, 1), (many.endpoint_id, 4)]);
    assert_eq!(peer.room().await, (2, places), "before any run of them can be offered");
    let first = one.offer("wait");
    peer.start(&first).await;
    peer.start(&many.offer("say")).await;
    let (run_id, attempt, seq, _) = peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    let after = peer.room().await;
    assert_eq!(after, (1, BTreeMap::from([(many.endpoint_id, 1)])), "the waiting run keeps its place and its slot");
    // A service that is published now is named before the gateway hears of a run of it.
    let new = device.publish_as("New", 3).await;
    peer.send(GatewayFrame::Ping).await;
    let (mut answered, mut named) = (false, None);
    while !answered || named.is_none() {
        match soon("an answer and the new service", peer.from.recv()).await.expect("there") {
            DeviceFrame::Pong => answered = true,
            DeviceFrame::Ready { slots: 0, places, .. } => named = Some(places),
            other => panic!("{other:?}"),
        }
    }
    let places = named.unwrap_or_default().into_iter().map(|named| (named.endpoint_id, named.places));
    assert_eq!(places.collect::<Vec<_>>(), [(new.endpoint_id, 3)]);
    // In another session the whole is said again: a service without a free place too, or it would count as unlimited.
    drop(peer);
    let (mut peer, _) = device.connect().await;
    let places = BTreeMap::from([(one.endpoint_id, 0), (many.endpoint_id, 4), (new.endpoint_id, 3)]);
    assert_eq!(peer.room().await, (1, places));
    device.gate.send_replace(true);
    peer.finish().await;
    assert_eq!(peer.room().await, (1, BTreeMap::from([(one.endpoint_id, 1)])));
}

#[tokio::test]
async fn the_few_slots_of_a_device_that_is_nearly_full_are_declared_although_no_other_run_ends() {
    let mut device = TestDevice::with_slots(16).await;
    let service = device.publish_as("Many", 16).await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 16);
    for _ in 0..15 {
        peer.start(&service.offer("wait")).await;
    }
    peer.start(&service.offer("say")).await;
    let (run_id, attempt, seq, _) = peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    assert_eq!(peer.room().await, (1, BTreeMap::from([(service.endpoint_id, 1)])));
}

#[tokio::test]
async fn a_full_service_is_named_until_a_run_of_it_ends_and_no_slot_is_kept_from_others_for_it() {
    let mut device = TestDevice::new().await;
    let (full, other) = (device.publish_as("Full", 1).await, device.publish_as("Other", 4).await);
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    let first = full.offer("wait");
    peer.start(&first).await;
    let second = full.offer("wait");
    peer.send(GatewayFrame::Offer(second.clone())).await;
    let (slots, named) = peer.full(&[]).await;
    assert_eq!((slots, &named[..]), (1, &[full.endpoint_id][..]), "the slot that the refused run used up");
    let (run_id, code) = (second.run_id, RefuseCode::Busy);
    let refusal = DeviceFrame::Refuse { run_id, attempt: 1, code };
    assert_eq!(peer.frame().await, refusal, "only then, or the run would come again at once");
    peer.start(&other.offer("say")).await;
    let (run_id, ..) = peer.finish().await;
    assert_ne!(run_id, first.run_id);
    device.gate.send_replace(true);
    assert_eq!(peer.full(&named).await.1, [], "it has room again");
    peer.start(&Offer { attempt: 2, ..second }).await;
}

#[tokio::test]
async fn of_offers_that_come_together_as_many_are_taken_as_there_is_room_for() {
    let mut device = TestDevice::new().await;
    let (full, other) = (device.publish_as("Full", 1).await, device.publish_as("Other", 4).await);
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    let offers = [full.offer("wait"), full.offer("wait"), other.offer("wait"), other.offer("wait")];
    for offer in &offers {
        peer.send(GatewayFrame::Offer(offer.clone())).await;
    }
    let attempt = 1;
    let accept = |offer: &Offer| DeviceFrame::Accept { run_id: offer.run_id, attempt };
    let refuse = |offer: &Offer| DeviceFrame::Refuse { run_id: offer.run_id, attempt, code: RefuseCode::Busy };
    assert_eq!(peer.frame().await, accept(&offers[0]));
    assert_eq!(peer.frame().await, accept(&offers[2]));
    assert_eq!(
        peer.full(&[]).await,
        (0, vec![full.endpoint_id]),
        "nothing is free, and it is said before the refusals"
    );
    assert_eq!(peer.frame().await, refuse(&offers[1]));
    assert_eq!(peer.frame().await, refuse(&offers[3]));
    // Their starts come together, and so do their ends.
    for offer in [&offers[0], &offers[2]] {
        peer.send(GatewayFrame::Start { run_id: offer.run_id, attempt }).await;
    }
    device.until("both execute", |status| status.runs.iter().all(|run| run.standing == ActiveRunState::Running)).await;
    device.gate.send_replace(true);
    let mut ended = [peer.finish().await.0, peer.finish().await.0];
    ended.sort();
    assert_eq!(ended, [offers[0].run_id, offers[2].run_id]);
    for run_id in ended {
        assert_eq!(device.ledger.of(run_id), [1]);
        peer.send(GatewayFrame::Ack { run_id, attempt, through: 1 }).await;
    }
    device.until("both are settled", |status| status.runs.is_empty()).await;
}

#[tokio::test]
async fn a_run_that_waits_for_its_owner_keeps_its_service_full_and_no_other() {
    let mut device = TestDevice::new().await;
    let (full, other) = (device.publish_as("Full", 1).await, device.publish_as("Other", 4).await);
    let (mut peer, _) = device.connect().await;
    let lost = full.offer("intend");
    peer.start(&lost).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    device.crash().await;
    device.boot().await;
    let (mut peer, _) = device.connect().await;
    let waiting = full.offer("say");
    peer.send(GatewayFrame::Offer(waiting.clone())).await;
    let (run_id, code) = (waiting.run_id, RefuseCode::Busy);
    assert_eq!(peer.full(&[]).await.1, [full.endpoint_id]);
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt: 1, code });
    peer.start(&other.offer("say")).await;
    peer.finish().await;
    peer.send(GatewayFrame::Ack { run_id: lost.run_id, attempt: 1, through: 1 }).await;
    let owner = device.handle();
    let settled = owner.reconcile(lost.run_id, OwnerFinding::NotDone, "uid 1".to_owned());
    soon("settled", settled).await.expect("settled");
    assert_eq!(peer.full(&[full.endpoint_id]).await.1, []);
}

#[tokio::test]
async fn a_revoked_attempt_stops_and_says_nothing_more() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait 1");
    let (run_id, attempt) = (offer.run_id, 1);
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    peer.send(GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::StaleAttempt }).await;
    device.until("it is gone", |status| status.runs.is_empty()).await;
    for echo in [GatewayFrame::Offer(offer.clone()), GatewayFrame::Start { run_id, attempt }, GatewayFrame::Ping] {
        peer.send(echo).await;
    }
    // Every offer is answered.
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt, code: RefuseCode::Busy });
    assert_eq!(peer.frame().await, DeviceFrame::Pong);
    assert_eq!(device.process().store.journal().in_flight().await.expect("readable"), []);
    assert_eq!(device.ledger.of(run_id), [1]);
}

#[tokio::test]
async fn no_more_events_are_under_way_than_the_gateway_allows() {
    let mut device = TestDevice::new().await;
    device.window = 3;
    let offer = device.publish(4).await.offer("say 50");
    let (run_id, attempt) = (offer.run_id, 1);
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    for seq in 1..=3 {
        assert_eq!(peer.frame().await, DeviceFrame::Event { run_id, attempt, seq, event: message(seq) });
    }
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong);
    peer.send(GatewayFrame::Ack { run_id, attempt, through: 3 }).await;
    assert_eq!(peer.finish().await.2, 51);
}

#[tokio::test]
async fn stop_waits_for_what_runs_and_takes_nothing_new() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    peer.start(&service.offer("wait")).await;
    let handle = device.handle();
    let stopped = tokio::spawn(async move { handle.stop(false).await });
    device.until("it is stopping", |status| status.stopping).await;
    let late = service.offer("say 1");
    peer.send(GatewayFrame::Offer(late.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id: late.run_id, attempt: 1, code: RefuseCode::Busy });
    assert!(!stopped.is_finished());
    device.gate.send_replace(true);
    let (run_id, attempt, seq, outcome) = peer.finish().await;
    assert_eq!(outcome, answer("waited"));
    peer.send(GatewayFrame::Ack { run_id, attempt, through: seq }).await;
    soon("it stops", stopped).await.expect("no panic");
    assert_eq!(peer.from.recv().await, None, "the line is closed");
}

#[tokio::test]
async fn stop_now_reports_no_run_as_cancelled_and_the_next_start_runs_it_again() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait");
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    device.until("it runs", |status| status.runs.iter().any(|run| run.standing == ActiveRunState::Running)).await;
    soon("it stops", device.handle().stop(true)).await;
    while let Some(frame) = peer.from.recv().await {
        assert!(matches!(frame, DeviceFrame::Ready { .. }), "{frame:?}");
    }
    let TestProcess { task, .. } = device.process.take().expect("running");
    task.await.expect("it ended by itself");
    device.boot().await;
    let (mut peer, in_flight) = device.connect().await;
    assert_eq!(in_flight[0].status, InFlightStatus::Interrupted);
    device.gate.send_replace(true);
    peer.start(&Offer { attempt: 2, ..offer.clone() }).await;
    assert_eq!(peer.finish().await.3, answer("waited"));
    assert_eq!(device.ledger.of(offer.run_id), [1, 2]);
}

#[tokio::test]
async fn a_draining_gateway_is_offered_no_more_slots_and_the_next_one_is() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    assert_eq!(peer.ready().await, 2);
    peer.send(GatewayFrame::Drain).await;
    peer.start(&service.offer("say 1")).await;
    assert!(matches!(peer.frame().await, DeviceFrame::Event { .. }));
    assert!(matches!(peer.frame().await, DeviceFrame::Finish { .. }));
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(soon("pong", peer.from.recv()).await, Some(DeviceFrame::Pong));
    drop(peer);
    let (mut peer, _) = device.connect().await;
    let mut declared = 0;
    while declared != 2 {
        if let DeviceFrame::Ready { slots, .. } = soon("slots", peer.from.recv()).await.expect("there") {
            declared += slots;
        }
    }
}

#[tokio::test]
async fn a_call_gets_its_own_reply_or_a_clear_reason() {
    let mut device = TestDevice::new().await;
    let handle = device.handle();
    assert_eq!(handle.call(GetAccess {}).await, Err(CallError::NotConnected));
    let (mut peer, _) = device.connect().await;
    device.until("it is connected", |status| status.connected).await;
    let ask = || {
        let handle = handle.clone();
        tokio::spawn(async move { handle.call(GetAccess {}).await })
    };
    let request = |frame| match frame {
        DeviceFrame::Request { request_id, request: ManagementRequest::GetAccess(_), .. } => request_id,
        other => panic!("{other:?}"),
    };
    let first = ask();
    let first_id = request(peer.frame().await);
    let second = ask();
    let second_id = request(peer.frame().await);
    let conflict = ManagementError { code: ManagementErrorCode::Conflict, message: "not now".to_owned() };
    let result = ManagementResult::Error(conflict.clone());
    peer.send(GatewayFrame::Reply { request_id: second_id, result }).await;
    let result = ManagementResult::Ok(json!({"enabled": true, "address": "https://x/api/v1"}));
    peer.send(GatewayFrame::Reply { request_id: first_id, result }).await;
    assert!(first.await.expect("no panic").expect("answered").enabled);
    assert_eq!(second.await.expect("no panic"), Err(CallError::Refused(conflict)));
    let third = ask();
    request(peer.frame().await);
    drop(peer);
    assert_eq!(soon("it fails at once", third).await.expect("no panic"), Err(CallError::LineLost));
}

#[tokio::test]
async fn a_start_of_another_attempt_begins_nothing_and_is_no_trouble() {
    let mut device = TestDevice::new().await;
    let offer = Offer { attempt: 2, ..device.publish(4).await.offer("say 1") };
    let run_id = offer.run_id;
    let (mut peer, _) = device.connect().await;
    peer.send(GatewayFrame::Offer(offer.clone())).await;
    assert_eq!(peer.frame().await, DeviceFrame::Accept { run_id, attempt: 2 });
    for attempt in [1, 3] {
        peer.send(GatewayFrame::Start { run_id, attempt }).await;
    }
    peer.send(GatewayFrame::Ping).await;
    assert_eq!(peer.frame().await, DeviceFrame::Pong);
    let status = device.handle().status();
    assert_eq!((status.problem, status.runs[0].standing), (None, ActiveRunState::Taken));
    assert_eq!(device.ledger.of(run_id), [] as [u32; 0]);
}

#[tokio::test]
async fn a_newer_attempt_waits_until_the_older_one_has_stopped() {
    let mut device = TestDevice::new().await;
    let offer = device.publish(4).await.offer("wait");
    let run_id = offer.run_id;
    let (mut peer, _) = device.connect().await;
    peer.start(&offer).await;
    device.until("it runs", |status| status.runs.iter().any(|run| run.standing == ActiveRunState::Running)).await;
    peer.send(GatewayFrame::Offer(Offer { attempt: 2, ..offer.clone() })).await;
    assert_eq!(peer.frame().await, DeviceFrame::Refuse { run_id, attempt: 2, code: RefuseCode::Busy });
    device.until("the older one is gone", |status| status.runs.is_empty()).await;
    peer.start(&Offer { attempt: 3, ..offer.clone() }).await;
    device.gate.send_replace(true);
    assert_eq!(peer.finish().await, (run_id, 3, 1, answer("waited")));
    assert_eq!(device.ledger.of(run_id), [1, 3]);
}

#[tokio::test]
async fn the_time_from_offer_to_finish_is_shown() {
    let mut device = TestDevice::new().await;
    let service = device.publish(4).await;
    let (mut peer, _) = device.connect().await;
    let mut times = Vec::new();
    for _ in 0..100 {
        let begun = std::time::Instant::now();
        peer.start(&service.offer("say 1")).await;
        let (run_id, attempt, through, _) = peer.finish().await;
        times.push(begun.elapsed());
        peer.send(GatewayFrame::Ack { run_id, attempt, through }).await;
    }
    times.sort();
    println!("offer to finish, three durable writes: p50 {:?}, p99 {:?}", times[50], times[98]);
}
