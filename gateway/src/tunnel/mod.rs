//! SSH: paired devices connect here, and each yields one byte stream.
//!
//! The only module that knows SSH. It grants a paired key exactly one thing: one `direct-streamlocal@openssh.com`
//! channel to the one name that stands for the control channel. There is no shell, no command, no terminal, no agent,
//! no X11, no TCP and no remote forwarding. The content of the stream is not examined.
//!
//! **States.** A connection waits for authentication (counted by the `limiter`), then for its channel, then it is an
//! [`Arrival`]. The first two together last at most [`TunnelConfig::login_grace`].
//!
//! **Trust.** A peer's data is untrusted before its signature; afterwards only its key is trusted. A [`KeyAdmission`],
//! which is asked for every offered key, decides who may connect.
//!
//! **Failure.** A peer that vanishes is noticed by keepalives after at most four intervals. A peer
//! that breaks the rules is cut. Everything spawned belongs to [`serve`] and ends with it.
//!
//! **Backpressure.** A receiver that stops reading its [`Arrival::stream`] stalls the whole SSH connection, keepalives
//! included, once about 100 packets wait. So it must read at all times, in a task that waits for nothing slow; data
//! that it cannot handle it must refuse by its own protocol.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate_protocol::identity::PublicKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::networks::Networks;
use crate::proxy_protocol::Balancers;

pub mod algorithms;
pub mod cancellable_stream;
mod channel;
mod connection;
mod handler;
mod host_key;
pub mod key_file;
mod limiter;

pub use host_key::{HostKey, HostKeys, RotateError};
pub use key_file::KeyFileError;

/// The settings of the listener.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// The one name that a channel may ask for: the name of the control socket.
    pub control_path: String,
    /// Balancers: their connections begin with a PROXY header, which names the peer.
    pub balancers: Networks,
    /// Time from the connection to the open channel.
    pub login_grace: Duration,
    /// Connections that have not proved a key, in all. The oldest gives way to the newest.
    pub max_unauthenticated: usize,
    /// Connections that have not proved a key, for each source; one more for each key that was proved from there
    /// lately. The oldest gives way to the newest.
    pub max_unauthenticated_per_source: usize,
    /// New connections a second, for each source; one more for each key that was proved from there lately. More are
    /// refused.
    pub accepts_per_second_per_source: u32,
    /// Silence after which a keepalive is sent.
    pub keepalive_interval: Duration,
    /// Unanswered keepalives after which the peer is gone.
    pub keepalive_max: usize,
}

impl TunnelConfig {
    /// The production settings (`security.md` A19) for a control socket of this name.
    pub fn new(control_path: impl Into<String>) -> Self {
        Self {
            control_path: control_path.into(),
            balancers: Networks::default(),
            login_grace: Duration::from_secs(15),
            max_unauthenticated: 64,
            max_unauthenticated_per_source: 4,
            accepts_per_second_per_source: 15,
            keepalive_interval: Duration::from_secs(15),
            keepalive_max: 3,
        }
    }
}

impl Default for TunnelConfig {
    /// [`TunnelConfig::new`] with the name of a packaged gateway's control socket.
    fn default() -> Self {
        Self::new("/run/deskgate/control.sock")
    }
}

/// The status of an offered key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// It is paired.
    Admit,
    /// It was never paired.
    Unknown,
    /// It was paired, and revoked.
    Revoked,
    /// The status is unknown at the moment. The connection ends without a refusal of the key, so that the device tries
    /// again instead of reporting to its owner that it is not paired.
    Unavailable,
}

/// Decides which keys may connect.
pub trait KeyAdmission: Send + Sync + 'static {
    /// Looks up one key. Asked when a key is offered and again when its possession is proved.
    fn admit<'a>(&'a self, key: &'a PublicKey) -> Pin<Box<dyn Future<Output = KeyStatus> + Send + 'a>>;
}

/// Any two-way stream of bytes.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A paired device that connected.
pub struct Arrival {
    /// The key whose possession it proved. Its owner may have been revoked since: ask again.
    pub public_key: PublicKey,
    /// The host key that was shown to it.
    pub host_key: PublicKey,
    /// Its network address.
    pub peer: SocketAddr,
    /// The control channel. Dropping it ends the SSH connection, after the written data is sent.
    pub stream: Box<dyn ByteStream>,
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrival")
            .field("public_key", &self.public_key)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Accepts connections until `stop`, and hands over each connected device. Each connection uses the host key that is
/// current when it begins.
///
/// Returns when `stop` is cancelled or the receiver of `arrivals` is gone, with every connection ended; dropping the
/// future ends them too. A full `arrivals` queue makes devices wait within their grace.
pub async fn serve(
    listener: TcpListener,
    host_keys: HostKeys,
    config: TunnelConfig,
    admission: Arc<dyn KeyAdmission>,
    arrivals: mpsc::Sender<Arrival>,
    stop: CancellationToken,
) {
    // Our own, so that ending without a receiver does not stop anything else.
    let stop = stop.child_token();
    let gate = limiter::ConnectionLimiter::new(&config);
    let balancers = Balancers::new(config.balancers.clone(), "ssh.listen");
    let house = Arc::new(connection::TunnelContext::new(host_keys, config, admission, arrivals));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            () = house.nobody_home() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((mut socket, balancer)) if balancers.contain(balancer) => {
                let (house, gate, balancers, stop) = (house.clone(), gate.clone(), balancers.clone(), stop.clone());
                connections.spawn(async move {
                    let header = balancers.client(&mut socket, balancer);
                    let Some(Some(peer)) = stop.run_until_cancelled(header).await else { return };
                    if let Some((ticket, cut)) = admit(&gate, peer) {
                        connection::run(house, socket, peer, ticket, cut, stop.clone()).await;
                    }
                });
            }
            Ok((socket, peer)) => {
                if let Some((ticket, cut)) = admit(&gate, peer) {
                    connections.spawn(connection::run(Arc::clone(&house), socket, peer, ticket, cut, stop.clone()));
                }
            }
            Err(error) => {
                // Mostly a lack of file descriptors: accepting again at once would only burn the processor.
                tracing::warn!(%error, "cannot accept SSH connections");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    stop.cancel();
    while connections.join_next().await.is_some() {}
}

/// Lets a connection wait for its authentication; with what cuts it.
fn admit(
    gate: &Arc<limiter::ConnectionLimiter>,
    peer: SocketAddr,
) -> Option<(limiter::PendingPermit, CancellationToken)> {
    let cut = CancellationToken::new();
    match gate.admit(limiter::PeerSource::of(peer), &cut, Instant::now()) {
        Ok(ticket) => Some((ticket, cut)),
        Err(reason) => {
            tracing::debug!(%peer, ?reason, "SSH connection turned away");
            None
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
