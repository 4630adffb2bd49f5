//! Who did what is written with what was done, and once.

use deskgate_protocol::management::{
    Activity, ActivityKind, Actor, AskedBy, CreateApplication, CreateKey, DisableApplication, ListActivity, ListKeys,
    RemoveApplication, ResetConversation, RevokeKey, RollKey, Scope, SetAccess, StopRun,
};
use deskgate_protocol::{ApplicationId, KeyId};

use crate::conversations::TestConversation;
use crate::store::TestStore;
use crate::support::gateway::{DeviceFixture, TestGateway};

async fn all(device: &DeviceFixture, app_id: Option<ApplicationId>) -> Vec<Activity> {
    let (mut entries, mut before) = (Vec::new(), None);
    loop {
        let page = device.desktop.activity(ListActivity { limit: 2, before, app_id }).await.expect("listed");
        entries.extend(page.entries);
        before = page.next;
        if before.is_none() {
            return entries;
        }
    }
}

#[tokio::test]
async fn what_a_person_changes_is_noted_with_where_they_were_and_what_changes_nothing_is_not() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let page = device.desktop.clone().asked_by(AskedBy::Page);
    let app = page.create_application(CreateApplication { name: "shop".to_owned() }).await.expect("created");
    let app_id = app.application.app_id;
    let key = CreateKey {
        app_id,
        name: "nightly".to_owned(),
        scopes: Scope::ALL.to_vec(),
        endpoints: Vec::new(),
        fixed_subject: None,
        expires_at: None,
        allowed_cidrs: Vec::new(),
    };
    let key_id = page.create_key(key).await.expect("created").key.key_id;
    let cli = device.desktop.clone().asked_by(AskedBy::Cli);
    let rolled = cli.roll_key(RollKey { key_id, overlap_s: 60 }).await.expect("rolled").key.key_id;
    for _ in 0..2 {
        cli.revoke_key(RevokeKey { key_id: rolled }).await.expect("revoked");
        cli.disable_application(DisableApplication { app_id }).await.expect("disabled");
        page.remove_application(RemoveApplication { app_id }).await.expect("removed");
    }
    cli.revoke_key(RevokeKey { key_id: KeyId::new() }).await.expect_err("there is no such key");
    for enabled in [true, false, false, true] {
        cli.set_access(SetAccess { enabled }).await.expect("set");
    }

    let entries = all(device, Some(app_id)).await;
    let did: Vec<_> = entries.iter().rev().map(|entry| (entry.by, entry.what, entry.name.as_deref())).collect();
    let expected = [
        (Actor::Page, ActivityKind::ApplicationCreated, Some("shop")),
        (Actor::Page, ActivityKind::KeyCreated, Some("nightly")),
        (Actor::Cli, ActivityKind::KeyRolled, Some("nightly")),
        (Actor::Cli, ActivityKind::KeyRevoked, Some("nightly")),
        (Actor::Cli, ActivityKind::ApplicationDisabled, Some("shop")),
        (Actor::Cli, ActivityKind::DisablingCompleted, Some("shop")),
        (Actor::Page, ActivityKind::ApplicationRemoved, Some("shop")),
    ];
    assert_eq!(did, expected);
    assert_eq!(entries[3].about, Some(rolled.to_string()));
    let everything = all(device, None).await;
    let access: Vec<_> = everything.iter().filter(|entry| entry.app_id.is_none()).map(|entry| entry.what).collect();
    assert_eq!(access[..2], [ActivityKind::AccessEnabled, ActivityKind::AccessPaused]);
    assert_eq!(access.len(), 3, "once when the device was paired; what was enabled was not enabled again");
    let services = everything.iter().filter(|entry| entry.what == ActivityKind::ServicePublished);
    assert_eq!(services.map(|entry| entry.about.clone()).collect::<Vec<_>>(), [Some(device.endpoint.to_string())]);
    let stranger = DeviceFixture::pair(&test_store.store).await;
    assert!(all(&stranger, Some(app_id)).await.is_empty(), "another device sees nothing of it");
}

#[tokio::test]
async fn a_stop_and_a_reset_are_noted_once_with_the_key_or_the_place_they_came_from() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let run_id = gateway.submit("one").await;
    let stop =
        |key: &str| gateway.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", key).send();
    assert_eq!(stop("stop").await.status, stop("stop").await.status);
    let talk = TestConversation::open(&gateway, "case").await;
    let reset = ResetConversation { conversation_id: talk.id, expected_generation: 1 };
    let page = device.desktop.clone().asked_by(AskedBy::Page);
    for _ in 0..2 {
        page.reset_conversation(reset).await.expect("asked for");
    }
    let waiting = gateway.submit("two").await;
    page.stop_run(StopRun { run_id: waiting }).await.expect("stopped");

    let entries = all(device, Some(device.app.id)).await;
    let did: Vec<_> = entries.iter().take(3).map(|entry| (entry.by, entry.what, entry.about.clone())).collect();
    let expected = [
        (Actor::Page, ActivityKind::RunStopped, Some(waiting.to_string())),
        (Actor::Page, ActivityKind::ConversationReset, Some(talk.id.to_string())),
        (Actor::Key, ActivityKind::RunStopped, Some(run_id.to_string())),
    ];
    assert_eq!(did, expected);
    let key = device.desktop.keys(ListKeys { app_id: device.app.id }).await.expect("listed").remove(0);
    assert_eq!((entries[2].key_id, entries[2].key_last4.as_deref()), (Some(key.key_id), Some(key.last4.as_str())));
    assert_eq!(entries[3].what, ActivityKind::ServicePublished, "and nothing twice");
    gateway.stop().await;
}
