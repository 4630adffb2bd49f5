//! Runs: submitting one, reading one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::EndpointId;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Run;

use super::error::Error;
use super::{Api, body, caller, replayed_if};
use crate::domain::access::Authenticated;
use crate::domain::admission::{Admitted, Request};
use crate::domain::refusal::Refusal;
use crate::domain::runs;

/// `POST /agent-endpoints/{endpoint_id}/runs`: 202 after the commit.
pub(super) async fn submit(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    endpoint_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise(Scope::RunsWrite)?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let submitted = body::submission(&headers, body, api.time_for_body).await?;
    let request = request(identifier(endpoint_id)?, idempotency_key, submitted, &headers);
    Ok(accepted(api.desk.admit(&caller, request).await?))
}

/// A submission as the desk takes it.
pub(super) fn request(
    endpoint_id: EndpointId,
    idempotency_key: String,
    submitted: body::Submitted,
    headers: &HeaderMap,
) -> Request {
    Request {
        endpoint_id,
        idempotency_key,
        fingerprint: submitted.fingerprint,
        input: submitted.input,
        input_json: submitted.input_json,
        metadata: submitted.metadata,
        queue_ttl_s: submitted.queue_ttl_s,
        max_duration_s: submitted.max_duration_s,
        traceparent: caller::traceparent(headers),
    }
}

/// The answer to a submission: 202 with the run's record and its address.
pub(super) fn accepted(Admitted { run, replayed }: Admitted) -> Response {
    let location = run.links.this.clone();
    let mut response = (StatusCode::ACCEPTED, Json(run)).into_response();
    let location = HeaderValue::from_str(&location).expect("a path of letters, digits, slashes and underscores");
    response.headers_mut().insert(header::LOCATION, location);
    replayed_if(replayed, response)
}

/// `GET /runs/{run_id}?wait=SECONDS`.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    run_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let run_id = identifier(run_id)?;
    let wait = wait(query.as_deref().unwrap_or_default())?;
    let stopped = api.draining.clone();
    let run = tokio::select! {
        run = runs::read(&api.store, &caller, run_id, wait) => run?,
        () = stopped.cancelled(), if !wait.is_zero() => runs::read(&api.store, &caller, run_id, Duration::ZERO).await?,
    };
    let etag = etag(&run)?;
    let unchanged = headers.get_all(header::IF_NONE_MATCH).iter().any(|sent| names(sent, &etag));
    let mut response = if unchanged { StatusCode::NOT_MODIFIED.into_response() } else { Json(run).into_response() };
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

/// The identifier in a path. What is none, or no text at all, names nothing.
pub(super) fn identifier<T: FromStr>(path: Result<Path<String>, PathRejection>) -> Result<T, Refusal> {
    path.ok().and_then(|Path(text)| text.parse().ok()).ok_or(Refusal::NotFound)
}

/// A weak validator over everything the record says.
fn etag(run: &Run) -> Result<HeaderValue, Refusal> {
    let digest = deskgate_protocol::canonical::Sha256Digest::of_json(run).map_err(|_| Refusal::Internal)?;
    let text = format!("W/\"{}\"", &digest.to_string()[..32]);
    Ok(HeaderValue::from_str(&text).expect("hexadecimal digits in quotes"))
}

/// Whether an If-None-Match names this validator: a list of them, or `*` (RFC 9110, section 13.1.2).
fn names(sent: &HeaderValue, etag: &HeaderValue) -> bool {
    let opaque = |text: &str| text.trim().trim_start_matches("W/").to_owned();
    match (sent.to_str(), etag.to_str()) {
        (Ok(sent), Ok(etag)) => sent.trim() == "*" || sent.split(',').any(|one| opaque(one) == opaque(etag)),
        _ => false,
    }
}

fn wait(query: &str) -> Result<Duration, Error> {
    let mut wait = Duration::ZERO;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("wait", seconds)) => match seconds.parse::<u64>() {
                Ok(seconds) if seconds <= 60 => wait = Duration::from_secs(seconds),
                _ => return Err(Error::invalid_parameter("wait", "wait is a whole number of seconds from 0 to 60.")),
            },
            _ => return Err(Error::invalid_parameter("wait", "The only parameter here is \"wait\".")),
        }
    }
    Ok(wait)
}
