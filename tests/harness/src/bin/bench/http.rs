//! A cheap keep-alive HTTP/1.1 client: it shares the cores with the measured programs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The TLS server to trust.
pub(crate) struct TlsTrust {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl TlsTrust {
    /// Trusts the server with this name and a certificate of this file's authority.
    pub(crate) fn new(name: &str, ca_file: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca_file)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { name: ServerName::try_from(name.to_owned())?, connector: TlsConnector::from(Arc::new(config)) })
    }
}

/// The transport of a connection.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// One connection, one exchange at a time.
pub(crate) struct HttpConnection {
    stream: Box<dyn ByteStream>,
    answer: Vec<u8>,
    body: usize,
}

impl HttpConnection {
    /// Opens it.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(address, None).await
    }

    /// Opens it, with TLS if there is a server to trust.
    pub(crate) async fn over(address: SocketAddr, trust: Option<&TlsTrust>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn ByteStream> = match trust {
            None => Box::new(stream),
            Some(trust) => Box::new(trust.connector.connect(trust.name.clone(), stream).await?),
        };
        Ok(Self { stream, answer: Vec::with_capacity(8 * 1024), body: 0 })
    }

    /// Sends a request and returns the status of its answer. Supports answers with a Content-Length, and 204.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.answer.clear();
        let mut whole = None;
        while whole.is_none_or(|length| self.answer.len() < length) {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the connection was closed in the middle of an answer");
            }
            if whole.is_none()
                && let Some(head) = self.answer.windows(4).position(|four| four == b"\r\n\r\n")
            {
                self.body = head + 4;
                let head = &self.answer[..self.body];
                whole = Some(self.body + if head[9..].starts_with(b"204") { 0 } else { content_length(head)? });
            }
        }
        let status = self.answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        status.context("an answer without a status")?.parse().context("a status that is no number")
    }

    /// The head of the newest answer.
    pub(crate) fn head(&self) -> &str {
        std::str::from_utf8(&self.answer[..self.body]).unwrap_or_default()
    }

    /// The body of the newest answer.
    pub(crate) fn body(&self) -> &[u8] {
        &self.answer[self.body..]
    }
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    const CONTENT_LENGTH_PREFIX: &[u8] = b"content-length: ";
    let at =
        head.windows(CONTENT_LENGTH_PREFIX.len()).position(|name| name.eq_ignore_ascii_case(CONTENT_LENGTH_PREFIX));
    let digits = head[at.context("an answer without a Content-Length")? + CONTENT_LENGTH_PREFIX.len()..]
        .split(|byte| *byte == b'\r')
        .next();
    Ok(std::str::from_utf8(digits.unwrap_or_default())?.parse()?)
}
