//! The system under test and its witnesses: three gateways on one PostgreSQL, two devices behind SSH, a model, an MCP
//! server, a receiver of callbacks, the tools' effect logs and shelves, a raw device, and one device that is directed to an
//! impostor server. All of it is on an island.

pub(crate) mod carry;
pub(crate) mod desktop;
pub(crate) mod effect_log;
pub(crate) mod fake_model;
pub(crate) mod fake_receiver;
pub(crate) mod fake_tool_server;
pub(crate) mod impostor;
pub(crate) mod leak_scan;
pub(crate) mod model_behaviour;
pub(crate) mod raw_device;
pub(crate) mod resource_usage;
pub(crate) mod shelf;
mod spread;

use std::collections::BTreeSet;
use std::path::Path;

use deskgate_tests::gateway::{Address, RELATIVE_SOCKET_SETTING};
use deskgate_tests::netns::DnsServer;
use deskgate_tests::{GatewayProcess, Postgres};
use tempfile::TempDir;
use tokio::sync::RwLock;

use crate::history::Clock;
use desktop::Desktop;
use effect_log::Effect;
use fake_model::FakeModel;
use fake_receiver::{FakeReceiver, RECEIVER_ADDRESS, RECEIVER_HOST};
use fake_tool_server::FakeToolServer;
use impostor::Impostor;
use leak_scan::LeakScanner;
use raw_device::RawDevice;
use shelf::Shelves;

/// The number of gateways.
pub(crate) const REPLICA_COUNT: usize = 3;
/// Short timeouts, so that they expire often.
const SHORT_TIMEOUT_SETTINGS: [&str; 4] =
    ["control.heartbeat_ms=1000", "control.lease_ms=5000", "control.offer_ms=5000", "server.drain_ms=2000"];

/// Words in every submission, which may be stored nowhere else.
pub(crate) const CALLER_INPUT: &str = "words-of-a-customer-5309";

/// The system under test with its witnesses.
pub(crate) struct Testbed {
    pub(crate) clock: Clock,
    pub(crate) postgres: Postgres,
    pub(crate) replicas: Vec<RwLock<GatewayProcess>>,
    pub(crate) desktops: Vec<Desktop>,
    pub(crate) model: FakeModel,
    pub(crate) book: FakeToolServer,
    pub(crate) receiver: FakeReceiver,
    pub(crate) impostor: Impostor,
    pub(crate) stray: RawDevice,
    pub(crate) shelves: Shelves,
    pub(crate) secrets: LeakScanner,
    /// Where all gateways keep the bytes of files and artifacts.
    storage: TempDir,
    addresses: Vec<Address>,
    ways: Vec<Address>,
    _names: DnsServer,
}

impl Testbed {
    /// Starts it, and returns when everything is connected and published.
    pub(crate) async fn open(clock: Clock) -> Self {
        let names = DnsServer::start().await;
        names.set_addresses(RECEIVER_HOST, &[RECEIVER_ADDRESS]);
        let (model, book, receiver) =
            (FakeModel::start(clock).await, FakeToolServer::start(clock).await, FakeReceiver::start(clock).await);
        let postgres = Postgres::start_exclusive().await;
        let roots = format!("callbacks.ca_file={}", receiver.ca_file().display());
        let storage = TempDir::with_prefix("deskgate-objects-").expect("a temporary folder");
        let place = format!("storage.url={}", storage.path().display());
        let settings = [&SHORT_TIMEOUT_SETTINGS[..], &[RELATIVE_SOCKET_SETTING, &roots, &place]].concat();
        let mut replicas = vec![GatewayProcess::start(&postgres, &settings).await];
        while replicas.len() < REPLICA_COUNT {
            replicas.push(replicas[0].replica().await);
        }
        replicas[0].admin(&["allowlist", "add", RECEIVER_HOST]).await.ok();
        let ways: Vec<_> = replicas.iter().map(GatewayProcess::ssh).collect();
        let (mut desktops, mut secrets) = (Vec::new(), LeakScanner::default());
        secrets.add_input(CALLER_INPUT);
        for (number, replica) in replicas.iter().enumerate() {
            for (what, path) in
                [("control token", replica.control_token_file()), ("sealing key", replica.state_dir().join("seal"))]
            {
                // Only text is searched for as text.
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if text.trim().len() >= 16 {
                    secrets.add(&format!("the {what} of gateway {number}"), text.trim());
                }
            }
        }
        for name in ["shop", "depot"] {
            let servers = desktop::FakeServers { model: &model, book: &book, receiver: &receiver };
            desktops.push(Desktop::open(name, &replicas[0], &ways, servers, &mut secrets).await);
        }
        let folders: Vec<_> = desktops.iter().map(Desktop::folder).collect();
        let shelves = Shelves::watch(clock, &folders);
        let (impostor, stray) = (Impostor::open(&replicas[0]).await, RawDevice::open(&replicas[0]).await);
        let addresses = replicas.iter().map(GatewayProcess::http).collect();
        let replicas = replicas.into_iter().map(RwLock::new).collect();
        Self {
            clock,
            postgres,
            replicas,
            desktops,
            model,
            book,
            receiver,
            impostor,
            stray,
            shelves,
            secrets,
            storage,
            addresses,
            ways,
            _names: names,
        }
    }

    /// The address of a replica for callers; it follows restarts.
    pub(crate) fn address(&self, replica: usize) -> std::net::SocketAddr {
        self.addresses[replica].get()
    }

    /// The addresses of the gateways for devices; they follow restarts.
    pub(crate) fn ways(&self) -> Vec<Address> {
        self.ways.clone()
    }

    /// The folder in which all gateways keep the bytes of files and artifacts.
    pub(crate) fn storage(&self) -> &Path {
        self.storage.path()
    }

    /// The effects of the tools of all devices.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let written = self.desktops.iter().flat_map(|desktop| effect_log::read(&desktop.folder(), self.clock));
        written.chain(self.book.effects()).collect()
    }

    /// The jobs whose write needed approval and happened.
    pub(crate) fn written(&self) -> BTreeSet<String> {
        self.desktops.iter().flat_map(|desktop| effect_log::read_asked(&desktop.folder())).collect()
    }

    /// Copies all logs to a folder, and returns their texts.
    pub(crate) async fn keep_logs(&self, folder: &Path) -> Vec<(String, String)> {
        let mut logs = Vec::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            logs.push((format!("gateway-{number}"), replica.read().await.folder().join("gateway.log")));
        }
        for (number, desktop) in self.desktops.iter().enumerate() {
            logs.push((format!("agent-{number}"), desktop.device.read().await.folder().join("agent.log")));
        }
        let kept = |(name, path)| {
            let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
            std::fs::write(folder.join(format!("{name}.log")), &text).expect("the report's folder can be written");
            (name, text)
        };
        logs.into_iter().map(kept).collect()
    }
}
