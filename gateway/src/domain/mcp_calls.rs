//! Calls of MCP that are under way: which run a client means that cancels one, and what becomes of the run of a call that
//! nobody waits for any longer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    open: Arc<Mutex<OpenRuns>>,
    closed: mpsc::Sender<ClosedCall>,
    retention: Duration,
}

/// The runs that calls wait for, each with how many do.
type OpenRuns = HashMap<RunId, usize>;

struct ClosedCall {
    caller: Caller,
    run_id: RunId,
    on_close: OnClose,
}

/// A call that is under way. Dropped before it is [answered](Self::answered), it counts as closed.
pub struct OpenCall {
    call: Option<ClosedCall>,
    run_id: RunId,
    open: Arc<Mutex<OpenRuns>>,
    closed: mpsc::Sender<ClosedCall>,
}

impl OpenCall {
    /// Its answer was written.
    pub fn answered(&mut self) {
        self.call = None;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut is_last = true;
        if let Entry::Occupied(mut open) = lock(&self.open).entry(self.run_id) {
            *open.get_mut() -= 1;
            is_last = *open.get() == 0;
            if is_last {
                open.remove();
            }
        }
        // Who came again for the run before this connection was known to be lost still waits for it.
        if let Some(call) = self.call.take().filter(|_| is_last) {
            let _ = self.closed.try_send(call);
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
        let calls = Self { store, open: Arc::default(), closed, retention };
        let of_task = calls.clone();
        let task = async move {
            while let Some(Some(call)) = stop.run_until_cancelled(left.recv()).await {
                of_task.close(&call).await;
            }
        };
        (calls, task)
    }

    /// A call begins to wait for its run.
    pub fn begin(&self, caller: &Caller, run_id: RunId, on_close: OnClose) -> OpenCall {
        // A key that may not stop runs does not do it by going away, either.
        let may_stop = on_close != OnClose::GoesOn && caller.needs(Scope::RunsControl).is_ok();
        let call = ClosedCall { caller: caller.clone(), run_id, on_close };
        *lock(&self.open).entry(run_id).or_default() += 1;
        OpenCall { call: may_stop.then_some(call), run_id, open: self.open.clone(), closed: self.closed.clone() }
    }

    /// Remembers what its client calls a call: by its session, and its number there. `key`: what it was given, if it has no name of its
    /// own. Stops the run if the client has cancelled the call meanwhile.
    ///
    /// # Errors
    /// As [`operations::stop`].
    pub async fn note(
        &self,
        caller: &Caller,
        (session, number): (&str, &Value),
        run_id: RunId,
        key: Option<&str>,
    ) -> Result<(), Refusal> {
        let is_cancelled = self.store.note_mcp_call(named(caller, session, number), run_id, key).await?;
        if is_cancelled { self.stop(caller, run_id, None, None).await } else { Ok(()) }
    }

    /// Stops the run of a call, for a client that cancels it; or, if it is not there yet, once it is. A key that may not stop runs
    /// cancels nothing.
    ///
    /// # Errors
    /// As [`operations::stop`].
    pub async fn cancel(&self, caller: &Caller, session: &str, number: &Value) -> Result<(), Refusal> {
        if caller.needs(Scope::RunsControl).is_err() {
            return Ok(());
        }
        match self.store.cancel_mcp_call(named(caller, session, number)).await? {
            Some(run_id) => self.stop(caller, run_id, None, None).await,
            None => Ok(()),
        }
    }

    /// Stops a run. Every repetition is the same request.
    ///
    /// # Errors
    /// As [`operations::stop`].
    pub async fn stop(
        &self,
        caller: &Caller,
        run_id: RunId,
        expected_attempt: Option<u32>,
        reason: Option<String>,
    ) -> Result<(), Refusal> {
        let stop = StopRequest { expected_attempt, reason };
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
                (Phase::Accepted, _) => match self.stop(caller, *run_id, Some(run.attempt), None).await {
                    // It was started meanwhile.
                    Err(Refusal::AttemptMismatch { .. }) if *on_close == OnClose::StopsUnstarted => Ok(()),
                    Err(Refusal::AttemptMismatch { .. }) => self.stop(caller, *run_id, None, None).await,
                    stopped => stopped,
                },
                (Phase::Started, OnClose::Stops) => self.stop(caller, *run_id, None, None).await,
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

fn lock(open: &Mutex<OpenRuns>) -> MutexGuard<'_, OpenRuns> {
    // No code panics while it holds the lock.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
