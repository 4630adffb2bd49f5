//! The always-on half of Deskgate: accepts, queues, hands out, reports.
//!
//! This file is the composition root: the only one that knows all rooms. A [`Gateway`] takes its
//! listeners, clocks and limits as arguments, so the server, the built-in mode inside the desktop's
//! process and every test run the same code.

pub mod addresses;
pub mod admin;
pub mod config;
pub mod control;
pub mod domain;
pub mod exit;
pub mod http;
pub mod meters;
pub mod networks;
pub mod ops;
pub mod output;
pub mod pulse;
pub mod socket;
pub mod store;
pub mod tasks;
pub mod tls;
pub mod token;
pub mod tunnel;
pub mod upkeep;
pub mod wake;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::secret::ControlToken;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use addresses::Addresses;
use admin::office::Office;
use control::door::Door;
use domain::Limits;
use domain::access::Access;
use domain::admission::AdmissionDesk;
use domain::bodies::Bodies;
use domain::devices::Clocks;
use domain::events::Streams;
use exit::{Exit, Failure};
use networks::{ForwardedHeader, Networks};
use ops::Ops;
use pulse::Pulse;
use store::admissions::Admissions;
use store::cluster::{Cluster, ClusterError};
use store::migrate::MigrateError;
use store::{Database, OpenError, Store};
use tasks::Tasks;
use tls::Tls;
use tunnel::{Admission, Arrival, HostKey, Verdict};
use wake::Wake;

/// What a gateway is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where keys, the control token and the private database are kept.
    pub state_dir: PathBuf,
    /// The public API's address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Certificate and key of the public API; without them it is plain HTTP.
    pub tls: Option<tls::Files>,
    /// Proxies whose word is taken for where a caller is. Without TLS, nobody else may connect
    /// beyond loopback.
    pub trusted_proxies: Networks,
    /// Where they say it.
    pub forwarded_header: ForwardedHeader,
    /// What backends use, without `/api/v1`; otherwise the listening address.
    pub public_url: Option<String>,
    /// How long the public API goes on listening, and says that it drains, before it stops.
    pub drain: Duration,
    /// The SSH listener for devices.
    pub ssh_listen: Option<SocketAddr>,
    /// The operations listener: health and metrics.
    pub ops_listen: Option<SocketAddr>,
    /// What devices dial; otherwise the listening address.
    pub ssh_public_address: Option<String>,
    /// The private control socket.
    pub control_socket: Option<PathBuf>,
    /// The administrator's socket.
    pub admin_socket: Option<PathBuf>,
    /// The control token, when it is not the gateway's own.
    pub control_token: Option<ControlToken>,
    /// Where the database is; otherwise a private cluster.
    pub database: Option<DatabaseSettings>,
    /// What callers can meet.
    pub limits: Limits,
    /// The times of the control channel.
    pub clocks: Clocks,
}

/// An external database.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// Its URL.
    pub url: String,
    /// The URL for LISTEN, when a pooler stands between.
    pub listen_url: Option<String>,
    /// Certificates to trust.
    pub ca_file: Option<PathBuf>,
    /// Whether to apply missing migrations instead of refusing.
    pub migrate: bool,
}

impl std::fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseSettings").field("migrate", &self.migrate).finish_non_exhaustive()
    }
}

impl Settings {
    /// A gateway inside another process: loopback, a private cluster, no sockets.
    pub fn built_in(state_dir: PathBuf, listen: SocketAddr) -> Self {
        Self {
            state_dir,
            listen,
            tls: None,
            trusted_proxies: Networks::default(),
            forwarded_header: ForwardedHeader::default(),
            public_url: None,
            drain: Duration::ZERO,
            ssh_listen: None,
            ops_listen: None,
            ssh_public_address: None,
            control_socket: None,
            admin_socket: None,
            control_token: None,
            database: None,
            limits: Limits::default(),
            clocks: Clocks::default(),
        }
    }
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The private cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The database.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// The SSH host key.
    #[error(transparent)]
    HostKey(#[from] tunnel::KeyFileError),
    /// The control token.
    #[error(transparent)]
    Token(#[from] token::TokenError),
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<StartError> for Failure {
    /// What only a person can mend is "not set up", after which nothing tries again by itself.
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::Cluster(error) if error.needs_a_person() => Exit::NotSetUp,
            StartError::Cluster(_) => Exit::CannotReach,
            StartError::HostKey(_) | StartError::Token(_) | StartError::Tls(_) => Exit::NotSetUp,
            StartError::Database(OpenError::Migrate(MigrateError::Ahead { .. }) | OpenError::Behind { .. }) => {
                Exit::VersionMismatch
            }
            StartError::Database(OpenError::Migrate(MigrateError::Store(_))) => Exit::CannotReach,
            StartError::Database(_) => Exit::NotSetUp,
            StartError::Listen { .. } => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

/// A running gateway.
pub struct Gateway {
    /// Cancelled first: nothing more is admitted, and whoever waits is told.
    draining: CancellationToken,
    /// How long that lasts before the doors close.
    drain: Duration,
    /// What lets callers and devices in. Finishes what is under way.
    doors: Tasks,
    /// What the doors need until they are closed.
    works: Tasks,
    broken: CancellationToken,
    addresses: Addresses,
    door: Door,
    token: ControlToken,
    tls: Option<Tls>,
    cluster: Option<Cluster>,
}

/// What is under way has so long to finish.
const DRAIN: Duration = Duration::from_secs(25);
/// Bytes in an in-memory pipe.
const PIPE: usize = 64 * 1024;

impl Gateway {
    /// Starts everything and returns when it is ready.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let cluster = match settings.database {
            None => Some(Cluster::start(store::cluster::Config::new(&settings.state_dir)).await?),
            Some(_) => None,
        };
        let started = Self::start_on(settings, cluster.as_ref().map(Cluster::url)).await;
        match (started, cluster) {
            (Ok(mut gateway), cluster) => {
                gateway.cluster = cluster;
                Ok(gateway)
            }
            (Err(error), Some(cluster)) => {
                cluster.stop().await;
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn start_on(settings: Settings, cluster_url: Option<String>) -> Result<Self, StartError> {
        let tls = settings.tls.clone().map(Tls::load).transpose()?;
        let (wake, outgoing) = Wake::new();
        let (database, migrate) = match (&settings.database, &cluster_url) {
            (Some(external), _) => {
                let ca_file = external.ca_file.as_ref();
                (Database::new(&external.url, external.listen_url.as_deref(), ca_file)?, external.migrate)
            }
            // Nobody else looks after a private cluster.
            (None, url) => (Database::new(url.as_deref().unwrap_or_default(), None, None)?, true),
        };
        let store = database.open(migrate, wake.clone()).await?;
        let token = match &settings.control_token {
            Some(token) => token.clone(),
            None => token::load_or_create(&settings.state_dir)?,
        };
        store.add_control_token(token.digest()).await.map_err(OpenError::from)?;
        let gateway_id = store.gateway_id().await.map_err(OpenError::from)?;
        let http = listen(settings.listen).await?;
        let (ssh, host_key) = match settings.ssh_listen {
            Some(address) => {
                let host_key = HostKey::load_or_create(&settings.state_dir.join("ssh_host_ed25519_key"))?;
                (Some(listen(address).await?), Some(host_key))
            }
            None => (None, None),
        };
        let ops = match settings.ops_listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let bound = |listener: &TcpListener| {
            listener.local_addr().map_err(|source| StartError::Listen { address: "a bound socket".to_owned(), source })
        };
        let (http_address, ssh_address) = (bound(&http)?, ssh.as_ref().map(bound).transpose()?);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let addresses = Addresses {
            http: http_address,
            public_url: settings.public_url.clone().unwrap_or_else(|| format!("{scheme}://{http_address}")),
            ssh: ssh_address,
            ops: ops.as_ref().map(bound).transpose()?,
            ssh_public: settings.ssh_public_address.clone().or(ssh_address.map(|address| address.to_string())),
        };

        let broken = CancellationToken::new();
        let (doors, works) = (Tasks::new(broken.clone()), Tasks::new(broken.clone()));
        let draining = CancellationToken::new();
        let door = Door {
            store: store.clone(),
            gateway_id,
            clocks: settings.clocks,
            limits: settings.limits,
            public_url: addresses.public_url.clone(),
            stop: draining.clone(),
        };
        let bind = |path: &PathBuf| {
            socket::bind(path, 0o660)
                .map_err(|source| StartError::Listen { address: path.display().to_string(), source })
        };
        let control_socket = settings.control_socket.as_ref().map(bind).transpose()?;
        let admin_socket = settings.admin_socket.as_ref().map(bind).transpose()?;

        let stop = works.stopping();
        works.spawn("listen", store::listen::run(database, wake, outgoing, stop.clone()));
        let queue = Pulse::default();
        works.spawn("upkeep", upkeep::run(store.clone(), settings.limits.retention, queue.clone(), stop.clone()));
        if let Some(listener) = ops {
            let router = ops::router(Ops { store: store.clone(), queue, draining: draining.clone() });
            let (open, limits) = (http::server::Entrance::default(), http::server::Limits::default());
            works.spawn("operations", http::server::serve(listener, open, router, limits, stop.clone()));
        }
        let admissions = Admissions::start(&store, &works, settings.limits.concurrent_commits);
        let http_limits = http::server::Limits::default();
        let access = Access::new(store.clone(), &settings.limits);
        let (streams, streaming) =
            Streams::new(store.clone(), access.clone(), &settings.limits, draining.clone(), stop.clone());
        works.spawn("streams", streaming);
        let api = http::Api {
            store: store.clone(),
            access,
            bodies: Bodies::new(&settings.limits),
            streams,
            desk: AdmissionDesk::new(store.clone(), admissions, &settings.limits),
            draining: draining.clone(),
            limits: settings.limits,
            listener: http_limits,
        };
        let entrance = http::server::Entrance {
            tls: tls.clone(),
            proxies: settings.trusted_proxies.clone(),
            forwarded: settings.forwarded_header,
            proxies_only: tls.is_none() && !http_address.ip().is_loopback(),
        };
        doors.spawn("http", http::server::serve(http, entrance, http::router(api), http_limits, doors.stopping()));
        if let (Some(ssh), Some(host_key)) = (ssh, host_key.clone()) {
            let name = settings.control_socket.clone().unwrap_or_else(|| PathBuf::from(CONTROL_SOCKET));
            let config = tunnel::Config::new(name.display().to_string());
            let (arrivals, arrived) = mpsc::channel(16);
            let admission = Arc::new(PairedDevices(store.clone()));
            works.spawn("tunnel", tunnel::serve(ssh, host_key, config, admission, arrivals, stop.clone()));
            doors.spawn("arrivals", receive(arrived, door.clone()));
        }
        if let Some(listener) = control_socket {
            doors.spawn("control socket", control::socket::serve(listener, door.clone()));
        }
        if let Some(listener) = admin_socket {
            let office = Office {
                store: store.clone(),
                addresses: addresses.clone(),
                host_key: host_key.map(|key| (key.fingerprint(), key.public_key())),
                control_socket: settings.control_socket.clone(),
                token_file: settings.control_token.is_none().then(|| settings.state_dir.join(token::FILE)),
                retention: settings.limits.retention,
                tls: tls.clone(),
            };
            works.spawn("admin socket", admin::office::serve(listener, office, stop));
        }
        Ok(Self { draining, drain: settings.drain, doors, works, broken, addresses, door, token, tls, cluster: None })
    }

    /// Where it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The token that opens its control channel.
    pub fn control_token(&self) -> &ControlToken {
        &self.token
    }

    /// Its database.
    pub fn store(&self) -> &Store {
        &self.door.store
    }

    /// Control channels inside this process.
    pub fn pipes(&self) -> Pipes {
        Pipes { doors: self.doors.clone(), door: self.door.clone() }
    }

    /// Reads again what can change without a restart: the certificate. After an error, which the
    /// log tells, everything is as it was.
    pub fn reload(&self) -> Result<&'static str, tls::TlsError> {
        tls::reload(self.tls.as_ref())
    }

    /// Cancelled when a part of it broke; whoever owns it should stop it then.
    pub fn broken(&self) -> CancellationToken {
        self.broken.clone()
    }

    /// Admits nothing more, says so for a while, finishes what is under way, stops everything.
    pub async fn stop(self) {
        let Self { draining, drain, doors, works, door, cluster, .. } = self;
        drop(door);
        draining.cancel();
        // Whoever distributes the calls asks for readiness now and then, and goes elsewhere.
        tokio::time::sleep(drain).await;
        let closed = doors.stop(DRAIN).await;
        if !(works.stop(Duration::from_secs(5)).await && closed) {
            tracing::warn!("some tasks did not end in time");
        }
        if let Some(cluster) = cluster {
            cluster.stop().await;
        }
    }
}

/// Opens control channels inside the gateway's process.
#[derive(Clone)]
pub struct Pipes {
    doors: Tasks,
    door: Door,
}

impl Pipes {
    /// The device's end of a fresh pipe. Once the gateway has stopped, it is closed at once.
    pub fn open(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let door = self.door.clone();
        if !door.stop.is_cancelled() {
            self.doors.spawn("pipe", async move { door.serve(ours, None).await });
        }
        theirs
    }
}

/// What the forward is called where no socket is configured.
const CONTROL_SOCKET: &str = "/run/deskgate/control.sock";

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| StartError::Listen { address: address.to_string(), source })
}

/// Serves the devices that came in through the tunnel, until the doors close.
async fn receive(mut arrivals: mpsc::Receiver<Arrival>, door: Door) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            () = door.stop.cancelled() => break,
            Some(_) = sessions.join_next() => {}
            arrival = arrivals.recv() => match arrival {
                Some(Arrival { public_key, stream, .. }) => {
                    let door = door.clone();
                    sessions.spawn(async move { door.serve(stream, Some(public_key)).await });
                }
                None => break,
            },
        }
    }
    // Sessions say goodbye by themselves when the gateway stops.
    while sessions.join_next().await.is_some() {}
}

/// The tunnel lets in what is paired.
struct PairedDevices(Store);

impl Admission for PairedDevices {
    fn admit<'a>(&'a self, key: &'a PublicKey) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(async move {
            match self.0.device_by_key(key).await {
                Ok(Some(device)) if device.revoked_at.is_some() => Verdict::Revoked,
                Ok(Some(_)) => Verdict::Admit,
                Ok(None) => Verdict::Unknown,
                Err(_) => Verdict::Unavailable,
            }
        })
    }
}
