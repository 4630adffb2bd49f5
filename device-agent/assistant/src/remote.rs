//! A model on a server: one HTTPS request, one stream of server-sent events.
//!
//! The code that all providers share; a format is a [`Dialect`], and what differs between vendors is their profile.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deskgate_definition::{Definition, ModelReads, ReasoningSummaries};
use deskgate_outbound::{Clients, Reach};
use deskgate_secrets::Secret;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};

use super::dialect::chat::Chat;
use super::dialect::messages::{DEFAULT_MAX_TOKENS, Messages};
use super::dialect::responses::Responses;
use super::dialect::{Dialect, ModelOptions};
use super::prices::{self, Prices};
use super::profile::{Api, KeyHeader, Profile, Thinking};
use super::providers::ProviderError;
use super::refusal::{malformed_response, refused, unreachable, without_key};
use super::sse::{SseError, SseReader};
use super::{Assistant, ModelError, ModelEvent, ModelFacts, ModelRequest};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence: a model may think for long before its first word; such providers send keepalive events
/// meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(600);

/// The clients that all calls share.
static CLIENTS: Clients = Clients::new(|builder| builder.connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT));

/// A provider's address and key.
#[derive(Clone, Debug)]
pub(super) struct ProviderAccess {
    pub profile: &'static Profile,
    pub api: Api,
    /// Such as `https://api.anthropic.com`; without a trailing slash.
    pub base_url: String,
    /// The version of the API in the address (`api-version`), where the profile has one.
    pub api_version: Option<String>,
    /// Plain HTTP may go to an address of the own network.
    pub plain_http: bool,
    /// `None` for a server without keys, such as one on this computer.
    pub key: Option<Secret>,
    /// The file with the owner's prices.
    pub price_table: PathBuf,
}

impl ProviderAccess {
    /// The address of a path after the base URL.
    ///
    /// # Errors
    /// The address is no URL.
    pub(super) fn url(&self, path: &str) -> Result<Url, ProviderError> {
        let wrong = |_| ProviderError::BaseUrl(self.base_url.clone(), "it is no URL");
        let mut url = Url::parse(&format!("{}{path}", self.base_url)).map_err(wrong)?;
        if let Some(version) = &self.api_version {
            url.query_pairs_mut().append_pair("api-version", version);
        }
        Ok(url)
    }

    /// The owner's price of a definition's model.
    fn own_price(&self, definition: &Definition) -> Result<Option<Prices>, ProviderError> {
        let found = prices::own_price(&self.price_table, &definition.provider.to_string(), &definition.model);
        found.map_err(|why| ProviderError::PriceTable(self.price_table.clone(), why))
    }

    /// The client for an address of this provider.
    pub(super) fn client(&self, url: &Url) -> Client {
        let reach = if self.plain_http { Reach::OwnNetwork } else { Reach::Guarded };
        CLIENTS.reaching(url, reach).clone()
    }

    /// The headers with the key and the version of the format.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.api == Api::Messages {
            headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        }
        let Some(key) = &self.key else { return headers };
        let (name, value) = match self.profile.key_header {
            KeyHeader::Bearer => {
                (AUTHORIZATION, HeaderValue::from_str(&zeroize::Zeroizing::new(format!("Bearer {}", key.reveal()))))
            }
            KeyHeader::XApiKey => (HeaderName::from_static("x-api-key"), HeaderValue::from_str(key.reveal())),
            KeyHeader::ApiKey => (HeaderName::from_static("api-key"), HeaderValue::from_str(key.reveal())),
        };
        if let Ok(mut value) = value {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers
    }
}

/// A model of a provider.
#[derive(Debug)]
pub(super) struct RemoteModel {
    client: Client,
    access: ProviderAccess,
    url: Url,
    options: ModelOptions,
    reads: ModelReads,
    prices: Option<Prices>,
    leaves_out: Arc<LeftOut>,
}

/// What a provider refused in this run, and is not sent again.
#[derive(Debug, Default)]
struct LeftOut {
    /// Summaries of reasoning: some accounts have to be verified first.
    summaries: AtomicBool,
    /// Everything about reasoning: the model does not reason.
    reasoning: AtomicBool,
}

impl LeftOut {
    /// Notes what a refusal is about. The same call then succeeds without it.
    fn note(&self, error: ModelError) -> ModelError {
        let Some(detail) = &error.detail else { return error };
        let says = |phrase: &str| detail.message.as_ref().is_some_and(|message| message.contains(phrase));
        let refused = match detail.param.as_deref() {
            Some("reasoning.summary") => &self.summaries,
            Some("include") => &self.reasoning,
            _ if says("Encrypted content is not supported") => &self.reasoning,
            _ => return error,
        };
        match refused.swap(true, Ordering::Relaxed) {
            true => error,
            false => error.as_retryable(),
        }
    }

    /// The options without it.
    fn without(&self, options: &ModelOptions) -> ModelOptions {
        let mut options = options.clone();
        if self.summaries.load(Ordering::Relaxed) {
            options.reasoning.summaries = ReasoningSummaries::Off;
        }
        options.reasons &= !self.reasoning.load(Ordering::Relaxed);
        options
    }
}

impl RemoteModel {
    /// Opens the model that a definition names.
    ///
    /// # Errors
    /// The provider's address is no URL.
    pub(super) fn open(access: ProviderAccess, definition: &Definition) -> Result<Self, ProviderError> {
        let entry = access.profile.model(&definition.model);
        let window = definition.context_tokens(entry.and_then(|entry| entry.context_tokens));
        let options = ModelOptions {
            model: definition.model.clone(),
            profile: access.profile,
            entry,
            reasons: entry.is_none_or(|entry| entry.reasons),
            // Where the model's own limit is unknown: servers refuse one that their window does not hold.
            max_output_tokens: entry.and_then(|entry| entry.max_output_tokens).or(window.map(|window| window / 4)),
            reasoning: definition.reasoning,
            cache_key: definition.digest().to_string().chars().take(32).collect(),
        };
        let url = access.url(&access.profile.path(access.api, &definition.model))?;
        let known = entry.and_then(|entry| entry.reads).unwrap_or(access.profile.reads);
        let reads = definition.model_reads.unwrap_or(known);
        let prices = access.own_price(definition)?.or(entry.and_then(|entry| entry.usd_per_million_tokens));
        Ok(Self { client: access.client(&url), access, url, options, reads, prices, leaves_out: Arc::default() })
    }

    fn call<D: Dialect>(&self, request: &ModelRequest) -> BoxStream<'static, ModelEvent> {
        let asked = self.client.post(self.url.clone()).headers(self.access.headers());
        let asked = asked.json(&D::body(&self.leaves_out.without(&self.options), request));
        let call = ModelCall {
            state: CallState::Requesting(asked, D::new(&self.options)),
            events: VecDeque::new(),
            leaves_out: Arc::clone(&self.leaves_out),
            key: self.access.key.clone(),
            dialect: PhantomData,
        };
        stream::unfold(call, |mut call| async { Some((call.next().await?, call)) }).boxed()
    }
}

impl Assistant for RemoteModel {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        match self.access.api {
            Api::Responses => self.call::<Responses>(&request),
            Api::Chat => self.call::<Chat>(&request),
            Api::Messages => self.call::<Messages>(&request),
        }
    }

    fn facts(&self) -> ModelFacts {
        let entry = self.options.entry;
        let form = entry.and_then(|entry| entry.thinking).unwrap_or(Thinking::Adaptive);
        ModelFacts {
            context_tokens: entry.and_then(|entry| entry.context_tokens),
            max_output_tokens: entry.and_then(|entry| entry.max_output_tokens).or(match self.access.api {
                // It has to be asked for.
                Api::Messages => Some(DEFAULT_MAX_TOKENS),
                Api::Responses | Api::Chat => None,
            }),
            reads: self.reads,
            prices: self.prices,
            reasoning_is_bound: self.access.api == Api::Messages && form == Thinking::Adaptive,
        }
    }
}

/// Whether an answer is a document of its own: an error, or a page of something else at this address. Servers do not
/// always say that a stream is one.
fn is_document(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ["application/json", "text/html"].iter().any(|document| kind.starts_with(document))
}

struct ModelCall<D> {
    state: CallState<D>,
    events: VecDeque<ModelEvent>,
    leaves_out: Arc<LeftOut>,
    /// Taken out of the provider's words.
    key: Option<Secret>,
    dialect: PhantomData<fn() -> D>,
}

enum CallState<D> {
    Requesting(reqwest::RequestBuilder, D),
    Streaming { response: Response, reader: SseReader, dialect: D },
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
                let error = self.leaves_out.note(without_key(error, self.key.as_ref()));
                self.events.push_back(ModelEvent::Error(error));
            }
        }
    }

    /// Reads one step of the stream; `None` when the call is over.
    async fn go_on(&mut self) -> Option<Result<(), ModelError>> {
        match std::mem::replace(&mut self.state, CallState::Done) {
            CallState::Done => None,
            CallState::Requesting(request, dialect) => Some(match request.send().await {
                Ok(response) if response.status() == StatusCode::OK && !is_document(&response) => {
                    self.state = CallState::Streaming { response, reader: SseReader::default(), dialect };
                    self.events.push_back(ModelEvent::Progress(0));
                    Ok(())
                }
                Ok(response) => Err(refused(response, self.key.as_ref()).await),
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
                let before = dialect.received_bytes();
                let mut is_seen = true;
                for event in events {
                    match dialect.on(&event) {
                        Ok(meant) => {
                            is_seen &= !meant.is_empty();
                            self.events.extend(meant);
                        }
                        Err(error) => return Some(Err(error)),
                    }
                }
                let received = dialect.received_bytes();
                if received > before && !is_seen {
                    self.events.push_back(ModelEvent::Progress(received));
                }
                self.state = CallState::Streaming { response, reader, dialect };
                Some(Ok(()))
            }
        }
    }
}
