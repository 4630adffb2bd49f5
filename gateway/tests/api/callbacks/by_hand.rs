//! Requests of a desktop user: tests, samples, the rules of addresses, and repeated deliveries.

use deskgate_protocol::ApplicationId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{
    ActivityKind, ListActivity, ManagementErrorCode, RecoverDeliveries, ResendDelivery, RollCallbackSecret,
    SetAllowlist, SetCallback, ShowCallback, ShowDelivery, TestCallback, TriggerDelivery,
};

use super::{
    CALLBACK_HOST, CALLBACK_URL, FakeReceiver, all, answer, callback, deliveries, delivery_worker, hurry, set,
};
use crate::store::{TestStore, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};
use crate::support::until;

#[tokio::test]
async fn an_address_that_no_callback_may_have_is_refused_with_the_reason() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let app_id = device.app.id;
    let try_url = async |url: &str| {
        let set = SetCallback {
            app_id,
            url: Some(url.to_owned()),
            types: None,
            enabled: None,
            keep_answers: None,
            format: None,
        };
        device.desktop.set_callback(set).await
    };
    for url in
        ["http://hooks.example.com/", "https://127.0.0.1/", "https://hooks.example.com:8443/", "https://a@b.com/"]
    {
        let no = try_url(url).await.expect_err(url);
        assert_eq!(no.code, ManagementErrorCode::Invalid, "{url}: {no}");
    }
    assert_eq!(device.desktop.callback(ShowCallback { app_id }).await.expect("shown"), None);
    let nothing = SetCallback { app_id, url: None, types: None, enabled: Some(true), keep_answers: None, format: None };
    assert_eq!(device.desktop.set_callback(nothing).await.expect_err("none").code, ManagementErrorCode::Conflict);
    let first = try_url(CALLBACK_URL).await.expect("set");
    assert!(first.secret.is_some_and(|secret| secret.starts_with("whsec_")));
    assert!(!first.callback.host_allowed, "the list is empty");
    assert_eq!(first.callback.types, CallbackEvent::RUN_END_EVENTS);
    let test = set(device, |set| set.types = Some(vec![CallbackEvent::RunAccepted, CallbackEvent::RunAccepted])).await;
    assert_eq!((test.callback.types, test.callback.url.as_str()), (vec![CallbackEvent::RunAccepted], CALLBACK_URL));
    for types in [vec![], vec![CallbackEvent::WebhookTest]] {
        let set =
            SetCallback { app_id, url: None, types: Some(types), enabled: None, keep_answers: None, format: None };
        assert_eq!(device.desktop.set_callback(set).await.expect_err("none").code, ManagementErrorCode::Invalid);
    }
    for host in ["https://hooks.example.com", "hooks.example.com:443", "*.example.com", "10.0.0.1"] {
        let hosts = vec![CALLBACK_HOST.to_owned(), host.to_owned()];
        let no = device.desktop.set_allowlist(SetAllowlist { hosts }).await.expect_err(host);
        assert!(no.message.contains(host), "{no}");
    }
    assert!(device.desktop.allowlist().await.expect("shown").hosts.is_empty(), "nothing of it was taken over");
}

#[tokio::test]
async fn another_device_neither_sees_nor_changes_a_callback_and_its_deliveries() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[]).await;
    let app_id = test_store.device.app.id;
    let test = test_store.device.desktop.test_callback(TestCallback { app_id }).await.expect("queued");
    let delivery_id = test.delivery.delivery_id;
    let stranger = DeviceFixture::pair(&test_store.store).await.desktop;
    let show = ShowDelivery { delivery_id, wait_s: 0, seen: 0 };
    let set = SetCallback {
        app_id,
        url: Some(CALLBACK_URL.to_owned()),
        types: None,
        enabled: None,
        keep_answers: None,
        format: None,
    };
    let recover = RecoverDeliveries { app_id, since: test.delivery.created_at, only_count: true };
    let codes = [
        stranger.callback(ShowCallback { app_id }).await.err(),
        stranger.set_callback(set).await.err(),
        stranger.roll_callback_secret(RollCallbackSecret { app_id, overlap_s: 0 }).await.err(),
        stranger.test_callback(TestCallback { app_id }).await.err(),
        stranger.show_delivery(show).await.err(),
        stranger.resend(ResendDelivery { delivery_id }).await.err(),
        stranger.recover(recover).await.err(),
    ];
    assert!(codes.iter().all(|no| no.as_ref().is_some_and(|no| no.code == ManagementErrorCode::NotFound)), "{codes:?}");
    assert!(stranger.callbacks().await.expect("listed").is_empty());
    assert!(stranger.deliveries(Default::default()).await.expect("listed").deliveries.is_empty());
}

#[tokio::test]
async fn a_test_and_a_sample_arrive_as_events_do_and_can_be_followed() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let app_id = device.app.id;
    assert_eq!(
        device
            .desktop
            .trigger(TriggerDelivery { app_id, kind: CallbackEvent::RunFailed })
            .await
            .expect_err("none")
            .code,
        ManagementErrorCode::Conflict
    );
    let unknown = TestCallback { app_id: ApplicationId::new() };
    assert_eq!(device.desktop.test_callback(unknown).await.expect_err("none").code, ManagementErrorCode::NotFound);
    let secret = callback(device, &[]).await.secret.expect("shown");
    let receiver = FakeReceiver::answering(200);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let test = device.desktop.test_callback(TestCallback { app_id }).await.expect("queued").delivery;
    let followed = ShowDelivery { delivery_id: test.delivery_id, wait_s: 20, seen: 0 };
    let detail = device.desktop.show_delivery(followed).await.expect("shown");
    assert_eq!(detail.delivery.delivery.state, DeliveryState::Delivered);
    assert_eq!(detail.attempts[0].status_code, Some(200));
    let got = receiver.gets(1).await.swap_remove(0);
    assert!(got.is_signed_by(&secret));
    assert_eq!(got.json()["type"], "webhook.test");
    device.desktop.trigger(TriggerDelivery { app_id, kind: CallbackEvent::RunFailed }).await.expect("queued");
    let got = receiver.gets(2).await.swap_remove(1);
    let body = got.json();
    assert_eq!((&body["type"], &body["data"]["run"]["state"]), (&"run.failed".into(), &"failed".into()));
}

#[tokio::test]
async fn what_was_given_up_is_sent_again_one_or_all_since_a_time_and_with_the_same_event() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    callback(device, &[]).await;
    let (session, _) = device.connect().await;
    for _ in 0..3 {
        let run_id = test_store.started(session).await;
        test_store.one(session, run_id, 1, succeeded(1)).await;
    }
    let receiver = FakeReceiver::that(|_, before| Ok(answer(if before < 3 { 500 } else { 200 })));
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    receiver.gets(3).await;
    let failed = async || deliveries(device).await.iter().all(|own| own.delivery.status_code == Some(500));
    until("all failed", failed).await;
    test_store
        .database
        .execute("UPDATE deliveries SET state = 'exhausted', due_at = NULL, finished_at = now(), purge_at = 'infinity'")
        .await;
    hurry(&test_store).await;
    let own = deliveries(device).await;
    let (newest, since) = (own[0].delivery.clone(), own[1].delivery.created_at);
    let recover = |only_count| RecoverDeliveries { app_id: device.app.id, since, only_count };
    assert_eq!(device.desktop.recover(recover(true)).await.expect("counted").deliveries, 2);
    let resent = device.desktop.resend(ResendDelivery { delivery_id: newest.delivery_id }).await.expect("resent");
    assert_eq!(resent.delivery.event_id, newest.event_id);
    receiver.gets(4).await;
    let one = async || deliveries(device).await[0].delivery.state == DeliveryState::Delivered;
    until("it is delivered", one).await;
    assert_eq!(deliveries(device).await[0].delivery.attempt, 2, "attempts are counted on");
    assert_eq!(device.desktop.recover(recover(true)).await.expect("counted").deliveries, 1);
    assert_eq!(device.desktop.recover(recover(false)).await.expect("recovered").deliveries, 1);
    receiver.gets(5).await;
    assert_eq!(device.desktop.recover(recover(true)).await.expect("counted").deliveries, 0);
    let oldest = RecoverDeliveries { app_id: device.app.id, since: own[2].delivery.created_at, only_count: false };
    assert_eq!(device.desktop.recover(oldest).await.expect("recovered").deliveries, 1);
    all(device, DeliveryState::Delivered).await;
    let ids: std::collections::BTreeSet<_> =
        receiver.got().iter().map(|got| got.header("webhook-id").to_owned()).collect();
    assert_eq!((ids.len(), receiver.got().len()), (3, 6));
    // What was delivered can be sent again too; while its callback is off it cannot.
    device.desktop.resend(ResendDelivery { delivery_id: newest.delivery_id }).await.expect("resent");
    receiver.gets(7).await;
    all(device, DeliveryState::Delivered).await;
    set(device, |set| set.enabled = Some(false)).await;
    let no = device.desktop.resend(ResendDelivery { delivery_id: newest.delivery_id }).await.expect_err("off");
    assert_eq!(no.code, ManagementErrorCode::Conflict);
    let noted = ListActivity { limit: 100, app_id: Some(device.app.id), before: None };
    let noted: Vec<_> =
        device.desktop.activity(noted).await.expect("listed").entries.into_iter().map(|entry| entry.what).collect();
    use ActivityKind::*;
    assert_eq!(
        noted[..6],
        [CallbackDisabled, DeliveryResent, DeliveriesRecovered, DeliveriesRecovered, DeliveryResent, CallbackSet]
    );
}
