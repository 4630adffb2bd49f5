//! What one device and one account may make here, also when they ask for it all at once.

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::domain::health::{HealthCode, HealthSnapshot};
use deskgate_gateway::domain::quotas::{QuotaKind, Quotas};
use deskgate_gateway::store::Store;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::*;
use deskgate_protocol::{ApplicationId, EndpointId};
use futures_util::future::join_all;

use crate::store::TestStore;
use crate::support::gateway::{DeviceFixture, TestGateway, patient};
use crate::support::server::storage;
use crate::webhooks::settings;

/// How many ask at once.
const RACERS: usize = 25;

fn limits(quotas: &[(QuotaKind, u32)]) -> CallerLimits {
    let quotas = quotas.iter().fold(Quotas::default(), |quotas, (kind, limit)| quotas.with(*kind, *limit));
    CallerLimits { quotas, ..patient() }
}

async fn create_application(device: &DeviceFixture, name: &str) -> Result<ApplicationId, ManagementError> {
    let created = device.desktop.create_application(CreateApplication { name: name.to_owned() }).await?;
    Ok(created.application.app_id)
}

async fn create_key(device: &DeviceFixture, name: &str) -> Result<CreatedKey, ManagementError> {
    let request = CreateKey {
        app_id: device.app.id,
        name: name.to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: Vec::new(),
        fixed_subject: None,
        expires_at: None,
        allowed_cidrs: Vec::new(),
    };
    device.desktop.create_key(request).await
}

async fn publish(
    device: &DeviceFixture,
    app_id: ApplicationId,
    endpoint_id: EndpointId,
    name: &str,
    version: u32,
) -> Result<PublishedEndpoint, ManagementError> {
    let definition_sha256 = Sha256Digest::of(name.as_bytes());
    let (name, description) = (name.to_owned(), String::new());
    device
        .desktop
        .publish(PublishEndpoint {
            app_id,
            endpoint_id,
            version,
            name,
            description,
            definition_sha256,
            data: Default::default(),
        })
        .await
}

async fn create_webhook(device: &DeviceFixture, name: &str) -> Result<WebhookWithSecret, ManagementError> {
    let settings = WebhookSettings { name: name.to_owned(), ..settings(device) };
    let request = CreateWebhook { app_id: device.app.id, settings: settings.into(), secret: None };
    device.desktop.create_webhook(request).await
}

async fn open_listener(device: &DeviceFixture) -> Result<OpenedListener, ManagementError> {
    device.desktop.open_listener(OpenListener { app_id: device.app.id, types: Vec::new() }).await
}

/// The refusal, which names the quota and how many there are.
fn assert_reached<T: std::fmt::Debug>(answer: Result<T, ManagementError>, kind: QuotaKind, used: u32) {
    let no = answer.expect_err("there is no room");
    assert_eq!(no.code, ManagementErrorCode::QuotaReached, "{no}");
    for part in [format!("has {used} "), format!("raise limits.{kind}")] {
        assert!(no.message.contains(&part), "{part} in {no}");
    }
}

/// How many were let in; the others were told why not.
fn let_in<T>(answers: Vec<Result<T, ManagementError>>) -> usize {
    let refused = |answer: &Result<T, ManagementError>| {
        answer.as_ref().is_err_and(|no| no.code == ManagementErrorCode::QuotaReached)
    };
    assert!(answers.iter().all(|answer| answer.is_ok() || refused(answer)), "nothing else was answered");
    answers.iter().filter(|answer| answer.is_ok()).count()
}

#[tokio::test]
async fn a_device_makes_what_its_quotas_leave_room_for_and_is_told_what_makes_room() {
    let gateway = TestGateway::with(limits(&[
        (QuotaKind::ApplicationsPerDevice, 2),
        (QuotaKind::KeysPerApplication, 2),
        (QuotaKind::ServicesPerApplication, 2),
        (QuotaKind::ServicesPerDevice, 3),
        (QuotaKind::WebhooksPerApplication, 1),
        (QuotaKind::ListenersPerApplication, 1),
    ]))
    .await;
    let device = &gateway.device;

    let second = create_application(device, "second").await.expect("room for two");
    assert_reached(create_application(device, "third").await, QuotaKind::ApplicationsPerDevice, 2);

    let key = create_key(device, "second").await.expect("room for two");
    assert_reached(create_key(device, "third").await, QuotaKind::KeysPerApplication, 2);
    let roll = |overlap_s| device.desktop.roll_key(RollKey { key_id: key.key.key_id, overlap_s });
    assert_reached(roll(60).await, QuotaKind::KeysPerApplication, 2);
    let rolled = roll(0).await.expect("the old one ends at once");
    device.revoke(rolled.key.key_id).await;
    create_key(device, "third").await.expect("a revoked key takes no room");

    let endpoint = EndpointId::new();
    publish(device, device.app.id, endpoint, "reports", 1).await.expect("room for two");
    let third = publish(device, device.app.id, EndpointId::new(), "third", 1).await;
    assert_reached(third, QuotaKind::ServicesPerApplication, 2);
    publish(device, device.app.id, endpoint, "reports", 2).await.expect("a new version takes no more room");
    publish(device, second, EndpointId::new(), "elsewhere", 1).await.expect("room for three on the device");
    let fourth = publish(device, second, EndpointId::new(), "fourth", 1).await;
    assert_reached(fourth, QuotaKind::ServicesPerDevice, 3);

    let webhook = create_webhook(device, "first").await.expect("room for one").webhook;
    assert_reached(create_webhook(device, "second").await, QuotaKind::WebhooksPerApplication, 1);
    device.desktop.remove_webhook(RemoveWebhook { hook_id: webhook.hook_id }).await.expect("removed");
    create_webhook(device, "second").await.expect("a removed webhook takes no room");

    let listener = open_listener(device).await.expect("room for one");
    assert_reached(open_listener(device).await, QuotaKind::ListenersPerApplication, 1);
    let close = CloseListener { listener_id: listener.listener_id };
    device.desktop.close_listener(close).await.expect("closed");
    open_listener(device).await.expect("an ended listener takes no room");

    // A disabled application stays on the list, and is counted until it is removed.
    device.desktop.disable_application(DisableApplication { app_id: second }).await.expect("disabled");
    assert_reached(create_application(device, "third").await, QuotaKind::ApplicationsPerDevice, 2);
    let answer = device.desktop.remove_application(RemoveApplication { app_id: second }).await;
    assert_eq!(answer.expect("removed").state, ApplicationState::Removed);
    let third = create_application(device, "third").await.expect("a removed application takes no room");
    publish(device, third, EndpointId::new(), "fourth", 1).await.expect("nor do its services");

    // Another device has room of its own, and cannot learn of this one's.
    let stranger = DeviceFixture::pair(gateway.store()).await;
    let foreign = stranger.desktop.roll_key(RollKey { key_id: key.key.key_id, overlap_s: 60 }).await;
    assert_eq!(foreign.expect_err("not its own").code, ManagementErrorCode::NotFound);
    gateway.stop().await;
}

#[tokio::test]
async fn of_twenty_five_at_once_exactly_as_many_get_in_as_there_is_room_for() {
    let gateway = TestGateway::with(limits(&[
        (QuotaKind::ApplicationsPerDevice, 6),
        (QuotaKind::KeysPerApplication, 6),
        (QuotaKind::ServicesPerApplication, 6),
        (QuotaKind::WebhooksPerApplication, 5),
        (QuotaKind::ListenersPerApplication, 5),
    ]))
    .await;
    let device = &gateway.device;
    let names: Vec<_> = (0..RACERS).map(|number| format!("number {number}")).collect();
    // Each begins with one application, one key and one service.
    assert_eq!(let_in(join_all(names.iter().map(|name| create_application(device, name))).await), 5);
    assert_eq!(let_in(join_all(names.iter().map(|name| create_key(device, name))).await), 5);
    let published = names.iter().map(|name| publish(device, device.app.id, EndpointId::new(), name, 1));
    assert_eq!(let_in(join_all(published).await), 5);
    assert_eq!(let_in(join_all(names.iter().map(|name| create_webhook(device, name))).await), 5);
    assert_eq!(let_in(join_all(names.iter().map(|_| open_listener(device))).await), 5);
    gateway.stop().await;
}

#[tokio::test]
async fn the_devices_of_one_account_share_its_quotas_also_when_they_ask_at_once() {
    let quotas = [(QuotaKind::ApplicationsPerAccount, 7), (QuotaKind::ServicesPerAccount, 7)];
    let gateway = TestGateway::with(limits(&quotas)).await;
    let mut devices = Vec::new();
    for _ in 0..3 {
        devices.push(DeviceFixture::pair(gateway.store()).await);
    }
    let owned = "UPDATE devices SET account_issuer = 'https://id.example.com', account_subject = 'ada' WHERE device_id";
    for device in &devices {
        gateway.database.execute(&format!("{owned} = '{}'", device.device_id.uuid())).await;
    }
    let names: Vec<_> = (0..RACERS).map(|number| format!("number {number}")).collect();
    let turns: Vec<_> = names.iter().zip(devices.iter().cycle()).collect();
    let asked = turns.iter().map(|(name, device)| create_application(device, name));
    assert_eq!(let_in(join_all(asked).await), 4, "three of seven were there");
    assert_reached(create_application(&devices[0], "more").await, QuotaKind::ApplicationsPerAccount, 7);
    let asked = turns.iter().map(|(name, device)| publish(device, device.app.id, EndpointId::new(), name, 1));
    assert_eq!(let_in(join_all(asked).await), 4, "three of seven were there");

    // A device of nobody's account, and one of another's, have room.
    create_application(&gateway.device, "mine").await.expect("it has no account");
    // A revoked device takes no room.
    let gone = devices.pop().expect("three");
    gateway
        .database
        .execute(&format!("UPDATE devices SET revoked_at = now() WHERE device_id = '{}'", gone.device_id.uuid()))
        .await;
    create_application(&devices[0], "after").await.expect("there is room again");
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_there_before_a_quota_was_lowered_works_on_and_a_raised_one_holds_after_a_restart() {
    let mut gateway = TestGateway::with(limits(&[(QuotaKind::KeysPerApplication, 4)])).await;
    let device = &gateway.device;
    for name in ["second", "third", "fourth"] {
        create_key(device, name).await.expect("room for four");
    }
    let (app_id, device_id) = (device.app.id, device.device_id);
    let (lowered, _dir) = gateway.replica_with(limits(&[(QuotaKind::KeysPerApplication, 2)])).await;
    gateway.device.desktop = DeviceFixture::desktop(lowered.store(), device_id);
    assert_reached(create_key(&gateway.device, "fifth").await, QuotaKind::KeysPerApplication, 4);
    let desktop = &gateway.device.desktop;
    let keys = desktop.keys(ListKeys { app_id }).await.expect("listed");
    assert_eq!(keys.len(), 4);
    assert_eq!(gateway.submission("one").send().await.status, 202, "the old keys work");
    let key_id = keys[3].key_id;
    desktop.roll_key(RollKey { key_id, overlap_s: 0 }).await.expect("what is there can be replaced");
    lowered.stop().await;
    let (raised, _dir) = gateway.replica_with(limits(&[(QuotaKind::KeysPerApplication, 5)])).await;
    gateway.device.desktop = DeviceFixture::desktop(raised.store(), device_id);
    create_key(&gateway.device, "fifth").await.expect("room for five");
    assert_reached(create_key(&gateway.device, "sixth").await, QuotaKind::KeysPerApplication, 5);
    raised.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_made_and_ended_again_all_day_long_comes_to_an_end_too() {
    let gateway = TestGateway::with(limits(&[(QuotaKind::KeysPerApplication, 2)])).await;
    let device = &gateway.device;
    let mut made = 1;
    let no = loop {
        match create_key(device, "again").await {
            Ok(key) => device.revoke(key.key.key_id).await,
            Err(no) => break no,
        }
        made += 1;
    };
    assert_eq!((no.code, made), (ManagementErrorCode::QuotaReached, 20), "{no}");
    assert!(no.message.contains("within a day") && no.message.contains("limits.keys_per_application"), "{no}");
    gateway.stop().await;
}

async fn problems(store: &Store) -> Vec<(HealthCode, String)> {
    let seen = HealthSnapshot::now(store, &storage(), std::time::Duration::ZERO).await;
    seen.problems().into_iter().map(|problem| (problem.code, problem.text)).collect()
}

#[tokio::test]
async fn an_administrator_is_told_of_a_quota_from_four_fifths_on() {
    let test_store = TestStore::new().await;
    let store = test_store.store.clone().with_quotas(Quotas::default().with(QuotaKind::ApplicationsPerDevice, 5));
    let device = DeviceFixture::pair(&store).await;
    for name in ["second", "third"] {
        create_application(&device, name).await.expect("room for five");
    }
    assert_eq!(problems(&store).await, []);
    create_application(&device, "fourth").await.expect("room for five");
    let text = "a laptop: 4 of 5 (limits.applications_per_device).".to_owned();
    assert_eq!(problems(&store).await, [(HealthCode::QuotaNearlyReached, text)]);
    create_application(&device, "fifth").await.expect("room for five");
    let text = "a laptop: 5 of 5 (limits.applications_per_device).".to_owned();
    assert_eq!(problems(&store).await, [(HealthCode::QuotaReached, text)]);
}
