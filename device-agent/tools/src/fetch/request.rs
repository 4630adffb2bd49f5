//! Asks for a page: redirects on the same host are followed, everything is bounded, and the body is unpacked.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use deskgate_outbound::public::{PublicResolver, public_builder};
use deskgate_program::public_hosts::lookup::{LookupError, PublicLookup};
use deskgate_program::public_hosts::{HttpsUrl, InvalidUrl};
use flate2::read::MultiGzDecoder;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Client, ClientBuilder, Response, Url};
use tokio::time::timeout;

use super::content::{PageKind, PageType};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// What is liked best of what can be read.
const ACCEPTED_TYPES: &str = "text/markdown, text/html;q=0.9, text/plain;q=0.9, application/json;q=0.9, */*;q=0.1";

/// How long a request may take, and how much a page may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchLimits {
    /// To connect: the look-up and TLS included.
    pub(super) connect: Duration,
    /// For everything, redirects included.
    pub(super) all: Duration,
    /// Bytes of the body that are read, and of the unpacked body that are kept.
    pub(super) body_bytes: usize,
}

/// The limits of every request.
pub(super) const FETCH_LIMITS: FetchLimits =
    FetchLimits { connect: Duration::from_secs(10), all: Duration::from_secs(30), body_bytes: 5 * 1024 * 1024 };

/// What came of a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// A page, with its body as it came.
    Page(RawPage),
    /// The host sends the reader to another one.
    Elsewhere(HttpsUrl),
}

/// A page as its server sent it.
#[derive(Debug)]
pub(super) struct RawPage {
    /// Where it was found, after redirects.
    pub(super) url: HttpsUrl,
    pub(super) status: u16,
    pub(super) page_type: PageType,
    body: Vec<u8>,
    is_packed: bool,
    /// Whether the body went on.
    is_cut: bool,
    limit: usize,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}: only names whose every address belongs to the public Internet can be fetched, and nothing was sent")]
    Lookup(LookupError),
    #[error("the host could not be reached within {} s", .0.as_secs())]
    Connect(Duration),
    #[error("the host did not send the page within {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("the request failed: {0}")]
    Failed(String),
    #[error("the page broke off before its end: {0}")]
    BrokeOff(String),
    #[error("it redirects more than {MAX_REDIRECTS} times")]
    Redirects,
    #[error("it redirects to {to}, which Fetch does not open: {why}")]
    Redirect { to: String, why: InvalidUrl },
    #[error("this is {name} ({size}) and no text: Fetch reads HTML, plain text, Markdown, JSON, XML and CSV")]
    NotText { name: String, size: String },
    #[error("it was sent in the encoding {0}, for which Fetch did not ask")]
    Encoding(String),
    #[error("it was sent compressed, and cannot be unpacked")]
    Damaged,
    #[error("no page can be fetched on this computer: {0}")]
    Unavailable(String),
}

/// Asks hosts for pages.
pub(super) struct Web {
    client: Result<Client, String>,
    limits: FetchLimits,
}

impl Web {
    /// By the system's resolver, and with the authorities that this computer trusts. Reads their certificates.
    pub(super) fn of_the_system() -> Self {
        let resolver = PublicResolver::new(PublicLookup::of_the_system());
        Self::with(public_builder(resolver), FETCH_LIMITS)
    }

    /// By these settings and limits.
    pub(super) fn with(settings: ClientBuilder, limits: FetchLimits) -> Self {
        let client = settings.connect_timeout(limits.connect).build();
        Self { client: client.map_err(|error| innermost(&error)), limits }
    }

    /// Whether a request could be made.
    ///
    /// # Errors
    /// The client could not be made, such as without certificates of authorities.
    pub(super) fn ready(&self) -> Result<(), FetchError> {
        self.client().map(drop)
    }

    /// Asks for a page.
    ///
    /// # Errors
    /// There is no page, or none that can be read.
    pub(super) async fn get(&self, url: HttpsUrl) -> Result<Answer, FetchError> {
        let all = self.limits.all;
        timeout(all, self.follow(url)).await.unwrap_or(Err(FetchError::TooSlow(all)))
    }

    fn client(&self) -> Result<&Client, FetchError> {
        self.client.as_ref().map_err(|why| FetchError::Unavailable(why.clone()))
    }

    async fn follow(&self, mut url: HttpsUrl) -> Result<Answer, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let request = self.client()?.get(url.as_url().clone());
            let request = request.header(ACCEPT, ACCEPTED_TYPES).header(ACCEPT_ENCODING, "gzip");
            let response = request.send().await.map_err(|error| self.unsent(&error))?;
            match target(&response, &url)? {
                None => return self.read(url, response).await.map(Answer::Page),
                Some(next) if next.host() == url.host() => url = next,
                Some(next) => return Ok(Answer::Elsewhere(next)),
            }
        }
        Err(FetchError::Redirects)
    }

    async fn read(&self, url: HttpsUrl, mut response: Response) -> Result<RawPage, FetchError> {
        let status = response.status().as_u16();
        let page_type = PageType::parse(&text_of(response.headers(), CONTENT_TYPE));
        if page_type.kind() == PageKind::Other {
            let size = response.content_length().map_or("size unknown".to_owned(), |bytes| format!("{bytes} bytes"));
            return Err(FetchError::NotText { name: page_type.name, size });
        }
        let is_packed = match text_of(response.headers(), CONTENT_ENCODING).to_ascii_lowercase().as_str() {
            "" | "identity" => false,
            "gzip" | "x-gzip" => true,
            other => return Err(FetchError::Encoding(shown(other))),
        };
        let limit = self.limits.body_bytes;
        let (mut body, mut is_cut) = (Vec::new(), false);
        while !is_cut && let Some(piece) = response.chunk().await.map_err(|error| broken_off(&error))? {
            let room = limit - body.len();
            is_cut = piece.len() > room;
            body.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Ok(RawPage { url, status, page_type, body, is_packed, is_cut, limit })
    }

    /// Why a request got no answer.
    fn unsent(&self, error: &reqwest::Error) -> FetchError {
        let cause = |error: &(dyn std::error::Error + 'static)| error.downcast_ref::<LookupError>().copied();
        match causes(error).find_map(cause) {
            Some(lookup) => FetchError::Lookup(lookup),
            None if error.is_timeout() => FetchError::Connect(self.limits.connect),
            None => FetchError::Failed(innermost(error)),
        }
    }
}

impl RawPage {
    /// The unpacked body, and whether its end is missing. Works for as long as it has bytes: not for an asynchronous task.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn unpacked(&self) -> Result<(Cow<'_, [u8]>, bool), FetchError> {
        if !self.is_packed {
            return Ok((self.body.as_slice().into(), self.is_cut));
        }
        let mut body = Vec::new();
        let limit = u64::try_from(self.limit).unwrap_or(u64::MAX).saturating_add(1);
        let read = MultiGzDecoder::new(self.body.as_slice()).take(limit).read_to_end(&mut body);
        if read.is_err() && !self.is_cut {
            return Err(FetchError::Damaged);
        }
        let is_larger = body.len() > self.limit;
        body.truncate(self.limit);
        Ok((body.into(), self.is_cut || is_larger))
    }
}

/// Where an answer sends the reader; `None`: nowhere.
fn target(response: &Response, from: &HttpsUrl) -> Result<Option<HttpsUrl>, FetchError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) || !response.headers().contains_key(LOCATION)
    {
        return Ok(None);
    }
    let location = text_of(response.headers(), LOCATION);
    let refused = |why| FetchError::Redirect { to: shown(&location), why };
    // One with a scheme is judged as it was written.
    let whole = match (Url::parse(&location), from.as_url().join(&location)) {
        (Ok(_), _) => HttpsUrl::parse(&location),
        (Err(_), Ok(joined)) => HttpsUrl::parse(joined.as_str()),
        (Err(_), Err(_)) => Err(InvalidUrl::Malformed),
    };
    whole.map(|next| Some(next.without_fragment())).map_err(refused)
}

/// A header as text; empty if there is none.
fn text_of(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).unwrap_or_default()
}

/// Foreign text in a sentence: one short line.
fn shown(text: &str) -> String {
    crate::engine::display::visible(&crate::engine::display::line(text, 200))
}

fn broken_off(error: &reqwest::Error) -> FetchError {
    FetchError::BrokeOff(innermost(error))
}

/// An error and what it was caused by.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The first cause of an error, in its own words.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    shown(&causes(error).last().map(ToString::to_string).unwrap_or_default())
}
