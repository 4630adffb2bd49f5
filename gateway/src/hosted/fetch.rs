//! Fetches one document of the issuer: a GET without cookies, proxies or redirects, bounded in time and length.

use std::time::Duration;

use bytes::Bytes;
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

/// For the whole request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Reads a document in JSON.
pub(super) async fn json<T: DeserializeOwned>(tls: &TlsConnector, url: &Url) -> Result<T, FetchError> {
    let failed = |why: String| FetchError { url: url.to_string(), why, absent: false };
    if !is_guarded(url) {
        return Err(failed("it is not asked over https".to_owned()));
    }
    let (status, body) = timeout(FETCH_TIMEOUT, get(tls, url))
        .await
        .map_err(|_| failed(format!("it did not answer within {} s", FETCH_TIMEOUT.as_secs())))?
        .map_err(failed)?;
    if status != StatusCode::OK {
        let absent = status.is_client_error();
        return Err(FetchError { absent, ..failed(format!("it answered with status {}", status.as_u16())) });
    }
    serde_json::from_slice(&body).map_err(|_| failed("it is not the document that belongs there".to_owned()))
}

async fn get(tls: &TlsConnector, url: &Url) -> Result<(StatusCode, Bytes), String> {
    let (host, port) = (url.host().ok_or("no host")?, url.port_or_known_default().ok_or("no port")?);
    let connected = match &host {
        Host::Domain(name) => TcpStream::connect((*name, port)).await,
        Host::Ipv4(address) => TcpStream::connect((*address, port)).await,
        Host::Ipv6(address) => TcpStream::connect((*address, port)).await,
    };
    let stream = connected.map_err(|error| error.to_string())?;
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
    exchange(tls.connect(name, stream).await.map_err(|error| error.to_string())?, url).await
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
