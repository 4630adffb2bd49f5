//! A device's lease: for how long its session may act, and what becomes of its runs when it was not renewed.
//!
//! A session is begun by raising the device's epoch, which is the fence of everything it does. Its lease is renewed with
//! every answered heartbeat. A lease that ran out ends no run: its started runs wait for the device, or their owner.

use std::collections::HashSet;
use std::time::Duration;

use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{DeviceId, RunId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::accounts::Account;
use super::columns::word;
use super::upkeep::MAX_BATCH_ROWS;
use super::{Error, Store, commit, with_timeout};
use crate::notify::Topic;

/// One session of one device; the fence of everything it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The device.
    pub device_id: DeviceId,
    /// The number of its session.
    pub epoch: u64,
}

impl SessionKey {
    pub(super) fn epoch_column(self) -> i64 {
        i64::try_from(self.epoch).unwrap_or(i64::MAX)
    }
}

/// A run that the device held when its new session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRun {
    /// The run.
    pub run_id: RunId,
    /// Its attempt.
    pub attempt: u32,
    /// Its stored state; `queued` means offered and not accepted.
    pub state: RunState,
    /// The device's last stored event number in this attempt.
    pub device_seq: u64,
    /// Whether a stop of it is open.
    pub stopping: bool,
    /// Whether the attempt was begun after an interrupted one, and the device has not accepted it yet.
    pub is_reoffered: bool,
}

impl Store {
    /// Begins a session: raises the epoch, which ends every older session, and takes over the runs that the device
    /// holds. `None` if the device is not paired or was revoked, or comes with another account than it was paired by: a
    /// device without an account must come without one.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn begin_session(
        &self,
        public_key: &PublicKey,
        account: Option<&Account>,
        version: &str,
        lease: Duration,
    ) -> Result<Option<(SessionKey, Vec<HeldRun>)>, Error> {
        let begun = with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            let sql = "-- leases::begin_session
                UPDATE devices SET epoch = epoch + 1, connected_epoch = epoch + 1, device_version = $2, refusal = NULL,
                    asleep_since = NULL, last_seen_at = now(), lease_expires_at = now() + make_interval(secs => $3)
                WHERE public_key = $1 AND revoked_at IS NULL AND account_issuer IS NOT DISTINCT FROM $4
                    AND account_subject IS NOT DISTINCT FROM $5
                RETURNING device_id, epoch";
            let key = public_key.to_string();
            let (issuer, subject) = account.map(|account| (&account.issuer, &account.subject)).unzip();
            let params: [&(dyn ToSql + Sync); 5] = [&key, &version, &lease.as_secs_f64(), &issuer, &subject];
            let Some(row) = transaction.query_opt(sql, &params).await? else {
                transaction.rollback().await?;
                client.give_back();
                return Ok(None);
            };
            let device_id = DeviceId::from(row.try_get::<_, uuid::Uuid>(0)?);
            let epoch: i64 = row.try_get(1)?;
            // Offered before started, each with a snapshot of its own: a start that the older session commits in
            // between is seen by the second statement, and a later one fails its fence.
            let sql = "-- leases::take_over_offered
                UPDATE runs SET epoch = $2 WHERE offered_until IS NOT NULL AND run_id = ANY (ARRAY(
                    SELECT run_id FROM run_queue WHERE device_id = $1 AND offered_until IS NOT NULL))
                RETURNING run_id, attempt, state, device_seq, false, false";
            let mut rows = transaction.query(sql, &[&device_id.uuid(), &epoch]).await?;
            let sql = "-- leases::take_over_started
                UPDATE runs r SET epoch = $2
                WHERE device_id = $1 AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')
                RETURNING run_id, attempt, state, device_seq, EXISTS (
                    SELECT FROM control_operations o WHERE o.operation_id = r.stop_operation_id AND o.completed_at IS NULL), is_reoffered";
            rows.extend(transaction.query(sql, &[&device_id.uuid(), &epoch]).await?);
            let held = rows.iter().map(held_run).collect::<Result<Vec<_>, _>>()?;
            commit(transaction, "leases::begin_session").await?;
            client.give_back();
            Ok(Some((SessionKey { device_id, epoch: epoch.unsigned_abs() }, held)))
        })
        .await?;
        if let Some((session, _)) = &begun {
            self.notifier().notify(Topic::Session(session.device_id));
        }
        Ok(begun)
    }

    /// Extends the leases of sessions, and returns those whose were. The others are no longer the newest session of
    /// their device, the device was revoked, or the lease ran out and its runs may have been given up.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn renew_sessions(&self, sessions: &[SessionKey], lease: Duration) -> Result<HashSet<SessionKey>, Error> {
        let sql = "-- leases::renew_sessions
            UPDATE devices d SET last_seen_at = now(), lease_expires_at = now() + make_interval(secs => $3)
            FROM unnest($1::uuid[], $2::bigint[]) AS s (device_id, epoch)
            WHERE d.device_id = ANY ($1) AND d.device_id = s.device_id AND d.epoch = s.epoch AND d.revoked_at IS NULL AND d.lease_expires_at > now()
            RETURNING d.device_id, d.epoch";
        let devices: Vec<_> = sessions.iter().map(|session| session.device_id.uuid()).collect();
        let epochs: Vec<_> = sessions.iter().map(|session| session.epoch_column()).collect();
        let rows = self.relaxed_rows(sql, &[&devices, &epochs, &lease.as_secs_f64()]).await?;
        rows.iter().map(session_of).collect()
    }

    /// What waits for these devices: their queues with runs that are not offered, whether they could be or not, and
    /// operations that their newest session was not sent.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn waiting_work(&self, devices: &[DeviceId]) -> Result<Vec<Topic>, Error> {
        // Lateral and limited: however long a queue is, it is one step down an index.
        let sql = "-- leases::waiting_work
            SELECT s.device_id, q.waits, o.waits
            FROM unnest($1::uuid[]) AS s (device_id) JOIN LATERAL (
                SELECT epoch FROM devices WHERE device_id = s.device_id LIMIT 1) d ON true
            LEFT JOIN LATERAL (
                SELECT true AS waits FROM run_queue
                WHERE device_id = s.device_id AND NOT awaits_turn AND offered_until IS NULL LIMIT 1) q ON true
            LEFT JOIN LATERAL (
                SELECT true AS waits FROM control_operations
                WHERE device_id = s.device_id AND completed_at IS NULL AND delivered_epoch IS DISTINCT FROM d.epoch
                LIMIT 1) o ON true
            WHERE q.waits OR o.waits";
        let devices: Vec<_> = devices.iter().map(|device_id| device_id.uuid()).collect();
        let mut waiting = Vec::new();
        for row in self.relaxed_rows(sql, &[&devices]).await? {
            let device_id = DeviceId::from(row.try_get::<_, uuid::Uuid>(0)?);
            let (queued, ordered): (Option<bool>, Option<bool>) = (row.try_get(1)?, row.try_get(2)?);
            waiting.extend(queued.map(|_| Topic::Queue(device_id)));
            waiting.extend(ordered.map(|_| Topic::Control(device_id)));
        }
        Ok(waiting)
    }

    /// Whether a session is still its device's newest, and the device not revoked.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn session_is_current(&self, session: SessionKey) -> Result<bool, Error> {
        let sql = "-- leases::session_is_current
            SELECT 1 FROM devices WHERE device_id = $1 AND epoch = $2 AND revoked_at IS NULL";
        Ok(self.durable_opt(sql, &[&session.device_id.uuid(), &session.epoch_column()]).await?.is_some())
    }

    /// The device of this session is about to sleep. The runs it started are kept from now on, see
    /// [`Store::suspend_lost_runs`]; new ones are not offered to it.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn fall_asleep(&self, session: SessionKey) -> Result<(), Error> {
        let sql = "-- leases::fall_asleep
            UPDATE devices SET asleep_since = coalesce(asleep_since, now())
            WHERE device_id = $1 AND epoch = $2 AND revoked_at IS NULL";
        self.durable_rows(sql, &[&session.device_id.uuid(), &session.epoch_column()]).await.map(drop)
    }

    /// The device of this session is awake again, takes work, and has its lease anew. A session whose lease ran out
    /// during the sleep stays ended: the next one settles its runs.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn awake(&self, session: SessionKey, lease: Duration) -> Result<(), Error> {
        let sql = "-- leases::awake
            UPDATE devices SET asleep_since = NULL, last_seen_at = now(),
                lease_expires_at = now() + make_interval(secs => $3)
            WHERE device_id = $1 AND epoch = $2 AND revoked_at IS NULL AND lease_expires_at > now()";
        let params: [&(dyn ToSql + Sync); 3] =
            [&session.device_id.uuid(), &session.epoch_column(), &lease.as_secs_f64()];
        self.durable_rows(sql, &params).await?;
        self.notifier().notify(Topic::Queue(session.device_id));
        Ok(())
    }

    /// Moves started runs of devices whose lease ran out to awaiting reconciliation. Announced sleep keeps a run for as
    /// long as its caller let it wait and execute, the waiting for approvals not counted, but not for ever. Returns how
    /// many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn suspend_lost_runs(&self) -> Result<usize, Error> {
        let sql = "-- leases::suspend_lost_runs
            WITH lost AS (
                UPDATE runs SET state = 'awaiting_reconciliation', last_sequence = last_sequence + 1
                WHERE run_id = ANY (ARRAY(SELECT r.run_id FROM runs r JOIN devices d USING (device_id)
                    WHERE r.state IN ('running', 'awaiting_approval', 'cancelling') AND d.lease_expires_at < now()
                        AND (d.asleep_since IS NULL OR greatest(r.queue_expires_at,
                            greatest(r.started_at, r.waited_until) + make_interval(secs => r.max_duration_s)) < now())
                    LIMIT $1 FOR UPDATE OF r FOR SHARE OF d SKIP LOCKED))
                RETURNING run_id, last_sequence)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, gen_random_uuid(), $2,
                '{\"reason\":\"the device was lost beyond its lease\"}' FROM lost RETURNING run_id, type";
        self.announce(sql, &[&MAX_BATCH_ROWS, &EventType::RunAwaitingReconciliation.as_str()]).await
    }

    /// Ends a session: the device is away, unless a newer session is up. Leases run on.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn end_session(&self, session: SessionKey) -> Result<(), Error> {
        let sql = "-- leases::end_session
            UPDATE devices SET connected_epoch = NULL WHERE device_id = $1 AND connected_epoch = $2";
        self.relaxed_rows(sql, &[&session.device_id.uuid(), &session.epoch_column()]).await.map(drop)
    }
}

fn held_run(row: &Row) -> Result<HeldRun, Error> {
    Ok(HeldRun {
        run_id: row.try_get::<_, uuid::Uuid>(0)?.into(),
        attempt: row.try_get::<_, i32>(1)?.unsigned_abs(),
        state: word(row.try_get(2)?)?,
        device_seq: row.try_get::<_, i64>(3)?.unsigned_abs(),
        stopping: row.try_get(4)?,
        is_reoffered: row.try_get(5)?,
    })
}

fn session_of(row: &Row) -> Result<SessionKey, Error> {
    let epoch: i64 = row.try_get("epoch")?;
    Ok(SessionKey { device_id: row.try_get::<_, uuid::Uuid>("device_id")?.into(), epoch: epoch.unsigned_abs() })
}
