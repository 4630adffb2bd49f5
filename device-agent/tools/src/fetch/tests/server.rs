//! A strict web server of this computer's, for the names that a test gives it. Every other name is looked up in the test's
//! own table, and judged as in the product.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deskgate_outbound::public::{PublicResolver, public_builder};
use deskgate_program::public_hosts::lookup::PublicLookup;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::fetch::request::{FETCH_LIMITS, FetchLimits, Web};

/// The host that the server answers for.
pub(super) const HOST: &str = "docs.example.com";
/// Short, so that tests of endless servers are quick, and long enough for one that answers.
const SHORT_LIMITS: FetchLimits =
    FetchLimits { connect: Duration::from_secs(2), all: Duration::from_secs(4), ..FETCH_LIMITS };

/// What the server answers.
pub(super) enum Reply {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// These bytes, then a piece again and again, with a pause before each.
    Endless(Vec<u8>, Vec<u8>, Duration),
}

/// An answer with further header lines and a body.
pub(super) fn http(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

/// An answer that sends the reader elsewhere.
pub(super) fn redirect(location: &str) -> Reply {
    http("302 Found", &format!("location: {location}\r\n"), "")
}

/// The running server.
pub(super) struct PageServer {
    pub(super) web: Arc<Web>,
    targets: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl PageServer {
    /// Answers requests for targets such as `/a?b`. `table` has the addresses of other names.
    pub(super) async fn start(
        table: &'static [(&'static str, &'static [&'static str])],
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).expect("a certificate");
        let root = reqwest::Certificate::from_der(cert.der()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], signing_key.serialize_der().try_into().expect("a key"))
            .expect("a certificate and its key");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let targets = Arc::new(Mutex::new(Vec::new()));
        let (acceptor, answer, seen) = (TlsAcceptor::from(Arc::new(config)), Arc::new(answer), Arc::clone(&targets));
        let serving = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, seen) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&seen));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        if !stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                            return;
                        }
                    }
                    let target = target_of(&String::from_utf8(head).expect("a head is text"));
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(target.clone());
                    match answer(&target) {
                        Reply::Bytes(bytes) => drop(stream.write_all(&bytes).await),
                        Reply::Endless(first, piece, pause) => {
                            let mut goes_on = stream.write_all(&first).await.is_ok();
                            while goes_on {
                                tokio::time::sleep(pause).await;
                                goes_on = stream.write_all(&piece).await.is_ok() && stream.flush().await.is_ok();
                            }
                        }
                    }
                    let _ = stream.shutdown().await;
                });
            }
        };
        let lookup = PublicLookup::asking(move |name| {
            let (_, addresses) = table.iter().find(|(known, _)| *known == name).copied().unwrap_or_default();
            Ok(addresses.iter().map(|text| (text.parse::<IpAddr>().expect("an address"), 443).into()).collect())
        });
        let resolver = OwnResolver { at, others: PublicResolver::new(lookup) };
        let web = Arc::new(Web::with(public_builder(resolver).tls_certs_only([root]), SHORT_LIMITS));
        Self { web, targets, _task: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    /// What was asked for, in order.
    pub(super) fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Leads [`HOST`] to the server, and other names to where the product would lead them.
struct OwnResolver {
    at: SocketAddr,
    others: PublicResolver,
}

impl Resolve for OwnResolver {
    fn resolve(&self, name: Name) -> Resolving {
        match name.as_str() == HOST {
            true => Box::pin(std::future::ready(Ok(Box::new([self.at].into_iter()) as Addrs))),
            false => self.others.resolve(name),
        }
    }
}

/// The target of a request that has what it must have, and nothing that tells who asks.
fn target_of(head: &str) -> String {
    let mut lines = head.trim_end().split("\r\n");
    let first = lines.next().expect("a first line");
    let target = first.strip_prefix("GET ").and_then(|line| line.strip_suffix(" HTTP/1.1")).expect("a GET");
    let mut names: Vec<_> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").expect("a header");
            match name {
                "user-agent" => assert_eq!(value, concat!("deskgate/", env!("CARGO_PKG_VERSION"))),
                "host" => assert_eq!(value, HOST),
                "accept-encoding" => assert_eq!(value, "gzip"),
                _ => {}
            }
            name
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent"], "no cookie, no key, no referrer");
    target.to_owned()
}
