//! All SQL of the gateway. Only this module names the Postgres crates.
//!
//! | file | what it holds |
//! |---|---|
//! | [`cluster`] | the private PostgreSQL cluster, when no database is configured |
//! | [`migrate`] | the schema |
//! | [`listen`] | change notifications between replicas |
//! | [`admissions`] | the shared commit that comes before every 202 |
//! | [`commit_limit`] | how many shared commits may be under way at the same time |
//! | [`runs`] [`run_list`] [`events`] | reading runs, lists of them, and their events |
//! | `shared_reads` | reads of one kind that share a statement |
//! | `page` | pages of lists |
//! | [`device_lists`] [`counts`] | a desktop user's lists and overview |
//! | [`conversations`] [`messages`] | conversations, and the runs that are their messages |
//! | [`operations`] | stops and resets: requested, delivered, confirmed |
//! | [`requests`] | results of repeated requests that made no run |
//! | [`attempts`] | devices' changes to runs: claim, start, events, finish |
//! | [`devices`] | pairing, presence, access |
//! | [`invitations`] | invitations of devices, and the devices that came with them |
//! | [`leases`] | a device's sessions and their leases; runs of a lease that ran out |
//! | [`accounts`] | devices that came with an account |
//! | [`applications`] [`endpoints`] | applications with their keys, and published services |
//! | [`quotas`] | how much a device and an account may make |
//! | [`files`] [`artifacts`] [`objects`] | files that runs are given and hand out, and where the bytes of files and artifacts are |
//! | `disabling` | the end of an application |
//! | [`disk`] | whether there is room on the disks |
//! | `connecting` `tls_mode` | connections: their encryption, and sessions that are not shared |
//! | [`destinations`] [`deliveries`] | where events are sent, and the outcome of each |
//! | `allowlist` | the hosts that callbacks may go to |
//! | [`webhooks`] [`webhook_receipts`] | incoming webhooks, and what they last received |
//! | [`activity`] | who did what to applications |
//! | [`backup`] | dumps, and fenced restores |
//! | [`upkeep`] | time-outs of offers and queue time; the end of a device |
//! | [`certificates`] | certificates of the public listener that all replicas share |
//! | [`status_counts`] | the gateway's status, for operators |
//! | [`retention`] | the deletion of ended runs |
//!
//! Time is the database's: `now()` in the statements. So a replica's clock cannot expire, order or extend anything.

pub mod accounts;
pub mod activity;
pub mod admissions;
mod allowlist;
pub mod applications;
pub mod artifacts;
pub mod attempts;
pub mod backup;
pub mod certificates;
pub mod cluster;
mod columns;
pub mod commit_limit;
mod confirmations;
mod connecting;
pub mod conversations;
pub mod counts;
pub mod deliveries;
pub mod destinations;
pub mod device_lists;
pub mod devices;
mod disabling;
pub mod disk;
pub mod endpoints;
mod error;
pub mod events;
pub mod files;
pub mod invitations;
pub mod leases;
pub mod listen;
mod lookup;
pub mod mcp_calls;
pub mod messages;
pub mod migrate;
pub mod objects;
pub mod operations;
mod page;
mod pool;
pub mod quotas;
pub mod recalls;
pub mod requests;
pub mod retention;
pub mod run_content;
pub mod run_list;
pub mod runs;
mod shared_reads;
pub mod status_counts;
mod tls_mode;
pub mod unkeyed_requests;
mod unpublishing;
pub mod upkeep;
pub mod webhook_receipts;
pub mod webhooks;

pub use error::Error;
pub use page::{Page, PagePosition};
pub(crate) use pool::clock_skew;
pub use pool::{Database, DatabaseOpenError};

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::metrics::Metrics;
use crate::notify::ChangeNotifier;
use deskgate_program::crash;

/// The database, as the rest of the gateway sees it.
#[derive(Clone)]
pub struct Store {
    /// Commits that wait for the disk.
    durable: Pool,
    /// Commits that need not: a crash may lose them without harm (claims, heartbeats).
    relaxed: Pool,
    /// Lists whose plan depends on what they are filtered by: planned each time.
    filtered: Pool,
    /// Announces changes.
    wake: ChangeNotifier,
    /// The counters.
    meters: Metrics,
    /// How much a device and an account may make.
    quotas: quotas::Quotas,
    /// The room on the disks.
    disk: disk::DiskWatch,
    /// Reads of runs that wait for a statement.
    run_reads: runs::RunReads,
}

/// The longest a caller waits for one statement before the database counts as unavailable.
const STATEMENT_TIMEOUT: Duration = Duration::from_millis(2500);

/// How often a transaction is tried again because another commit came between.
const MAX_CONFLICT_RETRIES: usize = 5;

impl Store {
    /// Whether the database answers on connections of every kind, and each has a session of its own.
    ///
    /// # Errors
    /// The database does not answer, refuses a statement, or is behind a pooler that shares sessions.
    pub async fn ping(&self) -> Result<(), Error> {
        with_timeout(async {
            let (durable, relaxed, filtered) =
                tokio::try_join!(lend(&self.durable), lend(&self.relaxed), lend(&self.filtered))?;
            connecting::refuse_shared_sessions(&durable, &relaxed).await.map_err(|error| match error {
                DatabaseOpenError::Migrate(migrate::MigrateError::Store(error)) => error,
                other => Error::Unavailable(other.to_string()),
            })?;
            for client in [durable, relaxed, filtered] {
                client.query_one(&client.prepare_cached("SELECT 1").await?, &[]).await?;
                client.give_back();
            }
            Ok(())
        })
        .await
    }

    /// The notifier of changes.
    pub fn notifier(&self) -> &ChangeNotifier {
        &self.wake
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.meters
    }

    async fn client(&self) -> Result<PooledClient, Error> {
        lend(&self.durable).await
    }

    async fn durable_rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        self.note(rows(&self.durable, sql, params).await)
    }

    async fn relaxed_rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        self.note(rows(&self.relaxed, sql, params).await)
    }

    async fn filtered_rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        self.note(rows(&self.filtered, sql, params).await)
    }

    async fn durable_opt(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error> {
        Ok(self.durable_rows(sql, params).await?.into_iter().next())
    }

    async fn durable_one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row, Error> {
        self.durable_opt(sql, params)
            .await?
            .ok_or_else(|| Error::Data("a row that is always there is missing".to_owned()))
    }
}

async fn rows(pool: &Pool, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
    with_timeout(async {
        let client = lend(pool).await?;
        let statement: Statement = client.prepare_cached(sql).await?;
        crash::before(crash::statement(sql));
        let rows = match client.query(&statement, params).await {
            Err(error) if is_of_an_older_schema(&error) => {
                client.statement_cache.remove(sql, &[]);
                client.query(&client.prepare_cached(sql).await?, params).await?
            }
            rows => rows?,
        };
        crash::after(crash::statement(sql));
        client.give_back();
        Ok(rows)
    })
    .await
}

/// Whether a statement was prepared before one of its tables got one more column: a newer program migrates while this
/// one goes on. PostgreSQL reports that instead of executing the statement, and has no code of its own for it.
fn is_of_an_older_schema(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
        && error.as_db_error().is_some_and(|answer| answer.routine() == Some("RevalidateCachedQuery"))
}

/// A pooled connection that goes back into the pool only when it is given back: an abandoned statement on it would
/// block its next user.
struct PooledClient(Option<Object>);

async fn lend(pool: &Pool) -> Result<PooledClient, Error> {
    Ok(PooledClient(Some(pool.get().await?)))
}

impl PooledClient {
    /// Returns it to the pool; the connection is idle.
    fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

impl std::ops::Deref for PooledClient {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is there until it is given back, which consumes it"))
    }
}

impl std::ops::DerefMut for PooledClient {
    fn deref_mut(&mut self) -> &mut Object {
        self.0.as_mut().unwrap_or_else(|| unreachable!("it is there until it is given back, which consumes it"))
    }
}

/// Commits a transaction, under its name in logs.
async fn commit(transaction: deadpool_postgres::Transaction<'_>, what: &str) -> Result<(), Error> {
    crash::before(what);
    transaction.commit().await?;
    crash::after(what);
    Ok(())
}

/// Gives up on a database that neither answers nor resets.
async fn with_timeout<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unavailable(format!("no answer within {} ms", STATEMENT_TIMEOUT.as_millis()))),
    }
}
