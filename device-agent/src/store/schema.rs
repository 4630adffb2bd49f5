//! The tables, as numbered steps. Append only: a step that was ever released never changes.

use rusqlite::{Connection, TransactionBehavior};

use super::Error;

const STEPS: &[&str] = &[
    "
CREATE TABLE run_journal (
    run_id      TEXT NOT NULL PRIMARY KEY,
    attempt     INTEGER NOT NULL CHECK (attempt > 0),
    status      TEXT NOT NULL CHECK (status IN ('taken', 'running', 'interrupted', 'finished')),
    cut_off     INTEGER NOT NULL DEFAULT 0,
    offer       TEXT NOT NULL,
    outcome     TEXT,
    finish_seq  INTEGER,
    events      TEXT,
    CHECK ((status = 'finished') = (finish_seq IS NOT NULL)),
    CHECK ((status = 'finished') = (events IS NOT NULL)),
    CHECK (status <> 'finished' OR outcome IS NOT NULL),
    CHECK (status <> 'running' OR outcome IS NULL)
) STRICT;

CREATE TABLE past_run (
    n           INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id      TEXT NOT NULL UNIQUE,
    attempt     INTEGER NOT NULL,
    cut_off     INTEGER NOT NULL,
    finish_seq  INTEGER,
    outcome     TEXT,
    bytes       INTEGER NOT NULL
) STRICT;

CREATE TABLE service (
    draft_id     TEXT NOT NULL PRIMARY KEY,
    app_id       TEXT NOT NULL,
    endpoint_id  TEXT UNIQUE,
    definition   TEXT NOT NULL,
    checks       TEXT,
    created_at   TEXT NOT NULL,
    changed_at   TEXT NOT NULL
) STRICT;

CREATE TABLE service_version (
    endpoint_id   TEXT NOT NULL REFERENCES service (endpoint_id),
    version       INTEGER NOT NULL CHECK (version > 0),
    digest        TEXT NOT NULL,
    definition    TEXT NOT NULL,
    checks        TEXT NOT NULL,
    published_at  TEXT,
    PRIMARY KEY (endpoint_id, version)
) STRICT;

CREATE TABLE setting (
    key    TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT;
",
    "
CREATE TABLE transcript (
    n                INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id           TEXT NOT NULL UNIQUE,
    conversation_id  TEXT NOT NULL,
    generation       INTEGER NOT NULL CHECK (generation > 0),
    input            TEXT NOT NULL,
    answer           TEXT NOT NULL
) STRICT;
CREATE INDEX transcript_by_conversation ON transcript (conversation_id, generation, n);

CREATE TABLE closed_generation (
    conversation_id  TEXT NOT NULL PRIMARY KEY,
    generation       INTEGER NOT NULL
) STRICT;
",
    "
ALTER TABLE transcript ADD COLUMN said_at INTEGER NOT NULL DEFAULT 0;
UPDATE transcript SET said_at = unixepoch();
CREATE INDEX transcript_by_time ON transcript (conversation_id, said_at);
",
    "
CREATE TABLE transcript_clock (
    now   INTEGER NOT NULL,
    wall  INTEGER NOT NULL
) STRICT;
INSERT INTO transcript_clock (now, wall) VALUES (0, unixepoch());
UPDATE transcript SET said_at = 0;

ALTER TABLE past_run ADD COLUMN conversation_id TEXT;
ALTER TABLE past_run ADD COLUMN generation INTEGER;
UPDATE past_run SET (conversation_id, generation) =
    (SELECT conversation_id, generation FROM transcript t WHERE t.run_id = past_run.run_id);
CREATE INDEX past_run_by_conversation ON past_run (conversation_id, generation) WHERE conversation_id IS NOT NULL;
",
];

/// Takes the steps that are missing, all or none. Refuses a file that a newer program wrote.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let known = STEPS.len() as u32;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(Error::NewerSchema { found, known });
    }
    for step in &STEPS[found as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}
