//! Counts of a device's runs: written when runs are accepted (`migrations/0010`) and when they end (`migrations/0023`);
//! only runs that were started and have not ended are read.

use std::collections::BTreeMap;

use deskgate_protocol::management::AttentionCounts;
use deskgate_protocol::run::RunState;
use deskgate_protocol::{ApplicationId, DeviceId, Timestamp};
use tokio_postgres::{IsolationLevel, Transaction};

use super::columns::{count, word};
use super::{Error, Store, with_timeout};

/// The counts of a device's runs at one moment of the database.
#[derive(Clone, Debug)]
pub struct RunNumbers {
    /// The moment.
    pub at: Timestamp,
    /// The first hour of the last 24.
    pub first_hour: Timestamp,
    /// The first day of the last 7.
    pub first_day: Timestamp,
    /// Runs that wait for a start.
    pub waiting: u32,
    /// Runs that were started and have not ended.
    pub in_progress: u32,
    /// What waits for the person at the desktop.
    pub needs: AttentionCounts,
    /// Runs by the hour in which they were accepted, and their application.
    pub accepted: BTreeMap<(ApplicationId, Timestamp), u32>,
    /// Runs by the hour in which they left the queue.
    pub left: BTreeMap<Timestamp, u32>,
    /// Runs by the day and the state in which they ended.
    pub ended: Vec<(Timestamp, RunState, u32)>,
    /// Runs by the day in which they ended and the bucket of the time they took.
    pub took: BTreeMap<Timestamp, BTreeMap<i32, u32>>,
    /// The applications that were not removed, oldest first, each with its last call.
    pub applications: Vec<(ApplicationId, Option<Timestamp>)>,
}

/// How long counts are kept: a day longer than they are shown.
const COUNT_RETENTION: &str = "8 days";

/// The part of every statement that accepts runs which counts them, from `a (device_id, app_id, created_at)`, grouped
/// by these. Each is of the moment of the statement, so there is one group for each application.
pub(super) const INSERT_COUNT_SQL: &str =
    "INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
    SELECT a.device_id, unnest(ARRAY['accepted', 'open']),
        unnest(ARRAY[date_trunc('hour', a.created_at, 'UTC'), 'epoch']), a.app_id, 0, pg_backend_pid(), count(*)";
/// The end of that part.
pub(super) const ADD_COUNT_SQL: &str = "ON CONFLICT (device_id, what, began_at, app_id, bucket, writer)
    DO UPDATE SET count = c.count + excluded.count";

impl Store {
    /// The counts of a device's runs.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn numbers(&self, device_id: DeviceId) -> Result<RunNumbers, Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            // One snapshot for all, so that a run is counted exactly once.
            let building = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
            let transaction = building.start().await?;
            let sql = "-- counts::moment
                SELECT now(), date_trunc('hour', now(), 'UTC') - interval '23 hours',
                    date_trunc('day', now(), 'UTC') - interval '6 days'";
            let row = transaction.query_one(sql, &[]).await?;
            let moment = |column| row.try_get::<_, jiff::Timestamp>(column).map(Timestamp::from);
            let mut numbers = RunNumbers {
                at: moment(0)?,
                first_hour: moment(1)?,
                first_day: moment(2)?,
                waiting: 0,
                in_progress: 0,
                needs: AttentionCounts::default(),
                accepted: BTreeMap::new(),
                left: BTreeMap::new(),
                ended: Vec::new(),
                took: BTreeMap::new(),
                applications: Vec::new(),
            };
            numbers.add_counted(&transaction, device_id).await?;
            numbers.add_started(&transaction, device_id).await?;
            numbers.add_applications(&transaction, device_id).await?;
            transaction.commit().await?;
            client.give_back();
            Ok(numbers)
        })
        .await
    }

    /// Deletes counts that are no longer shown. Returns how many rows.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_counts(&self) -> Result<usize, Error> {
        let sql = format!(
            "-- counts::forget
            DELETE FROM run_counts WHERE began_at < now() - interval '{COUNT_RETENTION}' AND what <> 'open' RETURNING 1"
        );
        Ok(self.durable_rows(&sql, &[]).await?.len())
    }

    /// Adds up permanent counts of connections that have ended. Returns how many rows that saved.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn fold_counts(&self) -> Result<usize, Error> {
        let sql = format!(
            "-- counts::fold
            WITH gone AS (
                DELETE FROM run_counts c WHERE what = 'open' AND writer <> 0
                    AND NOT EXISTS (SELECT FROM pg_stat_activity p WHERE p.pid = c.writer)
                RETURNING *
            ), folded AS (
                INSERT INTO run_counts AS c (device_id, what, began_at, app_id, bucket, writer, count)
                SELECT device_id, what, began_at, app_id, bucket, 0, sum(count) FROM gone
                GROUP BY device_id, what, began_at, app_id, bucket {ADD_COUNT_SQL}
            )
            SELECT FROM gone"
        );
        Ok(self.durable_rows(&sql, &[]).await?.len())
    }
}

impl RunNumbers {
    /// Adds the stored counts.
    async fn add_counted(&mut self, transaction: &Transaction<'_>, device_id: DeviceId) -> Result<(), Error> {
        let sql = "-- counts::counted
            SELECT what, began_at, CASE what WHEN 'accepted' THEN app_id END AS app_id, bucket, sum(count) AS count
            FROM run_counts WHERE device_id = $1 AND what = ANY($2) AND began_at >= $3 GROUP BY 1, 2, 3, 4";
        let states: Vec<_> = RunState::ALL.iter().filter(|state| state.successors().is_empty()).collect();
        let daily: Vec<_> = states.iter().map(|state| state.as_str()).chain(["took"]).collect();
        let epoch = jiff::Timestamp::UNIX_EPOCH;
        for (what, since) in
            [(vec!["open"], epoch), (vec!["accepted", "left"], self.first_hour.0), (daily, self.first_day.0)]
        {
            for row in transaction.query(sql, &[&device_id.uuid(), &what, &since]).await? {
                let (began_at, count) = (Timestamp(row.try_get("began_at")?), count(&row, "count")?);
                match row.try_get("what")? {
                    "open" => self.waiting += count,
                    "accepted" => {
                        let app_id = row.try_get::<_, Option<uuid::Uuid>>("app_id")?.unwrap_or_default();
                        *self.accepted.entry((app_id.into(), began_at)).or_default() += count;
                    }
                    "left" => *self.left.entry(began_at).or_default() += count,
                    "took" => {
                        *self.took.entry(began_at).or_default().entry(row.try_get("bucket")?).or_default() += count
                    }
                    state => self.ended.push((began_at, word(state)?, count)),
                }
            }
        }
        Ok(())
    }

    /// Runs that were started and have not ended. The other open runs wait.
    async fn add_started(&mut self, transaction: &Transaction<'_>, device_id: DeviceId) -> Result<(), Error> {
        let sql = "-- counts::started
            SELECT state, date_trunc('hour', started_at, 'UTC') AS left, count(*) AS count, min((
                SELECT max(e.created_at) FROM run_events e
                WHERE r.state LIKE 'awaiting%' AND e.run_id = r.run_id AND e.type = 'run.' || r.state)) AS since
            FROM runs r
            WHERE device_id = $1
                AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')
            GROUP BY 1, 2";
        for row in transaction.query(sql, &[&device_id.uuid()]).await? {
            let (state, count): (RunState, u32) = (word(row.try_get("state")?)?, count(&row, "count")?);
            let moment = |column| row.try_get::<_, Option<jiff::Timestamp>>(column).map(|at| at.map(Timestamp::from));
            if let Some(left) = moment("left")?.filter(|left| *left >= self.first_hour) {
                *self.left.entry(left).or_default() += count;
            }
            self.in_progress += count;
            self.waiting = self.waiting.saturating_sub(count);
            let since = moment("since")?;
            let older = |known: Option<Timestamp>| [known, since].into_iter().flatten().min();
            match state {
                RunState::AwaitingApproval => {
                    self.needs.approvals += count;
                    self.needs.oldest_approval_at = older(self.needs.oldest_approval_at);
                }
                RunState::AwaitingReconciliation => {
                    self.needs.reconciliations += count;
                    self.needs.oldest_reconciliation_at = older(self.needs.oldest_reconciliation_at);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn add_applications(&mut self, transaction: &Transaction<'_>, device_id: DeviceId) -> Result<(), Error> {
        let sql = "-- counts::applications
            SELECT app_id, (SELECT max(last_used_at) FROM application_keys k WHERE k.app_id = a.app_id) AS last_call_at
            FROM applications a WHERE device_id = $1 AND state <> 'removed' ORDER BY created_at, app_id";
        for row in transaction.query(sql, &[&device_id.uuid()]).await? {
            let last_call_at = row.try_get::<_, Option<jiff::Timestamp>>("last_call_at")?.map(Into::into);
            self.applications.push((row.try_get::<_, uuid::Uuid>("app_id")?.into(), last_call_at));
        }
        Ok(())
    }
}
