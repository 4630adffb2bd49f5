//! Transfers: how the bytes of files come to a device, and those of artifacts from it.
//!
//! A transfer has a stream of its own, of the same kind as the control channel's and opened in the same way, at
//! [`TRANSFERS_PATH`]: so a large file holds up no frame. On it the device asks, one thing after the other, and bytes go as
//! binary messages of at most [`MAX_PIECE_BYTES`]:
//!
//! ```text
//! gateway                                device
//!    │ ◄─────────────────────────── get    │  a file of the run, from an offset on
//!    │ sending ──────────────────────────► │  so many bytes follow
//!    │ (bytes) ──────────────────────────► │
//!    │ ◄─────────────────────────── put    │  an artifact of the run
//!    │ send_from ────────────────────────► │  what the gateway lacks begins there
//!    │ ◄─────────────────────────── (bytes)│
//!    │ done ─────────────────────────────► │  it is stored durably, and in the run's record
//! ```
//!
//! Who may ask is told by a [`TransferTicket`], which a device asks for on its control channel: it stands for one attempt of one
//! run, or for the device's owner (`upload`, `get_artifact`), for [`TICKET_TTL`]. A stream that breaks is opened again, and what was
//! asked is asked again from the offset that was reached.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::canonical::Sha256Digest;
use crate::file::{Artifact, File};
use crate::ids::{ApplicationId, ArtifactId, FileId, RunId};

/// The path of transfers, beside the control channel's.
pub const TRANSFERS_PATH: &str = "/transfers";
/// Bytes of the largest binary message.
pub const MAX_PIECE_BYTES: usize = 128 * 1024;
/// How long a ticket is valid.
pub const TICKET_TTL: Duration = Duration::from_secs(600);

/// What a device asks on a transfer stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum TransferRequest {
    /// The bytes of a file of the run. Answered by `sending`, and then the bytes.
    Get {
        /// Stands for the run and its attempt.
        ticket: TransferTicket,
        /// The file.
        file_id: FileId,
        /// Bytes that the device has.
        offset: u64,
    },
    /// Stores an artifact of the run. Answered by `send_from`; when all bytes have come, by `done`. One that is stored already is
    /// answered by `done` at once.
    Put {
        /// Stands for the run and its attempt.
        ticket: TransferTicket,
        /// The artifact; its state says nothing.
        artifact: Artifact,
    },
    /// Notes an artifact of the run whose bytes cannot be sent. Answered by `done`.
    Missing {
        /// Stands for the run and its attempt.
        ticket: TransferTicket,
        /// The artifact.
        artifact: Artifact,
    },
    /// Stores a file for runs that the owner requests. Answered by `send_from` the start; when all bytes have come, by `stored`.
    Upload {
        /// Stands for the owner.
        ticket: TransferTicket,
        /// The application that the runs are of.
        app_id: ApplicationId,
        /// The file's name.
        name: String,
        /// What it is.
        media_type: String,
        /// Bytes.
        size: u64,
        /// Their digest.
        sha256: Sha256Digest,
    },
    /// The bytes of an artifact of one of the owner's runs. Answered by `sending`, and then the bytes.
    GetArtifact {
        /// Stands for the owner.
        ticket: TransferTicket,
        /// The run.
        run_id: RunId,
        /// The artifact.
        artifact_id: ArtifactId,
        /// Bytes that the device has.
        offset: u64,
    },
}

/// What a gateway answers on a transfer stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum TransferReply {
    /// So many bytes follow.
    Sending {
        /// How many.
        bytes: u64,
    },
    /// The bytes of the artifact from here on are to be sent.
    SendFrom {
        /// Bytes that the gateway has.
        offset: u64,
    },
    /// It is done, and durable.
    Done,
    /// The owner's file is there.
    Stored {
        /// The file.
        file: File,
    },
    /// It is not done.
    Refused {
        /// Why, for the device.
        code: TransferRefusalCode,
        /// Why, for its log.
        message: String,
    },
}

/// Why a transfer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferRefusalCode {
    /// The ticket is not valid, or not any more: another one is needed.
    TicketInvalid,
    /// The attempt is not the run's any more, or the run has ended.
    Stale,
    /// The run has no such file, or the artifact cannot be one.
    Invalid,
    /// The bytes of the file are not there any more.
    Gone,
    /// Other bytes came than the artifact's digest names.
    DigestMismatch,
    /// The run has as many artifacts, or as many bytes of them, as it may.
    TooMany,
    /// There is no room for it: a quota of the application or the device is used up.
    StorageFull,
    /// Not now: too much is under way, or the gateway cannot keep bytes at the moment.
    Busy,
}

impl TransferRefusalCode {
    /// Whether the same may be done later.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::TicketInvalid | Self::Busy)
    }
}

/// A gateway's word that its bearer executes one attempt of one run, or is the device's owner. Only the gateway reads its content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferTicket(Zeroizing<String>);

impl TransferTicket {
    /// Wraps the text that a gateway made.
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The full text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TransferTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferTicket(…)")
    }
}
