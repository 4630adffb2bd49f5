//! The real programs in a temporary folder, and the gateway with its own command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use deskgate_harness::site::UNLIMITED_SETTINGS;
use deskgate_tests::preload::PreloadShim;
use serde_json::Value;
use tokio_postgres::NoTls;
use tokio_util::task::AbortOnDropHandle;

use crate::process::ChildProcess;

/// The longest time to wait for a start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Where Debian has a folder for each version of PostgreSQL.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The programs beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    gateway: PathBuf,
    /// The desktop's agent.
    pub(crate) agent: PathBuf,
    /// What makes syncs slower, if they are to be.
    slow_disk: Option<Arc<SlowDisk>>,
}

/// A disk on which each sync takes longer, for the desktop's agent and for PostgreSQL.
#[derive(Debug)]
struct SlowDisk {
    shim: PreloadShim,
    /// PostgreSQL's programs, on that disk.
    postgres: PathBuf,
}

impl Programs {
    /// Finds them. Each sync of theirs will take so much longer.
    pub(crate) fn find(slow_sync_ms: u32) -> anyhow::Result<Self> {
        let here = std::env::current_exe()?;
        let beside = |name: &str| {
            let path = here.with_file_name(name);
            anyhow::ensure!(path.exists(), "{} is missing; build everything first: make bench", path.display());
            Ok(path)
        };
        let slow_disk = (slow_sync_ms > 0).then(|| SlowDisk::new(slow_sync_ms)).transpose()?.map(Arc::new);
        Ok(Self { gateway: beside("deskgate-gateway")?, agent: beside("deskgate")?, slow_disk })
    }

    /// The environment of an agent.
    pub(crate) fn agent_environment(&self) -> Vec<(String, String)> {
        self.slow_disk.as_ref().map(|disk| disk.shim.environment()).unwrap_or_default()
    }
}

impl SlowDisk {
    fn new(slow_sync_ms: u32) -> anyhow::Result<Self> {
        let shim = PreloadShim::new();
        shim.set_slow_sync(slow_sync_ms);
        let versions = std::fs::read_dir(POSTGRES_VERSIONS)?.filter_map(Result::ok);
        let newest = versions.max_by_key(|version| version.file_name().to_string_lossy().parse::<u32>().ok());
        let newest = newest.context("PostgreSQL is not installed as Debian has it")?;
        let postgres = shim.programs_beside(&newest.path().join("bin/postgres"));
        Ok(Self { shim, postgres })
    }
}

/// A temporary folder with short paths, for sockets.
pub(crate) fn folder() -> anyhow::Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("deskgate-bench-").tempdir()?)
}

/// The gateway as a server, on its private cluster.
pub(crate) struct BenchGateway {
    process: ChildProcess,
    program: Command,
    /// The address for desktops.
    pub(crate) ssh: String,
    http: String,
    folder: PathBuf,
}

impl BenchGateway {
    /// Starts one in `folder`.
    pub(crate) async fn start(programs: &Programs, folder: &Path) -> anyhow::Result<Self> {
        Self::start_with(programs, folder, &[]).await
    }

    /// Starts one with these settings too.
    pub(crate) async fn start_with(programs: &Programs, folder: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let command = || {
            let mut command = Command::new(&programs.gateway);
            if let Some(disk) = &programs.slow_disk {
                // Of several programs of one version, the gateway takes the last.
                let paths = std::env::var_os("PATH").unwrap_or_default();
                let paths = std::env::split_paths(&paths).chain([disk.postgres.clone()]);
                command.env("PATH", std::env::join_paths(paths).expect("no path has a colon in it"));
            }
            let state = format!("state_dir={}", folder.join("state").display());
            let run = format!("run_dir={}", folder.join("run").display());
            let listeners = ["server.listen=127.0.0.1:0", "ssh.listen=127.0.0.1:0", "ops.listen=127.0.0.1:0"];
            let own = listeners.into_iter().chain([state.as_str(), run.as_str()]);
            for setting in own.chain(UNLIMITED_SETTINGS).chain(more.iter().copied()) {
                command.args(["--set", setting]);
            }
            command
        };
        let log = folder.join("gateway.log");
        // An earlier process with the same log has logged that it is ready too.
        let _ = std::fs::remove_file(&log);
        let mut process = ChildProcess::start(command().arg("serve"), &log)?;
        let ready = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "gateway ready").then_some(line)
        };
        let ready = first_line(&log, &mut process, ready).await?;
        let ssh = ready["ssh"].as_str().context("no SSH address in the log")?.to_owned();
        let http = ready["http"].as_str().context("no HTTP address in the log")?.to_owned();
        Ok(Self { process, program: command(), ssh, http, folder: folder.to_owned() })
    }

    /// The gateway's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Runs a command of the gateway's own command line.
    pub(crate) async fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(self.program.get_program());
        command.args(self.program.get_args()).arg("--json").args(words);
        answer(command).await
    }

    /// The address for backends.
    pub(crate) fn http(&self) -> anyhow::Result<std::net::SocketAddr> {
        self.http.parse().context("an address")
    }

    /// The private control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.folder.join("run/control.sock")
    }

    /// The file of the private control token.
    pub(crate) fn control_token_file(&self) -> PathBuf {
        self.folder.join("state/control_token")
    }

    /// The private control token.
    pub(crate) fn control_token(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.control_token_file())?.trim().to_owned())
    }

    /// Pairs a device by the text of its identity file.
    pub(crate) async fn add_device(&self, identity: &str) -> anyhow::Result<Value> {
        let file = self.folder.join("by_hand.json");
        std::fs::write(&file, identity)?;
        self.ask(&["admin", "device", "add", &file.display().to_string()]).await
    }

    /// The directory of the database's socket, and its first process.
    pub(crate) fn cluster(&self) -> anyhow::Result<(PathBuf, u32)> {
        let text = std::fs::read_to_string(self.folder.join("state/postgres/postmaster.pid"))?;
        let mut lines = text.lines();
        let pid = lines.next().context("no process number")?.trim().parse()?;
        Ok((lines.nth(3).context("no socket directory")?.into(), pid))
    }

    /// The URL of its database.
    pub(crate) fn database_url(&self) -> anyhow::Result<String> {
        let socket = self.cluster()?.0.display().to_string().replace('/', "%2F");
        Ok(format!("postgresql://deskgate@{socket}:5432/deskgate"))
    }

    /// A connection to its database.
    pub(crate) async fn database(&self) -> anyhow::Result<(tokio_postgres::Client, AbortOnDropHandle<()>)> {
        let (client, connection) = tokio_postgres::connect(&self.database_url()?, NoTls).await?;
        let driver = tokio::spawn(async move {
            // The statement that waits for an answer reports the error.
            let _ = connection.await;
        });
        Ok((client, AbortOnDropHandle::new(driver)))
    }

    /// Deletes every run, and writes dirty pages out, so that all rounds begin alike.
    pub(crate) async fn forget_runs(&self) -> anyhow::Result<()> {
        let (database, _driver) = self.database().await?;
        database.batch_execute("TRUNCATE runs CASCADE; SELECT refill_run_queue()").await?;
        database.batch_execute("CHECKPOINT").await?;
        Ok(())
    }
}

/// Waits for the first log line that `wanted` accepts.
pub(crate) async fn first_line<T>(
    log: &Path,
    process: &mut ChildProcess,
    wanted: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let ended = process.has_ended();
        let text = std::fs::read_to_string(log)?;
        if let Some(found) = text.lines().find_map(&wanted) {
            return Ok(found);
        }
        if ended || Instant::now() > deadline {
            bail!("a program did not start:\n{text}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The output of a command line with `--json`.
pub(crate) async fn answer(command: Command) -> anyhow::Result<Value> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = tokio::process::Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).process_group(0).output().await?;
    let failure = || format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    anyhow::ensure!(output.status.success(), failure());
    serde_json::from_slice(&output.stdout).with_context(failure)
}
