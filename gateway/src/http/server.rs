//! The accept loop: connection limits, time for the head, graceful stop.
//!
//! The ready-made servers never close a client that sends its head slowly, and accept without limit; so this loop is
//! our own, around hyper's connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::active_requests::ActiveRequests;
use super::connection::ConnectionSettings;
use super::connection_service::{ConnectionPermit, ConnectionService, ProxyContext};
use super::gate::ConnectionGate;
use super::sources::SourceQuota;
use crate::networks::{ForwardedHeader, Networks};
use crate::proxy_protocol::Balancers;
use crate::tls::ServerTls;

/// The largest head of a request, in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 32 * 1024;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the head of a request, from its first byte.
    pub head: Duration,
    /// Time for the body of a request.
    pub body: Duration,
    /// Time for the peer to read some of what is sent to it; on a stream of HTTP/2, twice that at most.
    pub unread: Duration,
    /// Time that an idle connection is kept. Longer than callers and proxies usually keep one for later (Go's and
    /// reqwest's pools 90 s, Caddy's 2 min): when the other side closes first, the gateway never closes on a request
    /// that is under way.
    pub idle: Duration,
    /// Bytes of the head of a request.
    pub head_bytes: usize,
    /// Connections in all.
    pub connections: usize,
    /// Connections from one source, or requests of one behind trusted proxies.
    pub connections_per_source: usize,
    /// Streams in one HTTP/2 connection.
    pub streams: u32,
    /// Silence of an event stream after which a comment shows that the connection is alive.
    pub heartbeat: Duration,
    /// Time for what is under way when the listener stops.
    pub drain: Duration,
}

impl ListenerLimits {
    /// The limits of a public listener.
    pub const PUBLIC: Self = Self {
        handshake: Duration::from_secs(10),
        head: Duration::from_secs(10),
        body: Duration::from_secs(30),
        unread: Duration::from_secs(30),
        idle: Duration::from_secs(150),
        head_bytes: MAX_HEAD_BYTES,
        connections: 10_000,
        connections_per_source: 2_000,
        streams: 64,
        heartbeat: Duration::from_secs(15),
        drain: Duration::from_secs(20),
    };
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self::PUBLIC
    }
}

/// Who may connect, and how.
#[derive(Clone, Default)]
pub struct ListenerAccess {
    /// The certificate; without one it is plain HTTP.
    pub tls: Option<ServerTls>,
    /// Proxies that are trusted to name the client's address.
    pub proxies: Networks,
    /// The header in which they name it.
    pub forwarded: ForwardedHeader,
    /// Whether only the proxies may connect.
    pub proxies_only: bool,
    /// Judges each connection, before its TLS and its requests.
    pub gate: Option<ConnectionGate>,
    /// Balancers: their connections begin with a PROXY header, which names the peer.
    pub balancers: Networks,
}

/// What decides over connections, and what they share.
struct Entrance {
    access: ListenerAccess,
    router: Router,
    connected: SourceQuota,
    behind_proxies: SourceQuota,
}

impl Entrance {
    /// `None`: the connection is closed.
    fn admit(&self, stream: &TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) -> Option<ConnectionService> {
        let peer = peer.ip().to_canonical();
        let trusted = self.access.proxies.contain(peer);
        if self.access.proxies_only && !trusted {
            tracing::debug!(%peer, "turned away: it is none of server.trusted_proxies");
            return None;
        }
        let visit = if trusted { None } else { self.connected.acquire(peer) };
        // Without this, small answers wait for 40 ms on some machines.
        if (visit.is_none() && !trusted) || stream.set_nodelay(true).is_err() {
            return None;
        }
        let proxied = trusted.then(|| ProxyContext {
            proxies: self.access.proxies.clone(),
            header: self.access.forwarded,
            sources: self.behind_proxies.clone(),
        });
        Some(ConnectionService {
            router: self.router.clone(),
            peer,
            permit: ConnectionPermit(Arc::new((place, visit))),
            active: ActiveRequests::default(),
            proxied,
        })
    }

    /// Serves a connection that the gate admits, if there is one.
    async fn serve(
        &self,
        protocol: Arc<ConnectionSettings>,
        stream: TcpStream,
        service: ConnectionService,
        stop: CancellationToken,
    ) {
        match &self.access.gate {
            Some(gate) if !gate.admits(&stream).await => {
                // Whoever is refused keeps nobody else out meanwhile.
                drop(service);
                gate.refuse(stream).await;
            }
            _ => protocol.serve(stream, service, stop).await,
        }
    }
}

/// Serves until `stop`, then finishes what is under way.
pub async fn serve(
    listener: TcpListener,
    entrance: ListenerAccess,
    router: Router,
    limits: ListenerLimits,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let protocol = Arc::new(ConnectionSettings::new(&limits, entrance.tls.clone()));
    let balancers = Balancers::new(entrance.balancers.clone(), "server.listen");
    let entrance = Arc::new(Entrance {
        access: entrance,
        router,
        connected: SourceQuota::new(limits.connections_per_source),
        behind_proxies: SourceQuota::new(limits.connections_per_source),
    });
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (mut stream, peer, place) = accepted;
        let (protocol, stop) = (protocol.clone(), stop.clone());
        if balancers.contain(peer) {
            let (balancers, entrance) = (balancers.clone(), entrance.clone());
            connections.spawn(async move {
                let header = balancers.client(&mut stream, peer);
                let Some(Some(client)) = stop.run_until_cancelled(header).await else { return };
                if let Some(service) = entrance.admit(&stream, client, place) {
                    entrance.serve(protocol, stream, service, stop).await;
                }
            });
        } else if let Some(service) = entrance.admit(&stream, peer, place) {
            let entrance = entrance.clone();
            connections.spawn(async move { entrance.serve(protocol, stream, service, stop).await });
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, finished).await.is_err() {
        tracing::warn!("requests were still under way when the time to finish them ran out");
    }
    // Tasks that are left end with the set.
}

/// The next connection, once a permit is free.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, place),
            Err(error) => {
                // Out of descriptors, or a connection that was closed again: neither ends the listener.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
