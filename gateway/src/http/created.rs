//! The answer to a request that creates something: its record, its address, and whether it existed before.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

const IDEMPOTENCY_REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Answers with a record whose address is `location`.
pub(super) fn created_response(status: StatusCode, location: &str, record: impl Serialize, replayed: bool) -> Response {
    as_created((status, Json(record)).into_response(), location, replayed)
}

/// The same about an answer with another body.
pub(super) fn as_created(mut response: Response, location: &str, replayed: bool) -> Response {
    let location = HeaderValue::from_str(location).expect("a path of letters, digits, slashes and underscores");
    response.headers_mut().insert(header::LOCATION, location);
    if replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED_HEADER, HeaderValue::from_static("true"));
    }
    response
}
