//! Senders that keep a connection busy without sending a request.

use std::time::{Duration, Instant};

use deskgate_gateway::http::server::ListenerLimits;

use crate::support::gateway::TestGateway;
use crate::support::raw::RawConnection;
use crate::support::server::TestServer;

/// The limits of security.md, with a margin for a busy machine; and not before an honest sender is done.
const CLOSE_TIME_RANGE: std::ops::Range<Duration> = Duration::from_secs(4)..Duration::from_secs(18);

#[tokio::test]
async fn whoever_does_not_finish_a_head_is_closed_within_fifteen_seconds() {
    let gateway = TestGateway::new().await;
    let address = gateway.gateway.addresses().http;
    let pause = Duration::from_millis(500);
    let mut slow = tokio::task::JoinSet::new();
    for (name, first, dripped) in [
        ("says nothing", "", ""),
        ("says the first letter of a POST", "P", ""),
        ("begins HTTP/2 and stops", "PRI * HTTP/2.0\r\n", ""),
        ("says the preface and nothing more", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        ("drips a request line", "G", "E"),
        ("drips a header", "GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\nX-Drip: ", "a"),
        ("drips headers", "GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\n", "A: b\r\n"),
        ("never ends a head", "GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\n", ""),
        ("drips empty lines", "", "\r\n"),
    ] {
        slow.spawn(async move {
            let mut raw = RawConnection::connect(address).await;
            let began = Instant::now();
            assert!(first.is_empty() || raw.say(first).await);
            match dripped {
                "" => raw.hear().await,
                _ => raw.drip(dripped.as_bytes(), pause).await,
            };
            (name, began.elapsed())
        });
    }
    for (name, took) in slow.join_all().await {
        println!("{name}: closed after {took:?}");
        assert!(CLOSE_TIME_RANGE.contains(&took), "{name}: closed after {took:?}");
    }
    assert_eq!(gateway.ask("GET", "/api/v1/agent-endpoints").send().await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_is_kept_for_later_and_each_head_on_it_has_its_time_from_its_first_byte() {
    let gateway = TestGateway::new().await;
    let head = Duration::from_secs(1);
    let door = TestServer::open(gateway.store(), ListenerLimits { head, ..ListenerLimits::default() }).await;
    let mut raw = RawConnection::connect(door.address).await;
    for _ in 0..2 {
        assert!(raw.say("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").await);
        raw.hear_until(|heard| heard.contains("not_found")).await;
        tokio::time::sleep(head * 2).await;
    }
    let began = Instant::now();
    assert!(raw.say("GET /nowhere HTTP/1.1\r\nHost:").await);
    assert_eq!(raw.hear().await, "", "half a head is answered by the end of the connection");
    assert!(
        began.elapsed() >= head / 2 && began.elapsed() < ListenerLimits::default().idle / 2,
        "{:?}",
        began.elapsed()
    );

    let door = TestServer::open(gateway.store(), ListenerLimits { idle: head, ..ListenerLimits::default() }).await;
    let mut raw = RawConnection::connect(door.address).await;
    assert!(raw.say("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").await);
    raw.hear_until(|heard| heard.contains("not_found")).await;
    assert_eq!(raw.hear().await, "", "and it is not kept for ever");
    gateway.stop().await;
}

fn head(gateway: &TestGateway, length: usize) -> String {
    format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: slow\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        gateway.runs_of(gateway.device.endpoint),
        gateway.device.app.key
    )
}

#[tokio::test]
async fn half_a_body_is_answered_when_its_time_is_up_and_the_connection_closed() {
    let gateway = TestGateway::new().await;
    let door =
        TestServer::open(gateway.store(), ListenerLimits { body: Duration::from_secs(1), ..ListenerLimits::default() })
            .await;
    for dripping in [false, true] {
        let mut raw = RawConnection::connect(door.address).await;
        let began = Instant::now();
        assert!(raw.say(head(&gateway, 1000)).await && raw.say("{\"input\":").await);
        let heard = if dripping { raw.drip(b" ", Duration::from_millis(100)).await } else { raw.hear().await };
        assert!((1..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert!(heard.starts_with("HTTP/1.1 408 "), "{heard}");
        assert!(heard.contains("\"code\":\"body_timeout\"") && heard.contains("\"retryable\":true"), "{heard}");
        assert!(heard.contains("\"detail\":\"The body did not arrive within 1 seconds.\""), "{heard}");
    }
    assert_eq!(gateway.database.value("SELECT count(*) FROM runs").await, "0");
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_no_submission() {
    let gateway = TestGateway::new().await;
    let body = "{\"input\":{\"text\":\"a\"}}";
    for cut in [0, 1, body.len() - 1] {
        let mut raw = RawConnection::connect(gateway.gateway.addresses().http).await;
        assert!(raw.say(head(&gateway, body.len())).await && raw.say(&body[..cut]).await);
        raw.end().await;
        let heard = raw.hear().await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 400 "), "{heard}");
    }
    assert_eq!(gateway.database.value("SELECT count(*) FROM runs").await, "0");
    gateway.stop().await;
}

#[tokio::test]
async fn one_source_gets_so_many_connections_and_the_place_is_free_again_afterwards() {
    let gateway = TestGateway::new().await;
    let door =
        TestServer::open(gateway.store(), ListenerLimits { connections_per_source: 3, ..ListenerLimits::default() })
            .await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut raw = RawConnection::connect(door.address).await;
        assert!(raw.say("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").await);
        raw.hear_until(|heard| heard.contains("not_found")).await;
        held.push(raw);
    }
    let mut refused = RawConnection::connect(door.address).await;
    let _ = refused.say("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(refused.hear().await, "");
    held.clear();
    crate::support::until("a place is free", async || {
        let mut raw = RawConnection::connect(door.address).await;
        let _ = raw.say("GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        raw.hear().await.contains("not_found")
    })
    .await;
    gateway.stop().await;
}
