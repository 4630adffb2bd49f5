//! The rights of a key, and their duration.

use std::time::{Duration, Instant};

use deskgate_protocol::Timestamp;
use deskgate_protocol::management::{KeyWarning, ListKeys, ManagementErrorCode, RollKey};
use serde_json::json;

use crate::store::TestStore;
use crate::support::call::{ExpectedProblem, not_found};
use crate::support::gateway::TestGateway;
use crate::support::until;

#[tokio::test]
async fn a_key_limited_to_a_service_sees_and_uses_that_one_only() {
    let gateway = TestGateway::new().await;
    let (device, address) = (&gateway.device, gateway.gateway.addresses().http);
    let other = device.service(&device.app, "second").await;
    let limited = device.restricted_key(|key| key.endpoints = vec![other]).await.text;

    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").key(&limited).send().await.json();
    let ids: Vec<_> = listed["endpoints"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(other)]);

    gateway.submission("one").key(&limited).send().await.assert_problem(&not_found());
    let allowed = gateway.submission("one").key(&limited).to(address, &gateway.runs_of(other)).send().await;
    let read = |run_id, key: &str| gateway.ask("GET", &format!("/api/v1/runs/{run_id}")).key(key).send();
    assert_eq!(read(allowed.run_id(), &limited).await.status, 200);

    // A run of the same subject that the other key made, and its replay.
    let foreign = gateway.submit("two").await;
    read(foreign, &limited).await.assert_problem(&not_found());
    gateway.submission("two").key(&limited).send().await.assert_problem(&not_found());
    assert_eq!(read(foreign, &device.app.key).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_a_second_on_every_replica() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let key = gateway.device.restricted_key(|_| {}).await;
    let list = |address| gateway.ask("GET", "/").key(&key.text).to(address, "/api/v1/agent-endpoints").send();
    let doors = [gateway.gateway.addresses().http, replica.addresses().http];
    for address in doors {
        assert_eq!(list(address).await.status, 200, "both replicas know the key and may believe it for a while");
    }
    gateway.device.revoke(key.key.key_id).await;
    let acknowledged = Instant::now();
    for address in doors {
        loop {
            let began = acknowledged.elapsed();
            if list(address).await.status == 401 {
                break;
            }
            assert!(began <= Duration::from_secs(1), "a request that began {began:?} after the revocation was let in");
        }
        assert_eq!(list(address).await.status, 401, "and it stays refused");
    }
    let submission = gateway.submission("late").key(&key.text).send().await;
    assert_eq!(submission.code(), "credential_invalid");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_revoked_through_another_replica_is_refused_within_a_second_also_when_nobody_is_told() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let address = replica.addresses().http;
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let key = gateway.device.restricted_key(|_| {}).await;
        let list = || gateway.ask("GET", "/").key(&key.text).to(address, "/api/v1/agent-endpoints").send();
        assert_eq!(list().await.status, 200, "the replica knows the key and may believe it for a while");
        let listeners = "pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%listen'";
        gateway.database.execute(&format!("SELECT {listeners} AND datname = current_database()")).await;
        gateway.device.revoke(key.key.key_id).await;
        let acknowledged = Instant::now();
        loop {
            let began = acknowledged.elapsed();
            if list().await.status == 401 {
                break;
            }
            longest = longest.max(began);
        }
    }
    println!("let in {longest:?} after the revocation at the latest");
    assert!(longest <= Duration::from_secs(1), "a request that began {longest:?} after the revocation was let in");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_ends_by_itself_when_its_time_is_up() {
    let gateway = TestGateway::new().await;
    let soon = Timestamp::from(Timestamp::now().0 + Duration::from_secs(2));
    let key = gateway.device.restricted_key(|key| key.expires_at = Some(soon)).await.text;
    let list = || gateway.ask("GET", "/api/v1/agent-endpoints").key(&key).send();
    assert_eq!(list().await.status, 200);
    until("the key has ended", async || list().await.status == 401).await;
    assert!(Timestamp::now() >= soon);
    gateway.stop().await;
}

#[tokio::test]
async fn only_digests_of_keys_are_stored() {
    let gateway = TestGateway::new().await;
    let secret = gateway.device.app.key.split('_').nth(2).expect("dgk_<id>_<secret>_<checksum>").to_owned();
    let text = "SELECT string_agg(k::text, ' ') FROM application_keys k";
    let stored = gateway.database.value(text).await;
    assert!(stored.contains(&secret[secret.len() - 4..]), "the last four characters are kept: {stored}");
    assert!(!stored.contains(&secret[..secret.len() - 4]), "{stored}");
    let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(!stored.contains(&hexadecimal[..16]), "{stored}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_rolled_key_hands_its_rights_on_and_ends_after_the_overlap() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let old = device
        .restricted_key(|key| {
            key.endpoints = vec![device.endpoint];
            key.fixed_subject = Some("anna".to_owned());
        })
        .await;
    let roll = |overlap_s| device.desktop.roll_key(RollKey { key_id: old.key.key_id, overlap_s });
    let new = roll(3600).await.expect("rolled");
    let rights = |key: &deskgate_protocol::management::KeyRecord| {
        (key.app_id, key.scopes.clone(), key.endpoints.clone(), key.fixed_subject.clone(), key.expires_at)
    };
    assert_eq!(rights(&new.key), rights(&old.key));
    assert_ne!((&new.text, new.key.key_id), (&old.text, old.key.key_id));
    let list = |key: &str| gateway.call("GET", "/api/v1/agent-endpoints").key(key).send();
    assert_eq!((list(&old.text).await.status, list(&new.text).await.status), (200, 200), "both are good for a while");
    roll(0).await.expect("rolled once more, without an overlap");
    until("the old key has ended", async || list(&old.text).await.status == 401).await;
    assert_eq!(list(&new.text).await.status, 200);
    assert_eq!(roll(0).await.expect_err("it has ended").code, ManagementErrorCode::NotFound);
    assert_eq!(roll(31 * 24 * 3600).await.expect_err("too long").code, ManagementErrorCode::Invalid);
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_for_some_addresses_looks_like_no_key_from_others() {
    let gateway = TestGateway::new().await;
    let made_for =
        async |range: &str| gateway.device.restricted_key(|key| key.allowed_cidrs = vec![range.to_owned()]).await;
    let (here, elsewhere) = (made_for("127.0.0.0/8").await, made_for("10.0.0.0/8").await);
    let list = |key: &str| gateway.ask("GET", "/api/v1/agent-endpoints").key(key).send();
    assert_eq!(list(&here.text).await.status, 200);
    let detail = "The application key is not valid.";
    let invalid = ExpectedProblem::new(401, "credential_invalid", "Credential invalid", detail);
    list(&elsewhere.text).await.assert_problem(&invalid);
    gateway.stop().await;
}

#[tokio::test]
async fn the_last_use_of_a_key_is_noted_once_a_minute_and_only_for_who_has_it() {
    let gateway = TestGateway::new().await;
    let key = gateway.device.restricted_key(|_| {}).await;
    let record = async || {
        let keys = gateway.device.desktop.keys(ListKeys { app_id: gateway.device.app.id }).await.expect("listed");
        keys.into_iter().find(|one| one.key_id == key.key.key_id).expect("listed")
    };
    let guessed = deskgate_protocol::secret::ApplicationKey::generate(key.key.key_id);
    let list = |key: &str| gateway.ask("GET", "/api/v1/agent-endpoints").key(key).send();
    assert_eq!(list(guessed.reveal()).await.status, 401);
    assert_eq!(record().await.last_used_at, None);
    assert_eq!(list(&key.text).await.status, 200);
    let noted = record().await.last_used_at;
    assert!(noted.is_some_and(|at| at >= key.key.created_at));
    assert_eq!(list(&key.text).await.status, 200);
    assert_eq!(record().await.last_used_at, noted, "not with every request");
    assert_eq!(record().await.last_address.as_deref(), Some("127.0.0.1"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_live_key_that_comes_from_a_new_address_or_was_long_not_used_is_pointed_at() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let key_id = device.restricted_key(|_| {}).await.key.key_id;
    let record = async || {
        let keys = device.desktop.keys(ListKeys { app_id: device.app.id }).await.expect("listed");
        keys.into_iter().find(|one| one.key_id == key_id).expect("listed")
    };
    let used = async |from: [u8; 4]| {
        test_store.store.note_key_use(key_id, Some(from.into())).await.expect("noted");
        let key = record().await;
        (key.last_address, key.warnings)
    };
    assert_eq!(used([192, 0, 2, 1]).await, (Some("192.0.2.1".to_owned()), vec![]), "the first address is no news");
    assert_eq!(used([192, 0, 2, 1]).await.1, []);
    let moved = used([198, 51, 100, 9]).await;
    assert_eq!(moved, (Some("198.51.100.9".to_owned()), vec![KeyWarning::NewAddress]), "within the minute");
    let addresses = test_store.database.value("SELECT string_agg(k::text, '') FROM application_keys k").await;
    assert!(!addresses.contains("192.0.2.1"), "only the last address is kept");

    let age = |days: u32| {
        let past = format!("now() - interval '{days} days'");
        format!("UPDATE application_keys SET created_at = {past}, last_used_at = {past}, new_address_at = {past}")
    };
    test_store.database.execute(&age(89)).await;
    assert_eq!(record().await.warnings, []);
    test_store.database.execute(&age(91)).await;
    assert_eq!(record().await.warnings, [KeyWarning::Unused]);
    device.revoke(key_id).await;
    assert_eq!(record().await.warnings, [], "nobody can use it");
}
