//! Numbers of a device's runs: counted when they end (`migrations/0008`), and looked at until then.

use std::collections::BTreeMap;

use deskgate_protocol::management::Needs;
use deskgate_protocol::run::RunState;
use deskgate_protocol::{ApplicationId, DeviceId, Timestamp};
use tokio_postgres::{IsolationLevel, Transaction};

use super::applications::count;
use super::runs::word;
use super::{Error, Store, patiently};

/// What one moment of the database knows of a device's runs.
#[derive(Clone, Debug)]
pub struct Numbers {
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
    /// What waits for the person.
    pub needs: Needs,
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

/// How long counts are kept: a day longer than anybody looks back.
const KEPT: &str = "8 days";

impl Store {
    /// The numbers of a device's runs.
    pub async fn numbers(&self, device_id: DeviceId) -> Result<Numbers, Error> {
        patiently(async {
            let mut client = self.client().await?;
            // One view of everything, so that no run is counted twice, or not at all.
            let building = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
            let transaction = building.start().await?;
            let sql = "-- counts::moment
                SELECT now(), date_trunc('hour', now(), 'UTC') - interval '23 hours',
                    date_trunc('day', now(), 'UTC') - interval '6 days'";
            let row = transaction.query_one(sql, &[]).await?;
            let moment = |column| row.try_get::<_, jiff::Timestamp>(column).map(Timestamp::from);
            let mut numbers = Numbers {
                at: moment(0)?,
                first_hour: moment(1)?,
                first_day: moment(2)?,
                waiting: 0,
                in_progress: 0,
                needs: Needs::default(),
                accepted: BTreeMap::new(),
                left: BTreeMap::new(),
                ended: Vec::new(),
                took: BTreeMap::new(),
                applications: Vec::new(),
            };
            numbers.add_counted(&transaction, device_id).await?;
            numbers.add_unfinished(&transaction, device_id).await?;
            numbers.add_applications(&transaction, device_id).await?;
            transaction.commit().await?;
            client.give_back();
            Ok(numbers)
        })
        .await
    }

    /// Forgets counts that nobody looks at any more. Returns how many rows.
    pub async fn forget_counts(&self) -> Result<usize, Error> {
        let sql = format!(
            "-- counts::forget
            DELETE FROM run_counts WHERE began_at < now() - interval '{KEPT}' RETURNING 1"
        );
        Ok(self.durable_rows(&sql, &[]).await?.len())
    }
}

impl Numbers {
    /// Runs that have ended.
    async fn add_counted(&mut self, transaction: &Transaction<'_>, device_id: DeviceId) -> Result<(), Error> {
        let sql = "-- counts::counted
            SELECT what, began_at, CASE what WHEN 'accepted' THEN app_id END AS app_id, bucket, sum(count) AS count
            FROM run_counts WHERE device_id = $1 AND what = ANY($2) AND began_at >= $3 GROUP BY 1, 2, 3, 4";
        let states: Vec<_> = RunState::ALL.iter().filter(|state| state.successors().is_empty()).collect();
        let daily: Vec<_> = states.iter().map(|state| state.as_str()).chain(["took"]).collect();
        for (what, since) in [(vec!["accepted", "left"], self.first_hour), (daily, self.first_day)] {
            for row in transaction.query(sql, &[&device_id.uuid(), &what, &since.0]).await? {
                let (began_at, count) = (Timestamp(row.try_get("began_at")?), count(&row, "count")?);
                match row.try_get("what")? {
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

    /// Runs that have not.
    async fn add_unfinished(&mut self, transaction: &Transaction<'_>, device_id: DeviceId) -> Result<(), Error> {
        let sql = "-- counts::unfinished
            SELECT app_id, state, date_trunc('hour', created_at, 'UTC') AS accepted,
                date_trunc('hour', started_at, 'UTC') AS left, count(*) AS count, min(since) AS since
            FROM (
                SELECT app_id, state, created_at, started_at, NULL::timestamptz AS since FROM runs
                WHERE device_id = $1 AND state = 'queued' AND offered_until IS NULL
                UNION ALL
                SELECT app_id, state, created_at, started_at, NULL FROM runs
                WHERE device_id = $1 AND offered_until IS NOT NULL
                UNION ALL
                SELECT app_id, state, created_at, started_at, (
                    SELECT max(e.created_at) FROM run_events e
                    WHERE r.state LIKE 'awaiting%' AND e.run_id = r.run_id AND e.type = 'run.' || r.state)
                FROM runs r
                WHERE device_id = $1
                    AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')) u
            GROUP BY 1, 2, 3, 4";
        for row in transaction.query(sql, &[&device_id.uuid()]).await? {
            let (state, count): (RunState, u32) = (word(row.try_get("state")?)?, count(&row, "count")?);
            let moment = |column| row.try_get::<_, Option<jiff::Timestamp>>(column).map(|at| at.map(Timestamp::from));
            let (accepted, left) = (Timestamp(row.try_get("accepted")?), moment("left")?);
            if accepted >= self.first_hour {
                let app_id = row.try_get::<_, uuid::Uuid>("app_id")?.into();
                *self.accepted.entry((app_id, accepted)).or_default() += count;
            }
            if let Some(left) = left.filter(|left| *left >= self.first_hour) {
                *self.left.entry(left).or_default() += count;
            }
            let since = moment("since")?;
            let older = |known: Option<Timestamp>| [known, since].into_iter().flatten().min();
            match state {
                RunState::Queued => self.waiting += count,
                _ => self.in_progress += count,
            }
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
