//! Every statement of the store is executed once, so that a wrong type or name in one shows here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use deskgate_gateway::store::accounts::Account;
use deskgate_gateway::store::activity::Owner;
use deskgate_gateway::store::applications::{ApplicationQuery, NewKey, NewSecret};
use deskgate_gateway::store::artifacts::HeldAttempt;
use deskgate_gateway::store::attempts::{AttemptUpdate, Claims, ServiceRoom};
use deskgate_gateway::store::certificates::{CertificateScope, NewCertificate};
use deskgate_gateway::store::device_lists::DeviceRunQuery;
use deskgate_gateway::store::files::{FileCreation, FileDeletion, NewFile};
use deskgate_gateway::store::invitations::InvitationState;
use deskgate_gateway::store::objects::{MIN_COUNTED_BYTES, NewObject, StorageQuotas};
use deskgate_gateway::store::run_content::{ContentDeletion, MessageQuery};
use deskgate_gateway::store::run_list::{RunQuery, WaitCause};
use deskgate_gateway::store::webhook_receipts::NewReceipt;
use deskgate_gateway::store::webhooks::WebhookCreation;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{RefusedCode, SessionRefusal};
use deskgate_protocol::file::{Artifact, ArtifactState};
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::invitation::InvitationToken;
use deskgate_protocol::management::{AskedBy, PublishEndpoint, ReceiptOutcome, RecordKind, Scope};
use deskgate_protocol::{
    ApplicationId, ArtifactId, ConversationId, EndpointId, FileId, HookId, JournalId, KeyId, ReceiptId, RunId, VERSION,
};
use tokio_util::sync::CancellationToken;

use super::{TestStore, events, failed, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

/// The names that the statements begin or end with, as in `-- runs::run`.
fn statements_of_the_source() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store"), &mut names);
    names
}

fn collect(folder: &std::path::Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("our own source") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).expect("readable");
            let named = text.split("-- ").skip(1).filter_map(|rest| {
                let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || "_:".contains(*c)).collect();
                name.contains("::").then_some(name)
            });
            names.extend(named);
        }
    }
}

fn a_key() -> PublicKey {
    PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&std::array::from_fn(|_| rand::random())))
}

/// The life of a webhook.
async fn webhooks(test_store: &TestStore, owner: Owner) {
    let (store, device, hook_id) = (&test_store.store, &test_store.device, HookId::new());
    let settings = crate::webhooks::settings(device);
    let created =
        store.create_webhook(owner, device.app.id, hook_id, &settings, b"sealed").await.expect("create_webhook");
    assert!(matches!(created, WebhookCreation::Created(_)));
    assert_eq!(store.webhooks(device.device_id, Some(device.app.id)).await.expect("webhooks").len(), 1);
    store.change_webhook(owner, hook_id, &settings).await.expect("change_webhook").expect("there");
    assert!(!store.enable_webhook(owner, hook_id, false).await.expect("enable_webhook").expect("there").enabled);
    store.roll_webhook(owner, hook_id, 60, b"new").await.expect("roll_webhook").expect("there");
    let receiving = store.receiving_webhook(hook_id).await.expect("receiving_webhook").expect("there");
    assert_eq!(receiving.secrets, [&b"new"[..], b"sealed"]);
    assert_eq!(store.run_of_event(Sha256Digest::of(b"x")).await.expect("run_of_event"), None);
    let receipt = NewReceipt {
        receipt_id: ReceiptId::new(),
        hook_id,
        genuine: true,
        outcome: ReceiptOutcome::Ignored,
        reason: Some("no".to_owned()),
        event_id: None,
        event_type: None,
        run_id: None,
        body: None,
    };
    store.note_receipts(&[receipt]).await.expect("note_receipts");
    assert_eq!(store.receipts(device.device_id, hook_id).await.expect("receipts").len(), 1);
    let digest = deskgate_protocol::canonical::Sha256Digest([7; 32]);
    let key = async |fresh, silence| store.key_of_unkeyed(digest, fresh, false, silence).await.expect("key_of_unkeyed");
    assert_eq!(key("one", Duration::MAX / 4).await, "one");
    store.see_unkeyed(&["one".to_owned()]).await.expect("see_unkeyed");
    store.end_unkeyed(&["one".to_owned()], &[true]).await.expect("end_unkeyed");
    assert_eq!(store.forget_unkeyed().await.expect("forget_unkeyed"), 0);
    assert!(!store.note_mcp_call(digest, RunId::new(), Some("one")).await.expect("note_mcp_call"));
    store.cancel_mcp_call(digest).await.expect("cancel_mcp_call").expect("there");
    assert_eq!(store.forget_mcp_calls().await.expect("forget_mcp_calls"), 0);
    assert_eq!(store.forget_receipts(Duration::ZERO).await.expect("forget_receipts"), 1);
    store.remove_webhook(owner, hook_id).await.expect("remove_webhook").expect("there");
    assert!(store.webhook(device.device_id, hook_id).await.expect("webhook").is_none());
}

/// Files, and the objects with their bytes.
async fn files(test_store: &TestStore) {
    let (store, device, sha256) = (&test_store.store, &test_store.device, Sha256Digest::of(b"bytes"));
    let (file_id, app_id) = (FileId::new(), device.app.id);
    let object = NewObject { object_id: file_id.uuid(), app_id, from: None, size: 5 };
    let quotas = StorageQuotas::default();
    store.begin_object(&object, &quotas).await.expect("begin_object").expect("room");
    let full = StorageQuotas { bytes_per_application: 2 * MIN_COUNTED_BYTES - 1, ..quotas };
    let other = NewObject { object_id: RunId::new().uuid(), ..object };
    let refused = store.begin_object(&other, &full).await.expect("begin_object").expect_err("no room");
    assert_eq!((refused.used, refused.limit), (MIN_COUNTED_BYTES, 2 * MIN_COUNTED_BYTES - 1));
    let file = NewFile {
        file_id,
        app_id,
        subject: "anna".to_owned(),
        name: "a".to_owned(),
        media_type: "text/plain".to_owned(),
        size: 5,
        sha256,
        identity: Some(sha256),
        fingerprint: sha256,
        ttl: Duration::ZERO,
    };
    let created = store.create_file(&file).await.expect("create_file");
    assert!(matches!(created, FileCreation::Created(_)), "{created:?}");
    assert!(matches!(store.create_file(&file).await.expect("create_file"), FileCreation::Abandoned));
    assert_eq!(store.file_of_request(sha256).await.expect("file_of_request").expect("there").0.size, 5);
    assert_eq!(store.files(app_id, "anna", &[file_id]).await.expect("files").len(), 1);
    assert_eq!(store.files_of_caller(app_id, "anna", None, 5).await.expect("files_of_caller").entries.len(), 1);
    let held = HeldAttempt { device_id: device.device_id, run_id: RunId::new(), attempt: 1 };
    assert_eq!(store.file_of_run(&held, file_id).await.expect("file_of_run"), None);
    let artifact = Artifact {
        artifact_id: ArtifactId::new(),
        name: "a".to_owned(),
        media_type: "text/plain".to_owned(),
        description: None,
        size: 5,
        sha256,
        state: ArtifactState::Stored,
    };
    assert!(store.artifact_place(&held, artifact.artifact_id).await.expect("artifact_place").is_none());
    assert!(!store.add_artifact(&held, &artifact).await.expect("add_artifact"));
    assert_eq!(store.delete_file(app_id, "karl", file_id).await.expect("delete_file"), FileDeletion::NoFile);
    assert_eq!(store.delete_due_files().await.expect("delete_due_files"), 1);
    store.begin_object(&other, &quotas).await.expect("begin_object").expect("room");
    assert_eq!(store.release_abandoned_objects(Duration::ZERO).await.expect("release_abandoned_objects"), 1);
    store.release_object(other.object_id, None).await.expect("release_object");
    assert_eq!(store.stored_bytes().await.expect("stored_bytes").released, (2, 10));
    let due: Vec<_> =
        store.due_objects(Duration::ZERO).await.expect("due_objects").iter().map(|due| due.object_id).collect();
    assert_eq!(store.forget_objects(&due).await.expect("forget_objects"), 2);
}

#[tokio::test]
async fn every_statement_is_understood_by_the_database() {
    let test_store = TestStore::new().await;
    let (store, device, digest) = (&test_store.store, &test_store.device, Sha256Digest::of(b"x"));
    let owner = Owner { device_id: device.device_id, by: AskedBy::Cli.into() };
    let mut executed = BTreeSet::new();
    let mut done = |names: &[&str]| executed.extend(names.iter().map(|name| (*name).to_owned()));

    store.ping().await.expect("ping");
    let syncs = store.wal_syncs().await.expect("wal_syncs");
    assert!(syncs.count > 0 && syncs.ms > 0.0, "the private server times them: {syncs:?}");
    done(&["commit_limit::version", "commit_limit::wal_syncs"]);
    files(&test_store).await;
    done(&[
        "objects::one_at_a_time",
        "objects::used",
        "objects::begin",
        "objects::release",
        "objects::release_abandoned",
    ]);
    done(&["objects::due", "objects::forget", "objects::stored_bytes", "files::create", "files::of_request"]);
    store.known_objects(uuid::Uuid::nil()).await.expect("known_objects");
    done(&["objects::known"]);
    done(&[
        "files::files",
        "files::of_caller",
        "files::delete",
        "files::of_run",
        "files::delete_due",
        "artifacts::place",
        "artifacts::add",
    ]);
    store.gateway_id().await.expect("gateway_id");
    store.add_control_token(digest).await.expect("add_control_token");
    store.add_control_token(Sha256Digest::of(b"y")).await.expect("add_control_token");
    store.end_other_control_tokens(Sha256Digest::of(b"y"), LONG_LEASE).await.expect("end_other_control_tokens");
    assert_eq!(store.control_tokens().await.expect("control_tokens").len(), 2);
    done(&["devices::gateway_id", "devices::add_control_token", "devices::end_other_control_tokens"]);
    done(&["devices::control_tokens"]);

    // Paired by the shelf.
    done(&["devices::pair_device", "applications::create", "endpoints::publish", "devices::set_access"]);
    store.device_by_key(&device.key).await.expect("device_by_key").expect("there");
    store.devices().await.expect("devices");
    store.device(device.device_id).await.expect("device").expect("there");
    assert!(store.rename_device(device.device_id, "another name").await.expect("rename_device"));
    let refusal = SessionRefusal {
        code: RefusedCode::VersionMismatch,
        message: "Upgrade.".to_owned(),
        should_retry: false,
        retry_after_s: None,
        gateway_version: VERSION.to_owned(),
        device_version: None,
        upgrade: None,
    };
    store.note_refusal(&device.key, "9.9.9", &refusal).await.expect("note_refusal");
    let refused = store.device(device.device_id).await.expect("device").expect("there");
    assert_eq!((refused.refusal, refused.device_version.as_deref()), (Some(refusal), Some("9.9.9")));
    let told = async |key: &str| store.devices_by_host_key(key).await.expect("told_of_host_key");
    let name = || vec!["another name".to_owned()];
    assert_eq!(told("SHA256:new").await, (vec![], name()));
    store.note_host_key(device.device_id, Some("SHA256:new")).await.expect("note_host_key");
    assert_eq!(told("SHA256:new").await, (name(), vec![]));
    assert_eq!(told("SHA256:newer").await, (vec![], name()));
    store.note_host_key(device.device_id, None).await.expect("note_host_key");
    assert_eq!(told("SHA256:newer").await, (vec![], vec![]), "it goes by the key of a server's sshd");
    // Executed by the tests of backups.
    done(&["backup::moment", "backup::tables", "backup::in_use", "backup::fence_sessions", "backup::note_journals"]);
    done(&["backup::is_privileged", "backup::columns", "backup::foreign_keys", "backup::triggers"]);
    // Executed by the tests of upgrades.
    done(&["devices::met"]);
    assert_eq!(store.devices_before(None, 5).await.expect("devices_before").len(), 1);
    assert!(store.devices_before(Some(device.device_id), 5).await.expect("devices_before").is_empty());
    done(&[
        "devices::before",
        "devices::by_key",
        "devices::all",
        "devices::one",
        "devices::rename",
        "devices::note_refusal",
        "devices::note_host_key",
        "devices::told_of_host_key",
    ]);

    let (account, key) = (Account { issuer: "i".to_owned(), subject: "s".to_owned() }, a_key());
    store.pair_with_account("one", &key, &account, 1).await.expect("pair_with_account");
    let paired = store.device_by_key(&key).await.expect("device_by_key").expect("paired");
    assert_eq!((paired.name.as_str(), paired.account), ("one", Some(account.clone())));
    store.pair_with_account("two", &a_key(), &account, 1).await.expect("pair_with_account");
    assert_eq!(store.devices().await.expect("devices").len(), 2, "the account has as many as it may");
    done(&["accounts::one_at_a_time", "accounts::pair"]);

    let (session, _) = device.connect().await;
    assert!(test_store.renew(session, LONG_LEASE).await);
    store.waiting_work(&[session.device_id]).await.expect("waiting_work");
    assert!(store.session_is_current(session).await.expect("session_is_current"));
    done(&["leases::take_over_started", "leases::take_over_offered"]);
    done(&["leases::begin_session", "leases::renew_sessions", "leases::waiting_work", "leases::session_is_current"]);
    store.note_journal(session, JournalId::new()).await.expect("note_journal");
    assert!(store.runs_to_recall(session, None).await.expect("runs_to_recall").is_empty());
    assert_eq!(store.requeue(session, &[RunId::new()]).await.expect("requeue"), 0);
    done(&["recalls::note_journal", "recalls::runs_to_recall", "recalls::requeue"]);
    store.fall_asleep(session).await.expect("fall_asleep");
    store.awake(session, LONG_LEASE).await.expect("awake");
    done(&["leases::fall_asleep", "leases::awake"]);

    store.applications(device.device_id).await.expect("applications");
    let key = NewKey {
        key_id: KeyId::new(),
        name: "a key",
        last4: "abcd",
        digest,
        scopes: &Scope::ALL,
        endpoints: &[device.endpoint],
        fixed_subject: Some("anna"),
        expires_at: Some(deskgate_protocol::Timestamp::now()),
        allowed_cidrs: &["10.0.0.0/8".to_owned()],
    };
    let unknown = store.create_key(owner, ApplicationId::new(), &key).await.expect("create_key");
    assert!(unknown.expect("there is room").is_none());
    store.create_key(owner, device.app.id, &key).await.expect("create_key").expect("there is room").expect("created");
    store.highest_use().await.expect("highest_use");
    done(&["quotas::one_at_a_time", "quotas::counted", "quotas::highest"]);
    assert_eq!(store.keys(device.device_id, device.app.id).await.expect("keys").len(), 2);
    store.key(key.key_id).await.expect("key").expect("there");
    assert!(store.live_keys(&[key.key_id]).await.expect("live_keys").is_empty(), "it has expired");
    done(&["applications::live_keys"]);
    store.revoke_key(owner, key.key_id).await.expect("revoke_key").expect("there");
    done(&["applications::of_device", "applications::create_key", "applications::keys", "applications::key"]);
    let new = NewSecret { key_id: KeyId::new(), last4: "efgh", digest };
    let unknown = store.roll_key(owner, key.key_id, 60, &new).await.expect("roll_key");
    assert!(unknown.expect("there is room").is_none());
    store.note_key_use(key.key_id, Some([192, 0, 2, 7].into())).await.expect("note_key_use");
    store.application(device.device_id, device.app.id).await.expect("application").expect("there");
    done(&["applications::revoke_key", "applications::roll_key", "applications::note_key_use", "applications::one"]);

    let unknown = PublishEndpoint {
        app_id: ApplicationId::new(),
        endpoint_id: EndpointId::new(),
        version: 1,
        name: "x".to_owned(),
        description: String::new(),
        definition_sha256: digest,
        data: Default::default(),
    };
    store.publish(owner, &unknown, "ask_unknown").await.expect("publish");
    store.published_by(device.device_id).await.expect("published_by");
    store.enabled_endpoints(device.app.id).await.expect("enabled_endpoints");
    store.endpoint_of_tool(device.app.id, "ask_invoices").await.expect("endpoint_of_tool").expect("there");
    done(&["endpoints::why_not_published", "endpoints::published_by", "endpoints::enabled", "endpoints::of_tool"]);

    let run_id = test_store.started(session).await;
    for what in [
        events(1, 2),
        AttemptUpdate::Lose,
        AttemptUpdate::Reconcile,
        AttemptUpdate::Restart,
        events(1, 1),
        failed(2),
        AttemptUpdate::Return,
    ] {
        test_store.one(session, run_id, if matches!(what, AttemptUpdate::Restart) { 1 } else { 2 }, what.clone()).await;
        test_store.one(session, run_id, 1, what).await;
    }
    let run_id = test_store.queue().await;
    device.claim(session, 1).await;
    store.offer(session, run_id).await.expect("offer").expect("held");
    test_store.one(session, run_id, 1, AttemptUpdate::Mismatch).await;
    test_store.one(session, RunId::new(), 1, succeeded(1)).await;
    let room = ServiceRoom { full: vec![device.endpoint], ..ServiceRoom::default() };
    store.claim(session, 1, &room, LONG_LEASE).await.expect("claim_within");
    let claims = Claims::start(store, &Tasks::new(CancellationToken::new()), LONG_LEASE);
    let stranger = DeviceFixture::pair(store).await.connect().await.0;
    let room = ServiceRoom::default();
    let (own, others) = tokio::join!(claims.claim(session, 1, &room), claims.claim(stranger, 1, &room));
    own.and(others).expect("claim_shared");
    store.pass_over_lost_claims(session, &[(run_id, 1)]).await.expect("pass_over_lost_claims");
    done(&[
        "attempts::pass_over_lost_claims",
        "attempts::claim",
        "attempts::claim_shared",
        "attempts::claim_within",
        "attempts::offer",
        "attempts::start",
        "attempts::accept_again",
        "attempts::return",
        "attempts::events",
    ]);
    done(&["attempts::end", "attempts::lose", "attempts::restart", "attempts::explain"]);

    // Executed by the tests of approvals and of what is unknown.
    done(&["attempts::approval", "attempts::end_unsettled", "attempts::unknown", "attempts::was_unknown"]);

    store.run(device.app.id, "anna", run_id).await.expect("run").expect("there");
    store.run_of_device(device.device_id, run_id).await.expect("run_of_device").expect("there");
    assert_eq!(store.whole_runs(device.device_id, &[run_id, RunId::new()]).await.expect("whole_runs").len(), 1);
    done(&["runs::whole_runs"]);
    // Executed by the tests of the desktop's lists and overview.
    let all = store.placed_runs(None, &DeviceRunQuery::default(), 10).await.expect("placed_runs");
    assert!(all.entries.iter().all(|placed| placed.device_id == device.device_id && placed.app_id == device.app.id));
    let sought = ApplicationQuery::default();
    assert_eq!(
        store.placed_applications(&sought, 10).await.expect("placed_applications").len(),
        2,
        "the stranger's too"
    );
    let placed = store.placed_application(device.app.id).await.expect("placed_application").expect("there");
    assert_eq!(placed.device_id, device.device_id);
    assert_eq!(store.device_of_run(RunId::new()).await.expect("device_of_run"), None);
    let runs = store.ids_by_end(None, RecordKind::Run, &run_id.to_string()[20..]).await.expect("ids_by_end");
    assert_eq!(runs, [run_id.uuid()]);
    let deliveries = store.ids_by_end(Some(device.device_id), RecordKind::Delivery, "ffffffff").await;
    assert!(deliveries.expect("ids_by_end").is_empty());
    done(&["lookup::by_end"]);
    done(&["applications::placed", "applications::placed_one", "runs::device_of_run"]);
    done(&["own_lists::runs", "own_lists::conversations", "counts::moment", "counts::counted", "counts::started"]);
    done(&["counts::applications"]);
    store.forget_counts().await.expect("forget_counts");
    store.fold_counts().await.expect("fold_counts");
    done(&["counts::forget", "counts::fold"]);
    static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
    let sought = |key| RunQuery {
        app_id: device.app.id,
        subject: "anna",
        before: None,
        not_before: None,
        endpoints: vec![device.endpoint],
        labels: &NO_LABELS,
        conversation: None,
        states: None,
        waiting: WaitCause::ForDevice,
        key,
    };
    store.runs_of_caller(&sought(None), 10).await.expect("runs_of_caller");
    store.runs_of_caller(&sought(Some([0; 16])), 10).await.expect("runs_of_caller");
    done(&["run_list::by_place", "run_list::under_key"]);
    let (app_id, subject) = (device.app.id, "anna");
    let messages =
        MessageQuery { app_id, subject, conversation_id: ConversationId::new(), generation: Some(1), before: None };
    assert!(store.messages_of_conversation(&messages, 10).await.expect("messages").entries.is_empty());
    let deleted = store.delete_run_content(app_id, subject, RunId::new(), &[]).await;
    assert_eq!(deleted.expect("delete_run_content"), ContentDeletion::NoRun);
    done(&["run_content::delete", "run_content::messages"]);
    store.waiting_runs(device.app.id, 10).await.expect("waiting_runs");
    store.events_after(run_id, 0, 10).await.expect("events_after");
    assert_eq!(store.progress(&[(run_id, 0), (RunId::new(), 0)], 10).await.expect("progress").len(), 1);
    store.run_mark(run_id).await.expect("run_mark").expect("stored");
    done(&["runs::run", "runs::run_of_device", "runs::waiting_runs", "events::events_after"]);
    assert_eq!(store.output_of_run(device.device_id, run_id).await.expect("output"), None);
    done(&["runs::run_mark", "runs::output", "events::progress"]);

    // Executed by the tests beside this one, which need more than a call.
    done(&["admissions::admit_all", "admissions::look_again"]);

    // Executed by the tests of conversations and operations.
    done(&["conversations::create", "conversations::by_key", "conversations::why_not", "conversations::conversation"]);
    done(&["conversations::of_caller"]);
    done(&["conversations::replayed", "requests::known", "requests::remember", "messages::admit", "messages::why_not"]);
    assert_eq!(store.known_message(Sha256Digest::of(b"x")).await.expect("known_message"), None);
    done(&["messages::known", "messages::active_run", "messages::lock_conversation"]);
    done(&["operations::lock_run", "operations::begin_stop", "operations::cancel_queued", "operations::cancelling"]);
    done(&["operations::lock_conversation", "operations::begin_reset", "operations::read", "operations::operation"]);
    done(&["operations::operation_of_device", "conversations::conversation_of_device"]);
    done(&["runs::runs_of_conversation"]);
    done(&["operations::deliver", "confirmations::reset_done", "confirmations::stop_lost"]);
    done(&["confirmations::stop_forgotten"]);
    done(&["attempts::reconcile", "attempts::cancel", "upkeep::fail_resets_of_revoked_devices"]);

    assert!(!store.activity(device.device_id, Some(device.app.id), None, 10).await.expect("activity").is_empty());
    store.forget_activity().await.expect("forget_activity");
    done(&["activity::note", "activity::list", "activity::forget"]);
    // Executed by the tests of stops.
    done(&["activity::note_operation"]);

    // Executed by the tests of disabling.
    done(&["disabling::begin", "disabling::revoke_keys", "disabling::close_services", "disabling::is_to_tell"]);
    done(&["disabling::writers", "disabling::tell_runs", "disabling::note_runs_told", "disabling::complete"]);
    done(&["disabling::preview", "disabling::remove", "disabling::removed"]);

    // Executed by the test of trying a draft.
    done(&["endpoints::note_draft"]);
    // Executed by the tests of unpublishing.
    done(&["unpublishing::preview", "unpublishing::unpublish", "unpublishing::note_runs_told", "unpublishing::enable"]);

    assert_eq!(store.device_counts().await.expect("census").len(), 3);
    assert!(store.applied_migration().await.expect("applied_migration") > 0);
    done(&["census::census", "census::applied_migration"]);

    store.return_unaccepted_offers().await.expect("return_unaccepted_offers");
    store.expire_queued(LONG_LEASE).await.expect("expire_queued");
    store.suspend_lost_runs().await.expect("suspend_lost_runs");
    store.end_session(session).await.expect("end_session");
    store.revoke_device(device.device_id, Duration::from_secs(1)).await.expect("revoke_device");
    done(&["upkeep::return_unaccepted_offers", "upkeep::expire_queued", "leases::suspend_lost_runs"]);
    done(&["leases::end_session", "upkeep::revoke_device", "upkeep::end_runs_of_revoked_devices"]);

    store.ended_runs(LONG_LEASE).await.expect("ended_runs");
    store.shorten_retention(LONG_LEASE).await.expect("shorten_retention");
    done(&["retention::ended_runs", "retention::shorten"]);
    store.purge_runs().await.expect("purge_runs");
    store.forget_purged_runs().await.expect("forget_purged_runs");
    store.forget_resets(LONG_LEASE).await.expect("forget_resets");
    store.forget_openings(LONG_LEASE).await.expect("forget_openings");
    assert_eq!(store.purged_run(device.app.id, "anna", run_id).await.expect("purged_run"), None);
    done(&["retention::purge_runs", "retention::forget_purged_runs", "retention::purged_run"]);
    done(&["retention::forget_resets", "retention::forget_openings"]);

    let subject =
        CertificateScope { directory_url: "https://ca/directory".to_owned(), domains: "a.example.com".to_owned() };
    assert!(store.certificate(&subject).await.expect("certificate").due);
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), Some(0));
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), None, "somebody is at it");
    store.end_pause(&subject, false).await.expect("end_pause");
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), None, "another's turn is not ended");
    store.end_pause(&subject, true).await.expect("end_pause");
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), Some(0));
    store.note_failed_order(&subject, "no", LONG_LEASE).await.expect("note_failed_order");
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), None, "it is too early");
    store.end_pause(&subject, false).await.expect("end_pause");
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), Some(1));
    let new = NewCertificate { chain: "PEM", sealed_key: b"x", valid_from: 0, valid_until: 9_000_000_000 };
    store.keep_certificate(&subject, &new).await.expect("keep_certificate");
    let standing = store.certificate(&subject).await.expect("certificate");
    let chain = standing.newest.map(|newest| newest.chain);
    assert_eq!((standing.due, standing.problem, chain.as_deref()), (false, None, Some("PEM")));
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), None, "it is not due");
    store.keep_certificate(&subject, &NewCertificate { valid_until: 1, ..new }).await.expect("keep_certificate");
    assert!(store.certificate(&subject).await.expect("certificate").due);
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), None, "it only just came");
    store.end_pause(&subject, false).await.expect("end_pause");
    assert_eq!(store.take_turn(&subject, LONG_LEASE).await.expect("take_turn"), Some(0), "somebody wants it now");
    store.keep_challenge("a.example.com", b"digest", LONG_LEASE).await.expect("keep_challenge");
    assert_eq!(store.challenge("a.example.com").await.expect("challenge").as_deref(), Some(&b"digest"[..]));
    for sealed in [Some(&b"sealed"[..]), None] {
        store.set_acme_account("https://ca/directory", "", sealed).await.expect("set_acme_account");
        assert_eq!(store.acme_account("https://ca/directory", "").await.expect("acme_account").as_deref(), sealed);
    }
    done(&["certificates::standing", "certificates::take_turn", "certificates::keep", "certificates::note_failure"]);
    done(&["certificates::end_pause"]);
    done(&["certificates::keep_challenge", "certificates::challenge", "certificates::account"]);
    done(&["certificates::keep_account", "certificates::forget_account"]);

    // Executed by the tests of callbacks.
    done(&["destinations::create_callback", "destinations::change_callback", "destinations::callback"]);
    done(&["destinations::callback_id", "destinations::roll_secret", "destinations::any"]);
    done(&["destinations::open_listener", "destinations::keep_listener", "destinations::close_listener"]);
    done(&["deliveries::claim", "deliveries::claim_for_listener", "deliveries::held_by_listener"]);
    done(&["deliveries::settle", "deliveries::queue_by_hand", "deliveries::resend", "deliveries::of_caller"]);
    done(&[
        "deliveries::count_failed",
        "deliveries::recover",
        "deliveries::own",
        "deliveries::of_all",
        "deliveries::one",
    ]);
    done(&["deliveries::attempts", "runs::told", "conversations::told", "deliveries::discard"]);
    done(&["disabling::close_destinations", "allowlist::hosts", "allowlist::take_away", "allowlist::add"]);
    store.callbacks(device.device_id).await.expect("callbacks");
    store.purge_deliveries().await.expect("purge_deliveries");
    store.forget_listeners().await.expect("forget_listeners");
    store.pending_deliveries().await.expect("pending_deliveries");
    assert!(store.allow_host("hooks.example.com").await.expect("allow_host"));
    assert!(!store.allow_host("hooks.example.com").await.expect("allow_host"), "once");
    assert!(store.disallow_host("hooks.example.com").await.expect("disallow_host"));
    done(&["destinations::callbacks", "deliveries::purge", "destinations::forget_listeners", "census::deliveries"]);
    done(&["allowlist::allow", "allowlist::disallow"]);
    webhooks(&test_store, owner).await;
    done(&["webhooks::create", "webhooks::of_device", "webhooks::one", "webhooks::change", "webhooks::enable"]);
    done(&["webhooks::roll", "webhooks::remove", "webhooks::receiving", "webhooks::run_of_event"]);
    done(&["webhook_receipts::note", "webhook_receipts::push_out", "webhook_receipts::of_hook"]);
    done(&[
        "webhook_receipts::forget",
        "unkeyed_requests::key",
        "unkeyed_requests::see",
        "unkeyed_requests::end",
        "unkeyed_requests::forget",
        "mcp_calls::note",
        "mcp_calls::cancel",
        "mcp_calls::forget",
    ]);

    let token = InvitationToken::generate();
    let invitation = store.create_invitation(&token, Some("laptop"), LONG_LEASE).await.expect("create_invitation");
    let (id, invited) = (invitation.invitation_id, PublicKey::from_bytes([9; 32]));
    assert!(store.is_invited(&invitation.tunnel_key).await.expect("is_invited"));
    assert_eq!(
        store.invitation_by_secret(token.digest()).await.expect("by_secret").map(|it| it.invitation_id),
        Some(id)
    );
    assert!(store.confirm_invited(id, &invited, "x").await.expect("confirm").is_none(), "nobody came");
    store.note_invited(id, &invited, "invited", VERSION).await.expect("note_invited").expect("open");
    assert_eq!(store.invitations(10).await.expect("invitations").len(), 1);
    let confirmed = store.confirm_invited(id, &invited, "invited").await.expect("confirm").expect("it waited");
    assert_eq!(confirmed.state, InvitationState::Confirmed);
    assert_eq!(store.device_by_key(&invited).await.expect("device_by_key").expect("paired").name, "invited");
    assert!(store.refuse_invited(id).await.expect("refuse").is_none(), "it was answered");
    assert_eq!(store.invitation(id).await.expect("invitation").map(|it| it.state), Some(InvitationState::Confirmed));
    let token = Sha256Digest::of(b"invited");
    let given = store.give_invited_token(id, &invited, b"sealed", token).await.expect("give_invited_token");
    assert_eq!(given.as_deref(), Some(&b"sealed"[..]));
    assert_eq!(store.use_up_invitation(token).await.expect("use_up_invitation"), Some(id));
    done(&["invitations::give_token", "invitations::use_up"]);
    assert_eq!(store.forget_invitations().await.expect("forget_invitations"), 0);
    done(&["invitations::create", "invitations::all", "invitations::one", "invitations::by_secret"]);
    done(&["invitations::is_invited", "invitations::note_invited", "invitations::confirm", "invitations::refuse"]);
    done(&["invitations::forget"]);

    let written = statements_of_the_source();
    assert!(written.len() > 30, "the search finds them: {written:?}");
    let missing: Vec<_> = written.difference(&executed).collect();
    assert!(missing.is_empty(), "a new statement needs a line here: {missing:?}");
}

#[tokio::test]
async fn what_was_prepared_before_a_newer_program_added_columns_is_read_after_it() {
    let test_store = TestStore::new().await;
    let run_id = test_store.queue().await;
    let read = async || {
        test_store.store.run(test_store.device.app.id, "anna", run_id).await.expect("read").map(|read| read.run)
    };
    let before = read().await;
    assert!(before.is_some());
    test_store.database.execute("ALTER TABLE runs ADD COLUMN of_a_newer_program text").await;
    assert_eq!(read().await, before);
}
