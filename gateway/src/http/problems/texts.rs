//! The texts of each kind of problem, for developers of clients.

use axum::http::StatusCode;

use super::{Code, ProblemFacts, ProblemMember, RetryAdvice, limits};

const ERRORS_MEMBER: ProblemMember = ProblemMember {
    name: "errors",
    meaning: "A list of what is wrong: `pointer` says where (a JSON Pointer into the body, or `?name` for a query \
              parameter), `code` what for programs, `detail` what for people.",
    example: r#"[{"pointer":"/input/text","code":"required","detail":"a string"}]"#,
};

impl Code {
    /// What is true of every problem of this kind.
    pub(in crate::http) const fn facts(self) -> &'static ProblemFacts {
        match self {
            Self::MalformedRequest => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Malformed request",
                retry: RetryAdvice::No,
                what: "The request is not HTTP as it should be.",
                why: "Its request line, a header or the length of its body cannot be read, or the header `Host` is missing, came \
                      twice or names no host. `detail` says which.",
                next: "Send requests with an HTTP library instead of by hand. Behind a proxy, let it pass on one `Host`.",
                members: &[],
            },
            Self::MalformedJson => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Malformed JSON",
                retry: RetryAdvice::No,
                what: "The body could not be read as JSON.",
                why: "It breaks off, errs in its syntax, is not UTF-8 or is nested deeper than 64 levels. `detail` says where.",
                next: "Write the body with a JSON library instead of by hand, and send it again.",
                members: &[],
            },
            Self::BodyIncomplete => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Body incomplete",
                retry: RetryAdvice::Yes,
                what: "The body of an upload ended before it was complete.",
                why: "The connection broke, or fewer bytes came than `Content-Length` said. Nothing was stored.",
                next: "Send the whole file again.",
                members: &[],
            },
            Self::SubjectMissing => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Subject missing",
                retry: RetryAdvice::No,
                what: "The request names no business user.",
                why: "Every call is made on behalf of one user of yours, named in the header `X-Gateway-Subject`. Only a \
                      key that is bound to one subject may leave the header out.",
                next: "Send `X-Gateway-Subject` with your own identifier of the user, 1 to 255 visible ASCII characters.",
                members: &[],
            },
            Self::SubjectInvalid => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Subject invalid",
                retry: RetryAdvice::No,
                what: "The header `X-Gateway-Subject` cannot be used.",
                why: "It was sent more than once, is empty, is longer than 255 characters or holds something other than \
                      visible ASCII characters.",
                next: "Use a stable identifier such as a user number. Encode names that are not ASCII.",
                members: &[],
            },
            Self::IdempotencyKeyMissing => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Idempotency-Key missing",
                retry: RetryAdvice::No,
                what: "A request that needs an `Idempotency-Key` came without one.",
                why: "Without a key, a request whose answer got lost could not be repeated safely.",
                next: "Choose a key for each piece of work, such as your order's number, store it before you send, and send \
                       the same key with every repetition.",
                members: &[],
            },
            Self::IdempotencyKeyInvalid => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Idempotency-Key invalid",
                retry: RetryAdvice::No,
                what: "The header `Idempotency-Key` cannot be used.",
                why: "It was sent more than once, is empty, is longer than 255 characters or holds something other than \
                      visible ASCII characters.",
                next: "Send one key of 1 to 255 visible ASCII characters, bare or in double quotes.",
                members: &[],
            },
            Self::CredentialInUrl => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Credential in the URL",
                retry: RetryAdvice::No,
                what: "A credential was sent in the query string.",
                why: "Addresses end up in logs, histories and proxies, so a key in one must be taken as known to others.",
                next: "Send the key in the header `Authorization`. Roll the key that was sent in the URL.",
                members: &[],
            },
            Self::InvalidCursor => &ProblemFacts {
                status: StatusCode::BAD_REQUEST,
                title: "Invalid cursor",
                retry: RetryAdvice::No,
                what: "The cursor is not one that was handed out here.",
                why: "Cursors are opaque. One that was changed, cut or taken from another list names no place in this one.",
                next: "Use `next_cursor` as it came, with the same filters, or begin without a cursor.",
                members: &[],
            },
            Self::CredentialMissing => &ProblemFacts {
                status: StatusCode::UNAUTHORIZED,
                title: "Credential missing",
                retry: RetryAdvice::No,
                what: "The request has no application key.",
                why: "Every call needs one.",
                next: "Send `Authorization: Bearer` with your application key. The owner of the desktop creates keys.",
                members: &[],
            },
            Self::CredentialInvalid => &ProblemFacts {
                status: StatusCode::UNAUTHORIZED,
                title: "Credential invalid",
                retry: RetryAdvice::No,
                what: "The application key is not valid.",
                why: "It is unknown, revoked, expired or mistyped. These look alike on purpose. `detail` says when something \
                      else than an application key was sent.",
                next: "Check that the whole key arrived; it begins with `dgk_`. If it did, ask the owner of the desktop for a \
                       new one.",
                members: &[],
            },
            Self::SignatureInvalid => &ProblemFacts {
                status: StatusCode::UNAUTHORIZED,
                title: "Signature invalid",
                retry: RetryAdvice::No,
                what: "The signature of an event is not valid for this address.",
                why: "The address is that of no webhook, or the event was signed with another secret, more than five minutes \
                      ago, or over other bytes than those that arrived; or a header that belongs to the signature is \
                      missing or came twice. These look alike on purpose.",
                next: "The owner of the webhook sees the reason: `deskgate hook show`, or the webhook's page.",
                members: &[],
            },
            Self::InsufficientScope => &ProblemFacts {
                status: StatusCode::FORBIDDEN,
                title: "Insufficient scope",
                retry: RetryAdvice::No,
                what: "The application key may not do this.",
                why: "Keys carry scopes, and this call needs one that the key lacks.",
                next: "Ask the owner of the desktop for a key with the scope that `required_scope` names.",
                members: &[ProblemMember {
                    name: "required_scope",
                    meaning: "The scope that is needed.",
                    example: "\"runs:write\"",
                }],
            },
            Self::SubjectNotAllowed => &ProblemFacts {
                status: StatusCode::FORBIDDEN,
                title: "Subject not allowed",
                retry: RetryAdvice::No,
                what: "The application key is bound to another subject.",
                why: "A key with a fixed subject acts for that one only.",
                next: "Leave `X-Gateway-Subject` out, or use a key that is not bound.",
                members: &[],
            },
            Self::OriginNotAllowed => &ProblemFacts {
                status: StatusCode::FORBIDDEN,
                title: "Origin not allowed",
                retry: RetryAdvice::No,
                what: "The request comes from a page in a browser, and such pages may not call this address.",
                why: "It has the header `Origin`. A page could otherwise send requests by a name that its site points at the gateway.",
                next: "Call from a program. An application key does not belong into a page.",
                members: &[],
            },
            Self::ApplicationDisabled => &ProblemFacts {
                status: StatusCode::FORBIDDEN,
                title: "Application disabled",
                retry: RetryAdvice::No,
                what: "The application that this key belongs to was disabled.",
                why: "The owner of the desktop disabled it. Its keys are revoked for good, and its runs were stopped.",
                next: "Ask the owner of the desktop for a key of another application.",
                members: &[],
            },
            Self::NotFound => &ProblemFacts {
                status: StatusCode::NOT_FOUND,
                title: "Not found",
                retry: RetryAdvice::No,
                what: "There is nothing at this address that this caller may see.",
                why: "It does not exist, it is a draft, or it belongs to another application or another subject. These look \
                      alike on purpose.",
                next: "Check the identifier and that `X-Gateway-Subject` is the one the work was submitted with.",
                members: &[],
            },
            Self::PathNotFound => &ProblemFacts {
                status: StatusCode::NOT_FOUND,
                title: "Path not found",
                retry: RetryAdvice::No,
                what: "No call has this path.",
                why: "It is mistyped, ends with a slash, or a proxy has changed it. An identifier that is not found has the code \
                      `not_found`.",
                next: "Compare the path with those of the reference, `/api/v1/docs`.",
                members: &[],
            },
            Self::MethodNotAllowed => &ProblemFacts {
                status: StatusCode::METHOD_NOT_ALLOWED,
                title: "Method not allowed",
                retry: RetryAdvice::No,
                what: "This address does not take this method.",
                why: "The address exists, but not for what was tried.",
                next: "The header `Allow` names the methods it takes.",
                members: &[],
            },
            Self::NotAcceptable => &ProblemFacts {
                status: StatusCode::NOT_ACCEPTABLE,
                title: "Not acceptable",
                retry: RetryAdvice::No,
                what: "None of the forms that the request accepts can be given.",
                why: "The header `Accept` leaves out every form that this address has.",
                next: "Leave `Accept` out, or name a form that the reference lists for this call.",
                members: &[],
            },
            Self::BodyTimeout => &ProblemFacts {
                status: StatusCode::REQUEST_TIMEOUT,
                title: "Body too slow",
                retry: RetryAdvice::Yes,
                what: "The body did not arrive in time.",
                why: "The connection was slow, or the program announced a longer body than it sent. Nothing was accepted.",
                next: "Send the request again, with the same `Idempotency-Key`.",
                members: &[],
            },
            Self::GenerationMismatch => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Generation mismatch",
                retry: RetryAdvice::No,
                what: "The conversation is in another generation than the request expects.",
                why: "It was reset since it was last read, so the message would have met an assistant that no longer knows \
                      what was said before.",
                next: "Decide whether the message still makes sense. If it does, send it with `current_generation` under a \
                       new `Idempotency-Key`.",
                members: &[ProblemMember {
                    name: "current_generation",
                    meaning: "The generation the conversation is in.",
                    example: "2",
                }],
            },
            Self::ConversationMovedOn => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Conversation moved on",
                retry: RetryAdvice::No,
                what: "`previous_response_id` names a response that is not the newest of its conversation.",
                why: "A conversation is one line: the device has heard what was said since, and cannot unhear it.",
                next: "Continue the response of `newest_run_id`, or begin without `previous_response_id` and send what was said as \
                       `input`.",
                members: &[ProblemMember {
                    name: "newest_run_id",
                    meaning: "The run of the conversation's newest message.",
                    example: "\"run_01a1fdacce837753badf368b3b8b6a04\"",
                }],
            },
            Self::RunStillGoing => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Run still going",
                retry: RetryAdvice::No,
                what: "The answer to a chat completion was held back for 280 seconds, and the run has not ended.",
                why: "The run waits for its device or for a person, or takes longer. It goes on, and sending the request again \
                      would begin another one.",
                next: "Read the run that `run_id` names, or use the Responses API with `background`, which answers at once.",
                members: &[ProblemMember {
                    name: "run_id",
                    meaning: "The run.",
                    example: "\"run_01a1fdacce837753badf368b3b8b6a04\"",
                }],
            },
            Self::RunUnsuccessful => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Run unsuccessful",
                retry: RetryAdvice::No,
                what: "The run that was to answer a chat completion failed, was stopped, or expired.",
                why: "A chat completion has no other place for it. Its run may have had effects, so nothing is repeated for you.",
                next: "Read why in `run_error`, and in the record of the run that `run_id` names. Its `effects` say whether new \
                       work is safe.",
                members: &[
                    ProblemMember {
                        name: "run_id",
                        meaning: "The run.",
                        example: "\"run_01a1fdacce837753badf368b3b8b6a04\"",
                    },
                    ProblemMember {
                        name: "run_error",
                        meaning: "The run's `error`; absent if it has none.",
                        example: "{ \"code\": \"model_error\", \"message\": \"The model failed.\", \"retryable\": true, \"effects\": \"none\" }",
                    },
                ],
            },
            Self::ConversationBusy => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Conversation busy",
                retry: RetryAdvice::Yes,
                what: "The conversation works on another run or is being reset.",
                why: "A conversation works on one message at a time, in order. Messages that are sent with `on_busy` wait, but \
                      not more than 16, and not for a reset.",
                next: "Wait until the run that `active_run_id` names, or the reset that `operation_id` names, has ended, then \
                       send the request again. Or send the message with `on_busy` as `enqueue`.",
                members: &[
                    ProblemMember {
                        name: "active_run_id",
                        meaning: "The run it works on; absent while it is being reset.",
                        example: "\"run_01a1fdacce837753badf368b3b8b6a04\"",
                    },
                    ProblemMember {
                        name: "operation_id",
                        meaning: "The reset under way; absent while it works on a run.",
                        example: "\"op_01a1fdacce8377d0a8e1b3a0c5d9e6f7\"",
                    },
                    ProblemMember {
                        name: "waiting_messages",
                        meaning: "The messages that wait, if the message was to wait and no more may.",
                        example: "16",
                    },
                ],
            },
            Self::IdempotencyKeyReused => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Idempotency-Key reused",
                retry: RetryAdvice::No,
                what: "This `Idempotency-Key` was used for a request with a different body.",
                why: "A key stands for one piece of work. The order of members and white space do not matter, everything \
                      else in the body does.",
                next: "For new work choose a new key. To repeat, send exactly what was sent first.",
                members: &[
                    ProblemMember {
                        name: "existing_run_id",
                        meaning: "The run that the key stands for, where it stands for one.",
                        example: "\"run_01a1fdacce837753badf368b3b8b6a04\"",
                    },
                    ProblemMember {
                        name: "existing_conversation_id",
                        meaning: "The conversation that the key stands for, where it stands for one.",
                        example: "\"conv_01a1fdacce8377c1b2d3e4f5a6b7c8d9\"",
                    },
                    ProblemMember {
                        name: "existing_operation_id",
                        meaning: "The control operation that the key stands for, where it stands for one.",
                        example: "\"op_01a1fdacce8377d0a8e1b3a0c5d9e6f7\"",
                    },
                ],
            },
            Self::AttemptMismatch => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Attempt mismatch",
                retry: RetryAdvice::No,
                what: "The run is in another attempt than the request expects.",
                why: "It was handed out again since it was last read.",
                next: "Read the run, and decide whether it should still be stopped.",
                members: &[ProblemMember { name: "current_attempt", meaning: "The attempt it is in.", example: "2" }],
            },
            Self::RunNotEnded => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "Run not ended",
                retry: RetryAdvice::No,
                what: "The content of a run that has not ended cannot be deleted.",
                why: "The run waits or executes, and its device still needs the input.",
                next: "Stop the run or wait for its end, and delete its content once its `phase` is `final`.",
                members: &[],
            },
            Self::FileInUse => &ProblemFacts {
                status: StatusCode::CONFLICT,
                title: "File in use",
                retry: RetryAdvice::No,
                what: "A file that a run has cannot be deleted.",
                why: "The run's record says what it was given, and its device may still fetch it.",
                next: "Leave it: it is deleted with the last run that has it. To be rid of it sooner, delete the content of that \
                       run once it has ended.",
                members: &[],
            },
            Self::ArtifactMissing => &ProblemFacts {
                status: StatusCode::GONE,
                title: "Artifact missing",
                retry: RetryAdvice::No,
                what: "The run handed this artifact out, and its bytes are not here.",
                why: "They could not be brought from the device, or the gateway lost them. The run's record has its name and its \
                      digest all the same.",
                next: "Submit the work again, or ask the device's owner for the file.",
                members: &[],
            },
            Self::RunPurged => &ProblemFacts {
                status: StatusCode::GONE,
                title: "Run purged",
                retry: RetryAdvice::No,
                what: "The run was deleted.",
                why: "Runs that have ended are kept for a limited time; `purge_at` of a run says until when.",
                next: "Keep what you need of a run in your own system before `purge_at`.",
                members: &[],
            },
            Self::PayloadTooLarge => &ProblemFacts {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                title: "Payload too large",
                retry: RetryAdvice::No,
                what: "The body is larger than the limit.",
                why: "What an assistant can take in is limited, and so is what the gateway stores of one run.",
                next: "Send less, or put large content where the service can read it on the desktop.",
                members: &[ProblemMember {
                    name: "limit_bytes",
                    meaning: "The largest body, in bytes.",
                    example: "1048576",
                }],
            },
            Self::UnsupportedMediaType => &ProblemFacts {
                status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
                title: "Unsupported media type",
                retry: RetryAdvice::No,
                what: "The body is not announced as plain JSON.",
                why: "The header `Content-Type` is missing, came twice or names something else, or `Content-Encoding` says that the \
                      body is compressed.",
                next: "Send `Content-Type: application/json`, and the body uncompressed.",
                members: &[],
            },
            Self::InvalidInput => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Invalid input",
                retry: RetryAdvice::No,
                what: "The request is well-formed, but some of its values are not acceptable.",
                why: "`errors` names each of them.",
                next: "Correct the values that `errors` names. Nothing was accepted, so the `Idempotency-Key` is still free.",
                members: &[ERRORS_MEMBER],
            },
            Self::RangeNotSatisfiable => &ProblemFacts {
                status: StatusCode::RANGE_NOT_SATISFIABLE,
                title: "Range not satisfiable",
                retry: RetryAdvice::No,
                what: "`Range` begins behind the end of the file.",
                why: "The download was complete already, or was of another file.",
                next: "Compare what you have with `size` and `sha256` of the artifact, and begin anew if they differ.",
                members: &[ProblemMember { name: "size_bytes", meaning: "The bytes of the file.", example: "81234" }],
            },
            Self::InvalidName => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Invalid name",
                retry: RetryAdvice::No,
                what: "The name of the file cannot be used.",
                why: "It is longer than 120 bytes, holds `/`, `\\` or a character that is not seen or turns text around, begins or ends \
                      with a space, or is `.` or `..`. `detail` says which.",
                next: "Send a plain name. It is how the assistant knows the file, not where it lies.",
                members: &[],
            },
            Self::DigestMismatch => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Digest mismatch",
                retry: RetryAdvice::Yes,
                what: "Other bytes came than `Content-Digest` names.",
                why: "Something between you and the gateway changed them, or the digest is that of another file.",
                next: "Compute the SHA-256 of the bytes that you send, and send them again.",
                members: &[],
            },
            Self::LoopDetected => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Loop detected",
                retry: RetryAdvice::No,
                what: "The work was asked for by an assistant that others asked: too many stand in a row.",
                why: "The header `Deskgate-Depth` says how many assistants stand before the run. A desktop sends it with the calls of \
                      its own tools, so that assistants that ask each other do not go on for ever.",
                next: "Ask the last service of the row directly, or take the tool that leads here out of one of the services.",
                members: &[],
            },
            Self::SchemaUnsupported => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Schema unsupported",
                retry: RetryAdvice::No,
                what: "The schema of `output` cannot be used.",
                why: "It is not JSON Schema of draft 2020-12 with the root `\"type\": \"object\"`, it refers to something outside \
                      itself, or it is larger or more deeply nested than `GET /capabilities` allows. `errors` names the place.",
                next: "Change the schema there. Put what a `$ref` names into `$defs` of the same schema.",
                members: &[ERRORS_MEMBER],
            },
            Self::UnknownField => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Unknown field",
                retry: RetryAdvice::No,
                what: "The body has a member that this request does not know.",
                why: "A caller supplies business content and nothing else. What a run may do is decided on the desktop, and a \
                      member that were silently ignored would look as if it worked.",
                next: "Remove the member. Business content of your own goes into `input`, labels into `metadata`.",
                members: &[ERRORS_MEMBER],
            },
            Self::MappingFailed => &ProblemFacts {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                title: "Mapping failed",
                retry: RetryAdvice::No,
                what: "The event is genuine and wanted, and lacks what the webhook makes of events.",
                why: "The webhook's mapping needs a text, a business user and, for messages, the name of a conversation. `detail` \
                      says what is missing or cannot be used.",
                next: "The owner of the webhook changes the mapping, tries it on the events that were kept (`deskgate hook \
                       test`), and the sender delivers the event again.",
                members: &[],
            },
            Self::RateLimited => &limits::RATE_LIMITED,
            Self::QueueFull => &limits::QUEUE_FULL,
            Self::TooManyUploads => &limits::TOO_MANY_UPLOADS,
            Self::StorageFull => &limits::STORAGE_FULL,
            Self::StorageUnavailable => &limits::STORAGE_UNAVAILABLE,
            Self::HeadTooLarge => &limits::HEAD_TOO_LARGE,
            Self::Internal => &limits::INTERNAL,
            Self::AccessPaused => &limits::ACCESS_PAUSED,
            Self::StoreUnavailable => &limits::STORE_UNAVAILABLE,
            Self::Draining => &limits::DRAINING,
        }
    }
}
