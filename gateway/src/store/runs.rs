//! Reads runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deskgate_protocol::management::{MESSAGE_TEXT_CHARS, OwnConversation};
use deskgate_protocol::operation::Stop;
use deskgate_protocol::run::{Output, Phase, Run, RunLinks, RunState};
use deskgate_protocol::{ApplicationId, DeviceId, RunId, Timestamp};
use tokio_postgres::Row;

use super::columns::{json, word};
use super::devices::{PRESENCE_SQL, Presence};
use super::shared_reads::SharedReads;
use super::{Error, Store};

/// The columns of a record without input and result, which may be a megabyte each, and without its receipt.
pub(super) const RUN_SUMMARY_COLUMNS: &str =
    "r.run_id, r.endpoint_id, r.endpoint_version, r.state, r.started_at, r.restarts, NULL::json AS input,
    NULL::json AS output, NULL::json AS result, NULL::json AS artifacts, r.error, r.usage, r.metadata, NULL::bigint AS queue_position, r.awaits_turn, NULL::bigint AS conversation_position, r.last_sequence, r.created_at,
    r.queue_expires_at, r.finished_at, r.purge_at, r.conversation_id, r.generation, r.stop_operation_id,
    r.stop_requested_at, r.stop_requested_by,
    r.model_unavailable_since, NULL::text AS receipt, r.content_deleted_at";

/// A run as it is stored, with the current presence of its device.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// The record; its state is the stored one.
    pub run: Run,
    /// The device's presence.
    pub presence: Presence,
    /// Whether the model of the attempt cannot be used at the moment.
    pub model_is_unavailable: bool,
    /// Whether it waits for the messages of its conversation that came before it.
    pub awaits_turn: bool,
}

/// A run as a list of its device's owner shows it: with how its input begins, and in a conversation how its result does.
#[derive(Clone, Debug)]
pub struct RunWithText {
    /// The run, without input and result.
    pub stored: StoredRun,
    /// The beginning of its input; `None`: it was deleted.
    pub asked: Option<String>,
    /// The beginning of its result, if the list shows it and there is one.
    pub answered: Option<String>,
}

impl std::ops::Deref for RunWithText {
    type Target = StoredRun;

    fn deref(&self) -> &StoredRun {
        &self.stored
    }
}

/// The values that show whether a run has changed: its stored state, its newest event, and its device's presence.
pub type RunMark = (RunState, u64, Presence);

/// A run as a caller asks for it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RunKey {
    run_id: RunId,
    app_id: ApplicationId,
    subject: String,
}

/// Reads of runs, and of their marks, that wait for a statement.
#[derive(Clone, Default)]
pub(super) struct RunReads {
    whole: SharedReads<RunKey, Arc<Row>>,
    marks: SharedReads<RunId, Arc<Row>>,
}

/// Positions in the queue are counted up to here: a caller who polls has each of them read.
const MAX_QUEUE_POSITION: i64 = 100;

fn select(more: &str) -> String {
    format!(
        "SELECT r.*, {PRESENCE_SQL} AS presence,
            CASE WHEN r.state = 'queued' AND NOT r.awaits_turn THEN (SELECT count(*) FROM (
                SELECT FROM run_queue b WHERE b.device_id = r.device_id AND NOT b.awaits_turn AND b.offered_until IS NULL
                    AND (b.created_at, b.run_id) < (r.created_at, r.run_id) LIMIT {MAX_QUEUE_POSITION}) before)
            END AS queue_position,
            CASE WHEN r.state = 'queued' AND r.awaits_turn THEN (
                SELECT 1 + count(*) FROM run_queue b WHERE b.conversation_id = r.conversation_id AND b.awaits_turn
                    AND (b.created_at, b.run_id) < (r.created_at, r.run_id))
            END AS conversation_position
        FROM runs r JOIN devices d USING (device_id) {more}"
    )
}

impl Store {
    /// The data that the result of a device's run must have.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn output_of_run(&self, device_id: DeviceId, run_id: RunId) -> Result<Option<Output>, Error> {
        let sql = "-- runs::output
            SELECT output FROM runs WHERE run_id = $1 AND device_id = $2";
        let row = self.durable_opt(sql, &[&run_id.uuid(), &device_id.uuid()]).await?;
        row.map_or(Ok(None), |row| json(&row, "output"))
    }

    /// One run of this application and subject.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn run(&self, app_id: ApplicationId, subject: &str, run_id: RunId) -> Result<Option<StoredRun>, Error> {
        let (store, key) = (self.clone(), RunKey { run_id, app_id, subject: subject.to_owned() });
        let statement = move |keys| {
            let store = store.clone();
            async move { store.rows_of_runs(keys).await }
        };
        self.run_reads.whole.read(key, statement).await?.as_deref().map(stored_run).transpose()
    }

    /// The rows of these keys.
    async fn rows_of_runs(&self, keys: Vec<RunKey>) -> Result<HashMap<RunKey, Arc<Row>>, Error> {
        // With the limit inside, a caller's index is no way to a run.
        let of_key = select("WHERE r.run_id = k.run_id LIMIT 1");
        let sql = format!(
            "SELECT run.*, k.place FROM unnest($1::uuid[], $2::uuid[], $3::text[])
                WITH ORDINALITY AS k (run_id, app_id, subject, place) CROSS JOIN LATERAL ({of_key}) run
            WHERE run.app_id = k.app_id AND run.subject = k.subject -- runs::run"
        );
        let runs: Vec<_> = keys.iter().map(|key| key.run_id.uuid()).collect();
        let apps: Vec<_> = keys.iter().map(|key| key.app_id.uuid()).collect();
        let subjects: Vec<_> = keys.iter().map(|key| key.subject.as_str()).collect();
        let rows = self.durable_rows(&sql, &[&runs, &apps, &subjects]).await?;
        let found = |row: Row| {
            let place = usize::try_from(row.try_get::<_, i64>("place")?).unwrap_or_default();
            let key = place.checked_sub(1).and_then(|place| keys.get(place));
            let key = key.ok_or_else(|| Error::Data("a run that nobody read".to_owned()))?;
            Ok((key.clone(), Arc::new(row)))
        };
        rows.into_iter().map(found).collect()
    }

    /// Whether a run has changed is seen by its mark.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn run_mark(&self, run_id: RunId) -> Result<Option<RunMark>, Error> {
        let store = self.clone();
        let statement = move |runs| {
            let store = store.clone();
            async move { store.rows_of_marks(runs).await }
        };
        let Some(row) = self.run_reads.marks.read(run_id, statement).await? else { return Ok(None) };
        let sequence = row.try_get::<_, i64>(2)?.unsigned_abs();
        Ok(Some((word(row.try_get(1)?)?, sequence, word(row.try_get(3)?)?)))
    }

    /// The rows of these runs' marks.
    async fn rows_of_marks(&self, runs: Vec<RunId>) -> Result<HashMap<RunId, Arc<Row>>, Error> {
        let sql = format!(
            "SELECT mark.* FROM unnest($1::uuid[]) AS k (run_id) CROSS JOIN LATERAL (
                SELECT r.run_id, r.state, r.last_sequence, {PRESENCE_SQL} AS presence
                FROM runs r JOIN devices d USING (device_id) WHERE r.run_id = k.run_id LIMIT 1) mark -- runs::run_mark"
        );
        let ids: Vec<_> = runs.iter().map(|run_id| run_id.uuid()).collect();
        let found = |row: Row| Ok((row.try_get::<_, uuid::Uuid>(0)?.into(), Arc::new(row)));
        self.durable_rows(&sql, &[&ids]).await?.into_iter().map(found).collect()
    }

    /// One run of this device's applications, of any subject, with its subject.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn run_of_device(
        &self,
        device_id: DeviceId,
        run_id: RunId,
    ) -> Result<Option<(StoredRun, String)>, Error> {
        let sql = select("WHERE r.run_id = $1 AND r.device_id = $2 -- runs::run_of_device");
        let row = self.durable_opt(&sql, &[&run_id.uuid(), &device_id.uuid()]).await?;
        row.as_ref().map(run_with_subject).transpose()
    }

    /// The device of any run.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn device_of_run(&self, run_id: RunId) -> Result<Option<DeviceId>, Error> {
        let sql = "SELECT device_id FROM runs WHERE run_id = $1 -- runs::device_of_run";
        let row = self.durable_opt(sql, &[&run_id.uuid()]).await?;
        row.map(|row| Ok(row.try_get::<_, uuid::Uuid>(0)?.into())).transpose()
    }

    /// These runs of any application, in no order: for receivers that subscribed to them.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn runs_for_deliveries(&self, runs: &[RunId]) -> Result<Vec<StoredRun>, Error> {
        let sql = select("WHERE r.run_id = ANY($1) -- runs::told");
        let ids: Vec<_> = runs.iter().map(|run_id| run_id.uuid()).collect();
        self.durable_rows(&sql, &[&ids]).await?.iter().map(stored_run).collect()
    }

    /// The runs among these that are this device's, newest first, with their subjects and without positions in the queue.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn whole_runs(&self, device_id: DeviceId, runs: &[RunId]) -> Result<Vec<(StoredRun, String)>, Error> {
        let sql = format!(
            "SELECT r.*, NULL::bigint AS queue_position, NULL::bigint AS conversation_position, {PRESENCE_SQL} AS presence FROM runs r JOIN devices d USING (device_id)
            WHERE r.run_id = ANY($1) AND r.device_id = $2 ORDER BY r.run_id DESC -- runs::whole_runs"
        );
        let ids: Vec<_> = runs.iter().map(|run_id| run_id.uuid()).collect();
        let rows = self.durable_rows(&sql, &[&ids, &device_id.uuid()]).await?;
        rows.iter().map(run_with_subject).collect()
    }

    /// The newest messages of a conversation, each with the beginning of its input and its result, and without a position in
    /// the queue.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn runs_of_conversation(&self, of: &OwnConversation, limit: i64) -> Result<Vec<RunWithText>, Error> {
        // A conversation's messages are all of its application and subject.
        let sql = format!(
            "SELECT {RUN_SUMMARY_COLUMNS}, {PRESENCE_SQL} AS presence,
                left(r.input->>'text', {MESSAGE_TEXT_CHARS}) AS asked,
                left(r.result->>'text', {MESSAGE_TEXT_CHARS}) AS answered
            FROM runs r JOIN devices d USING (device_id) WHERE r.conversation_id = $1
            ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2 -- runs::runs_of_conversation"
        );
        let rows = self.durable_rows(&sql, &[&of.conversation.conversation_id.uuid(), &limit]).await?;
        rows.iter().map(run_with_text).collect()
    }

    /// How many of an application's runs wait for a start, counted up to `limit`.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn waiting_runs(&self, app_id: ApplicationId, limit: i64) -> Result<i64, Error> {
        let sql = "-- runs::waiting_runs
            SELECT count(*) FROM (
                SELECT FROM run_queue WHERE offered_until IS NULL AND app_id = $1
                    AND device_id = (SELECT device_id FROM applications WHERE app_id = $1) LIMIT $2) waiting";
        Ok(self.durable_one(sql, &[&app_id.uuid(), &limit]).await?.try_get(0)?)
    }
}

pub(super) fn run_with_text(row: &Row) -> Result<RunWithText, Error> {
    let stored = stored_run(row)?;
    let is_deleted = stored.run.content_deleted_at.is_some();
    let text = |column| -> Result<_, Error> { Ok(row.try_get::<_, Option<String>>(column)?.filter(|_| !is_deleted)) };
    Ok(RunWithText { asked: text("asked")?, answered: text("answered")?, stored })
}

fn run_with_subject(row: &Row) -> Result<(StoredRun, String), Error> {
    Ok((stored_run(row)?, row.try_get("subject")?))
}

pub(super) fn stored_run(row: &Row) -> Result<StoredRun, Error> {
    let run_id = RunId::from(row.try_get::<_, uuid::Uuid>("run_id")?);
    let state: RunState = word(row.try_get("state")?)?;
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Timestamp));
    let position = |name| -> Result<_, Error> {
        Ok(row.try_get::<_, Option<i64>>(name)?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
    };
    let content_deleted_at = moment("content_deleted_at")?;
    let has_content = content_deleted_at.is_none();
    let run = Run {
        run_id,
        endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        endpoint_version: row.try_get::<_, i32>("endpoint_version")?.unsigned_abs(),
        conversation_id: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        generation: row.try_get::<_, Option<i32>>("generation")?.map(i32::unsigned_abs),
        // Of a run of a backup, which has no start, no device is known to have started it.
        phase: match state {
            RunState::AwaitingReconciliation if moment("started_at")?.is_none() => Phase::Accepted,
            state => state.phase(),
        },
        state,
        state_reason: None,
        attempt: match row.try_get::<_, Option<jiff::Timestamp>>("started_at")? {
            Some(_) => row.try_get::<_, i32>("restarts")?.unsigned_abs() + 1,
            None => 0,
        },
        // Of deleted content empty texts are left.
        input: json(row, "input")?.filter(|_| has_content),
        output: json(row, "output")?,
        result: json(row, "result")?.filter(|_| has_content),
        artifacts: json(row, "artifacts")?.unwrap_or_default(),
        error: json(row, "error")?,
        stop: stop(row)?,
        usage: json(row, "usage")?,
        receipt: row.try_get("receipt")?,
        metadata: json::<BTreeMap<String, String>>(row, "metadata")?.unwrap_or_default(),
        queue_position: position("queue_position")?,
        conversation_position: position("conversation_position")?,
        last_sequence: row.try_get::<_, i64>("last_sequence")?.unsigned_abs(),
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        queue_expires_at: row.try_get::<_, jiff::Timestamp>("queue_expires_at")?.into(),
        started_at: moment("started_at")?,
        finished_at: moment("finished_at")?,
        purge_at: moment("purge_at")?,
        content_deleted_at,
        links: RunLinks::of(run_id),
    };
    let since: Option<jiff::Timestamp> = row.try_get("model_unavailable_since")?;
    Ok(StoredRun {
        awaits_turn: row.try_get("awaits_turn")?,
        presence: word(row.try_get("presence")?)?,
        model_is_unavailable: since.is_some(),
        run,
    })
}

fn stop(row: &Row) -> Result<Option<Stop>, Error> {
    let Some(operation_id) = row.try_get::<_, Option<uuid::Uuid>>("stop_operation_id")? else { return Ok(None) };
    Ok(Some(Stop {
        requested_at: row.try_get::<_, jiff::Timestamp>("stop_requested_at")?.into(),
        requested_by: word(row.try_get("stop_requested_by")?)?,
        operation_id: operation_id.into(),
    }))
}
