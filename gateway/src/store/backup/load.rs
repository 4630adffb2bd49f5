//! Puts a backup's data into a new schema of our own: made by the migrations, filled by rows alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use futures_util::SinkExt;
use tokio::io::{AsyncBufRead, BufReader};
use tokio_postgres::{Client, Transaction};

use super::script::{Script, TableHead, quoted};
use super::{BackupError, programs};
use crate::store::{Database, Error, migrate};

/// Bytes of rows that are sent at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first migration with a queue beside the runs.
const FIRST_WITH_QUEUE: i32 = 22;

/// The columns of each table.
type TableColumns = BTreeMap<String, BTreeSet<String>>;

/// Makes the schema of this migration in the empty schema `public`, and fills it with the dump's rows.
pub(super) async fn load(database: &Database, program: &Path, dump: &Path, migration: i32) -> Result<(), BackupError> {
    let (mut client, _driver) = database.connect().await?;
    migrate::apply_up_to(&mut client, migration).await?;
    let transaction = client.transaction().await?;
    let columns = columns(&transaction).await?;
    let keys = foreign_keys(&transaction).await?;
    // In what order the tables come is the dump's; that every reference leads somewhere is seen at the end.
    let tables: Vec<_> = columns.keys().map(|table| format!("public.{}", quoted(table))).collect();
    let mut before = format!("TRUNCATE {};", tables.join(", "));
    let mut after = String::new();
    for (table, name, definition) in &keys {
        before += &format!("ALTER TABLE {table} DROP CONSTRAINT {name};");
        after += &format!("ALTER TABLE {table} ADD CONSTRAINT {name} {definition};");
    }
    // Disabled, one with a transition table would still have every row copied for it.
    for (table, name, definition) in &triggers(&transaction).await? {
        before += &format!("DROP TRIGGER {name} ON {table};");
        after += &format!("{definition};");
    }
    // TRUNCATE wants no foreign key from outside of its list, and gets all tables at once.
    transaction.batch_execute(&before).await?;
    let mut reading = programs::read(program, &["--data-only", "--no-owner", "--no-privileges", "--file=-"], dump)?;
    let output = BufReader::with_capacity(CHUNK_BYTES, reading.output()?);
    let filled = match fill(&transaction, &columns, output).await {
        Ok(filled) => filled,
        Err(cut @ BackupError::CutOff(_)) => {
            // What the program says of a damaged dump says more than the text that breaks off.
            reading.end().await?;
            return Err(cut);
        }
        Err(error) => return Err(of_rows(error)),
    };
    reading.end().await?;
    if let Some(table) = columns.keys().find(|table| !filled.contains(*table)) {
        return Err(BackupError::Foreign(format!("everything but the rows of table {table}")));
    }
    if migration >= FIRST_WITH_QUEUE {
        // It follows from the runs.
        after += "SELECT refill_run_queue();";
    }
    transaction.batch_execute(&after).await.map_err(|error| of_rows(error.into()))?;
    transaction.commit().await?;
    check_migration(&client, migration).await
}

/// A statement of ours that the database refused while it took the rows is the rows' fault.
fn of_rows(error: BackupError) -> BackupError {
    match error {
        BackupError::Store(Error::Statement(why)) => BackupError::Rows(why),
        other => other,
    }
}

/// The rows tell of the same migrations as the manifest, and each is this program's.
async fn check_migration(client: &Client, migration: i32) -> Result<(), BackupError> {
    use migrate::SchemaStatus::{Ahead, Behind, Current};
    let applied = match migrate::compared(client).await? {
        Current => migrate::newest(),
        Behind { applied } | Ahead { applied } => applied,
    };
    match applied == migration {
        true => Ok(()),
        false => Err(BackupError::Foreign(format!("rows of migration {applied} in a backup of migration {migration}"))),
    }
}

async fn columns(transaction: &Transaction<'_>) -> Result<TableColumns, BackupError> {
    let sql = "-- backup::columns
        SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attgenerated = ''";
    let mut columns = TableColumns::new();
    for row in transaction.query(sql, &[]).await? {
        columns.entry(row.try_get(0)?).or_default().insert(row.try_get(1)?);
    }
    Ok(columns)
}

/// Table, name and definition of each foreign key, as SQL.
async fn foreign_keys(transaction: &Transaction<'_>) -> Result<Vec<(String, String, String)>, BackupError> {
    let sql = "-- backup::foreign_keys
        SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
        WHERE contype = 'f' AND connamespace = 'public'::regnamespace ORDER BY oid";
    let rows = transaction.query(sql, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// Table, name and statement of each trigger, as SQL.
async fn triggers(transaction: &Transaction<'_>) -> Result<Vec<(String, String, String)>, BackupError> {
    let sql = "-- backup::triggers
        SELECT t.tgrelid::regclass::text, quote_ident(t.tgname), pg_get_triggerdef(t.oid)
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace ORDER BY t.oid";
    let rows = transaction.query(sql, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// Sends the rows of each table, and returns the tables.
async fn fill(
    transaction: &Transaction<'_>,
    columns: &TableColumns,
    output: impl AsyncBufRead + Unpin,
) -> Result<BTreeSet<String>, BackupError> {
    let mut script = Script::new(output);
    let mut filled = BTreeSet::new();
    while let Some(head) = script.next_table().await? {
        let statement = copy_statement(&head, columns)?;
        if !filled.insert(head.table.clone()) {
            return Err(BackupError::Foreign(format!("the rows of table {} a second time", head.table)));
        }
        let sink = transaction.copy_in::<_, Bytes>(statement.as_str()).await?;
        let mut sink = std::pin::pin!(sink);
        let mut rows = Vec::with_capacity(CHUNK_BYTES);
        loop {
            let is_more = script.next_row(&mut rows).await?;
            if !rows.is_empty() && (rows.len() >= CHUNK_BYTES || !is_more) {
                sink.send(BytesMut::from(&rows[..]).freeze()).await?;
                rows.clear();
            }
            if !is_more {
                break;
            }
        }
        sink.as_mut().finish().await?;
    }
    Ok(filled)
}

/// Our own statement for these rows, if the table and exactly these columns are ours.
fn copy_statement(head: &TableHead, columns: &TableColumns) -> Result<String, BackupError> {
    let TableHead { table, columns: named } = head;
    let own = columns.get(table).ok_or_else(|| BackupError::Foreign(format!("rows of table {table}")))?;
    if let Some(column) = named.iter().find(|column| !own.contains(*column)) {
        return Err(BackupError::Foreign(format!("rows with column {column} of table {table}")));
    }
    let given: BTreeSet<_> = named.iter().collect();
    if let Some(column) = own.iter().find(|column| !given.contains(column)) {
        return Err(BackupError::Foreign(format!("rows without column {column} of table {table}")));
    }
    if given.len() != named.len() {
        return Err(BackupError::Foreign(format!("rows with one column twice, of table {table}")));
    }
    let named: Vec<_> = named.iter().map(|column| quoted(column)).collect();
    Ok(format!("COPY public.{} ({}) FROM STDIN", quoted(table), named.join(", ")))
}
