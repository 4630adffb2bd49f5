//! Peers that speak HTTP/2 and do not read their answers, or ask for nothing, over TLS and without.

use std::time::{Duration, Instant};

use bytes::Bytes;
use deskgate_gateway::domain;
use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::notify::Topic;
use deskgate_gateway::tls::ServerTls;
use deskgate_protocol::RunId;
use h2::Reason;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::call::TestRequest;
use crate::support::certificate::Certificate;
use crate::support::gateway::TestGateway;
use crate::support::raw::RawStream;
use crate::support::server::TestServer;
use crate::support::stream::events;
use crate::support::until;

const SECOND: Duration = Duration::from_secs(1);
/// With a margin for a busy machine.
const GENEROUS_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that answers pings, and says how it ended.
struct PingingClient {
    sender: SendRequest<Bytes>,
    ended: JoinHandle<Result<(), h2::Error>>,
}

/// A server, and clients of it whose streams have a window of so many bytes.
struct StreamServer {
    gateway: TestGateway,
    door: TestServer,
    certificate: Option<Certificate>,
}

impl StreamServer {
    async fn new(over_tls: bool, limits: ListenerLimits) -> Self {
        let gateway = Box::pin(TestGateway::new()).await;
        let certificate = over_tls.then(Certificate::new);
        let tls = certificate.as_ref().map(|certificate| ServerTls::load(certificate.files()).expect("good"));
        let callers = domain::CallerLimits { streams_per_application: 1, ..Default::default() };
        let door =
            TestServer::with(gateway.store(), ListenerAccess { tls, ..ListenerAccess::default() }, limits, callers)
                .await;
        Self { gateway, door, certificate }
    }

    async fn client(&self, window: u32) -> PingingClient {
        let stream: Box<dyn RawStream> = match &self.certificate {
            Some(certificate) => Box::new(certificate.connect(self.door.address, "h2").await.expect("a handshake")),
            None => Box::new(TcpStream::connect(self.door.address).await.expect("connected")),
        };
        PingingClient::over(stream, window).await
    }
}

impl PingingClient {
    async fn over(stream: impl RawStream + 'static, window: u32) -> Self {
        let (sender, connection) =
            Builder::new().initial_window_size(window).handshake::<_, Bytes>(stream).await.expect("HTTP/2");
        Self { sender, ended: tokio::spawn(connection) }
    }

    /// Asks, and has the head of the answer.
    async fn ask(&mut self, site: &StreamServer, path: &str) -> h2::RecvStream {
        let request = http::Request::get(format!("http://localhost{path}"))
            .header("Authorization", format!("Bearer {}", site.gateway.device.app.key))
            .header("Accept", "text/event-stream, */*;q=0.5")
            .header("X-Gateway-Subject", "anna");
        let (answer, _) = self.sender.send_request(request.body(()).expect("a request"), true).expect("sent");
        let answer = timeout(GENEROUS_TIMEOUT, answer).await.expect("in time").expect("answered");
        assert_eq!(answer.status(), 200, "{path}");
        answer.into_body()
    }
}

/// A connection to a server that holds back the GOAWAY, and everything behind it.
struct GoawayHoldingStream {
    announced: CancellationToken,
    released: CancellationToken,
    _passing_on: JoinSet<()>,
}

/// The head of a GOAWAY without further data (RFC 9113, section 6.8).
const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];

impl GoawayHoldingStream {
    async fn to(door: &TestServer) -> (DuplexStream, Self) {
        let (near, far) = duplex(1 << 16);
        let mut door = TcpStream::connect(door.address).await.expect("connected");
        let (announced, released) = (CancellationToken::new(), CancellationToken::new());
        let mut passing_on = JoinSet::new();
        let (announce, release) = (announced.clone(), released.clone());
        passing_on.spawn(async move {
            let ((mut from_client, mut to_client), (mut from_door, mut to_door)) = (split(far), door.split());
            let back = async {
                let mut heard = [0; 4096];
                while let Ok(length @ 1..) = from_door.read(&mut heard).await {
                    if heard[..length].windows(GOAWAY.len()).any(|head| head == GOAWAY) {
                        announce.cancel();
                        release.cancelled().await;
                    }
                    to_client.write_all(&heard[..length]).await.expect("the client is there");
                }
            };
            tokio::select! {
                () = back => {}
                _ = copy(&mut from_client, &mut to_door) => {}
            }
        });
        (near, Self { announced, released, _passing_on: passing_on })
    }
}

/// All of a body.
async fn whole(mut body: h2::RecvStream) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(piece) = timeout(GENEROUS_TIMEOUT, body.data()).await.expect("in time") {
        let piece = piece.expect("not reset");
        body.flow_control().release_capacity(piece.len()).expect("received");
        whole.extend_from_slice(&piece);
    }
    whole
}

async fn reset(mut body: h2::RecvStream) {
    let ended = timeout(GENEROUS_TIMEOUT, body.data()).await.expect("ended in time").expect("it did not end well");
    assert_eq!(ended.expect_err("nothing was to be taken").reason(), Some(Reason::CANCEL));
}

async fn a_stream_that_is_not_read_is_reset(over_tls: bool) {
    let site = StreamServer::new(over_tls, ListenerLimits { unread: SECOND, ..ListenerLimits::default() }).await;
    let run_id: RunId = site.gateway.submit("followed").await;
    let mut client = site.client(0).await;
    let followed = client.ask(&site, &events(run_id)).await;
    let answered = client.ask(&site, "/api/v1/agent-endpoints").await;
    reset(followed).await;
    reset(answered).await;
    // The connection is as good as before; its only permit is free again.
    until("the place is free", async || {
        let request = http::Request::get(format!("http://localhost{}", events(run_id)))
            .header("Authorization", format!("Bearer {}", site.gateway.device.app.key))
            .header("Accept", "text/event-stream")
            .header("X-Gateway-Subject", "anna");
        let (answer, _) =
            client.sender.send_request(request.body(()).expect("a request"), true).expect("the connection is there");
        answer.await.expect("answered").status() == 200
    })
    .await;
    site.gateway.stop().await;
}

#[tokio::test]
async fn a_stream_whose_reader_has_no_room_is_reset_and_its_connection_goes_on() {
    Box::pin(a_stream_that_is_not_read_is_reset(false)).await;
}

#[tokio::test]
async fn a_stream_over_tls_whose_reader_has_no_room_is_reset_and_its_connection_goes_on() {
    Box::pin(a_stream_that_is_not_read_is_reset(true)).await;
}

#[tokio::test]
async fn a_reader_to_whom_nothing_is_to_be_told_is_not_taken_for_one_that_does_not_read() {
    let site =
        StreamServer::new(false, ListenerLimits { unread: SECOND, idle: SECOND, ..ListenerLimits::default() }).await;
    let run_id = site.gateway.submit("followed").await;
    let mut client = site.client(1 << 20).await;
    let mut body = client.ask(&site, &events(run_id)).await;
    let (mut heard, began) = (Vec::new(), Instant::now());
    // The comment comes after a silence that is far longer than a peer's timeout.
    while !String::from_utf8_lossy(&heard).contains(": nothing new\n\n") {
        let piece = timeout(GENEROUS_TIMEOUT, body.data()).await.expect("in time").expect("not at its end");
        heard.extend_from_slice(&piece.expect("not reset"));
    }
    assert!(began.elapsed() > 4 * SECOND, "{:?}", began.elapsed());
    assert!(!client.ended.is_finished());
    site.gateway.stop().await;
}

async fn with_nothing_under_way_a_connection_ends(over_tls: bool) {
    let site = StreamServer::new(
        over_tls,
        ListenerLimits { unread: GENEROUS_TIMEOUT, idle: SECOND, ..ListenerLimits::default() },
    )
    .await;
    let run_id = site.gateway.submit("waited-for").await;
    let mut client = site.client(1 << 16).await;
    let document = whole(client.ask(&site, "/api/v1/openapi.json").await).await;
    let url = TestRequest::new(site.door.address, "GET", "/api/v1/openapi.json");
    if !over_tls {
        assert_eq!(document, url.send().await.text.as_bytes(), "a long answer arrives whole");
    }
    let began = Instant::now();
    let waited = whole(client.ask(&site, &format!("/api/v1/runs/{run_id}?wait=3")).await).await;
    assert!(!waited.is_empty(), "who waits for an answer is not idle");
    let ended = timeout(GENEROUS_TIMEOUT, client.ended).await.expect("it ends").expect("no panic");
    assert!(ended.is_ok(), "it is told before: {ended:?}");
    assert!(began.elapsed() >= 4 * SECOND, "it waits, and then for the next question: {:?}", began.elapsed());
    site.gateway.stop().await;
}

#[tokio::test]
async fn a_connection_with_nothing_under_way_is_ended_in_good_order() {
    Box::pin(with_nothing_under_way_a_connection_ends(false)).await;
}

#[tokio::test]
async fn a_connection_over_tls_with_nothing_under_way_is_ended_in_good_order() {
    Box::pin(with_nothing_under_way_a_connection_ends(true)).await;
}

#[tokio::test]
async fn what_is_asked_before_the_word_of_the_end_arrives_is_answered() {
    let site =
        StreamServer::new(false, ListenerLimits { unread: 2 * SECOND, idle: SECOND, ..ListenerLimits::default() })
            .await;
    let run_id = site.gateway.submit("waited-for").await;
    let (stream, line) = GoawayHoldingStream::to(&site.door).await;
    let mut client = PingingClient::over(stream, 1 << 16).await;
    whole(client.ask(&site, "/api/v1/agent-endpoints").await).await;
    timeout(GENEROUS_TIMEOUT, line.announced.cancelled()).await.expect("the connection is to end");
    let passing = async {
        until("it waits", async || site.gateway.store().notifier().watchers(Topic::Run(run_id)) > 0).await;
        line.released.cancel();
    };
    let read = format!("/api/v1/runs/{run_id}?wait=6");
    let (answer, ()) = tokio::join!(client.ask(&site, &read), passing);
    assert!(!whole(answer).await.is_empty());
    let ended = timeout(GENEROUS_TIMEOUT, client.ended).await.expect("it ends").expect("no panic");
    assert!(ended.is_ok(), "{ended:?}");
    site.gateway.stop().await;
}

#[tokio::test]
async fn answers_that_are_never_taken_do_not_hold_a_connection_for_ever() {
    let site =
        StreamServer::new(false, ListenerLimits { unread: SECOND, idle: SECOND, ..ListenerLimits::default() }).await;
    // The window takes a byte of each answer; the rest is handed over, and stays in our buffers.
    let mut client = site.client(1).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(client.ask(&site, "/api/v1/agent-endpoints").await);
    }
    let _ = timeout(GENEROUS_TIMEOUT, client.ended).await.expect("it ends").expect("no panic");
    drop(kept);
    site.gateway.stop().await;
}
