//! A `deskgate-gateway serve` process, and the administrator's command line for it.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::postgres::Postgres;
use crate::process::{self, Log, Process};
use crate::wait::until;
use crate::{binaries, device};

/// The address of a listener. It follows a gateway that restarts on other ports.
#[derive(Clone, Debug)]
pub struct Address(Arc<Mutex<SocketAddr>>);

impl Address {
    /// An address that may be changed later.
    pub fn new(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    /// The present address.
    pub fn get(&self) -> SocketAddr {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the address.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

/// A setting: a control socket with the same name for every gateway, as on separate servers, but a different socket for
/// each.
pub const RELATIVE_SOCKET_SETTING: &str = "control.socket=/proc/self/cwd/run/control.sock";
const HOST_KEY_FILE: &str = "ssh_host_ed25519_key";
const ENCRYPTION_KEY_FILE: &str = "seal";

/// A gateway: its state outlives its process.
#[derive(Debug)]
pub struct GatewayProcess {
    folder: TempDir,
    settings: Vec<String>,
    database: Option<String>,
    environment: Vec<(String, String)>,
    process: Option<Process>,
    program: PathBuf,
    http: Address,
    ssh: Address,
    ops: Address,
}

impl GatewayProcess {
    /// Starts a gateway on a database, with further settings such as `control.heartbeat_ms=500`.
    pub async fn start(postgres: &Postgres, settings: &[&str]) -> Self {
        Self::start_in(postgres, settings, &[]).await
    }

    /// As [`Self::start`], with further variables in its environment.
    pub async fn start_in(postgres: &Postgres, settings: &[&str], environment: &[(String, String)]) -> Self {
        Self::begin(Some(postgres.url().to_owned()), settings, environment, None).await
    }

    /// Starts a gateway that gets its database only from these settings and variables.
    pub async fn by_credentials(settings: &[&str], environment: &[(String, String)]) -> Self {
        Self::begin(None, settings, environment, None).await
    }

    /// Starts one more gateway on the same database, with the same settings, host key and encryption key, so that
    /// devices find either behind one address. Both need [`RELATIVE_SOCKET_SETTING`] among the settings.
    pub async fn replica(&self) -> Self {
        let settings: Vec<_> = self.settings.iter().map(String::as_str).collect();
        Self::begin(self.database.clone(), &settings, &self.environment, Some(&self.state_dir())).await
    }

    /// Starts a gateway with a private cluster of its own.
    pub async fn on_private_cluster(settings: &[&str]) -> Self {
        Self::begin(None, settings, &[], None).await
    }

    async fn begin(
        database: Option<String>,
        settings: &[&str],
        environment: &[(String, String)],
        same_keys: Option<&Path>,
    ) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut gateway = Self {
            folder: TempDir::with_prefix("deskgate-gw-").expect("a temporary folder"),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            database,
            environment: environment.to_vec(),
            process: None,
            program: binaries::gateway(),
            http: Address::new(nowhere),
            ssh: Address::new(nowhere),
            ops: Address::new(nowhere),
        };
        if let Some(first) = same_keys {
            std::fs::DirBuilder::new().mode(0o700).create(gateway.state_dir()).expect("a fresh folder");
            for key in [HOST_KEY_FILE, ENCRYPTION_KEY_FILE] {
                std::fs::copy(first.join(key), gateway.state_dir().join(key)).expect("the first one made it");
            }
        }
        gateway.restart().await;
        gateway
    }

    /// Starts it again on the same state, and returns when it is ready. Its ports are new ones,
    /// which [`Self::http`] and [`Self::ssh`] follow.
    pub async fn restart(&mut self) {
        assert!(self.process.is_none(), "the gateway runs");
        let mut process = self.spawn();
        let ready = until("the gateway to be ready", async || {
            if let Some(status) = process.has_ended() {
                panic!("the gateway ended with {status}:\n{}", process.log.tail(20));
            }
            let log = process.log.own();
            let line = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            line.into_iter().find(|line| line["message"] == "gateway ready").ok_or_else(|| process.log.tail(3))
        })
        .await;
        let address = |name: &str| ready[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        self.http.set(address("http"));
        self.ssh.set(address("ssh"));
        self.ops.set(address("ops"));
        self.process = Some(process);
    }

    /// Starts it in a state in which it cannot serve, and returns how it ended.
    pub async fn expect_start_failure(&mut self) -> ExitStatus {
        assert!(self.process.is_none(), "the gateway runs");
        self.spawn().ended().await
    }

    /// Replaces its program by one of another version from the next start on.
    pub fn install(&mut self, version: &str) {
        self.program = binaries::of_version(&binaries::gateway(), version);
    }

    /// Starts its program with these environment variables from now on, in place of earlier ones.
    pub fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.environment = environment;
    }

    /// Starts the process without waiting.
    fn spawn(&self) -> Process {
        let mut command = self.command();
        command.arg("serve").arg("--migrate");
        Process::start(command, &self.folder.path().join("gateway.log"))
    }

    fn command(&self) -> std::process::Command {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = process::command(&self.program, self.folder.path());
        command.current_dir(self.folder.path());
        let own = [
            format!("state_dir={}", path("state")),
            format!("run_dir={}", path("run")),
            "server.listen=127.0.0.1:0".to_owned(),
            "ssh.listen=127.0.0.1:0".to_owned(),
            "ops.listen=127.0.0.1:0".to_owned(),
            "server.drain_ms=0".to_owned(),
            // Tests send more requests than a backend does.
            "limits.requests_per_second=1000000".to_owned(),
            "limits.burst=1000000".to_owned(),
        ];
        for setting in own.iter().chain(&self.settings) {
            command.args(["--set", setting]);
        }
        if let Some(url) = &self.database {
            command.env("DATABASE_URL", url);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The address for backends.
    pub fn http(&self) -> Address {
        self.http.clone()
    }

    /// The address for devices.
    pub fn ssh(&self) -> Address {
        self.ssh.clone()
    }

    /// The address of its operations listener.
    pub fn ops(&self) -> Address {
        self.ops.clone()
    }

    /// The private control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.folder.path().join("run/control.sock")
    }

    /// The file with the private control token.
    pub fn control_token_file(&self) -> PathBuf {
        self.folder.path().join("state/control_token")
    }

    /// The folder with all files that it writes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its log. The process must be running.
    pub fn log(&self) -> &Log {
        &self.process().log
    }

    /// Its process, which must be running.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the gateway runs")
    }

    /// Runs an administrator's command, such as `["device", "list"]`, and returns its output.
    pub async fn admin(&self, arguments: &[&str]) -> device::CommandOutput {
        let mut command = self.command();
        command.args(["--json", "admin"]).args(arguments);
        device::run(command).await
    }

    /// Runs any command with this gateway's settings, such as `["check"]`.
    pub async fn command_line(&self, arguments: &[&str]) -> device::CommandOutput {
        let mut command = self.command();
        let ops = format!("ops.listen={}", self.ops.get());
        command.args(["--set", &ops, "--json"]).args(arguments);
        device::run(command).await
    }

    /// Runs an administrator's command with output for people.
    pub async fn plain_admin(&self, arguments: &[&str]) -> device::CommandOutput {
        let mut command = self.command();
        command.arg("admin").args(arguments);
        device::run(command).await
    }

    /// One paired device as the administrator sees it.
    pub async fn device(&self, device_id: &str) -> Value {
        self.admin(&["device", "show", device_id]).await.ok()
    }

    /// Waits until the administrator sees a device in a state, and returns the device.
    pub async fn wait_for_device_state(&self, device_id: &str, state: &str) -> Value {
        until(&format!("the device to be {state}"), async || {
            let device = self.device(device_id).await;
            if device["state"] == state { Ok(device) } else { Err(device.to_string()) }
        })
        .await
    }

    /// Kills it with SIGKILL. Its private cluster, if it has one, keeps running. Returns how it ended.
    pub fn kill_9(&mut self) -> ExitStatus {
        self.process.take().expect("the gateway runs").kill_9()
    }

    /// Waits until it has ended after a stop that was requested elsewhere.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.take().expect("the gateway ran").ended().await
    }

    /// Stops it as an administrator would, and waits until it has ended.
    pub async fn stop(&mut self, signal: Signal) -> ExitStatus {
        let process = self.process.take().expect("the gateway runs");
        process.signal(signal);
        process.ended().await
    }

    /// The state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        drop(self.process.take());
        process::kill_cluster(&self.state_dir());
        process::remove_socket_folder(&self.state_dir());
    }
}
