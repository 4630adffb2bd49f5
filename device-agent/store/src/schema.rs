//! The database schema as numbered migrations. Append only: a released step never changes.

use rusqlite::{Connection, TransactionBehavior};

use super::Error;

const MIGRATIONS: &[&str] = &[
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
    "
ALTER TABLE service_version ADD COLUMN paused TEXT;
",
    "
-- A table's checks cannot be changed: the journal is copied into one that also knows of unknown ends. Such an entry
-- has an outcome when its owner said what became of the run, and the gateway's number is still awaited.
CREATE TABLE run_journal_with_unknown (
    run_id      TEXT NOT NULL PRIMARY KEY,
    attempt     INTEGER NOT NULL CHECK (attempt > 0),
    status      TEXT NOT NULL CHECK (status IN ('taken', 'running', 'interrupted', 'unknown', 'finished')),
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
INSERT INTO run_journal_with_unknown SELECT * FROM run_journal;
DROP TABLE run_journal;
ALTER TABLE run_journal_with_unknown RENAME TO run_journal;

CREATE TABLE intent (
    n          INTEGER PRIMARY KEY,
    run_id     TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    call_id    TEXT NOT NULL,
    tool       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    arguments  TEXT NOT NULL,
    plan       TEXT NOT NULL,
    begun_at   INTEGER NOT NULL,
    ok         INTEGER CHECK (ok IN (0, 1)),
    UNIQUE (run_id, attempt, call_id)
) STRICT;

CREATE TABLE approval (
    approval_id  TEXT NOT NULL PRIMARY KEY,
    run_id       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    endpoint_id  TEXT NOT NULL,
    service      TEXT NOT NULL,
    call_id      TEXT NOT NULL,
    tool         TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('read', 'write')),
    digest       TEXT NOT NULL,
    arguments    TEXT,
    plan         TEXT,
    why          TEXT NOT NULL,
    again        INTEGER NOT NULL,
    asked_at     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    kept_from    INTEGER NOT NULL,
    state        TEXT NOT NULL
                 CHECK (state IN ('waiting', 'approved', 'approved_for_run', 'denied', 'expired', 'withdrawn')),
    decided_at   INTEGER,
    decided_by   TEXT,
    reason       TEXT,
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    CHECK ((state = 'waiting') = (decided_by IS NULL)),
    CHECK (state <> 'waiting' OR (arguments IS NOT NULL AND plan IS NOT NULL))
) STRICT;
CREATE INDEX approval_by_run ON approval (run_id);
CREATE INDEX approval_waiting ON approval (run_id) WHERE state = 'waiting';
CREATE INDEX approval_answered ON approval (decided_at DESC, approval_id) WHERE state <> 'waiting';
CREATE INDEX approval_by_age ON approval (kept_from);
CREATE TRIGGER approval_has_one_answer BEFORE UPDATE ON approval WHEN old.state <> 'waiting' AND old.state <> new.state
BEGIN SELECT RAISE(ABORT, 'a request has one answer'); END;

CREATE TABLE audit (
    n            INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    kept_from    INTEGER NOT NULL,
    what         TEXT NOT NULL CHECK (what IN ('requested', 'decided', 'executed', 'reconciled')),
    who          TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    call_id      TEXT NOT NULL,
    tool         TEXT NOT NULL,
    digest       TEXT NOT NULL,
    approval_id  TEXT,
    answer       TEXT
) STRICT;
CREATE INDEX audit_by_run ON audit (run_id);
CREATE INDEX audit_by_age ON audit (kept_from);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
CREATE TRIGGER audit_is_never_replaced BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE n = new.n)
BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
-- 400 days, as in audit.rs.
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
WHEN old.kept_from >= (SELECT now FROM transcript_clock) - 34560000
BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
",
    "
-- For whom the run was submitted; gone with what the request was about.
ALTER TABLE approval ADD COLUMN subject TEXT;
",
    "
-- Lists of tools as servers gave them; a higher n is newer.
CREATE TABLE tool_list (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    server   TEXT NOT NULL,
    digest   TEXT NOT NULL,
    tools    TEXT NOT NULL,
    seen_at  TEXT NOT NULL,
    UNIQUE (server, digest)
) STRICT;
",
    "
-- When the gateway had settled a run, by the clock of the transcripts.
ALTER TABLE past_run ADD COLUMN settled_at INTEGER NOT NULL DEFAULT 0;
UPDATE past_run SET settled_at = (SELECT now FROM transcript_clock);
",
    "
-- A server at another address is another server. Of the lists so far nobody knows which address gave them.
DROP TABLE tool_list;
CREATE TABLE tool_list (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    server   TEXT NOT NULL,
    url      TEXT NOT NULL,
    digest   TEXT NOT NULL,
    tools    TEXT NOT NULL,
    seen_at  TEXT NOT NULL,
    UNIQUE (server, url, digest)
) STRICT;
",
    "
-- Why the model of a run could not be used, in its provider's words; of the newest runs only.
CREATE TABLE model_failure (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id   TEXT NOT NULL UNIQUE,
    failure  TEXT NOT NULL
) STRICT;
",
    "
-- What models used up, in tokens and millionths of a US dollar: of the newest runs, and of services by month (2026-11).
CREATE TABLE run_spending (
    n                    INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id               TEXT NOT NULL UNIQUE,
    calls                INTEGER NOT NULL DEFAULT 1,
    input_tokens         INTEGER NOT NULL,
    cached_input_tokens  INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    microusd             INTEGER NOT NULL,
    unpriced_calls       INTEGER NOT NULL
) STRICT;
CREATE TABLE month_spending (
    month                TEXT NOT NULL,
    endpoint_id          TEXT NOT NULL,
    runs                 INTEGER NOT NULL,
    input_tokens         INTEGER NOT NULL,
    cached_input_tokens  INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    microusd             INTEGER NOT NULL,
    unpriced_calls       INTEGER NOT NULL,
    PRIMARY KEY (month, endpoint_id)
) STRICT, WITHOUT ROWID;
",
    "
-- What models may use up in a month: of the device, of an application, of a service.
CREATE TABLE budget (
    scope   TEXT NOT NULL PRIMARY KEY,
    budget  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
-- The service and the subject that a message belongs to, as a digest: no other sees it. What was kept before belongs to
-- whoever goes on with the conversation first.
ALTER TABLE transcript ADD COLUMN participant TEXT;
CREATE INDEX past_run_with_outcome ON past_run (n) WHERE bytes > 0;
",
    "
-- What followed a request whose call could not be carried out as it was shown: the request that asked anew, or why not.
ALTER TABLE approval ADD COLUMN follows TEXT;
ALTER TABLE approval ADD COLUMN followed_by TEXT;
ALTER TABLE approval ADD COLUMN not_done TEXT;
",
    "
-- What the device signed about offers and outcomes, as a chain without gaps. The newest is never deleted: the next one
-- names it. 400 days, as in audit.rs.
CREATE TABLE receipt (
    device_seq  INTEGER NOT NULL PRIMARY KEY CHECK (device_seq > 0),
    kept_from   INTEGER NOT NULL,
    run_id      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('offer', 'outcome')),
    said        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    jws         TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX receipt_by_run ON receipt (run_id, attempt, kind, said);
CREATE UNIQUE INDEX receipt_outcome ON receipt (run_id, attempt) WHERE kind = 'outcome';
CREATE INDEX receipt_by_age ON receipt (kept_from);
CREATE TRIGGER receipt_is_never_changed BEFORE UPDATE ON receipt
BEGIN SELECT RAISE(ABORT, 'the chain only grows'); END;
CREATE TRIGGER receipt_follows_the_last BEFORE INSERT ON receipt
WHEN new.device_seq <> (SELECT coalesce(max(device_seq), 0) + 1 FROM receipt)
BEGIN SELECT RAISE(ABORT, 'the chain only grows'); END;
CREATE TRIGGER receipt_is_kept BEFORE DELETE ON receipt
WHEN old.kept_from >= (SELECT now FROM transcript_clock) - 34560000
    OR old.device_seq = (SELECT max(device_seq) FROM receipt)
BEGIN SELECT RAISE(ABORT, 'the chain only grows'); END;

-- The tool calls of runs that are not settled, for their receipts: digests, no arguments.
CREATE TABLE run_call (
    n            INTEGER PRIMARY KEY,
    run_id       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    call_id      TEXT NOT NULL,
    tool         TEXT NOT NULL,
    args_sha256  TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('ok', 'error', 'unknown', 'not_run')),
    approval_id  TEXT,
    UNIQUE (run_id, attempt, call_id)
) STRICT;

ALTER TABLE run_journal ADD COLUMN started_at INTEGER;
",
    "
-- Tool calls are kept for their owner when their run is settled: what each would do, and what came of it.
ALTER TABLE run_call ADD COLUMN arguments TEXT;
ALTER TABLE run_call ADD COLUMN plan TEXT;
ALTER TABLE run_call ADD COLUMN output TEXT;
ALTER TABLE run_call ADD COLUMN begun_at INTEGER;
ALTER TABLE run_call ADD COLUMN ended_at INTEGER;
ALTER TABLE run_call ADD COLUMN kept_from INTEGER NOT NULL DEFAULT 0;
-- Whether its run was settled since: a receipt of a later attempt does not name it.
ALTER TABLE run_call ADD COLUMN settled INTEGER NOT NULL DEFAULT 0;
UPDATE run_call SET kept_from = (SELECT now FROM transcript_clock),
    begun_at = iif(status = 'not_run', NULL, CAST(unixepoch('subsec') * 1000 AS INTEGER));
CREATE INDEX run_call_by_age ON run_call (kept_from);
CREATE INDEX approval_with_content ON approval (kept_from) WHERE arguments IS NOT NULL AND state <> 'waiting';
",
    "
-- Since when a service is not published any more, and since when it is removed. The versions of a removed one stay: runs
-- of them may be left to end, and lists show its name.
ALTER TABLE service ADD COLUMN unpublished_at TEXT;
ALTER TABLE service ADD COLUMN removed_at TEXT;
",
    "
-- A table's checks cannot be changed: the versions are copied into one that also holds drafts which are tried, as version 0, each
-- with the digest of its input and the run that it was offered in.
CREATE TABLE service_version_with_drafts (
    endpoint_id   TEXT NOT NULL REFERENCES service (endpoint_id),
    version       INTEGER NOT NULL CHECK (version >= 0),
    digest        TEXT NOT NULL,
    definition    TEXT NOT NULL,
    checks        TEXT NOT NULL,
    published_at  TEXT,
    paused        TEXT,
    trial_input   TEXT,
    trial_run     TEXT,
    PRIMARY KEY (endpoint_id, version),
    CHECK ((version = 0) = (trial_input IS NOT NULL)),
    CHECK (version > 0 OR published_at IS NULL)
) STRICT;
INSERT INTO service_version_with_drafts (endpoint_id, version, digest, definition, checks, published_at, paused)
    SELECT endpoint_id, version, digest, definition, checks, published_at, paused FROM service_version;
DROP TABLE service_version;
ALTER TABLE service_version_with_drafts RENAME TO service_version;
",
    "
-- What runs handed out. The copies lie in the agent's folder until they are sent.
CREATE TABLE artifact (
    artifact_id  TEXT NOT NULL PRIMARY KEY,
    run_id       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    name         TEXT NOT NULL,
    media_type   TEXT NOT NULL,
    description  TEXT,
    size         INTEGER NOT NULL,
    sha256       TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'stored', 'missing')),
    kept_from    INTEGER NOT NULL
) STRICT;
CREATE INDEX artifact_by_run ON artifact (run_id, artifact_id);
CREATE INDEX artifact_pending ON artifact (artifact_id) WHERE state = 'pending';
",
];

/// Checks, without a change, that the file has this program's schema.
pub(super) fn check(connection: &Connection) -> Result<(), Error> {
    let known = MIGRATIONS.len() as u32;
    match connection.query_row("PRAGMA user_version", [], |row| row.get(0))? {
        found if found > known => Err(Error::NewerSchema { found, known }),
        found if found < known => Err(Error::OlderSchema),
        _ => Ok(()),
    }
}

/// Takes the missing steps, all or none. Refuses a file that a newer program wrote.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let known = MIGRATIONS.len() as u32;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(Error::NewerSchema { found, known });
    }
    for step in &MIGRATIONS[found as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_an_earlier_version_know_their_conversation_and_nothing_said_is_old() {
        let mut connection = Connection::open_in_memory().expect("memory");
        for step in &MIGRATIONS[..3] {
            connection.execute_batch(step).expect("as it was");
        }
        connection
            .execute_batch(
                "PRAGMA user_version = 3;
                 INSERT INTO transcript (run_id, conversation_id, generation, input, answer, said_at)
                 VALUES ('run_1', 'conv_1', 2, '{}', 'yes', 7);
                 INSERT INTO past_run (run_id, attempt, cut_off, bytes) VALUES ('run_1', 1, 0, 0), ('run_2', 1, 0, 0);",
            )
            .expect("written");
        migrate(&mut connection).expect("brought up to date");
        let known = |run: &str| {
            let sql = "SELECT conversation_id, generation FROM past_run WHERE run_id = ?1";
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<u32>>(1)?));
            connection.query_row(sql, [run], read).expect("it is still there")
        };
        assert_eq!(known("run_1"), (Some("conv_1".to_owned()), Some(2)));
        assert_eq!(known("run_2"), (None, None));
        let sql = "SELECT said_at - now FROM transcript, transcript_clock";
        let age: i64 = connection.query_row(sql, [], |row| row.get(0)).expect("one message, one clock");
        assert_eq!(age, 0);
    }

    #[test]
    fn a_call_that_began_under_an_earlier_version_has_begun() {
        let mut connection = Connection::open_in_memory().expect("memory");
        let step = MIGRATIONS.iter().position(|step| step.contains("ADD COLUMN begun_at"));
        let before = step.expect("a step");
        for step in &MIGRATIONS[..before] {
            connection.execute_batch(step).expect("as it was");
        }
        connection.pragma_update(None, "user_version", before as u32).expect("written");
        connection
            .execute_batch(
                "INSERT INTO run_call (run_id, attempt, call_id, tool, args_sha256, status)
                 VALUES ('run_1', 1, 'call_1_1', 'Read', '', 'unknown'), ('run_1', 1, 'call_1_2', 'Write', '', 'not_run');",
            )
            .expect("written");
        migrate(&mut connection).expect("brought up to date");
        let sql = "SELECT begun_at IS NOT NULL FROM run_call ORDER BY n";
        let mut statement = connection.prepare(sql).expect("a statement");
        let begun: Vec<bool> = statement.query_map([], |row| row.get(0)).expect("read").flatten().collect();
        assert_eq!(begun, [true, false]);
    }
}
