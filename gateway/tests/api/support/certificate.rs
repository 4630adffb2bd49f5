//! A certificate of a test's own, and callers that trust it.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use deskgate_gateway::tls::CertificateFiles;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier};
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
        let CertificateFiles { certificate, key } = self.files();
        std::fs::write(certificate, made.cert.pem()).expect("written");
        private(&key, &made.signing_key.serialize_pem());
        self.trusted = made.cert.der().clone();
    }

    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles { certificate: self.dir.path().join("cert.pem"), key: self.dir.path().join("key.pem") }
    }

    /// Connects as a client that trusts the newest certificate and no other.
    pub(crate) async fn connect(&self, address: SocketAddr, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
        connect(&self.trusted, "localhost", address, &[alpn]).await
    }
}

/// Connects as a client that trusts one root and offers some protocols.
pub(crate) async fn connect(
    root: &CertificateDer<'static>,
    name: &str,
    address: SocketAddr,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).expect("a certificate");
    let config = client().with_root_certificates(roots).with_no_client_auth();
    handshake(config, name, address, protocols).await
}

/// Connects as a client that accepts any certificate.
pub(crate) async fn connect_to_anybody(
    name: &str,
    address: SocketAddr,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = client().dangerous().with_custom_certificate_verifier(Arc::new(TrustAnything)).with_no_client_auth();
    handshake(config, name, address, protocols).await
}

fn client() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("ring has them")
}

async fn handshake(
    mut config: ClientConfig,
    name: &str,
    address: SocketAddr,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Accepts every certificate and every signature.
#[derive(Debug)]
struct TrustAnything;

impl ServerCertVerifier for TrustAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Writes a file that only its owner can read.
fn private(path: &PathBuf, text: &str) {
    use std::io::Write;
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path).expect("opened");
    file.write_all(text.as_bytes()).expect("written");
}
