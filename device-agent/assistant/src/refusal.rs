//! A provider's error: its meaning for callers, and its own words for the owner of the device.
//!
//! What callers read is written here, and repeats nothing of the other side's text, which may hold the key or the
//! prompt. The owner's part keeps the provider's words, with the key taken out.

use std::time::{Duration, SystemTime};

use deskgate_definition::ProviderErrorDetail;
use deskgate_program::redaction::without_secret;
use deskgate_protocol::secret;
use deskgate_secrets::Secret;
use reqwest::header::{HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::{ErrorKind, ModelError};

/// How many bytes of an error's body are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// How many characters of each of the provider's words are kept.
const MAX_WORD_CHARS: usize = 200;
/// How many characters of the provider's message are kept.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// An error as providers write it: an object with the member `error`, or its members at the top, or a list with one.
#[derive(Debug, Default)]
pub(super) struct ProviderErrorBody {
    kind: Option<String>,
    code: Option<String>,
    param: Option<String>,
    message: Option<String>,
}

/// Phrases for a conversation that is longer than the model takes, where there is no code for it: Anthropic, OpenAI,
/// Google, xAI, Groq, Mistral, vLLM, llama.cpp, LM Studio, Ollama.
const TOO_LONG_PHRASES: [&str; 17] = [
    "prompt is too long",
    "exceed context limit",
    "exceeds the context window",
    "maximum context length",
    "input token count",
    "maximum prompt length",
    "reduce the length of the messages",
    "maximum allowed input length",
    "available context size",
    "configured context size",
    "greater than the context length",
    "longer than the context length",
    "longer than the model",
    "context size has been exceeded",
    "truncate prompt with n_keep",
    "prompt too long",
    "exceeded model token limit",
];
/// Phrases for too much in a short time, which may mention tokens too.
const RATE_PHRASES: [&str; 3] = ["rate limit", "too many requests", "tokens per min"];

/// Phrases for reasoning that is not taken back, where there is no code for it.
const REASONING_PHRASES: [&str; 6] = [
    "invalid `signature` in `thinking` block",
    "blocks in the latest assistant message cannot be modified",
    "encrypted content for item",
    "could not be verified",
    "required following item",
    "thought signature",
];
/// Phrases for an account without credit, where the words say something else.
const CREDIT_PHRASES: [&str; 1] = ["credit balance is too low"];
/// Phrases of failures that are no accident, although their status says so.
const PERMANENT_PHRASES: [&str; 2] = ["requires --jinja", "not supported"];

impl ProviderErrorBody {
    /// Takes the known members of an error's JSON.
    pub(super) fn of(body: &Value) -> Self {
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
        let word = |name: &str| match error.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Object(_) | Value::Array(_) => Some(value.to_string()),
            _ => None,
        };
        // The error itself may be a text.
        let message = ["message", "detail", "error"].iter().find_map(|name| error.get(*name).and_then(text));
        // A router's own message says little; the text of the server behind it says why.
        let behind = error.pointer("/metadata/raw").and_then(text);
        let message = match (message, behind) {
            (Some(message), Some(behind)) => Some(format!("{message}: {behind}")),
            (message, behind) => message.or(behind),
        };
        Self { kind: word("type").or_else(|| word("status")), code: word("code"), param: word("param"), message }
    }

    /// The words for the owner. The key is taken out where it is known ([`without_key`]).
    fn detail(&self) -> ProviderErrorDetail {
        let short = |text: &Option<String>, limit| text.as_ref().map(|text| redacted(text, limit));
        ProviderErrorDetail {
            status: None,
            kind: short(&self.kind, MAX_WORD_CHARS),
            code: short(&self.code, MAX_WORD_CHARS),
            param: short(&self.param, MAX_WORD_CHARS),
            message: short(&self.message, MAX_MESSAGE_CHARS),
            request_id: None,
        }
    }

    /// What is wrong, as far as the provider's words are known.
    pub(super) fn meaning(&self) -> Option<ModelError> {
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        let words = [self.code.as_deref(), self.kind.as_deref()];
        let known = words.into_iter().flatten().find_map(|word| {
            if let Some(status) = word.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
                return by_status(status);
            }
            Some(match word {
                "authentication_error"
                | "invalid_api_key"
                | "permission_error"
                | "UNAUTHENTICATED"
                | "PERMISSION_DENIED" => auth(),
                "insufficient_quota"
                | "billing_error"
                | "billing_hard_limit_reached"
                | "credit_balance_exhausted"
                | "organization_spend_limit_exceeded"
                | "project_spend_limit_exceeded"
                | "organization_usage_limit_exceeded" => no_credit(),
                "not_found_error" | "model_not_found" | "DeploymentNotFound" => no_such_model(),
                "context_length_exceeded" | "exceed_context_size_error" | "request_too_large" => too_long(),
                // The model wrote a call that its server does not take.
                "tool_use_failed" => malformed_response(),
                "content_filter" | "content_policy_violation" | "misalignment_policy_violation" => declined(),
                "invalid_encrypted_content" => reasoning_refused(),
                // More than a minute's tokens at once: waiting does not make it smaller.
                "rate_limit_exceeded" if message.starts_with("request too large") => too_long(),
                "rate_limit_error"
                | "rate_limit_exceeded"
                | "RESOURCE_EXHAUSTED"
                | "overloaded_error"
                | "UNAVAILABLE"
                | "api_error"
                | "server_error"
                | "INTERNAL"
                | "timeout_error"
                | "DEADLINE_EXCEEDED"
                | "slow_down"
                | "server_is_overloaded"
                | "service_unavailable_error" => ModelError { retry_after: try_again_in(&message), ..overloaded() },
                _ => return None,
            })
        });
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
        // A word such as `api_error` may say less than the message.
        let known = known.filter(|error| !(error.retryable && says(&PERMANENT_PHRASES)));
        known
            .or_else(|| says(&CREDIT_PHRASES).then(no_credit))
            .or_else(|| says(&REASONING_PHRASES).then(reasoning_refused))
            .or_else(|| (says(&TOO_LONG_PHRASES) && !says(&RATE_PHRASES)).then(too_long))
    }
}

/// How long to wait, where only the message says it, as in `4m12.5s`, `11.054s` or `35 seconds`: in a stream there are no
/// headers.
fn try_again_in(message: &str) -> Option<Duration> {
    let (_, mut rest) = message.split_once("try again in ")?;
    let mut seconds = 0.0;
    let mut is_known = false;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(count) = rest[..digits].trim_end_matches('.').parse::<f64>() else { break };
        let unit = rest[digits..].trim_start();
        let (factor, length) = match () {
            () if unit.starts_with("ms") => (0.001, 2),
            () if unit.starts_with('m') => (60.0, 1),
            () if unit.starts_with('h') => (3600.0, 1),
            () => (1.0, usize::from(unit.starts_with('s'))),
        };
        (seconds, is_known) = (seconds + count * factor, true);
        rest = &unit[length..];
    }
    is_known.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Takes the key out of a provider's words, however it is written there.
pub(super) fn without_key(mut error: ModelError, key: Option<&Secret>) -> ModelError {
    if let (Some(key), Some(detail)) = (key.map(Secret::reveal), &mut error.detail) {
        let ProviderErrorDetail { status: _, kind, code, param, message, request_id } = detail.as_mut();
        for text in [kind, code, param, message, request_id].into_iter().flatten() {
            *text = without_secret(text, key, "[the key]");
        }
    }
    error
}

/// The error that a stream reports, if this is one: with the member `error`, or called an error.
pub(super) fn stream_error(data: &str) -> Option<ModelError> {
    let body: Value = serde_json::from_str(data).ok()?;
    let has_error = body.get("error").is_some_and(|error| !error.is_null());
    if !has_error && body["object"] != "error" && body["type"] != "error" {
        return None;
    }
    Some(reported(&body))
}

/// The error in a body, of which it is known that it is one.
pub(super) fn reported(body: &Value) -> ModelError {
    let body = ProviderErrorBody::of(body);
    let error = body.meaning().unwrap_or_else(malformed_response);
    ModelError { detail: Some(Box::new(body.detail())), ..error }
}

/// A text of the other side for the owner: one line, bounded, without what looks like a secret.
fn redacted(text: &str, limit: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_matches(|c: char| c.is_whitespace() || "\"'`.,:;()[]{}<>".contains(c));
        match secret::SecretKind::of(bare) {
            Some(kind) => word.replace(bare, &format!("[{kind}]")),
            None => word.to_owned(),
        }
    });
    let text: String = words.collect();
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The stream does not follow the provider's format.
pub(super) fn malformed_response() -> ModelError {
    ModelError::new(ErrorKind::Protocol, "The model provider sent what no answer of a model looks like.").as_retryable()
}

fn auth() -> ModelError {
    ModelError::new(
        ErrorKind::Auth,
        "The model provider refused the owner's credential. The owner has to renew it on the device.",
    )
}

fn no_credit() -> ModelError {
    ModelError::new(
        ErrorKind::Auth,
        "The account at the model provider has no credit left. The owner has to see to it.",
    )
}

fn no_such_model() -> ModelError {
    ModelError::new(ErrorKind::Model, "The model provider has no such model, or not at this address.")
}

fn declined() -> ModelError {
    ModelError::new(ErrorKind::Model, "The model provider's content filter declined the request.")
}

fn reasoning_refused() -> ModelError {
    ModelError::new(ErrorKind::Reasoning, "The model provider did not take back the reasoning that it had given.")
}

fn too_long() -> ModelError {
    ModelError::new(ErrorKind::TooLong, "The request is too large for this model. Ask for less.")
}

pub(super) fn overloaded() -> ModelError {
    ModelError::new(ErrorKind::Overloaded, "The model provider is busy or has trouble of its own.").as_retryable()
}

/// The connection failed, before or in the middle of an answer.
pub(super) fn unreachable(error: &reqwest::Error) -> ModelError {
    if let Some(why) = deskgate_outbound::certificate_problem(error) {
        let message = format!("The model provider's certificate is not trusted: {why}.");
        return ModelError::new(ErrorKind::Unreachable, &message).as_retryable();
    }
    let message = match () {
        () if error.is_timeout() => "The model provider did not answer in time.",
        () if error.is_connect() => "The model provider could not be reached.",
        () if error.is_builder() => {
            return ModelError::new(ErrorKind::Model, "The model provider's API base URL cannot be used.");
        }
        () => "The connection to the model provider broke off.",
    };
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let why = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let detail = ProviderErrorDetail { message: (!why.is_empty()).then_some(why), ..Default::default() };
    ModelError { detail: Some(Box::new(detail)), ..ModelError::new(ErrorKind::Unreachable, message).as_retryable() }
}

/// The error for an answer that is no stream.
pub(super) async fn refused(mut response: Response, key: Option<&Secret>) -> ModelError {
    let status = response.status();
    let pause = retry_after(response.headers(), SystemTime::now());
    let may_retry = header(response.headers(), "x-should-retry").and_then(|word| word.parse::<bool>().ok());
    let request_id = ["request-id", "x-request-id", "apim-request-id"]
        .into_iter()
        .find_map(|name| header(response.headers(), name))
        .map(|id| redacted(id, MAX_WORD_CHARS));
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await
        && body.len() < MAX_ERROR_BODY_BYTES
    {
        body.extend_from_slice(&bytes);
    }
    let written = match serde_json::from_slice::<Value>(&body) {
        Ok(json) => ProviderErrorBody::of(&json),
        // A proxy's page: its beginning says what it is.
        Err(_) => ProviderErrorBody {
            message: Some(String::from_utf8_lossy(&body).trim().to_owned()).filter(|text| !text.is_empty()),
            ..ProviderErrorBody::default()
        },
    };
    let error = match status {
        // What is spent does not come back by waiting, whatever the body calls it; what is reserved does.
        StatusCode::PAYMENT_REQUIRED => Some(if pause.is_some() { overloaded() } else { no_credit() }),
        _ => written.meaning(),
    };
    let is_permanent = || {
        let message = written.message.as_deref().unwrap_or_default();
        PERMANENT_PHRASES.iter().any(|phrase| message.contains(phrase))
    };
    let error = error.or_else(|| by_status(status).filter(|error| !(error.retryable && is_permanent())));
    let error = error.unwrap_or_else(|| match status.is_success() {
        true => ModelError::new(ErrorKind::Model, "What answers at the model provider's API base URL is no model."),
        false => ModelError::new(
            ErrorKind::Model,
            &format!("The model provider did not take the request (HTTP {}).", status.as_u16()),
        ),
    });
    let detail = ProviderErrorDetail { status: Some(status.as_u16()), request_id, ..written.detail() };
    let retryable = error.retryable && may_retry != Some(false);
    let error = ModelError {
        retryable,
        retry_after: retryable.then_some(pause.or(error.retry_after)).flatten(),
        detail: Some(Box::new(detail)),
        ..error
    };
    without_key(error, key)
}

/// What a status means, if it says anything.
fn by_status(status: StatusCode) -> Option<ModelError> {
    Some(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => auth(),
        StatusCode::PAYMENT_REQUIRED => no_credit(),
        StatusCode::NOT_FOUND => no_such_model(),
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            overloaded()
        }
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => return None,
        _ if status.is_server_error() => overloaded(),
        _ => return None,
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// How long a provider asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, section
/// 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let milliseconds = text(&RETRY_AFTER_MS).and_then(|text| text.parse::<f64>().ok());
    if let Some(pause) = milliseconds.and_then(|value| Duration::try_from_secs_f64(value / 1000.0).ok()) {
        return Some(pause);
    }
    let text = text(&RETRY_AFTER)?;
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pause_is_understood_in_every_form() {
        let now = httpdate::parse_http_date("Mon, 23 Nov 2026 12:00:00 GMT").expect("a date");
        for (name, value, pause) in [
            ("retry-after", "7", Some(7_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after-ms", "1500", Some(1_500)),
            ("retry-after", "Mon, 23 Nov 2026 12:00:30 GMT", Some(30_000)),
            ("retry-after", "Mon, 23 Nov 2026 11:00:00 GMT", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after", "1e400", None),
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().expect("a header"))]);
            assert_eq!(retry_after(&headers, now), pause.map(Duration::from_millis), "{name}: {value}");
        }
    }

    #[test]
    fn a_pause_in_a_message_is_understood() {
        for (message, milliseconds) in [
            ("please try again in 11.054s. visit", Some(11_054)),
            ("try again in 4m12.5s.", Some(252_500)),
            ("try again in 35 seconds.", Some(35_000)),
            ("try again in 20ms", Some(20)),
            ("try again in a while", None),
            ("later", None),
        ] {
            assert_eq!(try_again_in(message), milliseconds.map(Duration::from_millis), "{message}");
        }
    }

    #[test]
    fn an_error_in_a_stream_is_understood_by_word_or_number() {
        for (data, kind, retryable) in [
            (r#"{"error":{"code":502,"message":"Provider returned error"}}"#, ErrorKind::Overloaded, true),
            (r#"{"error":{"code":"429","message":"x"}}"#, ErrorKind::Overloaded, true),
            (r#"{"error":{"code":401,"message":"x"}}"#, ErrorKind::Auth, false),
            (r#"{"object":"error","message":"This model's maximum context length is 8"}"#, ErrorKind::TooLong, false),
            (r#"{"type":"error","error":{"type":"overloaded_error"}}"#, ErrorKind::Overloaded, true),
            (r#"{"error":"out of order"}"#, ErrorKind::Protocol, true),
        ] {
            let error = stream_error(data).expect(data);
            assert_eq!((error.kind, error.retryable), (kind, retryable), "{data}");
        }
        assert!(stream_error(r#"{"choices":[],"error":null}"#).is_none());
    }

    #[test]
    fn the_owner_reads_the_providers_words_without_the_key() {
        let key = Secret::new("canary-4711").expect("a key");
        for (body, shown) in [
            (
                json!({ "error": { "message": "Bad canary-4711.", "type": "invalid_request_error", "code": "bad",
                    "param": "tools" } }),
                "invalid_request_error, bad, parameter tools: Bad [the key].",
            ),
            (
                json!([{ "error": { "code": 400, "message": "No.", "status": "INVALID_ARGUMENT" } }]),
                "INVALID_ARGUMENT, 400: No.",
            ),
            (json!({ "object": "error", "message": "No.", "type": "invalid" }), "invalid: No."),
            (
                json!({ "detail": [{ "loc": ["body", "x"], "msg": "Extra" }] }),
                "[{\"loc\":[\"body\",\"x\"],\"msg\":\"Extra\"}]",
            ),
            (json!({ "error": "no" }), "no"),
            (
                json!({ "error": { "code": 400, "message": "Provider returned error", "metadata": { "raw": "why" } } }),
                "400: Provider returned error: why",
            ),
            (json!(7), ""),
        ] {
            let error = without_key(reported(&body), Some(&key));
            assert_eq!(error.detail.expect("kept").to_string(), shown, "{body}");
        }
        let key = Secret::new("canary/47+11\"").expect("a key");
        let place = "https://x.example/?key=canary%2F47%2B11%22&a=b";
        let behind = json!({ "key": key.reveal() }).to_string();
        let body = json!({ "error": { "message": format!("No: {place}"), "metadata": { "raw": behind } } });
        let error = without_key(reported(&body), Some(&key));
        let shown = "No: https://x.example/?key=[the key]&a=b: {\"key\":\"[the key]\"}";
        assert_eq!(error.detail.expect("kept").to_string(), shown);
        let long = json!({ "error": { "message": format!("{}{}", "x".repeat(MAX_MESSAGE_CHARS - 10), key.reveal()) } });
        let error = without_key(reported(&long), Some(&key)).detail.expect("kept").to_string();
        assert!(error.ends_with("x[the key]"), "one that is cut off is taken out too: {error}");
        let long = json!({ "error": { "message": "x".repeat(10_000) } });
        let detail = ProviderErrorBody::of(&long).detail();
        assert_eq!(detail.message.map(|text| text.chars().count()), Some(MAX_MESSAGE_CHARS + 1));
    }
}
