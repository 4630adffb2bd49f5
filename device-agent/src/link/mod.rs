//! The link: connects to the gateway, and retries until it is welcomed.
//!
//! The contract with the dispatcher:
//!
//! ```text
//! let mut link = Link::new(connector, credentials);               // connector: ssh, hosted, built-in
//! let mut session = link.connect(|| journal.in_flight()).await;   // retries until it is welcomed
//! session.sender().send(DeviceFrame::ready(slots)).await
//! while let Some(frame) = session.next().await { … }   // None: the line is lost; connect again
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`ssh`] | a byte stream over SSH, to the gateway's own listener or to OpenSSH's sshd |
//! | [`host_pin`] | verification of the server's host key |
//! | [`announced_keys`] | the keys that the server announces before it shows them |
//! | [`hosted`] | a WebSocket over the public address, with an account's token |
//! | [`builtin`] | a byte stream to a gateway in the same process |
//! | `conduct` | what no gateway's server does |
//! | `dial` | one TCP connection, over a network that may be down |
//! | `network` | changes of this computer's network, and its own addresses |
//! | [`known_gateways`] | the gateway that was met at each address |
//! | `handshake` | from a byte stream to a welcomed session |
//! | [`pairing`] | pairing by an invitation, before there is a connection |
//! | [`session`] | frames in, frames out, and detection of a lost connection |
//! | [`transfers`] | a stream with the bytes of files, beside the session |
//! | [`target`] | the server's address, and its pin |
//! | [`status`] | the link's status, and the handle that makes it dial at once |

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::control::InFlightRun;
use deskgate_protocol::identity::{PublicKey, RecognisedServer};
use deskgate_protocol::ids::JournalId;
use deskgate_protocol::secret::ControlToken;
use rand::RngExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::identity::DeviceKey;

pub mod announced_keys;
pub mod builtin;
mod conduct;
mod dial;
mod error;
mod handshake;
pub mod host_pin;
pub mod hosted;
pub mod known_gateways;
mod network;
pub mod pairing;
pub mod session;
pub mod ssh;
pub mod status;
pub mod target;
pub mod transfers;

pub use builtin::{BoxedStream, BuiltInConnector};
pub use conduct::MAX_REFUSED_CHANNELS;
use conduct::ServerConduct;
pub use error::{ConnectStage, DisconnectReason, HostKeyError, HostKeys, LinkError};
use handshake::{HandshakeContext, OpenedChannel};
pub use host_pin::{HostPin, PinnedFingerprint};
pub use hosted::HostedConnector;
pub use known_gateways::KnownGateways;
use network::NetworkMonitor;
pub use session::Session;
use ssh::SshStream;
use status::Route;
pub use status::{LinkHandle, LinkStatus};
pub use target::{FollowedKeysFile, Ssh};

/// The path of the control channel at a gateway.
const CONTROL_PATH: &str = "/control";
/// The delay between a change of this computer's network and the next attempt.
const NETWORK_SETTLE_DELAY: Duration = Duration::from_millis(200);

/// How the channel to the gateway is opened.
#[derive(Clone, Debug)]
pub enum Connector {
    /// Over SSH.
    Ssh(Ssh),
    /// Over the public address of a hosted gateway.
    Hosted(HostedConnector),
    /// Within this process.
    BuiltIn(BuiltInConnector),
}

/// The transport that a connector opened.
struct OpenedTransport {
    opened: OpenedChannel,
    /// The host key by which the server was verified, if it has one.
    host_key: Option<PublicKey>,
    /// The local address of the connection.
    local_address: Option<IpAddr>,
    conduct: ServerConduct,
}

impl Connector {
    /// Opens a channel to this path of the gateway.
    async fn open(&self, key: &DeviceKey, path: &'static str) -> Result<OpenedTransport, LinkError> {
        Ok(match self {
            Self::Ssh(ssh) => {
                let SshStream { stream, host_key, local_address, conduct } = ssh.reach(key).await?;
                let opened = OpenedChannel::Private(stream);
                OpenedTransport { opened, host_key: Some(host_key), local_address, conduct }
            }
            Self::Hosted(hosted) => {
                let (socket, local_address) = hosted.open(path).await?;
                let opened = OpenedChannel::Account(Box::new(socket), hosted.device_name.clone());
                OpenedTransport { opened, host_key: None, local_address, conduct: ServerConduct::default() }
            }
            Self::BuiltIn(builtin) => {
                let stream = builtin.open().await.map_err(LinkError::BuiltIn)?;
                let (opened, conduct) = (OpenedChannel::Private(stream), ServerConduct::default());
                OpenedTransport { opened, host_key: None, local_address: None, conduct }
            }
        })
    }

    /// Changes, from now on, that may help a failing attempt.
    fn news(&self) -> Option<watch::Receiver<()>> {
        match self {
            Self::Hosted(hosted) => Some(hosted.token_manager.sign_ins()),
            Self::Ssh(_) | Self::BuiltIn(_) => None,
        }
    }

    /// By what the server was recognised, over which the gateway answers.
    fn recognised(&self, host_key: Option<PublicKey>) -> RecognisedServer {
        match (self, host_key) {
            (Self::Hosted(hosted), _) => RecognisedServer::Origin(hosted.gateway.origin()),
            (Self::Ssh(_), Some(host_key)) => RecognisedServer::HostKey(host_key),
            (Self::Ssh(_), None) | (Self::BuiltIn(_), _) => RecognisedServer::BuiltIn,
        }
    }

    /// The gateway's address, for people.
    pub fn address(&self) -> String {
        match self {
            Self::Ssh(ssh) => ssh.address(),
            Self::Hosted(hosted) => hosted.gateway.to_string(),
            Self::BuiltIn(_) => "the built-in gateway".to_owned(),
        }
    }
}

/// The credentials for the gateway, and what is known of it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// This device's identity.
    pub key: DeviceKey,
    /// The gateway's private control token; absent if an account's token is used.
    pub token: Option<ControlToken>,
    /// The gateways that this device knows; `None`: any is taken.
    pub known_gateways: Option<KnownGateways>,
    /// The journal of the runs that this device takes; absent where none are taken.
    pub journal_id: Option<JournalId>,
}

/// The waits between attempts.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The wait after the first failure; doubled after each further one.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// The longest wait while the gateway was reachable [recently](Self::recent_window) and only the connection fails:
    /// it may be restored at any moment.
    pub max_while_recent: Duration,
    /// The longest wait later on, while the owner is here and only the connection fails: somebody waits for it.
    pub max_while_person: Duration,
    /// For how long the owner counts as here after a page was open or a command was used.
    pub person_window: Duration,
    /// For how long a gateway counts as recently reachable.
    pub recent_window: Duration,
    /// For how long after a session, or after the first attempt, an SSH address that hangs up before it greets counts as
    /// a connection that fails: what forwards to a gateway does that while the gateway restarts.
    pub hung_up_window: Duration,
    /// Repeated sessions shorter than this count as failures: otherwise two devices with one key would replace each
    /// other without a pause.
    pub min_session: Duration,
    /// The longest wait after a session whose connection broke, however short it was. A connection that breaks often
    /// still gets through each time, and the callers of waiting runs should not be delayed by earlier breaks.
    pub max_after_break: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
            max_while_recent: Duration::from_millis(500),
            max_while_person: Duration::from_secs(4),
            person_window: Duration::from_secs(120),
            recent_window: Duration::from_secs(600),
            hung_up_window: Duration::from_secs(30),
            min_session: Duration::from_secs(30),
            max_after_break: Duration::from_secs(2),
        }
    }
}

impl RetryPolicy {
    /// The wait after this many failures in a row: zero after none, then doubling, with jitter so that devices that
    /// lost one gateway together do not return together.
    fn wait(&self, failures: u32, longest: Duration) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let whole = self.initial.saturating_mul(2u32.saturating_pow(doublings)).min(longest);
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

/// Makes a single connection attempt, as a connection test needs it.
///
/// # Errors
/// Why the attempt failed.
pub async fn connect_once(
    connector: &Connector,
    credentials: &Credentials,
    in_flight: Vec<InFlightRun>,
) -> Result<Session, LinkError> {
    // Boxed, because SSH and WebSocket set-up hold large states that are not needed afterwards.
    let OpenedTransport { opened, host_key: shown, local_address: options, conduct } =
        Box::pin(connector.open(&credentials.key, CONTROL_PATH)).await?;
    let address = connector.address();
    let server = connector.recognised(shown);
    let context = HandshakeContext { address: &address, server, conduct };
    let handshake = Box::pin(handshake::open(opened, credentials, in_flight, context));
    let mut session =
        network::while_address_held(options, handshake).await.unwrap_or_else(|| Err(LinkError::address_lost()))?;
    if let Some(options) = options {
        session.end_when_address_lost(options);
    }
    match (connector, shown) {
        (Connector::Hosted(hosted), _) => session.spawn(hosted.clone().renew(session.sender())),
        (Connector::Ssh(ssh), Some(shown)) => {
            let announced: Vec<_> = session.welcome().host_keys.iter().map(|key| key.public_key).collect();
            if !announced.is_empty() {
                announced_keys::follow(ssh, &shown, &announced);
            }
        }
        _ => {}
    }
    Ok(session)
}

/// Keeps trying until the gateway welcomes this device.
#[derive(Debug)]
pub struct Link {
    way: watch::Receiver<Route>,
    pace: RetryPolicy,
    status: status::LinkControl,
    last: Option<(Arc<session::SessionEnd>, Instant)>,
    short_sessions: u32,
    /// When the last session ended, or this was created.
    seen: Instant,
}

/// Events that may end a wait early.
#[derive(Default)]
struct WaitInterrupts<'a> {
    news: Option<watch::Receiver<()>>,
    /// The owner's arrival, after which the wait has this length in all.
    person: Option<(watch::Receiver<Option<Instant>>, Duration)>,
    network: Option<&'a mut NetworkMonitor>,
}

impl WaitInterrupts<'_> {
    async fn by_news(news: Option<watch::Receiver<()>>) {
        let Some(mut news) = news else { return std::future::pending().await };
        if news.changed().await.is_err() {
            std::future::pending().await
        }
    }

    async fn by_person(person: Option<(watch::Receiver<Option<Instant>>, Duration)>) {
        let Some((mut person, longest)) = person else { return std::future::pending().await };
        let until = Instant::now() + longest;
        if person.changed().await.is_err() {
            std::future::pending().await
        }
        tokio::time::sleep_until(until).await;
    }

    async fn by_network(network: Option<&mut NetworkMonitor>) {
        let Some(network) = network else { return std::future::pending().await };
        network.changed().await;
        // A restored network causes several changes: the cable, the address, the routes.
        sleep(NETWORK_SETTLE_DELAY).await;
    }
}

impl Link {
    /// A link that has not dialled yet.
    pub fn new(connector: Connector, credentials: Credentials) -> Self {
        let status = status::LinkControl::new(Route { connector, credentials });
        let pace = RetryPolicy::default();
        Self { way: status.way(), pace, status, last: None, short_sessions: 0, seen: Instant::now() }
    }

    /// Replaces the default retry policy.
    #[must_use]
    pub fn with_retry_policy(self, pace: RetryPolicy) -> Self {
        Self { pace, ..self }
    }

    /// The handle for the status, and for dialling at once.
    pub fn handle(&self) -> LinkHandle {
        self.status.handle()
    }

    /// Connects: at once, then with back-off and jitter up to 30 s, until the gateway welcomes this device. Before each
    /// attempt, `in_flight` returns the journal's runs.
    ///
    /// While only the connection fails, it dials at once when this computer's network changed, and every half second in
    /// the first ten minutes: a restored network is used again within two seconds. Later it dials every few seconds
    /// while the owner is [here](LinkHandle::note_person).
    ///
    /// When only a person can help (an unknown or changed host key, a refusal without retry), it waits for
    /// [`LinkHandle::kick`]. Dropping the future stops dialling and closes open connections.
    pub async fn connect<F, Fut>(&mut self, in_flight: F) -> Session
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Vec<InFlightRun>>,
    {
        let mut network = NetworkMonitor::listen();
        self.settle_last(&mut network).await;
        let mut failures = 0;
        loop {
            self.status.set(LinkStatus::Connecting);
            let Route { connector, credentials } = self.way.borrow_and_update().clone();
            let news = connector.news();
            let attempt = async { connect_once(&connector, &credentials, in_flight().await).await };
            let error = tokio::select! {
                made = attempt => match made {
                    Ok(session) => match self.welcomed(session) {
                        Some(session) => return session,
                        None => continue,
                    },
                    Err(error) => error,
                },
                Ok(()) = self.way.changed() => {
                    failures = 0;
                    continue;
                }
            };
            failures += 1;
            if self.failed(error, failures, news, &mut network).await {
                failures = 0;
            }
        }
    }

    /// `None`: another route is in force now.
    fn welcomed(&mut self, session: Session) -> Option<Session> {
        self.status.register_session(&session.ending());
        if self.way.has_changed().unwrap_or(false) {
            return None;
        }
        let welcome = session.welcome();
        tracing::info!(address = %self.address(), device = %welcome.device_id, epoch = welcome.epoch,
            gateway = session.gateway_version(), "connected to the gateway");
        self.status.set(LinkStatus::Connected {
            since: Timestamp::now(),
            epoch: welcome.epoch,
            device_id: welcome.device_id,
            gateway_version: session.gateway_version().to_owned(),
        });
        self.last = Some((session.ending(), Instant::now()));
        Some(session)
    }

    fn address(&self) -> String {
        self.way.borrow().connector.address()
    }

    /// Waits before dialling again if sessions keep breaking soon after they began.
    async fn settle_last(&mut self, network: &mut NetworkMonitor) {
        let Some((ending, since)) = self.last.take() else { return };
        self.seen = Instant::now();
        let why = ending.why().unwrap_or(DisconnectReason::Dropped);
        tracing::warn!(address = %self.address(), %why, "the connection to the gateway was lost");
        if since.elapsed() >= self.pace.min_session {
            self.short_sessions = 0;
        }
        let is_of_the_line = why.is_of_the_line();
        let longest = match (is_of_the_line, why.is_breakage()) {
            (true, _) => self.pace.max_while_recent.max(self.pace.initial),
            (false, true) => self.pace.max_after_break.min(self.pace.max),
            (false, false) => self.pace.max,
        };
        let wait = match why {
            // Long enough to be seen, and short enough to find a server in order again.
            DisconnectReason::Hostile => self.pace.max,
            _ => self.pace.wait(self.short_sessions, longest),
        };
        self.short_sessions = self.short_sessions.saturating_add(1);
        let helped = WaitInterrupts { network: is_of_the_line.then_some(network), ..WaitInterrupts::default() };
        self.pause(LinkStatus::lost(&why, wait), Some(wait), helped).await;
    }

    /// Waits for the next attempt. True if the network changed, so that earlier failures no longer count.
    async fn failed(
        &self,
        error: LinkError,
        failures: u32,
        news: Option<watch::Receiver<()>>,
        network: &mut NetworkMonitor,
    ) -> bool {
        // Logs only some of many failures.
        if failures.is_power_of_two() {
            tracing::warn!(address = %self.address(), attempt = failures, %error, "the gateway was not reached");
        }
        let is_of_the_line = error.is_of_the_line();
        let asked_for = match &error {
            LinkError::Refused(refused) => Duration::from_secs(refused.retry_after_s.unwrap_or(0)),
            _ => Duration::ZERO,
        };
        let outage = self.seen.elapsed();
        let is_brisk = (is_of_the_line && outage < self.pace.recent_window)
            || (matches!(error, LinkError::HungUp { .. }) && outage < self.pace.hung_up_window);
        let mut person = self.status.person();
        let is_here = person.borrow_and_update().is_some_and(|at| at.elapsed() < self.pace.person_window);
        let longest = match (is_brisk, is_of_the_line && is_here) {
            (true, _) => self.pace.max_while_recent.max(self.pace.initial),
            (false, true) => self.pace.max_while_person.min(self.pace.max),
            (false, false) => self.pace.max,
        };
        let wait = (!error.is_blocked()).then(|| self.pace.wait(failures, longest).max(asked_for));
        let wait = if matches!(error, LinkError::Hostile { .. }) { Some(self.pace.max) } else { wait };
        let status = match error {
            LinkError::Refused(refused) => LinkStatus::refused(*refused, wait),
            error => LinkStatus::failed(&error, wait),
        };
        let person = is_of_the_line.then_some((person, self.pace.max_while_person));
        self.pause(status, wait, WaitInterrupts { news, person, network: is_of_the_line.then_some(network) }).await
    }

    /// True if a network change ended the pause.
    async fn pause(&self, status: LinkStatus, wait: Option<Duration>, helped: WaitInterrupts<'_>) -> bool {
        self.status.set(status);
        let waited = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.status.wait_for_kick() => false,
            () = WaitInterrupts::by_news(helped.news) => false,
            () = WaitInterrupts::by_person(helped.person) => false,
            () = WaitInterrupts::by_network(helped.network) => true,
            () = waited => false,
        }
    }
}

/// Host and port for people, with brackets around an IPv6 address.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
