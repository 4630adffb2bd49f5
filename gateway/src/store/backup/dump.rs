//! A dump, and the counts of its tables: both come from one snapshot of the database, while the gateway goes on.

use std::path::Path;

use deskgate_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, GenericClient, IsolationLevel};

use super::{BackupError, TableCounts, programs};
use crate::store::Database;
use crate::store::migrate::{self, SchemaStatus};

/// The contents of the database when a backup was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupContents {
    /// The time, by the database's clock.
    pub taken_at: Timestamp,
    /// The gateway's identifier.
    pub gateway_id: String,
    /// The newest migration.
    pub migration: i32,
    /// PostgreSQL's version.
    pub postgres: String,
    /// Rows by table.
    pub tables: TableCounts,
    /// Runs that had not ended.
    pub open_runs: i64,
    /// Whether the database was unused in that moment.
    pub at_rest: bool,
}

/// Writes a dump into `file`, which exists and is empty, and returns its contents.
///
/// # Errors
/// [`BackupError::NoProgram`]: there is no `pg_dump` of the server's version or a newer one. [`BackupError::Program`]:
/// it fails. [`BackupError::Io`]: it cannot be started, or the file with the address cannot be written.
/// [`BackupError::Address`]: the address does not fit into that file. [`BackupError::Schema`]: a restore was
/// interrupted, or another program migrated the database. [`BackupError::Store`]: the database does not answer, or
/// refuses a statement.
pub async fn take(database: &Database, file: &Path) -> Result<BackupContents, BackupError> {
    let (mut client, _driver) = database.connect().await?;
    let migration = match migrate::schema_status(&client).await? {
        SchemaStatus::Current => migrate::newest(),
        SchemaStatus::Behind { applied } | SchemaStatus::Ahead { applied } => applied,
    };
    let at_rest = super::in_use(&client).await? == 0;
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
    let sql = "-- backup::moment
        SELECT pg_export_snapshot(), now(), current_setting('server_version'),
            current_setting('server_version_num')::int / 10000, (SELECT gateway_id FROM gateway),
            (SELECT count(*) FROM runs WHERE finished_at IS NULL)";
    let row = transaction.query_one(sql, &[]).await?;
    let (snapshot, major): (String, i32) = (row.try_get(0)?, row.try_get(3)?);
    let contents = BackupContents {
        taken_at: row.try_get::<_, jiff::Timestamp>(1)?.into(),
        gateway_id: deskgate_protocol::GatewayId::from(row.try_get::<_, uuid::Uuid>(4)?).to_string(),
        migration,
        postgres: row.try_get(2)?,
        tables: rows_of(&transaction).await?,
        open_runs: row.try_get(5)?,
        at_rest,
    };
    let program = programs::find("pg_dump", major.unsigned_abs())?;
    let (snapshot, file) = (format!("--snapshot={snapshot}"), format!("--file={}", file.display()));
    let arguments = ["--format=custom", "--no-owner", "--no-privileges", &snapshot, &file];
    programs::run("pg_dump", &program, database, &arguments).await?;
    transaction.rollback().await?;
    Ok(contents)
}

/// Rows by table, as they are now.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn count(client: &Client) -> Result<TableCounts, BackupError> {
    rows_of(client).await
}

async fn rows_of(client: &impl GenericClient) -> Result<TableCounts, BackupError> {
    let sql = "-- backup::tables
        SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1";
    let mut tables = TableCounts::new();
    for row in client.query(sql, &[]).await? {
        let name: String = row.try_get(0)?;
        let sql = format!("SELECT count(*) FROM public.\"{}\"", name.replace('"', "\"\""));
        tables.insert(name, client.query_one(&sql, &[]).await?.try_get(0)?);
    }
    Ok(tables)
}
