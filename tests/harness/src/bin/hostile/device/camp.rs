//! The stage: a real gateway, an honest device with two applications and a run under way, and a hostile device with an
//! application of its own.

use anyhow::Context;
use deskgate_protocol::EndpointId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use super::line::{Heard, Line};

/// What stands in everything that is the honest device's. The hostile one must never hear it.
pub(super) const HONEST_MARK: &str = "honest-matter-4711";
/// What stands in everything that the hostile device says. Nobody else must read it.
pub(super) const HOSTILE_MARK: &str = "hostile-matter-666";

/// Everything on the stage.
pub(super) struct Camp {
    pub(super) postgres: Postgres,
    pub(super) gateway: GatewayProcess,
    pub(super) honest: TestDevice,
    /// Callers of the honest device's two applications.
    pub(super) callers: [Backend; 2],
    /// What the hostile device knows of the honest one: every identifier.
    pub(super) known: Known,
    pub(super) hostile: RawIdentity,
    pub(super) own_app: String,
    pub(super) own_caller: Backend,
    pub(super) heard: Heard,
    line: Option<Line>,
    _folders: Vec<Folder>,
}

/// Identifiers of the honest device's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) device_id: String,
    pub(super) app_id: String,
    pub(super) key_id: String,
    pub(super) endpoint_id: String,
    pub(super) ended_run: String,
    pub(super) running_run: String,
    pub(super) conversation_id: String,
    pub(super) operation_id: String,
    pub(super) hook_id: String,
}

impl Camp {
    /// Sets everything up.
    pub(super) async fn begin() -> anyhow::Result<Self> {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &["control.heartbeat_ms=2000"]).await;
        let honest = TestDevice::paired_with(&gateway).await;
        let folders = [Folder::new(), Folder::new(), Folder::new()];
        let quick = folders[0].slow_answer(10, HONEST_MARK);
        let slow = folders[2].slow_answer(3_600_000, HONEST_MARK);
        let (one, two) = (format!("{HONEST_MARK}-a"), format!("{HONEST_MARK}-b"));
        let first = honest.publish(&gateway, &one, &folders[0], &["--model", &quick]).await;
        let second = honest.publish(&gateway, &two, &folders[1], &["--model", &quick]).await;
        let slow_id =
            honest.add_service(&one, "slow", &folders[2], &["--model", &slow, "--max-duration", "3600"]).await;
        let ended_run = first.submit(HONEST_MARK).await;
        first.wait_for_end(&ended_run).await;
        let operation = first.stop(&ended_run).await;
        let conversation_id = first.conversation("case-1").await;
        first.say_and_wait(&conversation_id, 1, HONEST_MARK).await;
        let slow_caller = Backend::new(gateway.http(), first.key(), &slow_id);
        let running_run = slow_caller.submit(HONEST_MARK).await;
        slow_caller.wait_for_state(&running_run, "running").await;
        let hook = ["hook", "create", "in", "--app", &one, "--service", first.endpoint_id(), "--scheme", "standard"];
        let hook = honest.cli(&[&hook[..], &["--text", "{{ $.text }}", "--subject", "customer-1"]].concat()).await.ok();
        let apps = honest.cli(&["app", "list"]).await.ok();
        let keys = honest.cli(&["key", "list", "--app", &one]).await.ok();
        let known = Known {
            device_id: honest.device_id().await,
            app_id: found(&apps, "app_")?,
            key_id: found(&keys, "key_")?,
            endpoint_id: first.endpoint_id().to_owned(),
            ended_run,
            running_run,
            conversation_id,
            operation_id: operation["operation_id"].as_str().context("an operation")?.to_owned(),
            hook_id: found(&hook, deskgate_protocol::HookId::PREFIX)?,
        };

        let hostile = RawIdentity::new(66);
        hostile.pair(&gateway, "hostile").await.ok();
        let heard = Heard::default();
        let mut camp = Self {
            own_caller: first.clone(),
            postgres,
            gateway,
            honest,
            callers: [first, second],
            known,
            hostile,
            own_app: String::new(),
            heard,
            line: None,
            _folders: folders.into(),
        };
        camp.publish_own().await?;
        Ok(camp)
    }

    /// The hostile device's own application and service.
    async fn publish_own(&mut self) -> anyhow::Result<()> {
        let endpoint_id = EndpointId::new().to_string();
        let line = self.line().await?;
        let created = line.ask(json!({ "call": "create_application", "name": "own" })).await?.context("no answer")?;
        let app_id = created["ok"]["application"]["app_id"].as_str().context("no application")?.to_owned();
        let key = created["ok"]["key"]["text"].as_str().context("no key")?.to_owned();
        line.ask(publication(&app_id, &endpoint_id, "own", 1)).await?;
        line.ask(json!({ "call": "set_access", "enabled": true })).await?;
        self.own_caller = Backend::new(self.gateway.http(), &key, &endpoint_id);
        self.own_app = app_id;
        Ok(())
    }

    /// A hello of the hostile device for a new connection.
    pub(super) async fn challenged(&self) -> anyhow::Result<(Line, Value)> {
        let (line, challenge) = Line::challenged(&self.gateway, &self.heard).await?;
        let hello = serde_json::to_value(self.hostile.hello(&challenge, Vec::new()))?;
        Ok((line, hello))
    }

    /// The open session, or a new one.
    pub(super) async fn line(&mut self) -> anyhow::Result<&mut Line> {
        if !self.line.as_ref().is_some_and(Line::is_open) {
            let line = self.session_with(json!([])).await?;
            self.line = Some(line);
        }
        self.line.as_mut().context("it was just opened")
    }

    /// A new session.
    pub(super) async fn fresh_line(&mut self) -> anyhow::Result<&mut Line> {
        self.line = None;
        self.line().await
    }

    /// A new session whose hello names these runs.
    pub(super) async fn session_with(&self, in_flight: Value) -> anyhow::Result<Line> {
        let (mut line, mut hello) = self.challenged().await?;
        hello["in_flight"] = in_flight;
        line.send(hello).await;
        let welcomed = line.awaited(|frame| frame["frame"] == "welcome" || frame["frame"] == "refused").await?;
        anyhow::ensure!(welcomed.as_ref().is_some_and(|f| f["frame"] == "welcome"), "not welcomed: {welcomed:?}");
        Ok(line)
    }

    /// A run of the hostile device's own service, offered to it and started. Returns its identifier and attempt. What was
    /// left behind by earlier behaviours is ended before it.
    pub(super) async fn own_run(&mut self) -> anyhow::Result<(String, u64)> {
        let run_id = self.own_caller.submit(HOSTILE_MARK).await;
        let line = self.line().await?;
        loop {
            line.send(json!({ "frame": "ready", "slots": 1 })).await;
            let offer = line.awaited(|frame| frame["frame"] == "offer").await?.context("no offer")?;
            let attempt = offer["attempt"].as_u64().context("an attempt")?;
            let offered = offer["run_id"].as_str().context("a run")?.to_owned();
            line.send(json!({ "frame": "accept", "run_id": offered, "attempt": attempt })).await;
            let is_start = |frame: &Value| frame["frame"] == "start" && frame["run_id"] == offered.as_str();
            line.awaited(is_start).await?.context("no start")?;
            if offered == run_id {
                return Ok((run_id, attempt));
            }
            line.send(json!({ "frame": "finish", "run_id": offered, "attempt": attempt, "seq": 1,
                "outcome": super::results::succeeded("left behind") }))
                .await;
        }
    }
}

/// A request to publish a service.
pub(super) fn publication(app_id: &str, endpoint_id: &str, name: &str, version: u64) -> Value {
    json!({ "call": "publish_endpoint", "app_id": app_id, "endpoint_id": endpoint_id, "version": version,
        "name": name, "description": HOSTILE_MARK, "definition_sha256": Sha256Digest::of(b"hostile") })
}

/// The first identifier with this prefix in a value.
fn found(value: &Value, prefix: &str) -> anyhow::Result<String> {
    let text = value.to_string();
    let is_one = |word: &&str| word.strip_prefix(prefix).is_some_and(|digits| digits.len() == 32);
    let found = text.split('"').find(is_one).map(str::to_owned);
    found.with_context(|| format!("no {prefix} in {text}"))
}
