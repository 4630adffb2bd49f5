//! What a behaviour changed: the honest device's rows, the honest runs beside it, answers with status 500, memory, and
//! what anybody heard of another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use deskgate_tests::backend;
use serde_json::Value;

use super::camp::{Camp, HONEST_MARK, HOSTILE_MARK};
use crate::witnesses::Levels;

/// How much memory and how many files a hostile device may cost the gateway.
const MAX_GROWTH_MIB: f64 = 128.0;
const MAX_GROWTH_FILES: usize = 256;
/// How long an honest run may take beside it.
const MAX_RUN_TIME: Duration = Duration::from_secs(15);

/// Tables that count or time what honest work does, and columns that honest work moves.
const UNWATCHED_TABLES: [&str; 5] =
    ["run_counts", "purged_runs", "acme_accounts", "acme_certificates", "acme_challenges"];
const UNWATCHED_COLUMNS: [&str; 8] = [
    "last_used_at",
    "last_address",
    "new_address_at",
    "last_seen_at",
    "lease_expires_at",
    "connected_epoch",
    "epoch",
    "previous_address",
];
/// Tables in which honest runs beside a behaviour leave rows.
const GROWING_TABLES: [&str; 4] = ["runs", "run_events", "request_identities", "activity"];

/// One look of all witnesses.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// The honest device's rows, by table.
    pub(super) rows: BTreeMap<String, BTreeSet<String>>,
    /// `None`: the gateway's process has ended.
    pub(super) levels: Option<Levels>,
    pub(super) server_errors: u64,
    pub(super) panics: usize,
    /// How long the honest runs took, or what came instead of their answers.
    pub(super) runs: Vec<Result<Duration, String>>,
    /// What the honest side is shown.
    pub(super) shown: Vec<(&'static str, String)>,
    /// Whether the hostile device heard honest matter.
    pub(super) overheard: bool,
}

/// Looks.
pub(super) async fn look(camp: &Camp) -> Look {
    let mut runs = Vec::new();
    for caller in &camp.callers {
        runs.push(honest_run(caller).await);
    }
    let mut shown = Vec::new();
    for (name, arguments) in [("app list", &["app", "list"][..]), ("service list", &["service", "list"])] {
        let said = camp.honest.plain_cli(arguments).await;
        shown.push((name, said.stdout + &said.stderr));
    }
    shown.push(("its callers", camp.callers[0].endpoints().await.body.to_string()));
    let heard = std::mem::take(&mut *camp.heard.lock().unwrap_or_else(PoisonError::into_inner));
    let overheard = heard.iter().any(|text| text.contains(HONEST_MARK));
    Look {
        rows: rows(camp).await,
        levels: Levels::of(camp.gateway.process().id()),
        server_errors: server_errors(camp).await,
        panics: camp.gateway.log().count(&["panicked"]),
        runs,
        shown,
        overheard,
    }
}

async fn honest_run(caller: &backend::Backend) -> Result<Duration, String> {
    let began = Instant::now();
    let run = async {
        let answer = caller.try_submit(&backend::fresh_key(), HONEST_MARK).await.map_err(|error| error.to_string())?;
        let run_id = answer.body["run_id"].as_str().ok_or_else(|| answer.body.to_string())?.to_owned();
        loop {
            let run = caller.read(&run_id, 5).await.map_err(|error| error.to_string())?.body;
            if run["phase"] == "final" {
                break if run["result"]["text"] == HONEST_MARK { Ok(()) } else { Err(run.to_string()) };
            }
        }
    };
    match tokio::time::timeout(MAX_RUN_TIME * 2, run).await {
        Ok(done) => done.map(|()| began.elapsed()),
        Err(_) => Err(format!("it did not end within {} s", (MAX_RUN_TIME * 2).as_secs())),
    }
}

/// The rows that are the honest device's: by their device, application or run.
async fn rows(camp: &Camp) -> BTreeMap<String, BTreeSet<String>> {
    let columns = "SELECT table_name AS t, column_name AS c FROM information_schema.columns WHERE table_schema = \
        'public' AND column_name IN ('device_id', 'app_id', 'run_id')";
    let mut by_table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in camp.postgres.rows(columns).await {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        by_table.entry(text("t")).or_default().insert(text("c"));
    }
    let device = format!("'{}'", uuid(&camp.known.device_id));
    let removed = UNWATCHED_COLUMNS.map(|name| format!("'{name}'")).join(",");
    let mut rows = BTreeMap::new();
    for (table, columns) in by_table {
        if UNWATCHED_TABLES.contains(&table.as_str()) {
            continue;
        }
        let mine = if columns.contains("device_id") {
            format!("device_id = {device}")
        } else if columns.contains("app_id") {
            format!("app_id IN (SELECT app_id FROM applications WHERE device_id = {device})")
        } else {
            format!("run_id IN (SELECT run_id FROM runs WHERE device_id = {device})")
        };
        let query = format!("SELECT to_jsonb(t) - ARRAY[{removed}] AS row FROM {table} t WHERE {mine}");
        let found = camp.postgres.rows(&query).await;
        rows.insert(table, found.iter().map(|row| row["row"].to_string()).collect());
    }
    rows
}

/// An identifier's bits as PostgreSQL writes them.
fn uuid(id: &str) -> String {
    id.split_once('_').map_or(id, |(_, digits)| digits).to_owned()
}

async fn server_errors(camp: &Camp) -> u64 {
    let url = format!("http://{}/metrics", camp.gateway.ops().get());
    let Ok(client) = backend::client().build() else { return 0 };
    let text = match client.get(url).send().await {
        Ok(answer) => answer.text().await.unwrap_or_default(),
        Err(_) => return 0,
    };
    let is_one = |line: &&str| line.starts_with("deskgate_http_requests_total{") && line.contains("status=\"5");
    text.lines().filter(is_one).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// What changed between two looks that must not. `first`: the levels before anything hostile.
pub(super) fn effects(before: &Look, after: &Look, first: Levels) -> Vec<String> {
    let mut effects = Vec::new();
    for (table, was) in &before.rows {
        let is = after.rows.get(table);
        let gone = was.iter().filter(|row| is.is_none_or(|is| !is.contains(*row))).count();
        let new = is.map_or(0, |is| is.iter().filter(|row| !was.contains(*row)).count());
        if gone > 0 {
            effects.push(format!("{gone} rows of the honest device changed in {table}"));
        } else if new > 0 && !GROWING_TABLES.contains(&table.as_str()) {
            effects.push(format!("{new} rows of the honest device are new in {table}"));
        }
    }
    let marked = |row: &&String| row.contains(HOSTILE_MARK);
    if after.rows.values().flatten().any(|row| marked(&row)) {
        effects.push("hostile matter stands in the honest device's rows".to_owned());
    }
    match after.levels {
        None => effects.push("the gateway's process has ended".to_owned()),
        Some(levels) => effects.extend(levels.growth_since(first, MAX_GROWTH_MIB, MAX_GROWTH_FILES)),
    }
    if after.server_errors > before.server_errors {
        effects.push(format!("{} answers with a status of 500 and above", after.server_errors - before.server_errors));
    }
    if after.panics > before.panics {
        effects.push("the gateway's log has a panic".to_owned());
    }
    for run in &after.runs {
        match run {
            Ok(took) if *took <= MAX_RUN_TIME => {}
            Ok(took) => effects.push(format!("an honest run took {} ms", took.as_millis())),
            Err(why) => effects.push(format!("an honest run failed: {why}")),
        }
    }
    for (place, text) in after.shown.iter().filter(|(_, text)| text.contains(HOSTILE_MARK)) {
        effects.push(format!("{place} shows hostile matter: {}", text.len()));
    }
    if after.overheard {
        effects.push("the hostile device heard honest matter".to_owned());
    }
    effects
}

/// Whether a value has honest matter.
pub(super) fn is_honest(value: &Value) -> bool {
    value.to_string().contains(HONEST_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: Levels = Levels { resident_mib: 50.0, files: 20 };

    fn quiet() -> Look {
        let rows = [("applications", "a"), ("runs", "r")].map(|(t, row)| (t.to_owned(), [row.to_owned()].into()));
        Look {
            rows: rows.into(),
            levels: Some(LEVELS),
            runs: vec![Ok(Duration::from_millis(80))],
            shown: vec![("app list", "orders".to_owned())],
            ..Look::default()
        }
    }

    fn with_row(table: &str, row: &str) -> Look {
        let mut look = quiet();
        look.rows.entry(table.to_owned()).or_default().insert(row.to_owned());
        look
    }

    #[test]
    fn a_run_more_is_no_effect() {
        assert!(effects(&quiet(), &quiet(), LEVELS).is_empty());
        assert!(effects(&quiet(), &with_row("runs", "another"), LEVELS).is_empty());
    }

    #[test]
    fn each_witness_alone_shows_an_effect() {
        let mut changed = quiet();
        changed.rows.insert("runs".to_owned(), ["other".to_owned()].into());
        let looks = [
            changed,
            with_row("applications", "b"),
            with_row("runs", HOSTILE_MARK),
            Look { levels: None, ..quiet() },
            Look { levels: Some(Levels { resident_mib: 250.0, ..LEVELS }), ..quiet() },
            Look { server_errors: 1, ..quiet() },
            Look { panics: 1, ..quiet() },
            Look { runs: vec![Err("failed".to_owned())], ..quiet() },
            Look { runs: vec![Ok(Duration::from_secs(60))], ..quiet() },
            Look { shown: vec![("app list", HOSTILE_MARK.to_owned())], ..quiet() },
            Look { overheard: true, ..quiet() },
        ];
        for look in looks {
            assert_eq!(effects(&quiet(), &look, LEVELS).len(), 1, "{look:?}");
        }
    }
}
