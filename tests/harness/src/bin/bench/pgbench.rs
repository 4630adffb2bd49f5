//! PostgreSQL's own rate with one row per commit: pgbench, on the same cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;

use crate::environment::BenchGateway;
use crate::requests::SUBMISSION_BODY;
use deskgate_harness::usage::ended_children_cpu_seconds;

/// The table that pgbench inserts into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    /// Defined like the table of runs: its columns, constraints and indexes.
    Same,
    /// The same columns with only two of its indexes.
    Bare,
}

impl Table {
    fn definition(self) -> &'static str {
        match self {
            Self::Same => {
                "DROP TABLE IF EXISTS bench_rows;
                CREATE TABLE bench_rows (LIKE runs INCLUDING ALL);
                CHECKPOINT;"
            }
            Self::Bare => {
                "DROP TABLE IF EXISTS bench_rows;
                CREATE TABLE bench_rows (LIKE runs INCLUDING DEFAULTS);
                ALTER TABLE bench_rows ADD PRIMARY KEY (run_id), ADD UNIQUE (identity);
                CHECKPOINT;"
            }
        }
    }
}

/// pgbench against one gateway's cluster.
pub(crate) struct Pgbench {
    program: PathBuf,
    socket: PathBuf,
    script: PathBuf,
    postmaster: u32,
}

/// The result of a run of pgbench.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PgbenchResult {
    /// Transactions per second, each with one row.
    pub per_second: f64,
    /// Microseconds of PostgreSQL's CPU time for each.
    pub postgres_cpu_us: f64,
    /// Microseconds of pgbench's own CPU time for each.
    pub pgbench_cpu_us: f64,
}

impl Pgbench {
    /// Finds the program and writes its script into `folder`.
    pub(crate) fn prepare(server: &BenchGateway, folder: &Path) -> anyhow::Result<Self> {
        let (socket, postmaster) = server.cluster()?;
        // It is beside the server's program.
        let program = std::fs::read_link(format!("/proc/{postmaster}/exe"))?.with_file_name("pgbench");
        anyhow::ensure!(program.exists(), "{} is missing; it comes with the package postgresql", program.display());
        let script = folder.join("insert.pgbench");
        std::fs::write(&script, statement()?)?;
        Ok(Self { program, socket, script, postmaster })
    }

    /// Runs it with this many clients, into an empty table.
    pub(crate) async fn run(
        &self,
        server: &BenchGateway,
        table: Table,
        clients: usize,
        time: Duration,
    ) -> anyhow::Result<PgbenchResult> {
        let (database, _driver) = server.database().await?;
        database.batch_execute(table.definition()).await?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(clients);
        let cpu = || (ended_children_cpu_seconds(self.postmaster), ended_children_cpu_seconds(std::process::id()));
        let before = cpu();
        let output = tokio::process::Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--username=deskgate", "--port=5432"])
            .arg(format!("--host={}", self.socket.display()))
            .arg(format!("--file={}", self.script.display()))
            .arg(format!("--client={clients}"))
            .arg(format!("--jobs={threads}"))
            .arg(format!("--time={}", time.as_secs().max(1)))
            .arg("deskgate")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .process_group(0)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failure = || format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr));
        let number =
            |name: &str, end| text.lines().find_map(|line| line.strip_prefix(name)?.split(end).next()?.parse().ok());
        let per_second: f64 = number("tps = ", ' ').with_context(failure)?;
        let rows: f64 = number("number of transactions actually processed: ", '/').with_context(failure)?;
        // CPU time of its connections is known once they have ended.
        let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'";
        while database.query_one(others, &[]).await?.try_get::<_, i64>(0)? > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let after = cpu();
        let each = |seconds: f64| seconds * 1e6 / rows;
        Ok(PgbenchResult {
            per_second,
            postgres_cpu_us: each(after.0 - before.0),
            pgbench_cpu_us: each(after.1 - before.1),
        })
    }
}

/// One comparable row: the wide values are those of our requests, the unique ones are generated in SQL.
fn statement() -> anyhow::Result<String> {
    let body: serde_json::Value = serde_json::from_str(SUBMISSION_BODY)?;
    let (input, metadata) = (&body["input"], &body["metadata"]);
    let id = "'01a1fda8-e282-710b-ab81-0751b796e59c'::uuid";
    Ok(format!(
        "\\set n random(1, 9000000000000000000)\n\
         INSERT INTO bench_rows (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id, \
         identity, fingerprint, input, metadata, max_duration_s, queue_expires_at) VALUES (gen_random_uuid(), {id}, \
         'customer-10042', {id}, 1, sha256('definition'), {id}, sha256(int8send(:n)), sha256('fingerprint'), \
         '{input}', '{metadata}', 3600, now() + interval '1 day');\n"
    ))
}
