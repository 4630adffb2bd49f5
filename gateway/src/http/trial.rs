//! The stream that `doctor` opens through the public address: a few events with pauses between them, sent like every
//! other stream of this gateway.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use tokio::time::sleep;

use super::Api;
use super::error::Error;
use super::events::STREAM_HEADERS;
use crate::domain::trial::{EVENT_INTERVAL, TRIAL_EVENTS};

/// The path, which ends with the ticket.
pub(super) const TRIAL_PATH: &str = "/trial-stream/{ticket}";

pub(super) async fn stream(State(api): State<Arc<Api>>, Path(ticket): Path<String>) -> Result<Response, Error> {
    if !api.trials.accept(&ticket) {
        return Err(Error::not_found());
    }
    let events = unfold(1, |number| async move {
        if number > TRIAL_EVENTS {
            return None;
        }
        if number > 1 {
            sleep(EVENT_INTERVAL).await;
        }
        Some((Ok::<_, Infallible>(Bytes::from(format!("event: trial\ndata: {number}\n\n"))), number + 1))
    });
    Ok((STREAM_HEADERS, Body::from_stream(events)).into_response())
}
