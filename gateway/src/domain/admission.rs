//! Whether a submission becomes a run.
//!
//! The order of the checks is part of the contract (http-api, section "Admission"): key, scope,
//! subject, body, idempotent replay, service, access, queue. The replay stands before everything
//! that can change with time, so the retry of an accepted request always finds its run.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::run::{Input, Run, RunLinks, RunState, StateReasonCode};
use deskgate_protocol::{ApplicationId, EndpointId, RunId};

use super::Limits;
use super::access::Caller;
use super::refusal::Refusal;
use super::runs::{seen, seen_state};
use crate::store::Store;
use crate::store::admissions::{Accepted, Admission, Admissions, Submission};

/// What a caller wants done.
#[derive(Clone, Debug)]
pub struct Request {
    /// By which service.
    pub endpoint_id: EndpointId,
    /// The caller's own name for this piece of work.
    pub idempotency_key: String,
    /// Of the whole body, canonical.
    pub fingerprint: Sha256Digest,
    /// What is submitted.
    pub input: Input,
    /// The caller's labels.
    pub metadata: BTreeMap<String, String>,
    /// Seconds it may wait for a start.
    pub queue_ttl_s: u32,
    /// Awake seconds it may execute.
    pub max_duration_s: u32,
    /// The caller's trace.
    pub traceparent: Option<String>,
}

/// An admitted run; `replayed` when it was admitted by an earlier request.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Its record at this moment.
    pub run: Run,
    /// Whether this request made it.
    pub replayed: bool,
}

/// Decides on submissions.
#[derive(Clone)]
pub struct AdmissionDesk {
    store: Store,
    admissions: Admissions,
    waiting: WaitingRuns,
}

impl AdmissionDesk {
    /// A desk over the shared commits.
    pub fn new(store: Store, admissions: Admissions, limits: &Limits) -> Self {
        let waiting = WaitingRuns::new(store.clone(), limits.waiting_runs_per_application);
        Self { store, admissions, waiting }
    }

    /// Admits a request of a caller with `runs:write`, or finds the run that the same request made before. Returns only after
    /// the commit.
    pub async fn admit(&self, caller: &Caller, request: Request) -> Result<Admitted, Refusal> {
        if !caller.may_use(request.endpoint_id) {
            return Err(Refusal::NotFound);
        }
        let run_id = RunId::new();
        let submission = self.submission(caller, run_id, &request).await?;
        match self.admissions.admit(submission).await? {
            Admission::Accepted(accepted) => {
                self.waiting.one_more(caller.app_id());
                tracing::info!(%run_id, app_id = %caller.app_id(), endpoint_id = %request.endpoint_id, "run accepted");
                Ok(Admitted { run: fresh(run_id, request, accepted), replayed: false })
            }
            Admission::Known { run_id, fingerprint } if fingerprint == request.fingerprint => {
                let stored = self.store.run(caller.app_id(), caller.subject(), run_id).await?;
                let run = stored.map(seen).ok_or(Refusal::NotFound)?;
                Ok(Admitted { run, replayed: true })
            }
            Admission::Known { run_id, .. } => Err(Refusal::IdempotencyKeyReused { existing_run_id: run_id }),
            Admission::NoSuchEndpoint => Err(Refusal::NotFound),
            Admission::Paused => Err(Refusal::AccessPaused),
            Admission::QueueFull => Err(Refusal::QueueFull { limit: self.waiting.limit }),
        }
    }

    async fn submission(&self, caller: &Caller, run_id: RunId, request: &Request) -> Result<Submission, Refusal> {
        let seconds = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let json = |text: serde_json::Result<String>| text.map_err(|_| Refusal::Internal);
        Ok(Submission {
            run_id,
            app_id: caller.app_id(),
            subject: caller.subject().to_owned(),
            endpoint_id: request.endpoint_id,
            identity: identity(caller, "POST runs", request.endpoint_id, &request.idempotency_key),
            fingerprint: request.fingerprint,
            input: json(serde_json::to_string(&request.input))?,
            metadata: json(serde_json::to_string(&request.metadata))?,
            queue_ttl_s: seconds(request.queue_ttl_s),
            max_duration_s: seconds(request.max_duration_s),
            traceparent: request.traceparent.clone(),
            queue_open: self.waiting.has_room(caller.app_id()).await?,
        })
    }
}

/// The identity of a request that creates work. Lengths stand before the parts, so that no two
/// requests make the same text.
fn identity(caller: &Caller, route: &str, target: EndpointId, key: &str) -> Sha256Digest {
    let parts = [&caller.app_id().to_string(), caller.subject(), route, &target.to_string(), key];
    let text = parts.iter().fold(String::new(), |text, part| text + &format!("{}:{part}", part.len()));
    Sha256Digest::of(text.as_bytes())
}

/// The record of a run that was accepted a moment ago.
fn fresh(run_id: RunId, request: Request, accepted: Accepted) -> Run {
    let (state, reason) = seen_state(RunState::Queued, accepted.presence);
    Run {
        run_id,
        endpoint_id: request.endpoint_id,
        endpoint_version: accepted.endpoint_version,
        conversation_id: None,
        generation: None,
        phase: state.phase(),
        state,
        state_reason: reason.map(StateReasonCode::reason),
        attempt: 0,
        input: Some(request.input),
        result: None,
        error: None,
        usage: None,
        metadata: request.metadata,
        queue_position: None,
        last_sequence: 1,
        created_at: accepted.created_at,
        queue_expires_at: accepted.queue_expires_at,
        started_at: None,
        finished_at: None,
        purge_at: None,
        links: RunLinks::of(run_id),
    }
}

/// How often an application's waiting runs are counted again.
const COUNT_AGAIN: Duration = Duration::from_secs(1);

/// How many runs of each application wait. Counted once a second, and upwards in between by what
/// this replica accepts: so the limit can be passed only by what other replicas accept in a second.
#[derive(Clone)]
struct WaitingRuns {
    store: Store,
    limit: u32,
    counts: Arc<Mutex<HashMap<ApplicationId, (Instant, i64)>>>,
}

impl WaitingRuns {
    fn new(store: Store, limit: u32) -> Self {
        Self { store, limit, counts: Arc::default() }
    }

    async fn has_room(&self, app_id: ApplicationId) -> Result<bool, Refusal> {
        let limit = i64::from(self.limit);
        let known = {
            let mut counts = self.lock();
            counts.retain(|_, (counted, _)| counted.elapsed() < COUNT_AGAIN);
            counts.get(&app_id).map(|(_, count)| *count)
        };
        let count = match known {
            Some(count) => count,
            None => {
                let count = self.store.waiting_runs(app_id, limit).await?;
                self.lock().insert(app_id, (Instant::now(), count));
                count
            }
        };
        Ok(count < limit)
    }

    fn one_more(&self, app_id: ApplicationId) {
        if let Some((_, count)) = self.lock().get_mut(&app_id) {
            *count += 1;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ApplicationId, (Instant, i64)>> {
        // Nothing panics while it holds this lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
