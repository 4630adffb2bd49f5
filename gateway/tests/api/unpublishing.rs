//! A service that is disabled for a time, or unpublished: what it still accepts, and the end of its runs.

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::upkeep::run_once;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{
    EnableEndpoint, ListActivity, ManagementErrorCode, PreviewUnpublishing, PublishEndpoint, UnpublishEndpoint,
};
use deskgate_protocol::run::{Effects, Outcome, Usage};
use deskgate_protocol::{ApplicationId, EndpointId, RunId};

use crate::conversations::TestConversation;
use crate::store::TestStore;
use crate::support::call::{ExpectedProblem, not_found};
use crate::support::gateway::{LONG_LEASE, TestGateway};
use crate::support::until;

fn publication(app_id: ApplicationId, endpoint_id: EndpointId, version: u32, name: &str) -> PublishEndpoint {
    PublishEndpoint {
        app_id,
        endpoint_id,
        version,
        name: name.to_owned(),
        description: String::new(),
        definition_sha256: Sha256Digest::of(&[u8::try_from(version).expect("small")]),
        data: Default::default(),
    }
}

#[tokio::test]
async fn every_run_of_an_unpublished_service_is_cancelled_or_told_to_stop_and_those_of_others_are_not() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let (session, _) = device.connect().await;
    let runs = test_store.one_run_of_each_kind(session).await;
    let other = device.service(&device.app, "other").await;
    let of_other = test_store.queue_for(other).await;
    let endpoint_id = device.endpoint;
    device.restricted_key(|key| key.endpoints = vec![endpoint_id]).await;
    device.restricted_key(|key| key.endpoints = vec![endpoint_id, other]).await;

    let preview = || device.desktop.preview_unpublishing(PreviewUnpublishing { endpoint_id });
    let before = preview().await.expect("there");
    assert_eq!((before.runs_queued, before.runs_in_progress, before.keys, before.webhooks), (2, 3, 1, 0));
    let unpublished = device.desktop.unpublish(UnpublishEndpoint { endpoint_id }).await.expect("unpublished");
    assert!(unpublished.unpublished_at.is_some() && unpublished.closed_at.is_some());
    let [running, ..] = runs.have_ended_or_are_told_to(&test_store).await;
    assert_eq!(test_store.row(of_other).await.0, "queued");
    let left = preview().await.expect("there");
    assert_eq!((left.runs_queued, left.runs_in_progress), (0, 3));
    let again = device.desktop.unpublish(UnpublishEndpoint { endpoint_id }).await.expect("repeated");
    assert_eq!(again, unpublished, "repeated, it changes nothing");
    let outcome = Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() };
    let end = AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None };
    assert_eq!(test_store.one(session, running, 1, end).await, RecordOutcome::Done);
    assert_eq!(test_store.row(running).await.0, "cancelled");

    let page = ListActivity { limit: 10, before: None, app_id: None };
    let entries = device.desktop.activity(page).await.expect("listed").entries;
    let unpublishings = entries.iter().filter(|entry| entry.what.as_str() == "service.unpublished");
    assert_eq!(unpublishings.count(), 1, "noted once");
}

/// The commit of an acceptance that looked before the service was unpublished: it is waited for, and its run ended.
#[tokio::test]
async fn a_run_that_was_being_accepted_while_its_service_was_unpublished_is_ended_with_the_others() {
    let test_store = TestStore::new().await;
    let accepting = test_store.database.begin().await;
    let (late, endpoint_id) = (RunId::new(), test_store.device.endpoint);
    accepting
        .execute(&format!(
            "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                identity, fingerprint, input, metadata, max_duration_s, queue_expires_at)
            SELECT '{late}', app_id, 'anna', endpoint_id, version, definition_sha256, device_id, sha256('late'),
                sha256(''), '{{\"text\":\"hello\"}}', '{{}}', 60, now() + interval '1 hour'
            FROM endpoints WHERE endpoint_id = '{endpoint}';
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            VALUES ('{late}', 1, gen_random_uuid(), 'run.accepted', '{{}}')",
            late = late.uuid(),
            endpoint = endpoint_id.uuid(),
        ))
        .await;
    let committing = async {
        let begun = "SELECT count(*) FROM endpoints WHERE unpublished_at IS NOT NULL";
        until("it has begun", async || test_store.database.value(begun).await == "1").await;
        accepting.commit().await;
    };
    let unpublish = test_store.device.desktop.unpublish(UnpublishEndpoint { endpoint_id });
    let (unpublished, ()) = tokio::join!(unpublish, committing);
    unpublished.expect("unpublished");
    assert_eq!(test_store.row(late).await.0, "cancelled");
}

/// The gateway that began has stopped behind its first commit.
#[tokio::test]
async fn upkeep_ends_the_runs_of_a_service_whose_unpublishing_was_cut_off() {
    let test_store = TestStore::new().await;
    let (device, endpoint_id) = (&test_store.device, test_store.device.endpoint);
    let queued = test_store.queue().await;
    let cut_off = "UPDATE endpoints SET closed_at = now(), unpublished_at = now(), runs_to_tell_as = 'desktop_user'";
    test_store.database.execute(cut_off).await;
    let version = publication(device.app.id, endpoint_id, 2, "again");
    let early = device.desktop.publish(version.clone()).await.expect_err("its runs are still to be ended");
    assert_eq!(early.code, ManagementErrorCode::Conflict, "{early}");
    let round = run_once(&test_store.store, LONG_LEASE).await.expect("done");
    assert_eq!((round.told, round.services_told), (1, 0), "an acceptance may still be under way");
    assert_eq!(test_store.row(queued).await.0, "cancelled");
    test_store.database.execute("UPDATE endpoints SET unpublished_at = now() - interval '1 minute'").await;
    assert_eq!(run_once(&test_store.store, LONG_LEASE).await.expect("done").services_told, 1);
    device.desktop.publish(version).await.expect("published again");
}

#[tokio::test]
async fn what_is_unpublished_is_unknown_to_callers_and_its_name_is_free_until_it_comes_back_under_its_own_id() {
    let gateway = TestGateway::new().await;
    let (device, app_id) = (&gateway.device, gateway.device.app.id);
    let endpoint_id = device.endpoint;
    let conversation = TestConversation::open(&gateway, "case-1").await;
    let own = device.desktop.endpoints().await.expect("listed").remove(0);
    device.desktop.unpublish(UnpublishEndpoint { endpoint_id }).await.expect("unpublished");
    gateway.submission("late").send().await.assert_problem(&not_found());
    conversation.message("late", 1).send().await.assert_problem(&not_found());
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    assert_eq!(listed["endpoints"].as_array().map(Vec::len), Some(0), "{listed}");
    let no = device.desktop.enable_endpoint(EnableEndpoint { endpoint_id, enabled: true }).await.expect_err("ended");
    assert_eq!(no.code, ManagementErrorCode::NotFound);

    let namesake = EndpointId::new();
    device.desktop.publish(publication(app_id, namesake, 1, &own.name)).await.expect("its name is free");
    let version = publication(app_id, endpoint_id, own.version + 1, &own.name);
    let taken = device.desktop.publish(version.clone()).await.expect_err("the name is taken now");
    assert!(taken.message.contains("already has a service named"), "{taken}");
    device.desktop.unpublish(UnpublishEndpoint { endpoint_id: namesake }).await.expect("unpublished");
    let back = device.desktop.publish(version).await.expect("published again");
    assert_eq!((back.endpoint_id, back.closed_at, back.unpublished_at), (endpoint_id, None, None));
    gateway.submit("again").await;
    conversation.message("again", 1).send().await.run_id();
    let unknown = UnpublishEndpoint { endpoint_id: EndpointId::new() };
    assert_eq!(device.desktop.unpublish(unknown).await.expect_err("unknown").code, ManagementErrorCode::NotFound);
    gateway.stop().await;
}

#[tokio::test]
async fn a_disabled_service_refuses_new_work_keeps_what_it_accepted_and_leaves_others_alone() {
    let gateway = TestGateway::new().await;
    let (device, endpoint_id) = (&gateway.device, gateway.device.endpoint);
    let conversation = TestConversation::open(&gateway, "case-1").await;
    let accepted = gateway.submit("early").await;
    let other = device.service(&device.app, "other").await;
    let set = async |enabled| {
        device.desktop.enable_endpoint(EnableEndpoint { endpoint_id, enabled }).await.expect("published")
    };
    let disabled = set(false).await;
    assert_eq!(set(false).await, disabled, "repeated, it changes nothing");
    let detail = "The owner of this service has disabled it. Nothing was accepted; try again later.";
    let paused = ExpectedProblem::new(503, "access_paused", "Access paused", detail).retryable();
    gateway.submission("late").send().await.assert_problem(&paused);
    conversation.message("late", 1).send().await.assert_problem(&paused);
    assert_eq!(gateway.submission("early").send().await.run_id(), accepted, "what was accepted is known");
    assert_eq!(gateway.read(accepted).await.json()["phase"], "accepted");
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    let ids: Vec<_> = listed["endpoints"].as_array().expect("a list").iter().map(|service| &service["id"]).collect();
    assert_eq!(ids, [other.to_string().as_str()], "{listed}");
    set(true).await;
    gateway.submit("late").await;
    gateway.stop().await;
}
