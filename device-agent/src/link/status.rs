//! The link's status, and the handle that makes it dial at once.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deskgate_protocol::control::SessionRefusal;
use deskgate_protocol::{DeviceId, GatewayId, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::session::SessionEnd;
use super::{ConnectStage, Connector, Credentials, DisconnectReason, HostKeys, LinkError};

/// How to reach the gateway, and with which credentials.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) connector: Connector,
    pub(super) credentials: Credentials,
}

/// The status of the link to the gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkStatus {
    /// There is no connection.
    Disconnected {
        /// Why, for a person.
        why: String,
        /// The stage that failed, if known.
        failed_at: Option<ConnectStage>,
        /// The keys to compare, if the server's key is not the pinned one.
        host_keys: Option<HostKeys>,
        /// When the next automatic attempt is; `None`: after a person's action.
        next_attempt_at: Option<Timestamp>,
    },
    /// Dialling, or about to.
    Connecting,
    /// The session is open.
    Connected {
        /// When it was opened.
        since: Timestamp,
        /// The number of the session.
        epoch: u64,
        /// This device's identifier at the gateway.
        device_id: DeviceId,
        /// The gateway's product version.
        gateway_version: String,
    },
    /// The gateway refused.
    Refused {
        /// The gateway's refusal.
        refused: SessionRefusal,
        /// When the next automatic attempt is; `None`: after a person's action.
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
        let failed_at = why.failed_at();
        Self::Disconnected { why: why.to_string(), failed_at, host_keys: None, next_attempt_at }
    }

    pub(super) fn refused(refused: SessionRefusal, wait: Option<Duration>) -> Self {
        Self::Refused { refused, next_attempt_at: wait.map(from_now) }
    }
}

fn from_now(wait: Duration) -> Timestamp {
    let now = Timestamp::now();
    now.0.checked_add(wait).map_or(now, Timestamp::from)
}

/// The link's side of the handle: sets the status, and reads the route.
#[derive(Debug)]
pub(super) struct LinkControl {
    status: watch::Sender<LinkStatus>,
    kick: Arc<Notify>,
    way: watch::Sender<Route>,
    session: Arc<Mutex<Weak<SessionEnd>>>,
    person: watch::Sender<Option<Instant>>,
}

impl LinkControl {
    pub(super) fn new(way: Route) -> Self {
        // A new link is about to dial; the status stays until the attempt has a result.
        let status = watch::Sender::new(LinkStatus::Connecting);
        let (way, person) = (watch::Sender::new(way), watch::Sender::new(None));
        Self { status, kick: Arc::default(), way, session: Arc::default(), person }
    }

    pub(super) fn set(&self, status: LinkStatus) {
        self.status.send_replace(status);
    }

    pub(super) async fn wait_for_kick(&self) {
        self.kick.notified().await;
    }

    /// When the owner last looked, and each time they do.
    pub(super) fn person(&self) -> watch::Receiver<Option<Instant>> {
        self.person.subscribe()
    }

    /// The route in force, and its changes.
    pub(super) fn way(&self) -> watch::Receiver<Route> {
        self.way.subscribe()
    }

    /// Lets a redirection end this session.
    pub(super) fn register_session(&self, session: &Arc<SessionEnd>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(session);
    }

    pub(super) fn handle(&self) -> LinkHandle {
        LinkHandle {
            status: self.status.subscribe(),
            kick: Arc::clone(&self.kick),
            way: self.way.clone(),
            session: Arc::clone(&self.session),
            person: self.person.clone(),
        }
    }
}

/// A handle for reading and controlling a link from any task.
#[derive(Clone, Debug)]
pub struct LinkHandle {
    status: watch::Receiver<LinkStatus>,
    kick: Arc<Notify>,
    way: watch::Sender<Route>,
    session: Arc<Mutex<Weak<SessionEnd>>>,
    person: watch::Sender<Option<Instant>>,
}

impl LinkHandle {
    /// The handle of a link that leads nowhere.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        let open = || async { Err(std::io::Error::from(std::io::ErrorKind::NotConnected)) };
        let connector = Connector::BuiltIn(super::BuiltInConnector::new(open));
        let key =
            crate::identity::DeviceKey::of_invitation(&deskgate_protocol::invitation::InvitationToken::generate());
        let credentials = Credentials { key, token: None, known_gateways: None, journal_id: None };
        LinkControl::new(Route { connector, credentials }).handle()
    }

    /// The route in force.
    pub(super) fn route(&self) -> Route {
        self.way.borrow().clone()
    }

    /// The status, now and after each change.
    pub fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.clone()
    }

    /// Notes that the owner is here: a page is open, or a command was used. After a long outage the waits are then
    /// short.
    pub fn note_person(&self) {
        self.person.send_replace(Some(Instant::now()));
    }

    /// Dials at once instead of waiting: after sleep, a network change, or at a person's request. During a connection
    /// or an attempt, the next wait is skipped instead.
    pub fn kick(&self) {
        self.kick.notify_one();
    }

    /// Takes this gateway for the one at the route's address from now on, and dials at once.
    ///
    /// # Errors
    /// It cannot be noted.
    pub fn accept_gateway(&self, gateway: GatewayId) -> std::io::Result<()> {
        let Route { connector, credentials } = self.way.borrow().clone();
        if let Some(known) = &credentials.known_gateways {
            known.remember(&connector.address(), gateway)?;
        }
        self.kick();
        Ok(())
    }

    /// Changes the route to the *same* gateway: closes the connection and dials there at once. Executions continue
    /// meanwhile, as when a connection is lost.
    pub fn redirect(&self, connector: Connector, credentials: Credentials) {
        self.way.send_replace(Route { connector, credentials });
        self.hang_up(DisconnectReason::Redirected);
        self.kick();
    }

    /// Closes the connection and dials again at once: after sleep it may be dead without notice.
    pub fn redial(&self) {
        self.hang_up(DisconnectReason::Slept);
        self.kick();
    }

    fn hang_up(&self, why: DisconnectReason) {
        // The code under this lock does not panic.
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(session) = session {
            session.end(why);
        }
    }
}
