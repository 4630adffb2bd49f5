//! Restores a dump, and fences the runs that it shows as open.
//!
//! A backup is older than the present. Runs that it shows as queued or running may have been executed since, by a
//! device that reported to a database which is gone. So none of them is offered again by itself: every run that had not
//! ended awaits reconciliation, and is fenced. One that had not begun is queued again once its device, with the journal that
//! it had then, says that it never had it ([`super::super::recalls`]). Sessions and attempts get numbers that were never used before, so that neither
//! a gateway that was frozen nor a device that still holds such a run can write to it.

use std::path::Path;
use std::time::Duration;

use deskgate_protocol::run::EventType;
use serde_json::json;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::limited::LimitedAccount;
use super::{BackupContents, BackupError, load, programs};
use crate::store::Database;
use crate::store::migrate::{self, REPLACED_SCHEMA, SchemaStatus};
use crate::store::operations::FIRST_RESTORED_ATTEMPT;

/// How long the sessions of a gateway that has ended may stay.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The first migration in which a device's journal is noted.
const FIRST_WITH_JOURNALS: i32 = 21;

/// The result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Runs with an unknown outcome.
    pub in_doubt: u64,
}

/// Sessions of other gateways in this database.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub(super) async fn in_use(client: &Client) -> Result<i64, BackupError> {
    let sql = "-- backup::in_use
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND application_name IN ('deskgate-gateway', 'deskgate-gateway listen')";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// The same, once the sessions of a gateway that has just ended are gone: the server notices that a moment later.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn still_in_use(client: &Client) -> Result<i64, BackupError> {
    let end = Instant::now() + CLOSE_TIMEOUT;
    loop {
        let sessions = in_use(client).await?;
        if sessions == 0 || Instant::now() >= end {
            return Ok(sessions);
        }
        tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
    }
}

/// Whether a database has no tables.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn is_empty(client: &Client) -> Result<bool, BackupError> {
    Ok(super::count(client).await?.is_empty())
}

/// Restores the data of a dump with these contents in place of the current data, and settles open work, unless nothing
/// happened since (`unchanged`). The schema is this program's own, at the dump's migration; an account that can only own
/// tables makes and fills it. After an error the old state stays. While this is under way, and after an
/// interruption, no gateway starts on the database; another restore then goes on from the data that was there first.
///
/// # Errors
/// [`BackupError::NoProgram`]: there is no `pg_restore` of the server's version or a newer one.
/// [`BackupError::Program`]: it fails, such as for a damaged dump. [`BackupError::Io`]: it cannot be started.
/// [`BackupError::Privileged`]: there is no limited account. [`BackupError::Foreign`], [`BackupError::CutOff`] and
/// [`BackupError::Rows`]: the dump holds something else than its rows, less, or other ones. [`BackupError::Schema`]: a
/// newer or another program migrated what was restored. [`BackupError::Store`]: the database
/// does not answer, or refuses a statement; also while the old state is put back, or after the restore while it is
/// deleted: then the database stays half restored.
pub async fn restore(
    database: &Database,
    dump: &Path,
    contents: &BackupContents,
    unchanged: bool,
) -> Result<RestoreReport, BackupError> {
    let (client, _driver) = database.connect().await?;
    let major: i32 =
        client.query_one("SELECT current_setting('server_version_num')::int / 10000", &[]).await?.try_get(0)?;
    let program = programs::find("pg_restore", major.unsigned_abs())?;
    let account = LimitedAccount::find(database, &client).await?;
    let restored = replace(&client, &account, &program, dump, contents, unchanged).await;
    account.leave(&client).await;
    restored
}

async fn replace(
    client: &Client,
    account: &LimitedAccount,
    program: &Path,
    dump: &Path,
    contents: &BackupContents,
    unchanged: bool,
) -> Result<RestoreReport, BackupError> {
    let aside = match migrate::is_half_restored(client).await? {
        // Waits for sessions that still write there.
        true => "DROP SCHEMA public CASCADE".to_owned(),
        false => format!("ALTER SCHEMA public RENAME TO {REPLACED_SCHEMA}"),
    };
    let own = account.authorization();
    client.batch_execute(&format!("BEGIN; {aside}; CREATE SCHEMA public{own}; COMMIT")).await?;
    let restored = async {
        load::load(&account.database, program, dump, contents.migration).await?;
        account.hand_over(client).await?;
        match migrate::compared(client).await? {
            SchemaStatus::Current | SchemaStatus::Behind { .. } => {}
            SchemaStatus::Ahead { applied } => {
                return Err(migrate::MigrateError::Ahead { applied, known: migrate::newest() }.into());
            }
        }
        if unchanged { Ok(RestoreReport { in_doubt: 0 }) } else { settle(client, contents).await }
    };
    match restored.await {
        Ok(restored) => {
            client.batch_execute(&format!("DROP SCHEMA {REPLACED_SCHEMA} CASCADE")).await?;
            Ok(restored)
        }
        Err(error) => {
            let back =
                format!("BEGIN; DROP SCHEMA public CASCADE; ALTER SCHEMA {REPLACED_SCHEMA} RENAME TO public; COMMIT");
            client.batch_execute(&back).await?;
            Err(error)
        }
    }
}

/// Fences all open runs in one commit.
async fn settle(client: &Client, contents: &BackupContents) -> Result<RestoreReport, BackupError> {
    let taken_at = contents.taken_at;
    let sql = "-- backup::fence_sessions
        WITH fenced AS (
            UPDATE devices SET epoch = epoch + $4, connected_epoch = NULL, asleep_since = NULL, lease_expires_at = now()
        ), doubtful AS (
            UPDATE runs SET state = 'awaiting_reconciliation', attempt = attempt + $3, offered_until = NULL, device_seq = 0,
                last_sequence = last_sequence + 1
            WHERE finished_at IS NULL RETURNING run_id, last_sequence)
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, last_sequence, gen_random_uuid(), $1, $2::text::json FROM doubtful";
    let reason = format!(
        "the gateway was restored from a backup of {taken_at}, in which this run had not ended; what became of it since \
         is not known here"
    );
    let (kind, data) = (EventType::RunAwaitingReconciliation.as_str(), json!({ "reason": reason }).to_string());
    let sessions = i64::from(FIRST_RESTORED_ATTEMPT);
    // Older backups do not say which journal a device had.
    if contents.migration >= FIRST_WITH_JOURNALS {
        client.execute("UPDATE devices SET restored_journal_id = journal_id -- backup::note_journals", &[]).await?;
    }
    let in_doubt = client.execute(sql, &[&kind, &data, &FIRST_RESTORED_ATTEMPT, &sessions]).await?;
    Ok(RestoreReport { in_doubt })
}
