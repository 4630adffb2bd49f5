//! A business system that calls a service, and records everything that was accepted.

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

/// An API response.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl ApiResponse {
    /// The code of a problem document; empty if it is not one.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// A builder of a client. If the agent is in the same build, the client needs a cryptography provider even without TLS.
pub fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Tests only call this computer, so proxies of the environment are ignored.
    Client::builder().no_proxy()
}

impl Backend {
    /// A caller of a service.
    pub fn new(address: Address, key: &str, endpoint_id: &str) -> Self {
        let http = client().timeout(Duration::from_secs(70)).build().expect("a client without TLS");
        let (key, endpoint_id) = (key.to_owned(), endpoint_id.to_owned());
        Self { http, address, key, subject: "customer-1".to_owned(), endpoint_id, accepted: Arc::default() }
    }

    /// The same caller at another gateway.
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

    /// The runs of all 202 responses.
    pub fn accepted(&self) -> BTreeSet<String> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request with credentials to a path below `/api/v1`.
    pub fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/api/v1{path}", self.address.get());
        self.http.request(method, url).bearer_auth(&self.key).header("X-Gateway-Subject", &self.subject)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn send(&self, request: RequestBuilder) -> Result<ApiResponse, reqwest::Error> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(ApiResponse { status, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    /// Submits a text under an idempotency key.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn try_submit(&self, idempotency_key: &str, text: &str) -> Result<ApiResponse, reqwest::Error> {
        self.try_submit_body(idempotency_key, &json!({ "input": { "text": text } })).await
    }

    /// The same with a whole body.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn try_submit_body(&self, idempotency_key: &str, body: &Value) -> Result<ApiResponse, reqwest::Error> {
        let path = format!("/agent-endpoints/{}/runs", self.endpoint_id);
        let request = self.request(reqwest::Method::POST, &path).header("Idempotency-Key", idempotency_key);
        let answer = self.send(request.json(body)).await?;
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

    /// Submits a body, which must be accepted, and returns the run at its end.
    pub async fn run_body(&self, body: &Value) -> Value {
        let answer = self.try_submit_body(&fresh_key(), body).await.expect("the gateway answers");
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        self.wait_for_end(answer.body["run_id"].as_str().expect("every 202 names its run")).await
    }

    /// Submits under one key until it is accepted, as a careful backend does during faults. Only 202, 429, 503 or no
    /// response is allowed (I20). Returns the run.
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
            // A backend pauses before it repeats.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not accepted within {WAIT_TIMEOUT:?}: {seen}");
    }

    /// Reads a run; with `wait`, waits until something changed.
    ///
    /// # Errors
    /// No complete response arrived.
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

/// An idempotency key that was never used before.
pub fn fresh_key() -> String {
    static NEXT_KEY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    format!("key-{}-{}", std::process::id(), NEXT_KEY.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}
