//! Refusals that come before the body is read: what follows on the connection, and whether the refusal arrives.

use std::time::{Duration, Instant};

use bytes::Bytes;
use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::tls::ServerTls;
use deskgate_protocol::RunId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::certificate::Certificate;
use crate::support::gateway::{TestGateway, work};
use crate::support::raw::{RawConnection, RawStream};
use crate::support::server::TestServer;

/// More than the kernel hands over in one piece, and less than is thrown away.
const SHORT_BODY_BYTES: usize = 200_000;
/// More than is thrown away, and than a body may have.
const LONG_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Refused requests: the status, the head without its length, and whether the head says more than that.
fn refused(gateway: &TestGateway) -> Vec<(&'static str, String)> {
    let runs = gateway.runs_of(gateway.device.endpoint);
    let key = format!("Authorization: Bearer {}\r\nX-Gateway-Subject: anna\r\n", gateway.device.app.key);
    let json = "Content-Type: application/json\r\n";
    let run = format!("/api/v1/runs/{}", RunId::new());
    vec![
        ("401", format!("POST {runs} HTTP/1.1\r\nHost: x\r\n{json}")),
        ("400", format!("POST {runs} HTTP/1.1\r\nHost: x\r\n{key}{json}")),
        ("400", format!("POST {runs} HTTP/1.1\r\nHost: x\r\n{key}{json}Idempotency-Key: a b\r\n")),
        ("415", format!("POST {runs} HTTP/1.1\r\nHost: x\r\n{key}Idempotency-Key: a\r\nContent-Type: text/plain\r\n")),
        ("405", format!("PUT {runs} HTTP/1.1\r\nHost: x\r\n{key}{json}")),
        ("404", format!("POST /nowhere HTTP/1.1\r\nHost: x\r\n{key}{json}")),
        ("404", format!("GET {run} HTTP/1.1\r\nHost: x\r\n{key}{json}")),
        ("400", format!("GET {run}?api_key=x HTTP/1.1\r\nHost: x\r\n{key}{json}")),
        ("200", format!("GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\n{key}{json}")),
    ]
}

/// A good submission.
fn good(gateway: &TestGateway, idempotency_key: &str) -> String {
    let body = work("hello").to_string();
    format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {idempotency_key}\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.runs_of(gateway.device.endpoint),
        gateway.device.app.key,
        body.len()
    )
}

/// A body as it is sent, in one piece or in chunks, with the header that announces it.
fn body(length: usize, in_chunks: bool) -> (String, String) {
    let text = "x".repeat(length);
    if in_chunks {
        let chunks: String = text
            .as_bytes()
            .chunks(10_000)
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), "x".repeat(chunk.len())))
            .collect();
        ("Transfer-Encoding: chunked\r\n\r\n".to_owned(), chunks + "0\r\n\r\n")
    } else {
        (format!("Content-Length: {length}\r\n\r\n"), text)
    }
}

#[tokio::test]
async fn after_a_refusal_that_reads_no_body_the_next_request_of_the_connection_is_answered() {
    let gateway = TestGateway::new().await;
    for (number, (status, head)) in refused(&gateway).into_iter().enumerate() {
        for in_chunks in [false, true] {
            let mut raw = RawConnection::connect(gateway.gateway.addresses().http).await;
            let (announced, body) = body(SHORT_BODY_BYTES, in_chunks);
            assert!(raw.say(format!("{head}{announced}")).await && raw.say(&body).await, "{head}");
            assert!(raw.say(good(&gateway, &format!("{number}-{in_chunks}"))).await, "{head}");
            let heard = raw.hear_until(|heard| heard.contains("\"run_id\"") && heard.ends_with('}')).await;
            assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {heard}");
            assert!(heard.contains("HTTP/1.1 202 "), "{head}: {heard}");
            assert!(!heard.contains("connection: close"), "{head}: {heard}");
        }
    }
    gateway.stop().await;
}

/// A connection to a server, over TLS or not.
async fn connect(door: &TestServer, certificate: Option<&Certificate>) -> Box<dyn RawStream> {
    match certificate {
        Some(certificate) => Box::new(certificate.connect(door.address, "http/1.1").await.expect("a handshake")),
        None => Box::new(TcpStream::connect(door.address).await.expect("connected")),
    }
}

#[tokio::test]
async fn a_refusal_of_a_body_that_is_too_long_to_throw_away_arrives_whole_and_says_that_the_connection_ends() {
    let gateway = TestGateway::new().await;
    for over_tls in [false, true] {
        let certificate = over_tls.then(Certificate::new);
        let tls = certificate.as_ref().map(|certificate| ServerTls::load(certificate.files()).expect("good"));
        let access = ListenerAccess { tls, ..ListenerAccess::default() };
        let door = TestServer::guarded(gateway.store(), access, ListenerLimits::default()).await;
        let runs = gateway.runs_of(gateway.device.endpoint);
        let key = format!("Authorization: Bearer {}\r\nX-Gateway-Subject: anna\r\n", gateway.device.app.key);
        let whole =
            format!("POST {runs} HTTP/1.1\r\nHost: x\r\n{key}Content-Type: application/json\r\nIdempotency-Key: a\r\n");
        let all = refused(&gateway).into_iter().chain([("413", whole)]);
        for (status, head) in all {
            for in_chunks in [false, true] {
                let mut stream = connect(&door, certificate.as_ref()).await;
                let (announced, body) = body(LONG_BODY_BYTES, in_chunks);
                stream.write_all(format!("{head}{announced}").as_bytes()).await.expect("sent");
                // Whoever reads only when all is sent, has the answer all the same.
                stream.write_all(body.as_bytes()).await.unwrap_or_else(|error| panic!("{error} after {head}"));
                let mut heard = String::new();
                let read = timeout(Duration::from_secs(60), stream.read_to_string(&mut heard)).await.expect("it ends");
                read.unwrap_or_else(|error| panic!("{error} after {head} and {heard:?}"));
                assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {heard}");
                assert!(heard.contains("connection: close\r\n"), "{head}: {heard}");
                assert!(heard.ends_with('}'), "{head}: {heard}");
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_keeps_no_refusal_waiting_and_one_that_is_only_announced_ends_the_connection() {
    let gateway = TestGateway::new().await;
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\n", gateway.runs_of(gateway.device.endpoint));
    // Most of a second for half a body; nothing for one that its sender keeps back until it is asked for.
    for (more, within_s) in [("", 5), ("Expect: 100-continue\r\n", 1)] {
        let mut raw = RawConnection::connect(gateway.gateway.addresses().http).await;
        let began = Instant::now();
        assert!(raw.say(format!("{head}{more}Content-Length: 1000\r\n\r\n")).await);
        let heard = raw.hear().await;
        assert!(heard.starts_with("HTTP/1.1 401 ") && heard.contains("connection: close\r\n"), "{heard}");
        assert!(!heard.contains("100 Continue"), "{heard}");
        assert!(began.elapsed() < Duration::from_secs(within_s), "{more}: {:?}", began.elapsed());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn over_http2_a_refused_body_ends_its_own_stream_without_an_error_and_the_connection_goes_on() {
    const TURNS: usize = 60;
    let gateway = TestGateway::new().await;
    let stream = TcpStream::connect(gateway.gateway.addresses().http).await.expect("connected");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let ended = tokio::spawn(connection);
    let runs = format!("http://localhost{}", gateway.runs_of(gateway.device.endpoint));
    let ask = async |key: Option<&str>, idempotency_key: String, body: Bytes| {
        let mut request = http::Request::post(&runs).header("X-Gateway-Subject", "anna");
        if let Some(key) = key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let request = request.header("Idempotency-Key", idempotency_key).header("Content-Type", "application/json");
        let mut sender = sender.clone().ready().await.expect("open");
        let (answer, mut sending) = sender.send_request(request.body(()).expect("a request"), false).expect("sent");
        // A long one never ends; only what ends it from the other side does.
        let _ = sending.send_data(body.clone(), body.len() < LONG_BODY_BYTES);
        let answer = timeout(Duration::from_secs(60), answer).await.expect("in time").expect("answered");
        let (status, mut content, mut text) = (answer.status().as_u16(), answer.into_body(), Vec::new());
        while let Some(data) = timeout(Duration::from_secs(60), content.data()).await.expect("in time") {
            let data = data.expect("whole");
            content.flow_control().release_capacity(data.len()).expect("taken");
            text.extend_from_slice(&data);
        }
        (status, String::from_utf8(text).expect("text"), sending)
    };
    let key = gateway.device.app.key.as_str();
    for turn in 0..TURNS {
        let long = turn % 3 == 0;
        let length = if long { LONG_BODY_BYTES } else { SHORT_BODY_BYTES };
        let (status, text, mut sending) = ask(None, turn.to_string(), Bytes::from(vec![b'x'; length])).await;
        assert_eq!(status, 401, "{text}");
        assert!(text.ends_with('}'), "{text}");
        if long {
            let reset = futures_util::future::poll_fn(|cx| sending.poll_reset(cx));
            let reason = timeout(Duration::from_secs(60), reset).await.expect("in time").expect("open");
            assert_eq!(reason, h2::Reason::NO_ERROR);
        }
        let body = Bytes::from(work("hello").to_string());
        assert_eq!(ask(Some(key), turn.to_string(), body).await.0, 202, "{turn}");
    }
    assert!(!ended.is_finished());
    gateway.stop().await;
}
