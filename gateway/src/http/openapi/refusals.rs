//! The problems that a call can answer with, as responses of the document.

use std::collections::BTreeMap;

use deskgate_protocol::run::RunError;
use deskgate_protocol::{ConversationId, FileId, OperationId, RunId};
use serde_json::{Map, Value, json};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

use crate::http::problems::{Code, RetryAdvice};

/// Problems of every call with a key.
pub(in crate::http) const COMMON_CODES: &[Code] = &[
    Code::MalformedRequest,
    Code::CredentialInUrl,
    Code::SubjectMissing,
    Code::SubjectInvalid,
    Code::CredentialMissing,
    Code::CredentialInvalid,
    Code::ApplicationDisabled,
    Code::InsufficientScope,
    Code::SubjectNotAllowed,
    Code::RateLimited,
    Code::HeadTooLarge,
    Code::Internal,
    Code::StoreUnavailable,
];

/// Problems of a call with a body.
pub(in crate::http) const JSON_BODY_CODES: &[Code] = &[
    Code::MalformedJson,
    Code::BodyTimeout,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidInput,
    Code::UnknownField,
];

/// Problems of a call that creates work.
pub(in crate::http) const NEW_WORK_CODES: &[Code] =
    &[Code::IdempotencyKeyMissing, Code::IdempotencyKeyInvalid, Code::IdempotencyKeyReused, Code::Draining];

/// Names the refusals of one call: groups of codes, and codes of its own.
macro_rules! refusals {
    ($name:ident = $($codes:expr),+ $(,)?) => {
        enum $name {}

        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
                $crate::http::openapi::refusals::responses(&[$($codes),+])
            }
        }
    };
}
pub(in crate::http) use refusals;

/// One response for each status, with the codes it may bear.
pub(in crate::http) fn responses(groups: &[&[Code]]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status = BTreeMap::<String, Vec<Code>>::new();
    for code in groups.iter().copied().flatten().copied() {
        let codes = by_status.entry(code.facts().status.as_str().to_owned()).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    by_status.into_iter().map(|(status, codes)| (status, response(&codes).into())).collect()
}

fn response(codes: &[Code]) -> Response {
    let meaning = |code: &Code| format!("`{}`: {}", code.as_str(), code.facts().what);
    let examples = codes.iter().map(|code| {
        let example = ExampleBuilder::new().summary(code.facts().title).value(Some(example(*code)));
        (code.as_str(), RefOr::T(example.build()))
    });
    ResponseBuilder::new()
        .description(codes.iter().map(meaning).collect::<Vec<_>>().join("\n"))
        .content(
            "application/problem+json",
            ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).examples_from_iter(examples).build(),
        )
        .build()
}

/// A problem document as it is sent.
fn example(code: Code) -> Value {
    let facts = code.facts();
    let mut document = json!({
        "type": format!("/problems/{}", code.as_str()),
        "title": facts.title,
        "status": facts.status.as_u16(),
        "detail": facts.what.replace('`', ""),
        "code": code.as_str(),
        "request_id": "req_01a1fdacce837753badf368b3b8b6a04",
        "retryable": facts.retry != RetryAdvice::No,
    });
    let member = |name: &str, text: &str| (name.to_owned(), serde_json::from_str(text).expect("a test reads them all"));
    let members: Map<_, _> = facts.members.iter().map(|m| member(m.name, m.example)).collect();
    document.as_object_mut().expect("made above").extend(members);
    document
}

/// An answer that is no success (RFC 9457).
#[derive(ToSchema)]
#[allow(dead_code, reason = "says what a document looks like; error.rs writes it")]
pub(super) struct Problem {
    /// The address of the page that explains it.
    r#type: String,
    /// A short name, the same for every problem with this code.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What is wrong, for people.
    detail: String,
    /// What is wrong, for programs.
    code: Code,
    /// Finds the request in the gateway's log; the same as the header `X-Request-Id`.
    request_id: String,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// With `invalid_input` and `unknown_field`: each thing that is wrong.
    errors: Option<Vec<Flaw>>,
    /// With `insufficient_scope`: the scope that is needed.
    required_scope: Option<String>,
    /// With `payload_too_large`, `head_too_large` and `storage_full`: the limit, in bytes.
    limit_bytes: Option<u64>,
    /// With `range_not_satisfiable`: the bytes that there are.
    size_bytes: Option<u64>,
    /// With `generation_mismatch`: the generation the conversation is in.
    current_generation: Option<u32>,
    /// With `conversation_busy`: the run it works on.
    active_run_id: Option<RunId>,
    /// With `conversation_busy`: the reset under way.
    operation_id: Option<OperationId>,
    /// With `conversation_busy`: the messages that wait, if no more may.
    waiting_messages: Option<u32>,
    /// With `conversation_moved_on`: the run of the conversation's newest message.
    newest_run_id: Option<RunId>,
    /// With `run_still_going` and `run_unsuccessful`: the run.
    run_id: Option<RunId>,
    /// With `run_unsuccessful`: the run's `error`, if it has one.
    run_error: Option<RunError>,
    /// With `attempt_mismatch`: the attempt the run is in.
    current_attempt: Option<u32>,
    /// With `idempotency_key_reused`: the run that the key stands for.
    existing_run_id: Option<RunId>,
    /// With `idempotency_key_reused`: the conversation that the key stands for.
    existing_conversation_id: Option<ConversationId>,
    /// With `idempotency_key_reused`: the control operation that the key stands for.
    existing_operation_id: Option<OperationId>,
    /// With `idempotency_key_reused`: the file that the key stands for.
    existing_file_id: Option<FileId>,
}

/// One thing that is wrong with a request.
#[derive(ToSchema)]
#[allow(dead_code, reason = "says what a document looks like; error.rs writes it")]
struct Flaw {
    /// Where: a JSON Pointer into the body, `?name` for a query parameter, or `Name:` for a header.
    pointer: String,
    /// What, for programs.
    code: String,
    /// What, for people.
    detail: String,
}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let words = Self::ALL.iter().map(|code| code.as_str());
        let what = "What kind of problem it is; each has a page under `/problems/`.";
        ObjectBuilder::new().schema_type(Type::String).description(Some(what)).enum_values(Some(words)).into()
    }
}

impl ToSchema for Code {
    fn name() -> std::borrow::Cow<'static, str> {
        "ProblemCode".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_that_a_problem_promises_is_in_the_schema_and_has_an_example() {
        let schema = serde_json::to_value(Problem::schema()).expect("serialises");
        for code in Code::ALL {
            for name in example(*code).as_object().expect("an object").keys() {
                assert!(schema["properties"].get(name).is_some(), "{name} of {}", code.as_str());
            }
        }
    }
}
