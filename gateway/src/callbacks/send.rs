//! One request to one destination: to an address that was checked, in HTTP/1.1 over TLS, within its time.
//!
//! The features of a usual client are left out: no proxy, no redirect, no cookie, no compression. The receiver's answer
//! is not trusted either: only its beginning is read, for a limited time.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use deskgate_program::public_hosts::lookup::{LookupError, PublicLookup};
use deskgate_protocol::delivery::DeliveryErrorCode;
use futures_util::future::select_ok;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::connection_pool::{ConnectionPool, PooledConnection};
use crate::domain::destinations::Destination;
use crate::networks::destinations::AddressRules;
use crate::tls::{self, RootsError};

/// How long each part may take.
#[derive(Clone, Copy, Debug)]
struct SendTimeouts {
    /// To resolve the name.
    resolve: Duration,
    /// To connect, TLS included.
    connect: Duration,
    /// To read the body; the head has already decided the outcome.
    read: Duration,
    /// For the whole request.
    all: Duration,
}

const SEND_TIMEOUTS: SendTimeouts = SendTimeouts {
    resolve: Duration::from_secs(5),
    connect: Duration::from_secs(5),
    read: Duration::from_secs(2),
    all: Duration::from_secs(15),
};

/// Between the starts of two connections to one name (RFC 8305, section 5).
const CONNECT_STAGGER_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of the answer's body that are read.
const MAX_RESPONSE_BODY_BYTES: usize = 1024;
/// Bytes of the answer's head that are read.
const MAX_RESPONSE_HEAD_BYTES: usize = 16 * 1024;
/// Lines of the answer's head.
const MAX_RESPONSE_HEADERS: usize = 64;

/// The result of a request.
#[derive(Clone, Debug)]
pub struct SendResult {
    /// The answer, or why there is none.
    pub answer: Result<ReceiverResponse, DeliveryErrorCode>,
    /// The time from the look-up of the name to the end.
    pub took: Duration,
}

/// The receiver's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverResponse {
    /// The status code.
    pub status: u16,
    /// `Retry-After` as it came, if it can be a header's text.
    pub retry_after: Option<String>,
    /// The beginning of the body.
    pub body: Vec<u8>,
}

/// Sends callbacks. Clones share their limits.
#[derive(Clone)]
pub struct CallbackSender {
    lookup: PublicLookup,
    kept: ConnectionPool,
    tls: TlsConnector,
    patience: SendTimeouts,
}

impl CallbackSender {
    /// Trusts the system's authorities, and those in `ca_file` (PEM) beside them. Connects only where `rules` allow.
    ///
    /// # Errors
    /// `ca_file` cannot be read or holds no certificate.
    pub fn new(ca_file: Option<&Path>, rules: AddressRules) -> Result<Self, RootsError> {
        let tls = TlsConnector::from(Arc::new(tls::client(ca_file)?));
        Ok(Self {
            lookup: PublicLookup::of_the_system().allowing(move |address| rules.allow(address)),
            kept: ConnectionPool::default(),
            tls,
            patience: SEND_TIMEOUTS,
        })
    }

    /// Posts once. `headers` are sent as they are, together with `Host` and `Content-Length`.
    pub async fn post(&self, to: &Destination, headers: HeaderMap, body: Bytes) -> SendResult {
        let began = Instant::now();
        let sending = async {
            let resolving = timeout(self.patience.resolve, self.lookup.addresses(to.host()));
            let addresses = resolving.await.unwrap_or(Err(LookupError::NoAddress)).map_err(unresolved)?;
            self.exchange(to, &addresses, headers, body).await
        };
        let answer = timeout(self.patience.all, sending).await.unwrap_or(Err(DeliveryErrorCode::Timeout));
        SendResult { answer, took: began.elapsed() }
    }

    /// Sends the request to one of these addresses, which were checked.
    async fn exchange(
        &self,
        to: &Destination,
        addresses: &[SocketAddr],
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<ReceiverResponse, DeliveryErrorCode> {
        let asked = request(to, headers, body)?;
        if let Some(kept) = self.kept.take(to.host(), addresses)
            // The receiver may close it at any moment, before or after it read this: then the request is sent again,
            // with the same identifier.
            && let Ok(answer) = self.ask(to, kept, asked.clone()).await
        {
            return Ok(answer);
        }
        let connecting = timeout(self.patience.connect, self.connect(to, addresses));
        let connection = connecting.await.unwrap_or(Err(DeliveryErrorCode::ConnectTimeout))?;
        self.ask(to, connection, asked).await
    }

    /// Sends the request on this connection, and keeps it if the answer is complete.
    async fn ask(
        &self,
        to: &Destination,
        mut connection: PooledConnection,
        asked: Request<Full<Bytes>>,
    ) -> Result<ReceiverResponse, DeliveryErrorCode> {
        let answer = connection.sender.send_request(asked).await.map_err(|_| DeliveryErrorCode::BadAnswer)?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (body, is_all) = beginning(answer, self.patience.read).await;
        if is_all {
            self.kept.keep(to.host(), connection);
        }
        Ok(ReceiverResponse { status, retry_after, body })
    }

    async fn connect(&self, to: &Destination, addresses: &[SocketAddr]) -> Result<PooledConnection, DeliveryErrorCode> {
        let begun = (0u32..).zip(interleaved(addresses)).map(|(place, address)| {
            Box::pin(async move {
                sleep(CONNECT_STAGGER_INTERVAL * place).await;
                TcpStream::connect(address).await.map(|stream| (address, stream))
            })
        });
        let ((at, stream), _) = select_ok(begun).await.map_err(|_| DeliveryErrorCode::ConnectFailed)?;
        // A small request: waiting for more data gains nothing.
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(to.host().as_str().to_owned()).map_err(|_| DeliveryErrorCode::TlsFailed)?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| {
            match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
                Some(rustls::Error::InvalidCertificate(_)) => DeliveryErrorCode::CertificateInvalid,
                _ => DeliveryErrorCode::TlsFailed,
            }
        })?;
        let mut connecting = http1::Builder::new();
        connecting.max_headers(MAX_RESPONSE_HEADERS).max_buf_size(MAX_RESPONSE_HEAD_BYTES);
        let handshake = connecting.handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(|_| DeliveryErrorCode::BadAnswer)?;
        Ok(PooledConnection::new(at, sender, driver))
    }
}

fn unresolved(error: LookupError) -> DeliveryErrorCode {
    match error {
        LookupError::NoAddress => DeliveryErrorCode::DnsFailed,
        LookupError::NotPublic => DeliveryErrorCode::HostNotPublic,
    }
}

/// IPv6 and IPv4 by turns, beginning with the resolver's first (RFC 8305, section 4).
fn interleaved(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut order = Vec::with_capacity(addresses.len());
    while order.len() < addresses.len() {
        order.extend(first.next().into_iter().chain(second.next()));
    }
    order
}

fn request(to: &Destination, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, DeliveryErrorCode> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(to.target())
        .body(Full::new(body))
        .map_err(|_| DeliveryErrorCode::BadAnswer)?;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(to.host().as_str()).map_err(|_| DeliveryErrorCode::BadAnswer)?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

/// The beginning of an answer's body, and whether it is complete; late or broken-off data is dropped.
async fn beginning(answer: Response<Incoming>, patience: Duration) -> (Vec<u8>, bool) {
    let mut body = answer.into_body();
    let mut read = Vec::new();
    let reading = async {
        while read.len() < MAX_RESPONSE_BODY_BYTES {
            match body.frame().await {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => {
                    let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
                    read.extend_from_slice(&data[..data.len().min(MAX_RESPONSE_BODY_BYTES - read.len())]);
                }
            }
        }
        body.is_end_stream()
    };
    let is_all = timeout(patience, reading).await.unwrap_or(false);
    (read, is_all)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const TEST_BODY: &[u8] = b"{\"type\":\"webhook.test\"}";
    /// Short, so that tests of endless receivers are quick, and long enough for one that answers.
    const SHORT_TIMEOUTS: SendTimeouts = SendTimeouts {
        resolve: Duration::from_secs(5),
        connect: Duration::from_millis(500),
        read: Duration::from_millis(100),
        all: Duration::from_secs(5),
    };

    /// A receiver at an address of this machine, which only these tests may send to.
    struct Receiver {
        listener: TcpListener,
        tls: TlsAcceptor,
        sender: CallbackSender,
        to: Destination,
    }

    impl Receiver {
        /// With a certificate for this name.
        async fn named(name: &str) -> Self {
            let rcgen::CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let ca_file = folder.path().join("ca.pem");
            std::fs::write(&ca_file, cert.pem()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], signing_key.serialize_der().try_into().unwrap())
                .unwrap();
            Self {
                listener: TcpListener::bind(("127.0.0.1", 0)).await.unwrap(),
                tls: TlsAcceptor::from(Arc::new(config)),
                sender: CallbackSender {
                    patience: SHORT_TIMEOUTS,
                    ..CallbackSender::new(Some(&ca_file), AddressRules::default()).unwrap()
                },
                to: Destination::parse("https://hooks.example.com/in?x=1").unwrap(),
            }
        }

        /// The result of a receiver that answers like this. It reads the request, and closes the connection after its
        /// answer unless it sends for ever.
        async fn answers(
            &self,
            first: &[u8],
            for_ever: &[u8],
        ) -> (Result<ReceiverResponse, DeliveryErrorCode>, String) {
            let at = [self.listener.local_addr().unwrap()];
            let headers = HeaderMap::from_iter(
                [("webhook-id", "evt_1")].map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))),
            );
            let receiving = async {
                let (stream, _) = self.listener.accept().await.unwrap();
                let mut stream = self.tls.accept(stream).await.ok()?;
                let mut heard = Vec::new();
                while !heard.ends_with(TEST_BODY) {
                    stream.read_buf(&mut heard).await.unwrap();
                }
                let _ = stream.write_all(first).await;
                while !for_ever.is_empty() && stream.write_all(for_ever).await.is_ok() && stream.flush().await.is_ok() {
                    // As slowly as possible, and still faster than the timeout for one part.
                    sleep(Duration::from_millis(20)).await;
                }
                let _ = stream.shutdown().await;
                Some(String::from_utf8(heard).unwrap())
            };
            let sending = self.sender.exchange(&self.to, &at, headers, Bytes::from_static(TEST_BODY));
            let (answer, heard) = tokio::join!(sending, receiving);
            (answer, heard.unwrap_or_default())
        }
    }

    #[tokio::test]
    async fn a_post_arrives_as_it_was_meant_and_its_answer_is_told() {
        let receiver = Receiver::named("hooks.example.com").await;
        let said = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nlater";
        let (answer, heard) = receiver.answers(said, b"").await;
        let expected = ReceiverResponse { status: 503, retry_after: Some("7".to_owned()), body: b"later".to_vec() };
        assert_eq!(answer, Ok(expected));
        assert!(heard.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{heard}");
        for line in ["host: hooks.example.com", "webhook-id: evt_1", &format!("content-length: {}", TEST_BODY.len())] {
            assert!(heard.lines().any(|heard| heard.eq_ignore_ascii_case(line)), "{line} in {heard}");
        }
    }

    #[tokio::test]
    async fn the_next_callback_goes_over_the_same_connection_as_long_as_it_leads_where_the_name_does() {
        let receiver = Receiver::named("hooks.example.com").await;
        let elsewhere = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let [here, there] = [&receiver.listener, &elsewhere].map(|listener| listener.local_addr().unwrap());
        let post = async |to: SocketAddr| {
            let body = Bytes::from_static(TEST_BODY);
            let answer = receiver.sender.exchange(&receiver.to, &[to], HeaderMap::new(), body).await;
            assert_eq!(answer.map(|answer| answer.status), Ok(200), "{to}");
        };
        let answer = async |stream: &mut tokio_rustls::server::TlsStream<TcpStream>| {
            let mut heard = Vec::new();
            while !heard.ends_with(TEST_BODY) {
                assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "it is open");
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        };
        let receiving = async {
            let mut stream = receiver.tls.accept(receiver.listener.accept().await.unwrap().0).await.unwrap();
            answer(&mut stream).await;
            answer(&mut stream).await;
            // The first one is still open.
            let mut other = receiver.tls.accept(elsewhere.accept().await.unwrap().0).await.unwrap();
            answer(&mut other).await;
        };
        let sending = async {
            post(here).await;
            post(here).await;
            post(there).await;
        };
        timeout(SHORT_TIMEOUTS.all, async { tokio::join!(sending, receiving) })
            .await
            .expect("nobody waits for a connection");
    }

    #[tokio::test]
    async fn a_kept_connection_that_was_closed_meanwhile_is_replaced_by_a_new_one() {
        let receiver = Receiver::named("hooks.example.com").await;
        for _ in 0..3 {
            let (answer, _) = receiver.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"").await;
            assert_eq!(answer.map(|answer| answer.status), Ok(200));
        }
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_nothing_else() {
        let receiver = Receiver::named("hooks.example.com").await;
        let at = receiver.listener.local_addr().unwrap();
        let said = format!("HTTP/1.1 307 Go\r\nLocation: https://{at}/other\r\nContent-Length: 0\r\n\r\n");
        let (answer, _) = receiver.answers(said.as_bytes(), b"").await;
        assert_eq!(answer.unwrap().status, 307);
        let again = timeout(Duration::from_millis(100), receiver.listener.accept()).await;
        assert!(again.is_err(), "nobody came again");
    }

    #[tokio::test]
    async fn of_an_endless_answer_only_the_beginning_is_read() {
        let receiver = Receiver::named("hooks.example.com").await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 100000000000\r\n\r\n";
        let (answer, _) = receiver.answers(head, &[b'x'; 4096]).await;
        assert_eq!(answer.unwrap().body, [b'x'; MAX_RESPONSE_BODY_BYTES]);
        // A slow body is confirmed by its head, and not awaited.
        let (answer, _) = receiver.answers(head, b"y").await;
        let answer = answer.unwrap();
        assert!(answer.status == 200 && (1..MAX_RESPONSE_BODY_BYTES).contains(&answer.body.len()), "{answer:?}");
    }

    #[tokio::test]
    async fn a_head_without_end_is_no_answer() {
        let receiver = Receiver::named("hooks.example.com").await;
        for (first, for_ever) in [
            ("HTTP/1.1 200 OK\r\n", format!("X: {}\r\n", "y".repeat(1000))),
            ("HTTP/1.1 200 OK\r\nX: ", "y".repeat(5000)),
            ("HTTP/1.1 200 OK\r\n", "X: y\r\n".repeat(MAX_RESPONSE_HEADERS + 1) + "\r\n"),
            ("", "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)),
        ] {
            let (answer, _) = timeout(SHORT_TIMEOUTS.all, receiver.answers(first.as_bytes(), for_ever.as_bytes()))
                .await
                .unwrap_or((Err(DeliveryErrorCode::Timeout), String::new()));
            let error = answer.expect_err(first);
            assert!([DeliveryErrorCode::BadAnswer, DeliveryErrorCode::Timeout].contains(&error), "{error:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_http_or_ends_before_its_head_is_no_answer() {
        let receiver = Receiver::named("hooks.example.com").await;
        for said in [&b""[..], b"HTTP/1.1 2", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\0\r\n\r\n"] {
            let (answer, heard) = receiver.answers(said, b"").await;
            assert_eq!(answer, Err(DeliveryErrorCode::BadAnswer));
            assert!(heard.ends_with("}"), "it was sent");
        }
    }

    #[tokio::test]
    async fn a_certificate_for_another_name_ends_it_before_anything_is_sent() {
        let receiver = Receiver::named("other.example.com").await;
        let (answer, heard) = receiver.answers(b"HTTP/1.1 200 OK\r\n\r\n", b"").await;
        assert_eq!((answer, heard), (Err(DeliveryErrorCode::CertificateInvalid), String::new()));
    }

    #[tokio::test]
    async fn one_that_takes_a_connection_and_says_nothing_costs_its_time_and_no_more() {
        let receiver = Receiver::named("hooks.example.com").await;
        let at = [receiver.listener.local_addr().unwrap()];
        let sent = receiver.sender.exchange(&receiver.to, &at, HeaderMap::new(), Bytes::new()).await;
        assert_eq!(sent, Err(DeliveryErrorCode::ConnectTimeout));
        drop(receiver.listener);
        let sent = receiver.sender.exchange(&receiver.to, &at, HeaderMap::new(), Bytes::new()).await;
        assert_eq!(sent, Err(DeliveryErrorCode::ConnectFailed));
    }

    #[test]
    fn both_families_are_tried_by_turns() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 443);
        let [a6, b6, a4, b4, c4] = ["2003::1", "2003::2", "8.8.8.1", "8.8.8.2", "8.8.8.3"].map(at);
        assert_eq!(interleaved(&[a6, b6, a4, b4, c4]), [a6, a4, b6, b4, c4]);
        assert_eq!(interleaved(&[a4, b4, a6]), [a4, a6, b4]);
        assert_eq!(interleaved(&[]), []);
    }
}
