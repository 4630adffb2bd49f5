//! Answers as gzip: what is compressed, for whom, and what never is.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::support::gateway::TestGateway;
use crate::support::raw::RawConnection;

/// The head and the body of an answer.
async fn ask(gateway: &TestGateway, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut raw = RawConnection::connect(gateway.gateway.addresses().http).await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nConnection: close\r\n{headers}\r\n",
        gateway.device.app.key
    );
    assert!(raw.say(request).await);
    let heard = raw.hear_bytes().await;
    let end = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&heard[..end]).into_owned(), heard[end + 4..].to_vec())
}

#[tokio::test]
async fn a_long_answer_comes_as_gzip_to_those_who_ask_for_it() {
    let gateway = TestGateway::new().await;
    for number in 0..5 {
        gateway.submit(&number.to_string()).await;
    }
    for path in ["/api/v1/runs", "/api/v1/openapi.json", "/api/v1/docs", "/api/v1/docs/style.css", "/problems"] {
        let (plain_head, plain) = ask(&gateway, path, "").await;
        let (head, packed) = ask(&gateway, path, "Accept-Encoding: br, gzip;q=0.9\r\n").await;
        assert!(plain.len() > 1024 && packed.len() < plain.len(), "{path}: {} of {}", packed.len(), plain.len());
        for head in [&plain_head, &head] {
            assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("\r\nvary: accept-encoding"), "{path}: {head}");
        }
        assert!(!plain_head.contains("content-encoding"), "{path}: {plain_head}");
        assert!(head.contains("\r\ncontent-encoding: gzip"), "{path}: {head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}", packed.len())), "{path}: {head}");
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).expect("gzip");
        assert_eq!(unpacked, plain, "{path}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn short_answers_streams_and_refusals_are_never_compressed() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    gateway.store().revoke_device(gateway.device.device_id, crate::support::gateway::LONG_LEASE).await.expect("stored");
    let long = format!("/api/v1/runs?{}=1", "x".repeat(2000));
    for (path, headers, status) in [
        ("/api/v1/agent-endpoints", "", "200"),
        (format!("/api/v1/runs/{run_id}/events").as_str(), "Accept: text/event-stream\r\n", "200"),
        (long.as_str(), "", "422"),
    ] {
        let (head, _) = ask(&gateway, path, &format!("{headers}Accept-Encoding: gzip\r\n")).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
        assert!(!head.contains("content-encoding") && !head.contains("vary"), "{path}: {head}");
    }
    let (_, body) = ask(&gateway, "/api/v1/openapi.json", "Accept-Encoding: gzip;q=0, *\r\n").await;
    assert!(serde_json::from_slice::<Value>(&body).is_ok(), "whoever does not want it gets it plain");
    gateway.stop().await;
}
