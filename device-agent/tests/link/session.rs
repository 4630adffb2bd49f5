//! Handshake and session, over a stream inside the process.

use std::time::Duration;

use deskgate::link::{
    BoxedStream, BuiltInConnector, Connector, Credentials, DisconnectReason, LinkError, Session, connect_once,
};
use deskgate_protocol::control::{
    ByeCode, DeviceEvent, DeviceFrame, GatewayFrame, InFlightRun, InFlightStatus, RefusedCode, SessionRefusal,
};
use deskgate_protocol::frame::MAX_FRAME_BYTES;
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{Half, RunId, VERSION};
use futures_util::SinkExt;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::support::gateway::{FakeGateway, GatewaySide};
use crate::support::{credentials, device_key, soon};

/// A connector whose other ends come out of the queue.
pub fn pipe() -> (Connector, mpsc::Receiver<DuplexStream>) {
    let (sender, streams) = mpsc::channel(4);
    let connector = BuiltInConnector::new(move || {
        let sender = sender.clone();
        async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            sender.send(far).await.map_err(|_| std::io::Error::other("stopped"))?;
            Ok(Box::new(near) as BoxedStream)
        }
    });
    (Connector::BuiltIn(connector), streams)
}

pub fn somebody(gateway: &FakeGateway) -> Credentials {
    let folder = tempfile::tempdir().expect("a folder");
    credentials(&device_key(folder.path(), "device"), &gateway.token)
}

async fn attempt(
    gateway: &FakeGateway,
    credentials: &Credentials,
) -> Result<(Session, GatewaySide<DuplexStream>), LinkError> {
    let (connector, mut streams) = pipe();
    let side = async { gateway.greet(streams.recv().await.expect("dialled")).await };
    let (session, side) =
        soon("an answer", async { tokio::join!(connect_once(&connector, credentials, Vec::new()), side) }).await;
    session.map(|session| (session, side.expect("both agree")))
}

async fn welcomed(gateway: &FakeGateway) -> (Session, GatewaySide<DuplexStream>) {
    attempt(gateway, &somebody(gateway)).await.expect("welcomed")
}

async fn lost(mut session: Session) -> DisconnectReason {
    assert_eq!(soon("the line is lost", session.next()).await, None);
    session.lost().expect("a reason").clone()
}

#[tokio::test]
async fn a_wrong_control_token_is_named_as_such() {
    let gateway = FakeGateway::new();
    let mut credentials = somebody(&gateway);
    let wrong = ControlToken::generate();
    credentials.token = Some(wrong.clone());
    let error = attempt(&gateway, &credentials).await.expect_err("refused");
    assert!(matches!(error, LinkError::WrongToken), "{error}");
    assert!(!format!("{error} {credentials:?}").contains(wrong.reveal()));
}

#[tokio::test]
async fn a_refusal_arrives_as_data() {
    let refused = SessionRefusal {
        code: RefusedCode::RevokedDevice,
        message: "this device was revoked on 2026-11-01".to_owned(),
        should_retry: false,
        retry_after_s: None,
        gateway_version: VERSION.to_owned(),
        device_version: Some(VERSION.to_owned()),
        upgrade: None,
    };
    let gateway = FakeGateway { refuse: Some(refused.clone()), ..FakeGateway::new() };
    let error = attempt(&gateway, &somebody(&gateway)).await.expect_err("refused");
    assert!(error.is_blocked() && error.to_string().contains(&refused.message), "{error}");
    let LinkError::Refused(arrived) = error else { panic!("{error}") };
    assert_eq!(*arrived, refused);
}

#[tokio::test]
async fn a_gateway_of_another_version_is_left_even_if_it_says_welcome() {
    let gateway = FakeGateway { version: "99.0.0".to_owned(), ..FakeGateway::new() };
    let error = attempt(&gateway, &somebody(&gateway)).await.expect_err("refused");
    let LinkError::Refused(refused) = &error else { panic!("{error}") };
    assert_eq!((refused.code, refused.upgrade), (RefusedCode::VersionMismatch, Some(Half::Device)));
    assert!(error.to_string().contains("99.0.0") && error.to_string().contains(VERSION), "{error}");
}

#[tokio::test]
async fn the_hello_carries_what_the_journal_holds() {
    let gateway = FakeGateway::new();
    let (connector, mut streams) = pipe();
    let run = InFlightRun { run_id: RunId::new(), attempt: 2, status: InFlightStatus::Running };
    let credentials = somebody(&gateway);
    let device = connect_once(&connector, &credentials, vec![run]);
    let side = async {
        let stream = streams.recv().await.expect("dialled");
        let mut side = GatewaySide(tokio_tungstenite::accept_async(stream).await.expect("upgraded"));
        side.send(&GatewayFrame::Challenge(deskgate_protocol::control::Challenge {
            nonce: "n".to_owned(),
            gateway_id: gateway.id,
            gateway_version: VERSION.to_owned(),
            protocol: deskgate_protocol::PROTOCOL_RANGE,
        }))
        .await;
        side.next().await
    };
    let (result, hello) = soon("an answer", async { tokio::join!(device, side) }).await;
    assert!(matches!(result, Err(LinkError::Lost(_))), "the gateway hung up after the hello");
    let Some(DeviceFrame::Hello(hello)) = hello else { panic!("{hello:?}") };
    assert_eq!(hello.in_flight, [run]);
}

#[tokio::test]
async fn what_is_no_gateway_is_called_so() {
    for answer in ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "220 mail.example ESMTP\r\n\r\n"] {
        let (connector, mut streams) = pipe();
        let credentials = somebody(&FakeGateway::new());
        let other = async {
            let mut stream = streams.recv().await.expect("dialled");
            stream.write_all(answer.as_bytes()).await.expect("written");
            stream
        };
        let device = connect_once(&connector, &credentials, Vec::new());
        let (result, _) = soon("an answer", async { tokio::join!(device, other) }).await;
        assert!(matches!(result, Err(LinkError::NotAGateway(_))), "{answer}: {result:?}");
    }
}

#[tokio::test]
async fn a_malformed_frame_ends_the_session_with_its_reason() {
    let unknown = Message::text(r#"{"frame":"surprise"}"#);
    for message in [unknown, Message::text("not json"), Message::binary(vec![1, 2, 3])] {
        let (session, mut side) = welcomed(&FakeGateway::new()).await;
        side.0.send(message.clone()).await.expect("sent");
        assert!(matches!(lost(session).await, DisconnectReason::Malformed(_)), "{message:?}");
    }
}

#[tokio::test]
async fn why_the_gateway_ended_the_session_is_the_reason_and_not_that_the_line_closed() {
    let (mut session, mut side) = welcomed(&FakeGateway::new()).await;
    let bye = GatewayFrame::Bye { code: ByeCode::ProtocolViolation, message: "events are missing".to_owned() };
    side.send(&bye).await;
    drop(side);
    assert_eq!(soon("the goodbye is heard", session.next()).await, Some(bye));
    let why = lost(session).await.to_string();
    assert!(why.contains("protocol_violation") && why.contains("events are missing"), "{why}");
}

#[tokio::test]
async fn an_oversized_frame_ends_the_session_and_the_largest_allowed_does_not() {
    let (session, mut side) = welcomed(&FakeGateway::new()).await;
    let head = r#"{"frame":"reply","request_id":1,"ok":""#;
    let message = |size: usize| format!("{head}{}\"}}", "x".repeat(size - head.len() - 2));
    let mut largest = session;
    let sending = side.0.send(Message::text(message(MAX_FRAME_BYTES)));
    let (sent, frame) = soon("the largest arrives", async { tokio::join!(sending, largest.next()) }).await;
    sent.expect("sent");
    assert!(matches!(frame, Some(GatewayFrame::Reply { .. })));

    let sending = side.0.send(Message::text(message(MAX_FRAME_BYTES + 1)));
    let (_, reason) = soon("the line is lost", async { tokio::join!(sending, lost(largest)) }).await;
    assert!(matches!(reason, DisconnectReason::TooLarge(_)), "{reason}");
}

#[tokio::test]
async fn a_frame_of_ours_that_is_too_large_is_called_our_own_fault() {
    let (session, _side) = welcomed(&FakeGateway::new()).await;
    let event = DeviceEvent::MessageCompleted {
        message_id: "m".to_owned(),
        text: "x".repeat(MAX_FRAME_BYTES),
        reasoning_summary: None,
    };
    let frame = DeviceFrame::Event { run_id: RunId::new(), attempt: 1, seq: 1, event };
    session.sender().send(frame).await.expect("queued");
    assert!(matches!(lost(session).await, DisconnectReason::OwnTooLarge(_)));
}

#[tokio::test]
async fn a_frozen_gateway_is_noticed_after_three_heartbeats() {
    let gateway = FakeGateway { heartbeat_ms: 100, ..FakeGateway::new() };
    let (session, side) = welcomed(&gateway).await;
    assert_eq!(lost(session).await, DisconnectReason::Silent(Duration::from_millis(300)));
    drop(side);
}

#[tokio::test]
async fn a_gateway_that_sends_but_does_not_read_is_noticed_after_two_heartbeats() {
    let gateway = FakeGateway { heartbeat_ms: 200, ..FakeGateway::new() };
    let (mut session, side) = welcomed(&gateway).await;
    let (mut sink, unread) = futures_util::StreamExt::split(side.0);
    let pings = tokio::spawn(async move {
        let ping = || Message::text(r#"{"frame":"ping"}"#);
        while sink.send(ping()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let sender = session.sender();
    let flood = tokio::spawn(async move {
        let event = DeviceEvent::MessageCompleted {
            message_id: "m".to_owned(),
            text: "x".repeat(100_000),
            reasoning_summary: None,
        };
        let frame = DeviceFrame::Event { run_id: RunId::new(), attempt: 1, seq: 1, event };
        while sender.send(frame.clone()).await.is_ok() {}
    });
    soon("the line is lost", async { while session.next().await.is_some() {} }).await;
    assert_eq!(session.lost(), Some(&DisconnectReason::Stuck(Duration::from_millis(400))));
    soon("senders learn it", flood).await.expect("no panic");
    drop((session, unread));
    soon("the line is closed", pings).await.expect("no panic");
}

#[tokio::test]
async fn dropping_the_session_closes_the_line() {
    let (session, mut side) = welcomed(&FakeGateway::new()).await;
    let sender = session.sender();
    drop(session);
    assert_eq!(soon("the gateway notices", side.next()).await, None);
    soon("senders learn it", async { while sender.send(DeviceFrame::Pong).await.is_ok() {} }).await;
}
