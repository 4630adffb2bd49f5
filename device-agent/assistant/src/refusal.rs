//! A provider's error: its meaning for callers, and its own words for the owner of the device.
//!
//! What callers read is written here, and repeats nothing of the other side's text, which may hold the key or the
//! prompt. The owner's part keeps the provider's words, with the key taken out.

use std::time::{Duration, SystemTime};

use deskgate_definition::ProviderErrorDetail;
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
const REASONING_PHRASES: [&str; 3] = [
    "invalid `signature` in `thinking` block",
    "blocks in the latest assistant message cannot be modified",
    "encrypted content",
];

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

    /// The words for the owner, without the key.
    pub(super) fn detail(&self, key: Option<&Secret>) -> ProviderErrorDetail {
        let short = |text: &Option<String>, limit| text.as_ref().map(|text| redacted(text, key, limit));
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
        known
            .or_else(|| says(&REASONING_PHRASES).then(reasoning_refused))
            .or_else(|| (says(&TOO_LONG_PHRASES) && !says(&RATE_PHRASES)).then(too_long))
    }
}

/// How long to wait, where only the message says it: in a stream there are no headers.
fn try_again_in(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let count: f64 = rest[..digits].trim_end_matches('.').parse().ok()?;
    let seconds = if rest[digits..].trim_start().starts_with("ms") { count / 1000.0 } else { count };
    Duration::try_from_secs_f64(seconds).ok()
}

/// A text of the other side for the owner: one line, bounded, without the key and without what looks like a secret.
fn redacted(text: &str, key: Option<&Secret>, limit: usize) -> String {
    let text = match key.map(Secret::reveal).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "[the key]"),
        None => text.to_owned(),
    };
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

fn overloaded() -> ModelError {
    ModelError::new(ErrorKind::Overloaded, "The model provider is busy or has trouble of its own.").as_retryable()
}

/// The connection failed, before or in the middle of an answer.
pub(super) fn unreachable(error: &reqwest::Error) -> ModelError {
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
        .map(|id| redacted(id, key, MAX_WORD_CHARS));
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
    let error = written.meaning().unwrap_or_else(|| match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => auth(),
        StatusCode::PAYMENT_REQUIRED => no_credit(),
        StatusCode::NOT_FOUND => no_such_model(),
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            overloaded()
        }
        _ if status.is_server_error() => overloaded(),
        _ => ModelError::new(
            ErrorKind::Model,
            &format!("The model provider did not take the request (HTTP {}).", status.as_u16()),
        ),
    });
    let detail = ProviderErrorDetail { status: Some(status.as_u16()), request_id, ..written.detail(key) };
    let retryable = error.retryable && may_retry != Some(false);
    ModelError {
        retryable,
        retry_after: retryable.then_some(pause.or(error.retry_after)).flatten(),
        detail: Some(Box::new(detail)),
        ..error
    }
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
            assert_eq!(ProviderErrorBody::of(&body).detail(Some(&key)).to_string(), shown, "{body}");
        }
        let long = json!({ "error": { "message": "x".repeat(10_000) } });
        let detail = ProviderErrorBody::of(&long).detail(None);
        assert_eq!(detail.message.map(|text| text.chars().count()), Some(MAX_MESSAGE_CHARS + 1));
    }
}
