//! Who may use a listener at all, by the two addresses of a connection and before anything of it is read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How many connections are judged at once.
const MAX_LOOKUPS: usize = 4;
/// How many refused connections get the time to read why; more are closed at once.
const MAX_REFUSALS: usize = 8;
/// The time to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How much a refused peer may send meanwhile, in bytes. It is thrown away; unread, it would take the refusal with it.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

/// Judges connections.
#[derive(Clone, Debug)]
pub struct ConnectionGate {
    admits: fn(SocketAddr, SocketAddr) -> bool,
    refusal: Arc<str>,
    lookups: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

impl ConnectionGate {
    /// A gate that admits a peer (first) to an address of ours (second), and answers others with `refusal`, a whole
    /// HTTP/1.1 response. `admits` may block.
    pub fn new(admits: fn(SocketAddr, SocketAddr) -> bool, refusal: &str) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { admits, refusal: refusal.into(), lookups: semaphore(MAX_LOOKUPS), refusals: semaphore(MAX_REFUSALS) }
    }

    pub(super) async fn admits(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(own), Ok(_permit)) = (stream.peer_addr(), stream.local_addr(), self.lookups.acquire().await)
        else {
            return false;
        };
        let admits = self.admits;
        tokio::task::spawn_blocking(move || admits(peer, own)).await.unwrap_or(false)
    }

    pub(super) async fn refuse(&self, mut stream: TcpStream) {
        let Ok(_permit) = self.refusals.try_acquire() else { return };
        let told = async {
            stream.write_all(self.refusal.as_bytes()).await?;
            stream.shutdown().await?;
            let mut discarded = vec![0; MAX_DISCARDED_BYTES];
            stream.read_exact(&mut discarded).await
        };
        // However it ends, the connection is closed.
        let _ = timeout(REFUSAL_TIMEOUT, told).await;
    }
}
