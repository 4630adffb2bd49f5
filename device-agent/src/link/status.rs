//! How the link stands, for whoever shows it, and the hand that makes it dial at once.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deskgate_protocol::control::SessionRefusal;
use deskgate_protocol::{DeviceId, Timestamp};
use tokio::sync::{Notify, watch};

use super::session::SessionEnd;
use super::{ConnectStage, Connector, Credentials, DisconnectReason, HostKeys, LinkError};

/// How to reach the gateway, and who comes in.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) connector: Connector,
    pub(super) credentials: Credentials,
}

/// How the link to the gateway stands.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkStatus {
    /// No connection.
    Disconnected {
        /// Why, for a person.
        why: String,
        /// What the attempt failed at, if that can be told.
        failed_at: Option<ConnectStage>,
        /// What to compare, where the server's key is not the pinned one.
        host_keys: Option<HostKeys>,
        /// When it dials again by itself; `None`: not before a person did something.
        next_attempt_at: Option<Timestamp>,
    },
    /// Dialling, or about to.
    Connecting,
    /// In.
    Connected {
        /// Since when.
        since: Timestamp,
        /// The number of the session.
        epoch: u64,
        /// Who this device is to the gateway.
        device_id: DeviceId,
        /// The gateway's product version.
        gateway_version: String,
    },
    /// The gateway said no.
    Refused {
        /// What it said.
        refused: SessionRefusal,
        /// When it is asked again by itself; `None`: not before a person did something.
        next_attempt_at: Option<Timestamp>,
    },
}

impl LinkStatus {
    /// An attempt failed.
    pub(super) fn failed(error: &LinkError, wait: Option<Duration>) -> Self {
        let (failed_at, host_keys) = (error.failed_at(), error.host_keys());
        Self::Disconnected { why: error.to_string(), failed_at, host_keys, next_attempt_at: wait.map(from_now) }
    }

    /// A session ended.
    pub(super) fn lost(why: &DisconnectReason, wait: Duration) -> Self {
        let next_attempt_at = Some(from_now(wait));
        Self::Disconnected { why: why.to_string(), failed_at: None, host_keys: None, next_attempt_at }
    }

    pub(super) fn refused(refused: SessionRefusal, wait: Option<Duration>) -> Self {
        Self::Refused { refused, next_attempt_at: wait.map(from_now) }
    }
}

fn from_now(wait: Duration) -> Timestamp {
    let now = Timestamp::now();
    now.0.checked_add(wait).map_or(now, Timestamp::from)
}

/// Where the link writes how it stands, and reads which way to go.
#[derive(Debug)]
pub(super) struct LinkControl {
    status: watch::Sender<LinkStatus>,
    kick: Arc<Notify>,
    way: watch::Sender<Route>,
    session: Arc<Mutex<Weak<SessionEnd>>>,
}

impl LinkControl {
    pub(super) fn new(way: Route) -> Self {
        // A link that was made is about to dial; it stays like this until the attempt has an outcome.
        let status = watch::Sender::new(LinkStatus::Connecting);
        Self { status, kick: Arc::default(), way: watch::Sender::new(way), session: Arc::default() }
    }

    pub(super) fn set(&self, status: LinkStatus) {
        self.status.send_replace(status);
    }

    pub(super) async fn wait_for_kick(&self) {
        self.kick.notified().await;
    }

    /// The way in force, and news of another one.
    pub(super) fn way(&self) -> watch::Receiver<Route> {
        self.way.subscribe()
    }

    /// From now on, a redirection ends this session.
    pub(super) fn register_session(&self, session: &Arc<SessionEnd>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(session);
    }

    pub(super) fn handle(&self) -> LinkHandle {
        LinkHandle {
            status: self.status.subscribe(),
            kick: Arc::clone(&self.kick),
            way: self.way.clone(),
            session: Arc::clone(&self.session),
        }
    }
}

/// Looks at a link and pushes it, from anywhere.
#[derive(Clone, Debug)]
pub struct LinkHandle {
    status: watch::Receiver<LinkStatus>,
    kick: Arc<Notify>,
    way: watch::Sender<Route>,
    session: Arc<Mutex<Weak<SessionEnd>>>,
}

impl LinkHandle {
    /// How it stands, now and after each change.
    pub fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    /// Dials at once instead of waiting: after wake, a network change, or at a person's wish. While
    /// a connection is open or under way, the next wait is skipped instead.
    pub fn kick(&self) {
        self.kick.notify_one();
    }

    /// Goes another way to the *same* gateway: hangs up and dials there at once. What executes goes
    /// on meanwhile, as when a line is lost.
    pub fn redirect(&self, connector: Connector, credentials: Credentials) {
        self.way.send_replace(Route { connector, credentials });
        self.hang_up(DisconnectReason::Redirected);
        self.kick();
    }

    /// Hangs up and dials again at once: after sleep the line may be dead without anybody having been told.
    pub fn redial(&self) {
        self.hang_up(DisconnectReason::Slept);
        self.kick();
    }

    fn hang_up(&self, why: DisconnectReason) {
        // Nothing panics while it holds the lock.
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(session) = session {
            session.end(why);
        }
    }
}
