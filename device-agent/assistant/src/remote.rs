//! A model on a server: one HTTPS request, one stream of server-sent events.
//!
//! The code that all providers share; the format of one provider is its [`Dialect`]. Errors never repeat the other
//! side's text: it may hold the key or the prompt.

use std::collections::VecDeque;
use std::time::Duration;

use deskgate_secrets::Secret;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::sse::{self, SseError};
use super::{Assistant, ErrorKind, ModelError, ModelEvent, ModelRequest};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: a model may think for long before its first word; such providers send keepalive events
/// meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
/// How many bytes of an error's body are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// A provider's address and key.
#[derive(Clone, Debug)]
pub(super) struct ProviderAccess {
    /// Such as `https://api.anthropic.com`; without a trailing slash.
    pub base_url: String,
    /// `None` for a server without keys, such as one on this computer.
    pub key: Option<Secret>,
}

/// The format of one provider.
pub(super) trait Dialect: Default + Send + 'static {
    /// The path after the base URL.
    const URL_PATH: &'static str;

    /// The headers with the key and the API's version.
    fn headers(key: Option<&Secret>) -> HeaderMap;

    /// The body of a request.
    fn body(model: &str, request: &ModelRequest) -> Value;

    /// Takes one event of the stream.
    fn on(&mut self, event: &sse::SseEvent) -> Result<Vec<ModelEvent>, ModelError>;

    /// The stream has ended. Returns the closing events if the answer is complete.
    fn closed(&mut self) -> Vec<ModelEvent> {
        Vec::new()
    }
}

/// A model of a provider.
#[derive(Debug)]
pub(super) struct RemoteModel<D> {
    client: Client,
    account: ProviderAccess,
    model: String,
    dialect: std::marker::PhantomData<fn() -> D>,
}

impl<D: Dialect> RemoteModel<D> {
    pub(super) fn new(client: Client, account: ProviderAccess, model: &str) -> Self {
        Self { client, account, model: model.to_owned(), dialect: std::marker::PhantomData }
    }
}

impl<D: Dialect> Assistant for RemoteModel<D> {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let asked = self
            .client
            .post(format!("{}{}", self.account.base_url, D::URL_PATH))
            .headers(D::headers(self.account.key.as_ref()))
            .json(&D::body(&self.model, &request));
        let call = ModelCall::<D> { state: CallState::Requesting(asked), events: VecDeque::new() };
        stream::unfold(call, |mut call| async { Some((call.next().await?, call)) }).boxed()
    }
}

/// The settings of the clients that all calls share.
pub(super) fn settings(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder.connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT)
}

struct ModelCall<D> {
    state: CallState<D>,
    events: VecDeque<ModelEvent>,
}

enum CallState<D> {
    Requesting(reqwest::RequestBuilder),
    Streaming { response: Response, reader: sse::SseReader, dialect: D },
    Done,
}

impl<D: Dialect> ModelCall<D> {
    async fn next(&mut self) -> Option<ModelEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if matches!(event, ModelEvent::End(_) | ModelEvent::Error(_)) {
                    (self.state, self.events) = (CallState::Done, VecDeque::new());
                }
                return Some(event);
            }
            if let Err(error) = self.go_on().await? {
                self.events.push_back(ModelEvent::Error(error));
            }
        }
    }

    /// Reads one step of the stream; `None` when the call is over.
    async fn go_on(&mut self) -> Option<Result<(), ModelError>> {
        match std::mem::replace(&mut self.state, CallState::Done) {
            CallState::Done => None,
            CallState::Requesting(request) => Some(match request.send().await {
                Ok(response) if response.status() == StatusCode::OK => {
                    let (reader, dialect) = (sse::SseReader::default(), D::default());
                    self.state = CallState::Streaming { response, reader, dialect };
                    Ok(())
                }
                Ok(response) => Err(refused(response).await),
                Err(error) => Err(unreachable(&error)),
            }),
            CallState::Streaming { mut response, mut reader, mut dialect } => {
                let bytes = match response.chunk().await {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => {
                        self.events.extend(dialect.closed());
                        return Some(Ok(()));
                    }
                    Err(error) => return Some(Err(unreachable(&error))),
                };
                let events = match reader.read(&bytes) {
                    Ok(events) => events,
                    Err(SseError::TooLarge | SseError::NotText) => return Some(Err(malformed_response())),
                };
                for event in events {
                    match dialect.on(&event) {
                        Ok(meant) => self.events.extend(meant),
                        Err(error) => return Some(Err(error)),
                    }
                }
                self.state = CallState::Streaming { response, reader, dialect };
                Some(Ok(()))
            }
        }
    }
}

/// A key as a header's value that logs do not show.
pub(super) fn header(key: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(key.reveal()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The same with the prefix `Bearer` (RFC 6750).
pub(super) fn bearer(key: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&zeroize::Zeroizing::new(format!("Bearer {}", key.reveal()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The connection failed, before or in the middle of an answer.
fn unreachable(error: &reqwest::Error) -> ModelError {
    let message = match () {
        () if error.is_timeout() => "The model provider did not answer in time.",
        () if error.is_connect() => "The model provider could not be reached.",
        () if error.is_builder() => {
            return ModelError::new(ErrorKind::Model, "The model provider's API base URL cannot be used.");
        }
        () => "The connection to the model provider broke off.",
    };
    ModelError::new(ErrorKind::Protocol, message).as_retryable()
}

/// The stream does not follow the provider's format.
pub(super) fn malformed_response() -> ModelError {
    ModelError::new(ErrorKind::Protocol, "The model provider sent what no answer of a model looks like.").as_retryable()
}

/// Phrases for a conversation that is longer than the model takes, where there is no code for it: Anthropic, and
/// servers with OpenAI's API.
const TOO_LONG_PHRASES: [&str; 2] = ["prompt is too long", "maximum context length"];

/// An error as both providers write it. Only known words are passed on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderErrorBody {
    error: ProviderErrorDetail,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProviderErrorDetail {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<Value>,
    /// Examined, never passed on.
    message: Option<Value>,
}

impl ProviderErrorBody {
    /// What is wrong, as far as the provider's words are known.
    pub(super) fn meaning(&self) -> Option<ModelError> {
        let message = self.error.message.as_ref().and_then(Value::as_str).unwrap_or_default();
        if TOO_LONG_PHRASES.iter().any(|words| message.contains(words)) {
            return Some(too_long());
        }
        let code = self.error.code.as_ref().and_then(Value::as_str);
        [code, self.error.kind.as_deref()].into_iter().flatten().find_map(|word| {
            Some(match word {
                "authentication_error" | "invalid_api_key" | "permission_error" => auth(),
                "insufficient_quota" | "billing_error" => ModelError::new(
                    ErrorKind::Auth,
                    "The account at the model provider has no credit left. The owner has to see to it.",
                ),
                "not_found_error" | "model_not_found" => no_such_model(),
                "context_length_exceeded" | "exceed_context_size_error" | "request_too_large" => too_long(),
                "rate_limit_error"
                | "rate_limit_exceeded"
                | "overloaded_error"
                | "api_error"
                | "server_error"
                | "timeout_error" => overloaded(),
                _ => return None,
            })
        })
    }
}

fn auth() -> ModelError {
    ModelError::new(
        ErrorKind::Auth,
        "The model provider refused the owner's credential. The owner has to renew it on the device.",
    )
}

fn no_such_model() -> ModelError {
    ModelError::new(ErrorKind::Model, "The model provider has no such model, or not at this address.")
}

fn too_long() -> ModelError {
    ModelError::new(ErrorKind::TooLong, "The request is too large for this model. Ask for less.")
}

fn overloaded() -> ModelError {
    ModelError::new(ErrorKind::Overloaded, "The model provider is busy or has trouble of its own.").as_retryable()
}

/// The error for an answer that is no stream.
async fn refused(mut response: Response) -> ModelError {
    let status = response.status();
    let pause = pause(response.headers());
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await
        && body.len() < MAX_ERROR_BODY_BYTES
    {
        body.extend_from_slice(&bytes);
    }
    let complaint: ProviderErrorBody = serde_json::from_slice(&body).unwrap_or_default();
    let error = complaint.meaning().unwrap_or_else(|| match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => auth(),
        StatusCode::PAYMENT_REQUIRED => ModelError::new(ErrorKind::Auth, "The model provider wants to be paid first."),
        StatusCode::NOT_FOUND => no_such_model(),
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => overloaded(),
        _ if status.is_server_error() => overloaded(),
        _ => ModelError::new(
            ErrorKind::Model,
            &format!("The model provider did not take the request (HTTP {}).", status.as_u16()),
        ),
    });
    ModelError { retry_after: error.retryable.then_some(pause).flatten(), ..error }
}

/// `Retry-After` in seconds (RFC 9110, section 10.2.3); providers send no dates.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
