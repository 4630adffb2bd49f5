//! Transfers: the bytes of files come to their runs, and those of artifacts go to the gateway.
//!
//! | file | part |
//! |---|---|
//! | `fetch` | files, before their run begins to work |
//! | `send` | artifacts, until the gateway has them |
//! | [`owner`] | files and artifacts that the owner asks for |
//! | [`folder`] | where they lie while the run is executed |
//!
//! The gateway's word counts for nothing but what is done again: a file is used only when its bytes have the digest that stood in
//! the offer, which the device has signed.
//!
//! Failure: a line that breaks is waited for, and what had come goes on where it ended. What cannot pass ends the wait with a
//! reason.

mod fetch;
pub mod folder;
pub mod owner;
mod send;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deskgate_protocol::ids::RunId;
use deskgate_protocol::transfer::TransferTicket;
use rand::RngExt;
use tokio::sync::{mpsc, oneshot, watch};

use crate::link::LinkHandle;
use crate::link::transfers::TransferStream;
pub use fetch::FetchError;
pub use folder::RunFolder;
pub use send::UnsettledCounts;

/// How many tickets may be asked for at once.
const TICKET_QUEUE_LEN: usize = 64;
/// The wait after a stream that broke; doubled after each further one.
const MIN_RETRY_WAIT: Duration = Duration::from_millis(500);
/// The longest wait.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(15);

/// Asks for a ticket, on the control channel.
#[derive(Debug)]
pub struct TicketRequest {
    /// The run.
    pub run_id: RunId,
    /// Its attempt.
    pub attempt: u32,
    /// Gets the ticket; dropped: the attempt is not this device's any more.
    pub answer: oneshot::Sender<TransferTicket>,
}

/// One attempt of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldAttempt {
    /// The run.
    pub run_id: RunId,
    /// Its attempt.
    pub attempt: u32,
}

/// Fetches files and sends artifacts. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Transfers {
    link: LinkHandle,
    tickets: mpsc::Sender<TicketRequest>,
    /// The agent's own folder.
    own_folder: PathBuf,
    unsettled: watch::Sender<UnsettledCounts>,
}

impl Transfers {
    /// Transfers over this link, and the tickets that they ask for.
    pub fn new(link: LinkHandle, own_folder: PathBuf) -> (Self, mpsc::Receiver<TicketRequest>) {
        let (tickets, requests) = mpsc::channel(TICKET_QUEUE_LEN);
        (Self { link, tickets, own_folder, unsettled: watch::Sender::default() }, requests)
    }

    /// Over a line that leads nowhere, in a folder that is not there.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self::new(LinkHandle::nowhere(), "/nonexistent".into()).0
    }

    /// The agent's own folder.
    pub fn own_folder(&self) -> &Path {
        &self.own_folder
    }

    /// A ticket for an attempt. Waits for the line. `None`: the attempt is not this device's any more.
    async fn ticket(&self, held: HeldAttempt) -> Option<TransferTicket> {
        let (answer, ticket) = oneshot::channel();
        let HeldAttempt { run_id, attempt } = held;
        self.tickets.send(TicketRequest { run_id, attempt, answer }).await.ok()?;
        ticket.await.ok()
    }

    /// A stream, and a ticket for it. `None`: the attempt is not this device's any more.
    async fn open(&self, held: HeldAttempt, retries: &mut Retries) -> Option<(TransferStream, TransferTicket)> {
        loop {
            let ticket = self.ticket(held).await?;
            match self.link.open_transfers().await {
                Ok(stream) => return Some((stream, ticket)),
                Err(error) => {
                    tracing::debug!(run_id = %held.run_id, %error, "a stream for files could not be opened");
                    retries.wait().await;
                }
            }
        }
    }
}

/// Does what may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The waits between tries.
#[derive(Debug, Default)]
struct Retries(u32);

impl Retries {
    /// Something came through: the next wait is short again.
    fn reset(&mut self) {
        self.0 = 0;
    }

    async fn wait(&mut self) {
        let wait = MIN_RETRY_WAIT.saturating_mul(2_u32.saturating_pow(self.0)).min(MAX_RETRY_WAIT);
        self.0 = self.0.saturating_add(1);
        let part = rand::rng().random_range(0.5..=1.0);
        tokio::time::sleep(wait.mul_f64(part)).await;
    }
}
