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
