//! A business's own server: receives over TLS at one port of every address of an island, and records requests.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

/// One request that arrived.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The address it was sent to.
    pub address: IpAddr,
    /// The `Host` header.
    pub host: String,
    /// Method and target.
    pub line: String,
    /// The other headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
}

impl ReceivedRequest {
    /// The text of a header; empty if absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A function that makes the response to a request.
type Responder = Arc<dyn Fn(ReceivedRequest) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>> + Send + Sync>;

#[derive(Clone)]
struct ReceiverState {
    got: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers: Responder,
}

/// The server.
pub struct Receiver {
    folder: TempDir,
    connections: Arc<AtomicUsize>,
    got: Arc<Mutex<Vec<ReceivedRequest>>>,
    _serving: Vec<AbortOnDropHandle<()>>,
}

/// The port of HTTPS (RFC 9110, section 4.2.2).
const HTTPS_PORT: u16 = 443;

impl Receiver {
    /// Starts it with a certificate for these names and a responder.
    pub async fn start<F>(names: &[&str], answer: impl Fn(ReceivedRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self::start_at(HTTPS_PORT, names, answer).await
    }

    /// Starts it at another port.
    pub async fn start_at<F>(
        port: u16,
        names: &[&str],
        answer: impl Fn(ReceivedRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tls = TlsAcceptor::from(Arc::new(certified(names, &folder.path().join("ca.pem"))));
        let (connections, got) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<ReceivedRequest>>>::default());
        let office = ReceiverState { got: got.clone(), answers: Arc::new(move |got| Box::pin(answer(got))) };
        let (arrivals, arrived) = mpsc::channel(1024);
        let mut serving = Vec::new();
        for address in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let accepting =
                accept(listen(SocketAddr::new(address, port)), tls.clone(), connections.clone(), arrivals.clone());
            serving.push(AbortOnDropHandle::new(tokio::spawn(accepting)));
        }
        let router = axum::Router::new().fallback(receive).with_state(office);
        let service = router.into_make_service_with_connect_info::<LocalAddress>();
        let served = async { axum::serve(TlsListener(arrived), service).await.expect("it serves for ever") };
        serving.push(AbortOnDropHandle::new(tokio::spawn(served)));
        Self { folder, connections, got, _serving: serving }
    }

    /// The root certificate for its names, PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The number of connections at any address, successful or not.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The received requests, oldest first.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        lock(&self.got).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A certificate of its own authority, whose root is written to a file.
fn certified(names: &[&str], ca_file: &std::path::Path) -> ServerConfig {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).expect("signed").pem()).expect("written");
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).expect("names");
    let own = own.signed_by(&key, &Issuer::new(ca, ca_key)).expect("signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key.serialize_der().try_into().expect("a key"))
        .expect("they belong together")
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.expect("a socket");
    socket.set_reuseaddr(true).expect("set");
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true).expect("set");
    }
    socket.bind(address).expect("nobody else is here");
    socket.listen(1024).expect("listens")
}

/// A connection over TLS, and its local address.
type TlsConnection = (TlsStream<TcpStream>, LocalAddress);

/// The local address of a connection.
#[derive(Clone, Copy, Debug)]
struct LocalAddress(SocketAddr);

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    connections: Arc<AtomicUsize>,
    arrivals: mpsc::Sender<TlsConnection>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let (tls, arrivals) = (tls.clone(), arrivals.clone());
        // A silent connection does not block the others.
        tokio::spawn(async move {
            let address = stream.local_addr().expect("it is connected");
            if let Ok(stream) = tls.accept(stream).await {
                let _ = arrivals.send((stream, LocalAddress(address))).await;
            }
        });
    }
}

/// The accepted connections, for the HTTP server.
struct TlsListener(mpsc::Receiver<TlsConnection>);

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = LocalAddress;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.0.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, TlsListener>> for LocalAddress {
    fn connect_info(stream: axum::serve::IncomingStream<'_, TlsListener>) -> Self {
        *stream.remote_addr()
    }
}

async fn receive(
    State(office): State<ReceiverState>,
    ConnectInfo(LocalAddress(address)): ConnectInfo<LocalAddress>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let got = ReceivedRequest { address: address.ip(), host, line: format!("{method} {uri}"), headers, body };
    lock(&office.got).push(got.clone());
    (office.answers)(got).await
}
