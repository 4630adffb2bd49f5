//! How deliveries are attempted: until they are confirmed, by one replica at a time, and independently of each other.

use std::time::{Duration, Instant};

use deskgate_gateway::callbacks::send::ReceiverResponse;
use deskgate_gateway::encryption::DataCipher;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::management::{
    CallbackFormat, CallbackOff, RollCallbackSecret, SetAllowlist, SetCallback, ShowCallback,
};
use deskgate_protocol::{Timestamp, VERSION};
use futures_util::StreamExt;

use super::{
    CALLBACK_HOST, CALLBACK_URL, FakeReceiver, all, answer, callback, deliveries, delivery_worker,
    delivery_worker_with_seal, hurry, set, shown,
};
use crate::store::{TestStore, succeeded};
use crate::support::gateway::LONG_LEASE;
use crate::support::until;

/// A run that ended, with a delivery for the callback.
async fn told(test_store: &TestStore) {
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, succeeded(1)).await;
}

#[tokio::test]
async fn a_receiver_with_openais_sdk_is_told_the_end_of_a_run_in_its_form() {
    let test_store = TestStore::new().await;
    let secret = callback(&test_store.device, &[CallbackEvent::RunStarted, CallbackEvent::RunSucceeded]).await.secret;
    assert_eq!(
        set(&test_store.device, |set| set.format = Some(CallbackFormat::Openai)).await.callback.format,
        CallbackFormat::Openai
    );
    told(&test_store).await;
    let receiver = FakeReceiver::answering(204);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let got = receiver.gets(2).await;
    let (ended, other): (Vec<_>, Vec<_>) = got.iter().partition(|got| got.json()["object"] == "event");
    assert_eq!(other[0].json()["type"], "run.started", "what is no end of a run has one form");
    let (body, ended) = (ended[0].json(), ended[0]);
    assert!(ended.is_signed_by(secret.as_ref().expect("shown once")));
    let run_id = other[0].json()["data"]["run"]["run_id"].as_str().expect("a run").replace("run_", "resp_");
    assert_eq!((&body["type"], &body["data"]["id"]), (&"response.completed".into(), &run_id.into()));
    assert_eq!((body["id"].as_str(), body["created_at"].is_i64()), (Some(ended.header("webhook-id")), true));
}

#[tokio::test]
async fn what_arrives_is_signed_and_says_what_the_run_says() {
    let test_store = TestStore::new().await;
    let secret = callback(&test_store.device, &[]).await.secret.expect("shown once");
    assert_eq!(set(&test_store.device, |set| set.keep_answers = Some(true)).await.secret, None, "and only once");
    told(&test_store).await;
    let receiver = FakeReceiver::answering(204);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let got = receiver.gets(1).await.swap_remove(0);
    all(&test_store.device, DeliveryState::Delivered).await;
    let own = deliveries(&test_store.device).await.swap_remove(0);
    let delivery = own.delivery;
    assert_eq!(got.url, CALLBACK_URL);
    assert!(got.is_signed_by(&secret));
    assert_eq!(got.header("webhook-id"), delivery.event_id.to_string());
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!(got.header("user-agent"), format!("Deskgate/{VERSION}"));
    assert_eq!(got.header("x-deskgate-delivery"), delivery.delivery_id.to_string());
    assert_eq!(got.header("x-deskgate-attempt"), "1");
    let at: i64 = got.header("webhook-timestamp").parse().expect("seconds");
    assert!((at - Timestamp::now().0.as_second()).abs() < 60);
    let body = got.json();
    assert_eq!((&body["type"], &body["data"]["sequence"]), (&"run.succeeded".into(), &3.into()));
    let run_id = delivery.run_id.expect("of a run");
    let seen = deskgate_gateway::domain::runs::visible_run(
        test_store.store.run(test_store.device.app.id, "anna", run_id).await.expect("read").expect("there"),
    );
    assert_eq!(body["data"]["run"], serde_json::to_value(&seen).expect("JSON"));
    assert_eq!((delivery.attempt, delivery.status_code, delivery.duration_ms), (1, Some(204), Some(7)));
    let detail = shown(&test_store.device, delivery.delivery_id).await;
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.attempts[0].answer.as_deref(), Some("thank\u{fffd}you"));
    assert_eq!(detail.attempts[0].url_host, CALLBACK_HOST);
}

#[tokio::test]
async fn a_replica_with_another_seal_gives_deliveries_back_and_uses_up_none_of_their_attempts() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[]).await;
    told(&test_store).await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let other = DataCipher::load_or_create(&folder.path().join("seal")).expect("made");
    let receiver = FakeReceiver::answering(204);
    let before = test_store.database.value("SELECT max(due_at) FROM deliveries").await;
    let _other = delivery_worker_with_seal(&test_store.store, &receiver, LONG_LEASE, other);
    let given_back = format!("SELECT count(*) FROM deliveries WHERE attempt = 0 AND due_at <> '{before}'");
    until("it gave the delivery back", async || test_store.database.value(&given_back).await == "1").await;
    assert_eq!(test_store.database.value("SELECT count(*) FROM delivery_attempts").await, "0");
    assert!(receiver.got().is_empty(), "nothing is sent without a signature");

    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    assert_eq!(receiver.gets(1).await[0].header("x-deskgate-attempt"), "1");
    all(&test_store.device, DeliveryState::Delivered).await;
    let callback = test_store.database.value("SELECT failing_since IS NULL FROM destinations").await;
    assert_eq!(callback, "true", "the receiver has not failed");
}

#[tokio::test]
async fn what_is_taken_at_once_is_bounded_by_its_bytes_and_one_is_always_taken() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[]).await;
    for _ in 0..5 {
        told(&test_store).await;
    }
    let large = r#"UPDATE runs SET input = json_build_object('text', repeat('x', 100000))"#;
    test_store.database.execute(large).await;
    let taken = async |bytes| {
        let claimed = test_store.store.claim_deliveries(100, bytes, &[], 100, LONG_LEASE).await.expect("taken");
        claimed.into_iter().map(|claimed| claimed.delivery_id).collect::<Vec<_>>()
    };
    assert_eq!((taken(0).await.len(), taken(1).await.len()), (0, 1), "the first one, however large it is");
    assert_eq!(taken(150_000).await.len(), 2);
    assert_eq!(taken(usize::MAX).await.len(), 2, "the rest, and none twice");
}

#[tokio::test]
async fn only_a_2xx_confirms_and_every_attempt_is_a_record_until_the_last() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[]).await;
    told(&test_store).await;
    let receiver = FakeReceiver::that(|_, before| match before {
        0 => Err(DeliveryErrorCode::ConnectFailed),
        1 => Ok(answer(302)),
        2 => Ok(ReceiverResponse { retry_after: Some("7200".to_owned()), ..answer(503) }),
        _ => Ok(answer(500)),
    });
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    for attempt in 1..=10 {
        receiver.gets(attempt).await;
        let id = deliveries(&test_store.device).await[0].delivery.delivery_id;
        let known =
            async || shown(&test_store.device, id).await.attempts.iter().filter(|a| a.duration_ms.is_some()).count();
        until("the outcome is written", async || known().await == attempt).await;
        let now =
            test_store.database.value("SELECT coalesce(extract(epoch FROM due_at - now()), 0) FROM deliveries").await;
        if attempt == 3 {
            let wait: f64 = now.parse().expect("a number");
            assert!((7190.0..=7200.0).contains(&wait), "the receiver asked for two hours: {wait}");
        }
        hurry(&test_store).await;
    }
    all(&test_store.device, DeliveryState::Exhausted).await;
    let id = deliveries(&test_store.device).await[0].delivery.delivery_id;
    let attempts = shown(&test_store.device, id).await.attempts;
    assert_eq!(attempts.len(), 10);
    assert_eq!(attempts[0].error_code, Some(DeliveryErrorCode::ConnectFailed));
    assert_eq!(attempts[1].status_code, Some(302));
    assert!(attempts.iter().all(|attempt| attempt.answer.is_none()), "nobody asked to keep answers");
    let ids: std::collections::BTreeSet<_> =
        receiver.got().iter().map(|got| got.header("webhook-id").to_owned()).collect();
    assert_eq!(ids.len(), 1, "one event");
    let app_id = test_store.device.app.id;
    let callback = test_store.device.desktop.callback(ShowCallback { app_id }).await.expect("shown").expect("there");
    assert!(callback.failing_since.is_some() && callback.off.is_none());
}

#[tokio::test]
async fn a_host_that_is_taken_off_the_list_is_not_sent_to_from_the_next_attempt_on() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[]).await;
    told(&test_store).await;
    let receiver = FakeReceiver::answering(500);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    receiver.gets(1).await;
    let shown = test_store.device.desktop.set_allowlist(SetAllowlist { hosts: Vec::new() }).await.expect("set");
    assert!(shown.hosts.is_empty() && shown.is_yours);
    let blocked = async || {
        hurry(&test_store).await;
        deliveries(&test_store.device).await[0].delivery.error_code == Some(DeliveryErrorCode::HostNotAllowed)
    };
    until("it is blocked", blocked).await;
    assert_eq!(receiver.got().len(), 1);
    let delivery = deliveries(&test_store.device).await.swap_remove(0).delivery;
    assert_eq!(delivery.state, DeliveryState::Pending, "somebody may allow it again");
}

#[tokio::test]
async fn a_receiver_that_is_gone_or_fails_for_five_days_is_sent_to_no_more_until_somebody_says_so() {
    for (status, why) in [(410, CallbackOff::Gone), (500, CallbackOff::Failing)] {
        let test_store = TestStore::new().await;
        callback(&test_store.device, &[]).await;
        told(&test_store).await;
        test_store.database.execute("UPDATE destinations SET failing_since = now() - interval '121 hours'").await;
        let receiver = FakeReceiver::that(move |_, before| Ok(answer(if before == 0 { status } else { 200 })));
        let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
        let app_id = test_store.device.app.id;
        let shown =
            async || test_store.device.desktop.callback(ShowCallback { app_id }).await.expect("shown").expect("there");
        until("it is off", async || shown().await.off == Some(why)).await;
        assert_eq!(shown().await.pending, 1, "what was queued waits");
        hurry(&test_store).await;
        told(&test_store).await;
        assert_eq!(deliveries(&test_store.device).await.len(), 1);
        assert_eq!(receiver.got().len(), 1, "nothing is sent to what is off");
        let on = set(&test_store.device, |set| set.enabled = Some(true)).await.callback;
        assert_eq!((on.off, on.failing_since), (None, None));
        all(&test_store.device, DeliveryState::Delivered).await;
    }
}

#[tokio::test]
async fn while_a_secret_rolls_both_sign_and_afterwards_only_the_new_one() {
    let test_store = TestStore::new().await;
    let old = callback(&test_store.device, &[]).await.secret.expect("shown");
    let receiver = FakeReceiver::answering(200);
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let app_id = test_store.device.app.id;
    let roll = RollCallbackSecret { app_id, overlap_s: 3600 };
    let rolled = test_store.device.desktop.roll_callback_secret(roll).await.expect("rolled");
    let new = rolled.secret.expect("shown");
    assert!(rolled.callback.old_secret_until.is_some());
    told(&test_store).await;
    let got = receiver.gets(1).await.swap_remove(0);
    assert!(got.is_signed_by(&old) && got.is_signed_by(&new) && new != old);
    test_store.database.execute("UPDATE destinations SET old_secret_until = now()").await;
    told(&test_store).await;
    let got = receiver.gets(2).await.swap_remove(1);
    assert!(!got.is_signed_by(&old) && got.is_signed_by(&new));
}

#[tokio::test]
async fn one_receiver_that_never_answers_delays_none_of_a_thousand_others() {
    const OTHER_DELIVERIES: usize = 1000;
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    callback(device, &[]).await;
    let set_up = async |number: usize| {
        let app = device.application(&format!("other {number}")).await;
        let url = Some(format!("https://{CALLBACK_HOST}/{number}"));
        let set = SetCallback { app_id: app.id, url, types: None, enabled: None, keep_answers: None, format: None };
        device.desktop.set_callback(set).await.expect("set");
    };
    futures_util::stream::iter(0..OTHER_DELIVERIES).for_each_concurrent(16, set_up).await;
    let queue = |which: &str, count: u32| {
        format!(
            "INSERT INTO deliveries (delivery_id, destination_id, app_id, event_id, type, event_at, data, due_at)
            SELECT new_delivery_id(), destination_id, app_id, gen_random_uuid(), 'webhook.test', now(), '{{}}',
                now() - interval '1 hour'
            FROM destinations, generate_series(1, {count}) WHERE url {which} '%key=1'"
        )
    };
    let receiver =
        FakeReceiver::that(
            |got, _| if got.url == CALLBACK_URL { Err(DeliveryErrorCode::Timeout) } else { Ok(answer(200)) },
        );
    let _rounds = delivery_worker(&test_store.store, &receiver, LONG_LEASE);
    let others = async || receiver.got().iter().filter(|got| got.url != CALLBACK_URL).count();
    let all_told = async |round: usize| {
        let began = Instant::now();
        test_store.database.execute(&queue("NOT LIKE", 1)).await;
        until("the others are told", async || others().await == round * OTHER_DELIVERIES).await;
        println!("{OTHER_DELIVERIES} others are told in {:?}", began.elapsed());
    };
    all_told(1).await;
    // The receiver that never answers has the longest queue, and the oldest.
    test_store.database.execute(&queue("LIKE", 500)).await;
    until("the deaf one is sent to", async || receiver.got().len() == OTHER_DELIVERIES + 2).await;
    all_told(2).await;
    assert_eq!(receiver.got().len(), 2 * OTHER_DELIVERIES + 2, "one that never answers holds two places and no more");
}

#[tokio::test]
async fn two_replicas_never_make_the_same_attempt_and_a_lost_one_is_followed_by_the_next() {
    let test_store = TestStore::new().await;
    callback(&test_store.device, &[CallbackEvent::RunSucceeded]).await;
    for _ in 0..30 {
        told(&test_store).await;
    }
    // One of three gateways never gets an answer, as if it had died in each of its attempts.
    let (dying, living) = (FakeReceiver::that(|_, _| Err(DeliveryErrorCode::Timeout)), FakeReceiver::answering(200));
    let lease = Duration::from_millis(1500);
    let died = delivery_worker(&test_store.store, &dying, lease);
    dying.gets(2).await;
    let _living =
        [delivery_worker(&test_store.store, &living, lease), delivery_worker(&test_store.store, &living, lease)];
    all(&test_store.device, DeliveryState::Delivered).await;
    drop(died);
    let mut made: Vec<_> = dying.got();
    made.extend(living.got());
    let mut attempts: Vec<_> = made
        .iter()
        .map(|got| (got.header("x-deskgate-delivery").to_owned(), got.header("x-deskgate-attempt").to_owned()))
        .collect();
    let count = attempts.len();
    attempts.sort();
    attempts.dedup();
    assert_eq!(attempts.len(), count, "no attempt was made twice");
    let lost = "SELECT count(*) FROM delivery_attempts a WHERE a.took_ms IS NULL AND EXISTS (
        SELECT FROM delivery_attempts b WHERE b.delivery_id = a.delivery_id AND b.attempt > a.attempt)";
    assert!(test_store.database.value(lost).await.parse::<u32>().expect("a number") >= 2, "their records say nothing");
    let events: std::collections::BTreeSet<_> =
        living.got().iter().map(|got| got.header("webhook-id").to_owned()).collect();
    assert_eq!(events.len(), 30);
}
