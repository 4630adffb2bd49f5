//! What a key is good for, and for how long.

use std::time::{Duration, Instant};

use deskgate_protocol::Timestamp;
use serde_json::json;

use crate::support::call::not_found;
use crate::support::until;
use crate::support::world::World;

#[tokio::test]
async fn a_key_limited_to_a_service_sees_and_uses_that_one_only() {
    let world = World::new().await;
    let (desk, address) = (&world.desk, world.gateway.addresses().http);
    let other = desk.service(&desk.app, "second").await;
    let limited = desk.restricted_key(|key| key.endpoints = vec![other]).await.text;

    let listed = world.ask("GET", "/api/v1/agent-endpoints").key(&limited).send().await.json();
    let ids: Vec<_> = listed["endpoints"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(other)]);

    world.submission("one").key(&limited).send().await.assert_problem(&not_found());
    let allowed = world.submission("one").key(&limited).to(address, &world.runs_of(other)).send().await;
    let read = |run_id, key: &str| world.ask("GET", &format!("/api/v1/runs/{run_id}")).key(key).send();
    assert_eq!(read(allowed.run_id(), &limited).await.status, 200);

    // A run of the same subject that the other key made, and its replay.
    let foreign = world.submit("two").await;
    read(foreign, &limited).await.assert_problem(&not_found());
    world.submission("two").key(&limited).send().await.assert_problem(&not_found());
    assert_eq!(read(foreign, &desk.app.key).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_a_second_on_every_replica() {
    let world = World::new().await;
    let (replica, _dir) = world.replica().await;
    let key = world.desk.restricted_key(|_| {}).await;
    let list = |address| world.ask("GET", "/").key(&key.text).to(address, "/api/v1/agent-endpoints").send();
    let doors = [world.gateway.addresses().http, replica.addresses().http];
    for address in doors {
        assert_eq!(list(address).await.status, 200, "both replicas know the key and may believe it for a while");
    }
    world.desk.revoke(key.key.key_id).await;
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
    let submission = world.submission("late").key(&key.text).send().await;
    assert_eq!(submission.code(), "credential_invalid");
    replica.stop().await;
    world.stop().await;
}

#[tokio::test]
async fn a_key_ends_by_itself_when_its_time_is_up() {
    let world = World::new().await;
    let soon = Timestamp::from(Timestamp::now().0 + Duration::from_secs(2));
    let key = world.desk.restricted_key(|key| key.expires_at = Some(soon)).await.text;
    let list = || world.ask("GET", "/api/v1/agent-endpoints").key(&key).send();
    assert_eq!(list().await.status, 200);
    until("the key has ended", async || list().await.status == 401).await;
    assert!(Timestamp::now() >= soon);
    world.stop().await;
}

#[tokio::test]
async fn only_digests_of_keys_are_stored() {
    let world = World::new().await;
    let secret = world.desk.app.key.split('_').nth(2).expect("dgk_<id>_<secret>_<checksum>").to_owned();
    let text = "SELECT string_agg(k::text, ' ') FROM application_keys k";
    let stored = world.database.value(text).await;
    assert!(stored.contains(&secret[secret.len() - 4..]), "the last four characters are kept: {stored}");
    assert!(!stored.contains(&secret[..secret.len() - 4]), "{stored}");
    let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(!stored.contains(&hexadecimal[..16]), "{stored}");
    world.stop().await;
}
