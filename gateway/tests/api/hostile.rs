//! Senders that break the rules.

use serde_json::{Value, json};

use crate::support::gateway::{TestGateway, work};
use crate::support::raw::RawConnection;

/// An answer must not reveal internals.
pub(crate) fn assert_discreet(answer: &str) {
    assert!(!answer.contains(" 500 ") && !answer.contains("\"status\":500"), "{answer}");
    for inside in ["panicked", "SELECT", "INSERT", "postgres", "tokio", "hyper", "/home/", "/tmp/", ".rs:", "backtrace"]
    {
        assert!(!answer.contains(inside), "{inside:?} in {answer}");
    }
}

/// A refusal that ends its connection has a problem document all the same, and every common header.
fn assert_refusal(heard: &str, status: &str, code: &str) {
    assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{heard}");
    let (head, body) = heard.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no body in {heard}"));
    let header =
        |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default();
    assert_eq!(header("content-type"), "application/problem+json", "{heard}");
    assert_eq!(header("content-length"), body.len().to_string(), "{heard}");
    assert_eq!(header("connection"), "close", "{heard}");
    assert!(!header("gateway-version").is_empty() && !header("date").is_empty(), "{heard}");
    let problem: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {heard}"));
    assert_eq!((&problem["code"], problem["status"].to_string()), (&json!(code), status.to_owned()), "{heard}");
    assert_eq!(problem["request_id"], header("x-request-id"), "{heard}");
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_a_problem_document() {
    let gateway = TestGateway::new().await;
    let post = |headers: &str| format!("POST /api/v1/conversations HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    for request in [
        "GE\u{0}T / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET / HTTP/7.1\r\nHost: x\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        post("X-Nul: a\u{0}b\r\n"),
        post("no header\r\n"),
        post("Content-Length: -1\r\n"),
        post("Content-Length: 1\r\nContent-Length: 2\r\n"),
        post("Transfer-Encoding: gzip\r\n"),
        // Behind a good one on the same connection.
        format!("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n{}", post("Content-Length: x\r\n")),
    ] {
        let heard = answer(&gateway, &request).await;
        let last = heard.rfind("HTTP/1.1 ").unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_refusal(&heard[last..], "400", "malformed_request");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_host_that_is_missing_twice_or_none_is_refused() {
    let gateway = TestGateway::new().await;
    let missing = "The header Host is missing.";
    let twice = "The header Host was sent more than once.";
    let none = "The header Host is not the name or address of a host, with or without a port.";
    for (headers, detail) in [
        ("", missing),
        ("Host: a\r\nHost: b\r\n", twice),
        ("Host: a\r\nHost: a\r\n", twice),
        ("Host:\r\n", none),
        ("Host: a b\r\n", none),
        ("Host: a/b\r\n", none),
        ("Host: user@a\r\n", none),
        ("Host: a:http\r\n", none),
    ] {
        let request = format!("GET /api/v1/agent-endpoints HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        let heard = answer(&gateway, request).await;
        assert_refusal(&heard, "400", "malformed_request");
        assert!(heard.contains(detail), "{headers:?}: {heard}");
    }
    // HTTP/1.0 has none.
    assert!(answer(&gateway, "GET /api/v1/agent-endpoints HTTP/1.0\r\n\r\n").await.starts_with("HTTP/1.0 401 "));
    gateway.stop().await;
}

#[tokio::test]
async fn many_callers_may_connect_at_one_moment() {
    let gateway = TestGateway::new().await;
    let port = gateway.gateway.addresses().http.port();
    let listed =
        std::process::Command::new("ss").args(["-Hltn", &format!("sport = :{port}")]).output().expect("ss is there");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let backlog: u32 = listed.split_whitespace().nth(2).and_then(|number| number.parse().ok()).expect(&listed);
    let most: u32 =
        std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux").trim().parse().expect("a number");
    assert!(backlog >= most.min(1024), "{listed}");
    gateway.stop().await;
}

async fn answer(gateway: &TestGateway, request: impl AsRef<[u8]>) -> String {
    let mut raw = RawConnection::connect(gateway.gateway.addresses().http).await;
    let _ = raw.say(request).await;
    let heard = raw.hear().await;
    assert_discreet(&heard);
    heard
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let gateway = TestGateway::new().await;
    let get = "GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\n";
    let many: String = (0..10_000).map(|n| format!("X-{n}: v\r\n")).collect();
    for head in [
        format!("{get}X-Large: {}\r\n\r\n", "a".repeat(33 * 1024)),
        format!("{get}{many}\r\n"),
        format!("{get}{}\r\n", "X: y\r\n".repeat(101)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(33 * 1024)),
        format!("{get}Authorization: Bearer {}\r\n\r\n", "a".repeat(1024 * 1024)),
    ] {
        assert_refusal(&answer(&gateway, &head).await, "431", "head_too_large");
    }
    let fits = format!("{get}X-Large: {}\r\nConnection: close\r\n\r\n", "a".repeat(30 * 1024));
    assert!(answer(&gateway, fits).await.starts_with("HTTP/1.1 401 "));
    gateway.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_one_by_one_in_their_order() {
    let gateway = TestGateway::new().await;
    let get = |id: &str, more: &str| {
        format!("GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\nX-Request-Id: {id}\r\n{more}\r\n")
    };
    let body = work("hello").to_string();
    let post = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: piped\r\n\
         Content-Type: application/json\r\nX-Request-Id: two\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.runs_of(gateway.device.endpoint),
        gateway.device.app.key,
        body.len()
    );
    let heard = answer(&gateway, get("one", "") + &post + &get("three", "Connection: close\r\n")).await;
    let places: Vec<_> = ["401", "x-request-id: one", "202", "x-request-id: two", "x-request-id: three"]
        .map(|text| heard.find(text).unwrap_or_else(|| panic!("no {text} in {heard}")))
        .into();
    assert!(places.is_sorted(), "{heard}");
    gateway.stop().await;
}

#[tokio::test]
async fn odd_request_targets_are_answered_without_a_fault() {
    let gateway = TestGateway::new().await;
    let credentials = format!("Authorization: Bearer {}\r\nX-Gateway-Subject: anna\r\n", gateway.device.app.key);
    let long = format!("/{}", "a".repeat(20_000));
    for (target, status) in [
        ("http://evil.example/api/v1/agent-endpoints", "200"),
        ("http://user:secret@evil.example:99/api/v1/agent-endpoints", ""),
        ("/api/v1/agent-endpoints#fragment", ""),
        ("*", ""),
        ("", "400"),
        ("//", "404"),
        ("//api/v1/agent-endpoints", "404"),
        ("/api/v1//agent-endpoints", "404"),
        ("/api/v1/./agent-endpoints", "404"),
        ("/api/v1/../v1/agent-endpoints", "404"),
        ("/API/v1/agent-endpoints", "404"),
        ("/api/v1/agent-endpoints%2f", "404"),
        ("/api/v1/agent-endpoints?%", "200"),
        ("/api/v1/runs/%", "404"),
        ("/api/v1/runs/%00%ff%c0%ae", "404"),
        ("/api/v1/runs/run_\u{1f600}", ""),
        ("/\\..\\..\\etc", ""),
        ("/api/v1/runs/run_x?wait=%00", "404"),
        ("evil.example:443", ""),
        (long.as_str(), "404"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{credentials}Connection: close\r\n\r\n");
        let heard = answer(&gateway, request).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{target}: {heard}");
    }
    for request in [
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /api/v1/agent-endpoints HTTP/0.9\r\n\r\n",
        "GET /api/v1/agent-endpoints HTTP/1.0\r\n\r\n",
        "GET /api/v1/agent-endpoints\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, but long enough to look like one",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    ] {
        answer(&gateway, request).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn nul_bytes_and_broken_lengths_are_refused_without_a_fault() {
    let gateway = TestGateway::new().await;
    let post = |headers: &str, body: &str| {
        format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: nul\r\n\
             Content-Type: application/json\r\nConnection: close\r\n{headers}\r\n{body}",
            gateway.runs_of(gateway.device.endpoint),
            gateway.device.app.key
        )
    };
    let body = work("hello").to_string();
    let length = format!("Content-Length: {}\r\n", body.len());
    for request in [
        post(&format!("X-Nul: a\0b\r\n{length}"), &body),
        post("Content-Length: 99999999999999999999999\r\n", &body),
        post("Content-Length: -1\r\n", &body),
        post(&format!("{length}Content-Length: 1\r\n"), &body),
        post("Transfer-Encoding: gzip\r\n", &body),
        post("Transfer-Encoding: chunked\r\n", "zz\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n"),
        post(&length, &"\0".repeat(body.len())),
        "GET /api/v1/\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
    ] {
        let heard = answer(&gateway, &request).await;
        assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 4"), "{request:?}: {heard}");
    }
    assert_eq!(gateway.database.value("SELECT count(*) FROM runs").await, "0");

    // Two lengths that contradict each other: the chunks count (RFC 9112, section 6.3), and nothing
    // that stands behind them is taken for another request.
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let smuggled = format!("{chunks}GET /api/v1/agent-endpoints HTTP/1.1\r\nHost: x\r\n\r\n");
    let heard = answer(&gateway, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", &smuggled)).await;
    assert_eq!((heard.matches("HTTP/1.1 ").count(), heard.contains("HTTP/1.1 202 ")), (1, true), "{heard}");

    // Inside a JSON text a NUL is a character like any other, and comes back as it was sent.
    let text = "a\u{0}b";
    let body = serde_json::json!({ "input": { "text": text, "k\u{0}": "\u{0}" }, "metadata": { "m\u{0}": "\u{0}" } });
    let accepted = gateway.submission("nul-text").json(&body).send().await;
    let read = gateway.read(accepted.run_id()).await.json();
    assert_eq!((&read["input"], &read["metadata"]), (&body["input"], &body["metadata"]));
    let (session, _) = gateway.device.connect().await;
    assert_eq!(gateway.device.claim(session, 2).await[1].input.text, text, "to the device too");
    gateway.stop().await;
}
