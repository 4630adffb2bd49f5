//! The store's promises, directly against PostgreSQL.

mod admissions;
mod approvals;
mod batches;
mod claims;
mod fences;
mod looks;
mod model;
mod plans;
pub(crate) mod queue;
mod recalls;
mod scratch;
mod sleep;
mod statements;
mod unknown;
mod upkeep;

use std::time::Duration;

use deskgate_gateway::domain::quotas::Quotas;
use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::attempts::{Approval, AttemptRecord, AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::{self, Store};
use deskgate_protocol::run::{Effects, EventType, Outcome, Run, RunError, RunErrorCode, RunResult, Usage};
use deskgate_protocol::{ApprovalId, EndpointId, RunId, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::support::cluster::TestDatabase;
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

/// A migrated database with a paired device, and nothing else running.
pub(crate) struct TestStore {
    pub(crate) database: TestDatabase,
    pub(crate) store: Store,
    pub(crate) device: DeviceFixture,
}

impl TestStore {
    pub(crate) async fn new() -> Self {
        let database = TestDatabase::new().await;
        // There is no receiver: announcements only fill a bounded queue.
        let (wake, _outgoing) = ChangeNotifier::new();
        let opened = store::Database::new(&database.url(), None, None).expect("a URL");
        let store = opened.open(true, wake).await.expect("opened").with_quotas(Quotas::OF_OWN_DESKTOP);
        let device = DeviceFixture::pair(&store).await;
        Self { database, store, device }
    }

    /// A queued run, a moment older than every later one.
    pub(crate) async fn queue(&self) -> RunId {
        self.queue_for(self.device.endpoint).await
    }

    /// The same for another service.
    pub(crate) async fn queue_for(&self, endpoint: EndpointId) -> RunId {
        let run_id = RunId::new();
        self.database
            .execute(&format!(
                "WITH run AS (
                    INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                        identity, fingerprint, input, metadata, max_duration_s, queue_expires_at)
                    SELECT '{run}', app_id, 'anna', endpoint_id, version, definition_sha256, device_id,
                        sha256('{run}'), sha256(''), '{{\"text\":\"hello\"}}', '{{}}', 60, now() + interval '1 hour'
                    FROM endpoints WHERE endpoint_id = '{endpoint}' RETURNING run_id, device_id, app_id, created_at
                ), counted AS (
                    INSERT INTO run_counts AS c SELECT device_id, n.what, n.began_at, app_id, 0, pg_backend_pid(), 1
                    FROM run, (VALUES ('open', 'epoch'), ('accepted', date_trunc('hour', now(), 'UTC'))) n (what, began_at)
                    ON CONFLICT (device_id, what, began_at, app_id, bucket, writer) DO UPDATE SET count = c.count + 1)
                INSERT INTO run_events (run_id, sequence, event_id, type, data)
                SELECT run_id, 1, gen_random_uuid(), 'run.accepted', '{{}}' FROM run",
                run = run_id.uuid(),
                endpoint = endpoint.uuid(),
            ))
            .await;
        run_id
    }

    /// A run that the session started, with attempt 1.
    pub(crate) async fn started(&self, session: SessionKey) -> RunId {
        let run_id = self.queue().await;
        let offers = self.device.claim(session, 1).await;
        assert_eq!((offers[0].run_id, offers[0].attempt), (run_id, 1));
        assert_eq!(self.one(session, run_id, 1, AttemptUpdate::Start).await, RecordOutcome::Done);
        run_id
    }

    pub(crate) async fn one(
        &self,
        session: SessionKey,
        run_id: RunId,
        attempt: u32,
        what: AttemptUpdate,
    ) -> RecordOutcome {
        let record = AttemptRecord { run_id, attempt, what };
        self.store.record(session, &[record], LONG_LEASE).await.expect("written")[0]
    }

    /// Whether the session's lease is extended.
    pub(crate) async fn renew(&self, session: SessionKey, lease: Duration) -> bool {
        self.store.renew_sessions(&[session], lease).await.expect("written").contains(&session)
    }

    /// The run's row: state, number of its offer, and last sequence.
    pub(crate) async fn row(&self, run_id: RunId) -> (String, u32, u64) {
        let run = self.run(run_id).await;
        let offer = self.database.value(&format!("SELECT attempt FROM runs WHERE run_id = '{}'", run_id.uuid())).await;
        (run.state.to_string(), offer.parse().expect("a number"), run.last_sequence)
    }

    /// The run's record.
    pub(crate) async fn run(&self, run_id: RunId) -> Run {
        self.store.run_of_device(self.device.device_id, run_id).await.expect("read").expect("there").0.run
    }

    /// The types of its events, after checking that they are numbered densely from 1.
    pub(crate) async fn events(&self, run_id: RunId) -> Vec<EventType> {
        let events = self.store.events_after(run_id, 0, 1000).await.expect("read");
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert_eq!(self.row(run_id).await.2, numbers.len() as u64, "the run knows its newest event");
        events.into_iter().map(|event| event.kind).collect()
    }
}

/// Events with numbers from `first`, each saying which it is.
pub(crate) fn events(first: u64, count: u64) -> AttemptUpdate {
    let one = |number| (EventType::MessageCompleted, json!({ "number": number }));
    AttemptUpdate::Events { first, events: (0..count).map(|place| one(first.saturating_add(place))).collect() }
}

/// One run of each kind that the end of a service or of its application finds.
pub(crate) struct RunsOfEachKind {
    running: RunId,
    asking: RunId,
    lost: RunId,
    offered: RunId,
    queued: RunId,
}

impl TestStore {
    /// A run that runs, one that asks, one that is lost, one that is offered, one that waits; and one that has ended.
    pub(crate) async fn one_run_of_each_kind(&self, session: SessionKey) -> RunsOfEachKind {
        let (running, asking) = (self.started(session).await, self.started(session).await);
        let (lost, finished) = (self.started(session).await, self.started(session).await);
        self.one(session, asking, 1, opened(1, ApprovalId::new())).await;
        self.one(session, lost, 1, AttemptUpdate::Lose).await;
        self.one(session, finished, 1, succeeded(1)).await;
        let offered = self.queue().await;
        self.device.claim(session, 1).await;
        let queued = self.queue().await;
        RunsOfEachKind { running, asking, lost, offered, queued }
    }
}

impl RunsOfEachKind {
    /// That those which had not begun were cancelled, and the others told to stop. Returns these: the one that runs, the one
    /// that asks, and the lost one.
    pub(crate) async fn have_ended_or_are_told_to(&self, test_store: &TestStore) -> [RunId; 3] {
        let Self { running, asking, lost, offered, queued } = *self;
        for (run_id, state) in [
            (running, "cancelling"),
            (asking, "cancelling"),
            (lost, "awaiting_reconciliation"),
            (offered, "cancelled"),
            (queued, "cancelled"),
        ] {
            assert_eq!(test_store.row(run_id).await.0, state);
        }
        assert_eq!(test_store.events(queued).await, [EventType::RunAccepted, EventType::RunCancelled]);
        [running, asking, lost]
    }
}

/// A request for approval as the device's event `seq`, open for longer than a test takes.
pub(crate) fn opened(seq: u64, approval_id: ApprovalId) -> AttemptUpdate {
    let open_until = Some(Timestamp::now());
    let data = json!({ "approval_id": approval_id, "tool": "Write", "expires_at": open_until });
    AttemptUpdate::Approval { seq, approval: Approval { approval_id, open_until, data } }
}

/// The same request, closed.
pub(crate) fn closed(seq: u64, approval_id: ApprovalId) -> AttemptUpdate {
    let data = json!({ "approval_id": approval_id, "resolution": "approved" });
    AttemptUpdate::Approval { seq, approval: Approval { approval_id, open_until: None, data } }
}

pub(crate) fn succeeded(seq: u64) -> AttemptUpdate {
    let result = RunResult::completed("done");
    AttemptUpdate::End {
        seq,
        outcome: Outcome::Succeeded { result, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    }
}

pub(crate) fn failed(seq: u64) -> AttemptUpdate {
    let error = RunError {
        code: RunErrorCode::ModelError,
        message: "The model failed.".to_owned(),
        retryable: true,
        effects: Effects::None,
    };
    AttemptUpdate::End {
        seq,
        outcome: Outcome::Failed { error, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    }
}

/// The text of a query's parameter.
pub(crate) fn quoted(id: Uuid) -> String {
    format!("'{id}'")
}
