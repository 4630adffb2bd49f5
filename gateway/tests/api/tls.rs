//! The public server over TLS: both versions of HTTP, certificates that change, misbehaving clients.

use std::time::{Duration, Instant};

use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::tls::{self, ServerTls, TlsError};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::Reason;
use h2::client::SendRequest;
use std::os::unix::fs::PermissionsExt;
use tokio::io::AsyncWriteExt;

use crate::support::certificate::Certificate;
use crate::support::gateway::TestGateway;
use crate::support::raw::RawConnection;
use crate::support::server::TestServer;

const NOT_FOUND_REQUEST: &str = "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

async fn open(gateway: &TestGateway, tls: ServerTls, limits: ListenerLimits) -> TestServer {
    TestServer::guarded(gateway.store(), ListenerAccess { tls: Some(tls), ..ListenerAccess::default() }, limits).await
}

/// One connection of HTTP/2, driven beside the test.
async fn http2(certificate: &Certificate, door: &TestServer) -> SendRequest<bytes::Bytes> {
    let stream = certificate.connect(door.address, "h2").await.expect("a handshake");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn get(gateway: &TestGateway, path: &str) -> http::Request<()> {
    let request = http::Request::get(format!("https://localhost{path}"))
        .header("Authorization", format!("Bearer {}", gateway.device.app.key))
        .header("X-Gateway-Subject", "anna");
    request.body(()).expect("a request")
}

#[tokio::test]
async fn over_tls_a_caller_speaks_the_version_of_http_that_it_chose() {
    let gateway = TestGateway::new().await;
    let certificate = Certificate::new();
    let door = open(&gateway, ServerTls::load(certificate.files()).expect("good"), ListenerLimits::default()).await;

    let stream = certificate.connect(door.address, "http/1.1").await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut raw = RawConnection::over(stream);
    assert!(raw.say(NOT_FOUND_REQUEST).await);
    let heard = raw.hear().await;
    assert!(heard.starts_with("HTTP/1.1 404 ") && heard.contains("x-request-id: "), "{heard}");

    let mut sender = http2(&certificate, &door).await;
    let (answer, _) = sender.send_request(get(&gateway, "/api/v1/agent-endpoints"), true).expect("sent");
    assert_eq!(answer.await.expect("answered").status(), 200);

    let neither = certificate.connect(door.address, "spdy/3").await;
    assert!(neither.is_err(), "what cannot be spoken is not begun");
    let mut plain = RawConnection::connect(door.address).await;
    let _ = plain.say(NOT_FOUND_REQUEST).await;
    assert!(!plain.hear().await.contains("HTTP/"), "nothing is said in plain");
    gateway.stop().await;
}

#[tokio::test]
async fn an_exchanged_certificate_is_shown_to_whoever_comes_next_and_a_bad_one_never() {
    let gateway = TestGateway::new().await;
    let mut certificate = Certificate::new();
    let tls = ServerTls::load(certificate.files()).expect("good");
    let door = open(&gateway, tls.clone(), ListenerLimits::default()).await;
    let mut before = http2(&certificate, &door).await;
    assert!(tls.expires_at().expect("a certificate has an end") > jiff::Timestamp::now(), "for the metrics");

    certificate.exchange();
    assert!(certificate.connect(door.address, "h2").await.is_err(), "nobody has read the new one yet");
    tls.reload().expect("good");
    http2(&certificate, &door).await;
    let (answer, _) = before.send_request(get(&gateway, "/api/v1/agent-endpoints"), true).expect("the old one is open");
    assert_eq!(answer.await.expect("answered").status(), 200);

    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(certificate.files().certificate, broken).expect("written");
        let error = tls.reload().expect_err("it holds nothing that can be used");
        assert!(error.to_string().contains("cert.pem"), "{error}");
        http2(&certificate, &door).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_that_others_can_read_or_that_belongs_to_another_certificate_is_refused() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let files = certificate.files();
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let error = tls::read(&files).expect_err("others can read it");
    assert!(matches!(error, TlsError::Loose { mode: 0o644, .. }), "{error}");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    let mixed = tls::CertificateFiles { key: other.files().key, ..files.clone() };
    assert!(matches!(tls::read(&mixed), Err(TlsError::Pair { .. })));
    let swapped = tls::CertificateFiles { certificate: other.files().key, key: other.files().key };
    let error = tls::read(&swapped).expect_err("a key is no certificate").to_string();
    assert!(error.contains("no certificate"), "{error}");
    std::fs::remove_file(&files.key).expect("ours");
    assert!(matches!(tls::read(&files), Err(TlsError::File { .. })));
}

#[tokio::test]
async fn whoever_is_slow_over_tls_is_closed_like_anybody_else() {
    let gateway = TestGateway::new().await;
    let certificate = Certificate::new();
    let second = Duration::from_secs(1);
    let limits = ListenerLimits { handshake: second, head: second, body: second, ..ListenerLimits::default() };
    let door = open(&gateway, ServerTls::load(certificate.files()).expect("good"), limits).await;
    let began = Instant::now();
    let in_time = |what: &str| assert!(began.elapsed() < Duration::from_secs(15), "{what}: {:?}", began.elapsed());

    let mut silent = RawConnection::connect(door.address).await;
    assert_eq!(silent.hear().await, "");
    in_time("no handshake");
    let half = RawConnection::connect(door.address).await;
    half.drip(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03], second / 4).await;
    in_time("half a handshake");
    for (alpn, first) in
        [("http/1.1", ""), ("http/1.1", "GET / HTTP/1.1\r\nHost: x\r\n"), ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]
    {
        let mut raw = RawConnection::over(certificate.connect(door.address, alpn).await.expect("a handshake"));
        assert!(first.is_empty() || raw.say(first).await);
        raw.hear().await;
        in_time(first);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_problem_document_over_http2_too() {
    let gateway = TestGateway::new().await;
    let certificate = Certificate::new();
    let door = open(&gateway, ServerTls::load(certificate.files()).expect("good"), ListenerLimits::default()).await;
    let mut sender = http2(&certificate, &door).await;
    let mut request = get(&gateway, "/api/v1/agent-endpoints");
    request.headers_mut().insert("x-large", "a".repeat(33 * 1024).parse().expect("a value"));
    let (answer, _) = sender.send_request(request, true).expect("sent");
    let mut answer = answer.await.expect("answered");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (431, &"application/problem+json".parse().expect("a value"))
    );
    let mut document = Vec::new();
    while let Some(part) = answer.body_mut().data().await {
        document.extend_from_slice(&part.expect("whole"));
    }
    let document: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
    assert_eq!((&document["code"], &document["limit_bytes"]), (&"head_too_large".into(), &(32 * 1024).into()));
    gateway.stop().await;
}

#[tokio::test]
async fn one_http2_connection_has_so_many_streams_at_once_and_more_are_refused() {
    let gateway = TestGateway::new().await;
    let certificate = Certificate::new();
    let limits = ListenerLimits { streams: 4, ..ListenerLimits::default() };
    let door = open(&gateway, ServerTls::load(certificate.files()).expect("good"), limits).await;
    let run_id = gateway.submit("waited-for").await;
    let stream = certificate.connect(door.address, "h2").await.expect("a handshake");
    // A client that does not wait to be told how many.
    let (mut sender, connection) = h2::client::Builder::new()
        .initial_max_send_streams(8)
        .handshake::<_, bytes::Bytes>(stream)
        .await
        .expect("HTTP/2");
    let path = format!("/api/v1/runs/{run_id}?wait=60");
    let mut answers: FuturesUnordered<_> =
        (0..8).map(|_| sender.send_request(get(&gateway, &path), true).expect("sent").0).collect();
    tokio::spawn(connection);
    for _ in 0..4 {
        let refused = answers.next().await.expect("eight").expect_err("more than there may be");
        assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM), "{refused}");
    }
    door.draining.cancel();
    while let Some(answer) = answers.next().await {
        assert_eq!(answer.expect("these were within the limit").status(), 200);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_resets_what_it_asked_is_closed_and_others_are_served() {
    let gateway = TestGateway::new().await;
    let certificate = Certificate::new();
    let door = open(&gateway, ServerTls::load(certificate.files()).expect("good"), ListenerLimits::default()).await;
    let mut stream = certificate.connect(door.address, "h2").await.expect("a handshake");
    // Without waiting for an answer: HEADERS (GET / in HPACK's static table) and RST_STREAM (CANCEL).
    let mut attack = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for number in (1u32..4001).step_by(2) {
        attack.extend_from_slice(b"\0\0\x03\x01\x05");
        attack.extend_from_slice(&number.to_be_bytes());
        attack.extend_from_slice(b"\x82\x84\x87\0\0\x04\x03\0");
        attack.extend_from_slice(&number.to_be_bytes());
        attack.extend_from_slice(&u32::from(Reason::CANCEL).to_be_bytes());
    }
    let _ = stream.write_all(&attack).await;
    let began = Instant::now();
    let heard = RawConnection::over(stream).hear_bytes().await;
    assert!(began.elapsed() < Duration::from_secs(5), "closed after {:?}", began.elapsed());
    // GOAWAY is frame type 7, with the reason at the end of its fixed part.
    let calm = u32::from(Reason::ENHANCE_YOUR_CALM).to_be_bytes();
    assert!(heard.windows(17).any(|frame| frame[3] == 7 && frame[13..17] == calm), "{heard:?}");
    let mut sender = http2(&certificate, &door).await;
    let (answer, _) = sender.send_request(get(&gateway, "/api/v1/agent-endpoints"), true).expect("sent");
    assert_eq!(answer.await.expect("answered").status(), 200);
    gateway.stop().await;
}
