//! The shared commit that comes before every 202.
//!
//! Submissions that arrive while a commit is under way wait for the next one and share it; an idle gateway commits at
//! once. One statement decides everything that only the tables know — is it a repetition, does the service exist, is
//! access enabled — and writes its decision, so nothing can change in between.

use std::collections::HashSet;
use std::sync::Arc;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::run::Output;
use deskgate_protocol::service::DRAFT_VERSION;
use deskgate_protocol::{ApplicationId, DeviceId, EndpointId, EventId, FileId, RunId, Timestamp};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_util::sync::CancellationToken;

use super::columns::{digest, json, word};
use super::commit_limit::{CommitLimit, MAX_CONCURRENT_COMMITS};
use super::counts::{ADD_COUNT_SQL, INSERT_COUNT_SQL};
use super::deliveries::ACCEPTANCE_DESTINATIONS_SQL;
use super::devices::{PRESENCE_SQL, Presence};
use super::endpoints::{EndpointLife, LIFE_SQL};
use super::{Error, Store, with_timeout};
use crate::notify::Topic;
use deskgate_program::crash;
use deskgate_program::tasks::Tasks;

/// A run to be admitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its identifier, if it is admitted.
    pub run_id: RunId,
    /// The submitting application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: String,
    /// The service.
    pub endpoint_id: EndpointId,
    /// The digest of application, subject, method and target, and Idempotency-Key.
    pub identity: Sha256Digest,
    /// The digest of the body.
    pub fingerprint: Sha256Digest,
    /// The digest of the draft that its owner tries; `None`: the published version is to execute.
    pub draft: Option<Sha256Digest>,
    /// The `input` object, as JSON text.
    pub input: String,
    /// The run's own `output` object, as JSON text.
    pub output: Option<String>,
    /// The files of its input, all of this application and subject.
    pub files: Vec<FileId>,
    /// The version of the service whose schema the input's data was found to fit.
    pub checked_version: Option<u32>,
    /// The `metadata` object, as JSON text.
    pub metadata: String,
    /// Seconds it may wait for a start.
    pub queue_ttl_s: i32,
    /// Awake seconds it may execute.
    pub max_duration_s: i32,
    /// The caller's trace.
    pub traceparent: Option<String>,
    /// How many assistants that call each other stand before it.
    pub depth: u8,
    /// Whether the application's queue may take more.
    pub queue_open: bool,
}

impl Submission {
    pub(super) fn checked_version_column(&self) -> Option<i32> {
        self.checked_version.map(|version| i32::try_from(version).unwrap_or(i32::MAX))
    }
}

/// The outcome of a submission.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The run is durable.
    Accepted(AcceptedRun),
    /// The same identity was admitted before.
    Known {
        /// The earlier run.
        run_id: RunId,
        /// The digest of the earlier body.
        fingerprint: Sha256Digest,
    },
    /// The application has no such published service.
    NoSuchEndpoint,
    /// The application was disabled after its key was checked.
    Disabled,
    /// The desktop user paused access.
    Paused,
    /// The desktop user disabled the service.
    ServiceDisabled,
    /// The application's queue is full.
    QueueFull,
    /// The service takes no schema of a run.
    OutputNotTaken,
    /// The service takes no files.
    FilesNotTaken,
    /// A file of the input was deleted meanwhile.
    FileGone,
    /// The service has a schema of inputs, and the input was not checked by it.
    Unchecked(InputSchema),
}

/// The schema of inputs of a service's version.
#[derive(Clone, Debug)]
pub struct InputSchema {
    /// The version.
    pub version: u32,
    /// The schema.
    pub schema: Value,
}

impl InputSchema {
    /// The one that stands in the columns `input_schema` and `version`, as text; `None`: there is nothing to check.
    pub(super) fn of(row: &Row) -> Result<Option<Self>, Error> {
        let Some(text) = row.try_get::<_, Option<String>>("input_schema")? else { return Ok(None) };
        let version = row.try_get::<_, i32>("version")?.unsigned_abs();
        Ok(Some(Self { version, schema: serde_json::from_str(&text)? }))
    }
}

/// The output that a run has by its service, `e`.
pub(super) const SERVICE_OUTPUT_SQL: &str =
    "CASE WHEN e.output_schema IS NOT NULL THEN json_build_object('name', 'result', 'schema', e.output_schema) END";
/// Whether a service, `e`, takes a schema of a run.
pub(super) const TAKES_OUTPUT_SQL: &str = "(e.caller_schema AND e.output_schema IS NULL)";

/// Whether files that a run is to be given are still there: they are locked, so that nobody deletes them before the run has them.
pub(super) const LOCKED_FILES_SQL: &str = "locked AS MATERIALIZED (
        SELECT file_id FROM files WHERE file_id = ANY($17::uuid[]) FOR KEY SHARE)";

/// The facts in the tables at the moment of acceptance.
#[derive(Clone, Debug)]
pub struct AcceptedRun {
    /// The time of acceptance.
    pub created_at: Timestamp,
    /// Until when it may wait for a start.
    pub queue_expires_at: Timestamp,
    /// The version of the service that will execute.
    pub endpoint_version: u32,
    /// The device that will execute it.
    pub device_id: DeviceId,
    /// The presence of that device.
    pub presence: Presence,
    /// The output that the run has by its service.
    pub service_output: Option<Output>,
    /// The messages of its conversation that go before it, if it waits for them.
    pub conversation_position: Option<u32>,
}

type PendingSubmission = (Arc<Submission>, oneshot::Sender<Result<Admission, Error>>);

/// Submissions in one statement. More would only make each of them wait longer.
const MAX_BATCH_SUBMISSIONS: usize = 256;
/// Submissions that may wait for a committer; beyond that their senders wait.
const SUBMISSION_CAPACITY: usize = 4096;

/// The entry to the shared commits.
#[derive(Clone)]
pub struct Admissions {
    queue: mpsc::Sender<PendingSubmission>,
}

impl Admissions {
    /// Starts the tasks that commit, as many at the same time as `limit` says. They end with their group, or when every clone
    /// of the entry is gone.
    pub fn start(store: &Store, tasks: &Tasks, limit: &CommitLimit) -> Self {
        let (queue, receiver) = mpsc::channel(SUBMISSION_CAPACITY);
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..MAX_CONCURRENT_COMMITS {
            let (store, receiver, limit) = (store.clone(), receiver.clone(), limit.clone());
            tasks.spawn("admissions", commit_for_ever(store, receiver, number, limit, tasks.stopping()));
        }
        Self { queue }
    }

    /// Returns after the commit.
    ///
    /// # Errors
    /// The run may not be stored: the same submission may be tried again with the same identity.
    pub async fn admit(&self, submission: impl Into<Arc<Submission>>) -> Result<Admission, Error> {
        let gone = || Error::Unavailable("the gateway is stopping".to_owned());
        let (reply, answer) = oneshot::channel();
        with_timeout(async {
            self.queue.send((submission.into(), reply)).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
        .await
    }
}

async fn commit_for_ever(
    store: Store,
    receiver: Arc<Mutex<mpsc::Receiver<PendingSubmission>>>,
    number: usize,
    mut limit: CommitLimit,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(MAX_BATCH_SUBMISSIONS);
    loop {
        let next = async {
            match limit.admits(number).await {
                true => receiver.lock().await.recv_many(&mut batch, MAX_BATCH_SUBMISSIONS).await,
                false => 0,
            }
        };
        // Waiting callers then learn that the gateway stops.
        if stop.run_until_cancelled(next).await.unwrap_or(0) == 0 {
            return;
        }
        // One order for all, so that two commits never wait for each other.
        batch.sort_unstable_by_key(|(submission, _)| submission.identity.0);
        let (submissions, replies): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let results = store.commit(&submissions).await;
        match results {
            // A caller that is gone needs no answer.
            Ok(admissions) => replies.into_iter().zip(admissions).for_each(|(reply, admission)| {
                let _ = reply.send(Ok(admission));
            }),
            Err(error) => {
                tracing::warn!(%error, submissions = submissions.len(), "submissions could not be committed");
                replies.into_iter().for_each(|reply| {
                    let _ = reply.send(Err(Error::Unavailable(error.to_string())));
                });
            }
        }
    }
}

impl Store {
    async fn commit(&self, submissions: &[Arc<Submission>]) -> Result<Vec<Admission>, Error> {
        let admissions = self.note(with_timeout(self.admit_all(submissions)).await)?;
        let devices: HashSet<DeviceId> = admissions
            .iter()
            .filter_map(|admission| match admission {
                Admission::Accepted(accepted) => Some(accepted.device_id),
                _ => None,
            })
            .collect();
        devices.into_iter().for_each(|device| self.notifier().notify(Topic::Queue(device)));
        Ok(admissions)
    }

    /// The look-ups are lateral: however many submissions there are, each is one step down an index.
    async fn admit_all(&self, submissions: &[Arc<Submission>]) -> Result<Vec<Admission>, Error> {
        let sql = format!(
            "-- admissions::admit_all
            WITH {LOCKED_FILES_SQL}, missing AS MATERIALIZED (
                SELECT DISTINCT g.run_id FROM unnest($17::uuid[], $18::uuid[]) AS g(file_id, run_id)
                WHERE NOT EXISTS (SELECT FROM locked l WHERE l.file_id = g.file_id)
            ), submitted AS (
                SELECT s.*, k.run_id AS known_run_id, k.fingerprint AS known_fingerprint, t.*
                FROM unnest(
                    $1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::bytea[], $6::bytea[], $7::text[],
                    $8::text[], $9::int[], $10::int[], $11::text[], $12::bool[], $13::uuid[], $14::bytea[],
                    $15::text[], $16::int[], $19::bool[], $20::int2[])
                WITH ORDINALITY AS s(run_id, app_id, subject, endpoint_id, identity, fingerprint, input,
                    metadata, queue_ttl_s, max_duration_s, traceparent, queue_open, event_id, draft, output,
                    checked_version, has_files, depth, place)
                LEFT JOIN LATERAL (
                    SELECT r.run_id, r.fingerprint FROM runs r WHERE r.identity = s.identity LIMIT 1) k ON true
                LEFT JOIN LATERAL (
                    -- A draft can be tried while nothing is published, as long as its application is active.
                    SELECT CASE WHEN s.draft IS NULL THEN e.version ELSE {DRAFT_VERSION} END AS version,
                        coalesce(s.draft, e.definition_sha256) AS definition_sha256, e.device_id,
                        CASE WHEN s.draft IS NULL THEN {LIFE_SQL}
                            WHEN (SELECT p.state = 'active' FROM applications p WHERE p.app_id = e.app_id) THEN 'open'
                            ELSE 'closed' END AS life,
                        s.output IS NULL OR s.draft IS NOT NULL OR {TAKES_OUTPUT_SQL} AS takes_output,
                        NOT s.has_files OR s.draft IS NOT NULL OR e.takes_files AS takes_files,
                        -- What a draft takes and gives, its device alone knows.
                        CASE WHEN s.draft IS NULL THEN {SERVICE_OUTPUT_SQL} END AS service_output,
                        CASE WHEN s.draft IS NULL AND s.checked_version IS DISTINCT FROM e.version THEN e.input_schema
                            END AS unchecked,
                        d.access_enabled, {PRESENCE_SQL} AS presence
                    FROM endpoints e JOIN devices d ON d.device_id = e.device_id AND d.revoked_at IS NULL
                    WHERE e.endpoint_id = s.endpoint_id AND e.app_id = s.app_id LIMIT 1) t ON true
            ), admitted AS (
                INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256,
                    device_id, identity, fingerprint, input, output, metadata, max_duration_s, traceparent, depth,
                    queue_expires_at)
                SELECT s.run_id, s.app_id, s.subject, s.endpoint_id, s.version, s.definition_sha256,
                    s.device_id, s.identity, s.fingerprint, s.input::json, coalesce(s.output::json, s.service_output),
                    s.metadata::json, s.max_duration_s, s.traceparent, s.depth, now() + make_interval(secs => s.queue_ttl_s)
                FROM submitted s WHERE s.life = 'open' AND s.access_enabled AND s.queue_open AND s.known_run_id IS NULL
                    AND s.takes_output AND s.takes_files AND s.unchecked IS NULL
                    AND (NOT s.has_files OR s.run_id NOT IN (SELECT run_id FROM missing))
                ORDER BY s.place
                ON CONFLICT (identity) DO NOTHING
                RETURNING run_id, device_id, app_id, created_at, queue_expires_at
            ), first_event AS (
                INSERT INTO run_events (run_id, sequence, event_id, type, data)
                SELECT s.run_id, 1, s.event_id, 'run.accepted', '{{}}'
                FROM admitted a JOIN submitted s USING (run_id)
            ), given AS (
                INSERT INTO run_files (run_id, file_id)
                SELECT a.run_id, g.file_id FROM unnest($17::uuid[], $18::uuid[]) AS g(file_id, run_id)
                JOIN admitted a USING (run_id)
            ), counted AS (
                {INSERT_COUNT_SQL} FROM admitted a GROUP BY a.device_id, a.app_id, a.created_at {ADD_COUNT_SQL}
            ), queued AS (
                INSERT INTO deliveries (delivery_id, destination_id, app_id, subject, event_id, run_id, sequence, type,
                    event_at, traceparent)
                SELECT new_delivery_id(), w.destination_id, s.app_id, s.subject, s.event_id, a.run_id, 1, 'run.accepted',
                    a.created_at, s.traceparent
                FROM admitted a JOIN submitted s USING (run_id) CROSS JOIN {ACCEPTANCE_DESTINATIONS_SQL}
            )
            SELECT s.known_run_id, s.known_fingerprint, s.access_enabled, s.version, s.device_id, s.presence,
                a.created_at, a.queue_expires_at, s.life, s.takes_output, s.service_output, s.takes_files,
                s.has_files AND s.run_id IN (SELECT run_id FROM missing) AS file_gone,
                CASE WHEN s.known_run_id IS NULL THEN s.unchecked::text END AS input_schema
            FROM submitted s LEFT JOIN admitted a ON a.run_id = s.run_id
            ORDER BY s.place"
        );
        let given = submissions.iter().flat_map(|s| s.files.iter().map(|file| (file.uuid(), s.run_id.uuid())));
        let (files, runs_of_files): (Vec<_>, Vec<_>) = given.unzip();
        let column = |of: fn(&Submission) -> uuid::Uuid| submissions.iter().map(|s| of(s)).collect::<Vec<_>>();
        let client = self.client().await?;
        let statement = client.prepare_cached(&sql).await?;
        crash::before("admissions::admit_all");
        let rows = client
            .query(
                &statement,
                &[
                    &column(|s| s.run_id.uuid()),
                    &column(|s| s.app_id.uuid()),
                    &submissions.iter().map(|s| s.subject.as_str()).collect::<Vec<_>>(),
                    &column(|s| s.endpoint_id.uuid()),
                    &submissions.iter().map(|s| s.identity.0.as_slice()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.fingerprint.0.as_slice()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.input.as_str()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.metadata.as_str()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.queue_ttl_s).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.max_duration_s).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.traceparent.as_deref()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.queue_open).collect::<Vec<_>>(),
                    &column(|_| EventId::new().uuid()),
                    &submissions.iter().map(|s| s.draft.as_ref().map(|draft| draft.0.as_slice())).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.output.as_deref()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| s.checked_version_column()).collect::<Vec<_>>(),
                    &files,
                    &runs_of_files,
                    &submissions.iter().map(|s| !s.files.is_empty()).collect::<Vec<_>>(),
                    &submissions.iter().map(|s| i16::from(s.depth)).collect::<Vec<_>>(),
                ],
            )
            .await?;
        crash::after("admissions::admit_all");
        client.give_back();
        let mut admissions = Vec::with_capacity(rows.len());
        for (row, submission) in rows.iter().zip(submissions) {
            admissions.push(match judged(row, submission)? {
                Some(admission) => admission,
                None => self.look_again(submission).await?,
            });
        }
        Ok(admissions)
    }

    /// Another submission of the same identity was admitted beside this one.
    async fn look_again(&self, submission: &Submission) -> Result<Admission, Error> {
        let sql = "-- admissions::look_again
            SELECT run_id, fingerprint FROM runs WHERE identity = $1";
        let row = self.durable_one(sql, &[&submission.identity.0.as_slice()]).await?;
        Ok(Admission::Known {
            run_id: RunId::from(row.try_get::<_, uuid::Uuid>(0)?),
            fingerprint: digest(row.try_get(1)?)?,
        })
    }
}

/// The statement's decision; `None` when a twin was faster.
fn judged(row: &Row, submission: &Submission) -> Result<Option<Admission>, Error> {
    if let Some(run_id) = row.try_get::<_, Option<uuid::Uuid>>(0)? {
        return Ok(Some(Admission::Known { run_id: run_id.into(), fingerprint: digest(row.try_get(1)?)? }));
    }
    let Some(access_enabled) = row.try_get::<_, Option<bool>>(2)? else {
        return Ok(Some(Admission::NoSuchEndpoint));
    };
    match word(row.try_get(8)?)? {
        EndpointLife::Unpublished => return Ok(Some(Admission::NoSuchEndpoint)),
        EndpointLife::Closed => return Ok(Some(Admission::Disabled)),
        _ if !access_enabled => return Ok(Some(Admission::Paused)),
        EndpointLife::Disabled => return Ok(Some(Admission::ServiceDisabled)),
        EndpointLife::Open => {}
    }
    if !submission.queue_open {
        return Ok(Some(Admission::QueueFull));
    }
    if !row.try_get::<_, bool>("takes_output")? {
        return Ok(Some(Admission::OutputNotTaken));
    }
    if !row.try_get::<_, bool>("takes_files")? {
        return Ok(Some(Admission::FilesNotTaken));
    }
    if row.try_get("file_gone")? {
        return Ok(Some(Admission::FileGone));
    }
    if let Some(schema) = InputSchema::of(row)? {
        return Ok(Some(Admission::Unchecked(schema)));
    }
    let Some(created_at) = row.try_get::<_, Option<jiff::Timestamp>>(6)? else {
        return Ok(None);
    };
    Ok(Some(Admission::Accepted(AcceptedRun {
        created_at: created_at.into(),
        queue_expires_at: row.try_get::<_, jiff::Timestamp>(7)?.into(),
        endpoint_version: row.try_get::<_, i32>(3)?.unsigned_abs(),
        device_id: row.try_get::<_, uuid::Uuid>(4)?.into(),
        presence: word(row.try_get(5)?)?,
        service_output: json(row, "service_output")?,
        conversation_position: None,
    })))
}
