//! The refusals: every reason for which the gateway declines a caller's request.

use deskgate_protocol::file::{MAX_FILE_BYTES, MAX_MEDIA_TYPE_BYTES};
use deskgate_protocol::management::Scope;
use deskgate_protocol::{ConversationId, FileId, OperationId, RunId};

use crate::store;

/// A declined request. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No credential was sent.
    #[error("The request has no application key. Send it as \"Authorization: Bearer <application key>\".")]
    CredentialMissing,
    /// Unknown, revoked and expired look alike. `hint` names what was sent instead of a key.
    #[error("The application key is not valid.{hint}")]
    CredentialInvalid {
        /// Empty, or a sentence with a space before it.
        hint: String,
    },
    /// The desktop user disabled the application.
    #[error("This application was disabled by its owner. Its keys are revoked for good.")]
    ApplicationDisabled,
    /// The key may not do this.
    #[error("This application key lacks the scope \"{0}\".")]
    InsufficientScope(Scope),
    /// No subject was named.
    #[error("The request names no business user. Send the header X-Gateway-Subject.")]
    SubjectMissing,
    /// The subject is not a usable name.
    #[error("X-Gateway-Subject must be sent once and hold 1 to 255 visible ASCII characters.")]
    SubjectInvalid,
    /// The key is bound to another subject.
    #[error("This application key is bound to another subject.")]
    SubjectNotAllowed,
    /// The object does not exist, or the caller may not know of it.
    #[error("There is nothing at this address that this caller may see.")]
    NotFound,
    /// The run ended, and its retention is over. Only its owner is shown this.
    #[error("This run has ended and was deleted when its time was over.")]
    RunPurged,
    /// The run has not ended, and its content is still needed.
    #[error("The run has not ended. Its content can be deleted once its phase is final; to end it, stop it.")]
    RunNotEnded,
    /// The desktop user paused access.
    #[error("The owner of this service has paused external access. Nothing was accepted; try again later.")]
    AccessPaused,
    /// The desktop user disabled the service.
    #[error("The owner of this service has disabled it. Nothing was accepted; try again later.")]
    ServiceDisabled,
    /// The key of the request belongs to other work.
    #[error("This Idempotency-Key was used for a request with a different body. New work needs a new key.")]
    IdempotencyKeyReused {
        /// The result of that other request.
        existing: PriorResult,
    },
    /// The conversation was reset since the caller read it.
    #[error(
        "The conversation is in generation {current_generation}. Read it and decide whether the request still fits."
    )]
    GenerationMismatch {
        /// The current generation.
        current_generation: u32,
    },
    /// The conversation is busy.
    #[error("The conversation has a message or a reset under way. Wait for its end and try again.")]
    ConversationBusy {
        /// The run it works on.
        active_run_id: Option<RunId>,
        /// The reset that is under way.
        operation_id: Option<OperationId>,
        /// The messages that wait, if a further one could not.
        waiting_messages: Option<u32>,
    },
    /// A response is to be continued that is not the newest of its conversation.
    #[error("The conversation has gone on behind this response. Continue the newest one; there are no branches.")]
    ConversationMovedOn {
        /// The run of the newest message.
        newest: Option<RunId>,
    },
    /// The run was handed to its device once more since the caller read it.
    #[error("The run is in attempt {current_attempt}. Read it and decide whether it is still to be stopped.")]
    AttemptMismatch {
        /// The current attempt.
        current_attempt: u32,
    },
    /// Too many runs wait.
    #[error("The application already has {limit} runs waiting for its devices. Nothing was accepted; try again later.")]
    QueueFull {
        /// How many may wait.
        limit: u32,
    },
    /// Too many requests.
    #[error("This key has made too many requests. Wait, as Retry-After says, and try again.")]
    RateLimited,
    /// Too many requests without a good key.
    #[error(
        "Too many requests from this address came with a key that is not valid. Wait, as Retry-After says, and try again."
    )]
    TooManyFailures,
    /// Too many bodies of a key are under way.
    #[error(
        "This key has too many requests with a body under way. Nothing was read; try again when some are answered."
    )]
    TooManyBodies,
    /// Too many streams are open.
    #[error(
        "The application already has {limit} event streams open here. Close some, or read the events page by page."
    )]
    TooManyStreams {
        /// How many may be open.
        limit: usize,
    },
    /// Too many downloads are under way.
    #[error("The application already has {limit} downloads under way here. Try again when some have ended.")]
    TooManyDownloads {
        /// How many may be.
        limit: usize,
    },
    /// Too many reads wait.
    #[error(
        "The application already has {limit} reads waiting for a change here. Read without \"wait\", or try again."
    )]
    TooManyWaits {
        /// How many may wait.
        limit: usize,
    },
    /// A cursor that was not given out.
    #[error("This is no place in the run's events. Use the id of an event, or leave it out to begin with the first.")]
    InvalidCursor,
    /// Values that are not acceptable.
    #[error("{}", in_words(.0))]
    Invalid(Vec<Flaw>),
    /// The name of a file cannot be used.
    #[error("The file's name cannot be used: {reason}.")]
    InvalidFileName {
        /// The reason, without a full stop.
        reason: String,
    },
    /// What a file is said to be cannot be used.
    #[error(
        "Content-Type says what the file is, as in application/pdf: a type and a subtype, at most {MAX_MEDIA_TYPE_BYTES} bytes."
    )]
    InvalidMediaType,
    /// A file has more bytes than are taken, or than its caller announced.
    #[error("The file is larger than {MAX_FILE_BYTES} bytes, or than its Content-Length says.")]
    FileTooLarge,
    /// A file's bytes are others than its caller said.
    #[error("The bytes that came are not those that Content-Digest names. Nothing was stored; send them again.")]
    DigestMismatch,
    /// Too many uploads of a key are under way.
    #[error(
        "This key has {limit} uploads under way, as many as it may, or this gateway has as many as it can. Nothing was read; try again when one is answered."
    )]
    TooManyUploads {
        /// How many may be under way.
        limit: usize,
    },
    /// The application's files take all the room that it has.
    #[error(
        "The files and artifacts of this application would take more than {limit} bytes. Delete files, or wait until runs are deleted."
    )]
    StorageFull {
        /// Bytes that they may take.
        limit: u64,
    },
    /// The bytes of an artifact are not there.
    #[error("The run handed this artifact out, and its bytes did not come to the gateway or are not there any more.")]
    ArtifactMissing,
    /// A run has the file.
    #[error("A run has this file. It is deleted with the last run that has it.")]
    FileInUse,
    /// Bytes cannot be kept or read at the moment.
    #[error("The gateway cannot keep or read files at the moment. Try again.")]
    StorageUnavailable,
    /// A schema that cannot be used.
    #[error("The schema cannot be used: {}: {}.", .0.member(), .0.detail)]
    SchemaUnsupported(Flaw),
    /// An event's signature is invalid, or the webhook does not exist. Both look alike.
    #[error("The signature is not valid for this address.")]
    SignatureInvalid,
    /// An event that is not JSON.
    #[error("The event is not JSON that can be read.")]
    EventNotJson,
    /// An event that its webhook's mapping cannot turn into a run.
    #[error("The event does not fit the webhook's mapping: {reason}.")]
    MappingFailed {
        /// The reason, without a full stop.
        reason: String,
    },
    /// Too many events.
    #[error("This webhook received too many events. Wait, as Retry-After says, and try again.")]
    TooManyEvents,
    /// The database does not work at the moment.
    #[error("The gateway cannot reach its database. Try again with the same Idempotency-Key.")]
    StoreUnavailable,
    /// The gateway is stopping.
    #[error("This gateway is stopping. Nothing was accepted; try again.")]
    Draining,
    /// A fault of the gateway, which the log describes.
    #[error("The gateway failed. The log names this request.")]
    Internal,
}

/// The result of an earlier request with the same Idempotency-Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorResult {
    /// A run.
    Run(RunId),
    /// A conversation.
    Conversation(ConversationId),
    /// A control operation.
    Operation(OperationId),
    /// A file.
    File(FileId),
}

impl From<store::requests::RequestResult> for PriorResult {
    fn from(existing: store::requests::RequestResult) -> Self {
        match existing {
            store::requests::RequestResult::Conversation(id) => Self::Conversation(id),
            store::requests::RequestResult::Operation(id) => Self::Operation(id),
        }
    }
}

/// One thing that is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The position: a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// The reason, for programs.
    pub code: &'static str,
    /// The reason, for people.
    pub detail: String,
}

/// The most characters of a member's name in a sentence; it is the caller's, and may be of any length.
const MAX_MEMBER_CHARS: usize = 80;

/// The first flaw as a sentence, and how many there are beside it.
fn in_words(flaws: &[Flaw]) -> String {
    let Some(first) = flaws.first() else { return "The request body is not acceptable.".to_owned() };
    let (member, detail) = (first.member(), &first.detail);
    let sentence = match first.code {
        "required" => format!("{member} is missing. It must be {detail}."),
        "wrong_type" | "number_not_exact" => format!("{member} must be {detail}."),
        "schema_mismatch" => format!("{member} does not fit the service's schema: {detail}."),
        "not_taken" => format!("{member} is not taken: {detail}."),
        "duplicate_member" => format!("{member} stands more than once in its object. Send it once."),
        _ => format!("{member} is out of range: {detail}."),
    };
    match flaws.len() - 1 {
        0 => sentence,
        1 => sentence + " One more member is wrong; see \"errors\".",
        more => format!("{sentence} {more} more members are wrong; see \"errors\"."),
    }
}

impl Flaw {
    /// The member in words: `"input.text"`.
    fn member(&self) -> String {
        let Some(path) = self.pointer.strip_prefix('/') else { return "The body".to_owned() };
        let path = path.replace('/', ".").replace("~1", "/").replace("~0", "~");
        let shown: String = path.chars().take(MAX_MEMBER_CHARS).collect();
        let cut = if shown.len() < path.len() { "…" } else { "" };
        format!("{:?}", shown + cut)
    }

    /// A flaw at a place.
    pub fn new(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, detail: detail.into() }
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Unavailable(reason) => {
                tracing::warn!(%reason, "the database is not available");
                Self::StoreUnavailable
            }
            full @ store::Error::DiskFull(_) => {
                tracing::error!(error = %full, "nothing can be accepted");
                Self::StoreUnavailable
            }
            other => {
                tracing::error!(error = %other, "the store failed");
                Self::Internal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_body_is_told_with_the_member_and_its_limit() {
        let told = |flaws: &[(&str, &'static str, &str)]| {
            let flaw = |(pointer, code, detail): &(&str, &'static str, &str)| Flaw::new(*pointer, code, *detail);
            Refusal::Invalid(flaws.iter().map(flaw).collect()).to_string()
        };
        let text = ("/input/text", "required", "a string");
        assert_eq!(told(&[text]), "\"input.text\" is missing. It must be a string.");
        assert_eq!(told(&[("", "wrong_type", "a JSON object")]), "The body must be a JSON object.");
        let twice = ("/input/text", "duplicate_member", "send it once");
        assert_eq!(told(&[twice]), "\"input.text\" stands more than once in its object. Send it once.");
        let seconds = ("/queue_ttl_s", "out_of_range", "a whole number from 1 to 604800");
        let sentence = "\"queue_ttl_s\" is out of range: a whole number from 1 to 604800.";
        assert_eq!(told(&[seconds]), sentence);
        assert_eq!(told(&[seconds, text]), format!("{sentence} One more member is wrong; see \"errors\"."));
        assert_eq!(told(&[seconds, text, text]), format!("{sentence} 2 more members are wrong; see \"errors\"."));
        let label = format!("/metadata/a~1b~0{}", "x".repeat(100));
        let shown = told(&[(&label, "wrong_type", "a string")]);
        assert_eq!(shown, format!("\"metadata.a/b~{}…\" must be a string.", "x".repeat(MAX_MEMBER_CHARS - 13)));
    }
}
