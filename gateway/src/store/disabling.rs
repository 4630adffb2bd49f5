//! The end of an application: disabled, wound up, completed, removed.
//!
//! From the commit of `begin` on, its keys are revoked for good and its services accept nothing. Submissions that were
//! being accepted in that moment are waited for; then every run is ended, or asked to stop. New work is impossible
//! afterwards, so the outstanding work only becomes less.

use std::time::Duration;

use deskgate_protocol::management::{ActivityKind, Application, DisablingPreview, RemovedApplication};
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{ApplicationId, DeviceId, RunId};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use super::activity::{self, ActivityEntry, Owner};
use super::applications::{OPEN_RESETS_SQL, UNFINISHED_RUNS_SQL, application, select};
use super::columns::count;
use super::upkeep::WAITING_FIRST;
use super::{Error, Store, commit, with_timeout};
use crate::notify::Topic;
use tokio_postgres::types::ToSql;

/// Whether run `u` still needs a stop: none was requested, or the last one ended without effect.
pub(super) const STOP_NEEDED_CONDITION: &str = "NOT EXISTS (SELECT FROM control_operations o
    WHERE o.operation_id = u.stop_operation_id AND o.completed_at IS NULL)";

/// Runs in one commit, so that none holds its locks for long.
const MAX_BATCH_RUNS: i64 = 500;
/// Commits while the caller waits; upkeep goes on with the rest.
pub(super) const MAX_ROUNDS: usize = 40;
/// How long current acceptances are waited for: as long as their callers wait, and a moment more.
const ACCEPTANCE_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between two polls.
pub(super) const ACCEPTANCE_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Store {
    /// What disabling an application of this device would end.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn preview_disabling(
        &self,
        device_id: DeviceId,
        app_id: ApplicationId,
    ) -> Result<Option<DisablingPreview>, Error> {
        let sql = format!(
            "-- disabling::preview
            SELECT app.*, (SELECT count(*) FROM endpoints e WHERE e.app_id = app.app_id AND e.closed_at IS NULL) AS services,
                (SELECT count(*) FROM conversations c WHERE c.app_id = app.app_id) AS conversations, n.*
            FROM ({}) app JOIN applications a USING (app_id) CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE u.state = 'queued') AS runs_queued,
                    count(*) FILTER (WHERE u.state <> 'queued') AS runs_in_progress FROM {UNFINISHED_RUNS_SQL} u) n",
            select("WHERE a.device_id = $1 AND a.app_id = $2")
        );
        let Some(row) = self.durable_opt(&sql, &[&device_id.uuid(), &app_id.uuid()]).await? else { return Ok(None) };
        let application = application(&row)?;
        Ok(Some(DisablingPreview {
            live_keys: application.live_keys,
            application,
            services: count(&row, "services")?,
            runs_queued: count(&row, "runs_queued")?,
            runs_in_progress: count(&row, "runs_in_progress")?,
            conversations: count(&row, "conversations")?,
        }))
    }

    /// Disables an application of this device, and completes that if nothing is outstanding. An inactive application
    /// stays as it is. `retention`: how long the runs that end by it are kept.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn disable_application(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        retention: Duration,
    ) -> Result<Option<Application>, Error> {
        if self.begin_disabling(owner, app_id).await? {
            self.complete_disabling(owner, app_id, retention).await
        } else {
            self.application(owner.device_id, app_id).await
        }
    }

    /// Revokes the keys, closes the services and marks the application, in one commit. False if it is not active.
    async fn begin_disabling(&self, owner: Owner, app_id: ApplicationId) -> Result<bool, Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            let sql = "-- disabling::begin
                UPDATE applications SET state = 'disabling', disabled_at = now(), disabled_by = $3
                WHERE device_id = $1 AND app_id = $2 AND state = 'active' RETURNING name";
            let (device, app) = (owner.device_id.uuid(), app_id.uuid());
            let Some(row) = transaction.query_opt(sql, &[&device, &app, &owner.stops_as().as_str()]).await? else {
                transaction.rollback().await?;
                client.give_back();
                return Ok(false);
            };
            activity::write(&transaction, owner, &note(app_id, ActivityKind::ApplicationDisabled, &row)?).await?;
            // Each with a snapshot of its own, behind the lock: keys and services that were created meanwhile are seen.
            let sql = "-- disabling::revoke_keys
                UPDATE application_keys SET revoked_at = now() WHERE app_id = $1 AND revoked_at IS NULL";
            transaction.execute(sql, &[&app]).await?;
            let sql = "-- disabling::close_services
                UPDATE endpoints SET closed_at = now() WHERE app_id = $1";
            transaction.execute(sql, &[&app]).await?;
            let sql = "-- disabling::close_destinations
                UPDATE destinations SET disabled_at = now(), disabled_for = 'application'
                WHERE app_id = $1 AND disabled_for IS DISTINCT FROM 'application'";
            transaction.execute(sql, &[&app]).await?;
            commit(transaction, "disabling::disable").await?;
            client.give_back();
            Ok(true)
        })
        .await
    }

    /// Winds an application of this device up, as far as that is still to be done, and completes its disabling if
    /// nothing is outstanding. Returns the state after that.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn complete_disabling(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        retention: Duration,
    ) -> Result<Option<Application>, Error> {
        self.wind_up(owner.device_id, app_id, retention).await?;
        let sql = format!(
            "-- disabling::complete
            UPDATE applications a SET state = 'disabled', completed_at = now()
            WHERE device_id = $1 AND app_id = $2 AND state = 'disabling' AND runs_told
                AND NOT EXISTS (SELECT FROM {UNFINISHED_RUNS_SQL} u) AND NOT EXISTS (SELECT FROM {OPEN_RESETS_SQL} o)
            RETURNING name"
        );
        let completed = |row: &Row| note(app_id, ActivityKind::DisablingCompleted, row).map(Some);
        self.execute_with_activity(owner, &sql, &[&owner.device_id.uuid(), &app_id.uuid()], completed).await?;
        self.application(owner.device_id, app_id).await
    }

    async fn wind_up(&self, device_id: DeviceId, app_id: ApplicationId, retention: Duration) -> Result<(), Error> {
        let sql = "-- disabling::is_to_tell
            SELECT 1 FROM applications WHERE device_id = $1 AND app_id = $2 AND state = 'disabling' AND NOT runs_told";
        let is_to_tell = self.durable_opt(sql, &[&device_id.uuid(), &app_id.uuid()]).await?.is_some();
        if !is_to_tell || !self.accepted_meanwhile().await? {
            return Ok(());
        }
        for _ in 0..MAX_ROUNDS {
            let told = self.tell_runs_of_what_ended(retention).await?;
            if told == 0 && self.note_runs_told(app_id).await? {
                break;
            }
            if told == 0 {
                // Rows that another transaction has locked were left to the next round.
                sleep(ACCEPTANCE_POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Waits until every statement that was writing runs has ended: later ones see the commits before them. A statement
    /// holds its lock on the table from before its first read until its commit. False if something takes longer than
    /// any acceptance.
    pub(super) async fn accepted_meanwhile(&self) -> Result<bool, Error> {
        let sql = "-- disabling::writers
            SELECT virtualtransaction FROM pg_locks
            WHERE locktype = 'relation' AND relation = 'runs'::regclass AND mode = 'RowExclusiveLock'
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND ($1::text[] IS NULL OR virtualtransaction = ANY($1))";
        let deadline = Instant::now() + ACCEPTANCE_TIMEOUT;
        let mut waited_for: Option<Vec<String>> = None;
        loop {
            let rows = self.durable_rows(sql, &[&waited_for]).await?;
            if rows.is_empty() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            waited_for = Some(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?);
            sleep(ACCEPTANCE_POLL_INTERVAL).await;
        }
    }

    /// Ends the runs of disabled applications and of unpublished services that had not started, and asks the others to
    /// stop. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn tell_runs_of_what_ended(&self, retention: Duration) -> Result<usize, Error> {
        let sql = format!(
            "-- disabling::tell_runs
            WITH ended AS (
                SELECT device_id, app_id, NULL::uuid AS of_service, disabled_by AS ended_by FROM applications
                WHERE state = 'disabling' AND NOT runs_told
                UNION ALL
                SELECT device_id, app_id, endpoint_id, runs_to_tell_as FROM endpoints WHERE runs_to_tell_as IS NOT NULL
            ), untold AS (
                SELECT u.run_id, a.ended_by FROM ended a CROSS JOIN LATERAL {UNFINISHED_RUNS_SQL} u
                WHERE coalesce(u.endpoint_id = a.of_service, true) AND {STOP_NEEDED_CONDITION} LIMIT $2
            ), next AS (
                SELECT run_id, ended_by, gen_random_uuid() AS operation_id FROM runs u JOIN untold USING (run_id)
                WHERE finished_at IS NULL AND awaits_turn = $5 AND {STOP_NEEDED_CONDITION}
                FOR UPDATE OF u SKIP LOCKED
            ), told AS (
                UPDATE runs r SET stop_operation_id = operation_id, stop_requested_at = now(),
                    stop_requested_by = ended_by, offered_until = NULL, last_sequence = last_sequence + 1,
                    state = CASE state WHEN 'queued' THEN 'cancelled'
                        WHEN 'awaiting_reconciliation' THEN state ELSE 'cancelling' END,
                    finished_at = CASE state WHEN 'queued' THEN now() END,
                    purge_at = CASE state WHEN 'queued' THEN now() + make_interval(secs => $1) END
                FROM next WHERE r.run_id = next.run_id
                RETURNING r.run_id, app_id, subject, endpoint_id, device_id, operation_id, ended_by, last_sequence, finished_at
            ), operations AS (
                INSERT INTO control_operations (operation_id, app_id, subject, endpoint_id, device_id, kind, run_id,
                    state, outcome, run_state, completed_at)
                SELECT operation_id, app_id, subject, endpoint_id, device_id, 'run.stop', run_id,
                    CASE WHEN finished_at IS NULL THEN 'pending' ELSE 'completed' END,
                    CASE WHEN finished_at IS NOT NULL THEN 'stopped' END,
                    CASE WHEN finished_at IS NOT NULL THEN 'cancelled' END, finished_at
                FROM told
            ), events AS (
                INSERT INTO run_events (run_id, sequence, event_id, type, data)
                SELECT run_id, last_sequence, gen_random_uuid(),
                    CASE WHEN finished_at IS NULL THEN $3 ELSE $4 END,
                    CASE WHEN finished_at IS NULL THEN json_build_object(
                        'operation_id', 'op_' || replace(operation_id::text, '-', ''), 'requested_by', ended_by)
                    ELSE json_build_object('effects', 'none') END
                FROM told)
            SELECT run_id, device_id, finished_at IS NULL FROM told"
        );
        let (cancelling, cancelled) = (EventType::RunCancelling.as_str(), EventType::RunCancelled.as_str());
        let mut rows = Vec::new();
        for awaits_turn in WAITING_FIRST {
            let params: [&(dyn ToSql + Sync); 5] =
                [&retention.as_secs_f64(), &MAX_BATCH_RUNS, &cancelling, &cancelled, &awaits_turn];
            rows.extend(self.durable_rows(&sql, &params).await?);
        }
        for row in &rows {
            self.notifier().notify(Topic::Run(RunId::from(row.try_get::<_, uuid::Uuid>(0)?)));
            if row.try_get(2)? {
                self.notifier().notify(Topic::Control(row.try_get::<_, uuid::Uuid>(1)?.into()));
            } else {
                self.metrics().run_ended(RunState::Cancelled.as_str(), None);
            }
        }
        Ok(rows.len())
    }

    async fn note_runs_told(&self, app_id: ApplicationId) -> Result<bool, Error> {
        let sql = format!(
            "-- disabling::note_runs_told
            UPDATE applications a SET runs_told = true
            WHERE app_id = $1 AND state = 'disabling' AND NOT EXISTS (SELECT FROM {UNFINISHED_RUNS_SQL} u WHERE {STOP_NEEDED_CONDITION})
            RETURNING 1"
        );
        Ok(self.durable_opt(&sql, &[&app_id.uuid()]).await?.is_some())
    }

    /// Takes a disabled application of this device off the list. Other applications stay as they are.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn remove_application(&self, owner: Owner, app_id: ApplicationId) -> Result<Option<Application>, Error> {
        let sql = "-- disabling::remove
            UPDATE applications SET state = 'removed', removed_at = now()
            WHERE device_id = $1 AND app_id = $2 AND state = 'disabled' RETURNING name";
        let removed = |row: &Row| note(app_id, ActivityKind::ApplicationRemoved, row).map(Some);
        self.execute_with_activity(owner, sql, &[&owner.device_id.uuid(), &app_id.uuid()], removed).await?;
        self.application(owner.device_id, app_id).await
    }

    /// This device's removed applications that still have records, the last removed first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn removed_applications(
        &self,
        device_id: DeviceId,
        retention: Duration,
    ) -> Result<Vec<RemovedApplication>, Error> {
        let sql = format!(
            "-- disabling::removed
            SELECT app.*, n.runs, app.completed_at + make_interval(secs => $2) AS kept_until
            FROM ({}) app CROSS JOIN LATERAL (
                SELECT count(*) AS runs FROM (SELECT FROM runs r WHERE r.app_id = app.app_id LIMIT 10000) kept) n
            WHERE n.runs > 0 OR app.completed_at + make_interval(secs => $2) > now() ORDER BY app.removed_at DESC",
            select("WHERE a.device_id = $1 AND a.state = 'removed'")
        );
        let rows = self.durable_rows(&sql, &[&device_id.uuid(), &retention.as_secs_f64()]).await?;
        let removed = rows.iter().map(|row| {
            Ok(RemovedApplication {
                application: application(row)?,
                runs: count(row, "runs")?,
                kept_until: row.try_get::<_, jiff::Timestamp>("kept_until")?.into(),
            })
        });
        removed.collect()
    }
}

fn note(app_id: ApplicationId, what: ActivityKind, row: &Row) -> Result<ActivityEntry, Error> {
    Ok(ActivityEntry { app_id: Some(app_id), what, about: None, name: row.try_get("name")? })
}
