//! Files come to their run, before it begins to work.

use std::fs::File;
use std::io::{self, Seek, Write};

use bytes::Bytes;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{InputFile, MAX_FILE_BYTES, MAX_RUN_FILE_BYTES, MAX_RUN_FILES, check_file_name};
use deskgate_protocol::transfer::{TransferRefusalCode, TransferReply, TransferRequest, TransferTicket};
use sha2::{Digest, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{HeldAttempt, Retries, RunFolder, Transfers, blocking};
use crate::link::LinkError;
use crate::link::transfers::TransferStream;

/// How often a file is fetched whose bytes have another digest than the offer says.
const MAX_DIGEST_TRIES: u32 = 3;

/// Why the files of a run cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The list of files is none, or is larger than any may be.
    #[error("the list of files cannot be used: {0}")]
    List(String),
    /// One of them cannot be had.
    #[error("{name} {why}")]
    File {
        /// Its name.
        name: String,
        /// Why, as the rest of a sentence.
        why: String,
    },
    /// There is no place for them.
    #[error("there is no room for them on the device")]
    NoRoom,
    /// The attempt is not this device's any more.
    #[error("the run is not this device's any more")]
    Revoked,
}

/// What came of asking for a file.
enum Fetched {
    /// All of it is there.
    Whole,
    /// The stream broke, the ticket is not valid any more, or the gateway cannot give it now.
    Again,
}

impl Transfers {
    /// Fetches the files of a run into a folder of their own. Waits for the line as long as that takes: drop the future to give up.
    ///
    /// # Errors
    /// They cannot be had. Nothing is left of them.
    pub async fn fetch(&self, held: HeldAttempt, files: &[InputFile]) -> Result<RunFolder, FetchError> {
        check(files)?;
        let own_folder = self.own_folder.clone();
        let sizes: Vec<_> = files.iter().map(|file| (file.name.clone(), file.size)).collect();
        let made = blocking(move || RunFolder::make(&own_folder, held, &sizes)).await;
        let folder = made.map_err(|error| no_room(held, &error))?;
        let mut retries = Retries::default();
        let mut open = None;
        for file in files {
            let mut arriving = ArrivingFile::new(folder.open(&file.name).map_err(|error| unwritten(file, &error))?);
            let mut tries = 0;
            loop {
                let (stream, ticket) = match &mut open {
                    Some(open) => open,
                    none => none.insert(self.open(held, &mut retries).await.ok_or(FetchError::Revoked)?),
                };
                let fetched;
                (fetched, arriving) = fetch_one(stream, ticket, file, arriving).await?;
                match fetched {
                    Fetched::Whole => {
                        retries.reset();
                        if arriving.digest() == file.sha256 {
                            break;
                        }
                        tries += 1;
                        tracing::warn!(run_id = %held.run_id, tries, "the bytes of a file have another digest");
                        if tries == MAX_DIGEST_TRIES {
                            return Err(of(file, "came with other bytes than its digest names"));
                        }
                        let emptied = blocking(move || arriving.emptied()).await;
                        arriving = emptied.map_err(|error| unwritten(file, &error))?;
                    }
                    Fetched::Again => {
                        open = None;
                        retries.wait().await;
                    }
                }
            }
        }
        let names: Vec<_> = files.iter().map(|file| file.name.clone()).collect();
        let closed = blocking(move || {
            folder.close(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
            Ok(folder)
        });
        closed.await.map_err(|error| no_room(held, &error))
    }
}

/// What the gateway says of the files is data from a gateway.
fn check(files: &[InputFile]) -> Result<(), FetchError> {
    let list = |why: &str| FetchError::List(why.to_owned());
    if files.len() > MAX_RUN_FILES {
        return Err(list("there are too many"));
    }
    if files.iter().any(|file| file.size > MAX_FILE_BYTES)
        || files.iter().map(|file| file.size).sum::<u64>() > MAX_RUN_FILE_BYTES
    {
        return Err(list("they are too large"));
    }
    for (place, file) in files.iter().enumerate() {
        check_file_name(&file.name).map_err(FetchError::List)?;
        if files[..place].iter().any(|other| other.name.to_lowercase() == file.name.to_lowercase()) {
            return Err(list("two have the same name"));
        }
    }
    Ok(())
}

/// A file of which some bytes are written down, with their digest so far.
struct ArrivingFile {
    target: File,
    hash: Sha256,
    size: u64,
}

impl ArrivingFile {
    fn new(target: File) -> Self {
        Self { target, hash: Sha256::new(), size: 0 }
    }

    /// The file with these bytes too. Blocks.
    fn with(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.target.write_all(bytes)?;
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        Ok(self)
    }

    /// The file without any bytes. Blocks.
    fn emptied(mut self) -> io::Result<Self> {
        self.target.set_len(0)?;
        self.target.rewind()?;
        Ok(Self::new(self.target))
    }

    /// The digest of what is written down.
    fn digest(&self) -> Sha256Digest {
        Sha256Digest(self.hash.clone().finalize().into())
    }
}

/// How many pieces may have come while others are written and hashed.
const MAX_PIECES_AHEAD: usize = 8;

/// Asks for what is missing of a file, and writes it down. Pieces are written and hashed while the next ones come.
async fn fetch_one(
    stream: &mut TransferStream,
    ticket: &TransferTicket,
    file: &InputFile,
    arriving: ArrivingFile,
) -> Result<(Fetched, ArrivingFile), FetchError> {
    let offset = arriving.size;
    let request = TransferRequest::Get { ticket: ticket.clone(), file_id: file.file_id, offset };
    let mut left = match stream.ask(&request).await {
        Ok(TransferReply::Sending { bytes }) if offset.checked_add(bytes) == Some(file.size) => bytes,
        Ok(TransferReply::Sending { .. }) => return Err(of(file, "has another size than the offer says")),
        Ok(TransferReply::Refused { code, message }) => return Ok((refused(file, code, &message)?, arriving)),
        Ok(_) => return Ok((Fetched::Again, arriving)),
        Err(error) => return Ok((again(file, &error), arriving)),
    };
    let written = async |writing: JoinHandle<io::Result<ArrivingFile>>| {
        let written = writing.await.map_err(io::Error::other).flatten();
        written.map_err(|error| unwritten(file, &error))
    };
    let write = |arriving: ArrivingFile, ahead: &mut Vec<Bytes>| {
        let pieces = std::mem::take(ahead);
        spawn_blocking(move || pieces.iter().try_fold(arriving, |arriving, piece| arriving.with(piece)))
    };
    let mut ahead = Vec::new();
    let mut writing = write(arriving, &mut ahead);
    let fetched = loop {
        if left == 0 {
            break Fetched::Whole;
        }
        let bytes = match stream.bytes().await {
            Ok(bytes) if bytes.len() as u64 <= left => bytes,
            Ok(_) => break Fetched::Again,
            Err(error) => break again(file, &error),
        };
        left -= bytes.len() as u64;
        ahead.push(bytes);
        if writing.is_finished() || ahead.len() == MAX_PIECES_AHEAD {
            writing = write(written(writing).await?, &mut ahead);
        }
    };
    let arriving = written(writing).await?;
    Ok((fetched, written(write(arriving, &mut ahead)).await?))
}

fn again(file: &InputFile, error: &LinkError) -> Fetched {
    tracing::debug!(file_id = %file.file_id, %error, "a file broke off");
    Fetched::Again
}

fn refused(file: &InputFile, code: TransferRefusalCode, message: &str) -> Result<Fetched, FetchError> {
    tracing::info!(file_id = %file.file_id, ?code, message, "a file was refused");
    match code {
        code if code.is_passing() => Ok(Fetched::Again),
        TransferRefusalCode::Stale => Err(FetchError::Revoked),
        _ => Err(of(file, "is not at the gateway any more")),
    }
}

fn unwritten(file: &InputFile, error: &io::Error) -> FetchError {
    of(file, &format!("cannot be written: {error}"))
}

fn of(file: &InputFile, why: &str) -> FetchError {
    FetchError::File { name: file.name.clone(), why: why.to_owned() }
}

fn no_room(held: HeldAttempt, error: &io::Error) -> FetchError {
    tracing::warn!(run_id = %held.run_id, %error, "there is no place for the files of a run");
    FetchError::NoRoom
}
