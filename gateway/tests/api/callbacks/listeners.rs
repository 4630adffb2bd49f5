//! Listeners on the desktop: they are handed out what a callback would get.

use deskgate_gateway::signing::{self, SigningSecret};
use deskgate_protocol::DestinationId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::management::{
    CloseListener, DestinationKind, ForwardOutcome, ForwardedDelivery, ManagementErrorCode, OpenListener, PollListener,
    TriggerDelivery,
};
use serde_json::Value;

use super::{FakeReceiver, callback, deliveries, delivery_worker, hurry, shown};
use crate::document::assert_fits;
use crate::store::{TestStore, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

async fn poll(
    device: &DeviceFixture,
    listener_id: DestinationId,
    wait_s: u32,
    outcomes: Vec<ForwardOutcome>,
) -> Vec<ForwardedDelivery> {
    let poll = PollListener { listener_id, limit: 8, wait_s, outcomes };
    device.desktop.poll_listener(poll).await.expect("answered").forwards
}

fn answered(forward: &ForwardedDelivery, status: u16) -> ForwardOutcome {
    let (delivery_id, attempt) = (forward.delivery_id, forward.attempt);
    ForwardOutcome { delivery_id, attempt, duration_ms: 3, status_code: Some(status), error_code: None }
}

#[tokio::test]
async fn a_listener_is_handed_out_what_a_callback_would_get_until_it_says_that_it_arrived() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let app_id = device.app.id;
    let opened = device.desktop.open_listener(OpenListener { app_id, types: Vec::new() }).await.expect("opened");
    let listener_id = opened.listener_id;
    assert!(poll(device, listener_id, 0, Vec::new()).await.is_empty());
    let (session, _) = device.connect().await;
    let run_id = test_store.started(session).await;
    let waiting = poll(device, listener_id, 20, Vec::new());
    let first = waiting.await.swap_remove(0);
    assert_eq!((first.kind, first.attempt), (CallbackEvent::RunStarted, 1));
    let header = |name: &str| {
        first.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).expect("there")
    };
    let secret = SigningSecret::parse(&opened.secret).expect("a secret");
    let (signature, id, at) = (header("webhook-signature"), header("webhook-id"), header("webhook-timestamp"));
    assert!(signing::is_signed(signature, &[&secret], id, at, first.body.as_bytes()));
    let body: Value = serde_json::from_str(&first.body).expect("JSON");
    assert_eq!(body["data"]["run"]["run_id"], run_id.to_string());
    assert!(poll(device, listener_id, 0, Vec::new()).await.is_empty(), "it is handed out");

    let refused = ForwardOutcome {
        status_code: None,
        error_code: Some(DeliveryErrorCode::ConnectFailed),
        ..answered(&first, 200)
    };
    assert!(poll(device, listener_id, 0, vec![refused]).await.is_empty());
    assert!(poll(device, listener_id, 0, vec![answered(&first, 200)]).await.is_empty(), "that attempt is over");
    hurry(&test_store).await;
    let again = poll(device, listener_id, 0, Vec::new()).await.swap_remove(0);
    assert_eq!((again.delivery_id, again.attempt), (first.delivery_id, 2));
    poll(device, listener_id, 0, vec![answered(&again, 204)]).await;
    let detail = shown(device, first.delivery_id).await;
    assert_eq!(
        (detail.delivery.to, detail.delivery.delivery.state),
        (DestinationKind::Listener, DeliveryState::Delivered)
    );
    assert_eq!(detail.attempts.len(), 2);
    assert_eq!(detail.attempts[0].error_code, Some(DeliveryErrorCode::ConnectFailed));

    device.desktop.trigger(TriggerDelivery { app_id, kind: CallbackEvent::RunExpired }).await.expect("queued");
    assert_eq!(poll(device, listener_id, 20, Vec::new()).await[0].kind, CallbackEvent::RunExpired);
    let stranger = DeviceFixture::pair(&test_store.store).await;
    let theirs = PollListener { listener_id, limit: 8, wait_s: 0, outcomes: Vec::new() };
    let no = stranger.desktop.poll_listener(theirs.clone()).await.expect_err("not theirs");
    assert_eq!(no.code, ManagementErrorCode::NotFound);
    assert!(stranger.desktop.close_listener(CloseListener { listener_id }).await.is_err());
    device.desktop.close_listener(CloseListener { listener_id }).await.expect("closed");
    assert_eq!(device.desktop.poll_listener(theirs).await.expect_err("ended").code, ManagementErrorCode::NotFound);
    let before = deliveries(device).await.len();
    test_store.one(session, run_id, 1, succeeded(1)).await;
    assert_eq!(deliveries(device).await.len(), before, "nobody listens any more");
    test_store.database.execute("UPDATE destinations SET expires_at = now() - interval '3 hours'").await;
    assert_eq!(test_store.store.forget_listeners().await.expect("done"), 1);
    assert!(deliveries(device).await.iter().all(|own| own.delivery.state != DeliveryState::Pending));
}

#[tokio::test]
async fn what_a_listener_is_to_get_is_sent_to_no_address() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    callback(device, &[]).await;
    let listen = OpenListener { app_id: device.app.id, types: vec![CallbackEvent::RunStarted] };
    device.desktop.open_listener(listen).await.expect("opened");
    let receiver = FakeReceiver::answering(200);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let (session, _) = device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, succeeded(1)).await;
    let got = receiver.gets(1).await;
    assert_eq!(got[0].json()["type"], "run.succeeded");
    let states: Vec<_> = deliveries(device).await.into_iter().map(|own| (own.to, own.delivery.kind)).collect();
    assert_eq!(states[1], (DestinationKind::Listener, CallbackEvent::RunStarted));
    assert_eq!(receiver.got().len(), 1);
}

#[tokio::test]
async fn what_a_callback_brings_has_the_form_that_the_document_says() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let app_id = device.app.id;
    let opened = device.desktop.open_listener(OpenListener { app_id, types: Vec::new() }).await.expect("opened");
    let kinds = CallbackEvent::ALL.iter().copied().filter(|kind| kind.can_be_chosen());
    for kind in kinds {
        device.desktop.trigger(TriggerDelivery { app_id, kind }).await.expect("queued");
        let brought = poll(device, opened.listener_id, 20, Vec::new()).await.swap_remove(0);
        let body: Value = serde_json::from_str(&brought.body).expect("JSON");
        assert_eq!(body["type"], kind.as_str());
        let record = if kind == CallbackEvent::ConversationReset { "ConversationCallback" } else { "RunCallback" };
        assert_fits(record, &body);
        poll(device, opened.listener_id, 0, vec![answered(&brought, 200)]).await;
    }
}
