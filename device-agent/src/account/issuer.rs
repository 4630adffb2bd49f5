//! HTTP client for issuers: without redirects, bounded in size and time.

use std::time::Duration;

use deskgate_outbound::{Clients, is_guarded};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::AccountError;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// The size limit of an answer, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

static CLIENTS: Clients = Clients::new(|builder| builder.timeout(REQUEST_TIMEOUT));

/// An issuer's error (RFC 6749, section 5.2).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OAuthError {
    /// The code for programs.
    pub(super) error: String,
    /// The description for people.
    #[serde(default)]
    error_description: Option<String>,
}

impl OAuthError {
    /// Code and description, without terminal control characters.
    pub(super) fn words(&self) -> String {
        let words = match &self.error_description {
            Some(words) => format!("{}: {words}", self.error),
            None => self.error.clone(),
        };
        words.chars().filter(|c| !c.is_control()).take(300).collect()
    }
}

/// The answer to a request that can be refused.
pub(super) enum IssuerResponse<T> {
    Granted(T),
    Refused(OAuthError),
}

/// A document; `None`: the server reports that there is none.
pub(super) async fn document<T: DeserializeOwned>(url: &Url) -> Result<Option<T>, AccountError> {
    let response = CLIENTS.for_url(guarded(url)?).get(url.clone()).header("Accept", "application/json").send().await;
    let response = response.map_err(|error| issuer_away(url, &unreachable(&error)))?;
    match response.status() {
        StatusCode::OK => parsed(url, &body(url, response).await?).map(Some),
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => Ok(None),
        status => Err(issuer_away(url, &format!("status {}", status.as_u16()))),
    }
}

/// Sends a form, as all of OAuth does. Errors never contain the form's values.
pub(super) async fn ask<T: DeserializeOwned>(
    url: &Url,
    form: &[(&str, &str)],
) -> Result<IssuerResponse<T>, AccountError> {
    let request = CLIENTS.for_url(guarded(url)?).post(url.clone()).header("Accept", "application/json");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(encoded(form));
    let response = request.send().await.map_err(|error| issuer_away(url, &unreachable(&error)))?;
    let status = response.status();
    let body = body(url, response).await?;
    match status {
        StatusCode::OK => parsed(url, &body).map(IssuerResponse::Granted),
        // RFC 6749 defines 400 and 401; errors with another client status are read too.
        _ if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            let refusal = serde_json::from_slice(&body);
            refusal.map(IssuerResponse::Refused).map_err(|_| issuer_away(url, &format!("status {}", status.as_u16())))
        }
        _ => Err(issuer_away(url, &format!("status {}", status.as_u16()))),
    }
}

/// The same for requests whose answer is only a confirmation (RFC 7009).
pub(super) async fn tell(url: &Url, form: &[(&str, &str)]) -> Result<(), AccountError> {
    let request = CLIENTS.for_url(guarded(url)?).post(url.clone());
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(encoded(form));
    let response = request.send().await.map_err(|error| issuer_away(url, &unreachable(&error)))?;
    match response.status() {
        StatusCode::OK => Ok(()),
        status => Err(issuer_away(url, &format!("status {}", status.as_u16()))),
    }
}

fn guarded(url: &Url) -> Result<&Url, AccountError> {
    if is_guarded(url) { Ok(url) } else { Err(issuer_away(url, "it is not asked over https")) }
}

fn encoded(form: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://form").expect("a constant that is an address");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

async fn body(url: &Url, mut response: Response) -> Result<Vec<u8>, AccountError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| issuer_away(url, &unreachable(&error)))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY_BYTES {
            return Err(issuer_away(url, "its answer is too long"));
        }
    }
    Ok(body)
}

fn parsed<T: DeserializeOwned>(url: &Url, body: &[u8]) -> Result<T, AccountError> {
    // The body is not repeated: it may hold a token.
    serde_json::from_slice(body).map_err(|_| issuer_away(url, "its answer is not the one that belongs there"))
}

pub(super) fn issuer_away(url: &Url, why: &str) -> AccountError {
    let mut place = url.clone();
    place.set_query(None);
    AccountError::Away { place: place.to_string(), why: why.to_owned() }
}

/// The cause of the client's error, without the address.
fn unreachable(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    if error.is_timeout() { format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()) } else { deepest.to_string() }
}
