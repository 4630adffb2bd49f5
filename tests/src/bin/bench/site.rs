//! The real programs, set up with their own command lines in a temporary folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use tokio_postgres::NoTls;
use tokio_util::task::AbortOnDropHandle;

use crate::http::Target;
use crate::process::Process;

/// The longest anything takes to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than is ever asked for here: the limits are not what is measured.
const LIMITS: [&str; 4] = [
    "limits.waiting_runs_per_application=100000000",
    "limits.requests_per_second=1000000",
    "limits.burst=1000000",
    "limits.streams_per_application=100000",
];

/// The programs that stand beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    gateway: PathBuf,
    agent: PathBuf,
}

impl Programs {
    /// Finds them.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let here = std::env::current_exe()?;
        let beside = |name: &str| {
            let path = here.with_file_name(name);
            anyhow::ensure!(
                path.exists(),
                "{} is missing; build everything first: cargo build --release",
                path.display()
            );
            Ok(path)
        };
        Ok(Self { gateway: beside("deskgate-gateway")?, agent: beside("deskgate")? })
    }
}

/// A temporary folder with short paths, for sockets.
pub(crate) fn folder() -> anyhow::Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("deskgate-bench-").tempdir()?)
}

/// The gateway as a server, on its private cluster.
pub(crate) struct Server {
    process: Process,
    program: Command,
    ssh: String,
    http: String,
    folder: PathBuf,
}

impl Server {
    /// Starts one in `folder`.
    pub(crate) async fn start(programs: &Programs, folder: &Path) -> anyhow::Result<Self> {
        let command = || {
            let mut command = Command::new(&programs.gateway);
            let state = format!("state_dir={}", folder.join("state").display());
            let run = format!("run_dir={}", folder.join("run").display());
            let listeners = ["server.listen=127.0.0.1:0", "ssh.listen=127.0.0.1:0", "ops.listen=127.0.0.1:0"];
            let own = listeners.into_iter().chain([state.as_str(), run.as_str()]);
            for setting in own.chain(LIMITS) {
                command.args(["--set", setting]);
            }
            command
        };
        let log = folder.join("gateway.log");
        let mut process = Process::start(command().arg("serve"), &log)?;
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

    /// Asks the running gateway something with its own command line.
    async fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = Command::new(self.program.get_program());
        command.args(self.program.get_args()).arg("--json").args(words);
        answer(command).await
    }

    /// Where backends reach it.
    pub(crate) fn http(&self) -> anyhow::Result<std::net::SocketAddr> {
        self.http.parse().context("an address")
    }

    /// The private control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.folder.join("run/control.sock")
    }

    /// What opens it.
    pub(crate) fn control_token(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.folder.join("state/control_token"))?.trim().to_owned())
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
            // What went wrong is told by the statement that waits for an answer.
            let _ = connection.await;
        });
        Ok((client, AbortOnDropHandle::new(driver)))
    }

    /// Forgets every run, and writes out what is dirty, so that each round begins alike.
    pub(crate) async fn forget_runs(&self) -> anyhow::Result<()> {
        let (database, _driver) = self.database().await?;
        database.batch_execute("TRUNCATE runs CASCADE").await?;
        database.batch_execute("CHECKPOINT").await?;
        Ok(())
    }
}

/// The desktop's agent.
pub(crate) struct Desktop {
    process: Option<Process>,
    program: PathBuf,
    home: PathBuf,
    folder: PathBuf,
}

impl Desktop {
    /// Starts one in `folder`, in built-in mode.
    pub(crate) async fn start(programs: &Programs, folder: &Path) -> anyhow::Result<Self> {
        let (program, folder) = (programs.agent.clone(), folder.to_owned());
        let mut desktop = Self { process: None, program, home: folder.join("home"), folder };
        desktop.resume().await?;
        Ok(desktop)
    }

    /// Starts it again, and waits until it is connected.
    pub(crate) async fn resume(&mut self) -> anyhow::Result<()> {
        let mut command = self.command();
        let log = self.folder.join("agent.log");
        self.process = Some(Process::start(command.args(["start", "--foreground"]), &log)?);
        self.connected().await
    }

    /// Stops it.
    pub(crate) fn pause(&mut self) {
        self.process = None;
    }

    /// Its process.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.process.as_ref().context("the agent is stopped")?.pid())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("DESKGATE_HOME", &self.home);
        command
    }

    async fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = self.command();
        command.arg("--json").args(words);
        answer(command).await
    }

    async fn connected(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let last = match self.ask(&["status"]).await {
                Ok(status) if status["line"]["state"] == "connected" => return Ok(()),
                Ok(status) => status["line"].to_string(),
                Err(error) => error.to_string(),
            };
            anyhow::ensure!(Instant::now() < deadline, "the agent is not connected: {last}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Pairs it with a server and connects to that over SSH.
    pub(crate) async fn pair(&mut self, server: &Server) -> anyhow::Result<()> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (identity, socket, token) = (path("identity.json"), path("run/control.sock"), path("state/control_token"));
        self.ask(&["identity", "export", &identity]).await?;
        server.ask(&["admin", "device", "add", &identity]).await?;
        let host_key = server.ask(&["admin", "host-key"]).await?;
        let fingerprint = host_key["fingerprint"].as_str().context("no fingerprint")?;
        let save = ["connection", "save", "--mode", "remote", "--ssh-user", "deskgate", "--ssh-address", &server.ssh];
        let rest = ["--control-socket", &socket, "--host-key", fingerprint, "--token-file", &token];
        self.ask(&[save.as_slice(), rest.as_slice()].concat()).await?;
        // A fresh process: nothing is left in it of the gateway that was built in.
        self.pause();
        self.resume().await
    }

    /// Publishes a service that answers at once, and enables access.
    pub(crate) async fn publish(&self) -> anyhow::Result<Target> {
        let folder = self.folder.join("work");
        std::fs::create_dir_all(&folder)?;
        let script = self.folder.join("script.json");
        std::fs::write(&script, r#"{ "steps": [{ "text": "Replacement confirmed." }] }"#)?;
        let created = self.ask(&["app", "create", "bench"]).await?;
        let model = format!("script:{}", script.display());
        let directory = folder.display().to_string();
        let service = ["service", "create", "orders", "--app", "bench", "--dir", &directory];
        self.ask(&[&service[..], &["--model", &model, "--tools", "none"]].concat()).await?;
        self.ask(&["service", "check", "orders"]).await?;
        let published = self.ask(&["service", "publish", "orders"]).await?;
        let access = self.ask(&["access", "enable"]).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let address = text(&access["address"]).context("no address")?;
        let address = address.trim_start_matches("http://").trim_end_matches("/api/v1");
        Ok(Target {
            address: address.parse()?,
            key: text(&created["key"]["text"]).context("no key")?,
            endpoint_id: text(&published["endpoint_id"]).context("no endpoint")?,
        })
    }

    /// More keys of the application that [`Self::publish`] made.
    pub(crate) async fn more_keys(&self, target: &Target, count: usize) -> anyhow::Result<Vec<Target>> {
        let mut targets = Vec::with_capacity(count);
        for number in 0..count {
            let created = self.ask(&["key", "create", "--app", "bench", &format!("caller {number}")]).await?;
            let key = created["text"].as_str().context("no key")?.to_owned();
            targets.push(Target { key, ..target.clone() });
        }
        Ok(targets)
    }
}

/// Waits for a line of a log that `wanted` makes something of.
pub(crate) async fn first_line<T>(
    log: &Path,
    process: &mut Process,
    wanted: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
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

/// What a command line prints with `--json`.
async fn answer(command: Command) -> anyhow::Result<Value> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = tokio::process::Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).process_group(0).output().await?;
    let failure = || format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    anyhow::ensure!(output.status.success(), failure());
    serde_json::from_slice(&output.stdout).with_context(failure)
}
