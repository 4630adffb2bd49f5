//! The schema: embedded, append-only, numbered, applied under one advisory lock.

use deskgate_protocol::canonical::Sha256Digest;
use tokio_postgres::Client;

use super::Error;
use deskgate_program::crash;

/// One migration.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Counted from 1 without gaps.
    pub version: i32,
    /// Its purpose, from its file's name.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

/// Every migration, oldest first.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "first_line", sql: include_str!("../../migrations/0001_first_line.sql") },
    Migration { version: 2, name: "conversations", sql: include_str!("../../migrations/0002_conversations.sql") },
    Migration { version: 3, name: "lists_and_keys", sql: include_str!("../../migrations/0003_lists_and_keys.sql") },
    Migration { version: 4, name: "sleep", sql: include_str!("../../migrations/0004_sleep.sql") },
    Migration { version: 5, name: "certificates", sql: include_str!("../../migrations/0005_certificates.sql") },
    Migration { version: 6, name: "approvals", sql: include_str!("../../migrations/0006_approvals.sql") },
    Migration { version: 7, name: "application_life", sql: include_str!("../../migrations/0007_application_life.sql") },
    Migration { version: 8, name: "run_counts", sql: include_str!("../../migrations/0008_run_counts.sql") },
    Migration { version: 9, name: "activity", sql: include_str!("../../migrations/0009_activity.sql") },
    Migration { version: 10, name: "open_counts", sql: include_str!("../../migrations/0010_open_counts.sql") },
    Migration { version: 11, name: "callbacks", sql: include_str!("../../migrations/0011_callbacks.sql") },
    Migration { version: 12, name: "webhooks", sql: include_str!("../../migrations/0012_webhooks.sql") },
    Migration { version: 13, name: "administrator", sql: include_str!("../../migrations/0013_administrator.sql") },
    Migration { version: 14, name: "own_deliveries", sql: include_str!("../../migrations/0014_own_deliveries.sql") },
    Migration { version: 15, name: "accounts", sql: include_str!("../../migrations/0015_accounts.sql") },
    Migration { version: 16, name: "host_keys", sql: include_str!("../../migrations/0016_host_keys.sql") },
    Migration { version: 17, name: "reoffered", sql: include_str!("../../migrations/0017_reoffered.sql") },
    Migration { version: 18, name: "model_outages", sql: include_str!("../../migrations/0018_model_outages.sql") },
    Migration { version: 19, name: "receipts", sql: include_str!("../../migrations/0019_receipts.sql") },
    Migration { version: 20, name: "run_content", sql: include_str!("../../migrations/0020_run_content.sql") },
    Migration { version: 21, name: "restarts", sql: include_str!("../../migrations/0021_restarts.sql") },
    Migration { version: 22, name: "run_queue", sql: include_str!("../../migrations/0022_run_queue.sql") },
    Migration {
        version: 23,
        name: "statement_triggers",
        sql: include_str!("../../migrations/0023_statement_triggers.sql"),
    },
    Migration {
        version: 24,
        name: "delivery_triggers",
        sql: include_str!("../../migrations/0024_delivery_triggers.sql"),
    },
    Migration { version: 25, name: "service_life", sql: include_str!("../../migrations/0025_service_life.sql") },
    Migration { version: 26, name: "invitations", sql: include_str!("../../migrations/0026_invitations.sql") },
    Migration { version: 27, name: "draft_trials", sql: include_str!("../../migrations/0027_draft_trials.sql") },
    Migration { version: 28, name: "invited_tokens", sql: include_str!("../../migrations/0028_invited_tokens.sql") },
    Migration { version: 29, name: "typed_data", sql: include_str!("../../migrations/0029_typed_data.sql") },
    Migration { version: 30, name: "files", sql: include_str!("../../migrations/0030_files.sql") },
    Migration {
        version: 31,
        name: "waiting_messages",
        sql: include_str!("../../migrations/0031_waiting_messages.sql"),
    },
    Migration {
        version: 32,
        name: "unkeyed_requests",
        sql: include_str!("../../migrations/0032_unkeyed_requests.sql"),
    },
    Migration {
        version: 33,
        name: "callback_formats",
        sql: include_str!("../../migrations/0033_callback_formats.sql"),
    },
    Migration { version: 34, name: "mcp", sql: include_str!("../../migrations/0034_mcp.sql") },
];

/// An advisory lock number that is used for nothing else in this database.
const MIGRATION_LOCK_ID: i64 = 0x6465_736b_6761_7465;

/// The state of the database's schema, compared with this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaStatus {
    /// The schema is current.
    Current,
    /// These versions are still to be applied.
    Behind {
        /// The database's newest version.
        applied: i32,
    },
    /// A newer program migrated it.
    Ahead {
        /// The database's newest version.
        applied: i32,
    },
}

/// What can be wrong with a database's schema.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A migration this program knows was applied with other contents.
    #[error(
        "migration {version} of this database is not the one this program carries; the database belongs to another program or was changed by hand"
    )]
    Changed {
        /// The migration's number.
        version: i32,
    },
    /// A newer program migrated it.
    #[error("the database is at migration {applied}, this program only knows {known}: upgrade this program")]
    Ahead {
        /// The database's newest version.
        applied: i32,
        /// The program's newest version.
        known: i32,
    },
    /// A restore into this database was interrupted.
    #[error(
        "a backup was being restored into this database, and that was cut off: run `deskgate-gateway backup restore FOLDER` again"
    )]
    HalfRestored,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The newest migration of this program.
pub fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// Holds a database's old tables until a backup that is restored there is complete and its open runs are fenced.
pub(super) const REPLACED_SCHEMA: &str = "deskgate_replaced";

/// Whether old tables are kept there: then no data in this database may be used.
pub(super) async fn is_half_restored(client: &Client) -> Result<bool, Error> {
    let sql = "SELECT to_regnamespace($1) IS NOT NULL";
    Ok(client.query_one(sql, &[&REPLACED_SCHEMA]).await?.try_get(0)?)
}

/// Compares the database with this program and checks the digests of applied migrations.
///
/// # Errors
/// [`MigrateError::HalfRestored`]: a restore was interrupted. [`MigrateError::Changed`]: an applied migration is not
/// this program's. [`MigrateError::Store`]: the database does not answer, or refuses the statement.
pub async fn schema_status(client: &Client) -> Result<SchemaStatus, MigrateError> {
    if is_half_restored(client).await? {
        return Err(MigrateError::HalfRestored);
    }
    compared(client).await
}

/// The same for a database that is being restored.
pub(super) async fn compared(client: &Client) -> Result<SchemaStatus, MigrateError> {
    let exists: bool = client.query_one("SELECT to_regclass('deskgate_migrations') IS NOT NULL", &[]).await?.get(0);
    if !exists {
        return Ok(SchemaStatus::Behind { applied: 0 });
    }
    let rows = client.query("SELECT version, sha256 FROM deskgate_migrations ORDER BY version", &[]).await?;
    for row in &rows {
        let (version, sha256): (i32, String) = (row.get(0), row.get(1));
        let ours = MIGRATIONS.iter().find(|migration| migration.version == version);
        if ours.is_some_and(|migration| digest(migration) != sha256) {
            return Err(MigrateError::Changed { version });
        }
    }
    let applied = rows.last().map_or(0, |row| row.get(0));
    Ok(match applied.cmp(&newest()) {
        std::cmp::Ordering::Less => SchemaStatus::Behind { applied },
        std::cmp::Ordering::Equal => SchemaStatus::Current,
        std::cmp::Ordering::Greater => SchemaStatus::Ahead { applied },
    })
}

/// Applies missing migrations, each in its own transaction. Several programs may try at once: the lock lets one work
/// and the others find it done. Returns the versions applied now.
///
/// # Errors
/// [`MigrateError::HalfRestored`]: a restore was interrupted. [`MigrateError::Changed`]: an applied migration is not
/// this program's. [`MigrateError::Ahead`]: a newer program migrated the database. [`MigrateError::Store`]: the
/// database does not answer, or refuses a statement; migrations before that one stay applied.
pub async fn run(client: &mut Client) -> Result<Vec<i32>, MigrateError> {
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK_ID]).await?;
    let result = apply_missing(client).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK_ID]).await?;
    result
}

async fn apply_missing(client: &mut Client) -> Result<Vec<i32>, MigrateError> {
    let applied = match schema_status(client).await? {
        SchemaStatus::Current => return Ok(Vec::new()),
        SchemaStatus::Ahead { applied } => return Err(MigrateError::Ahead { applied, known: newest() }),
        SchemaStatus::Behind { applied } => applied,
    };
    apply(client, |version| version > applied).await
}

/// Makes the schema of a version in an empty schema.
///
/// # Errors
/// The database does not answer, or refuses a statement.
pub(super) async fn apply_up_to(client: &mut Client, newest: i32) -> Result<(), MigrateError> {
    apply(client, |version| version <= newest).await.map(drop)
}

/// Applies the chosen migrations, and returns their versions.
async fn apply(client: &mut Client, is_chosen: impl Fn(i32) -> bool) -> Result<Vec<i32>, MigrateError> {
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS deskgate_migrations (
                version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now())",
        )
        .await?;
    let missing: Vec<_> = MIGRATIONS.iter().filter(|migration| is_chosen(migration.version)).collect();
    for migration in &missing {
        let transaction = client.transaction().await?;
        transaction.batch_execute(migration.sql).await?;
        transaction
            .execute(
                "INSERT INTO deskgate_migrations (version, name, sha256) VALUES ($1, $2, $3)",
                &[&migration.version, &migration.name, &digest(migration)],
            )
            .await?;
        crash::before("migrate::run");
        transaction.commit().await?;
        crash::after("migrate::run");
        tracing::info!(migration = migration.version, name = migration.name, "migrated");
    }
    Ok(missing.iter().map(|migration| migration.version).collect())
}

fn digest(migration: &Migration) -> String {
    Sha256Digest::of(migration.sql.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps_and_every_file_is_listed() {
        let versions: Vec<_> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=newest()).collect::<Vec<_>>());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".sql"))
            .collect();
        files.sort();
        let listed: Vec<_> = MIGRATIONS.iter().map(|m| format!("{:04}_{}.sql", m.version, m.name)).collect();
        assert_eq!(files, listed);
    }
}
