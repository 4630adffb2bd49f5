//! Requests to issuers: bounded in size and time.

use std::time::Duration;

use deskgate_outbound::Clients;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OAuthError;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// The size limit of an answer, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// The longest name of a place in an error, in characters.
const MAX_PLACE_CHARS: usize = 200;

/// What is wrong with an answer that cannot be read.
const SENSELESS: &str = "its answer is not the one that belongs there";
/// What is wrong with an answer that is not read to its end.
const TOO_LONG: &str = "its answer is too long";

/// Asks issuers.
#[derive(Clone, Copy, Debug)]
pub struct IssuerClient<'a> {
    clients: &'a Clients,
    may_ask: fn(&Url) -> bool,
}

/// An issuer, or what names it, does not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} does not answer as it should: {why}")]
pub struct IssuerAway {
    /// The address that was asked, without its query.
    pub place: String,
    /// What failed.
    pub why: String,
}

/// What is at a place where a document may be.
#[derive(Debug)]
pub enum Lookup<T> {
    /// The document.
    Document(T),
    /// Nothing, or something else: what that is.
    Nothing(String),
}

/// The answer to a request that can be refused.
#[derive(Debug)]
pub enum IssuerResponse<T> {
    /// What was asked for.
    Granted(T),
    /// Why there is nothing.
    Refused(OAuthError),
}

impl IssuerAway {
    /// What is wrong at an address.
    pub fn new(url: &Url, why: &str) -> Self {
        Self::at(&place_of(url), why)
    }

    /// What is wrong at a place that may be no address.
    pub(super) fn at(place: &str, why: &str) -> Self {
        Self { place: shown(place), why: why.to_owned() }
    }

    fn of(url: &Url, error: &reqwest::Error) -> Self {
        Self::new(url, &cause(error))
    }

    fn of_status(url: &Url, status: StatusCode) -> Self {
        Self::new(url, &format!("status {}", status.as_u16()))
    }
}

impl<'a> IssuerClient<'a> {
    /// A client that asks only the addresses that `may_ask` allows.
    pub const fn new(clients: &'a Clients, may_ask: fn(&Url) -> bool) -> Self {
        Self { clients, may_ask }
    }

    pub(super) fn may_ask(&self, url: &Url) -> bool {
        (self.may_ask)(url)
    }

    /// The document at a place. A server that has none there need not answer with 404: some show a web page, or send
    /// everybody to one.
    ///
    /// # Errors
    /// The server does not answer in time, or it fails: what is there cannot be said.
    pub async fn document<T: DeserializeOwned>(&self, url: &Url) -> Result<Lookup<T>, IssuerAway> {
        let request = self.client(url)?.get(url.clone()).header("Accept", "application/json");
        let response = send(url, request).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let is_answer = is_refusal(status) || status.is_success() || status.is_redirection();
            let nothing = Lookup::Nothing(format!("status {}", status.as_u16()));
            return if is_answer { Ok(nothing) } else { Err(IssuerAway::of_status(url, status)) };
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_page = kind.trim_start().to_ascii_lowercase().starts_with("text/html");
        Ok(match body(url, response).await? {
            Some(body) => match serde_json::from_slice(&body) {
                Ok(document) => Lookup::Document(document),
                Err(_) if is_page => Lookup::Nothing("a web page".to_owned()),
                Err(_) => Lookup::Nothing(SENSELESS.to_owned()),
            },
            None => Lookup::Nothing(TOO_LONG.to_owned()),
        })
    }

    /// The first document that can be used of those at several places. `check` says why one cannot be used. Otherwise
    /// what is at each of them.
    ///
    /// # Errors
    /// As for [`IssuerClient::document`]. The places after it are not asked: what they have may not be meant to count.
    pub async fn first_document<T: DeserializeOwned>(
        &self,
        places: &[Url],
        check: impl Fn(&T) -> Result<(), &'static str>,
    ) -> Result<Lookup<(Url, T)>, IssuerAway> {
        let mut found = Vec::new();
        for place in places {
            let what = match self.document(place).await? {
                Lookup::Document(document) => match check(&document) {
                    Ok(()) => return Ok(Lookup::Document((place.clone(), document))),
                    Err(why) => why.to_owned(),
                },
                Lookup::Nothing(what) => what,
            };
            found.push(format!("{}: {what}", place_of(place)));
        }
        Ok(Lookup::Nothing(found.join("; ")))
    }

    /// Sends a form, as all of OAuth does.
    ///
    /// # Errors
    /// The issuer does not answer in time, or neither with what was asked for nor with a refusal.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        url: &Url,
        form: &[(&str, &str)],
    ) -> Result<IssuerResponse<T>, IssuerAway> {
        let answer = answered(url, self.posted(url, form)?.header("Accept", "application/json")).await?;
        Ok(match answer {
            IssuerResponse::Refused(refusal) => IssuerResponse::Refused(refusal.without_secrets(form)),
            granted => granted,
        })
    }

    /// Sends a document, as a registration does (RFC 7591).
    ///
    /// # Errors
    /// As for [`IssuerClient::ask`].
    pub async fn register<T: DeserializeOwned>(
        &self,
        url: &Url,
        document: &(impl Serialize + Sync),
    ) -> Result<IssuerResponse<T>, IssuerAway> {
        answered(url, self.client(url)?.post(url.clone()).header("Accept", "application/json").json(document)).await
    }

    /// Sends a form whose answer is only a confirmation (RFC 7009).
    ///
    /// # Errors
    /// The issuer does not answer in time, or does not confirm.
    pub async fn tell(&self, url: &Url, form: &[(&str, &str)]) -> Result<(), IssuerAway> {
        match send(url, self.posted(url, form)?).await?.status() {
            StatusCode::OK => Ok(()),
            status => Err(IssuerAway::of_status(url, status)),
        }
    }

    fn posted(&self, url: &Url, form: &[(&str, &str)]) -> Result<RequestBuilder, IssuerAway> {
        let request = self.client(url)?.post(url.clone());
        Ok(request.header("Content-Type", "application/x-www-form-urlencoded").body(encoded(form)))
    }

    fn client(&self, url: &Url) -> Result<&reqwest::Client, IssuerAway> {
        if self.may_ask(url) {
            Ok(self.clients.for_url(url))
        } else {
            Err(IssuerAway::new(url, "it is not asked over https"))
        }
    }
}

/// An address for people, without its query.
fn place_of(url: &Url) -> String {
    let mut place = url.clone();
    place.set_query(None);
    shown(place.as_str())
}

fn shown(place: &str) -> String {
    place.chars().filter(|c| !c.is_control()).take(MAX_PLACE_CHARS).collect()
}

async fn send(url: &Url, request: RequestBuilder) -> Result<Response, IssuerAway> {
    request.timeout(REQUEST_TIMEOUT).send().await.map_err(|error| IssuerAway::of(url, &error))
}

async fn answered<T: DeserializeOwned>(url: &Url, request: RequestBuilder) -> Result<IssuerResponse<T>, IssuerAway> {
    let response = send(url, request).await?;
    let status = response.status();
    let body = body(url, response).await?.ok_or_else(|| IssuerAway::new(url, TOO_LONG))?;
    match status {
        StatusCode::OK | StatusCode::CREATED => parsed(url, &body).map(IssuerResponse::Granted),
        // RFC 6749 defines 400 and 401; errors with another client status are read too.
        _ if is_refusal(status) => {
            let refusal = serde_json::from_slice(&body);
            refusal.map(IssuerResponse::Refused).map_err(|_| IssuerAway::of_status(url, status))
        }
        _ => Err(IssuerAway::of_status(url, status)),
    }
}

/// Whether a status is the server's answer, and not that it has too much to do.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS
}

fn encoded(form: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://form").expect("a constant that is an address");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

/// A body; `None` if it is longer than any that belongs here.
async fn body(url: &Url, mut response: Response) -> Result<Option<Vec<u8>>, IssuerAway> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| IssuerAway::of(url, &error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY_BYTES {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

fn parsed<T: DeserializeOwned>(url: &Url, body: &[u8]) -> Result<T, IssuerAway> {
    // The body is not repeated: it may hold a token.
    serde_json::from_slice(body).map_err(|_| IssuerAway::new(url, SENSELESS))
}

/// The cause of the client's error, without the address.
fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    if error.is_timeout() { format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()) } else { deepest.to_string() }
}
