//! An answer that is held back until the run has ended.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::RunId;
use deskgate_protocol::run::{Phase, Run};
use futures_util::stream::unfold;
use serde_json::Value;

use crate::domain::access::Caller;
use crate::domain::events::WaitPermit;
use crate::domain::refusal::Refusal;
use crate::domain::runs;
use crate::http::Api;
use crate::http::submission_answer::HeldBack;

/// Waits for the end of a run.
pub(super) struct Waiting {
    api: Arc<Api>,
    caller: Caller,
    run_id: RunId,
    /// `None`: there is no place to wait. The run goes on all the same, and its caller is told where to ask.
    permit: Option<WaitPermit>,
    began: Instant,
}

/// What a while of waiting came to.
pub(super) enum Waited {
    /// The run has ended.
    Ended(Box<Run>),
    /// It goes on.
    Going,
    /// It goes on, and nobody waits for it any longer.
    Over(Box<Run>),
}

impl Waiting {
    pub(super) fn for_end(api: Arc<Api>, caller: Caller, run_id: RunId) -> Self {
        let permit = api.streams.wait(&caller).ok();
        Self { api, caller, run_id, permit, began: Instant::now() }
    }

    /// Waits so long, and not longer than `limit` in all.
    ///
    /// # Errors
    /// The run or the key is not there any more, or the tables cannot be read.
    pub(super) async fn next(&self, time: Duration, limit: Duration) -> Result<Waited, Refusal> {
        let left = limit.saturating_sub(self.began.elapsed());
        let now = || runs::read(&self.api.store, &self.caller, self.run_id, Duration::ZERO);
        let (run, is_over) = match &self.permit {
            None => (now().await?, true),
            Some(permit) => tokio::select! {
                run = runs::read_end(&self.api.store, &self.caller, self.run_id, time.min(left)) => {
                    (run?, self.began.elapsed() >= limit)
                }
                refusal = permit.ended() => return Err(refusal),
                () = self.api.draining.cancelled() => (now().await?, true),
            },
        };
        Ok(match run.phase {
            Phase::Final => Waited::Ended(Box::new(run)),
            _ if is_over => Waited::Over(Box::new(run)),
            _ => Waited::Going,
        })
    }

    pub(super) fn elapsed(&self) -> HeldBack {
        HeldBack(self.began.elapsed())
    }
}

/// Ends an answer that has begun so that its reader sees that it is not complete.
pub(super) fn broken_off() -> io::Error {
    io::Error::other("the answer cannot be completed")
}

/// How long an answer is held back before its head is sent, and the pause between two signs of life behind it.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(15);

/// An answer whose body comes when the run has ended, or `limit` is over. Until then line feeds show that it will: white
/// space before JSON says nothing. `written` makes the body; it is told whether the waiting is over without an end.
pub(super) async fn answer<F>(
    waiting: Waiting,
    limit: Duration,
    written: impl Fn(Arc<Api>, Run, bool) -> F + Clone + Send + 'static,
) -> Result<Response, Refusal>
where
    F: Future<Output = Result<Value, Refusal>> + Send + 'static,
{
    let api = waiting.api.clone();
    let told = match waiting.next(SIGN_OF_LIFE_INTERVAL, limit).await? {
        Waited::Ended(run) => Some((run, false)),
        Waited::Over(run) => Some((run, true)),
        Waited::Going => None,
    };
    let held_back = waiting.elapsed();
    let mut response = match told {
        Some((run, is_over)) => axum::Json(written(api, *run, is_over).await?).into_response(),
        None => {
            let rest = unfold(Some((waiting, written)), move |state| async move {
                let (waiting, written) = state?;
                let (run, is_over) = match waiting.next(SIGN_OF_LIFE_INTERVAL, limit).await {
                    Ok(Waited::Going) => {
                        return Some((Ok(Bytes::from_static(b"\n")), Some((waiting, written))));
                    }
                    Ok(Waited::Ended(run)) => (run, false),
                    Ok(Waited::Over(run)) => (run, true),
                    // The answer has begun: what is left is to break it off.
                    Err(_) => return Some((Err(broken_off()), None)),
                };
                let body = written(waiting.api.clone(), *run, is_over).await.map_err(|_| broken_off());
                Some((body.map(|body| body.to_string().into()), None))
            });
            let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            (kind, Body::from_stream(rest)).into_response()
        }
    };
    response.extensions_mut().insert(held_back);
    Ok(response)
}
