//! Behind a proxy that is trusted, and beside it.

use deskgate_gateway::http::server::{ListenerAccess, ListenerLimits};
use deskgate_gateway::networks::ForwardedHeader;

use crate::support::call::TestRequest;
use crate::support::gateway::TestGateway;
use crate::support::raw::RawConnection;
use crate::support::server::TestServer;

fn entrance(proxies: &str, proxies_only: bool) -> ListenerAccess {
    ListenerAccess { proxies: proxies.parse().expect("ranges"), proxies_only, ..ListenerAccess::default() }
}

#[tokio::test]
async fn where_only_proxies_may_connect_nobody_else_is_answered() {
    let gateway = TestGateway::new().await;
    for (proxies, answered) in [("127.0.0.0/8", true), ("192.0.2.0/24", false)] {
        let door = TestServer::guarded(gateway.store(), entrance(proxies, true), ListenerLimits::default()).await;
        let mut raw = RawConnection::connect(door.address).await;
        let _ = raw.say("GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert_eq!(raw.hear().await.contains("not_found"), answered, "{proxies}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_caller_cannot_write_itself_another_address_into_either_header() {
    let gateway = TestGateway::new().await;
    let key = gateway.device.restricted_key(|key| key.allowed_cidrs = vec!["198.51.100.0/24".to_owned()]).await.text;
    for (forwarded, own, lie) in [
        (ForwardedHeader::XForwardedFor, "X-Forwarded-For", "Forwarded"),
        (ForwardedHeader::Forwarded, "Forwarded", "X-Forwarded-For"),
    ] {
        let entrance = ListenerAccess { forwarded, ..entrance("127.0.0.1", false) };
        let door = TestServer::guarded(gateway.store(), entrance, ListenerLimits::default()).await;
        let written =
            |name: &str, address: &str| if name == "Forwarded" { format!("for={address}") } else { address.to_owned() };
        let asked = || TestRequest::new(door.address, "GET", "/api/v1/agent-endpoints").key(&key).subject("anna");
        assert_eq!(asked().header(own, written(own, "198.51.100.7")).send().await.status, 200, "{own}");
        for (name, left) in [(lie, ""), (own, ", "), (own, "\"")] {
            let value = format!("{}{left}", written(name, "198.51.100.7"));
            let call = if name == own {
                asked().header(own, format!("{value}, {}", written(own, "203.0.113.1")))
            } else {
                asked().header(own, written(own, "203.0.113.1")).header(lie, value)
            };
            assert_eq!(call.send().await.status, 401, "{own}: {name} {left}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn callers_behind_one_proxy_are_counted_each_and_none_takes_the_places_of_the_others() {
    let gateway = TestGateway::new().await;
    let limits = ListenerLimits { connections_per_source: 2, ..ListenerLimits::default() };
    let door = TestServer::guarded(gateway.store(), entrance("127.0.0.1", false), limits).await;
    let run_id = gateway.submit("waited-for").await;
    let ask = |from: &str, path: String| {
        let call = TestRequest::new(door.address, "GET", &path).key(&gateway.device.app.key).subject("anna");
        call.header("X-Forwarded-For", format!("198.51.100.1, {from}"))
    };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2 {
        waiting.spawn(ask("203.0.113.1", format!("/api/v1/runs/{run_id}?wait=60")).send());
    }
    let quick = || "/api/v1/agent-endpoints".to_owned();
    crate::support::until("both places to be taken", async || ask("203.0.113.1", quick()).send().await.status == 429)
        .await;
    let crowded = ask("203.0.113.1", quick()).send().await;
    crowded.assert_envelope();
    assert_eq!((crowded.code().as_str(), crowded.header("retry-after")), ("rate_limited", Some("1")));
    for _ in 0..3 {
        assert_eq!(ask("203.0.113.2", quick()).send().await.status, 200, "another caller of the same proxy");
    }
    door.draining.cancel();
    for answer in waiting.join_all().await {
        assert_eq!(answer.status, 200, "who waits is answered when the door closes");
    }
    assert_eq!(ask("203.0.113.1", quick()).send().await.status, 200, "its places are free again");
    gateway.stop().await;
}

/// A PROXY header, version 2, for a client at this IPv4 address.
fn proxy_header(command: u8, client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([command, 0x11, 0, 12]);
    header.extend(client);
    header.extend([192, 0, 2, 1, 0x9c, 0x40, 0x01, 0xbb]);
    header
}

/// What a server answers to these pieces, each sent by itself; nothing if it only closes.
async fn answer(address: std::net::SocketAddr, pieces: impl IntoIterator<Item = Vec<u8>>) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    for piece in pieces {
        if stream.write_all(&piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn behind_a_balancer_its_header_says_who_calls_and_without_one_nobody_does() {
    let gateway = TestGateway::new().await;
    let key = gateway.device.restricted_key(|key| key.allowed_cidrs = vec!["198.51.100.0/24".to_owned()]).await.text;
    let balanced =
        |networks: &str| ListenerAccess { balancers: networks.parse().expect("ranges"), ..ListenerAccess::default() };
    let door = TestServer::guarded(gateway.store(), balanced("127.0.0.1"), ListenerLimits::default()).await;
    let request = format!(
        "GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nX-Gateway-Subject: anna\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes();
    let asked = |head: Vec<u8>| answer(door.address, [head, request.clone()]);
    let inside = proxy_header(0x21, [198, 51, 100, 7]);
    assert!(asked(inside.clone()).await.starts_with("HTTP/1.1 200"), "from the client's address");
    assert!(asked(proxy_header(0x21, [203, 0, 113, 1])).await.starts_with("HTTP/1.1 401"), "from another one");
    assert!(asked(proxy_header(0x20, [198, 51, 100, 7])).await.starts_with("HTTP/1.1 401"), "from the balancer itself");
    // However it is cut.
    let bytes = [inside.clone(), request.clone()].concat();
    let pieces = answer(door.address, bytes.iter().map(|byte| vec![*byte])).await;
    assert!(pieces.starts_with("HTTP/1.1 200"), "{pieces}");
    for refused in [
        Vec::new(),
        b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 443\r\n".to_vec(),
        [&inside[..14], &[0xff, 0xff], &inside[16..]].concat(),
        [&inside[..13], &[0x12], &inside[14..]].concat(),
    ] {
        assert_eq!(asked(refused.clone()).await, "", "{refused:?}");
    }
    // Cut off, and waited for no longer than five seconds.
    assert_eq!(answer(door.address, [inside[..20].to_vec()]).await, "");
    // Who is no balancer names nobody.
    let plain = TestServer::guarded(gateway.store(), balanced("192.0.2.0/24"), ListenerLimits::default()).await;
    let spoofed = answer(plain.address, [inside, request.clone()]).await;
    assert!(!spoofed.contains("200"), "{spoofed}");
    assert!(answer(plain.address, [request]).await.starts_with("HTTP/1.1 401"));
    gateway.stop().await;
}

#[tokio::test]
async fn callers_behind_one_balancer_are_counted_each_and_the_balancer_is_not() {
    use tokio::io::AsyncWriteExt;
    let gateway = TestGateway::new().await;
    let limits = ListenerLimits { connections_per_source: 2, ..ListenerLimits::default() };
    let entrance = ListenerAccess { balancers: "127.0.0.1".parse().expect("a range"), ..ListenerAccess::default() };
    let door = TestServer::guarded(gateway.store(), entrance, limits).await;
    let mut open = Vec::new();
    for client in [1, 1, 2, 2] {
        let mut stream = tokio::net::TcpStream::connect(door.address).await.expect("it listens");
        stream.write_all(&proxy_header(0x21, [203, 0, 113, client])).await.expect("sent");
        stream.write_all(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
        let mut begun = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut begun).await.expect("each has two places");
        assert_eq!(&begun, b"HTTP/1.1 404");
        open.push(stream);
    }
    let request = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec();
    let third = |client| answer(door.address, [proxy_header(0x21, [203, 0, 113, client]), request.clone()]);
    assert_eq!(third(1).await, "", "a third one");
    assert!(third(3).await.contains("not_found"), "another client");
    gateway.stop().await;
}
