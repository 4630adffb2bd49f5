//! One HTTP request of a caller, and its answer.

use std::net::SocketAddr;

use deskgate_protocol::{RunId, VERSION};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::document::is_documented;

/// A request that is put together member by member.
#[derive(Clone)]
pub(crate) struct TestRequest {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

/// A client, to be built. Built together with the agent, it wants a provider of cryptography even without TLS.
pub(crate) fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
}

impl TestRequest {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let method = method.parse().expect("a method");
        Self { method, url: format!("http://{address}{path}"), headers: HeaderMap::new(), body: None }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Authorization", format!("Bearer {key}"))
    }

    pub(crate) fn subject(self, subject: &str) -> Self {
        self.header("X-Gateway-Subject", subject)
    }

    /// Replaces a header that was set before.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.insert(name.parse::<HeaderName>().expect("a name"), bytes(value.as_ref()));
        self
    }

    /// Adds a header beside one that was set before.
    pub(crate) fn more(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append(name.parse::<HeaderName>().expect("a name"), bytes(value.as_ref()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(body.to_string())
    }

    /// Any bytes, announced as JSON.
    pub(crate) fn text(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self.header("Content-Type", "application/json")
    }

    /// Any bytes, announced as nothing.
    pub(crate) fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// To another address and path, with everything else as it is.
    pub(crate) fn to(mut self, address: SocketAddr, path: &str) -> Self {
        self.url = format!("http://{address}{path}");
        self
    }

    pub(crate) async fn send(self) -> TestResponse {
        let builder = client().no_proxy().redirect(reqwest::redirect::Policy::none());
        self.send_by(&builder.build().expect("a client")).await
    }

    /// Over HTTP/2 without asking first.
    pub(crate) async fn send_by_http2(self) -> TestResponse {
        let builder = client().no_proxy().http2_prior_knowledge();
        self.send_by(&builder.build().expect("a client")).await
    }

    pub(crate) async fn send_by(self, client: &Client) -> TestResponse {
        let asked = (self.method.to_string(), self.url.clone());
        let response = self.open(client).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        TestResponse { asked, status, headers, text: response.text().await.expect("a body") }
    }

    /// The head of the answer; its body comes later.
    pub(crate) async fn open(self, client: &Client) -> reqwest::Response {
        let mut request = client.request(self.method, self.url).headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        request.send().await.expect("an answer")
    }
}

fn bytes(value: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(value).expect("a header value")
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct TestResponse {
    /// The method and the address of the request.
    asked: (String, String),
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("readable"))
    }

    /// The run of a 202.
    pub(crate) fn run_id(&self) -> RunId {
        assert_eq!(self.status, 202, "{self:?}");
        self.json()["run_id"].as_str().expect("a text").parse().expect("a run's identifier")
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks what every answer has, whatever its status.
    pub(crate) fn assert_envelope(&self) -> &Self {
        assert_eq!(self.header("gateway-version"), Some(VERSION), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"), "{self:?}");
        assert!(self.header("x-request-id").is_some_and(|id| !id.is_empty()), "{self:?}");
        let cors = self.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
        assert_eq!(cors, None, "a browser must not hold a key");
        self
    }

    /// Compares the whole problem document.
    pub(crate) fn assert_problem(&self, expected: &ExpectedProblem<'_>) -> &Self {
        self.assert_envelope();
        let (method, url) = &self.asked;
        let path = url.splitn(4, '/').nth(3).map_or("/".to_owned(), |path| format!("/{path}"));
        let said = is_documented(method, &path, expected.code);
        assert!(said, "the document does not say that {method} {path} may be answered with {}", expected.code);
        let ExpectedProblem { status, code, title, detail, retryable, ref members } = *expected;
        let mut document = json!({
            "type": format!("/problems/{code}"),
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            "request_id": self.header("x-request-id"),
            "retryable": retryable,
        });
        let members = members.as_object().cloned().unwrap_or_default();
        document.as_object_mut().expect("an object").extend(members);
        assert_eq!(self.json(), document);
        assert_eq!(self.status, status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("www-authenticate"), (status == 401).then_some("Bearer"));
        assert_eq!(self.header("retry-after").is_some(), matches!(status, 429 | 503), "{self:?}");
        self
    }
}

/// A problem document, but for its request's identifier.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedProblem<'a> {
    pub(crate) status: u16,
    pub(crate) code: &'a str,
    pub(crate) title: &'a str,
    pub(crate) detail: &'a str,
    pub(crate) retryable: bool,
    pub(crate) members: Value,
}

impl<'a> ExpectedProblem<'a> {
    pub(crate) fn new(status: u16, code: &'a str, title: &'a str, detail: &'a str) -> Self {
        Self { status, code, title, detail, retryable: false, members: Value::Null }
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub(crate) fn with(mut self, members: Value) -> Self {
        self.members = members;
        self
    }
}

/// The answer to a caller without access.
pub(crate) fn not_found() -> ExpectedProblem<'static> {
    ExpectedProblem::new(404, "not_found", "Not found", "There is nothing at this address that this caller may see.")
}
