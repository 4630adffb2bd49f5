//! The stage: a real gateway and a real desktop with two services; then the hostile gateway takes over the address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use deskgate_tests::raw::RawConnection;
use deskgate_tests::vendors::{ModelVendor, Move, Vendor};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use russh::keys::PrivateKey;
use russh::server::Config;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::door::Door;
use super::line::{ANSWER_TIMEOUT, Greeting, Line, challenge, welcome};
use super::shell::{Shell, config};

/// What was said to one service before the gateway was taken over. Nobody else may read it.
pub(super) const SECRET: &str = "the-vault-code-is-7719";
/// What the owner of `orders` tried its draft with.
pub(super) const TRIED_TEXT: &str = "What will be different?";
/// The file to which runs append.
pub(super) const LEDGER: &str = "ledger";
/// The vendor whose stand-in is the model.
const VENDOR: Vendor = Vendor::Mistral;
/// How long a desktop has to dial by itself before it is told to.
const OWN_PACE: Duration = Duration::from_millis(250);

/// A service as the gateway knows it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) endpoint_id: String,
    pub(super) version: u64,
    pub(super) digest: String,
}

/// Everything on the stage.
pub(super) struct Siege {
    pub(super) device: TestDevice,
    pub(super) model: ModelVendor,
    pub(super) gateway: GatewayProcess,
    pub(super) door: Door,
    pub(super) key: PrivateKey,
    pub(super) gateway_id: String,
    pub(super) device_id: String,
    /// The attacked service, and another one of another application.
    pub(super) orders: Service,
    pub(super) accounts: Service,
    /// The draft of `orders`, which its owner tried once with [`TRIED_TEXT`].
    pub(super) draft: Service,
    /// A conversation of customer-1 with `orders`, in which the secret was said.
    pub(super) conversation: String,
    pub(super) backend: Backend,
    /// A run that ended before.
    pub(super) ended_run: String,
    /// The folder of `orders`, that of `accounts`, and one that belongs to no service.
    pub(super) folders: [PathBuf; 3],
    pub(super) epoch: u64,
    line: Option<Line>,
    kick: Option<AbortOnDropHandle<()>>,
    _kept: (Postgres, Folder, Folder, Folder),
}

impl Siege {
    /// Sets everything up with the real gateway.
    pub(super) async fn begin() -> anyhow::Result<Self> {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let door = Door::to(gateway.ssh().get()).await?;
        let device = TestDevice::for_remote().await;
        let paired = device.pair(&gateway, &[]).await;
        device.connect_straight(door.address, &paired, &gateway.control_token_file()).await.ok();
        let device_id = device.device_id().await;
        let model = ModelVendor::start(VENDOR, Vec::new()).await;
        let key_file = model.key_file();
        let (base_url, key_file) = (model.base_url(), key_file.to_str().context("a plain name")?.to_owned());
        let profile = ["--profile", VENDOR.profile(), "--base-url", &base_url, "--key-file", &key_file];
        device.cli(&[&["provider", "set", "work"][..], &profile].concat()).await.ok();
        let (orders, accounts, victim) = (Folder::new(), Folder::new(), Folder::new());
        let service =
            ["--provider", "work", "--model", VENDOR.model(), "--tools", "Bash,Read,Write", "--allow", "Bash"];
        let service = [&service[..], &["--concurrency", "2"]].concat();
        let backend = device.publish(&gateway, "orders", &orders, &service).await;
        let other = device.publish(&gateway, "accounts", &accounts, &service).await;

        model.then(vec![say("noted"), say("done")]);
        let conversation = backend.conversation("case-1").await;
        backend.say_and_wait(&conversation, 1, SECRET).await;
        let ended_run = backend.submit("an honest run").await;
        backend.wait_for_end(&ended_run).await;

        device.cli(&["service", "edit", "orders", "--description", "Not published."]).await.ok();
        device.cli(&["service", "check", "orders"]).await.ok();
        model.then(vec![say("tried")]);
        let tried = ["service", "try", "orders", "--draft", "--input", TRIED_TEXT, "--wait", "60s"];
        let tried = device.cli(&tried).await.ok();
        let draft = draft(&postgres, tried["run"]["run_id"].as_str().context("a run")?).await?;

        let (_, greeting) = RawConnection::open_to_challenge(&gateway).await;
        let key = russh::keys::load_secret_key(gateway.state_dir().join("ssh_host_ed25519_key"), None)?;
        let folders = [&orders, &accounts, &victim].map(Folder::path);
        let [orders_known, accounts_known] =
            [known(&postgres, backend.endpoint_id()).await?, known(&postgres, other.endpoint_id()).await?];
        Ok(Self {
            device,
            model,
            gateway,
            door,
            key,
            gateway_id: greeting.gateway_id.to_string(),
            device_id,
            orders: orders_known,
            accounts: accounts_known,
            draft,
            conversation,
            backend,
            ended_run,
            folders,
            epoch: 1000,
            line: None,
            kick: None,
            _kept: (postgres, orders, accounts, victim),
        })
    }

    /// From now on the desktop reaches the hostile gateway.
    pub(super) fn take_over(&mut self) {
        self.door.leads_to(None);
    }

    /// The next connection of the desktop, which is told to dial if it does not by itself.
    pub(super) async fn visitor(&mut self) -> anyhow::Result<tokio::net::TcpStream> {
        self.line = None;
        self.door.turn_away();
        if let Ok(visitor) = timeout(OWN_PACE, self.door.visitor()).await {
            return visitor;
        }
        self.tell_to_dial();
        self.door.visitor().await
    }

    /// Lets the owner ask for a connection, which ends a wait.
    pub(super) fn tell_to_dial(&mut self) {
        let (home, program) = (self.device.home(), deskgate_tests::binaries::agent());
        self.kick = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut command = tokio::process::Command::new(program);
            command.args(["--json", "connection", "test", "--mode", "remote"]).env("DESKGATE_HOME", home);
            let _ = command.kill_on_drop(true).output().await;
        })));
    }

    /// The hostile server's settings.
    pub(super) fn config(&self) -> Config {
        config(&self.key)
    }

    /// A desktop that opened its channel.
    pub(super) async fn shell(&mut self, config: Config) -> anyhow::Result<Shell> {
        let socket = self.visitor().await?;
        Shell::open(socket, config).await
    }

    /// A desktop that waits for its challenge.
    pub(super) async fn upgraded(&mut self) -> anyhow::Result<Greeting> {
        let config = self.config();
        let (ssh, socket, serving) = self.shell(config).await?.upgrade().await?;
        Ok(Greeting { ssh, socket, serving })
    }

    /// A desktop that said hello, and its hello.
    pub(super) async fn greeted(&mut self) -> anyhow::Result<(Greeting, Value)> {
        let mut greeting = self.upgraded().await?;
        greeting.send(&challenge(&self.gateway_id)).await?;
        let hello = greeting.next().await?.context("the desktop left instead of its hello")?;
        Ok((greeting, hello))
    }

    /// A desktop that was welcomed.
    pub(super) async fn welcomed(&mut self) -> anyhow::Result<Greeting> {
        let (mut greeting, _) = self.greeted().await?;
        self.epoch += 1;
        greeting.send(&welcome(&self.device_id, self.epoch)).await?;
        Ok(greeting)
    }

    /// The open session, or a new one.
    pub(super) async fn line(&mut self) -> anyhow::Result<&mut Line> {
        if !self.line.as_ref().is_some_and(Line::is_open) {
            let mut line = Line::after(self.welcomed().await?);
            line.awaited(|frame| frame["frame"] == "ready").await?.context("the desktop left instead of its ready")?;
            self.line = Some(line);
        }
        self.line.as_mut().context("it was just opened")
    }

    /// A new session of which nothing was read yet.
    pub(super) async fn unread_line(&mut self) -> anyhow::Result<&mut Line> {
        self.line = Some(Line::after(self.welcomed().await?));
        self.line.as_mut().context("it was just opened")
    }

    /// A new session.
    pub(super) async fn fresh_line(&mut self) -> anyhow::Result<&mut Line> {
        self.line = None;
        self.line().await
    }

    /// An offer of a service with this text.
    pub(super) fn offer(&self, run_id: &str, attempt: u64, text: &str) -> Value {
        offer(&self.orders, run_id, attempt, text)
    }

    /// The model writes a line to the ledger, after some seconds, and then answers.
    pub(super) fn model_works(&self, token: &str, after_s: u32) {
        let command = format!("sleep {after_s}; printf '%s\\n' {token} >> {LEDGER}");
        self.model.then(vec![Move::Call(vec![("Bash", json!({ "command": command }))]), say("done")]);
    }

    /// What runs have appended in a folder.
    pub(super) fn ledger(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join(LEDGER)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the desktop says this of its line.
    pub(super) async fn desktop_says(&self, what: &str) -> anyhow::Result<String> {
        let looked = async {
            loop {
                let said = self.device.cli(&["status"]).await;
                let line = said.value["line"].to_string();
                if line.contains(what) {
                    return line;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(ANSWER_TIMEOUT, looked).await.with_context(|| format!("the desktop does not say {what:?} of its line"))
    }

    /// Gives the address back to the real gateway, and has it do what it did before.
    pub(super) async fn give_back(&mut self) -> anyhow::Result<BTreeMap<&'static str, String>> {
        self.line = None;
        self.door.leads_to(Some(self.gateway.ssh().get()));
        self.tell_to_dial();
        self.device.wait_until_connected().await;
        self.model.then(vec![say("an honest answer"), say("remembered")]);
        let run = self.backend.wait_for_end(&self.backend.submit("an honest run").await).await;
        let remembered = self.backend.say_and_wait(&self.conversation, 1, "what did I say?").await;
        let asked = self.model.asked().last().map(Value::to_string).unwrap_or_default();
        until("nothing of the hostile runs to be left", async || {
            let work = self.device.status().await["work"]["runs"].clone();
            if work.as_array().is_none_or(Vec::is_empty) { Ok(()) } else { Err(work.to_string()) }
        })
        .await;
        let kept = if asked.contains(SECRET) { "kept" } else { "lost" };
        Ok([
            ("run", run["result"]["text"].as_str().unwrap_or("none").to_owned()),
            ("message", remembered),
            ("memory", kept.to_owned()),
        ]
        .into())
    }
}

/// An offer of a service.
pub(super) fn offer(service: &Service, run_id: &str, attempt: u64, text: &str) -> Value {
    json!({ "frame": "offer", "run_id": run_id, "attempt": attempt, "endpoint_id": service.endpoint_id,
        "endpoint_version": service.version, "definition_sha256": service.digest, "subject": "customer-1",
        "input": { "text": text }, "max_duration_s": 60 })
}

/// A move of the model that answers.
pub(super) fn say(text: &str) -> Move {
    Move::Say(text.to_owned())
}

/// What the real gateway's table says of the draft of a run.
async fn draft(postgres: &Postgres, run_id: &str) -> anyhow::Result<Service> {
    let digits = run_id.split_once('_').context("an identifier")?.1;
    let query = format!(
        "SELECT replace(endpoint_id::text, '-', '') AS endpoint, endpoint_version AS version, \
         encode(definition_sha256, 'hex') AS digest FROM runs WHERE replace(run_id::text, '-', '') = '{digits}'"
    );
    let rows = postgres.rows(&query).await;
    let row = rows.first().context("a run")?;
    anyhow::ensure!(row["version"] == 0, "a draft is version 0");
    Ok(Service {
        endpoint_id: format!("ep_{}", row["endpoint"].as_str().context("a service")?),
        version: 0,
        digest: row["digest"].as_str().context("a digest")?.to_owned(),
    })
}

/// What the real gateway's table says of a service.
async fn known(postgres: &Postgres, endpoint_id: &str) -> anyhow::Result<Service> {
    let digits = endpoint_id.split_once('_').context("an identifier")?.1;
    let query = format!(
        "SELECT version, encode(definition_sha256, 'hex') AS digest FROM endpoints \
         WHERE replace(endpoint_id::text, '-', '') = '{digits}'"
    );
    let rows = postgres.rows(&query).await;
    let row = rows.first().context("a published service")?;
    Ok(Service {
        endpoint_id: endpoint_id.to_owned(),
        version: row["version"].as_u64().context("a version")?,
        digest: row["digest"].as_str().context("a digest")?.to_owned(),
    })
}
