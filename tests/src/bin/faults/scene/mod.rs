//! Everything that is broken or watches: three gateways on one PostgreSQL, two devices behind SSH, a model, an MCP server, a
//! receiver of callbacks, the ledgers that tools append to, a device made by hand, and one that is led to a false server. All
//! of it on an island.

pub(crate) mod book;
pub(crate) mod desk;
pub(crate) mod impostor;
pub(crate) mod ledger;
pub(crate) mod levels;
pub(crate) mod model;
pub(crate) mod office;
pub(crate) mod secrets;
pub(crate) mod stray;

use std::collections::BTreeSet;
use std::path::Path;

use deskgate_tests::gateway::{Address, SAME_SOCKET};
use deskgate_tests::island::Names;
use deskgate_tests::{GatewayProcess, Postgres};
use tokio::sync::RwLock;

use crate::history::Clock;
use book::Book;
use desk::Desk;
use impostor::Impostor;
use ledger::Effect;
use model::Model;
use office::{ADDRESS, HOST, Office};
use secrets::Secrets;
use stray::Stray;

/// Gateways.
pub(crate) const REPLICAS: usize = 3;
/// Short, so that what they bound happens often.
const CLOCKS: [&str; 4] =
    ["control.heartbeat_ms=1000", "control.lease_ms=5000", "control.offer_ms=5000", "server.drain_ms=2000"];

/// What callers write into everything they submit, and nobody may note elsewhere.
pub(crate) const INPUT: &str = "words-of-a-customer-5309";

/// The whole scene.
pub(crate) struct Scene {
    pub(crate) clock: Clock,
    pub(crate) postgres: Postgres,
    pub(crate) replicas: Vec<RwLock<GatewayProcess>>,
    pub(crate) desks: Vec<Desk>,
    pub(crate) model: Model,
    pub(crate) book: Book,
    pub(crate) office: Office,
    pub(crate) impostor: Impostor,
    pub(crate) stray: Stray,
    pub(crate) secrets: Secrets,
    addresses: Vec<Address>,
    ways: Vec<Address>,
    _names: Names,
}

impl Scene {
    /// Starts it, and returns when everything is connected and published.
    pub(crate) async fn open(clock: Clock) -> Self {
        let names = Names::start().await;
        names.lead(HOST, &[ADDRESS]);
        let (model, book, office) = (Model::start(clock).await, Book::start(clock).await, Office::start(clock).await);
        let postgres = Postgres::alone().await;
        let roots = format!("callbacks.ca_file={}", office.ca_file().display());
        let settings = [&CLOCKS[..], &[SAME_SOCKET, &roots]].concat();
        let mut replicas = vec![GatewayProcess::start(&postgres, &settings).await];
        while replicas.len() < REPLICAS {
            replicas.push(replicas[0].replica().await);
        }
        replicas[0].admin(&["allowlist", "add", HOST]).await.ok();
        let ways: Vec<_> = replicas.iter().map(GatewayProcess::ssh).collect();
        let (mut desks, mut secrets) = (Vec::new(), Secrets::default());
        secrets.add_input(INPUT);
        for (number, replica) in replicas.iter().enumerate() {
            for (what, path) in
                [("control token", replica.control_token_file()), ("sealing key", replica.state_dir().join("seal"))]
            {
                // What is no text is not looked for as one.
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if text.trim().len() >= 16 {
                    secrets.add(&format!("the {what} of gateway {number}"), text.trim());
                }
            }
        }
        for name in ["shop", "depot"] {
            let servers = desk::Servers { model: &model, book: &book, office: &office };
            desks.push(Desk::open(name, &replicas[0], &ways, servers, &mut secrets).await);
        }
        let (impostor, stray) = (Impostor::open(&replicas[0]).await, Stray::open(&replicas[0]).await);
        let addresses = replicas.iter().map(GatewayProcess::http).collect();
        let replicas = replicas.into_iter().map(RwLock::new).collect();
        Self {
            clock,
            postgres,
            replicas,
            desks,
            model,
            book,
            office,
            impostor,
            stray,
            secrets,
            addresses,
            ways,
            _names: names,
        }
    }

    /// Where callers reach a replica, also while somebody starts it anew.
    pub(crate) fn address(&self, replica: usize) -> std::net::SocketAddr {
        self.addresses[replica].get()
    }

    /// Where devices reach the gateways, also while somebody starts one anew.
    pub(crate) fn ways(&self) -> Vec<Address> {
        self.ways.clone()
    }

    /// What the tools of all devices wrote.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let written = self.desks.iter().flat_map(|desk| ledger::read(&desk.folder(), self.clock));
        written.chain(self.book.effects()).collect()
    }

    /// The jobs that wrote what their owner was asked about.
    pub(crate) fn written(&self) -> BTreeSet<String> {
        self.desks.iter().flat_map(|desk| ledger::read_asked(&desk.folder())).collect()
    }

    /// Copies the logs of everything to a folder, and returns what they say.
    pub(crate) async fn keep_logs(&self, folder: &Path) -> Vec<(String, String)> {
        let mut logs = Vec::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            logs.push((format!("gateway-{number}"), replica.read().await.folder().join("gateway.log")));
        }
        for (number, desk) in self.desks.iter().enumerate() {
            logs.push((format!("agent-{number}"), desk.device.read().await.folder().join("agent.log")));
        }
        let kept = |(name, path)| {
            let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
            std::fs::write(folder.join(format!("{name}.log")), &text).expect("the report's folder can be written");
            (name, text)
        };
        logs.into_iter().map(kept).collect()
    }
}
