//! A business's own system that callbacks are sent to: a real TLS server under a public-looking address and name, in a
//! network of its own, where nothing of it reaches anybody else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::wait::until;

/// The name it is called by.
pub const HOST: &str = "hooks.example.com";
/// An address that belongs to the public Internet everywhere but in here.
const ADDRESS: &str = "45.33.32.1";
/// Says to the test that it is in there.
const INSIDE: &str = "DESKGATE_TEST_NETWORK";

/// Runs the named test of this program again in a network of its own. True in there; false outside, when it was run.
pub fn in_a_network_of_its_own(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{ADDRESS} {HOST}\n")).expect("written");
    let set_up = format!(
        "ip link set lo up && ip addr add {ADDRESS}/32 dev lo && mount --bind {} /etc/hosts && exec \"$@\"",
        hosts.display()
    );
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--net", "--mount", "sh", "-c", &set_up, "sh"]);
    command.arg(std::env::current_exe().expect("this program")).args(["--exact", test, "--nocapture"]);
    let status = command.env(INSIDE, "1").status().expect("unshare is part of every system");
    assert!(status.success(), "the test failed in its own network");
    false
}

/// What came.
#[derive(Clone, Debug)]
pub struct Received {
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes that were signed.
    pub body: Vec<u8>,
    /// Whether it was confirmed.
    pub confirmed: bool,
}

impl Received {
    /// A header's value; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a callback is JSON")
    }
}

/// What it does with what comes.
#[derive(Clone, Default)]
pub enum Manner {
    /// Says 204.
    #[default]
    Confirms,
    /// Says nothing for ever.
    Hangs,
    /// Says 204 once this is notified; tells when something came.
    Waits(Arc<Notify>),
}

/// The server.
pub struct Receiver {
    folder: TempDir,
    shared: Arc<Shared>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    manner: Mutex<Manner>,
}

impl Receiver {
    /// Listens at port 443 of its name, with a certificate of an authority of its own.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let acceptor = acceptor(&folder.path().join("ca.pem"));
        let listener = TcpListener::bind((ADDRESS, 443)).await.expect("nobody else is in this network");
        let shared = Arc::new(Shared::default());
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, acceptor, shared.clone())));
        Self { folder, shared, _serving: serving }
    }

    /// The authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Everything that came.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it does from now on.
    pub fn behaves(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// Waits until so much came.
    pub async fn receives(&self, count: usize) -> Vec<Received> {
        until(&format!("{count} callbacks"), async || {
            let received = self.received();
            if received.len() >= count { Ok(received) } else { Err(format!("{} came", received.len())) }
        })
        .await
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        open.spawn(async move {
            // A peer that was killed is a part of what is tested.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = receive(stream, &shared).await;
            }
        });
    }
}

async fn receive(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let (headers, body) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        if let Some(whole) = whole(&bytes) {
            break whole;
        }
    };
    let place = {
        let mut received = shared.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.push(Received { headers, body, confirmed: false });
        received.len() - 1
    };
    let manner = shared.manner.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match manner {
        Manner::Confirms => {}
        Manner::Hangs => std::future::pending().await,
        Manner::Waits(until) => until.notified().await,
    }
    shared.received.lock().unwrap_or_else(PoisonError::into_inner)[place].confirmed = true;
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
    stream.shutdown().await
}

/// The headers and the body of a request, once it is there as a whole.
pub fn whole(bytes: &[u8]) -> Option<(Vec<(String, String)>, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let headers: Vec<_> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let body = bytes.get(end + 4..end + 4 + length)?;
    Some((headers, body.to_vec()))
}

fn acceptor(ca_file: &Path) -> TlsAcceptor {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).expect("signed").pem()).expect("written");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).expect("signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().expect("a key"))
        .expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}
