//! The desktop half of Deskgate: pairs with a gateway, pulls runs, and executes them under its owner's rules.
//!
//! This file is the composition root: the only one that knows all modules.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
pub mod autostart;
pub mod cli;
pub mod config;
pub mod dispatcher;
pub mod executor;
pub mod gateway_version;
pub mod health;
pub mod identity;
pub mod link;
pub mod local;
pub mod notices;
pub mod pages;
pub mod power;
pub mod services;
pub mod settings;
pub mod transfers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::mcp::connections::Connections;
use deskgate_assistant::providers::Providers;
use deskgate_definition::KeyPlace;
use deskgate_gateway::domain::devices as gateway_devices;
use deskgate_gateway::http::gate::ConnectionGate;
use deskgate_gateway::http::server::{self, ListenerAccess};
use deskgate_gateway::store::cluster;
use deskgate_gateway::{Gateway, Settings, StartError};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::{socket, tasks, token};
use deskgate_protocol::Timestamp;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::management::SetAccess;
use deskgate_secrets::KeyPreference;
use deskgate_store::{RetentionSettings, Store};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use account::TokenManager;
use cli::Signals;
use config::{Home, HomeError};
use dispatcher::{Dispatcher, DispatcherHandle, ExecuteFn};
use identity::{DeviceKey, KeyFileError};
use link::{BuiltInConnector, Connector, Credentials, HostedConnector, KnownGateways, Link};
use local::commands::{AgentCommand, LineShutdown};
use local::ended_runs::{self, EndedRuns, SharedEndedRuns};
use local::handler::{ActiveConnection, RequestHandler};
use local::health_memory::HealthMonitor;
use local::launch::LaunchCodes;
use local::reserve;
use local::retention;
use pages::Pages;
use power::{AwakeStatus, KeepAwake};
use services::GatewayClient as _;
use settings::{ConnectionSettings, InvalidSettings, Mode};
use transfers::Transfers;

/// The limits of the management pages' listener: a few browsers of one person.
const PAGE_LIMITS: server::ListenerLimits = server::ListenerLimits {
    connections: 128,
    connections_per_source: 128,
    drain: Duration::from_secs(2),
    ..server::ListenerLimits::PUBLIC
};

/// Why an agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Its key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Its database cannot be used.
    #[error(transparent)]
    Store(#[from] deskgate_store::Error),
    /// The connection's settings are not valid.
    #[error(transparent)]
    Connection(#[from] InvalidSettings),
    /// The saved control token cannot be used.
    #[error("the control token of the remote gateway: {0}")]
    Token(#[from] token::TokenError),
    /// The built-in gateway did not start.
    #[error("the built-in gateway: {0}")]
    Gateway(#[from] Box<StartError>),
    /// The built-in gateway removed its own device.
    #[error(
        "the built-in gateway: this device was removed from it, and its key stays refused. For a new identity move \
         {} away, and start again", key.display()
    )]
    Removed {
        /// The key's file.
        key: PathBuf,
    },
    /// The built-in gateway refuses its own device.
    #[error("the built-in gateway: {0}")]
    Pair(#[from] gateway_devices::PairError),
    /// The private socket cannot be bound.
    #[error("{path}: {source}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// Why it cannot be bound.
        source: std::io::Error,
    },
    /// A part of it panicked, or of the built-in gateway.
    #[error("a part of the agent or of its built-in gateway broke; see the log")]
    Broken,
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        let message = error.to_string();
        let exit = match error {
            AgentError::Home(_) | AgentError::Key(_) | AgentError::Connection(_) | AgentError::Token(_) => {
                Exit::NotSetUp
            }
            // The same exit code as the gateway's own program.
            AgentError::Gateway(error) => Self::from(*error).exit,
            AgentError::Removed { .. } => Exit::NotAuthorised,
            AgentError::Store(deskgate_store::Error::NewerSchema { .. }) => Exit::VersionMismatch,
            AgentError::Store(deskgate_store::Error::InUse { .. }) => Exit::Refused,
            AgentError::Store(_) | AgentError::Pair(_) | AgentError::Socket { .. } | AgentError::Broken => Exit::Failed,
        };
        Self::new(exit, message)
    }
}

/// Runs the agent until a signal or a stop request on its socket. After the first signal, runs in progress finish. The
/// second one stops them.
///
/// # Errors
/// Why the agent did not start, or ended.
pub async fn run(home: &Home, signals: Signals) -> Result<(), AgentError> {
    home.prepare()?;
    let store = Store::open(home.database()).await?;
    // The store is locked now: no other agent works in this folder.
    if let Err(error) = transfers::folder::remove_left(home.path()) {
        tracing::warn!(%error, "the files of earlier runs cannot be removed");
    }
    if let Err(error) = deskgate_tools::sandbox::remove_left(&home.scratch()) {
        tracing::warn!(%error, "temporary files of earlier runs cannot be removed");
    }
    for service in store.services().list().await? {
        let published = service.published.as_ref().map(|version| &version.definition);
        for definition in published.into_iter().chain([&service.draft]) {
            deskgate_tools::sandbox::remove_left_stand_ins(&definition.working_directory, &definition.protected);
        }
    }
    services::note_folders(&store.services()).await?;
    let key = DeviceKey::load_or_create(&home.key())?;
    let store = store.signing_with(key.receipt_signer());
    name_device(&store).await?;
    let path = home.socket();
    let listener = socket::bind(&path, 0o600).map_err(|source| AgentError::Socket { path: path.clone(), source })?;
    let (active_connections, active) = watch::channel(None);
    let (orders, ordered) = mpsc::channel(4);
    let keys = KeyPreference::default();
    keys.set(store.settings().get::<KeyPlace>().await?);
    let accounts = Providers::new(home.providers()).with_preference(keys.clone());
    let servers = McpServers::new(Connections::new(home.mcp_servers()).with_preference(keys.clone()));
    let token_manager = TokenManager::new(home.accounts(), keys.clone());
    let handler = RequestHandler {
        store: store.clone(),
        key: key.clone(),
        token_file: home.control_token(),
        host_keys_file: home.host_keys(),
        known_gateways_file: home.known_gateways(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        providers: accounts.clone(),
        mcp_servers: servers.clone(),
        token_manager: token_manager.clone(),
        key_preference: keys,
        own_folder: home.path().to_owned(),
        active_connection: active,
        commands: orders,
        launch: LaunchCodes::default(),
        health: HealthMonitor::default(),
        pending_decisions: Default::default(),
        pairing: Default::default(),
        publication_turn: Default::default(),
        checking: services::CheckProgress::default(),
        keep_awake: watch::Sender::new(store.settings().get::<KeepAwake>().await?),
        access_changes: watch::Sender::new(()),
    };
    let keep_awake = handler.keep_awake.subscribe();
    let close = CancellationToken::new();
    // Cancelled when a part panics that the agent cannot do without.
    let broken = CancellationToken::new();
    let needed = |name, work| AbortOnDropHandle::new(tokio::spawn(tasks::or_broken(name, broken.clone(), work)));
    let pages = spawn_restarting("management pages", {
        let (handler, close) = (handler.clone(), close.clone());
        move || serve_pages(handler.clone(), close.clone())
    });
    let _looking = spawn_restarting("health", over(handler.clone(), local::health::follow));
    let _forgetting = spawn_restarting("retention", over(handler.clone(), retention::follow));
    let held = health::reserve::Reserve::of(home.path());
    let holding = spawn_restarting("reserve", over(handler.clone(), reserve::follow));
    let _notifying = spawn_restarting("notifications", over(handler.clone(), local::notices::follow));
    let socket = needed("private socket", local::request::serve(listener, handler, close.clone()));
    let mut agent = Agent {
        home: home.clone(),
        store,
        key,
        accounts,
        servers,
        token_manager,
        active_connections,
        keep_awake,
        ordered,
        signals,
        broken,
    };
    let ended = Box::pin(agent.work()).await;
    drop(holding);
    held.end();
    agent.active_connections.send_replace(None);
    // A late command is answered by the end of its channel.
    drop(agent);
    // The caller that requested the stop has its answer, or gets it while the socket closes.
    close.cancel();
    let _ = tokio::join!(socket, pages);
    let _ = std::fs::remove_file(path);
    ended
}

/// Makes the same loop over the same handler again and again.
fn over<F>(handler: RequestHandler, follow: impl Fn(RequestHandler) -> F) -> impl Fn() -> F {
    move || follow(handler.clone())
}

/// Spawns a loop that is started again when it panics, and ends with its handle.
fn spawn_restarting<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    make: impl FnMut() -> F + Send + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(tasks::restarting(name, make)))
}

/// What is wrong on this computer, as far as it can be told while no agent answers.
pub async fn look(home: &Home) -> health::HealthReport {
    let programs = |state: &Path| cluster::find_programs(state).map_err(|error| error.to_string());
    health::offline::look(home, programs).await
}

/// Serves the management pages. Without them the agent works all the same, and reports that they are missing.
async fn serve_pages(handler: RequestHandler, stop: CancellationToken) {
    let settings = handler.store.settings();
    let listener = match pages::listen(&settings).await {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "no port of 127.0.0.1 is free for the management pages"),
    };
    let pages = match listener.local_addr() {
        Ok(address) => Pages::new(handler, address, Arc::new(Timestamp::now), stop.clone()).await,
        Err(error) => return tracing::error!(%error, "the management pages have no address"),
    };
    match pages {
        Ok(pages) => {
            let gate = Some(ConnectionGate::new(pages::owner::is_owner, &pages::owner::refusal()));
            let entrance = ListenerAccess { gate, ..ListenerAccess::default() };
            server::serve(listener, entrance, pages::router(pages), PAGE_LIMITS, stop).await;
        }
        Err(error) => tracing::error!(%error, "the management pages cannot be shown"),
    }
}

/// The default name is the computer's own.
async fn name_device(store: &Store) -> Result<(), AgentError> {
    let settings = store.settings();
    if settings.device_name().await?.is_none() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let usable = deskgate_protocol::service::check_name(&name).is_ok();
        settings.set_device_name(if usable { &name } else { "desktop" }).await?;
    }
    Ok(())
}

struct Agent {
    home: Home,
    store: Store,
    key: DeviceKey,
    accounts: Providers,
    servers: McpServers,
    token_manager: TokenManager,
    active_connections: watch::Sender<Option<ActiveConnection>>,
    /// When its owner wants the computer kept awake.
    keep_awake: watch::Receiver<KeepAwake>,
    ordered: mpsc::Receiver<AgentCommand>,
    signals: Signals,
    /// Cancelled when a part panicked that the agent cannot do without.
    broken: CancellationToken,
}

/// The events of the agent while a connection is in force.
enum AgentEvent {
    Order(AgentCommand),
    Signal,
    Broken,
}

/// A connection to the gateway, and the gateway itself if it is built in.
struct GatewayRoute {
    connector: Connector,
    credentials: Credentials,
    gateway: Option<Gateway>,
}

/// The ended runs of the gateway in this process.
struct OwnRuns(deskgate_gateway::store::Store);

impl EndedRuns for OwnRuns {
    fn count(&self, ago: Duration) -> ended_runs::EndedRunsFuture<'_, (u64, u64)> {
        Box::pin(async move {
            let (kept, going) = self.0.ended_runs(ago).await.map_err(|error| error.to_string())?;
            Ok((kept.unsigned_abs(), going.unsigned_abs()))
        })
    }

    fn keep(&self, retention: Duration) -> ended_runs::EndedRunsFuture<'_, ()> {
        Box::pin(async move { self.0.shorten_retention(retention).await.map(drop).map_err(|error| error.to_string()) })
    }
}

impl GatewayRoute {
    fn ended_runs(&self) -> Option<SharedEndedRuns> {
        let gateway = self.gateway.as_ref()?;
        Some(Arc::new(OwnRuns(gateway.store().clone())))
    }

    fn broken(&self) -> CancellationToken {
        self.gateway.as_ref().map_or_else(CancellationToken::new, Gateway::broken)
    }
}

impl Agent {
    /// Runs one connection after the other, until the agent is stopped.
    async fn work(&mut self) -> Result<(), AgentError> {
        loop {
            let mut in_force = self.store.settings().get::<ConnectionSettings>().await?;
            let mut reached = self.reach(&in_force).await?;
            let link = Link::new(reached.connector.clone(), reached.credentials.clone());
            let handle = link.handle();
            let (accounts, store) = (self.accounts.clone(), self.store.clone());
            let servers = self.servers.clone();
            let (transfers, tickets) = Transfers::new(handle.clone(), self.home.path().to_owned());
            let (unsettled, artifacts) = (transfers.unsettled(), self.store.artifacts());
            transfers.recover(&artifacts).await?;
            let _sending = spawn_restarting("artifacts", {
                let transfers = transfers.clone();
                move || transfers.clone().send(artifacts.clone())
            });
            let executing = transfers.clone();
            let execute: ExecuteFn = Arc::new(move |job, reports, stop| {
                let (accounts, servers, transfers) = (accounts.clone(), servers.clone(), executing.clone());
                Box::pin(executor::execute(job, accounts, servers, transfers, store.clone(), reports, stop))
            });
            let slots = self.store.settings().slots().await?.unwrap_or(dispatcher::DispatcherConfig::default().slots);
            let (dispatcher, dispatching) = Dispatcher::new(
                &self.store,
                link,
                execute,
                dispatcher::DispatcherConfig { slots, ..Default::default() },
            )
            .await?;
            let dispatched = tasks::or_broken(
                "dispatcher",
                self.broken.clone(),
                dispatcher.with_transfers(tickets, unsettled).run(),
            );
            let mut running = AbortOnDropHandle::new(tokio::spawn(dispatched));
            let (shown, kept_awake) = watch::channel(AwakeStatus::NotNeeded);
            self.active_connections.send_replace(Some(ActiveConnection {
                dispatcher: dispatching.clone(),
                link: handle.clone(),
                kept_awake,
                ended_runs: reached.ended_runs(),
                transfers: transfers.clone(),
            }));
            let preference = self.keep_awake.clone();
            let _sleep = spawn_restarting("sleep", {
                let (dispatching, handle) = (dispatching.clone(), handle.clone());
                move || {
                    dispatcher::sleep::follow(shown.clone(), preference.clone(), dispatching.clone(), handle.clone())
                }
            });
            let _meeting = spawn_restarting("gateway version", {
                let (handle, file, is_remote) =
                    (handle.clone(), self.home.gateway_version(), reached.gateway.is_none());
                move || gateway_version::follow(handle.status(), file.clone(), is_remote)
            });
            let _pausing = spawn_restarting("pause of access", {
                let (store, dispatching) = (self.store.clone(), dispatching.clone());
                move || pause_if_asked(store.clone(), dispatching.clone())
            });

            let (mut leaving, broken) = loop {
                match self.hear(&reached.broken()).await {
                    AgentEvent::Order(AgentCommand::Reconnect(done)) => {
                        let wanted = self.store.settings().get::<ConnectionSettings>().await?;
                        if !wanted.same_gateway(&in_force) {
                            // The runs have ended, or the user who saved has agreed to abandon them.
                            let mut leaving = LineShutdown::to_reconnect(true);
                            leaving.join(AgentCommand::Reconnect(done));
                            break (leaving, false);
                        }
                        // Executions continue; only the route changes, and perhaps the API's address.
                        if let Some(gateway) = reached.gateway.take() {
                            gateway.stop().await;
                        }
                        reached = self.reach(&wanted).await?;
                        in_force = wanted;
                        let ended_runs = reached.ended_runs();
                        self.active_connections.send_modify(|active| {
                            if let Some(active) = active {
                                active.ended_runs = ended_runs;
                            }
                        });
                        handle.redirect(reached.connector.clone(), reached.credentials.clone());
                        let _ = done.send(());
                    }
                    AgentEvent::Order(order) => {
                        let mut leaving = LineShutdown::default();
                        leaving.join(order);
                        break (leaving, false);
                    }
                    AgentEvent::Signal => break (LineShutdown::to_stop(false), false),
                    AgentEvent::Broken => break (LineShutdown::to_stop(true), true),
                }
            };
            self.wind_down(&mut leaving, &dispatching).await;
            if !running.is_finished() {
                let _ = (&mut running).await;
            }
            if let Some(gateway) = reached.gateway {
                gateway.stop().await;
            }
            let stops = leaving.stops;
            if !stops {
                self.active_connections.send_replace(None);
            }
            leaving.answer();
            match (broken, stops) {
                (true, _) => return Err(AgentError::Broken),
                (false, true) => return Ok(()),
                (false, false) => {}
            }
        }
    }

    async fn hear(&mut self, broken: &CancellationToken) -> AgentEvent {
        tokio::select! {
            // If no sender of commands is left, the agent has no reason to run either.
            order = self.ordered.recv() => order.map_or(AgentEvent::Signal, AgentEvent::Order),
            () = self.signals.stop.cancelled() => AgentEvent::Signal,
            () = broken.cancelled() => AgentEvent::Broken,
            () = self.broken.cancelled() => AgentEvent::Broken,
        }
    }

    /// Ends the dispatcher, and accepts further commands meanwhile.
    async fn wind_down(&mut self, leaving: &mut LineShutdown, dispatching: &DispatcherHandle) {
        let mut now = leaving.now;
        let mut stopping = Box::pin(dispatching.stop(now));
        let mut ordered = true;
        loop {
            tokio::select! {
                () = &mut stopping => return,
                order = self.ordered.recv(), if ordered => match order {
                    Some(order) => leaving.join(order),
                    None => ordered = false,
                },
                () = self.signals.stop.cancelled(), if !leaving.stops => leaving.stops = true,
                () = self.signals.now.cancelled(), if !leaving.now => leaving.now = true,
            }
            if leaving.now && !now {
                now = true;
                stopping = Box::pin(dispatching.stop(true));
            }
        }
    }

    fn known_gateways(&self) -> Option<KnownGateways> {
        Some(KnownGateways::new(self.home.known_gateways()))
    }

    /// The connector for the configured gateway; the gateway itself if it is built in.
    async fn reach(&self, connection: &ConnectionSettings) -> Result<GatewayRoute, AgentError> {
        let (key, journal_id) = (self.key.clone(), Some(self.store.journal().id().await?));
        match connection.mode {
            Mode::Remote => {
                let connector = Connector::Ssh(connection.saved.remote.ssh(self.home.host_keys())?);
                let token = Some(token::load(&self.home.control_token())?);
                Ok(GatewayRoute {
                    connector,
                    credentials: Credentials { key, token, known_gateways: self.known_gateways(), journal_id },
                    gateway: None,
                })
            }
            Mode::Hosted => {
                let device_name = self.store.settings().device_name().await?.unwrap_or_default();
                let (gateway, token_manager) = (connection.saved.hosted.address()?, self.token_manager.clone());
                let connector = Connector::Hosted(HostedConnector { gateway, token_manager, device_name });
                Ok(GatewayRoute {
                    connector,
                    credentials: Credentials { key, token: None, known_gateways: self.known_gateways(), journal_id },
                    gateway: None,
                })
            }
            Mode::BuiltIn => {
                let gateway = self.start_gateway(connection.saved.builtin.address()?).await?;
                let name = self.store.settings().device_name().await?.unwrap_or_default();
                let file = IdentityFile::sign(self.key.signing_key(), &name, Timestamp::now());
                if let Err(error) = gateway_devices::pair(gateway.store(), &file).await {
                    gateway.stop().await;
                    return Err(match error {
                        gateway_devices::PairError::Revoked => AgentError::Removed { key: self.home.key() },
                        other => other.into(),
                    });
                }
                let pipes = gateway.pipes();
                let open = move || {
                    let stream: link::BoxedStream = Box::new(pipes.open());
                    std::future::ready(Ok(stream))
                };
                let connector = Connector::BuiltIn(BuiltInConnector::new(open));
                let token = Some(gateway.control_token().clone());
                // Whatever gateway is in this process is this device's own.
                let credentials = Credentials { key, token, known_gateways: None, journal_id };
                Ok(GatewayRoute { connector, credentials, gateway: Some(gateway) })
            }
        }
    }

    /// With port 0, the last port is used again if it is free, so that backends find the same address.
    async fn start_gateway(&self, listen: SocketAddr) -> Result<Gateway, AgentError> {
        let settings = self.store.settings();
        let keep = settings.get::<RetentionSettings>().await?;
        let built_in = |listen| {
            let mut settings = Settings::built_in(self.home.gateway(), listen);
            settings.limits.retention = retention::days(keep.runs);
            settings
        };
        let known = if listen.port() == 0 { settings.builtin_port().await? } else { None };
        if let Some(port) = known {
            let listen = SocketAddr::new(listen.ip(), port);
            match Gateway::start(built_in(listen)).await {
                Ok(gateway) => return Ok(gateway),
                Err(StartError::Listen { .. }) => {
                    tracing::warn!(port, "the port of the last time is taken; choosing another")
                }
                Err(error) => return Err(Box::new(error).into()),
            }
        }
        let gateway = Gateway::start(built_in(listen)).await.map_err(Box::new)?;
        if listen.port() == 0 {
            settings.set_builtin_port(gateway.addresses().http.port()).await?;
        }
        Ok(gateway)
    }
}

/// After a change of mode, pauses access as soon as the gateway is reached.
async fn pause_if_asked(store: Store, dispatcher: DispatcherHandle) {
    let mut status = dispatcher.watch();
    loop {
        if !store.settings().get::<ConnectionSettings>().await.is_ok_and(|connection| connection.pause_access) {
            return;
        }
        if status.borrow_and_update().connected && dispatcher.call(SetAccess { enabled: false }).await.is_ok() {
            let noted =
                store.settings().update(|connection: &mut ConnectionSettings| connection.pause_access = false).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "the pause of access could not be noted; it is repeated at the next start");
            }
            return;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
