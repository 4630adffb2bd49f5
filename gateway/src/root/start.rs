//! Starts a gateway: opens the database, binds the listeners, and hands every room what it needs.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::listeners::Listeners;
use super::reload::Reload;
use super::told;
use super::tunnel::{PairedDevices, receive};
use super::{Gateway, Settings, StartError, hosted};
#[cfg(feature = "acme")]
use crate::acme::Keeper;
use crate::addresses::Addresses;
use crate::admin::office::{self, Office};
use crate::callbacks::rounds;
use crate::callbacks::send::Sender;
use crate::config::Acme;
use crate::control::door::Door;
use crate::domain::access::Access;
use crate::domain::admission::AdmissionDesk;
use crate::domain::bodies::Bodies;
use crate::domain::deliveries::Scribe;
use crate::domain::desktop::Callbacks;
use crate::domain::events::Streams;
use crate::domain::trial::Trials;
use crate::domain::webhooks::reception::Reception;
use crate::hosted::Judge;
use crate::http::hosted::Entry;
use crate::http::server::{self, Entrance};
use crate::ops::Ops;
use crate::pulse::Pulse;
use crate::seal::Seal;
use crate::store::admissions::Admissions;
use crate::store::cluster::{self, Cluster};
use crate::store::{Database, OpenError, Store};
use crate::tls::Tls;
use crate::tunnel::HostKeys;
use crate::wake::Wake;
use crate::{control, http, ops, store, tunnel, upkeep};
use deskgate_program::tasks::Tasks;
use deskgate_program::token;

/// What the forward is called where no socket is configured.
const CONTROL_SOCKET: &str = "/run/deskgate/control.sock";

impl Gateway {
    /// Starts everything and returns when it is ready.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let cluster = match settings.database {
            None => Some(Cluster::start(cluster::Config::new(&settings.state_dir)).await?),
            Some(_) => None,
        };
        // Boxed: it is large, and whoever starts a gateway would carry it along.
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
        let files = settings.tls.clone().map(Tls::load).transpose()?;
        let seal = Seal::load_or_create(&settings.seal_file)?;
        let judged = |url: &str| {
            settings.hosted.clone().map(|hosted| Judge::new(hosted, url, settings.issuer_clocks)).transpose()
        };
        let sender = Sender::new(settings.callbacks_ca_file.as_deref())?;
        let (wake, outgoing) = Wake::new();
        let (database, migrate) = database(&settings, cluster_url.as_deref())?;
        let store = database.open(migrate, wake.clone()).await?;
        let token = match &settings.control_token {
            Some(token) => token.clone(),
            None => token::load_or_create(&settings.state_dir)?,
        };
        store.add_control_token(token.digest()).await.map_err(OpenError::from)?;
        let gateway_id = store.gateway_id().await.map_err(OpenError::from)?;
        let Listeners { http, ssh, ops, control, admin, addresses } = Listeners::bind(&settings).await?;

        let broken = CancellationToken::new();
        let (doors, works) = (Tasks::new(broken.clone()), Tasks::new(broken.clone()));
        let draining = CancellationToken::new();
        let tls = match (files, settings.acme.clone()) {
            (None, Some(acme)) => issued(acme, &store, &works, seal.clone()).await,
            (files, _) => files,
        };
        let scribe = Scribe::new(store.clone(), seal.clone());
        let admissions = Admissions::start(&store, &works, settings.limits.concurrent_commits);
        let admission = AdmissionDesk::new(store.clone(), admissions, &settings.limits);
        let door = Door {
            store: store.clone(),
            gateway_id,
            clocks: settings.clocks,
            admission,
            limits: settings.limits,
            callbacks: Callbacks { scribe: scribe.clone(), allowlist_is_yours: settings.allowlist_is_the_desktops },
            seal: seal.clone(),
            public_url: addresses.public_url.clone(),
            judge: judged(&addresses.public_url).map_err(StartError::IssuerRoots)?,
            host_keys: ssh.as_ref().map(|(_, keys)| keys.clone()),
            stop: draining.clone(),
        };
        let (queue, turning) = (Pulse::default(), Pulse::default());
        works.spawn("listen", store::listen::run(database, wake, outgoing, works.stopping()));
        let upkeep = upkeep::run(
            store.clone(),
            settings.limits.retention,
            upkeep::Pulses { queue: queue.clone(), turning: turning.clone() },
            works.stopping(),
        );
        works.spawn("upkeep", upkeep);
        let clocks = rounds::Clocks { lease: rounds::Clocks::LEASE, retention: settings.limits.retention };
        works.spawn("callbacks", rounds::run(store.clone(), scribe, sender, clocks, works.stopping()));
        if let Some(manager) = settings.manager.clone() {
            works.spawn("service manager", told::tell(manager, store.clone(), turning, works.stopping()));
        }
        let start = Start { settings, store, doors, works, draining, tls, cluster_url };
        if let Some(listener) = ops {
            start.operations(listener, queue.clone());
        }
        start.api(http, &addresses, &door, seal);
        if let Some((listener, host_keys)) = ssh {
            start.tunnel(listener, host_keys, door.clone());
        }
        if let Some(listener) = control {
            start.doors.spawn("control socket", control::socket::serve(listener, door.clone()));
        }
        if let Some(listener) = admin {
            start.office(listener, addresses.clone(), door.clone(), queue);
        }
        let reload = start.reload();
        let Start { settings, doors, works, draining, .. } = start;
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
            door,
            token,
            reload,
            cluster: None,
        })
    }
}

/// The database, and whether to apply missing migrations. Nobody else looks after a private cluster.
fn database(settings: &Settings, cluster_url: Option<&str>) -> Result<(Database, bool), StartError> {
    Ok(match &settings.database {
        Some(external) => {
            let ca_file = external.ca_file.as_ref();
            (Database::new(&external.url, external.listen_url.as_deref(), ca_file)?, external.migrate)
        }
        None => (Database::new(cluster_url.unwrap_or_default(), None, None)?, true),
    })
}

/// The certificate that an authority issues, looked after from now on.
#[cfg(feature = "acme")]
async fn issued(acme: Acme, store: &Store, works: &Tasks, seal: Seal) -> Option<Tls> {
    let keeper = Keeper::new(acme, store.clone(), seal).await;
    let tls = keeper.tls().clone();
    works.spawn("certificate", keeper.run(works.stopping()));
    Some(tls)
}

/// Built without the feature, the configuration refuses such a setting.
#[cfg(not(feature = "acme"))]
async fn issued(_: Acme, _: &Store, _: &Tasks, _: Seal) -> Option<Tls> {
    None
}

/// A gateway that is being started: what every door is made from.
struct Start {
    settings: Settings,
    store: Store,
    doors: Tasks,
    works: Tasks,
    draining: CancellationToken,
    tls: Option<Tls>,
    cluster_url: Option<String>,
}

impl Start {
    fn reload(&self) -> Reload {
        Reload { tls: self.tls.clone(), manager: self.settings.manager.clone() }
    }

    /// Health and metrics.
    fn operations(&self, listener: TcpListener, queue: Pulse) {
        let router = ops::router(Ops {
            store: self.store.clone(),
            queue,
            draining: self.draining.clone(),
            tls: self.tls.clone(),
        });
        let (open, limits) = (Entrance::default(), server::Limits::default());
        self.works.spawn("operations", server::serve(listener, open, router, limits, self.works.stopping()));
    }

    /// The public API.
    fn api(&self, listener: TcpListener, addresses: &Addresses, door: &Door, seal: Seal) {
        let desk = door.admission.clone();
        let (store, limits) = (&self.store, self.settings.limits);
        let access = Access::new(store.clone(), &limits);
        let (streams, streaming) = Streams::new(store.clone(), &limits, self.draining.clone(), self.works.stopping());
        self.works.spawn("streams", streaming);
        let trials = Trials::new(seal.clone());
        let (reception, noting) = Reception::new(store.clone(), seal, desk.clone());
        self.works.spawn("receipts", noting);
        let http_limits = server::Limits::default();
        let api = http::Api {
            store: store.clone(),
            access,
            bodies: Bodies::new(&limits),
            reception,
            trials,
            streams,
            desk,
            draining: self.draining.clone(),
            limits,
            listener: http_limits,
            hosted: self.accounts(door),
        };
        let entrance = Entrance {
            tls: self.tls.clone(),
            proxies: self.settings.trusted_proxies.clone(),
            forwarded: self.settings.forwarded_header,
            proxies_only: self.tls.is_none() && !addresses.http.ip().is_loopback(),
        };
        let serving = server::serve(listener, entrance, http::router(api), http_limits, self.doors.stopping());
        self.doors.spawn("http", serving);
    }

    /// Where devices come in with accounts, over the public API's address.
    fn accounts(&self, door: &Door) -> Option<Entry> {
        let judge = door.judge.clone()?;
        let (arrivals, arrived) = mpsc::channel(64);
        self.doors.spawn("lines of accounts", hosted::receive(arrived, door.clone()));
        Some(Entry::new(judge, door.public_url.clone(), arrivals))
    }

    /// The SSH listener for devices.
    fn tunnel(&self, listener: TcpListener, host_keys: HostKeys, door: Door) {
        let name = self.settings.control_socket.clone().unwrap_or_else(|| PathBuf::from(CONTROL_SOCKET));
        let config = tunnel::Config::new(name.display().to_string());
        let (arrivals, arrived) = mpsc::channel(16);
        let admission = Arc::new(PairedDevices(self.store.clone()));
        let serving = tunnel::serve(listener, host_keys, config, admission, arrivals, self.works.stopping());
        self.works.spawn("tunnel", serving);
        self.doors.spawn("arrivals", receive(arrived, door));
    }

    /// The administrator's socket.
    fn office(&self, listener: UnixListener, addresses: Addresses, door: Door, queue: Pulse) {
        let (settings, reload) = (&self.settings, self.reload());
        let office = Office {
            store: self.store.clone(),
            addresses,
            host_keys: door.host_keys.clone(),
            control_socket: settings.control_socket.clone(),
            token_file: settings.control_token.is_none().then(|| settings.state_dir.join(token::FILE)),
            retention: settings.limits.retention,
            tls: self.tls.clone(),
            reload: Arc::new(move || reload.now()),
            trials: Trials::new(door.seal.clone()),
            queue,
            private_cluster: self.cluster_url.clone(),
            desks: Arc::new(move |device_id| door.desktop(device_id)),
        };
        self.works.spawn(
            "admin socket",
            office::serve(listener, settings.admin_group.is_some(), office, self.works.stopping()),
        );
    }
}
