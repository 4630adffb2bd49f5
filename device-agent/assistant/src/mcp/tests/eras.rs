//! Servers of the newer era, which are discovered, and of the older, with which hands are shaken.

use super::server::{greeting, modern, refusal};
use super::*;

/// The value of a header in each request with this method, if the request had one.
fn versions_of(server: &FakeMcpServer, method: &str) -> Vec<Option<String>> {
    let version = |seen: SeenRequest| {
        seen.head.lines().find_map(|line| line.strip_prefix("mcp-protocol-version: ").map(str::to_owned))
    };
    server.seen().into_iter().filter(|seen| seen.method == method).map(version).collect()
}

fn some(version: &str) -> Vec<Option<String>> {
    vec![Some(version.to_owned())]
}

#[tokio::test]
async fn a_server_of_the_newer_era_is_discovered_and_each_request_says_its_version() {
    let server = FakeMcpServer::start(|seen| match seen.method.as_str() {
        "tools/call" if seen.head.contains("mcp-name: add_note\r\n") => {
            let content = says("Noted.")["content"].clone();
            result(seen, json!({ "resultType": "complete", "content": content }))
        }
        _ => modern(seen, tools()),
    })
    .await;
    let device = TrustingDevice::with(&server).await.published().await;
    assert_eq!(device.call().await, ToolOutput::ok("Noted."));
    assert_eq!(server.count("initialize") + server.count("notifications/initialized"), 0, "{:?}", server.seen());
    for method in ["server/discover", "tools/list"] {
        assert_eq!(versions_of(&server, method).len(), 2, "once for the list and once for the call: {method}");
    }
    assert_eq!(versions_of(&server, "tools/call"), some("2026-07-28"));
    let is_deep = |seen: &SeenRequest| seen.head.contains("deskgate-depth: 3\r\n");
    assert!(server.seen().iter().filter(|seen| seen.method == "tools/call").all(is_deep), "one more than its run has");
}

#[tokio::test]
async fn a_stop_of_a_call_closes_its_connection_to_a_server_of_the_newer_era() {
    let server = FakeMcpServer::start(|seen| match seen.method.as_str() {
        "tools/call" => ServerReply::Nothing,
        _ => modern(seen, tools()),
    })
    .await;
    let device = TrustingDevice::with(&server).await.published().await;
    let opened = device.open().await.expect("as it was published");
    let stop = CancellationToken::new();
    let call = tokio::spawn(opened[0].run(json!({}), stop.clone()));
    wait_for(&server, "tools/call").await;
    assert_eq!(server.given_up(), 0);
    stop.cancel();
    assert!(call.await.expect("no panic").expect("an answer").is_unknown);
    let closed = async {
        while server.given_up() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closed).await.expect("the connection ends");
    assert_eq!(server.count("notifications/cancelled"), 0, "closing is the sign");
}

#[tokio::test]
async fn a_server_of_the_older_era_is_found_by_whatever_it_answers_and_asked_with_a_handshake() {
    let missing = json!({ "code": -32601, "message": "method not found" });
    let unsupported = |supported: Value| json!({ "code": -32022, "message": "x", "data": { "supported": supported } });
    let (one, other, silent) =
        (missing.clone(), unsupported(json!(["2025-11-25", "2025-06-18"])), unsupported(json!([])));
    let anonymous = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "not initialized" } });
    let json_type = "content-type: application/json\r\n";
    let verdicts: Vec<(&str, ReplyFn)> = vec![
        ("no such method", Box::new(move |seen| refusal(seen, "200 OK", missing.clone()))),
        ("no such method, as a status", Box::new(move |seen| refusal(seen, "404 Not Found", one.clone()))),
        ("a list of older versions", Box::new(move |seen| refusal(seen, "400 Bad Request", other.clone()))),
        ("a refusal without a list", Box::new(move |seen| refusal(seen, "400 Bad Request", silent.clone()))),
        ("no id", Box::new(move |_| http("400 Bad Request", json_type, &anonymous.to_string()))),
        ("400", Box::new(|_| http("400 Bad Request", "", "no session"))),
        ("404", Box::new(|_| http("404 Not Found", "", ""))),
        ("405", Box::new(|_| http("405 Method Not Allowed", "", ""))),
        ("422", Box::new(|_| http("422 Unprocessable Content", "", ""))),
        ("500", Box::new(|_| http("500 Internal Server Error", "", ""))),
        ("taken", Box::new(|_| http("202 Accepted", "", ""))),
        ("a page", Box::new(|_| http("200 OK", "content-type: text/html\r\n", "<html>"))),
        ("cut", Box::new(|_| ServerReply::Cut)),
        (
            "discovered, with older versions only",
            Box::new(|seen| result(seen, json!({ "supportedVersions": ["2025-11-25"], "capabilities": {} }))),
        ),
    ];
    for (name, verdict) in verdicts {
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            "server/discover" => verdict(seen),
            "initialize" => greeting(seen, "2025-11-25"),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        device.servers.look(&device.server).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let seen = server.seen();
        let hello = seen.iter().find(|seen| seen.method == "initialize").expect("asked");
        assert_eq!(hello.body["params"]["protocolVersion"], "2025-11-25", "{name}");
        assert_eq!(versions_of(&server, "server/discover"), some("2026-07-28"), "{name}");
        assert_eq!(versions_of(&server, "initialize"), [None], "{name}");
        assert_eq!(versions_of(&server, "tools/list"), some("2025-11-25"), "{name}");
    }
}

#[tokio::test]
async fn the_version_that_an_older_server_chose_is_the_one_that_is_said() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            "initialize" => greeting(seen, version),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        device.servers.look(&device.server).await.expect("spoken here");
        assert_eq!(versions_of(&server, "tools/list"), some(version));
    }
}

#[tokio::test]
async fn a_version_that_is_not_spoken_here_is_named_and_nothing_is_asked_in_it() {
    for version in ["2099-01-01", "2026-07-28", "1.0"] {
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            "initialize" => greeting(seen, version),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        let error = device.servers.look(&device.server).await.expect_err(version);
        assert!(matches!(&error, McpServerError::Version(named) if named == version), "{error:?}");
        assert_eq!(server.count("tools/list"), 0);
    }
    let newer =
        json!({ "code": -32022, "message": "x", "data": { "supported": ["2099-01-01", "2100-01-01\u{1b}[2J"] } });
    let server = FakeMcpServer::start(move |seen| refusal(seen, "400 Bad Request", newer.clone())).await;
    let device = TrustingDevice::with(&server).await;
    let error = device.servers.look(&device.server).await.expect_err("too new").to_string();
    assert!(error.contains("2099-01-01, 2100-01-01[2J of the protocol") && error.contains("2025-11-25"), "{error}");
    assert_eq!(server.count("initialize"), 0, "it is of the newer era");
}

#[tokio::test]
async fn a_server_of_the_newer_era_that_refuses_is_not_asked_for_a_handshake() {
    for (code, part) in [(-32021, "demands an ability"), (-32020, "a proxy in between")] {
        let error = json!({ "code": code, "message": "canary" });
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            "server/discover" => refusal(seen, "400 Bad Request", error.clone()),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        let error = device.servers.look(&device.server).await.expect_err("refused").to_string();
        assert!(error.contains(part) && !error.contains("canary"), "{error}");
        assert_eq!(server.count("initialize"), 0);
    }
    for status in ["401 Unauthorized", "403 Forbidden", "307 Temporary Redirect", "429 Too Many Requests"] {
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            "server/discover" => http(status, "", ""),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        device.servers.look(&device.server).await.expect_err(status);
        assert_eq!(server.seen().len(), 1, "{status} says nothing of the era");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_to_the_discovery_is_asked_with_a_handshake_within_the_opening() {
    let server = FakeMcpServer::start(|seen| match seen.method.as_str() {
        "server/discover" => ServerReply::Nothing,
        _ => polite(seen, tools()),
    })
    .await;
    let mut device = TrustingDevice::with(&server).await;
    device.servers.patience.discovery = Duration::from_millis(200);
    device.servers.look(&device.server).await.expect("by a handshake");
}

#[tokio::test]
async fn an_older_server_is_asked_for_its_era_once_until_it_answers_otherwise() {
    let is_renewed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let renewed = Arc::clone(&is_renewed);
    let server = FakeMcpServer::start(move |seen| match renewed.load(std::sync::atomic::Ordering::SeqCst) {
        true => modern(seen, tools()),
        false => polite(seen, tools()),
    })
    .await;
    let device = TrustingDevice::with(&server).await;
    for _ in 0..3 {
        device.servers.clone().look(&device.server).await.expect("older");
    }
    assert_eq!((server.count("server/discover"), server.count("initialize")), (1, 3));
    is_renewed.store(true, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..2 {
        device.servers.look(&device.server).await.expect("renewed");
    }
    assert_eq!((server.count("server/discover"), server.count("initialize")), (3, 4));
}
