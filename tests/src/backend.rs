//! A business system that calls a service, and remembers everything it was promised.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::gateway::Address;
use crate::wait::{WAIT_TIMEOUT, until};

/// A caller with one application key, one subject and one service. Clones share what was accepted.
#[derive(Clone, Debug)]
pub struct Backend {
    http: Client,
    address: Address,
    key: String,
    subject: String,
    endpoint_id: String,
    accepted: Arc<Mutex<BTreeSet<String>>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null when it is no JSON.
    pub body: Value,
}

impl ApiResponse {
    /// The code of a problem document; empty if it is none.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// A client, to be built. Built together with the agent, it wants a provider of cryptography even without TLS.
pub fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Whom a test asks is on this computer, whatever its environment says.
    Client::builder().no_proxy()
}

impl Backend {
    /// A caller of a service.
    pub fn new(address: Address, key: &str, endpoint_id: &str) -> Self {
        let http = client().timeout(Duration::from_secs(70)).build().expect("a client without TLS");
        let (key, endpoint_id) = (key.to_owned(), endpoint_id.to_owned());
        Self { http, address, key, subject: "customer-1".to_owned(), endpoint_id, accepted: Arc::default() }
    }

    /// The same caller, going through another gateway.
    pub fn through(&self, address: Address) -> Self {
        Self { address, ..self.clone() }
    }

    /// The service it calls.
    pub fn endpoint_id(&self) -> &str {
        &self.endpoint_id
    }

    /// The application key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Everything that was answered with 202.
    pub fn accepted(&self) -> BTreeSet<String> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request with credentials to a path below `/api/v1`.
    pub fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/api/v1{path}", self.address.get());
        self.http.request(method, url).bearer_auth(&self.key).header("X-Gateway-Subject", &self.subject)
    }

    /// Sends a request. An error: no whole answer came.
    pub async fn send(&self, request: RequestBuilder) -> Result<ApiResponse, reqwest::Error> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(ApiResponse { status, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    /// Submits a text under an idempotency key.
    pub async fn try_submit(&self, idempotency_key: &str, text: &str) -> Result<ApiResponse, reqwest::Error> {
        let path = format!("/agent-endpoints/{}/runs", self.endpoint_id);
        let request = self.request(reqwest::Method::POST, &path).header("Idempotency-Key", idempotency_key);
        let answer = self.send(request.json(&json!({ "input": { "text": text } }))).await?;
        if answer.status == StatusCode::ACCEPTED {
            let run_id = answer.body["run_id"].as_str().expect("every 202 names its run").to_owned();
            self.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(run_id);
        }
        Ok(answer)
    }

    /// Submits a text, which must be accepted, and returns the run's identifier.
    pub async fn submit(&self, text: &str) -> String {
        let answer = self.try_submit(&fresh_key(), text).await.expect("the gateway answers");
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        answer.body["run_id"].as_str().expect("every 202 names its run").to_owned()
    }

    /// Submits under one key until it is accepted, as a careful backend does while there is
    /// trouble. Anything but 202, 429, 503 or no answer is a failure (I20). Returns the run.
    pub async fn submit_until_accepted(&self, idempotency_key: &str, text: &str) -> String {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut seen = String::new();
        while Instant::now() < deadline {
            match self.try_submit(idempotency_key, text).await {
                Ok(answer) if answer.status == StatusCode::ACCEPTED => {
                    return answer.body["run_id"].as_str().expect("every 202 names its run").to_owned();
                }
                Ok(answer) => {
                    let honest = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
                    assert!(honest.contains(&answer.status), "{} {}", answer.status, answer.body);
                    seen = answer.body.to_string();
                }
                Err(error) => seen = error.to_string(),
            }
            // A backend that repeats does not do it without a pause.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not accepted within {WAIT_TIMEOUT:?}: {seen}");
    }

    /// Reads a run; with `wait`, until something changed.
    pub async fn read(&self, run_id: &str, wait: u32) -> Result<ApiResponse, reqwest::Error> {
        let path = format!("/runs/{run_id}?wait={wait}");
        self.send(self.request(reqwest::Method::GET, &path)).await
    }

    /// A run's record, which must be readable.
    pub async fn run(&self, run_id: &str) -> Value {
        let answer = self.read(run_id, 0).await.expect("the gateway answers");
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body
    }

    /// Waits until a run is in a state, and returns its record.
    pub async fn wait_for_state(&self, run_id: &str, state: &str) -> Value {
        self.when(run_id, state, |run| run["state"] == state).await
    }

    /// Waits until a run has ended, and returns its record.
    pub async fn wait_for_end(&self, run_id: &str) -> Value {
        self.when(run_id, "its end", |run| run["phase"] == "final").await
    }

    async fn when(&self, run_id: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(&format!("run {run_id} to reach {what}"), async || match self.read(run_id, 0).await {
            Ok(answer) if answer.status == StatusCode::OK && is_so(&answer.body) => Ok(answer.body),
            Ok(answer) => Err(format!("{} {}", answer.status, answer.body)),
            Err(error) => Err(error.to_string()),
        })
        .await
    }

    /// The services this caller sees.
    pub async fn endpoints(&self) -> ApiResponse {
        self.send(self.request(reqwest::Method::GET, "/agent-endpoints")).await.expect("the gateway answers")
    }
}

/// An idempotency key that nobody used before.
pub fn fresh_key() -> String {
    static NEXT_KEY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    format!("key-{}-{}", std::process::id(), NEXT_KEY.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}
