//! The accept loop: connection limits, time for the head, graceful stop.
//!
//! The ready-made servers never close a client that sends its head slowly, and accept without
//! bound; so the loop is our own, around hyper's connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::first_bytes::FirstBytes;
use super::unread::Unread;

/// What a listener bears.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the head of a request.
    pub head: Duration,
    /// Time for the body of a request.
    pub body: Duration,
    /// Time for the peer to take some of what is sent to it.
    pub unread: Duration,
    /// Bytes of the head of a request.
    pub head_bytes: usize,
    /// Connections in all.
    pub connections: usize,
    /// Connections from one address.
    pub connections_per_source: usize,
    /// Streams in one HTTP/2 connection.
    pub streams: u32,
    /// Time for what is under way when the listener stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            unread: Duration::from_secs(30),
            head_bytes: 32 * 1024,
            connections: 10_000,
            connections_per_source: 2_000,
            streams: 64,
            drain: Duration::from_secs(20),
        }
    }
}

/// Serves until `stop`, then finishes what is under way.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let sources = Sources::default();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, peer, place) = accepted;
        let Some(source) = sources.enter(peer.ip(), limits.connections_per_source) else { continue };
        // Without this, small answers wait for 40 ms on some machines.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(limits.head_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(Some(limits.head / 2))
            .keep_alive_timeout(limits.head);
        let stream = Unread::new(FirstBytes::new(stream, limits.head / 2), limits.unread);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let watched = graceful.watch(connection);
        connections.spawn(async move {
            let _held = (place, source);
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still under way when the time to finish them ran out");
    }
    // Whatever is left ends with the set.
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, place),
            Err(error) => {
                // Out of descriptors, or a connection that was gone again: neither ends the listener.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// How many connections each address has.
#[derive(Clone, Default)]
struct Sources(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Sources {
    fn enter(&self, address: IpAddr, limit: usize) -> Option<Visit> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Visit { sources: self.clone(), address })
    }
}

/// One counted connection.
struct Visit {
    sources: Sources,
    address: IpAddr,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut counts = self.sources.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}
