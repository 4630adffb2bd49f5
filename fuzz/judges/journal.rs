//! The journal: after any crash or disk fault, a read gives what was written or an error; a write that may have
//! happened is never reported as not happened.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::LazyLock;

use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceEvent, InFlightStatus, Offer, ToolKind};
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Effects, Input, Outcome, RunResult, Usage};
use deskgate_store::Store;
use deskgate_store::journal::{JournalEntry, TakeOutcome};
use deskgate_store::ledger::{IntentBasis, Plan, PlanPreview, PlannedCall, RequestDetails};
use rusqlite::{Connection, params};
use serde_json::json;

use super::{folder, wait};

/// The most lines of one input.
const MOST_LINES: usize = 8;
const CONVERSATION: &str = "conv_018f3b6e0000700080000000000000c1";
const ENDPOINT: &str = "ep_018f3b6e0000700080000000000000e1";
/// The tables and columns that a line may change. An input names them by index.
const CHANGED: [(&str, &[&str]); 5] = [
    ("run_journal", &["run_id", "attempt", "status", "cut_off", "offer", "outcome", "finish_seq", "events"]),
    ("past_run", &["run_id", "attempt", "cut_off", "finish_seq", "outcome"]),
    ("intent", &["run_id", "attempt", "tool", "digest", "arguments", "plan", "begun_at", "ok"]),
    ("approval", &["approval_id", "arguments", "plan", "kind", "digest", "expires_at", "state", "decided_at"]),
    ("transcript", &["run_id", "conversation_id", "generation", "input", "answer", "said_at"]),
];

/// The run of this number: 1 taken, 2 running, 3 running and writing, 4 finished, 5 settled.
fn run(number: u8) -> RunId {
    format!("run_018f3b6e0000700080000000000000a{number}").parse().expect("an identifier")
}

/// Judges changes of a journal, one per line: `TABLE ROW COLUMN VALUE` sets a value, `drop TABLE ROW` deletes a row,
/// `byte PLACE VALUE` changes the file.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let folder = folder();
    let path = folder.path().join("deskgate.db");
    write(&path, &TEMPLATE);
    let lines: Vec<_> = text.lines().take(MOST_LINES).collect();
    change(&path, &lines);
    let damaged = damage(&path, &lines);
    // After a change inside of the file, even the rows may differ.
    let rows = (!damaged).then(|| Rows::read(&path));
    wait(look(&path, rows.as_ref()));
}

async fn look(path: &Path, rows: Option<&Rows>) {
    let Ok(store) = Store::open(path).await else {
        assert!(rows.is_none(), "a file that SQLite reads cannot be opened");
        return;
    };
    let journal = store.journal();
    let effects = journal.effects(run(3)).await;
    if let Some(rows) = rows {
        let began = rows.intents.iter().any(|(run_id, _)| *run_id == run(3).to_string());
        assert_eq!(effects == Effects::None, !began, "what run 3 changed");
    }
    if let Ok(entries) = journal.recover().await {
        if let Some(rows) = rows {
            rows.hold(&entries);
        }
        entries.iter().for_each(consistent);
        let told: Vec<_> =
            entries.iter().map(|entry| (entry.offer.run_id, entry.offer.attempt, entry.status)).collect();
        let in_flight = journal.in_flight().await.expect("read a moment ago");
        let in_flight: Vec<_> = in_flight.iter().map(|entry| (entry.run_id, entry.attempt, entry.status)).collect();
        assert_eq!(in_flight, told);
        for JournalEntry { offer, status, .. } in &entries {
            echo(&store, offer, *status).await;
        }
    }
    let approvals = store.approvals().list(true).await;
    for approval in approvals.into_iter().flatten() {
        let _ = store.approvals().get(approval.approval_id).await;
    }
    let _ = store.audit().list(None, 100).await;
    let _ = store.transcripts().seen_by(&offer(4)).await;
    for number in 1..=5 {
        let _ = (journal.offer(run(number)).await, journal.evidence(run(number)).await);
        let _ = journal.has_ended(run(number)).await;
        let _ = store.ledger(run(number), 1).before().await;
        let _ = journal.forget(run(number), 1).await;
    }
    let _ = (store.settings().get::<deskgate::settings::ConnectionSettings>().await, store.services().list().await);
}

/// Checks that an entry is consistent.
fn consistent(entry: &JournalEntry) {
    assert_eq!(entry.ended.is_some(), entry.status == InFlightStatus::Finished, "{entry:?}");
    assert_ne!(entry.status, InFlightStatus::Running, "nothing runs any more: {entry:?}");
    assert!(entry.settled.is_none() || entry.status == InFlightStatus::Unknown, "{entry:?}");
    if let Some(ended) = &entry.ended {
        let last = i64::try_from(ended.seq).expect("a number that can be counted to");
        assert!(last as usize > ended.events.len(), "{} events before number {last}", ended.events.len());
    }
}

/// Checks that a repeated offer starts nothing that was started before.
async fn echo(store: &Store, offer: &Offer, status: InFlightStatus) {
    let taken = store.journal().take(offer).await;
    assert_ne!(taken.ok(), Some(TakeOutcome::Fresh), "{status:?} begins again");
    if matches!(status, InFlightStatus::Unknown | InFlightStatus::Interrupted) {
        assert!(store.journal().start(offer.run_id, offer.attempt).await.is_err(), "{status:?} is started");
    }
}

/// The rows as SQLite reads them.
struct Rows {
    journal: BTreeMap<String, (i64, String)>,
    intents: Vec<(String, i64)>,
}

impl Rows {
    fn read(path: &Path) -> Self {
        let connection = Connection::open(path).expect("opens");
        let mut journal = connection.prepare("SELECT run_id, attempt, status FROM run_journal").expect("a table");
        let journal = journal.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).expect("read");
        let journal = journal.collect::<Result<_, _>>().expect("read");
        let mut intents = connection.prepare("SELECT run_id, attempt FROM intent").expect("a table");
        let intents = intents.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("read");
        let intents = intents.collect::<Result<_, _>>().expect("read");
        Self { journal, intents }
    }

    /// Checks that every entry is that of a row, with the row's state.
    fn hold(&self, entries: &[JournalEntry]) {
        assert_eq!(entries.len(), self.journal.len(), "entries and rows");
        for JournalEntry { offer, status, .. } in entries {
            let run_id = offer.run_id.to_string();
            let (attempt, stood) = self.journal.get(&run_id).unwrap_or_else(|| panic!("{run_id} has no row"));
            assert_eq!(i64::from(offer.attempt), *attempt, "the attempt of {run_id}");
            let wrote = self.intents.iter().any(|(of, in_attempt)| *of == run_id && in_attempt == attempt);
            let expected = match (stood.as_str(), wrote) {
                ("taken", _) => InFlightStatus::Taken,
                ("running" | "interrupted", true) | ("unknown", _) => InFlightStatus::Unknown,
                ("running" | "interrupted", false) => InFlightStatus::Interrupted,
                ("finished", _) => InFlightStatus::Finished,
                (other, _) => panic!("{other:?} is taken for {status:?}"),
            };
            assert_eq!(*status, expected, "{run_id}, which was {stood}");
        }
    }
}

fn change(path: &Path, lines: &[&str]) {
    let connection = Connection::open(path).expect("opens");
    connection.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF").expect("set");
    for line in lines {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (table, row, column, value) = (next(), next(), next(), next());
        if table == "drop" {
            let known = CHANGED.iter().find(|(known, _)| *known == row);
            let sql = known.map(|(table, _)| format!("DELETE FROM {table} WHERE rowid = ?1"));
            // A trigger may refuse it.
            let _ = sql.map(|sql| connection.execute(&sql, [column.parse::<i64>().unwrap_or(1)]));
            continue;
        }
        let Some((table, columns)) = CHANGED.iter().find(|(known, _)| *known == table) else { continue };
        let (Some(column), Ok(row)) = (columns.iter().find(|known| **known == column), row.parse::<i64>()) else {
            continue;
        };
        let value = if value == "NULL" { None } else { Some(value) };
        // The table's types exclude such a value.
        let _ = connection.execute(&format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1"), params![row, value]);
    }
}

/// Changes bytes of the file; returns whether there were any changes.
fn damage(path: &Path, lines: &[&str]) -> bool {
    let mut file = std::fs::read(path).expect("read");
    let mut damaged = false;
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        if let ["byte", place, value] = words[..]
            && let (Ok(place), Ok(value)) = (place.parse::<usize>(), value.parse::<u8>())
        {
            let place = place % file.len();
            file[place] ^= value;
            damaged |= value != 0;
        }
    }
    if damaged {
        std::fs::write(path, file).expect("written");
    }
    damaged
}

fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).expect("new");
    file.write_all(bytes).expect("written");
}

/// A journal with a run in each state.
static TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = folder();
    let path = folder.path().join("deskgate.db");
    wait(furnish(&path));
    std::fs::read(&path).expect("it was closed, so all of it is in the file")
});

async fn furnish(path: &Path) {
    let store = Store::open(path).await.expect("opens").signing_with(ReceiptSigner::from_seed([7; 32]));
    let journal = store.journal();
    for number in 1..=5 {
        journal.take(&offer(number)).await.expect("taken");
    }
    for number in 2..=5 {
        journal.start(run(number), 1).await.expect("started");
    }
    let asking = RequestDetails {
        endpoint_id: ENDPOINT.parse().expect("an identifier"),
        service: "invoices".to_owned(),
        subject: Some("anna".to_owned()),
        why: "because".to_owned(),
        follows: None,
        expiry: std::time::Duration::from_secs(3600),
    };
    store.ledger(run(2), 1).ask(call("call_2"), asking).await.expect("asked");
    store.ledger(run(3), 1).begin(call("call_3"), IntentBasis::Rules).await.expect("begun");
    let said =
        DeviceEvent::MessageCompleted { message_id: "m1".to_owned(), text: "done".to_owned(), reasoning_summary: None };
    for number in 4..=5 {
        let result = RunResult::completed("done");
        let outcome = Outcome::Succeeded { result, usage: Usage::default() };
        journal.finish(run(number), 1, 2, &outcome, std::slice::from_ref(&said)).await.expect("finished");
    }
    journal.forget(run(5), 1).await.expect("settled");
}

fn call(call_id: &str) -> PlannedCall {
    PlannedCall {
        call_id: call_id.to_owned(),
        tool: "Write".to_owned(),
        kind: ToolKind::Write,
        arguments: json!({ "file_path": "a.txt", "content": call_id }),
        plan: Plan { place: Some("a.txt".to_owned()), shown: PlanPreview::Arguments },
    }
}

fn offer(number: u8) -> Offer {
    let talks = number >= 4;
    Offer {
        run_id: run(number),
        attempt: 1,
        endpoint_id: ENDPOINT.parse().expect("an identifier"),
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b"definition"),
        subject: Some("anna".to_owned()),
        input: Input { text: "work".to_owned(), more: serde_json::Map::new() },
        output: None,
        conversation: talks.then(|| CONVERSATION.parse().expect("an identifier")),
        generation: talks.then_some(1),
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    }
}
