//! The evidence gathered at the end: each run on every replica, its events, the runs of keys, and the content of tables
//! and logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::callers::{ApiRequest, Caller, CallerContext, converser, courier, read, spender};
use crate::database;
use crate::history::{AnswerContent, CallAction, CallRecord, HistoryRecord, ListedFile, StoredEvent};
use crate::injection::crash_points::{self, CrashPoint};
use crate::injection::filler;
use crate::storage;
use crate::testbed::leak_scan::LeakSource;
use crate::testbed::{REPLICA_COUNT, resource_usage};

/// Auditors that read at the same time.
const AUDITOR_COUNT: usize = 4;

/// Evidence beyond the callers' histories.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// The stored events of each run, as the JSON form shows them.
    pub(crate) events: BTreeMap<String, Vec<StoredEvent>>,
    /// The runs that each job's key finds.
    pub(crate) found: BTreeMap<String, Vec<String>>,
    /// The runs in the table.
    pub(crate) rows: BTreeSet<String>,
    /// Events whose delivery is marked as delivered.
    pub(crate) delivered: BTreeSet<String>,
    /// What is wrong with the database, in words.
    pub(crate) database: Vec<String>,
    /// Log lines that must not exist.
    pub(crate) logged: Vec<String>,
    /// The listed runs of each desktop, from page to page.
    pub(crate) listed: BTreeMap<usize, Vec<String>>,
    /// What the impostor server logged when it admitted a device.
    pub(crate) impostor: Vec<String>,
    /// The logged executions of the agents, in the order of their logs.
    pub(crate) executions: Vec<Execution>,
    /// The tokens that devices counted: of each run that used up a budget, and of the budget's service in this month.
    pub(crate) spent: BTreeMap<String, u64>,
    pub(crate) month_spent: BTreeMap<usize, u64>,
    /// Secrets found where they must not be, and how many were searched for.
    pub(crate) leaked: Vec<String>,
    pub(crate) secrets: usize,
    /// The gateways' queue gauges that are not 0 at the end.
    pub(crate) queued: Vec<String>,
    /// The crash points.
    pub(crate) points: Vec<CrashPoint>,
    /// The listed files of each desktop's caller.
    #[serde(default)]
    pub(crate) files: BTreeMap<usize, Vec<ListedFile>>,
    /// What is left on devices of what runs were given and handed out, and what is wrong with the gateways' storage, in words.
    #[serde(default)]
    pub(crate) copies: Vec<String>,
    #[serde(default)]
    pub(crate) objects: Vec<String>,
}

/// An execution in its device's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) run_id: String,
    pub(crate) attempt: u64,
}

/// A job, and what became of its submission.
#[derive(Clone)]
struct Job {
    key: String,
    desktop: usize,
    run_id: Option<String>,
    /// False for an event: its run cannot be found by a key.
    has_key: bool,
}

/// Gathers the evidence. The auditors' answers are in their histories too.
pub(crate) async fn gather(business: &Arc<CallerContext>, logs: &[(String, String)]) -> Evidence {
    let records = business.histories.all();
    let (jobs, conversations) = (jobs(&records), conversations(&records));
    let mut auditing = JoinSet::new();
    for (number, some) in jobs.chunks(jobs.len().div_ceil(AUDITOR_COUNT).max(1)).enumerate() {
        auditing.spawn(audit(business.caller(&format!("auditor-{number}")), some.to_vec()));
    }
    let mut evidence = Evidence::default();
    while let Some(audited) = auditing.join_next().await {
        let Evidence { events, found, .. } = audited.expect("an auditor does not panic");
        evidence.events.extend(events);
        evidence.found.extend(found);
    }
    let mut auditor = business.caller("auditor");
    for (file_id, desktop) in uploaded(&records) {
        for replica in 0..REPLICA_COUNT {
            let operation = auditor.next_operation();
            auditor.ask(operation, &courier::find(desktop, &file_id), replica).await;
        }
    }
    for (conversation, desktop) in conversations {
        for replica in 0..REPLICA_COUNT {
            let operation = auditor.next_operation();
            auditor.ask(operation, &converser::looks(desktop, &conversation), replica).await;
        }
    }
    for desktop in 0..business.testbed.desktops.len() {
        let listed = listed(&mut auditor, desktop).await;
        evidence.listed.insert(desktop, listed);
        if let Some(files) = files(&mut auditor, desktop).await {
            evidence.files.insert(desktop, files);
        }
    }
    for desktop in 0..business.testbed.desktops.len() {
        count_spent(business, &records, desktop, &mut evidence).await;
    }
    evidence.impostor = business.testbed.impostor.let_in();
    let postgres = &business.testbed.postgres;
    // The runs of the raw device are judged by its caller.
    let stray = bare(&business.testbed.stray.endpoint_id.to_string());
    // Faults that bring services of their own submit their runs themselves.
    let own = format!("SELECT endpoint_id FROM endpoints WHERE name LIKE '{}%'", filler::SERVICE_PREFIX);
    let rows = format!("SELECT run_id AS id FROM runs WHERE endpoint_id <> '{stray}' AND endpoint_id NOT IN ({own})");
    evidence.rows = column(&postgres.rows(&rows).await);
    evidence.delivered =
        column(&postgres.rows("SELECT event_id AS id FROM deliveries WHERE state = 'delivered'").await);
    evidence.database = database::flaws(postgres).await;
    evidence.logged = logs.iter().flat_map(|(name, text)| flaws(name, text)).collect();
    evidence.executions = logs.iter().flat_map(|(_, text)| text.lines().filter_map(execution)).collect();
    evidence.copies = storage::copies(&business.testbed).await;
    evidence.objects = storage::flaws(&business.testbed).await;
    evidence.queued = resource_usage::queued(&business.testbed).await;
    evidence.points = crash_points::folder().map(|folder| crash_points::gather(&folder)).unwrap_or_default();
    let secrets = &business.testbed.secrets;
    for (name, text) in logs {
        secrets.look(LeakSource::Log, &format!("the log of {name}"), text);
    }
    for (table, rows) in database::everything(postgres).await {
        secrets.look(LeakSource::Table, &format!("the table {table}"), &rows);
    }
    (evidence.leaked, evidence.secrets) = (secrets.found(), secrets.count());
    evidence
}

/// Asks a device what it counted.
async fn count_spent(
    business: &Arc<CallerContext>,
    records: &[HistoryRecord],
    desktop: usize,
    evidence: &mut Evidence,
) {
    let device = business.testbed.desktops[desktop].device.read().await;
    let tokens = |spent: &serde_json::Value| {
        spent["input_tokens"].as_u64().unwrap_or_default() + spent["output_tokens"].as_u64().unwrap_or_default()
    };
    for job in jobs(records).iter().filter(|job| spender::desktop_of(&job.key) == Some(desktop)) {
        let Some(run_id) = &job.run_id else { continue };
        let shown = device.cli(&["run", "show", run_id]).await;
        if shown.exit == 0 {
            evidence.spent.insert(run_id.clone(), tokens(&shown.value["spending"]));
        }
    }
    let listed = device.cli(&["budget", "list"]).await;
    if let Some(spent) = listed.value.pointer("/budgets/0/spent") {
        evidence.month_spent.insert(desktop, tokens(spent));
    }
}

/// The execution of a log line that reports one.
fn execution(line: &str) -> Option<Execution> {
    let (_, fields) = line.split_once("execution began ")?;
    let field = |name: &str| fields.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(Execution { run_id: field("run_id")?.to_owned(), attempt: field("attempt")?.parse().ok()? })
}

/// Identifiers of a table, as [`bare`] writes them.
fn column(rows: &[serde_json::Value]) -> BTreeSet<String> {
    rows.iter().filter_map(|row| row["id"].as_str()).map(bare).collect()
}

/// The digits of an identifier: tables and documents write them differently.
pub(crate) fn bare(id: &str) -> String {
    let digits = id.rsplit_once('_').map_or(id, |(_, digits)| digits);
    digits.chars().filter(|letter| *letter != '-').collect::<String>().to_lowercase()
}

/// Log lines that report an impossible state.
fn flaws(name: &str, log: &str) -> Vec<String> {
    let is_one = |line: &&str| line.contains("panicked at") || line.contains("invariant");
    log.lines().filter(is_one).map(|line| format!("{name}: {line}")).collect()
}

/// Reads the runs of some jobs from every replica, with everything else that can be read of them.
async fn audit(mut auditor: Caller, jobs: Vec<Job>) -> Evidence {
    let mut evidence = Evidence::default();
    for Job { key, desktop, run_id, has_key } in jobs {
        if let Some(run_id) = run_id {
            for replica in 0..REPLICA_COUNT {
                let operation = auditor.next_operation();
                auditor.ask(operation, &read(desktop, &run_id, 0), replica).await;
            }
            let events = events(&mut auditor, desktop, &run_id).await;
            evidence.events.insert(run_id, events);
        }
        if has_key {
            let found = found(&mut auditor, desktop, &key).await;
            evidence.found.insert(key, found);
        }
    }
    evidence
}

fn get(name: &'static str, desktop: usize, path: String) -> ApiRequest {
    ApiRequest { name, asked: CallAction::Nothing, desktop, method: Method::GET, path, ..ApiRequest::default() }
}

/// All stored events of a run, page by page.
async fn events(auditor: &mut Caller, desktop: usize, run_id: &str) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.sequence);
        let request = get("events", desktop, format!("/runs/{run_id}/events?limit=7&after={after}"));
        let Some(reply) = auditor.retry(&request).await else { return events };
        let page: Vec<_> = reply.body["data"].as_array().into_iter().flatten().filter_map(StoredEvent::read).collect();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}

/// The runs of a desktop as its caller lists them, page by page and each at some replica.
async fn listed(auditor: &mut Caller, desktop: usize) -> Vec<String> {
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let request = get("list", desktop, format!("/runs?limit=13{cursor}"));
        let Some(reply) = auditor.retry(&request).await else { return listed };
        let page = reply.body["data"].as_array().into_iter().flatten();
        listed.extend(page.filter_map(|run| run["run_id"].as_str()).map(str::to_owned));
        match reply.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return listed,
        }
    }
}

/// The files of a desktop's caller, page by page and each at some replica.
async fn files(auditor: &mut Caller, desktop: usize) -> Option<Vec<ListedFile>> {
    let (mut files, mut cursor) = (Vec::new(), String::new());
    loop {
        let reply = auditor.retry(&get("list", desktop, format!("/files?limit=13{cursor}"))).await?;
        files.extend(ListedFile::read_all(&reply.body["data"]));
        match reply.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Some(files),
        }
    }
}

/// The runs that a key finds.
async fn found(auditor: &mut Caller, desktop: usize, key: &str) -> Vec<String> {
    let request = get("find", desktop, format!("/runs?idempotency_key={key}"));
    let Some(reply) = auditor.retry(&request).await else { return Vec::new() };
    let runs = reply.body["data"].as_array().into_iter().flatten();
    runs.filter_map(|run| run["run_id"].as_str()).map(str::to_owned).collect()
}

/// Every requested job.
fn jobs(records: &[HistoryRecord]) -> Vec<Job> {
    let mut jobs = BTreeMap::new();
    for call in calls(records) {
        let Some(job) = call.asked.job() else { continue };
        let has_key = !matches!(call.asked, CallAction::Event { .. });
        let known =
            jobs.entry(job).or_insert(Job { key: job.to_owned(), desktop: call.desktop, run_id: None, has_key });
        if let AnswerContent::Run { run_id, .. } | AnswerContent::Became { run_id } = &call.seen {
            known.run_id = Some(run_id.clone());
        }
    }
    jobs.into_values().collect()
}

/// Every conversation that was seen, with its desktop.
fn conversations(records: &[HistoryRecord]) -> BTreeMap<String, usize> {
    let seen = calls(records).filter_map(|call| match &call.seen {
        AnswerContent::Conversation { conversation, .. } => Some((conversation.clone(), call.desktop)),
        _ => None,
    });
    seen.collect()
}

/// Every file that was taken, with its desktop.
fn uploaded(records: &[HistoryRecord]) -> BTreeMap<String, usize> {
    let taken = calls(records).filter_map(|call| match (&call.asked, &call.seen) {
        (CallAction::Upload { .. }, AnswerContent::File(file)) => Some((file.id.clone(), call.desktop)),
        _ => None,
    });
    taken.collect()
}

fn calls(records: &[HistoryRecord]) -> impl Iterator<Item = &CallRecord> {
    records.iter().filter_map(|record| match record {
        HistoryRecord::Call(call) => Some(&**call),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_of_a_table_and_of_a_document_are_the_same() {
        assert_eq!(bare("run_0199A1b2C3"), bare("0199a1b2-c3"));
    }

    #[test]
    fn the_beginning_of_an_execution_is_read_from_a_log() {
        let line = "2026-11-22T17:07:59.965737Z  INFO execution began run_id=run_01a2 attempt=3";
        let read = execution(line).expect("it is one");
        assert_eq!((read.run_id.as_str(), read.attempt), ("run_01a2", 3));
        assert_eq!(execution("2026-11-22T17:07:59.965737Z  INFO something else"), None);
    }
}
