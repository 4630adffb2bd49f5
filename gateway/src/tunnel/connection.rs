//! One SSH connection, from the accepted socket to its end. Owns all that russh does for it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use russh::server::{Config as SshConfig, run_stream};
use russh::{Disconnect, MethodKind, MethodSet, SshId};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::cancellable_stream::CancellableStream;
use super::channel::ChannelSlot;
use super::handler::{ConnectionHandler, HandlerError};
use super::limiter::PendingPermit;
use super::{Arrival, HostKey, HostKeys, KeyAdmission, TunnelConfig, algorithms};

/// How long a peer has to read the last bytes and close, once its stream was dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Rejections take this long, so that their time says nothing about the reason.
const REJECTION_DELAY: Duration = Duration::from_millis(500);

/// What all connections share.
pub(super) struct TunnelContext {
    pub(super) config: TunnelConfig,
    pub(super) admission: Arc<dyn KeyAdmission>,
    pub(super) arrivals: mpsc::Sender<Arrival>,
    host_keys: HostKeys,
}

impl TunnelContext {
    pub(super) fn new(
        host_keys: HostKeys,
        config: TunnelConfig,
        admission: Arc<dyn KeyAdmission>,
        arrivals: mpsc::Sender<Arrival>,
    ) -> Self {
        Self { config, admission, arrivals, host_keys }
    }

    /// The SSH settings, with this host key.
    fn ssh(&self, host_key: &HostKey) -> Arc<SshConfig> {
        Arc::new(SshConfig {
            // The protocol demands a name; only paired devices learn the version, later.
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-Deskgate")),
            methods: MethodSet::from(&[MethodKind::PublicKey][..]),
            auth_rejection_time: REJECTION_DELAY,
            // OpenSSH asks with "none" first to learn the methods: that is no attempt to guess.
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![host_key.private()],
            preferred: algorithms::preferred(),
            max_auth_attempts: 3,
            inactivity_timeout: None,
            keepalive_interval: Some(self.config.keepalive_interval),
            keepalive_max: self.config.keepalive_max,
            maximum_packet_size: algorithms::PACKET_BYTES,
            ..SshConfig::default()
        })
    }

    /// Waits until the receiver of arrivals is gone.
    pub(super) async fn nobody_home(&self) {
        self.arrivals.closed().await;
    }
}

/// The signals between the connection and its [`ConnectionHandler`].
#[derive(Clone)]
pub(super) struct ConnectionSignals {
    /// The connection must end at once.
    pub(super) cut: CancellationToken,
    /// The channel was handed over.
    pub(super) opened: CancellationToken,
    /// The receiver dropped its stream.
    pub(super) dropped: CancellationToken,
    /// The peer closed the channel, after it read all of its data.
    pub(super) closed: CancellationToken,
    /// The channel.
    pub(super) slot: ChannelSlot,
}

/// Runs one connection to its end. When this returns, or is dropped, the socket is closed.
///
/// `cut` ends it at once; `stop` does so too unless its stream was dropped before: then the written data is sent first.
pub(super) async fn run(
    house: Arc<TunnelContext>,
    socket: TcpStream,
    peer: SocketAddr,
    ticket: PendingPermit,
    cut: CancellationToken,
    stop: CancellationToken,
) {
    let _cut_on_drop = cut.clone().drop_guard();
    let grace_ends = Instant::now() + house.config.login_grace;
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "SSH connection lost");
        return;
    }
    let signals = ConnectionSignals {
        cut,
        opened: CancellationToken::new(),
        dropped: CancellationToken::new(),
        closed: CancellationToken::new(),
        slot: ChannelSlot::default(),
    };
    let ConnectionSignals { cut, opened, dropped, closed, slot } = signals.clone();
    let host_key = house.host_keys.current();
    let service = ConnectionHandler::new(Arc::clone(&house), peer, host_key.public_key(), ticket, signals);
    let line = CancellableStream::new(socket, &cut);
    let leave = async || {
        tokio::select! {
            () = cut.cancelled() => {}
            () = stop.cancelled() => {}
        }
    };

    let started = tokio::select! {
        () = leave() => return,
        started = timeout_at(grace_ends, run_stream(house.ssh(&host_key), line, service)) => started,
    };
    let session = match started {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return report(peer, &error),
        Err(_) => return tracing::debug!(%peer, "SSH connection closed: no greeting within the login grace"),
    };
    let handle = session.handle();
    let mut session = pin!(session);

    let mut ended = tokio::select! {
        result = &mut session => Some(result),
        () = opened.cancelled() => None,
        () = leave() => None,
        () = sleep_until(grace_ends) => {
            tracing::debug!(%peer, "SSH connection closed: no control channel within the login grace");
            cut.cancel();
            None
        }
    };
    if ended.is_none() {
        ended = tokio::select! {
            // A stream that was dropped before the stop is closed in order.
            biased;
            result = &mut session => Some(result),
            () = dropped.cancelled() => {
                // The drop closed the channel, after the data written before. Some clients discard data that they have
                // not passed on when they are disconnected, so their close is awaited.
                let farewell = async {
                    tokio::select! {
                        result = &mut session => return result,
                        () = closed.cancelled() => {}
                    }
                    let _ = handle.disconnect(Disconnect::ByApplication, String::new(), String::new()).await;
                    (&mut session).await
                };
                tokio::select! {
                    result = timeout(CLOSE_TIMEOUT, farewell) => result.ok(),
                    () = cut.cancelled() => None,
                }
            }
            () = leave() => None,
        };
    }
    let result = match ended {
        Some(result) => result,
        None => {
            cut.cancel();
            slot.empty();
            session.await
        }
    };
    match result {
        Ok(()) => tracing::debug!(%peer, "SSH connection ended"),
        Err(error) => report(peer, &error),
    }
}

fn report(peer: SocketAddr, error: &HandlerError) {
    tracing::debug!(%peer, %error, "SSH connection ended");
}
