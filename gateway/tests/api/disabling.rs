//! The end of an application: it stops working completely, and its records stay.

use std::time::{Duration, Instant};

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_gateway::upkeep::run_once;
use deskgate_protocol::control::Order;
use deskgate_protocol::management::{
    Application, ApplicationState, CompleteDisabling, CreateApplication, CreateKey, DisableApplication, ListKeys,
    ManagementErrorCode, OutstandingWork, PreviewDisabling, PublishEndpoint, RemoveApplication, Scope, ShowApplication,
};
use deskgate_protocol::run::{Effects, EventType, Outcome, Usage};
use deskgate_protocol::{ApplicationId, EndpointId, RunId};
use tokio::task::JoinSet;

use crate::conversations::TestConversation;
use crate::store::TestStore;
use crate::support::call::ExpectedProblem;
use crate::support::gateway::{DeviceFixture, LONG_LEASE, TestGateway};
use crate::support::until;

/// Disables an application. A database that is too busy answers "try again", and so its owner does.
async fn disable(device: &DeviceFixture, app_id: ApplicationId) -> Application {
    let mut disabled = None;
    until("the application is disabled", async || {
        match device.desktop.disable_application(DisableApplication { app_id }).await {
            Err(error) if error.code == ManagementErrorCode::Unavailable => {}
            answer => disabled = Some(answer.expect("disabled")),
        }
        disabled.is_some()
    })
    .await;
    disabled.expect("it was waited for")
}

/// The refusal of completing.
async fn not_yet(device: &DeviceFixture, app_id: ApplicationId) -> String {
    let no =
        device.desktop.complete_disabling(CompleteDisabling { app_id }).await.expect_err("something is outstanding");
    assert_eq!(no.code, ManagementErrorCode::Conflict);
    no.message
}

async fn complete(device: &DeviceFixture, app_id: ApplicationId) -> ApplicationState {
    device.desktop.complete_disabling(CompleteDisabling { app_id }).await.expect("complete").state
}

fn cancelled(seq: u64) -> AttemptUpdate {
    AttemptUpdate::End {
        seq,
        outcome: Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    }
}

fn disabled() -> ExpectedProblem<'static> {
    let detail = "This application was disabled by its owner. Its keys are revoked for good.";
    ExpectedProblem::new(403, "application_disabled", "Application disabled", detail)
}

#[tokio::test]
async fn an_idle_application_is_disabled_at_once_and_refused_on_every_replica_within_a_second() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let addresses = [gateway.gateway.addresses().http, replica.addresses().http];
    let list = |address| {
        crate::support::call::TestRequest::new(address, "GET", "/api/v1/agent-endpoints")
            .key(&gateway.device.app.key)
            .subject("anna")
            .send()
    };
    for address in addresses {
        assert_eq!(list(address).await.status, 200);
    }
    let application = disable(&gateway.device, gateway.device.app.id).await;
    assert_eq!((application.state, application.live_keys), (ApplicationState::Disabled, 0));
    let acknowledged = Instant::now();
    for address in addresses {
        loop {
            let began = acknowledged.elapsed();
            if list(address).await.status == 403 {
                break;
            }
            assert!(began <= Duration::from_secs(1), "a request that began {began:?} afterwards was let in");
        }
        list(address).await.assert_problem(&disabled());
    }
    assert_eq!(disable(&gateway.device, gateway.device.app.id).await, application, "repeated, it changes nothing");
    assert_eq!(complete(&gateway.device, gateway.device.app.id).await, ApplicationState::Disabled);
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn every_run_of_a_disabled_application_is_cancelled_or_told_to_stop_and_those_of_others_are_not() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let (session, _) = device.connect().await;
    let runs = test_store.one_run_of_each_kind(session).await;
    let neighbour = device.application("neighbour").await;
    let theirs = test_store.queue_for(device.service(&neighbour, "theirs").await).await;
    let app_id = device.app.id;

    let preview = device.desktop.preview_disabling(PreviewDisabling { app_id }).await.expect("there");
    assert_eq!((preview.live_keys, preview.services, preview.runs_queued, preview.runs_in_progress), (1, 1, 2, 3));
    let application = disable(device, app_id).await;
    assert_eq!(application.state, ApplicationState::Disabling);
    let outstanding = OutstandingWork { runs_to_stop: 2, runs_to_reconcile: 1, resets: 0 };
    assert_eq!(application.outstanding, Some(outstanding));
    let [running, asking, lost] = runs.have_ended_or_are_told_to(&test_store).await;
    assert_eq!(test_store.row(theirs).await.0, "queued");
    assert_eq!(test_store.events(running).await.last(), Some(&EventType::RunCancelling));

    let told = test_store.store.deliver(session, OrderSelection::New).await.expect("delivered");
    let mut stops: Vec<_> = told.iter().map(|(_, order)| *order).collect();
    stops.sort_by_key(|order| format!("{order:?}"));
    assert_eq!(stops, [running, asking, lost].map(|run_id| Order::Stop { run_id }));
    let message = not_yet(device, app_id).await;
    assert!(message.contains("2 runs to stop") && message.contains("1 run of unknown outcome"), "{message}");
    for (run_id, seq) in [(running, 1), (asking, 2)] {
        assert_eq!(test_store.one(session, run_id, 1, cancelled(seq)).await, RecordOutcome::Done);
    }
    let message = not_yet(device, app_id).await;
    assert!(!message.contains("to stop") && message.contains("1 run of unknown outcome"), "{message}");
    // The owner says that it is to run again; it was to be stopped.
    assert_eq!(test_store.one(session, lost, 1, AttemptUpdate::Unknown).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, lost, 1, AttemptUpdate::RunAgain).await, RecordOutcome::Done);
    assert_eq!(test_store.row(lost).await.0, "cancelled");
    assert_eq!(complete(device, app_id).await, ApplicationState::Disabled);
    assert_eq!(test_store.row(theirs).await.0, "queued");
}

#[tokio::test]
async fn disabling_while_the_device_is_away_is_completed_after_it_was_back() {
    let gateway = TestGateway::new().await;
    let (device, app_id) = (&gateway.device, gateway.device.app.id);
    gateway.submit("one").await;
    let (session, _) = device.connect().await;
    let run_id = crate::conversations::start(&gateway, session).await;
    device.store.end_session(session).await.expect("ended");
    assert_eq!(disable(device, app_id).await.state, ApplicationState::Disabling);
    not_yet(device, app_id).await;
    let (session, held) = device.connect().await;
    assert!(held.iter().any(|held| held.run_id == run_id && held.stopping), "it is to be stopped: {held:?}");
    let told = device.store.deliver(session, OrderSelection::New).await.expect("delivered");
    assert!(matches!(told[..], [(_, Order::Stop { run_id: stop })] if stop == run_id), "{told:?}");
    let done = crate::conversations::report(&gateway, session, run_id, cancelled(1)).await;
    assert_eq!(done, RecordOutcome::Done);
    assert_eq!(complete(device, app_id).await, ApplicationState::Disabled);
    gateway.stop().await;
}

#[tokio::test]
async fn a_reset_that_the_device_has_not_acknowledged_is_waited_for() {
    let gateway = TestGateway::new().await;
    let (device, app_id) = (&gateway.device, gateway.device.app.id);
    let talk = TestConversation::open(&gateway, "case").await;
    talk.reset("reset", 1).send().await;
    let application = disable(device, app_id).await;
    assert_eq!(application.outstanding, Some(OutstandingWork { resets: 1, ..OutstandingWork::default() }));
    assert!(not_yet(device, app_id).await.contains("1 reset"));
    let (session, _) = device.connect().await;
    let told = device.store.deliver(session, OrderSelection::New).await.expect("delivered");
    let outcome = deskgate_protocol::operation::OutcomeCode::Reset;
    device.store.operation_done(session, told[0].0, outcome, LONG_LEASE).await.expect("written");
    assert_eq!(complete(device, app_id).await, ApplicationState::Disabled);
    gateway.stop().await;
}

/// The commit of an acceptance that looked before the application was disabled: it is waited for, and its run ended.
#[tokio::test]
async fn a_run_that_was_being_accepted_while_its_application_was_disabled_is_ended_with_the_others() {
    let test_store = TestStore::new().await;
    let accepting = test_store.database.begin().await;
    let late = RunId::new();
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
            endpoint = test_store.device.endpoint.uuid(),
        ))
        .await;
    let committing = async {
        let begun = "SELECT count(*) FROM applications WHERE state = 'disabling'";
        until("disabling has begun", async || test_store.database.value(begun).await == "1").await;
        accepting.commit().await;
    };
    let (application, ()) = tokio::join!(disable(&test_store.device, test_store.device.app.id), committing);
    assert_eq!(application.state, ApplicationState::Disabled);
    assert_eq!(test_store.row(late).await.0, "cancelled");
}

#[tokio::test]
async fn disabling_beside_submissions_to_two_replicas_leaves_no_accepted_run_that_has_not_ended() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let path = gateway.runs_of(gateway.device.endpoint);
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let address = [gateway.gateway.addresses().http, replica.addresses().http][caller % 2];
        let (key, path) = (gateway.device.app.key.clone(), path.clone());
        callers.spawn(async move {
            let mut accepted = Vec::new();
            for number in 0.. {
                let reply = crate::support::call::TestRequest::new(address, "POST", &path)
                    .key(&key)
                    .subject("anna")
                    .header("Idempotency-Key", format!("{caller}-{number}"))
                    .json(&crate::support::gateway::work("hello"))
                    .send()
                    .await;
                if reply.status == 403 {
                    break;
                }
                accepted.push(reply.run_id());
            }
            accepted
        });
    }
    let count = "SELECT count(*) FROM runs";
    until("runs arrive", async || gateway.database.value(count).await.parse::<u64>().expect("a number") > 20).await;
    let app_id = disable(&gateway.device, gateway.device.app.id).await.app_id;
    // On a busy computer an acceptance may take longer than one request waits for it.
    until("it is completed", async || {
        match gateway.device.desktop.complete_disabling(CompleteDisabling { app_id }).await {
            Ok(application) => application.state == ApplicationState::Disabled,
            Err(no) => {
                assert_eq!(no.code, ManagementErrorCode::Conflict);
                false
            }
        }
    })
    .await;
    let open = "SELECT count(*) FROM runs WHERE finished_at IS NULL";
    assert_eq!(gateway.database.value(open).await, "0", "what is disabled has no run that has not ended");
    let accepted = callers.join_all().await.concat();
    assert_eq!(
        gateway.database.value(count).await,
        accepted.len().to_string(),
        "nobody was told no and heard all the same"
    );
    assert_eq!(gateway.database.value(open).await, "0");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn keys_and_services_that_are_made_while_their_application_is_disabled_do_not_outlive_it() {
    let test_store = TestStore::new().await;
    let (device, app_id) = (&test_store.device, test_store.device.app.id);
    let mut making = JoinSet::new();
    for number in 0..12 {
        let desktop = device.desktop.clone();
        let key = CreateKey {
            app_id,
            name: format!("key {number}"),
            scopes: Scope::ALL.to_vec(),
            endpoints: Vec::new(),
            fixed_subject: None,
            expires_at: None,
            allowed_cidrs: Vec::new(),
        };
        let service = service(app_id, &format!("service {number}"));
        making.spawn(async move {
            // Refused, or made and ended: which one is a matter of luck.
            let _ = tokio::join!(desktop.create_key(key), desktop.publish(service));
        });
    }
    let application = disable(device, app_id).await;
    making.join_all().await;
    assert_eq!(application.live_keys, 0);
    let keys = device.desktop.keys(ListKeys { app_id }).await.expect("listed");
    assert!(keys.iter().all(|key| key.revoked_at.is_some()));
    let services = device.desktop.endpoints().await.expect("listed");
    assert!(services.iter().all(|service| service.closed_at.is_some()));
    let no = device.desktop.publish(service(app_id, "late")).await.expect_err("disabled");
    assert_eq!(no.code, ManagementErrorCode::Conflict);
}

fn service(app_id: ApplicationId, name: &str) -> PublishEndpoint {
    PublishEndpoint {
        app_id,
        endpoint_id: EndpointId::new(),
        version: 1,
        name: name.to_owned(),
        description: String::new(),
        definition_sha256: deskgate_protocol::canonical::Sha256Digest::of(name.as_bytes()),
        data: Default::default(),
    }
}

#[tokio::test]
async fn a_version_of_zero_is_the_requests_fault_and_not_the_databases() {
    let test_store = TestStore::new().await;
    let request = PublishEndpoint { version: 0, ..service(ApplicationId::new(), "early") };
    let refused = test_store.device.desktop.publish(request).await.expect_err("no version");
    assert_eq!(refused.code, ManagementErrorCode::Invalid, "{refused}");
}

/// The gateway that began has stopped behind its first commit.
#[tokio::test]
async fn upkeep_ends_the_runs_of_an_application_whose_disabling_was_cut_off() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let running = test_store.started(session).await;
    let queued = test_store.queue().await;
    test_store.database.execute("UPDATE applications SET state = 'disabling', disabled_at = now()").await;
    assert_eq!(run_once(&test_store.store, LONG_LEASE).await.expect("done").told, 2);
    assert_eq!(
        (test_store.row(running).await.0, test_store.row(queued).await.0),
        ("cancelling".to_owned(), "cancelled".to_owned())
    );
    assert_eq!(run_once(&test_store.store, LONG_LEASE).await.expect("done").told, 0);
    assert_eq!(test_store.one(session, running, 1, cancelled(1)).await, RecordOutcome::Done);
    assert_eq!(complete(&test_store.device, test_store.device.app.id).await, ApplicationState::Disabled);
}

#[tokio::test]
async fn a_removed_application_is_only_read_and_its_name_is_free_for_another() {
    let test_store = TestStore::new().await;
    let (device, app_id) = (&test_store.device, test_store.device.app.id);
    let run_id = test_store.queue().await;
    let remove = || device.desktop.remove_application(RemoveApplication { app_id });
    assert_eq!(remove().await.expect_err("active").code, ManagementErrorCode::Conflict);
    let create = || device.desktop.create_application(CreateApplication { name: "billing".to_owned() });
    disable(device, app_id).await;
    assert_eq!(create().await.expect_err("it is on the list").code, ManagementErrorCode::Conflict);
    let removed = remove().await.expect("disabled");
    assert_eq!(removed.state, ApplicationState::Removed);
    assert_eq!(remove().await.expect("repeated"), removed);
    assert_eq!(disable(device, app_id).await, removed, "nothing leads back");
    assert_eq!(device.desktop.applications().await.expect("listed"), []);
    let listed = device.desktop.removed().await.expect("listed");
    assert_eq!(listed.iter().map(|one| (&one.application, one.runs)).collect::<Vec<_>>(), [(&removed, 1)]);
    assert!(listed[0].kept_until > removed.removed_at.expect("removed"));
    let another = create().await.expect("the name is free").application;
    assert_ne!(another.app_id, app_id);
    assert_eq!(test_store.row(run_id).await.0, "cancelled", "what it left behind can be read");

    test_store
        .database
        .execute("UPDATE applications SET completed_at = now() - interval '1 day' WHERE state = 'removed'")
        .await;
    assert_eq!(device.desktop.removed().await.expect("listed").len(), 1, "one of its runs is kept");
    test_store.database.execute("DELETE FROM runs").await;
    assert_eq!(device.desktop.removed().await.expect("listed"), []);
}

#[tokio::test]
async fn another_device_neither_sees_nor_ends_an_application() {
    let test_store = TestStore::new().await;
    let other = DeviceFixture::pair(&test_store.store).await.desktop;
    let app_id = test_store.device.app.id;
    let refused = [
        other.application(ShowApplication { app_id }).await.map(drop),
        other.preview_disabling(PreviewDisabling { app_id }).await.map(drop),
        other.disable_application(DisableApplication { app_id }).await.map(drop),
        other.complete_disabling(CompleteDisabling { app_id }).await.map(drop),
        other.remove_application(RemoveApplication { app_id }).await.map(drop),
    ];
    assert!(refused.iter().all(|no| no.as_ref().is_err_and(|no| no.code == ManagementErrorCode::NotFound)));
    let application = test_store.device.desktop.application(ShowApplication { app_id }).await.expect("there");
    assert_eq!(application.state, ApplicationState::Active);
}
