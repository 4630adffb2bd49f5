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
    let shelf = TestStore::new().await;
    let every: Vec<_> = CallbackEvent::ALL.iter().copied().filter(|kind| kind.can_be_chosen()).collect();
    callback(&shelf.desk, &every).await;
    let (session, _) = shelf.desk.connect().await;
    let run_id = shelf.started(session).await;
    shelf.one(session, run_id, 1, events(1, 3)).await;
    shelf.one(session, run_id, 1, AttemptUpdate::Lose).await;
    shelf.one(session, run_id, 1, AttemptUpdate::Reconcile).await;
    shelf.one(session, run_id, 1, succeeded(4)).await;
    let stored = shelf.events(run_id).await;
    let queued = deliveries(&shelf.desk).await;
    // The shelf's run was not accepted by the statements that accept.
    let expected: Vec<_> = stored.iter().filter(|kind| kind.as_str().starts_with("run.")).skip(1).collect();
    assert!(expected.len() >= 4, "{stored:?}");
    let mut kinds: Vec<_> = queued.iter().map(|own| own.delivery.kind.of_run().expect("of a run")).collect();
    kinds.reverse();
    assert_eq!(kinds.iter().collect::<Vec<_>>(), expected);
    let together = "SELECT count(*) FROM deliveries d JOIN run_events e USING (event_id)
        WHERE d.xmin = e.xmin AND d.sequence = e.sequence AND d.run_id = e.run_id AND d.event_at = e.created_at";
    assert_eq!(shelf.database.value(together).await, queued.len().to_string());
    assert!(queued.iter().all(|own| own.subject.as_deref() == Some("anna") && own.delivery.attempt == 0));

    // By default it is the ends of runs; and nothing while it is disabled.
    set(&shelf.desk, |set| set.types = Some(CallbackEvent::RUN_END_EVENTS.to_vec())).await;
    let run_id = shelf.started(session).await;
    assert_eq!(deliveries(&shelf.desk).await.len(), queued.len());
    let off = set(&shelf.desk, |set| set.enabled = Some(false)).await.callback;
    assert_eq!(off.off, Some(CallbackOff::Owner));
    shelf.one(session, run_id, 1, succeeded(1)).await;
    assert_eq!(deliveries(&shelf.desk).await.len(), queued.len(), "what happens while it is off is not queued");
    assert_eq!(shelf.events(run_id).await.last(), Some(&EventType::RunSucceeded));
}

#[tokio::test]
async fn acceptances_and_resets_are_told_to_who_chose_them() {
    let world = TestGateway::new().await;
    let desk = &world.desk;
    callback(desk, &[CallbackEvent::RunAccepted, CallbackEvent::ConversationReset]).await;
    let run_id = world.submit("one").await;
    let talk = TestConversation::open(&world, "case").await;
    let message = talk.message("two", 1).send().await.run_id();
    world.store().expire_queued(Duration::from_secs(60)).await.expect("done");
    let told: Vec<_> = deliveries(desk).await.into_iter().map(|own| own.delivery.run_id).collect();
    assert_eq!(told, [Some(message), Some(run_id)]);
    let path = format!("/api/v1/runs/{message}/stop");
    world.ask("POST", &path).header("Idempotency-Key", "stop").send().await;
    talk.reset("reset", 1).send().await;
    let (session, _) = desk.connect().await;
    let operation_id = world.store().deliver(session, OrderSelection::New).await.expect("told")[0].0;
    assert_eq!(deliveries(desk).await.len(), 2, "it is not completed");
    world.store().operation_done(session, operation_id, OutcomeCode::Reset, LONG_LEASE).await.expect("done");
    let newest = deliveries(desk).await.swap_remove(0);
    assert_eq!(newest.delivery.kind, CallbackEvent::ConversationReset);
    assert_eq!(newest.delivery.event_id.uuid(), operation_id.uuid());
    assert_eq!(newest.delivery.conversation_id.map(|id| id.to_string()), Some(talk.id.to_string()));
    world.stop().await;
}

#[tokio::test]
async fn an_application_that_is_disabled_is_told_nothing_more() {
    let shelf = TestStore::new().await;
    let desk = &shelf.desk;
    callback(desk, &[]).await;
    let (session, _) = desk.connect().await;
    let run_id = shelf.started(session).await;
    shelf.one(session, run_id, 1, succeeded(1)).await;
    desk.desktop.disable_application(DisableApplication { app_id: desk.app.id }).await.expect("disabled");
    let receiver = FakeReceiver::answering(200);
    let _rounds = delivery_worker(&shelf.store, &receiver, LONG_LEASE);
    assert_eq!(shelf.store.discard_deliveries(LONG_LEASE).await.expect("done"), 1);
    all(desk, DeliveryState::Discarded).await;
    assert!(receiver.got().is_empty());
    let callback = desk.desktop.callbacks().await.expect("listed").swap_remove(0);
    assert_eq!(callback.off, Some(CallbackOff::Application));
}
