//! A certificate of a test's own, and callers that trust it.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use deskgate_gateway::tls::Files;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate for `localhost` in files that can be exchanged.
pub(crate) struct Certificate {
    dir: TempDir,
    trusted: CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut certificate = Self { dir, trusted: CertificateDer::from(Vec::new()) };
        certificate.exchange();
        certificate
    }

    /// A fresh certificate in the same files.
    pub(crate) fn exchange(&mut self) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        let Files { certificate, key } = self.files();
        std::fs::write(certificate, made.cert.pem()).expect("written");
        private(&key, &made.signing_key.serialize_pem());
        self.trusted = made.cert.der().clone();
    }

    pub(crate) fn files(&self) -> Files {
        Files { certificate: self.dir.path().join("cert.pem"), key: self.dir.path().join("key.pem") }
    }

    /// Connects as somebody who trusts the newest certificate and no other.
    pub(crate) async fn connect(&self, address: SocketAddr, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").expect("a name"), stream).await
    }
}

/// Writes a file that nobody else can read.
fn private(path: &PathBuf, text: &str) {
    use std::io::Write;
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path).expect("opened");
    file.write_all(text.as_bytes()).expect("written");
}
