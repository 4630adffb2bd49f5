//! The closed list of problems that a caller can get, and the pages that explain them.
//!
//! Every refusal is one of these kinds (http-api, section "Errors"). The meaning of a kind stands once, in `texts`: the
//! problem documents, the OpenAPI document and the pages under `/problems/` use it, so a kind without a page does not
//! compile.

mod limits;
mod pages;
mod texts;

use axum::http::StatusCode;

pub(super) use pages::{index, page};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What kind of problem it is: the member `code` of a problem document.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the statuses.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word for it in documents and addresses.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }
    };
}

codes! {
    /// The request is not HTTP as it should be.
    MalformedRequest = "malformed_request",
    /// The body is not JSON.
    MalformedJson = "malformed_json",
    /// The body ended before it was complete.
    BodyIncomplete = "body_incomplete",
    /// No subject was named.
    SubjectMissing = "subject_missing",
    /// The subject is not a usable name.
    SubjectInvalid = "subject_invalid",
    /// A request that needs an Idempotency-Key has none.
    IdempotencyKeyMissing = "idempotency_key_missing",
    /// The Idempotency-Key cannot be used.
    IdempotencyKeyInvalid = "idempotency_key_invalid",
    /// A credential was sent in the URL.
    CredentialInUrl = "credential_in_url",
    /// A cursor is not one that was handed out.
    InvalidCursor = "invalid_cursor",
    /// No application key was sent.
    CredentialMissing = "credential_missing",
    /// The application key is unknown, revoked or expired.
    CredentialInvalid = "credential_invalid",
    /// The signature of an event does not count.
    SignatureInvalid = "signature_invalid",
    /// The key may not do this.
    InsufficientScope = "insufficient_scope",
    /// The key is bound to another subject.
    SubjectNotAllowed = "subject_not_allowed",
    /// A page of a browser asks that may not.
    OriginNotAllowed = "origin_not_allowed",
    /// The application was switched off.
    ApplicationDisabled = "application_disabled",
    /// Nothing there, or nothing this caller may see.
    NotFound = "not_found",
    /// No call has the path.
    PathNotFound = "path_not_found",
    /// The address does not take this method.
    MethodNotAllowed = "method_not_allowed",
    /// None of the forms that the caller takes can be given.
    NotAcceptable = "not_acceptable",
    /// The body did not arrive in time.
    BodyTimeout = "body_timeout",
    /// The conversation is in another generation.
    GenerationMismatch = "generation_mismatch",
    /// A response is not the newest of its conversation.
    ConversationMovedOn = "conversation_moved_on",
    /// The conversation works on a run.
    ConversationBusy = "conversation_busy",
    /// The key was used for a request with a different body.
    IdempotencyKeyReused = "idempotency_key_reused",
    /// The run is in another attempt.
    AttemptMismatch = "attempt_mismatch",
    /// The run has not ended.
    RunNotEnded = "run_not_ended",
    /// A run has the file.
    FileInUse = "file_in_use",
    /// The bytes of an artifact are not there.
    ArtifactMissing = "artifact_missing",
    /// The run was deleted when its time was over.
    RunPurged = "run_purged",
    /// The body is over the limit.
    PayloadTooLarge = "payload_too_large",
    /// The range begins behind the end.
    RangeNotSatisfiable = "range_not_satisfiable",
    /// The body is not announced as JSON, or is compressed.
    UnsupportedMediaType = "unsupported_media_type",
    /// Values that are not acceptable.
    InvalidInput = "invalid_input",
    /// A run whose answer was waited for goes on.
    RunStillGoing = "run_still_going",
    /// A run whose answer was waited for ended without one.
    RunUnsuccessful = "run_unsuccessful",
    /// The name of a file cannot be used.
    InvalidName = "invalid_name",
    /// The bytes of a file are others than announced.
    DigestMismatch = "digest_mismatch",
    /// Assistants call each other in a circle.
    LoopDetected = "loop_detected",
    /// A schema that cannot be used.
    SchemaUnsupported = "schema_unsupported",
    /// A member that callers cannot set.
    UnknownField = "unknown_field",
    /// An event that a webhook can make nothing of.
    MappingFailed = "mapping_failed",
    /// Too many requests in too short a time.
    RateLimited = "rate_limited",
    /// Too many uploads are under way.
    TooManyUploads = "too_many_uploads",
    /// The application's files take all its room.
    StorageFull = "storage_full",
    /// Too many runs wait.
    QueueFull = "queue_full",
    /// The head is over the limit.
    HeadTooLarge = "head_too_large",
    /// A fault of the gateway.
    Internal = "internal",
    /// The desktop user paused access.
    AccessPaused = "access_paused",
    /// Files cannot be kept or read at the moment.
    StorageUnavailable = "storage_unavailable",
    /// The database does not work at the moment.
    StoreUnavailable = "store_unavailable",
    /// This gateway is stopping.
    Draining = "draining",
}

/// What is true of every problem of one kind.
pub(super) struct ProblemFacts {
    /// The status it is sent with.
    pub(super) status: StatusCode,
    /// A short name.
    pub(super) title: &'static str,
    /// Whether the same request may succeed later.
    pub(super) retry: RetryAdvice,
    /// The problem, in a sentence.
    pub(super) what: &'static str,
    /// Its usual causes.
    pub(super) why: &'static str,
    /// What the caller does next.
    pub(super) next: &'static str,
    /// The members of this kind's documents beyond the common ones.
    pub(super) members: &'static [ProblemMember],
}

/// Whether, and how soon, the same request is worth another try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryAdvice {
    /// It would be refused again.
    No,
    /// At once, or whenever the caller likes.
    Yes,
    /// After so many seconds, which the header Retry-After names.
    After(&'static str),
}

/// One further member of a problem document.
pub(super) struct ProblemMember {
    /// Its name.
    pub(super) name: &'static str,
    /// Its meaning.
    pub(super) meaning: &'static str,
    /// An example value, as JSON.
    pub(super) example: &'static str,
}

impl Code {
    /// The code that a text names.
    pub(super) fn find(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}
