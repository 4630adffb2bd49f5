//! A real certificate authority: Let's Encrypt's Pebble, with a DNS of its own.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use deskgate_gateway::config::{AcmeSettings, AcmeTimings};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::call::TestRequest;
use super::certificate::Certificate;
use super::until;

/// Pebble, which resolves each name to this machine, at [`Authority::looks_at`].
pub(crate) struct Authority {
    dir: TempDir,
    certificate: Certificate,
    directory: SocketAddr,
    management: SocketAddr,
    names: SocketAddr,
    names_management: SocketAddr,
    /// The address at which a gateway must listen to be found.
    pub(crate) looks_at: SocketAddr,
    pebble: Option<ChildProcess>,
    _names: ChildProcess,
    /// Whether it makes accounts only for whom it knows already.
    asks_for_external_account: bool,
}

/// The key by which it knows somebody, in base64url.
pub(crate) const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
/// Its identifier.
pub(crate) const EXTERNAL_KEY_ID: &str = "kid-1";

/// A program that ends with the test.
struct ChildProcess(Child);

impl ChildProcess {
    /// Waits until it accepts connections at each of these; `false`: it ended instead.
    async fn listens(&mut self, addresses: &[SocketAddr]) -> bool {
        for &address in addresses {
            let (answers, mut ended) = (async || tokio::net::TcpStream::connect(address).await.is_ok(), false);
            until("a program to listen or to end", async || {
                ended = self.0.try_wait().expect("a child").is_some();
                ended || answers().await
            })
            .await;
            if ended {
                return false;
            }
        }
        true
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Authority {
    pub(crate) async fn start() -> Self {
        Self::start_asking(false).await
    }

    /// One that asks for an external account, as some companies' and paid ones do.
    pub(crate) async fn start_with_external_accounts() -> Self {
        Self::start_asking(true).await
    }

    async fn start_asking(asks_for_external_account: bool) -> Self {
        // What was free can be somebody else's a moment later.
        for _ in 0..5 {
            if let Some(authority) = Self::try_start(asks_for_external_account).await {
                return authority;
            }
        }
        panic!("no authority could be started");
    }

    /// `None`: one of the addresses that were free is not any more.
    async fn try_start(asks_for_external_account: bool) -> Option<Self> {
        let [directory, management, names, names_management, looks_at] = std::array::from_fn(|_| free());
        let mut command = Command::new("pebble-challtestsrv");
        command.args(["-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]);
        command.args(["-dns01", &names.to_string(), "-management", &names_management.to_string()]);
        let (dir, certificate) = (tempfile::tempdir().expect("a temporary directory"), Certificate::new());
        let mut running = ChildProcess(spawn(&mut command));
        if !running.listens(&[names_management]).await {
            return None;
        }
        let mut authority = Self {
            dir,
            certificate,
            directory,
            management,
            names,
            names_management,
            looks_at,
            pebble: None,
            _names: running,
            asks_for_external_account,
        };
        authority.try_start_again().await.then_some(authority)
    }

    /// Starts it after [`Authority::stop`]. It has forgotten every account, and has another root.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.try_start_again().await, "its addresses are taken");
    }

    async fn try_start_again(&mut self) -> bool {
        let files = self.certificate.files();
        let config = json!({ "pebble": {
            "listenAddress": self.directory.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": files.certificate,
            "privateKey": files.key,
            "httpPort": 1,
            "tlsPort": self.looks_at.port(),
            "externalAccountBindingRequired": self.asks_for_external_account,
            "externalAccountMACKeys": { EXTERNAL_KEY_ID: EXTERNAL_KEY },
        }});
        let path = self.dir.path().join("pebble.json");
        std::fs::write(&path, config.to_string()).expect("written");
        let mut command = Command::new("pebble");
        command.arg("-config").arg(path).args(["-dnsserver", &self.names.to_string()]);
        // Otherwise it waits up to 15 seconds, and caches an earlier result for a while.
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        let pebble = self.pebble.insert(ChildProcess(spawn(&mut command)));
        // It listens for its management first, and ends when it cannot listen for the rest.
        pebble.listens(&[self.management, self.directory]).await
    }

    /// Stops it.
    pub(crate) fn stop(&mut self) {
        self.pebble = None;
    }

    /// Lets a name lead to one address only.
    pub(crate) async fn lead(&self, name: &str, to: &str) {
        let body = json!({ "host": format!("{name}."), "addresses": [to] });
        for path in ["/clear-a", "/add-a"] {
            let reply = TestRequest::new(self.names_management, "POST", path).json(&body).send().await;
            assert_eq!(reply.status, 200, "{path}");
        }
    }

    /// A gateway's settings for it.
    pub(crate) fn settings(&self, domains: &[&str]) -> AcmeSettings {
        AcmeSettings {
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            contact: "mailto:ops@example.com".to_owned(),
            directory_url: format!("https://localhost:{}/dir", self.directory.port()),
            ca_file: Some(self.certificate.files().certificate),
            external_account: None,
            clocks: AcmeTimings {
                look: Duration::from_millis(100),
                first_pause: Duration::from_millis(500),
                longest_pause: Duration::from_secs(2),
            },
        }
    }

    /// The root of what it issues since it was started.
    pub(crate) async fn root(&self) -> CertificateDer<'static> {
        let mut stream = self.certificate.connect(self.management, "http/1.1").await.expect("trusted");
        let request = b"GET /roots/0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("asked");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answered");
        CertificateDer::from_pem_slice(&answer).expect("a certificate")
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("pebble is installed by scripts/setup")
}

/// A free address that the kernel does not give to others.
fn free() -> SocketAddr {
    let anywhere = || SocketAddr::from(([127, 0, 0, 1], rand::random_range(12_000..32_000)));
    std::iter::repeat_with(anywhere)
        .find(|address| std::net::TcpListener::bind(address).is_ok() && std::net::UdpSocket::bind(address).is_ok())
        .expect("one of so many is free")
}
