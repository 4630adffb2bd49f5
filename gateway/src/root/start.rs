//! Starts a gateway: opens the database, binds the listeners, and gives every module what it needs.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::listeners::Listeners;
use super::reload::Reloader;
use super::status_reporter;
use super::tunnel::{PairedDevices, receive};
use super::{Gateway, Settings, StartError, hosted};
#[cfg(feature = "acme")]
use crate::acme::CertificateRenewer;
use crate::addresses::Addresses;
use crate::admin::service;
use crate::admin::state::AdminService;
use crate::callbacks::send::CallbackSender;
use crate::callbacks::worker;
use crate::config::AcmeSettings;
use crate::control::invited::MAX_INVITED;
use crate::control::looks;
use crate::control::renewals::Renewals;
use crate::control::service::ControlService;
use crate::domain::access::Access;
use crate::domain::admission::AdmissionService;
use crate::domain::artifacts::ArtifactService;
use crate::domain::body_quota::BodyQuota;
use crate::domain::deliveries::PayloadBuilder;
use crate::domain::desktop::CallbackContext;
use crate::domain::events::EventStreams;
use crate::domain::files::FileService;
use crate::domain::mcp_calls::McpCalls;
use crate::domain::transfers::TransferService;
use crate::domain::trial::TrialTickets;
use crate::domain::unkeyed_requests::UnkeyedRequests;
use crate::domain::webhooks::reception::Reception;
use crate::encryption::DataCipher;
use crate::heartbeat::Heartbeat;
use crate::hosted::TokenVerifier;
use crate::http::hosted::HostedIngress;
use crate::http::server::{self, ListenerAccess};
use crate::notify::ChangeNotifier;
use crate::ops::Ops;
use crate::storage::ObjectStorage;
use crate::store::admissions::Admissions;
use crate::store::attempts::{Claims, Reports};
use crate::store::cluster::{self, Cluster};
use crate::store::commit_limit::CommitLimit;
use crate::store::{Database, DatabaseOpenError, Store};
use crate::tls::ServerTls;
use crate::tunnel::HostKeys;
use crate::{control, http, ops, store, tunnel, upkeep};
use deskgate_program::tasks::Tasks;
use deskgate_program::token;

/// The name of the forward where no socket is configured.
const DEFAULT_CONTROL_SOCKET: &str = "/run/deskgate/control.sock";

impl Gateway {
    /// Starts everything and returns when it is ready.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let cluster = match settings.database {
            None => Some(Cluster::start(cluster::ClusterConfig::new(&settings.state_dir)).await?),
            Some(_) => None,
        };
        // Boxed: it is large, and the caller's future would contain it.
        let started = Box::pin(Self::start_on(settings, cluster.as_ref().map(Cluster::url))).await;
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
        let files = settings.tls.clone().map(ServerTls::load).transpose()?;
        let cipher = DataCipher::load_or_create(&settings.seal_file)?;
        let storage = settings.storage.open()?;
        let judged = |url: &str| {
            settings.hosted.clone().map(|hosted| TokenVerifier::new(hosted, url, settings.issuer_clocks)).transpose()
        };
        let sender = CallbackSender::new(settings.callbacks_ca_file.as_deref(), settings.callback_addresses.clone())?;
        let (wake, outgoing) = ChangeNotifier::new();
        let (database, migrate) = database(&settings, cluster_url.as_deref())?;
        let store = database.open(migrate, wake.clone()).await?.with_quotas(settings.limits.quotas);
        let store = store.with_state_dir(settings.state_dir.clone(), cluster_url.is_some());
        let token = match &settings.control_token {
            Some(token) => token.clone(),
            None => token::load_or_create(&settings.state_dir)?,
        };
        store.add_control_token(token.digest()).await.map_err(DatabaseOpenError::from)?;
        let gateway_id = store.gateway_id().await.map_err(DatabaseOpenError::from)?;
        let Listeners { http, ssh, ops, control, admin, addresses } = Listeners::bind(&settings)?;

        let broken = CancellationToken::new();
        let (doors, works) = (Tasks::new(broken.clone()), Tasks::new(broken.clone()));
        let draining = CancellationToken::new();
        let tls = match (files, settings.acme.clone()) {
            (None, Some(acme)) => issued(acme, &store, &works, cipher.clone()).await,
            (files, _) => files,
        };
        let scribe = PayloadBuilder::new(store.clone(), cipher.clone());
        let commits = match settings.limits.concurrent_commits {
            Some(commits) => CommitLimit::fixed(commits),
            None => CommitLimit::follow(&store, &works),
        };
        let admissions = Admissions::start(&store, &works, &commits);
        let admission =
            AdmissionService::new(store.clone(), admissions, &settings.limits, storage.precedence().clone());
        let reports = Reports::start(&store, &works, &commits, settings.limits.retention);
        let service = ControlService {
            store: store.clone(),
            claims: Claims::start(&store, &works, settings.clocks.offer),
            reports,
            renewals: Renewals::start(&store, &works, settings.clocks),
            gateway_id,
            clocks: settings.clocks,
            admission,
            limits: settings.limits,
            callbacks: CallbackContext { scribe: scribe.clone(), allowlist_is_yours: settings.is_built_in },
            cipher: cipher.clone(),
            public_url: addresses.public_url.clone(),
            origin: url::Url::parse(&addresses.public_url)
                .map_or_else(|_| addresses.public_url.clone(), |url| url.origin().ascii_serialization()),
            sshd_host_keys: settings.sshd_host_keys.clone(),
            verifier: judged(&addresses.public_url).map_err(StartError::IssuerRoots)?,
            told_retention: (!settings.is_built_in).then_some(settings.limits.retention),
            host_keys: ssh.as_ref().map(|(_, keys)| keys.clone()),
            invited: Arc::new(Semaphore::new(MAX_INVITED)),
            transfers: TransferService::new(store.clone(), storage.clone(), cipher.clone(), settings.limits.storage),
            stop: draining.clone(),
        };
        let (queue, turning) = (Heartbeat::default(), Heartbeat::default());
        works.spawn("listen", store::listen::run(database, wake, outgoing, works.stopping()));
        let upkeep = upkeep::run(
            store.clone(),
            settings.limits.retention,
            upkeep::UpkeepHeartbeats { queue: queue.clone(), turning: turning.clone() },
            works.stopping(),
        );
        works.spawn("upkeep", upkeep);
        works.spawn("storage", upkeep::objects::watch(storage.clone(), works.stopping()));
        works.spawn("objects", upkeep::objects::run(store.clone(), storage.clone(), works.stopping()));
        works.spawn("looks", looks::look(store.clone(), works.stopping()));
        let clocks = worker::DeliveryTimings {
            lease: worker::DeliveryTimings::DEFAULT_LEASE,
            retention: settings.limits.retention,
        };
        works.spawn("callbacks", worker::run(store.clone(), scribe, sender, clocks, works.stopping()));
        if let Some(manager) = settings.manager.clone() {
            works.spawn(
                "service manager",
                status_reporter::run(manager, (store.clone(), storage.clone()), turning, works.stopping()),
            );
        }
        let start = GatewayBuilder { settings, store, storage, doors, works, draining, tls, cluster_url };
        if let Some(listener) = ops {
            start.operations(listener, queue.clone());
        }
        start.api(http, &addresses, &service, cipher);
        if let Some((listener, host_keys)) = ssh {
            start.tunnel(listener, host_keys, service.clone());
        }
        if let Some(listener) = control {
            start.doors.spawn(
                "control socket",
                control::socket::serve(listener, start.settings.control_connections, service.clone()),
            );
        }
        if let Some(listener) = admin {
            start.admin_socket(listener, addresses.clone(), service.clone(), queue);
        }
        let reload = start.reload();
        let GatewayBuilder { settings, doors, works, draining, .. } = start;
        if let Some(manager) = &settings.manager {
            manager.ready();
        }
        Ok(Self {
            draining,
            drain: settings.drain,
            doors,
            works,
            broken,
            addresses,
            service,
            token,
            reload,
            cluster: None,
        })
    }
}

/// The database, and whether to apply missing migrations. A private cluster is always migrated here.
fn database(settings: &Settings, cluster_url: Option<&str>) -> Result<(Database, bool), StartError> {
    Ok(match &settings.database {
        Some(external) => {
            let ca_file = external.ca_file.as_ref();
            (Database::new(&external.url, external.listen_url.as_deref(), ca_file)?, external.migrate)
        }
        None => (Database::new(cluster_url.unwrap_or_default(), None, None)?, true),
    })
}

/// The certificate from an authority, renewed from now on.
#[cfg(feature = "acme")]
async fn issued(acme: AcmeSettings, store: &Store, works: &Tasks, cipher: DataCipher) -> Option<ServerTls> {
    let keeper = CertificateRenewer::new(acme, store.clone(), cipher).await;
    let tls = keeper.tls().clone();
    works.spawn("certificate", keeper.run(works.stopping()));
    Some(tls)
}

/// Built without the feature, the configuration refuses such a setting.
#[cfg(not(feature = "acme"))]
async fn issued(_: AcmeSettings, _: &Store, _: &Tasks, _: DataCipher) -> Option<ServerTls> {
    None
}

/// A gateway during its start: what the services are made from.
struct GatewayBuilder {
    settings: Settings,
    store: Store,
    storage: ObjectStorage,
    doors: Tasks,
    works: Tasks,
    draining: CancellationToken,
    tls: Option<ServerTls>,
    cluster_url: Option<String>,
}

impl GatewayBuilder {
    fn reload(&self) -> Reloader {
        Reloader { tls: self.tls.clone(), manager: self.settings.manager.clone() }
    }

    /// Health and metrics.
    fn operations(&self, listener: TcpListener, queue: Heartbeat) {
        let router = ops::router(Ops {
            store: self.store.clone(),
            storage: self.storage.clone(),
            queue,
            draining: self.draining.clone(),
            tls: self.tls.clone(),
        });
        let (open, limits) = (ListenerAccess::default(), server::ListenerLimits::default());
        self.works.spawn("operations", server::serve(listener, open, router, limits, self.works.stopping()));
    }

    /// The public API.
    fn api(&self, listener: TcpListener, addresses: &Addresses, service: &ControlService, cipher: DataCipher) {
        let admission = service.admission.clone();
        let (store, limits) = (&self.store, self.settings.limits);
        let access = Access::new(store.clone(), &limits);
        let (streams, streaming) =
            EventStreams::new(store.clone(), &limits, self.draining.clone(), self.works.stopping());
        self.works.spawn("streams", streaming);
        let (unkeyed, noting) = UnkeyedRequests::new(store.clone(), self.works.stopping());
        self.works.spawn("unkeyed requests", noting);
        let (mcp_calls, closing) = McpCalls::new(store.clone(), limits.retention, self.works.stopping());
        self.works.spawn("closed calls", closing);
        let trials = TrialTickets::new(cipher.clone());
        let (reception, noting) = Reception::new(store.clone(), cipher, admission.clone());
        self.works.spawn("receipts", noting);
        let http_limits = server::ListenerLimits::default();
        let api = http::Api {
            store: store.clone(),
            access,
            bodies: BodyQuota::new(&limits),
            files: FileService::new(store.clone(), self.storage.clone(), limits.storage, limits.uploads_per_key),
            artifacts: ArtifactService::new(store.clone(), self.storage.clone()),
            reception,
            trials,
            streams,
            unkeyed,
            mcp_calls,
            admission,
            draining: self.draining.clone(),
            limits,
            listener: http_limits,
            hosted: self.accounts(service),
        };
        let entrance = ListenerAccess {
            tls: self.tls.clone(),
            proxies: self.settings.trusted_proxies.clone(),
            forwarded: self.settings.forwarded_header,
            proxies_only: self.tls.is_none() && !addresses.http.ip().is_loopback(),
            gate: None,
            balancers: self.settings.balancers.clone(),
        };
        let serving = server::serve(listener, entrance, http::router(api), http_limits, self.doors.stopping());
        self.doors.spawn("http", serving);
    }

    /// The entry of devices with accounts, over the public API's address.
    fn accounts(&self, service: &ControlService) -> Option<HostedIngress> {
        let verifier = service.verifier.clone()?;
        let (arrivals, arrived) = mpsc::channel(64);
        self.doors.spawn("lines of accounts", hosted::receive(arrived, service.clone()));
        Some(HostedIngress::new(verifier, service.public_url.clone(), arrivals))
    }

    /// The SSH listener for devices.
    fn tunnel(&self, listener: TcpListener, host_keys: HostKeys, service: ControlService) {
        let name = self.settings.control_socket.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONTROL_SOCKET));
        let balancers = self.settings.ssh_balancers.clone();
        let config = tunnel::TunnelConfig { balancers, ..tunnel::TunnelConfig::new(name.display().to_string()) };
        let (arrivals, arrived) = mpsc::channel(16);
        let admission = Arc::new(PairedDevices(self.store.clone()));
        let serving = tunnel::serve(listener, host_keys, config, admission, arrivals, self.works.stopping());
        self.works.spawn("tunnel", serving);
        self.doors.spawn("arrivals", receive(arrived, service));
    }

    /// The administrator's socket.
    fn admin_socket(&self, listener: UnixListener, addresses: Addresses, service: ControlService, queue: Heartbeat) {
        let (settings, reload) = (&self.settings, self.reload());
        let admin = AdminService {
            store: self.store.clone(),
            storage: self.storage.clone(),
            addresses,
            host_keys: service.host_keys.clone(),
            sshd_host_keys: service.sshd_host_keys.clone(),
            control_socket: settings.control_socket.clone(),
            token_file: settings.control_token.is_none().then(|| settings.state_dir.join(token::CONTROL_TOKEN_FILE)),
            retention: settings.limits.retention,
            tls: self.tls.clone(),
            reload: Arc::new(move || reload.now()),
            trials: TrialTickets::new(service.cipher.clone()),
            queue,
            private_cluster: self.cluster_url.clone(),
            desks: Arc::new(move |device_id| service.desktop(device_id)),
        };
        self.works.spawn(
            "admin socket",
            service::serve(listener, settings.admin_group.is_some(), admin, self.works.stopping()),
        );
    }
}
