//! The desktop's agent, set up with its own command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate_store::Store;
use serde_json::{Value, json};

use crate::environment::{BenchGateway, Programs, START_TIMEOUT, answer};
use crate::process::ChildProcess;
use crate::requests::LoadTarget;

/// The desktop's agent.
pub(crate) struct Desktop {
    process: Option<ChildProcess>,
    program: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    /// What the agent's process has in its environment beside that.
    environment: Vec<(String, String)>,
}

impl Desktop {
    /// Starts one in `folder`, in built-in mode.
    pub(crate) async fn start(programs: &Programs, folder: &Path) -> anyhow::Result<Self> {
        let (program, folder) = (programs.agent.clone(), folder.to_owned());
        let mut desktop = Self {
            process: None,
            program,
            home: folder.join("home"),
            folder,
            environment: programs.agent_environment(),
        };
        desktop.resume().await?;
        Ok(desktop)
    }

    /// Starts it again, and waits until it is connected.
    pub(crate) async fn resume(&mut self) -> anyhow::Result<()> {
        let mut command = self.command();
        let log = self.folder.join("agent.log");
        self.process = Some(ChildProcess::start(command.args(["start", "--foreground"]), &log)?);
        self.connected().await
    }

    /// Stops it.
    pub(crate) fn pause(&mut self) {
        self.process = None;
    }

    /// Starts it anew with these variables in its environment.
    pub(crate) async fn resume_with(&mut self, environment: Vec<(String, String)>) -> anyhow::Result<()> {
        self.pause();
        self.environment = environment;
        self.resume().await
    }

    /// Its process.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.process.as_ref().context("the agent is stopped")?.pid())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("DESKGATE_HOME", &self.home).envs(self.environment.iter().cloned());
        command
    }

    /// Runs a command of the agent's own command line.
    pub(crate) async fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = self.command();
        command.arg("--json").args(words);
        answer(command).await
    }

    async fn connected(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
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

    /// Pairs it with a server and connects to the server over SSH.
    pub(crate) async fn pair(&mut self, server: &BenchGateway) -> anyhow::Result<()> {
        self.pair_at(server, &server.ssh).await
    }

    /// As [`Self::pair`], at another address of the SSH listener.
    pub(crate) async fn pair_at(&mut self, server: &BenchGateway, ssh: &str) -> anyhow::Result<()> {
        let identity = self.folder.join("identity.json").display().to_string();
        let socket = server.control_socket().display().to_string();
        let token = server.control_token_file().display().to_string();
        self.ask(&["identity", "export", &identity]).await?;
        server.ask(&["admin", "device", "add", &identity]).await?;
        let host_key = server.ask(&["admin", "host-key"]).await?;
        let fingerprint = host_key["fingerprint"].as_str().context("no fingerprint")?;
        let save = ["connection", "set", "--mode", "remote", "--ssh-user", "deskgate", "--ssh-address", ssh];
        let rest = ["--control-socket", &socket, "--host-key", fingerprint, "--token-file", &token];
        self.ask(&[save.as_slice(), rest.as_slice()].concat()).await?;
        // A fresh process, without leftovers of the built-in gateway.
        self.pause();
        self.resume().await
    }

    /// A script of the scripted assistant, as a model's name.
    pub(crate) fn script(&self, name: &str, steps: &Value) -> anyhow::Result<String> {
        let path = self.folder.join(format!("{name}.json"));
        std::fs::write(&path, json!({ "steps": steps }).to_string())?;
        Ok(format!("script:{}", path.display()))
    }

    /// The folder that services work in.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Publishes a service that answers at once, and enables access.
    pub(crate) async fn publish(&self) -> anyhow::Result<LoadTarget> {
        let model = self.script("answers", &json!([{ "text": "Replacement confirmed." }]))?;
        self.publish_as("bench", &["--model", &model, "--tools", "none"]).await
    }

    /// Publishes a service in an application of the same name, and enables access. `arguments` are those of `service
    /// create` besides its folder.
    pub(crate) async fn publish_as(&self, name: &str, arguments: &[&str]) -> anyhow::Result<LoadTarget> {
        std::fs::create_dir_all(self.work())?;
        let created = self.ask(&["app", "create", name]).await?;
        let directory = self.work().display().to_string();
        let service = ["service", "create", name, "--app", name, "--dir", &directory];
        self.ask(&[&service[..], arguments].concat()).await?;
        self.ask(&["service", "check", name]).await?;
        let published = self.ask(&["service", "publish", name]).await?;
        let access = self.ask(&["access", "enable"]).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let address = text(&access["address"]).context("no address")?;
        let address = address.trim_start_matches("http://").trim_end_matches("/api/v1");
        Ok(LoadTarget {
            address: address.parse()?,
            key: text(&created["key"]["text"]).context("no key")?,
            endpoint_id: text(&published["endpoint_id"]).context("no endpoint")?,
        })
    }

    /// Sets how many runs it executes at the same time. It must be stopped.
    pub(crate) async fn set_slots(&self, slots: u32) -> anyhow::Result<()> {
        anyhow::ensure!(self.process.is_none(), "a running agent has read its settings already");
        let store = Store::open(self.home.join("deskgate.db")).await?;
        Ok(store.settings().set_slots(slots).await?)
    }

    /// More keys of the application that [`Self::publish`] made.
    pub(crate) async fn more_keys(&self, target: &LoadTarget, count: usize) -> anyhow::Result<Vec<LoadTarget>> {
        let mut targets = Vec::with_capacity(count);
        for number in 0..count {
            let created = self.ask(&["key", "create", "--app", "bench", &format!("caller {number}")]).await?;
            let key = created["text"].as_str().context("no key")?.to_owned();
            targets.push(LoadTarget { key, ..target.clone() });
        }
        Ok(targets)
    }
}
