//! Fetches one document of the issuer: a GET without cookies, proxies or redirects, bounded in time and length.
//!
//! The issuer's metadata choose where its keys are, so the same guard as for callbacks holds: the name is looked up
//! once, each of its addresses must be allowed, and one of those is connected to.

use std::time::Duration;

use bytes::Bytes;
use deskgate_program::public_hosts::lookup::{LookupError, PublicLookup};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use crate::config::is_guarded;
use crate::networks::destinations::AddressRules;

/// For the whole request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The port of a document that is not at the issuer's own.
const HTTPS_PORT: u16 = 443;
/// Bytes of a document.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Bytes of an answer's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Why there is no document. With the address, which is not secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{url}: {why}")]
pub(super) struct FetchError {
    url: String,
    why: String,
    /// Whether the issuer answered that it does not exist.
    pub(super) absent: bool,
}

impl FetchError {
    /// The document exists, and is about another issuer.
    pub(super) fn other(url: &Url, why: &str) -> Self {
        Self { url: url.to_string(), why: why.to_owned(), absent: false }
    }
}

/// Fetches documents of one issuer.
pub(super) struct DocumentClient {
    tls: TlsConnector,
    lookup: PublicLookup,
    issuer: Url,
}

impl DocumentClient {
    /// Connects only where `rules` allow.
    pub(super) fn new(tls: TlsConnector, rules: AddressRules, issuer: Url) -> Self {
        let lookup = PublicLookup::of_the_system().allowing(move |address| rules.allow(address));
        Self { tls, lookup, issuer }
    }

    /// Why a URL is not asked at all.
    fn refusal(&self, url: &Url) -> Option<&'static str> {
        let port = url.port_or_known_default();
        if !is_guarded(url) || (url.scheme() != "https" && url.scheme() != self.issuer.scheme()) {
            return Some("it is not asked over https");
        }
        if port != Some(HTTPS_PORT) && port != self.issuer.port_or_known_default() {
            return Some("it is asked at port 443 or at the port of hosted.issuer only");
        }
        let named = !url.username().is_empty() || url.password().is_some();
        named.then_some("its address has a user or a password")
    }
}

/// Reads a document in JSON.
pub(super) async fn json<T: DeserializeOwned>(client: &DocumentClient, url: &Url) -> Result<T, FetchError> {
    let failed = |why: String| FetchError { url: url.to_string(), why, absent: false };
    if let Some(why) = client.refusal(url) {
        return Err(failed(why.to_owned()));
    }
    let (status, body) = timeout(FETCH_TIMEOUT, get(client, url))
        .await
        .map_err(|_| failed(format!("it did not answer within {} s", FETCH_TIMEOUT.as_secs())))?
        .map_err(failed)?;
    if status != StatusCode::OK {
        let absent = status.is_client_error();
        return Err(FetchError { absent, ..failed(format!("it answered with status {}", status.as_u16())) });
    }
    serde_json::from_slice(&body).map_err(|_| failed("it is not the document that belongs there".to_owned()))
}

async fn get(client: &DocumentClient, url: &Url) -> Result<(StatusCode, Bytes), String> {
    let (host, port) = (url.host().ok_or("no host")?, url.port_or_known_default().ok_or("no port")?);
    let name = match &host {
        Host::Domain(name) => (*name).to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    let addresses = client.lookup.addresses_at(&name, port).await.map_err(|error| match error {
        LookupError::NoAddress => error.to_string(),
        LookupError::NotPublic => format!(
            "{error}, or to one in callbacks.refused_networks. If the issuer is meant to be there, name its range in \
             hosted.allowed_networks"
        ),
    })?;
    let stream = TcpStream::connect(&addresses[..]).await.map_err(|error| error.to_string())?;
    // A small request: waiting for more data gains nothing.
    let _ = stream.set_nodelay(true);
    if url.scheme() != "https" {
        return exchange(stream, url).await;
    }
    let name = match host {
        Host::Domain(name) => ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?,
        Host::Ipv4(address) => ServerName::from(std::net::IpAddr::V4(address)),
        Host::Ipv6(address) => ServerName::from(std::net::IpAddr::V6(address)),
    };
    exchange(client.tls.connect(name, stream).await.map_err(|error| error.to_string())?, url).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &Url,
) -> Result<(StatusCode, Bytes), String> {
    let mut connecting = http1::Builder::new();
    connecting.max_headers(64).max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) =
        connecting.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The connection ends with this exchange in any case.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let request = Request::get(&url[url::Position::BeforePath..url::Position::AfterQuery])
        .header(HOST, authority)
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body =
        Limited::new(answer.into_body(), MAX_DOCUMENT_BYTES).collect().await.map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}
