//! How a submission is answered: at once with 202, with the end of its run, or with the run's stream.
//!
//! Once a run is admitted nothing is refused any more, and a repetition always finds its run: if the end or the stream cannot be
//! had, the answer is 202 with the record as it was read last.

use std::time::{Duration, Instant};

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
use crate::domain::runs;

/// How long an answer was held back because its caller wanted it so: no time that the gateway took.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBack(pub(super) Duration);

/// What the caller of a submission asks for.
pub(super) enum SubmissionAnswer {
    /// The record as it is at the commit.
    AtOnce,
    /// The record of the run that has ended, if it ends in time.
    End(Duration),
    /// The stream of its events.
    Stream,
}

impl SubmissionAnswer {
    /// Reads it from a request.
    ///
    /// # Errors
    /// The query is invalid, or the key may not read runs.
    pub(super) fn read(caller: &Caller, query: Option<&str>, headers: &HeaderMap) -> Result<Self, Error> {
        let wait_s = QueryParameters::read(query, &["wait"])?.number("wait", 0..=MAX_WAIT_S, 0)?;
        let answer = match accept::form(headers) {
            Some(EventFormat::Stream) => Self::Stream,
            _ if wait_s > 0 => Self::End(Duration::from_secs(wait_s.into())),
            _ => return Ok(Self::AtOnce),
        };
        caller.needs(Scope::RunsRead)?;
        Ok(answer)
    }

    /// The answer for a run that was admitted.
    pub(super) async fn of(self, api: &Api, caller: &Caller, admitted: AdmittedRun) -> Response {
        let AdmittedRun { run, replayed } = admitted;
        let told = |status, run: &Run| created_response(status, &run.links.this, run, replayed);
        match self {
            Self::AtOnce => told(StatusCode::ACCEPTED, &run),
            Self::End(time) => {
                let began = Instant::now();
                let run = ended(api, caller, &run, time).await.unwrap_or(run);
                let status = if run.phase == Phase::Final { StatusCode::OK } else { StatusCode::ACCEPTED };
                let mut response = told(status, &run);
                response.extensions_mut().insert(HeldBack(began.elapsed()));
                response
            }
            Self::Stream => match api.streams.open(caller, run.run_id, 0).await {
                Ok(Some(stream)) => {
                    as_created(events::stream(stream, api.listener.heartbeat), &run.links.this, replayed)
                }
                _ => told(StatusCode::ACCEPTED, &run),
            },
        }
    }
}

/// The run once it has ended or the time is over; `None`: nobody may or can wait.
async fn ended(api: &Api, caller: &Caller, run: &Run, time: Duration) -> Option<Run> {
    let permit = api.streams.wait(caller).ok()?;
    tokio::select! {
        run = runs::read_end(&api.store, caller, run.run_id, time) => run.ok(),
        _ = permit.ended() => None,
        () = api.draining.cancelled() => runs::read(&api.store, caller, run.run_id, Duration::ZERO).await.ok(),
    }
}
