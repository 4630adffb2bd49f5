//! How a submission is answered: at once with 202, with the end of its run, or with the run's stream.
//!
//! What the caller asks for is checked, and its place taken, before the run is admitted. From the admission on nothing is refused: if
//! the end or the stream cannot be had, the answer is the 202 that says what is true.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Phase, Run};

use super::Api;
use super::accept::{self, EventFormat};
use super::created::{as_created, created_response};
use super::error::Error;
use super::events;
use super::query::QueryParameters;
use super::runs::MAX_WAIT_S;
use crate::domain::access::Caller;
use crate::domain::admission::AdmittedRun;
use crate::domain::events::{StreamPlace, WaitPermit};
use crate::domain::runs;

/// What the caller of a submission asks for.
pub(super) enum SubmissionAnswer {
    /// The record as it is at the commit.
    AtOnce,
    /// The record of the run that has ended, if it ends in time.
    End(Duration, WaitPermit),
    /// The stream of its events.
    Stream(StreamPlace),
}

impl SubmissionAnswer {
    /// Reads it from a request.
    ///
    /// # Errors
    /// The query is invalid; the key may not read runs; or the application has no place left to wait or stream.
    pub(super) fn read(api: &Api, caller: &Caller, query: Option<&str>, headers: &HeaderMap) -> Result<Self, Error> {
        let wait_s = QueryParameters::read(query, &["wait"])?.number("wait", 0..=MAX_WAIT_S, 0)?;
        let streams = accept::form(headers) == Some(EventFormat::Stream);
        if !streams && wait_s == 0 {
            return Ok(Self::AtOnce);
        }
        caller.needs(Scope::RunsRead)?;
        Ok(match streams {
            true => Self::Stream(api.streams.place(caller)?),
            false => Self::End(Duration::from_secs(wait_s.into()), api.streams.wait(caller)?),
        })
    }

    /// The answer for a run that was admitted.
    pub(super) async fn of(self, api: &Api, caller: &Caller, admitted: AdmittedRun) -> Response {
        let AdmittedRun { run, replayed } = admitted;
        let told = |status, run: &Run| created_response(status, &run.links.this, run, replayed);
        match self {
            Self::AtOnce => told(StatusCode::ACCEPTED, &run),
            Self::End(time, permit) => match ended(api, caller, &run, time, permit).await.unwrap_or(run) {
                run if run.phase == Phase::Final => told(StatusCode::OK, &run),
                run => told(StatusCode::ACCEPTED, &run),
            },
            Self::Stream(place) => match api.streams.open_at(place, caller, run.run_id, 0).await {
                Ok(Some(stream)) => {
                    as_created(events::stream(stream, api.listener.heartbeat), &run.links.this, replayed)
                }
                _ => told(StatusCode::ACCEPTED, &run),
            },
        }
    }
}

/// The run once it has ended or the time is over; `None`: it cannot be told any more.
async fn ended(api: &Api, caller: &Caller, run: &Run, time: Duration, permit: WaitPermit) -> Option<Run> {
    tokio::select! {
        run = runs::read_end(&api.store, caller, run.run_id, time) => run.ok(),
        _ = permit.ended() => None,
        () = api.draining.cancelled() => runs::read(&api.store, caller, run.run_id, Duration::ZERO).await.ok(),
    }
}
