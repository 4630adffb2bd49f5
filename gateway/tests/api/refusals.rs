//! Every refusal of the routes, with its exact problem document.

use deskgate_gateway::domain::Limits;
use deskgate_gateway::http::server;
use deskgate_protocol::management::Scope;
use deskgate_protocol::secret::{ApplicationKey, ControlToken};
use deskgate_protocol::{DraftId, EndpointId, KeyId, RunId, Timestamp};
use serde_json::{Value, json};

use crate::support::call::{Call, Problem, not_found};
use crate::support::door::Door;
use crate::support::until;
use crate::support::world::{Desk, LEASE, World, work};

const MISSING: Problem<'_> = Problem {
    status: 401,
    code: "credential_missing",
    title: "Credential missing",
    detail: "The request has no application key. Send it as \"Authorization: Bearer <application key>\".",
    retryable: false,
    members: Value::Null,
};

fn credential_invalid(detail: &str) -> Problem<'_> {
    Problem::new(401, "credential_invalid", "Credential invalid", detail)
}

#[tokio::test]
async fn every_key_that_is_no_valid_key_gets_the_same_401() {
    let world = World::new().await;
    let desk = &world.desk;
    let revoked = desk.restricted_key(|_| {}).await;
    desk.revoke(revoked.key.key_id).await;
    let past: Timestamp = "2020-01-01T00:00:00Z".parse().expect("valid");
    let expired = desk.restricted_key(|key| key.expires_at = Some(past)).await;
    let unknown = ApplicationKey::generate(KeyId::new());
    // Everything about this one is right, but the secret.
    let wrong_secret = ApplicationKey::generate(desk.app.key.parse::<ApplicationKey>().expect("a key").id());
    let mut damaged = desk.app.key.clone();
    let last = damaged.pop().expect("not empty");
    damaged.push(if last == '0' { '1' } else { '0' });
    let bearer = |text: &str| format!("Bearer {text}");
    let sent = [
        bearer(&revoked.text),
        bearer(&expired.text),
        bearer(unknown.reveal()),
        bearer(wrong_secret.reveal()),
        bearer(&damaged),
        bearer(&desk.app.key.to_uppercase()),
        bearer(""),
        bearer("nonsense"),
        format!("Basic {}", desk.app.key),
        desk.app.key.clone(),
        format!("Bearer{}", desk.app.key),
        format!("Bearer {0} {0}", desk.app.key),
        "é".to_owned(),
    ];
    for authorization in sent {
        let reply =
            world.call("GET", "/api/v1/agent-endpoints").subject("anna").header("Authorization", &authorization);
        reply.send().await.assert_problem(&credential_invalid("The application key is not valid."));
    }
    let twice = world.ask("GET", "/api/v1/agent-endpoints").more("Authorization", bearer(&desk.app.key));
    twice.send().await.assert_problem(&credential_invalid("The application key is not valid."));
    let scheme = world.call("GET", "/api/v1/agent-endpoints").subject("anna");
    let any_case = scheme.header("Authorization", format!("bEaReR {}", desk.app.key));
    assert_eq!(any_case.send().await.status, 200, "schemes are compared without case");
    world.stop().await;
}

#[tokio::test]
async fn without_a_credential_every_route_says_that_one_is_missing() {
    let world = World::new().await;
    let routes = [
        ("GET", "/api/v1/agent-endpoints".to_owned()),
        ("POST", world.runs_of(world.desk.endpoint)),
        ("GET", format!("/api/v1/runs/{}", RunId::new())),
    ];
    for (method, path) in routes {
        world.call(method, &path).send().await.assert_problem(&MISSING);
    }
    world.stop().await;
}

#[tokio::test]
async fn another_kind_of_secret_in_the_place_of_a_key_is_named() {
    let world = World::new().await;
    let token = ControlToken::generate();
    for (secret, name) in [
        (token.reveal(), "a private control token"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a webhook signing secret"),
        ("sk-ant-0000", "a model provider's key"),
        ("dgl_0000", "a launch link"),
    ] {
        let reply = world.call("GET", "/api/v1/agent-endpoints").subject("anna").key(secret).send().await;
        let detail =
            format!("The application key is not valid. This is {name}; an application key starts with \"dgk_\".");
        reply.assert_problem(&credential_invalid(&detail));
        assert!(!reply.text.contains(secret), "what was pasted is not repeated");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_key_in_the_url_is_refused_before_everything_else_and_not_repeated() {
    let world = World::new().await;
    let key = &world.desk.app.key;
    let detail = "A credential was sent in the URL, where it can leak into logs. Send it in the Authorization header, \
                  and roll the key that was sent.";
    let problem = Problem::new(400, "credential_in_url", "Credential in the URL", detail);
    for query in [
        format!("access_token={key}"),
        format!("wait=1&x={key}"),
        "API_KEY=anything".to_owned(),
        "wait=1&token".to_owned(),
        format!("x={}", key.replacen('_', "%5F", 1)),
        format!("{key}=x"),
        key.clone(),
    ] {
        for (method, path) in [("GET", "/api/v1/agent-endpoints"), ("POST", "/nowhere")] {
            let reply = world.call(method, &format!("{path}?{query}")).send().await;
            reply.assert_problem(&problem);
            assert!(!reply.text.contains(&key[4..]), "{query}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn a_missing_scope_is_named_on_each_route() {
    let world = World::new().await;
    let run_id = world.submit("one").await;
    let routes = [
        (Scope::EndpointsRead, "GET", "/api/v1/agent-endpoints".to_owned()),
        (Scope::RunsWrite, "POST", world.runs_of(world.desk.endpoint)),
        (Scope::RunsRead, "GET", format!("/api/v1/runs/{run_id}")),
    ];
    for (scope, method, path) in routes {
        let others = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
        let key = world.desk.restricted_key(|key| key.scopes = others).await;
        let detail = format!("This application key lacks the scope \"{scope}\".");
        let problem = Problem::new(403, "insufficient_scope", "Insufficient scope", &detail)
            .with(json!({ "required_scope": scope.as_str() }));
        world.call(method, &path).key(&key.text).subject("anna").send().await.assert_problem(&problem);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_subject_is_one_name_of_1_to_255_visible_ascii_characters() {
    let world = World::new().await;
    let ask = || world.ask("GET", "/api/v1/agent-endpoints");
    let detail = "The request names no business user. Send the header X-Gateway-Subject.";
    let missing = Problem::new(400, "subject_missing", "Subject missing", detail);
    ask().without("X-Gateway-Subject").send().await.assert_problem(&missing);
    let detail = "X-Gateway-Subject must be sent once and hold 1 to 255 visible ASCII characters.";
    let invalid = Problem::new(400, "subject_invalid", "Subject invalid", detail);
    for subject in ["".to_owned(), "x".repeat(256), "anna berg".to_owned(), "änna".to_owned(), "anna\tb".to_owned()] {
        ask().header("X-Gateway-Subject", &subject).send().await.assert_problem(&invalid);
    }
    ask().header("X-Gateway-Subject", b"an\xffna").send().await.assert_problem(&invalid);
    ask().more("X-Gateway-Subject", "anna").send().await.assert_problem(&invalid);
    ask().more("X-Gateway-Subject", "berta").send().await.assert_problem(&invalid);
    assert_eq!(ask().subject(&"x".repeat(255)).send().await.status, 200);
    assert_eq!(ask().subject("{\"sub\":'a,b;c'}").send().await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_key_bound_to_a_subject_speaks_for_no_other() {
    let world = World::new().await;
    let bound = world.desk.restricted_key(|key| key.fixed_subject = Some("berta".to_owned())).await;
    let of_anna = world.submit("one").await;
    let ask = |path: &str| world.call("GET", path).key(&bound.text);
    let detail = "This application key is bound to another subject.";
    let problem = Problem::new(403, "subject_not_allowed", "Subject not allowed", detail);
    ask("/api/v1/agent-endpoints").subject("anna").send().await.assert_problem(&problem);
    ask(&format!("/api/v1/runs/{of_anna}")).subject("anna").send().await.assert_problem(&problem);
    for allowed in [ask("/api/v1/agent-endpoints"), ask("/api/v1/agent-endpoints").subject("berta")] {
        assert_eq!(allowed.send().await.status, 200);
    }
    ask(&format!("/api/v1/runs/{of_anna}")).send().await.assert_problem(&not_found());
    let submitted = world.submission("two").without("X-Gateway-Subject").key(&bound.text).send().await;
    let run = ask(&format!("/api/v1/runs/{}", submitted.run_id())).subject("berta").send().await;
    assert_eq!(run.status, 200, "what it left out is filled in");
    world.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_is_one_text_bare_or_quoted() {
    let world = World::new().await;
    let detail = "A request that creates work needs an Idempotency-Key, so that it can be repeated safely.";
    let missing = Problem::new(400, "idempotency_key_missing", "Idempotency-Key missing", detail);
    world.submission("x").without("Idempotency-Key").send().await.assert_problem(&missing);
    let detail =
        "Idempotency-Key must be sent once and hold 1 to 255 visible ASCII characters, bare or in double quotes.";
    let invalid = Problem::new(400, "idempotency_key_invalid", "Idempotency-Key invalid", detail);
    let long = "x".repeat(256);
    for key in ["", "\"\"", "\"", "a b", "ä", "a\"b", &long, &format!("\"{long}\"")] {
        world.submission(key).send().await.assert_problem(&invalid);
    }
    world.submission("x").more("Idempotency-Key", "x").send().await.assert_problem(&invalid);
    let longest = "x".repeat(255);
    let bare = world.submission(&longest).send().await;
    let quoted = world.submission(&format!("\"{longest}\"")).send().await;
    assert_eq!(bare.run_id(), quoted.run_id(), "quotes are not a part of it");
    world.stop().await;
}

#[tokio::test]
async fn what_is_not_json_is_refused_where_it_errs() {
    let world = World::new().await;
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
        let reply = world.submission("bad").text(body).send().await;
        reply.assert_problem(&Problem::new(400, "malformed_json", "Malformed JSON", &detail));
    }
    assert_eq!(world.submission("deep").text(deep(64)).send().await.status, 202);
    world.stop().await;
}

#[tokio::test]
async fn only_json_is_taken() {
    let world = World::new().await;
    let detail = "The body must be JSON: send Content-Type: application/json.";
    let problem = Problem::new(415, "unsupported_media_type", "Unsupported media type", detail);
    for other in
        ["text/plain", "application/jsonp", "multipart/form-data; boundary=x", "", "text/plain; application/json"]
    {
        world.submission("x").header("Content-Type", other).send().await.assert_problem(&problem);
    }
    world.submission("x").without("Content-Type").send().await.assert_problem(&problem);
    let usual = world.submission("x").header("Content-Type", "Application/JSON; charset=utf-8").send().await;
    assert_eq!(usual.status, 202);
    world.stop().await;
}

fn flaw(pointer: &str, code: &str, detail: &str) -> Value {
    json!({ "pointer": pointer, "code": code, "detail": detail })
}

#[tokio::test]
async fn every_flaw_of_a_body_is_pointed_at() {
    let world = World::new().await;
    let invalid = |flaws: Value| {
        Problem::new(422, "invalid_input", "Invalid input", "The request body is not acceptable.")
            .with(json!({ "errors": flaws }))
    };
    let object = "an object with a member \"text\"";
    let many: serde_json::Map<_, _> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    let long_text = "x".repeat(256 * 1024 + 1);
    let sizes = "names of 1 to 64 bytes and values of up to 512";
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
            json!({ "input": { "text": "a" }, "metadata": { "a/b~": 1, "": "x", "v": "x".repeat(513) } }),
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
        world.submission("x").json(&body).send().await.assert_problem(&invalid(flaws));
    }
    let largest = json!({
        "input": { "text": "x".repeat(256 * 1024) },
        "metadata": (0..16).map(|n| (format!("{n:064}"), json!("v".repeat(512)))).collect::<serde_json::Map<_, _>>(),
        "queue_ttl_s": 604_800,
        "max_duration_s": 86_400,
    });
    let accepted = world.submission("largest").json(&largest).send().await;
    assert_eq!(world.read(accepted.run_id()).await.json()["input"], largest["input"]);
    world.stop().await;
}

#[tokio::test]
async fn a_member_that_callers_cannot_set_is_refused_by_name() {
    let world = World::new().await;
    for (name, pointer) in [("model", "/model"), ("working/dir~", "/working~1dir~0"), ("", "/")] {
        let mut body = work("hello");
        body[name] = json!("x");
        let detail = format!("{name:?} is not a member of this request. Business content goes into \"input\".");
        let problem = Problem::new(422, "unknown_field", "Unknown field", &detail)
            .with(json!({ "errors": [flaw(pointer, "unknown_field", &detail)] }));
        world.submission("x").json(&body).send().await.assert_problem(&problem);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_body_over_one_mebibyte_is_refused_announced_or_not() {
    let world = World::new().await;
    let limit = 1024 * 1024;
    let detail = format!("The body is larger than {limit} bytes.");
    let problem =
        Problem::new(413, "payload_too_large", "Payload too large", &detail).with(json!({ "limit_bytes": limit }));
    let body = |size: usize| {
        let empty = json!({ "input": { "text": "a", "fill": "" } }).to_string().len();
        json!({ "input": { "text": "a", "fill": "x".repeat(size - empty) } }).to_string()
    };
    world.submission("x").text(body(limit + 1)).send().await.assert_problem(&problem);
    assert_eq!(world.submission("x").text(body(limit)).send().await.status, 202);

    // In chunks, which announce nothing.
    let mut raw = crate::support::raw::Raw::connect(world.gateway.addresses().http).await;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: anna\r\nIdempotency-Key: y\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        world.runs_of(world.desk.endpoint),
        world.desk.app.key
    );
    assert!(raw.say(head).await);
    let chunk = format!("10000\r\n{}\r\n", "[1,".repeat(0x10000 / 3 + 1).get(..0x10000).expect("ASCII"));
    for _ in 0..17 {
        // The answer may come, and the connection end, before all is sent.
        let _ = raw.say(&chunk).await;
    }
    let heard = raw.hear_until(|heard| heard.ends_with('}')).await;
    assert!(heard.starts_with("HTTP/1.1 413 ") && heard.contains("\"limit_bytes\":1048576"), "{heard}");
    world.stop().await;
}

#[tokio::test]
async fn what_may_not_be_seen_looks_exactly_like_what_is_not_there() {
    let world = World::new().await;
    let desk = &world.desk;
    let (own, other_app, other_desk) =
        (world.submit("own").await, desk.application("other").await, Desk::pair(world.store()).await);
    let of_other_app = {
        let endpoint = desk.service(&other_app, "foreign").await;
        let call = world.submission("x").key(&other_app.key);
        call.to(world.gateway.addresses().http, &world.runs_of(endpoint)).send().await.run_id()
    };
    let draft = DraftId::from(desk.endpoint.uuid());
    let mut answers = Vec::new();
    let mut ask = async |call: Call| {
        let reply = call.header("X-Request-Id", "same").send().await;
        reply.assert_problem(&not_found());
        let mut headers = reply.headers.clone();
        headers.remove("date");
        answers.push((reply.text, headers));
    };
    for run in [
        of_other_app.to_string(),
        RunId::new().to_string(),
        desk.endpoint.to_string(),
        own.to_string().replacen("run_", "conv_", 1),
        own.to_string().to_uppercase(),
        own.uuid().to_string(),
        "run_".to_owned(),
        "%ff%fe".to_owned(),
        "%00".to_owned(),
        "%2e%2e%2fruns".to_owned(),
        "run_'%20OR%201=1--".to_owned(),
    ] {
        ask(world.ask("GET", &format!("/api/v1/runs/{run}"))).await;
    }
    ask(world.ask("GET", &format!("/api/v1/runs/{own}")).subject("berta")).await;
    for endpoint in [
        other_desk.endpoint.to_string(),
        EndpointId::new().to_string(),
        draft.to_string(),
        own.to_string(),
        "ep_".to_owned(),
        "%ff".to_owned(),
    ] {
        let path = format!("/api/v1/agent-endpoints/{endpoint}/runs");
        ask(world.submission("y").to(world.gateway.addresses().http, &path)).await;
    }
    for path in ["/", "/api/v1", "/api/v1/runs", "/api/v1/runs/", "/api/v2/agent-endpoints", "/metrics", "/livez"] {
        ask(world.ask("GET", path)).await;
    }
    let distinct: Vec<_> = answers.iter().filter(|answer| **answer != answers[0]).collect();
    assert!(distinct.is_empty(), "{distinct:?} differ from {:?}", answers[0]);
    world.stop().await;
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_refused_with_what_it_takes() {
    let world = World::new().await;
    let run = format!("/api/v1/runs/{}", RunId::new());
    let runs = world.runs_of(world.desk.endpoint);
    for (method, path, allow) in [
        ("POST", "/api/v1/agent-endpoints", "GET,HEAD"),
        ("DELETE", "/api/v1/agent-endpoints", "GET,HEAD"),
        ("GET", runs.as_str(), "POST"),
        ("PUT", runs.as_str(), "POST"),
        ("DELETE", run.as_str(), "GET,HEAD"),
        ("PROPFIND", run.as_str(), "GET,HEAD"),
    ] {
        let detail = format!("This address does not take {method}. The Allow header names what it takes.");
        let reply = world.ask(method, path).send().await;
        reply.assert_problem(&Problem::new(405, "method_not_allowed", "Method not allowed", &detail));
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn paused_access_a_full_queue_and_a_reused_key_say_so() {
    let limits = Limits { waiting_runs_per_application: 2, ..Limits::default() };
    let world = World::with(limits).await;
    let first = world.submit("first").await;
    let reused = world.submission("first").json(&work("another")).send().await;
    let detail = "This Idempotency-Key was used for a request with a different body. New work needs a new key.";
    reused.assert_problem(
        &Problem::new(409, "idempotency_key_reused", "Idempotency-Key reused", detail)
            .with(json!({ "existing_run_id": first })),
    );

    world.submit("second").await;
    let detail = "The application already has 2 runs waiting for its devices. Nothing was accepted; try again later.";
    let full = Problem::new(429, "queue_full", "Queue full", detail).retryable();
    world.submission("third").send().await.assert_problem(&full);
    assert_eq!(world.submission("second").send().await.status, 202, "a repetition needs no room");
    let (session, _) = world.desk.connect().await;
    assert_eq!(world.desk.claim(session, 1).await.len(), 1);
    until("there is room again", async || world.submission("third").send().await.status == 202).await;

    world.desk.allow(false).await;
    let detail = "The owner of this service has paused external access. Nothing was accepted; try again later.";
    let paused = Problem::new(503, "access_paused", "Access paused", detail).retryable();
    let reply = world.submission("fourth").send().await;
    reply.assert_problem(&paused);
    assert_eq!(reply.header("retry-after"), Some("60"));
    world.stop().await;
}

#[tokio::test]
async fn a_removed_device_takes_its_services_with_it() {
    let world = World::new().await;
    let run_id = world.submit("early").await;
    assert!(world.store().revoke_device(world.desk.device_id, LEASE).await.expect("stored"));
    world.submission("late").send().await.assert_problem(&not_found());
    assert_eq!(world.submission("early").send().await.run_id(), run_id, "what was accepted is found");
    let run = world.read(run_id).await.json();
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("cancelled"), &json!("device_removed")));
    let listed = world.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    assert_eq!(listed, json!({ "endpoints": [] }));
    world.stop().await;
}

#[tokio::test]
async fn a_door_that_drains_admits_nothing_and_still_answers_questions() {
    let world = World::new().await;
    let door = Door::open(world.store(), server::Limits::default()).await;
    let run_id = world.submit("before").await;
    door.draining.cancel();
    let detail = "This gateway is stopping. Nothing was accepted; try again.";
    let problem = Problem::new(503, "draining", "Draining", detail).retryable();
    let path = world.runs_of(world.desk.endpoint);
    let reply = world.submission("after").to(door.address, &path).send().await;
    reply.assert_problem(&problem);
    assert_eq!(reply.header("retry-after"), Some("1"));
    let began = std::time::Instant::now();
    let read = world.ask("GET", "/").to(door.address, &format!("/api/v1/runs/{run_id}?wait=60")).send().await;
    assert_eq!((read.status, began.elapsed().as_secs() < 30), (200, true), "nobody is kept waiting");
    assert_ne!(world.submission("after").send().await.run_id(), run_id, "nothing was stored");
    world.stop().await;
}

#[tokio::test]
async fn without_a_database_every_route_says_store_unavailable_and_recovers_by_itself() {
    use deskgate_gateway::store::cluster::{Cluster, Config};
    use deskgate_gateway::{DatabaseSettings, Gateway, Settings};
    let (data, state) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let cluster = Cluster::start(Config::new(data.path())).await.expect("PostgreSQL starts");
    let mut settings = Settings::built_in(state.path().to_owned(), ([127, 0, 0, 1], 0).into());
    settings.database = Some(DatabaseSettings { url: cluster.url(), listen_url: None, ca_file: None, migrate: true });
    let gateway = Gateway::start(settings).await.expect("started");
    let desk = Desk::pair(gateway.store()).await;
    let ask =
        |method: &str, path: &str| Call::new(gateway.addresses().http, method, path).key(&desk.app.key).subject("anna");
    let runs = format!("/api/v1/agent-endpoints/{}/runs", desk.endpoint);
    let submit = |key: &str| ask("POST", &runs).header("Idempotency-Key", key).json(&work("hello"));
    let run_id = submit("before").send().await.run_id();
    cluster.stop().await;

    let detail = "The gateway cannot reach its database. Try again with the same Idempotency-Key.";
    let problem = Problem::new(503, "store_unavailable", "Store unavailable", detail).retryable();
    let began = std::time::Instant::now();
    for call in [
        ask("GET", "/api/v1/agent-endpoints"),
        ask("GET", &format!("/api/v1/runs/{run_id}")),
        ask("GET", &format!("/api/v1/runs/{run_id}?wait=5")),
        submit("during"),
        submit("before"),
    ] {
        let reply = call.send().await;
        reply.assert_problem(&problem);
        assert_eq!(reply.header("retry-after"), Some("2"));
    }
    assert!(began.elapsed().as_secs() < 15, "each within three seconds: {:?}", began.elapsed());

    let cluster = Cluster::start(Config::new(data.path())).await.expect("PostgreSQL starts again");
    until("the gateway works again", async || submit("during").send().await.status == 202).await;
    assert_eq!(submit("before").send().await.run_id(), run_id, "what was accepted is still there");
    gateway.stop().await;
    cluster.stop().await;
}
