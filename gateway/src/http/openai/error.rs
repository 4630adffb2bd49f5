//! Errors of this door: the problem documents of the API, with the member `error` that OpenAI's SDKs show.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use deskgate_protocol::run::{RunError, RunState};
use serde_json::{Value, json};

const SHOULD_RETRY_HEADER: HeaderName = HeaderName::from_static("x-should-retry");

/// Whether a path is one of this door.
pub(in crate::http) fn is_call(path: &str) -> bool {
    path.starts_with("/openai/")
}

/// Adds to a problem document, and to the headers of its answer, what an SDK reads.
pub(in crate::http) fn write_error(document: &mut Value, status: StatusCode, headers: &mut HeaderMap) {
    let retryable = document["retryable"] == true;
    headers.insert(SHOULD_RETRY_HEADER, HeaderValue::from_static(if retryable { "true" } else { "false" }));
    let flaw = &document["errors"][0];
    let pointer = flaw["pointer"].as_str().unwrap_or_default();
    let param = pointer.trim_matches(['/', '?', ':']).replace('/', ".");
    let detail = document["detail"].as_str().unwrap_or_default();
    // A detail that only says that something is wrong becomes a sentence of its own.
    let message = match flaw["detail"].as_str().filter(|of_flaw| !detail.contains(*of_flaw)) {
        Some(of_flaw) if param.is_empty() => format!("{detail} ({of_flaw})"),
        Some(of_flaw) => format!("{param}: {of_flaw}. {detail}"),
        None => detail.to_owned(),
    };
    document["error"] = json!({
        "message": message,
        "type": error_type(status),
        "param": if param.is_empty() { Value::Null } else { param.into() },
        "code": document["code"],
    });
}

fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// Why a run did not succeed, as the member `error` of a response. It always has the three members: SDKs that check
/// them would otherwise take the answer for an empty success.
pub(in crate::http) fn of_run(state: RunState, error: Option<&RunError>) -> Option<Value> {
    let (kind, message) = match (state, error) {
        (RunState::Succeeded, _) => return None,
        (RunState::Failed | RunState::Cancelled, Some(error)) => {
            let effects = json!(error.effects);
            let effects = effects.as_str().unwrap_or_default();
            (json!(error.code), format!("{} (effects: {effects})", error.message))
        }
        (RunState::Failed, None) => (json!("internal"), "The run failed.".to_owned()),
        (RunState::Cancelled, None) => (json!("run_cancelled"), "The run was stopped.".to_owned()),
        (RunState::Expired, _) => {
            (json!("run_expired"), "The run did not start in time: its device was away or busy.".to_owned())
        }
        (
            RunState::Queued
            | RunState::WaitingForDevice
            | RunState::Running
            | RunState::AwaitingApproval
            | RunState::AwaitingReconciliation
            | RunState::Cancelling,
            _,
        ) => return None,
    };
    let code = if state == RunState::Failed { json!("server_error") } else { kind.clone() };
    Some(json!({ "type": kind, "code": code, "message": message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sdk_is_shown_what_is_wrong_where_and_whether_to_come_again() {
        let mut headers = HeaderMap::new();
        let mut document = json!({
            "detail": "The request is invalid.", "code": "invalid_input", "retryable": false,
            "errors": [{ "pointer": "/text/format", "code": "wrong_type", "detail": "an object" }],
        });
        write_error(&mut document, StatusCode::UNPROCESSABLE_ENTITY, &mut headers);
        let expected = json!({
            "message": "text.format: an object. The request is invalid.", "type": "invalid_request_error",
            "param": "text.format", "code": "invalid_input",
        });
        assert_eq!((&document["error"], &headers["x-should-retry"]), (&expected, &HeaderValue::from_static("false")));
        let mut document = json!({ "detail": "Too many.", "code": "rate_limited", "retryable": true });
        write_error(&mut document, StatusCode::TOO_MANY_REQUESTS, &mut headers);
        assert_eq!(
            (&document["error"]["type"], &headers["x-should-retry"]),
            (&json!("rate_limit_error"), &HeaderValue::from_static("true"))
        );
        assert_eq!(document["error"]["param"], Value::Null);
    }
}
