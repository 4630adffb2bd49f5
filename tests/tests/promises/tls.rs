//! The real program with a certificate.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deskgate_tests::{GatewayProcess, Postgres, until};
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Writes a fresh certificate for `localhost`, and returns the certificate that a caller must trust.
pub(crate) fn certificate(folder: &Path) -> CertificateDer<'static> {
    use std::io::Write;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).expect("written");
    let key: PathBuf = folder.join("key.pem");
    let _ = std::fs::remove_file(&key);
    let mut file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(key).expect("opened");
    file.write_all(made.signing_key.serialize_pem().as_bytes()).expect("written");
    made.cert.der().clone()
}

/// The first line of an answer to a client that trusts this one certificate.
async fn answer(gateway: &GatewayProcess, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", gateway.http().get().port())).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const UNAUTHORIZED_LINE: &str = "HTTP/1.1 401 Unauthorized";

#[tokio::test]
async fn a_certificate_is_exchanged_while_the_gateway_runs_and_a_bad_one_leaves_the_old_in_force() {
    let folder = TempDir::with_prefix("deskgate-tls-").expect("a temporary folder");
    let first = certificate(folder.path());
    let file = |key: &str, name: &str| format!("server.tls.{key}={}", folder.path().join(name).display());
    let postgres = Postgres::shared().await;
    let settings = [file("cert_file", "cert.pem"), file("key_file", "key.pem"), "server.listen=0.0.0.0:0".to_owned()];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let mut gateway = GatewayProcess::start(&postgres, &settings).await;
    assert_eq!(answer(&gateway, &first).await.expect("trusted"), UNAUTHORIZED_LINE);
    let checked = gateway.command_line(&["check"]).await;
    assert!(checked.stdout.contains("cert.pem"), "{}", checked.stdout);

    let second = certificate(folder.path());
    let reloaded = gateway.command_line(&["reload"]).await.ok();
    assert!(reloaded["what"].as_str().is_some_and(|what| what.contains("certificate")), "{reloaded}");
    assert_eq!(answer(&gateway, &second).await.expect("trusted"), UNAUTHORIZED_LINE);
    assert!(answer(&gateway, &first).await.is_err(), "the old one is not shown any more");

    std::fs::write(folder.path().join("cert.pem"), "nothing").expect("written");
    let refused = gateway.command_line(&["reload"]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("cert.pem"), "{}", refused.stderr);
    let checked = gateway.command_line(&["check"]).await;
    assert_eq!(checked.exit, 10, "{}", checked.stdout);
    assert_eq!(answer(&gateway, &second).await.expect("the old one goes on"), UNAUTHORIZED_LINE);

    let third = certificate(folder.path());
    gateway.process().signal(Signal::HUP);
    let in_force = async || answer(&gateway, &third).await.map_err(|error| error.to_string());
    assert_eq!(until("the third certificate to be in force", in_force).await, UNAUTHORIZED_LINE);
    assert!(gateway.stop(Signal::TERM).await.success());
}

#[tokio::test]
async fn plain_http_beyond_loopback_does_not_start_and_the_reason_names_both_ways() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let said = gateway.command_line(&["--set", "server.listen=0.0.0.0:0", "serve"]).await;
    assert_eq!(said.exit, 3, "{}", said.stderr);
    assert!(
        said.stderr.contains("server.tls.cert_file") && said.stderr.contains("server.trusted_proxies"),
        "{}",
        said.stderr
    );
}
