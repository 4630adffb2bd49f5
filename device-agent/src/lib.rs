//! The desktop half of Deskgate: pairs, pulls runs, executes them under its owner's rules.
//!
//! This file is the composition root: the only one that knows all rooms.

pub mod assistant;
pub mod cli;
pub mod config;
pub mod dispatcher;
pub mod executor;
pub mod identity;
pub mod link;
pub mod local;
pub mod services;
pub mod settings;
pub mod store;
pub mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use deskgate_gateway::domain::devices as gateway_devices;
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::{Gateway, Settings, StartError, socket, token};
use deskgate_protocol::Timestamp;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::management::SetAccess;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use config::{Home, HomeError};
use dispatcher::{Dispatcher, Execute};
use identity::{DeviceKey, KeyFileError};
use link::{BuiltIn, Connector, Credentials, Link};
use local::desk::{Desk, Engine, Order};
use services::Gateway as _;
use settings::{Mode, Unusable};
use store::Store;

/// Why an agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its folder.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Its key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Its database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Its connection's fields.
    #[error(transparent)]
    Connection(#[from] Unusable),
    /// The saved control token.
    #[error("the control token of the remote gateway: {0}")]
    Token(#[from] token::TokenError),
    /// The built-in gateway.
    #[error("the built-in gateway: {0}")]
    Gateway(#[from] Box<StartError>),
    /// The built-in gateway does not let its own device in.
    #[error("the built-in gateway: {0}")]
    Pair(#[from] gateway_devices::PairError),
    /// The private socket.
    #[error("{path}: {source}")]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The built-in gateway broke.
    #[error("a part of the built-in gateway broke; see the log")]
    Broken,
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        let exit = match &error {
            AgentError::Home(_) | AgentError::Key(_) | AgentError::Connection(_) | AgentError::Token(_) => {
                Exit::NotSetUp
            }
            AgentError::Gateway(_) => Exit::NotSetUp,
            AgentError::Store(_) | AgentError::Pair(_) | AgentError::Socket { .. } | AgentError::Broken => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

/// Runs the agent until `stop` or until it is told to stop on its socket. Cancelling `stop` cuts
/// off nothing: runs in progress finish first.
pub async fn run(home: &Home, stop: CancellationToken) -> Result<(), AgentError> {
    home.prepare()?;
    let store = Store::open(home.database()).await?;
    let key = DeviceKey::load_or_create(&home.key())?;
    name_device(&store).await?;
    let path = home.socket();
    let listener = socket::bind(&path, 0o600).map_err(|source| AgentError::Socket { path: path.clone(), source })?;
    let (engines, engine) = watch::channel(None);
    let (orders, ordered) = mpsc::channel(4);
    let desk = Desk {
        store: store.clone(),
        key: key.clone(),
        token_file: home.control_token(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        engine,
        orders,
    };
    let close = CancellationToken::new();
    let office = AbortOnDropHandle::new(tokio::spawn(local::desk::serve(listener, desk, close.clone())));
    let mut agent = Agent { home: home.clone(), store, key, engines, ordered, stop };
    let ended = agent.work().await;
    agent.engines.send_replace(None);
    // Whoever asked for the stop has the answer now, or gets it while the socket closes.
    close.cancel();
    let _ = office.await;
    let _ = std::fs::remove_file(path);
    ended
}

/// The first name is the computer's own.
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
    engines: watch::Sender<Option<Engine>>,
    ordered: mpsc::Receiver<Order>,
    stop: CancellationToken,
}

/// What ended a line.
enum Next {
    Reconnect(oneshot::Sender<()>),
    Stop { now: bool, done: Option<oneshot::Sender<()>> },
    Broken,
}

impl Agent {
    /// One line after the other, until the agent is told to stop.
    async fn work(&mut self) -> Result<(), AgentError> {
        loop {
            let (connector, token, gateway) = self.reach().await?;
            let broken = gateway.as_ref().map_or_else(CancellationToken::new, Gateway::broken);
            let credentials = Credentials { key: self.key.clone(), token };
            let link = Link::new(connector, credentials);
            let handle = link.handle();
            let execute: Execute = Arc::new(|job, events, stop| Box::pin(executor::execute(job, events, stop)));
            let slots = self.store.settings().slots().await?.unwrap_or(dispatcher::Config::default().slots);
            let (dispatcher, dispatching) =
                Dispatcher::new(&self.store, link, execute, dispatcher::Config { slots }).await?;
            let mut running = AbortOnDropHandle::new(tokio::spawn(dispatcher.run()));
            self.engines.send_replace(Some(Engine { dispatcher: dispatching.clone(), link: handle.clone() }));
            let _pausing =
                AbortOnDropHandle::new(tokio::spawn(pause_if_asked(self.store.clone(), dispatching.clone())));

            let next = self.next(&broken).await;
            let now = !matches!(next, Next::Stop { now: false, .. } | Next::Reconnect(_));
            let mut stopping = std::pin::pin!(dispatching.stop(now));
            loop {
                tokio::select! {
                    () = &mut stopping => break,
                    // Whoever waits for a gentle stop may still ask for a quick one.
                    Some(Order::Stop { now: true, done }) = self.ordered.recv() => {
                        dispatching.stop(true).await;
                        let _ = done.send(());
                    }
                }
            }
            if !running.is_finished() {
                let _ = (&mut running).await;
            }
            if let Some(gateway) = gateway {
                gateway.stop().await;
            }
            match next {
                Next::Reconnect(done) => {
                    self.engines.send_replace(None);
                    let _ = done.send(());
                }
                Next::Stop { done, .. } => {
                    if let Some(done) = done {
                        let _ = done.send(());
                    }
                    return Ok(());
                }
                Next::Broken => return Err(AgentError::Broken),
            }
        }
    }

    async fn next(&mut self, broken: &CancellationToken) -> Next {
        tokio::select! {
            order = self.ordered.recv() => match order {
                Some(Order::Reconnect(done)) => Next::Reconnect(done),
                Some(Order::Stop { now, done }) => Next::Stop { now, done: Some(done) },
                None => Next::Stop { now: false, done: None },
            },
            () = self.stop.cancelled() => Next::Stop { now: false, done: None },
            () = broken.cancelled() => Next::Broken,
        }
    }

    /// The way to the gateway that is in force; the gateway itself when it is built in.
    async fn reach(&self) -> Result<(Connector, deskgate_protocol::secret::ControlToken, Option<Gateway>), AgentError> {
        let connection = self.store.settings().connection().await?;
        match connection.mode {
            Mode::Remote => {
                let token = token::load(&self.home.control_token())?;
                Ok((Connector::Ssh(connection.saved.remote.ssh()?), token, None))
            }
            Mode::BuiltIn => {
                let gateway = self.start_gateway(connection.saved.builtin.address()?).await?;
                let name = self.store.settings().device_name().await?.unwrap_or_default();
                let file = IdentityFile::sign(self.key.signing_key(), &name, Timestamp::now());
                gateway_devices::pair(gateway.store(), &file).await?;
                let pipes = gateway.pipes();
                let open = move || {
                    let stream: link::BoxedStream = Box::new(pipes.open());
                    std::future::ready(Ok(stream))
                };
                Ok((Connector::BuiltIn(BuiltIn::new(open)), gateway.control_token().clone(), Some(gateway)))
            }
        }
    }

    /// With port 0 the port of the last time is taken again if it is free, so that backends find
    /// the same address.
    async fn start_gateway(&self, listen: SocketAddr) -> Result<Gateway, AgentError> {
        let settings = self.store.settings();
        let known = if listen.port() == 0 { settings.builtin_port().await? } else { None };
        if let Some(port) = known {
            let listen = SocketAddr::new(listen.ip(), port);
            match Gateway::start(Settings::built_in(self.home.gateway(), listen)).await {
                Ok(gateway) => return Ok(gateway),
                Err(StartError::Listen { .. }) => {
                    tracing::warn!(port, "the port of the last time is taken; choosing another")
                }
                Err(error) => return Err(Box::new(error).into()),
            }
        }
        let gateway = Gateway::start(Settings::built_in(self.home.gateway(), listen)).await.map_err(Box::new)?;
        if listen.port() == 0 {
            settings.set_builtin_port(gateway.addresses().http.port()).await?;
        }
        Ok(gateway)
    }
}

/// After another mode was saved, access is paused as soon as its gateway is reached.
async fn pause_if_asked(store: Store, dispatcher: dispatcher::DispatcherHandle) {
    let mut status = dispatcher.watch();
    loop {
        let Ok(mut connection) = store.settings().connection().await else { return };
        if !connection.pause_access {
            return;
        }
        if status.borrow_and_update().connected && dispatcher.call(SetAccess { enabled: false }).await.is_ok() {
            connection.pause_access = false;
            if let Err(error) = store.settings().set_connection(&connection).await {
                tracing::warn!(%error, "the pause of access could not be noted; it is repeated at the next start");
            }
            return;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
