//! What PostgreSQL itself does with one row a commit: pgbench, on the same cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;

use crate::http::BODY;
use crate::site::Server;

/// The columns of a run, at the same sizes, without its constraints; two of its indexes.
const TABLE: &str = "
    DROP TABLE IF EXISTS bench_rows;
    CREATE TABLE bench_rows (
        run_id            uuid        PRIMARY KEY,
        app_id            uuid        NOT NULL,
        subject           text        NOT NULL,
        endpoint_id       uuid        NOT NULL,
        endpoint_version  integer     NOT NULL,
        definition_sha256 bytea       NOT NULL,
        device_id         uuid        NOT NULL,
        identity          bytea       NOT NULL UNIQUE,
        fingerprint       bytea       NOT NULL,
        input             json        NOT NULL,
        metadata          json        NOT NULL,
        max_duration_s    integer     NOT NULL,
        traceparent       text,
        state             text        NOT NULL DEFAULT 'queued',
        attempt           integer     NOT NULL DEFAULT 0,
        epoch             bigint      NOT NULL DEFAULT 0,
        device_seq        bigint      NOT NULL DEFAULT 0,
        last_sequence     bigint      NOT NULL DEFAULT 1,
        created_at        timestamptz NOT NULL DEFAULT now(),
        queue_expires_at  timestamptz NOT NULL
    );
    CHECKPOINT;";

/// pgbench against one gateway's cluster.
pub(crate) struct Pgbench {
    program: PathBuf,
    socket: PathBuf,
    script: PathBuf,
}

impl Pgbench {
    /// Finds the program and writes its script into `folder`.
    pub(crate) fn prepare(server: &Server, folder: &Path) -> anyhow::Result<Self> {
        let (socket, postmaster) = server.cluster()?;
        // It stands beside the server's program.
        let program = std::fs::read_link(format!("/proc/{postmaster}/exe"))?.with_file_name("pgbench");
        anyhow::ensure!(program.exists(), "{} is missing; it comes with the package postgresql", program.display());
        let script = folder.join("insert.pgbench");
        std::fs::write(&script, statement()?)?;
        Ok(Self { program, socket, script })
    }

    /// Transactions per second of so many clients, into an empty table.
    pub(crate) async fn run(&self, server: &Server, clients: usize, time: Duration) -> anyhow::Result<f64> {
        let (database, _driver) = server.database().await?;
        // The connections of the run before end in their own time.
        let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'";
        while database.query_one(others, &[]).await?.try_get::<_, i64>(0)? > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        database.batch_execute(TABLE).await?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(clients);
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
        let tps = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        tps.with_context(|| format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// One comparable row: the wide values are the ones our requests carry, the unique ones are made in place.
fn statement() -> anyhow::Result<String> {
    let body: serde_json::Value = serde_json::from_str(BODY)?;
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
