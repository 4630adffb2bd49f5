//! Idle connections to receivers, kept a moment for the next callback to the same host.
//!
//! A connection is reused only for the host that it was made for, and only if the look-up has just found, and checked,
//! its address among those of that host. So a reused connection leads nowhere that a new one could not lead.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::destinations::HostName;

/// How long a connection stays idle. Receivers usually keep an idle connection for five seconds at least.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The most idle connections, of all hosts.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// An HTTP/1.1 connection, which ends with this.
pub(super) struct PooledConnection {
    /// The remote address.
    pub(super) at: SocketAddr,
    /// Sends requests on it.
    pub(super) sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<hyper::Result<()>>,
}

impl PooledConnection {
    /// Drives the connection as long as this lives.
    pub(super) fn new(
        at: SocketAddr,
        sender: SendRequest<Full<Bytes>>,
        driver: impl Future<Output = hyper::Result<()>> + Send + 'static,
    ) -> Self {
        Self { at, sender, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) }
    }
}

/// The idle connections. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ConnectionPool(Arc<Mutex<IdleConnections>>);

#[derive(Default)]
struct IdleConnections {
    /// The connections of each host, the newest last, each with its number.
    of: HashMap<HostName, Vec<(u64, PooledConnection)>>,
    count: usize,
    next: u64,
}

impl IdleConnections {
    fn take(&mut self, host: &HostName, which: impl Fn(u64, &PooledConnection) -> bool) -> Option<PooledConnection> {
        let idle = self.of.get_mut(host)?;
        let place = idle.iter().rposition(|(number, connection)| which(*number, connection))?;
        let (_, connection) = idle.remove(place);
        if idle.is_empty() {
            self.of.remove(host);
        }
        self.count -= 1;
        Some(connection)
    }
}

impl ConnectionPool {
    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to this host at one of these addresses, the last one used.
    pub(super) fn take(&self, host: &HostName, addresses: &[SocketAddr]) -> Option<PooledConnection> {
        let mut idle = self.idle();
        while let Some(connection) = idle.take(host, |_, connection| addresses.contains(&connection.at)) {
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for a moment. It must be idle.
    pub(super) fn keep(&self, host: &HostName, connection: PooledConnection) {
        let mut idle = self.idle();
        if idle.count == MAX_IDLE_CONNECTIONS {
            return;
        }
        let number = idle.next;
        (idle.next, idle.count) = (number + 1, idle.count + 1);
        idle.of.entry(host.clone()).or_default().push((number, connection));
        let (kept, host) = (self.clone(), host.clone());
        tokio::spawn(async move {
            sleep(IDLE_TIMEOUT).await;
            kept.idle().take(&host, |kept, _| kept == number);
        });
    }
}
