//! Bytes as a request, and what must hold for every answer. Shared by the fuzz target and by
//! `gateway/tests/api/arbitrary.rs`.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// The existing resources that a request can name.
#[derive(Default)]
pub(crate) struct Names {
    /// An application key.
    pub(crate) key: String,
    /// A run of that application for `anna`.
    pub(crate) run: String,
    /// A service of that application.
    pub(crate) endpoint: String,
    /// A conversation of that application for `anna`.
    pub(crate) conversation: String,
    /// A control operation of that application for `anna`.
    pub(crate) operation: String,
}

impl Names {
    /// Makes a run, a conversation and an operation with the seeds that create them.
    pub(crate) async fn made_at(router: &Router, key: String, endpoint: String) -> Self {
        let submission = include_bytes!("seeds/router/submit_run.http");
        let mut names = Self { key, endpoint, ..Self::default() };
        // The first run is stopped; the other one goes on.
        let other = String::from_utf8_lossy(submission).replace("Key: seed", "Key: stopped");
        names.run = names.make(router, other.as_bytes(), "run_id").await;
        names.operation = names.make(router, include_bytes!("seeds/router/stop_run.http"), "operation_id").await;
        names.run = names.make(router, submission, "run_id").await;
        names.conversation =
            names.make(router, include_bytes!("seeds/router/open_conversation.http"), "conversation_id").await;
        names
    }

    async fn make(&self, router: &Router, seed: &[u8], member: &str) -> String {
        let request = request(seed, self).expect("the seed is a request");
        let answer = router.clone().oneshot(request).await.expect("it never fails").into_body();
        let answer = answer.collect().await.expect("a body").to_bytes();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        answer[member].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

/// Reads method and address, headers, an empty line, and the body. `None` if no client could send it.
pub(crate) fn request(bytes: &[u8], names: &Names) -> Option<Request<Body>> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, body) = (&bytes[..end], &bytes[end + 2..]);
    let body = named(body, names);
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| named(line, names));
    let first = lines.next()?;
    let mut words = first.splitn(2, |byte| *byte == b' ');
    let mut request = Request::builder().method(words.next()?).uri(words.next()?);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    let mut request = request.body(Body::from(body)).ok()?;
    // Every client sends one.
    request.headers_mut().entry("host").or_insert(HeaderValue::from_static("localhost"));
    Some(request)
}

/// Replaces placeholders by names.
fn named(line: &[u8], names: &Names) -> Vec<u8> {
    let mut line = line.to_vec();
    for (place, name) in [
        ("{key}", &names.key),
        ("{run}", &names.run),
        ("{endpoint}", &names.endpoint),
        ("{conversation}", &names.conversation),
        ("{operation}", &names.operation),
    ] {
        while let Some(at) = line.windows(place.len()).position(|window| window == place.as_bytes()) {
            line.splice(at..at + place.len(), name.bytes());
        }
    }
    line
}

/// Checks that an answer is below 500, in the envelope, a valid document, and without internals. `Err` describes the
/// violation.
pub(crate) fn judge(method: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(body);
    let wrong = |what: &str| Err(format!("{what}: {status} {headers:?} {text}"));
    if status >= 500 {
        return wrong("a fault of ours");
    }
    for required in ["x-request-id", "gateway-version", "cache-control"] {
        if !headers.contains_key(required) {
            return wrong(required);
        }
    }
    if (400..500).contains(&status) && method != "HEAD" {
        let Ok(document) = serde_json::from_str::<Value>(&text) else { return wrong("no document") };
        let is_problem = headers.get("content-type").is_some_and(|form| form == "application/problem+json");
        if document["status"] != status || !is_problem || !document["code"].is_string() {
            return wrong("no problem document");
        }
    }
    let inside = ["panicked", "SELECT", "INSERT", "postgres", "tokio", "hyper", "/home/", "/tmp/", ".rs:", "backtrace"];
    let own = without_pointers(&text);
    match inside.iter().find(|inside| own.contains(**inside)) {
        Some(inside) => wrong(inside),
        None => Ok(()),
    }
}

/// The part of an answer that the API wrote: a pointer repeats a name that the caller chose.
fn without_pointers(text: &str) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    for error in document.get_mut("errors").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(error) = error.as_object_mut() {
            error.remove("pointer");
        }
    }
    document.to_string()
}
