//! Claiming runs from a long queue against claiming them from a short one, and working a queue off after a quiet night.

use std::time::{Duration, Instant};

use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome, ServiceRoom};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::{Database, Store};
use deskgate_protocol::DeviceId;
use deskgate_protocol::control::Offer;
use deskgate_protocol::run::{Outcome, RunResult, Usage};
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
/// Runs that wait in the morning.
const QUEUED_AFTER_NIGHT: i64 = 40_000;
/// Runs in one claim.
const RUNS_PER_CLAIM: i64 = 16;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["claim_million_vs_thousand", "drain_after_quiet_night_vs_fresh"]) {
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
    if bench.wants(&["drain_after_quiet_night_vs_fresh"]) {
        let mut fresh = vec![queue.drain(0).await?];
        let night = queue.drain(many).await?;
        fresh.push(queue.drain(0).await?);
        report.part("drain_fresh_per_s", json!(fresh));
        report.part("drain_after_night_per_s", json!({ "runs_per_s": night, "ended_before": many }));
        report.value("drain_after_quiet_night_vs_fresh", night / median(&fresh));
    }
    if !bench.wants(&["claim_million_vs_thousand"]) {
        return Ok(());
    }
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
    /// Runs a second, claimed, started and ended in groups, behind so many that had ended when statistics were taken with
    /// nothing queued. The plans are from then, too.
    async fn drain(&self, ended: i64) -> anyhow::Result<f64> {
        self.client.batch_execute("TRUNCATE runs CASCADE; SELECT refill_run_queue()").await?;
        self.fill(ended, true).await?;
        for table in ["runs", "run_queue"] {
            self.client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await?;
        }
        for _ in 0..WARM_UP_CLAIMS {
            self.fill(RUNS_PER_CLAIM, false).await?;
            self.work_off(1).await?;
        }
        self.fill(QUEUED_AFTER_NIGHT, false).await?;
        self.client.batch_execute("CHECKPOINT").await?;
        let began = Instant::now();
        self.work_off(TIMED_CLAIMS).await?;
        Ok((TIMED_CLAIMS * RUNS_PER_CLAIM) as f64 / began.elapsed().as_secs_f64())
    }

    /// Claims, starts and ends so many groups of runs.
    async fn work_off(&self, groups: i64) -> anyhow::Result<()> {
        let (room, retention) = (ServiceRoom::default(), Duration::from_secs(3600));
        for _ in 0..groups {
            let offers = self.store.claim(self.session, RUNS_PER_CLAIM.try_into()?, &room, retention).await?;
            anyhow::ensure!(offers.len() as i64 == RUNS_PER_CLAIM, "{} runs were claimed", offers.len());
            let result = RunResult::completed("done");
            let outcome = Outcome::Succeeded { result, usage: Usage::default() };
            for what in [AttemptUpdate::Start, AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None }]
            {
                let record =
                    |offer: &Offer| AttemptRecord { run_id: offer.run_id, attempt: offer.attempt, what: what.clone() };
                let records: Vec<_> = offers.iter().map(record).collect();
                let outcomes = self.store.record(self.session, &records, retention).await?;
                anyhow::ensure!(outcomes.iter().all(|outcome| *outcome == RecordOutcome::Done), "{outcomes:?}");
            }
        }
        Ok(())
    }

    /// Adds runs, queued or ended, with identifiers that sort by time as the product's do.
    async fn fill(&self, count: i64, ended: bool) -> anyhow::Result<()> {
        let id = self.session.device_id.uuid();
        let (columns, values) = match ended {
            true => (
                ", state, result, started_at, finished_at, purge_at",
                ", 'succeeded', '{\"text\":\"done\"}', now(), now(), now() + interval '30 days'",
            ),
            false => ("", ""),
        };
        let fill = format!(
            "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                identity, fingerprint, input, metadata, max_duration_s, created_at, queue_expires_at{columns})
            SELECT new_delivery_id(), '{id}', 'customer', '{id}', 1, sha256('definition'), '{id}',
                sha256(uuid_send(gen_random_uuid())), sha256('fingerprint'), '{{\"text\": \"Please check order 4711.\"}}',
                '{{}}', 3600, now() + n * interval '1 us', now() + interval '1 day'{values}
            FROM generate_series(1, {count}) n"
        );
        Ok(self.client.batch_execute(&fill).await?)
    }

    /// Microseconds of each claim while at least `length` runs are queued.
    async fn claims(&self, length: i64) -> anyhow::Result<Vec<f64>> {
        self.client.batch_execute("TRUNCATE runs CASCADE; SELECT refill_run_queue()").await?;
        self.fill(length + (WARM_UP_CLAIMS + TIMED_CLAIMS) * RUNS_PER_CLAIM, false).await?;
        // On a server, autovacuum does this in time.
        self.client.batch_execute("VACUUM (ANALYZE) runs, run_queue").await?;
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
