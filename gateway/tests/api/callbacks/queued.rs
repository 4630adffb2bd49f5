//! Queued deliveries: with the event, in its commit, and only for subscribers.

use std::time::Duration;

use deskgate_gateway::store::attempts::AttemptUpdate;
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{CallbackOff, DisableApplication};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::EventType;

use super::{FakeReceiver, all, callback, deliveries, delivery_worker, set};
use crate::conversations::TestConversation;
use crate::store::{TestStore, events, succeeded};
use crate::support::gateway::{LONG_LEASE, TestGateway};

#[tokio::test]
async fn every_event_that_was_chosen_is_queued_in_its_own_commit_and_no_other() {
    let test_store = TestStore::new().await;
    let every: Vec<_> = CallbackEvent::ALL.iter().copied().filter(|kind| kind.can_be_chosen()).collect();
    callback(&test_store.device, &every).await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 3)).await;
    test_store.one(session, run_id, 1, AttemptUpdate::Lose).await;
    test_store.one(session, run_id, 1, AttemptUpdate::Reconcile).await;
    test_store.one(session, run_id, 1, succeeded(4)).await;
    let stored = test_store.events(run_id).await;
    let queued = deliveries(&test_store.device).await;
    // The shelf's run was not accepted by the statements that accept.
    let expected: Vec<_> = stored.iter().filter(|kind| kind.as_str().starts_with("run.")).skip(1).collect();
    assert!(expected.len() >= 4, "{stored:?}");
    let mut kinds: Vec<_> = queued.iter().map(|own| own.delivery.kind.of_run().expect("of a run")).collect();
    kinds.reverse();
    assert_eq!(kinds.iter().collect::<Vec<_>>(), expected);
    let together = "SELECT count(*) FROM deliveries d JOIN run_events e USING (event_id)
        WHERE d.xmin = e.xmin AND d.sequence = e.sequence AND d.run_id = e.run_id AND d.event_at = e.created_at";
    assert_eq!(test_store.database.value(together).await, queued.len().to_string());
    assert!(queued.iter().all(|own| own.subject.as_deref() == Some("anna") && own.delivery.attempt == 0));

    // By default it is the ends of runs; and nothing while it is disabled.
    set(&test_store.device, |set| set.types = Some(CallbackEvent::RUN_END_EVENTS.to_vec())).await;
    let run_id = test_store.started(session).await;
    assert_eq!(deliveries(&test_store.device).await.len(), queued.len());
    let off = set(&test_store.device, |set| set.enabled = Some(false)).await.callback;
    assert_eq!(off.off, Some(CallbackOff::Owner));
    test_store.one(session, run_id, 1, succeeded(1)).await;
    assert_eq!(deliveries(&test_store.device).await.len(), queued.len(), "what happens while it is off is not queued");
    assert_eq!(test_store.events(run_id).await.last(), Some(&EventType::RunSucceeded));
}

#[tokio::test]
async fn acceptances_and_resets_are_told_to_who_chose_them() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    callback(device, &[CallbackEvent::RunAccepted, CallbackEvent::ConversationReset]).await;
    let run_id = gateway.submit("one").await;
    let talk = TestConversation::open(&gateway, "case").await;
    let message = talk.message("two", 1).send().await.run_id();
    gateway.store().expire_queued(Duration::from_secs(60)).await.expect("done");
    let told: Vec<_> = deliveries(device).await.into_iter().map(|own| own.delivery.run_id).collect();
    assert_eq!(told, [Some(message), Some(run_id)]);
    let path = format!("/api/v1/runs/{message}/stop");
    gateway.ask("POST", &path).header("Idempotency-Key", "stop").send().await;
    talk.reset("reset", 1).send().await;
    let (session, _) = device.connect().await;
    let operation_id = gateway.store().deliver(session, OrderSelection::New).await.expect("told")[0].0;
    assert_eq!(deliveries(device).await.len(), 2, "it is not completed");
    gateway.store().operation_done(session, operation_id, OutcomeCode::Reset, LONG_LEASE).await.expect("done");
    let newest = deliveries(device).await.swap_remove(0);
    assert_eq!(newest.delivery.kind, CallbackEvent::ConversationReset);
    assert_eq!(newest.delivery.event_id.uuid(), operation_id.uuid());
    assert_eq!(newest.delivery.conversation_id.map(|id| id.to_string()), Some(talk.id.to_string()));
    gateway.stop().await;
}

#[tokio::test]
async fn an_application_that_is_disabled_is_told_nothing_more() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    callback(device, &[]).await;
    let (session, _) = device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, succeeded(1)).await;
    device.desktop.disable_application(DisableApplication { app_id: device.app.id }).await.expect("disabled");
    let receiver = FakeReceiver::answering(200);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    assert_eq!(test_store.store.discard_deliveries(LONG_LEASE).await.expect("done"), 1);
    all(device, DeliveryState::Discarded).await;
    assert!(receiver.got().is_empty());
    let callback = device.desktop.callbacks().await.expect("listed").swap_remove(0);
    assert_eq!(callback.off, Some(CallbackOff::Application));
}
