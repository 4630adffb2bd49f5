//! The hundredth page of a long list of runs against the first.

use std::collections::BTreeMap;
use std::time::Instant;

use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::run_list::{RunQuery, WaitCause};
use deskgate_gateway::store::{Database, PagePosition, Store};
use deskgate_protocol::DeviceId;
use serde_json::json;

use crate::Bench;
use crate::claim::owner;
use crate::environment::{self, BenchGateway};
use crate::report::BenchReport;
use deskgate_harness::statistics::median;

/// How often each page is read.
const READS_PER_PAGE: usize = 200;
/// Reads before that, until the statement's plan is kept.
const WARM_UP_READS: usize = 20;
/// Runs in a page.
const PAGE_RUNS: u32 = 100;
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["list_page100_vs_page1"]) {
        return Ok(());
    }
    println!("Listing");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let (client, _driver) = server.database().await?;
    let (wake, _changes) = ChangeNotifier::new();
    let store = Database::new(&server.database_url()?, None, None)?.open(false, wake).await?;
    let id = DeviceId::new();
    client.batch_execute(&owner(id)).await?;
    let runs = if bench.quick { 100_000 } else { 1_000_000 };
    client.batch_execute(&ended(id, runs)).await?;
    // On a server, autovacuum does this in time.
    client.batch_execute("VACUUM (ANALYZE) runs").await?;

    let first = readings(&store, id, None).await?;
    let mut place = None;
    for _ in 1..100 {
        place = store.runs_of_caller(&sought(id, place), PAGE_RUNS).await?.next;
    }
    let hundredth = readings(&store, id, place).await?;
    report.part("list_page1_us", json!({ "median": median(&first), "readings": first.len(), "runs": runs }));
    report.part("list_page100_us", json!({ "median": median(&hundredth), "readings": hundredth.len() }));
    report.value("list_page100_vs_page1", median(&hundredth) / median(&first));
    Ok(())
}

/// Microseconds of each read of the page after a position.
async fn readings(store: &Store, id: DeviceId, before: Option<PagePosition>) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for reading in 0..WARM_UP_READS + READS_PER_PAGE {
        let began = Instant::now();
        let found = store.runs_of_caller(&sought(id, before), PAGE_RUNS).await?;
        anyhow::ensure!(found.entries.len() == PAGE_RUNS as usize && found.next.is_some(), "a page is short");
        if reading >= WARM_UP_READS {
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

fn sought(id: DeviceId, before: Option<PagePosition>) -> RunQuery<'static> {
    RunQuery {
        app_id: id.uuid().into(),
        subject: "customer",
        before,
        not_before: None,
        endpoints: Vec::new(),
        conversation: None,
        labels: &NO_LABELS,
        states: None,
        waiting: WaitCause::Any,
        key: None,
    }
}

/// Runs that ended.
fn ended(id: DeviceId, count: u32) -> String {
    let id = id.uuid();
    format!(
        "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id, identity,
            fingerprint, input, metadata, max_duration_s, state, created_at, queue_expires_at, finished_at, purge_at)
        SELECT gen_random_uuid(), '{id}', 'customer', '{id}', 1, sha256('definition'), '{id}', sha256(int8send(n)),
            sha256('fingerprint'), '{{\"text\": \"Please check order 4711.\"}}', '{{}}', 3600, 'expired',
            now() - n * interval '1 ms', now(), now(), now() + interval '1 day'
        FROM generate_series(1, {count}) n"
    )
}
