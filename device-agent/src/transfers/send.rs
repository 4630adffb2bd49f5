//! Artifacts go to the gateway: while their run is executed, after it, and after a restart.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use deskgate_protocol::file::ArtifactState;
use deskgate_protocol::ids::{ArtifactId, RunId};
use deskgate_protocol::transfer::{
    MAX_PIECE_BYTES, TransferRefusalCode, TransferReply, TransferRequest, TransferTicket,
};
use deskgate_store::Artifacts;
use deskgate_store::artifacts::HandedOut;
use tokio::sync::watch;

use super::{HeldAttempt, Retries, Transfers, blocking};
use crate::link::LinkError;
use crate::link::transfers::TransferStream;

/// The folder of copies that are still to be sent, in the agent's own folder.
const OUTBOX_NAME: &str = "outbox";
/// The wait after a failed read of the database.
const STORE_RETRY_WAIT: Duration = Duration::from_secs(1);

/// How many artifacts of each run are not settled.
pub type UnsettledCounts = BTreeMap<RunId, usize>;

/// What came of one try.
enum Sent {
    /// The gateway has it, or knows that it is missing.
    Settled(ArtifactState),
    /// The attempt is not this device's any more.
    Stale,
    /// The ticket is not valid any more.
    TicketInvalid,
    /// Not now.
    Later,
}

impl Transfers {
    /// The folder of copies, which is made if needed.
    pub fn outbox_folder(&self) -> PathBuf {
        self.own_folder.join(OUTBOX_NAME)
    }

    /// How many artifacts of each run are not settled, and each change of it.
    pub fn unsettled(&self) -> watch::Receiver<UnsettledCounts> {
        self.unsettled.subscribe()
    }

    /// An artifact of this run is about to be written down.
    pub fn expect_one_more(&self, run_id: RunId) {
        self.unsettled.send_modify(|counts| *counts.entry(run_id).or_default() += 1);
    }

    /// What was expected is written down, and can be sent.
    pub fn wake(&self) {
        self.unsettled.send_modify(|_| {});
    }

    /// One that was expected is settled, or was not written down.
    pub fn one_less(&self, run_id: RunId) {
        self.unsettled.send_modify(|counts| {
            if let Some(count) = counts.get_mut(&run_id) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&run_id);
                }
            }
        });
    }

    /// Learns what an earlier start has left to send, and removes copies that nobody knows. Before anything is executed.
    ///
    /// # Errors
    /// The database or the folder cannot be read.
    pub async fn recover(&self, artifacts: &Artifacts) -> Result<(), deskgate_store::Error> {
        let left = artifacts.unsettled().await?;
        let mut counts = UnsettledCounts::new();
        left.iter().for_each(|one| *counts.entry(one.run_id).or_default() += 1);
        self.unsettled.send_replace(counts);
        let (folder, known) =
            (self.outbox_folder(), left.iter().map(|one| one.artifact.artifact_id.to_string()).collect());
        if let Err(error) = blocking(move || tidy(&folder, &known)).await {
            tracing::warn!(%error, "copies that nobody needs cannot be removed");
        }
        Ok(())
    }

    /// Sends artifacts for as long as the agent runs.
    pub async fn send(self, artifacts: Artifacts) {
        let mut wake = self.unsettled.subscribe();
        let mut retries = Retries::default();
        loop {
            wake.borrow_and_update();
            let left = match artifacts.unsettled().await {
                Ok(left) => left,
                Err(error) => {
                    tracing::warn!(%error, "what is to be sent cannot be read");
                    tokio::time::sleep(STORE_RETRY_WAIT).await;
                    continue;
                }
            };
            if left.is_empty() {
                if wake.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let is_done = self.send_all(&artifacts, left, &mut retries).await;
            if is_done { retries.reset() } else { retries.wait().await }
        }
    }

    /// Tries each artifact once. False: some are left.
    async fn send_all(&self, artifacts: &Artifacts, left: Vec<HandedOut>, retries: &mut Retries) -> bool {
        let mut open: Option<(TransferStream, TransferTicket, HeldAttempt)> = None;
        let (mut is_done, mut dropped) = (true, BTreeSet::new());
        for one in left {
            let held = HeldAttempt { run_id: one.run_id, attempt: one.attempt };
            if dropped.contains(&held) {
                continue;
            }
            let known = open.take().filter(|(_, _, of)| *of == held).map(|(stream, ticket, _)| (stream, ticket));
            let opened = match known {
                Some(known) => Some(known),
                None => self.open(held, retries).await,
            };
            let sent = match opened {
                None => Sent::Stale,
                Some((mut stream, ticket)) => match self.send_one(&mut stream, &ticket, &one).await {
                    Ok(sent) => {
                        open = Some((stream, ticket, held));
                        sent
                    }
                    Err(error) => {
                        tracing::debug!(run_id = %held.run_id, %error, "an artifact broke off");
                        Sent::Later
                    }
                },
            };
            match sent {
                Sent::Settled(state) => {
                    let artifact_id = one.artifact.artifact_id;
                    match artifacts.settle(artifact_id, state).await {
                        Ok(()) => {
                            tracing::info!(run_id = %held.run_id, %artifact_id, %state, "an artifact is settled");
                            self.forget_copy(artifact_id).await;
                            self.one_less(held.run_id);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "that an artifact is settled could not be written");
                            is_done = false;
                        }
                    }
                }
                Sent::Stale => {
                    dropped.insert(held);
                    is_done &= self.drop_all(artifacts, held.run_id).await;
                }
                Sent::TicketInvalid => {
                    open = None;
                    is_done = false;
                }
                Sent::Later => is_done = false,
            }
        }
        is_done
    }

    /// Lets go of what a run handed out that is not this device's any more.
    async fn drop_all(&self, artifacts: &Artifacts, run_id: RunId) -> bool {
        let left = match artifacts.of_run(run_id).await {
            Ok(every) => every.into_iter().filter(|one| !one.is_settled).collect::<Vec<_>>(),
            Err(_) => return false,
        };
        if artifacts.drop_unsettled(run_id).await.is_err() {
            return false;
        }
        for one in left {
            self.forget_copy(one.artifact.artifact_id).await;
            self.one_less(run_id);
        }
        true
    }

    async fn forget_copy(&self, artifact_id: ArtifactId) {
        match tokio::fs::remove_file(self.outbox_folder().join(artifact_id.to_string())).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "a copy that was sent cannot be removed");
            }
            _ => {}
        }
    }

    async fn send_one(
        &self,
        stream: &mut TransferStream,
        ticket: &TransferTicket,
        one: &HandedOut,
    ) -> Result<Sent, LinkError> {
        let path = self.outbox_folder().join(one.artifact.artifact_id.to_string());
        let size = one.artifact.size;
        let opened = blocking(move || {
            let file = File::open(path)?;
            match file.metadata()?.len() == size {
                true => Ok(file),
                false => Err(io::ErrorKind::InvalidData.into()),
            }
        });
        let Ok(file) = opened.await else { return missing(stream, ticket, one).await };
        let request = TransferRequest::Put { ticket: ticket.clone(), artifact: one.artifact.clone() };
        let reply = match stream.ask(&request).await? {
            TransferReply::SendFrom { offset } if offset <= size => {
                match send_bytes(stream, file, offset, size).await? {
                    true => stream.reply().await?,
                    // What can no longer be read can no longer be sent. The gateway waits for bytes on this stream, so it ends.
                    false => return Err(LinkError::Lost("the copy cannot be read".to_owned())),
                }
            }
            reply => reply,
        };
        match reply {
            TransferReply::Done => Ok(Sent::Settled(ArtifactState::Stored)),
            TransferReply::Refused { code, message } => {
                tracing::info!(run_id = %one.run_id, ?code, message, "an artifact was refused");
                match code {
                    TransferRefusalCode::TicketInvalid => Ok(Sent::TicketInvalid),
                    TransferRefusalCode::Stale => Ok(Sent::Stale),
                    code if code.is_passing() => Ok(Sent::Later),
                    _ => missing(stream, ticket, one).await,
                }
            }
            TransferReply::Sending { .. } | TransferReply::SendFrom { .. } | TransferReply::Stored { .. } => {
                Ok(Sent::Later)
            }
        }
    }
}

/// Tells the gateway that the bytes will not come.
async fn missing(stream: &mut TransferStream, ticket: &TransferTicket, one: &HandedOut) -> Result<Sent, LinkError> {
    let request = TransferRequest::Missing { ticket: ticket.clone(), artifact: one.artifact.clone() };
    Ok(match stream.ask(&request).await? {
        TransferReply::Done => Sent::Settled(ArtifactState::Missing),
        TransferReply::Refused { code: TransferRefusalCode::TicketInvalid, .. } => Sent::TicketInvalid,
        TransferReply::Refused { code: TransferRefusalCode::Busy, .. } => Sent::Later,
        // The gateway will not list it: the run ends without.
        TransferReply::Refused { code: TransferRefusalCode::Stale, .. } => Sent::Stale,
        TransferReply::Refused { .. } => Sent::Settled(ArtifactState::Missing),
        TransferReply::Sending { .. } | TransferReply::SendFrom { .. } | TransferReply::Stored { .. } => Sent::Later,
    })
}

/// Sends the bytes of a copy from an offset on. False: they cannot be read.
pub(super) async fn send_bytes(
    stream: &mut TransferStream,
    mut file: File,
    offset: u64,
    size: u64,
) -> Result<bool, LinkError> {
    let mut left = size - offset;
    let mut is_at_offset = false;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_PIECE_BYTES);
        let reading = blocking(move || {
            if !is_at_offset {
                file.seek(SeekFrom::Start(offset))?;
            }
            let mut piece = vec![0; length];
            file.read_exact(&mut piece)?;
            Ok((file, piece))
        });
        let Ok((next, piece)) = reading.await else { return Ok(false) };
        (file, is_at_offset) = (next, true);
        stream.send(Bytes::from(piece)).await?;
        left -= length as u64;
    }
    Ok(true)
}

/// Removes copies whose artifacts are not to be sent.
fn tidy(folder: &std::path::Path, known: &HashSet<String>) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| known.contains(name)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
