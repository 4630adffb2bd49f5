//! Refusals of what is sent: no JSON, too much of it, or the wrong members.

use serde_json::{Value, json};

use crate::support::call::ExpectedProblem;
use crate::support::gateway::{TestGateway, work};

#[tokio::test]
async fn what_is_not_json_is_refused_where_it_errs() {
    let gateway = TestGateway::new().await;
    let deep = |levels: usize| {
        format!("{{\"input\":{{\"text\":\"a\",\"n\":{}{}}}}}", "[".repeat(levels - 2), "]".repeat(levels - 2))
    };
    let breaks = |line, column| format!("The body is not JSON: it breaks off or errs at line {line}, column {column}.");
    for (body, detail) in [
        (b"".to_vec(), breaks(1, 0)),
        (b"{\"input\":".to_vec(), breaks(1, 9)),
        (b"{} {}".to_vec(), breaks(1, 4)),
        (b"{}\n}".to_vec(), breaks(2, 1)),
        (b"{\"input\":{\"text\":\"\xff\xfe\"}}".to_vec(), breaks(1, 19)),
        (b"{\"input\":{\"text\":\"\\ud800\"}}".to_vec(), breaks(1, 25)),
        (b"{'input':1}".to_vec(), breaks(1, 2)),
        (b"{\"input\":{\"text\":\"a\",\"n\":1e999}}".to_vec(), breaks(1, 30)),
        (deep(65).into_bytes(), "The body is nested deeper than 64 levels.".to_owned()),
        (vec![b'['; 900_000], "The body is nested deeper than 64 levels.".to_owned()),
    ] {
        let reply = gateway.submission("bad").text(body).send().await;
        reply.assert_problem(&ExpectedProblem::new(400, "malformed_json", "Malformed JSON", &detail));
    }
    assert_eq!(gateway.submission("deep").text(deep(64)).send().await.status, 202);
    gateway.stop().await;
}

#[tokio::test]
async fn only_json_is_taken() {
    let gateway = TestGateway::new().await;
    let detail = "The body must be JSON: send Content-Type: application/json.";
    let problem = ExpectedProblem::new(415, "unsupported_media_type", "Unsupported media type", detail);
    for other in
        ["text/plain", "application/jsonp", "multipart/form-data; boundary=x", "", "text/plain; application/json"]
    {
        gateway.submission("x").header("Content-Type", other).send().await.assert_problem(&problem);
    }
    gateway.submission("x").without("Content-Type").send().await.assert_problem(&problem);
    let detail = "Content-Type was sent more than once. Send Content-Type: application/json.";
    let twice = ExpectedProblem::new(415, "unsupported_media_type", "Unsupported media type", detail);
    gateway.submission("x").more("Content-Type", "application/json").send().await.assert_problem(&twice);
    let usual = gateway.submission("x").header("Content-Type", "Application/JSON; charset=utf-8").send().await;
    assert_eq!(usual.status, 202);
    gateway.stop().await;
}

#[tokio::test]
async fn a_compressed_body_is_refused_with_what_is_taken() {
    let gateway = TestGateway::new().await;
    let detail = "The body must not be compressed: send it without Content-Encoding.";
    let problem = ExpectedProblem::new(415, "unsupported_media_type", "Unsupported media type", detail);
    for coding in ["gzip", "br", "identity, gzip", ""] {
        let refused = gateway.submission("x").header("Content-Encoding", coding).send().await;
        refused.assert_problem(&problem);
        assert_eq!(refused.header("accept-encoding"), Some("identity"));
    }
    assert_eq!(gateway.submission("x").header("Content-Encoding", "Identity").send().await.status, 202);
    // Where the type is wrong, it is not the coding.
    let other = gateway.submission("y").header("Content-Type", "text/plain").send().await;
    assert_eq!(other.header("accept-encoding"), None);
    gateway.stop().await;
}

fn flaw(pointer: &str, code: &str, detail: &str) -> Value {
    json!({ "pointer": pointer, "code": code, "detail": detail })
}

#[tokio::test]
async fn every_flaw_of_a_body_is_pointed_at() {
    let gateway = TestGateway::new().await;
    let object = "an object with a member \"text\"";
    let many: serde_json::Map<_, _> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    let long_text = "x".repeat(256 * 1024 + 1);
    let sizes = "names of 1 to 64 characters and values of up to 512";
    for (body, flaws) in [
        (json!([]), json!([flaw("", "wrong_type", "a JSON object")])),
        (json!("text"), json!([flaw("", "wrong_type", "a JSON object")])),
        (json!({}), json!([flaw("/input", "required", object)])),
        (json!({ "input": null }), json!([flaw("/input", "wrong_type", object)])),
        (json!({ "input": {} }), json!([flaw("/input/text", "required", "a string")])),
        (json!({ "input": { "text": 1 } }), json!([flaw("/input/text", "wrong_type", "a string")])),
        (
            json!({ "input": { "text": "" } }),
            json!([flaw("/input/text", "out_of_range", "1 to 262144 bytes of UTF-8; this has 0")]),
        ),
        (
            json!({ "input": { "text": long_text } }),
            json!([flaw("/input/text", "out_of_range", "1 to 262144 bytes of UTF-8; this has 262145")]),
        ),
        (
            json!({ "input": { "text": "a" }, "metadata": [] }),
            json!([flaw("/metadata", "wrong_type", "an object of strings")]),
        ),
        (
            json!({ "input": { "text": "a" }, "metadata": many }),
            json!([flaw("/metadata", "out_of_range", "at most 16 members; this has 17")]),
        ),
        (
            json!({ "input": { "text": "a" }, "metadata": { "": "x", "a/b~": 1, "v": "x".repeat(513) } }),
            json!([
                flaw("/metadata/", "out_of_range", sizes),
                flaw("/metadata/a~1b~0", "wrong_type", "a string"),
                flaw("/metadata/v", "out_of_range", sizes),
            ]),
        ),
        (
            json!({ "input": { "text": "a" }, "queue_ttl_s": 0, "max_duration_s": 86401 }),
            json!([
                flaw("/queue_ttl_s", "out_of_range", "a whole number from 1 to 604800"),
                flaw("/max_duration_s", "out_of_range", "a whole number from 1 to 86400"),
            ]),
        ),
        (
            json!({ "input": { "text": "a" }, "queue_ttl_s": "60", "max_duration_s": 1.5 }),
            json!([
                flaw("/queue_ttl_s", "out_of_range", "a whole number from 1 to 604800"),
                flaw("/max_duration_s", "out_of_range", "a whole number from 1 to 86400"),
            ]),
        ),
        (
            json!({ "input": 3, "queue_ttl_s": -1 }),
            json!([
                flaw("/input", "wrong_type", object),
                flaw("/queue_ttl_s", "out_of_range", "a whole number from 1 to 604800"),
            ]),
        ),
    ] {
        let first = |member: &str| flaws[0][member].as_str().expect("a text");
        let member = match first("pointer") {
            "" => "The body".to_owned(),
            pointer => format!("{:?}", pointer[1..].replace('/', ".")),
        };
        let mut detail = match first("code") {
            "required" => format!("{member} is missing. It must be {}.", first("detail")),
            "wrong_type" => format!("{member} must be {}.", first("detail")),
            _ => format!("{member} is out of range: {}.", first("detail")),
        };
        match flaws.as_array().map(Vec::len) {
            Some(1) => {}
            Some(2) => detail += " One more member is wrong; see \"errors\".",
            _ => detail += " 2 more members are wrong; see \"errors\".",
        }
        let invalid = ExpectedProblem::new(422, "invalid_input", "Invalid input", &detail);
        gateway.submission("x").json(&body).send().await.assert_problem(&invalid.with(json!({ "errors": flaws })));
    }
    let largest = json!({
        "input": { "text": "x".repeat(256 * 1024) },
        "metadata": (0..16).map(|n| (format!("{n:064}"), json!("v".repeat(512)))).collect::<serde_json::Map<_, _>>(),
        "queue_ttl_s": 604_800,
        "max_duration_s": 86_400,
    });
    let accepted = gateway.submission("largest").json(&largest).send().await;
    assert_eq!(gateway.read(accepted.run_id()).await.json()["input"], largest["input"]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_member_that_callers_cannot_set_is_refused_by_name() {
    let gateway = TestGateway::new().await;
    for (name, pointer) in [("model", "/model"), ("working/dir~", "/working~1dir~0"), ("", "/")] {
        let mut body = work("hello");
        body[name] = json!("x");
        let detail = format!("{name:?} is not a member of this request. Business content goes into \"input\".");
        let problem = ExpectedProblem::new(422, "unknown_field", "Unknown field", &detail)
            .with(json!({ "errors": [flaw(pointer, "unknown_field", &detail)] }));
        gateway.submission("x").json(&body).send().await.assert_problem(&problem);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_over_one_mebibyte_is_refused_announced_or_not() {
    let gateway = TestGateway::new().await;
    let limit = 1024 * 1024;
    let detail = format!("The body is larger than {limit} bytes.");
    let problem = ExpectedProblem::new(413, "payload_too_large", "Payload too large", &detail)
        .with(json!({ "limit_bytes": limit }));
    let body = |size: usize| {
        let empty = json!({ "input": { "text": "a", "fill": "" } }).to_string().len();
        json!({ "input": { "text": "a", "fill": "x".repeat(size - empty) } }).to_string()
    };
    gateway.submission("x").text(body(limit + 1)).send().await.assert_problem(&problem);
    assert_eq!(gateway.submission("x").text(body(limit)).send().await.status, 202);

    // In chunks, which announce nothing.
    let mut raw = crate::support::raw::RawConnection::connect(gateway.gateway.addresses().http).await;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: y\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        gateway.runs_of(gateway.device.endpoint),
        gateway.device.app.key
    );
    assert!(raw.say(head).await);
    let chunk = format!("10000\r\n{}\r\n", "[1,".repeat(0x10000 / 3 + 1).get(..0x10000).expect("ASCII"));
    for _ in 0..17 {
        // The answer may come, and the connection end, before all is sent.
        let _ = raw.say(&chunk).await;
    }
    let heard = raw.hear_until(|heard| heard.ends_with('}')).await;
    assert!(heard.starts_with("HTTP/1.1 413 ") && heard.contains("\"limit_bytes\":1048576"), "{heard}");
    gateway.stop().await;
}
