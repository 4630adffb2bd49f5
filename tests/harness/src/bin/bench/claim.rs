//! Claiming runs from a long queue against claiming them from a short one.

use std::time::{Duration, Instant};

use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::attempts::ServiceRoom;
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::{Database, Store};
use deskgate_protocol::DeviceId;
use serde_json::json;
use tokio_postgres::Client;

use crate::Bench;
use crate::environment::{self, BenchGateway};
use crate::report::BenchReport;
use deskgate_harness::statistics::median;

/// Claims that are timed in each queue.
const TIMED_CLAIMS: i64 = 100;
/// Claims before that, until the statement's plan is kept.
const WARM_UP_CLAIMS: i64 = 20;
/// Runs in one claim.
const RUNS_PER_CLAIM: i64 = 16;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["claim_million_vs_thousand"]) {
        return Ok(());
    }
    println!("Claiming");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let (client, _driver) = server.database().await?;
    let (wake, _changes) = ChangeNotifier::new();
    let store = Database::new(&server.database_url()?, None, None)?.open(false, wake).await?;
    let device_id = DeviceId::new();
    client.batch_execute(&owner(device_id)).await?;

    let many = if bench.quick { 100_000 } else { 1_000_000 };
    let queue = Queue { client: &client, store: &store, session: SessionKey { device_id, epoch: 1 } };
    let mut short = queue.claims(1_000).await?;
    let long = queue.claims(many).await?;
    short.extend(queue.claims(1_000).await?);
    report.part("claim_thousand_us", json!({ "median": median(&short), "claims": short.len() }));
    report.part("claim_many_us", json!({ "median": median(&long), "claims": long.len(), "queued": many }));
    report.value("claim_million_vs_thousand", median(&long) / median(&short));
    Ok(())
}

/// A device that takes work, with an application and a service.
pub(crate) fn owner(device_id: DeviceId) -> String {
    let id = device_id.uuid();
    format!(
        "INSERT INTO devices (device_id, name, public_key, epoch, connected_epoch, access_enabled)
            VALUES ('{id}', 'bench', 'bench', 1, 1, true);
        INSERT INTO applications (app_id, device_id, name) VALUES ('{id}', '{id}', 'bench');
        INSERT INTO endpoints (endpoint_id, app_id, device_id, name, description, version, definition_sha256)
            VALUES ('{id}', '{id}', '{id}', 'bench', '', 1, sha256('definition'))"
    )
}

struct Queue<'a> {
    client: &'a Client,
    store: &'a Store,
    session: SessionKey,
}

impl Queue<'_> {
    /// Microseconds of each claim while at least `length` runs are queued.
    async fn claims(&self, length: i64) -> anyhow::Result<Vec<f64>> {
        self.client.batch_execute("TRUNCATE runs CASCADE").await?;
        let id = self.session.device_id.uuid();
        let fill = format!(
            "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                identity, fingerprint, input, metadata, max_duration_s, created_at, queue_expires_at)
            SELECT gen_random_uuid(), '{id}', 'customer', '{id}', 1, sha256('definition'), '{id}',
                sha256(int8send(n)), sha256('fingerprint'), '{{\"text\": \"Please check order 4711.\"}}', '{{}}', 3600,
                now() + n * interval '1 ms', now() + interval '1 day'
            FROM generate_series(1, {}) n",
            length + (WARM_UP_CLAIMS + TIMED_CLAIMS) * RUNS_PER_CLAIM
        );
        self.client.batch_execute(&fill).await?;
        // On a server, autovacuum does this in time.
        self.client.batch_execute("VACUUM (ANALYZE) runs").await?;
        self.client.batch_execute("CHECKPOINT").await?;
        let mut times = Vec::new();
        for claim in 0..WARM_UP_CLAIMS + TIMED_CLAIMS {
            let began = Instant::now();
            let offers = self
                .store
                .claim(self.session, RUNS_PER_CLAIM.try_into()?, &ServiceRoom::default(), Duration::from_secs(600))
                .await?;
            anyhow::ensure!(offers.len() as i64 == RUNS_PER_CLAIM, "{} runs were claimed", offers.len());
            if claim >= WARM_UP_CLAIMS {
                times.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(times)
    }
}
