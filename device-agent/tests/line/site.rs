//! A gateway with its private cluster, one paired device, one published service, one caller.

use std::time::{Duration, SystemTime};

use deskgate::dispatcher::DispatcherHandle;
use deskgate::identity::DeviceKey;
use deskgate::link::{Connector, Credentials};
use deskgate::services::{CheckEnvironment, GatewayClient as _, ServiceManager};
use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::mcp::connections::Connections;
use deskgate_assistant::providers::Providers;
use deskgate_definition::{Definition, Network, Provider, RunLimits};
use deskgate_gateway::domain::devices::{SessionTimings, pair};
use deskgate_gateway::{Gateway, Settings, upkeep};
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::ids::{DeviceId, EndpointId};
use deskgate_protocol::management::{CreateApplication, SetAccess};
use deskgate_protocol::run::{EventType, Phase, Run, RunState};
use deskgate_protocol::{RunId, Timestamp};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::device::{LineDevice, TestExecutor};
use crate::pipe::Cutter;

const SESSION_LEASE: Duration = Duration::from_millis(300);
const OFFER_TIMEOUT: Duration = Duration::from_millis(300);
/// The interval between two polls of a state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct LineSite {
    pub(crate) home: TempDir,
    pub(crate) cutter: Cutter,
    pub(crate) stage: TestExecutor,
    gateway: Gateway,
    key: DeviceKey,
    device_id: DeviceId,
    endpoint_id: Option<EndpointId>,
    app_key: String,
}

impl LineSite {
    pub(crate) async fn start() -> Self {
        let home = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(home.path().join("work")).expect("made");
        let mut settings = Settings::built_in(home.path().join("gateway"), "127.0.0.1:0".parse().expect("an address"));
        settings.clocks =
            SessionTimings { heartbeat: Duration::from_millis(100), lease: SESSION_LEASE, offer: OFFER_TIMEOUT };
        let gateway = Gateway::start(settings).await.expect("starts");
        let key = DeviceKey::load_or_create(&home.path().join("key")).expect("a key");
        let file = IdentityFile::sign(key.signing_key(), "desk", Timestamp::now());
        let device_id = pair(gateway.store(), &file).await.expect("paired").device_id;
        let (cutter, stage) = (Cutter::new(), TestExecutor::new());
        let mut site = Self { home, cutter, stage, gateway, key, device_id, endpoint_id: None, app_key: String::new() };
        site.publish().await;
        site
    }

    async fn publish(&mut self) {
        let device = LineDevice::boot(self).await;
        let mut status = device.handle.watch();
        status.wait_for(|status| status.connected).await.expect("it dials");
        let created = device.handle.call(CreateApplication { name: "Backend".to_owned() }).await.expect("created");
        let definition = Definition {
            name: "Reader".to_owned(),
            description: String::new(),
            working_directory: self.home.path().join("work"),
            provider: Provider::Scripted,
            model: "folder".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "Answer.".to_owned(),
            tools: Vec::new(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: Default::default(),
            protected: Vec::new(),
            network: Network::None,
            limits: RunLimits::default(),
        };
        let nowhere = std::path::Path::new("/nonexistent");
        let (accounts, servers) = (Providers::new(nowhere.into()), McpServers::new(Connections::new(nowhere.into())));
        let computer = CheckEnvironment { home: None, own_folder: nowhere.into(), accounts, servers };
        let fixture = ServiceManager::new(device.store.services(), device.handle.clone(), computer);
        let draft_id = fixture.create(created.application.app_id, definition).await.expect("created").draft_id;
        let report = fixture.check(draft_id).await.expect("checked");
        assert!(report.passed(), "{report:?}");
        self.endpoint_id = fixture.publish(draft_id).await.expect("published").endpoint_id;
        device.handle.call(SetAccess { enabled: true }).await.expect("enabled");
        self.app_key = created.key.text;
        drop(fixture);
        device.end().await;
    }

    pub(crate) fn connector(&self) -> Connector {
        self.cutter.connector(self.gateway.pipes())
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            key: self.key.clone(),
            token: Some(self.gateway.control_token().clone()),
            known_gateways: None,
            journal_id: None,
        }
    }

    /// Submits over HTTP, as a backend does.
    pub(crate) async fn submit(&self) -> RunId {
        let endpoint_id = self.endpoint_id.expect("published");
        let body = r#"{"input":{"text":"Hello"}}"#;
        let request = format!(
            "POST /api/v1/agent-endpoints/{endpoint_id}/runs HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nX-Gateway-Subject: somebody\r\nIdempotency-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.app_key,
            RunId::new(),
            body.len()
        );
        let mut stream = TcpStream::connect(self.gateway.addresses().http).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let run: serde_json::Value = serde_json::from_str(body).expect("JSON");
        run["run_id"].as_str().expect("named").parse().expect("an identifier")
    }

    pub(crate) async fn run(&self, run_id: RunId) -> Run {
        let stored = self.gateway.store().run_of_device(self.device_id, run_id).await.expect("readable");
        stored.expect("it was accepted").0.run
    }

    /// The kinds of the run's events, in order.
    pub(crate) async fn events(&self, run_id: RunId) -> Vec<EventType> {
        let events = self.gateway.store().events_after(run_id, 0, 1000).await.expect("readable");
        events.into_iter().map(|event| event.kind).collect()
    }

    /// Waits until the run has ended and the device has the gateway's acknowledgement.
    pub(crate) async fn is_settled(&self, run_id: RunId, device: DispatcherHandle) {
        while !(self.run(run_id).await.phase == Phase::Final && device.status().runs.is_empty()) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the absent device has lost its lease and every offer with it.
    pub(crate) async fn lapse(&self, run_id: RunId) {
        loop {
            upkeep::run_once(self.gateway.store(), Duration::from_secs(3600)).await.expect("readable");
            let device = self.gateway.store().device(self.device_id).await.expect("readable").expect("paired");
            let seen = device.last_seen_at.map_or(SystemTime::UNIX_EPOCH, |at| at.0.into());
            let run_out = seen + SESSION_LEASE + OFFER_TIMEOUT < SystemTime::now();
            let state = self.run(run_id).await.state;
            if run_out && state != RunState::Running {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.gateway.stop().await;
    }
}
