//! The gateway's own tunnel on a loopback port.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use deskgate::identity::DeviceKey;
use deskgate::link::{Credentials, Ssh};
use deskgate_gateway::tunnel::{Arrival, HostKey, HostKeys, KeyAdmission, KeyStatus, TunnelConfig, serve};
use deskgate_protocol::identity::PublicKey;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::gateway::FakeGateway;
use super::{CONTROL_SOCKET_PATH, credentials, device_key, pinned, soon, ssh};

#[derive(Default)]
pub struct PairedKeys(Mutex<HashMap<PublicKey, KeyStatus>>);

impl PairedKeys {
    pub fn set(&self, key: &DeviceKey, verdict: KeyStatus) {
        self.0.lock().expect("no panic").insert(key.public_key(), verdict);
    }

    pub fn admit(&self, key: PublicKey) {
        self.0.lock().expect("no panic").insert(key, KeyStatus::Admit);
    }
}

impl KeyAdmission for PairedKeys {
    fn admit<'a>(&'a self, key: &'a PublicKey) -> Pin<Box<dyn Future<Output = KeyStatus> + Send + 'a>> {
        let verdict = self.0.lock().expect("no panic").get(key).copied().unwrap_or(KeyStatus::Unknown);
        Box::pin(std::future::ready(verdict))
    }
}

pub struct SshServer {
    pub port: u16,
    pub host_key: HostKey,
    pub paired: Arc<PairedKeys>,
    pub arrivals: mpsc::Receiver<Arrival>,
    pub gateway: FakeGateway,
    pub device: DeviceKey,
    pub folder: TempDir,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl SshServer {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut TunnelConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let device = device_key(folder.path(), "device");
        let paired = Arc::new(PairedKeys::default());
        paired.set(&device, KeyStatus::Admit);
        let host_keys = HostKeys::load_or_create(&folder.path().join("host")).expect("a host key");
        let host_key = host_keys.current();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let mut config =
            TunnelConfig { accepts_per_second_per_source: 10_000, ..TunnelConfig::new(CONTROL_SOCKET_PATH) };
        change(&mut config);
        let (sender, arrivals) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, host_keys, config, Arc::clone(&paired) as _, sender, stop.clone()));
        Self { port, host_key, paired, arrivals, gateway: FakeGateway::new(), device, folder, stop, tasks }
    }

    pub fn ssh(&self) -> Ssh {
        ssh(self.port, pinned(&self.host_key.fingerprint()))
    }

    pub fn credentials(&self) -> Credentials {
        credentials(&self.device, &self.gateway.token)
    }

    pub async fn arrival(&mut self) -> Arrival {
        soon("a device comes in", self.arrivals.recv()).await.expect("the tunnel runs")
    }

    /// Answers every device from now on.
    pub fn echo(&mut self) {
        let (_, empty) = mpsc::channel(1);
        let mut arrivals = std::mem::replace(&mut self.arrivals, empty);
        let gateway = self.gateway.clone();
        self.tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Some(arrival) = arrivals.recv().await {
                let gateway = gateway.clone();
                sessions.spawn(async move { gateway.echo(arrival.stream).await });
            }
        });
    }

    /// Stops the tunnel and waits until it has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        soon("the tunnel ends", self.tasks.join_next()).await;
    }
}
