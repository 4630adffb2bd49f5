//! Calls of MCP that are under way: which run a client means that cancels one, and what becomes of the run of a call that
//! nobody waits for any longer.

use std::time::Duration;

use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Phase;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::admission::digest_of;
use super::operations::{self, RequestIdentity, StopRequest};
use super::refusal::Refusal;
use super::runs;
use crate::store::Store;

/// Closed calls that may wait to be looked at. One that is dropped leaves its run alone.
const CLOSED_CAPACITY: usize = 4096;

/// What becomes of a run whose call is closed before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClose {
    /// It goes on. Its caller can come again for it.
    GoesOn,
    /// It is stopped, unless it was started: then it goes on.
    StopsUnstarted,
    /// It is stopped.
    Stops,
}

/// The calls of one gateway.
#[derive(Clone)]
pub struct McpCalls {
    store: Store,
    closed: mpsc::Sender<ClosedCall>,
    retention: Duration,
}

struct ClosedCall {
    caller: Caller,
    run_id: RunId,
    on_close: OnClose,
}

/// A call that is under way. Dropped before it is [answered](Self::answered), it counts as closed.
pub struct OpenCall(Option<(ClosedCall, mpsc::Sender<ClosedCall>)>);

impl OpenCall {
    /// Its answer was written.
    pub fn answered(&mut self) {
        self.0 = None;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some((call, closed)) = self.0.take() {
            let _ = closed.try_send(call);
        }
    }
}

impl McpCalls {
    /// None so far, and the task that sees to the runs of closed ones, until `stop`. `retention`: how long a run is kept that ends at
    /// once.
    pub fn new(
        store: Store,
        retention: Duration,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (closed, mut left) = mpsc::channel(CLOSED_CAPACITY);
        let calls = Self { store, closed, retention };
        let of_task = calls.clone();
        let task = async move {
            while let Some(Some(call)) = stop.run_until_cancelled(left.recv()).await {
                of_task.close(&call).await;
            }
        };
        (calls, task)
    }

    /// A call that made this run begins to wait for it.
    pub fn begin(&self, caller: &Caller, run_id: RunId, on_close: OnClose) -> OpenCall {
        // A key that may not stop runs does not do it by going away, either.
        let may_stop = on_close != OnClose::GoesOn && caller.needs(Scope::RunsControl).is_ok();
        let call = ClosedCall { caller: caller.clone(), run_id, on_close };
        OpenCall(may_stop.then(|| (call, self.closed.clone())))
    }

    /// Remembers what its client calls a call: by its session, and its number there.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn note(&self, caller: &Caller, session: &str, number: &Value, run_id: RunId) -> Result<(), Refusal> {
        Ok(self.store.note_mcp_call(named(caller, session, number), run_id).await?)
    }

    /// Stops the run that a call made, for a client that cancels it. A call that is not known was answered long ago.
    ///
    /// # Errors
    /// [`Refusal::InsufficientScope`]: the key may not stop runs. Otherwise as [`operations::stop`].
    pub async fn cancel(&self, caller: &Caller, session: &str, number: &Value) -> Result<(), Refusal> {
        caller.needs(Scope::RunsControl)?;
        match self.store.run_of_mcp_call(named(caller, session, number)).await? {
            Some(run_id) => self.stop(caller, run_id, None).await,
            None => Ok(()),
        }
    }

    /// Stops a run. Every repetition is the same request.
    ///
    /// # Errors
    /// As [`operations::stop`].
    pub async fn stop(&self, caller: &Caller, run_id: RunId, expected_attempt: Option<u32>) -> Result<(), Refusal> {
        let stop = StopRequest { expected_attempt, reason: None };
        let key = format!("mcp-stop-{}", expected_attempt.map_or("any".to_owned(), |attempt| attempt.to_string()));
        let request = RequestIdentity { idempotency_key: key, fingerprint: Sha256Digest::of(b"{}") };
        operations::stop(&self.store, caller, run_id, stop, request, self.retention).await.map(drop)
    }

    async fn close(&self, call: &ClosedCall) {
        let ClosedCall { caller, run_id, on_close } = call;
        let closed = async {
            let run = runs::read(&self.store, caller, *run_id, Duration::ZERO).await?;
            match (run.phase, on_close) {
                (Phase::Final, _) | (_, OnClose::GoesOn) | (Phase::Started, OnClose::StopsUnstarted) => Ok(()),
                (Phase::Accepted, _) => match self.stop(caller, *run_id, Some(run.attempt)).await {
                    // It was started meanwhile.
                    Err(Refusal::AttemptMismatch { .. }) if *on_close == OnClose::StopsUnstarted => Ok(()),
                    Err(Refusal::AttemptMismatch { .. }) => self.stop(caller, *run_id, None).await,
                    stopped => stopped,
                },
                (Phase::Started, OnClose::Stops) => self.stop(caller, *run_id, None).await,
            }
        };
        if let Err(refusal) = closed.await {
            tracing::warn!(%run_id, %refusal, "the run of a call that was closed could not be stopped");
        }
    }
}

fn named(caller: &Caller, session: &str, number: &Value) -> Sha256Digest {
    digest_of(&[&caller.key_id().to_string(), caller.subject(), session, &number.to_string()])
}
