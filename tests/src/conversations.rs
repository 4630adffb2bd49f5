//! Calls of a business system beyond plain runs: conversations, stops, resets.

use reqwest::Method;
use serde_json::{Value, json};

use crate::backend::{ApiResponse, Backend, fresh_key};
use crate::wait::until;

impl Backend {
    /// Posts a body to a path below `/api/v1`.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn post(&self, path: &str, idempotency_key: &str, body: &Value) -> Result<ApiResponse, reqwest::Error> {
        let request = self.request(Method::POST, path).header("Idempotency-Key", idempotency_key);
        self.send(request.json(body)).await
    }

    /// Reads a path below `/api/v1`, which must exist.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.send(self.request(Method::GET, path)).await.expect("the gateway answers");
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.body);
        answer.body
    }

    /// The conversation with this key. Returns its identifier.
    pub async fn conversation(&self, key: &str) -> String {
        let body = json!({ "endpoint_id": self.endpoint_id(), "conversation_key": key });
        let answer = self.post("/conversations", &fresh_key(), &body).await.expect("the gateway answers");
        assert!(answer.status.is_success(), "{}", answer.body);
        answer.body["conversation_id"].as_str().expect("every conversation has one").to_owned()
    }

    /// Sends a message under a fresh key.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn say(&self, conversation: &str, generation: u64, text: &str) -> Result<ApiResponse, reqwest::Error> {
        let body = json!({ "expected_generation": generation, "input": { "text": text } });
        self.post(&format!("/conversations/{conversation}/messages"), &fresh_key(), &body).await
    }

    /// Sends a message, which must be accepted, and returns its final answer.
    pub async fn say_and_wait(&self, conversation: &str, generation: u64, text: &str) -> String {
        let answer = self.say(conversation, generation, text).await.expect("the gateway answers");
        let run_id = answer.body["run_id"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned();
        let run = self.wait_for_end(&run_id).await;
        run["result"]["text"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned()
    }

    /// Requests a reset under a fresh key.
    ///
    /// # Errors
    /// No complete response arrived.
    pub async fn reset(&self, conversation: &str, generation: u64) -> Result<ApiResponse, reqwest::Error> {
        let body = json!({ "expected_generation": generation });
        self.post(&format!("/conversations/{conversation}/reset"), &fresh_key(), &body).await
    }

    /// Requests the stop of a run, which must be accepted. Returns the operation.
    pub async fn stop(&self, run_id: &str) -> Value {
        let answer = self.post(&format!("/runs/{run_id}/stop"), &fresh_key(), &json!({})).await;
        let answer = answer.expect("the gateway answers");
        assert_eq!(answer.status.as_u16(), 202, "{}", answer.body);
        answer.body
    }

    /// Waits until an operation is completed, and returns its outcome.
    pub async fn outcome(&self, operation: &Value) -> Value {
        let path = format!("/control-operations/{}", operation["operation_id"].as_str().expect("an operation"));
        until("the operation to be completed", async || {
            let operation = self.get(&path).await;
            if operation["state"] == "completed" {
                Ok(operation["outcome"].clone())
            } else {
                Err(operation.to_string())
            }
        })
        .await
    }
}
