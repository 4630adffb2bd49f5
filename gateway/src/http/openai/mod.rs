//! Published services as models of OpenAI's API, under `/openai/v1`: a door to the same runs and conversations.
//!
//! | file | what it does |
//! |---|---|
//! | `models` | the services, as models |
//! | `request` | what is asked for: the turns, and which parameters are taken, ignored or refused |
//! | `admit` | from a request to its run |
//! | `responses` | the calls of the Responses API |
//! | `response` | a run as a response |
//! | `response_stream` | a run's events as those of a response, numbered so that they can be resumed exactly |
//! | `run_stream` | an answer that follows a run, whoever writes its events |
//! | `chat` | the call of the Chat Completions API |
//! | `error` | problem documents with the member that SDKs read |
//!
//! Identifiers carry the run's own number: `run_X` is `resp_X` and `chatcmpl-X`. Of
//! this door alone only the keys of requests without an `Idempotency-Key` are stored, for ten minutes.

mod admit;
mod chat;
mod error;
mod models;
mod request;
mod response;
mod response_stream;
mod responses;
mod run_stream;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::{get, post};
use deskgate_protocol::RunId;

use super::Api;
use super::watched::Watch;
use crate::domain::runs::response_id;
pub(super) use error::{is_call, of_run, write_error};

/// The calls of this door.
pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/openai/v1/models", get(models::list))
        .route("/openai/v1/models/{model}", get(models::read))
        .route("/openai/v1/responses", post(responses::create))
        .route("/openai/v1/responses/{response_id}", get(responses::read))
        .route("/openai/v1/responses/{response_id}/cancel", post(responses::cancel))
        .route("/openai/v1/responses/{response_id}/input_items", get(responses::input_items))
        .route("/openai/v1/chat/completions", post(chat::create))
}

const RUN_ID_HEADER: HeaderName = HeaderName::from_static("deskgate-run-id");
const IGNORED_HEADER: HeaderName = HeaderName::from_static("deskgate-ignored");
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What an answer says of its run in its headers.
struct RunHeaders {
    run_id: RunId,
    /// Whether an earlier request made the run.
    replayed: bool,
    /// The parameters that were ignored.
    ignored: Vec<&'static str>,
    /// The request, if it has no key of its own.
    watch: Option<Watch>,
}

impl RunHeaders {
    fn write(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        let text = |text: &str| HeaderValue::from_str(text).expect("letters, digits, commas and underscores");
        headers.insert(RUN_ID_HEADER, text(&self.run_id.to_string()));
        if self.replayed {
            headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
        }
        if !self.ignored.is_empty() {
            headers.insert(IGNORED_HEADER, text(&self.ignored.join(",")));
        }
        if let Some(watch) = &self.watch {
            response.extensions_mut().insert(watch.clone());
        }
        response
    }
}

/// The run that a response, or an item of its output, belongs to.
fn run_of(id: &str) -> Option<RunId> {
    let digits = id.strip_prefix("resp_").or_else(|| id.strip_prefix("msg_"))?;
    // The second and later messages have a number of their own behind it.
    let (digits, place) = digits.split_once('_').unwrap_or((digits, "0"));
    if digits.len() != 32 || !place.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<uuid::Uuid>().ok().map(RunId::from)
}

/// The message of a response's output in this place.
fn message_id(run_id: RunId, place: usize) -> String {
    let first = format!("msg_{}", run_id.uuid().simple());
    if place == 0 { first } else { format!("{first}_{place}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_lead_back_to_their_run() {
        let run_id = RunId::new();
        assert_eq!(run_of(&response_id(run_id)), Some(run_id));
        assert_eq!((run_of(&message_id(run_id, 0)), run_of(&message_id(run_id, 12))), (Some(run_id), Some(run_id)));
        for wrong in ["", "resp_", "resp_1", "msg_01a1fdacce837753badf368b3b8b6a04_in0", &run_id.to_string()] {
            assert_eq!(run_of(wrong), None, "{wrong}");
        }
    }
}
