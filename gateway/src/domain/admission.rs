//! Whether a submission becomes a run.
//!
//! The order of the checks is part of the contract (http-api, section "Admission"): key, scope, subject, body,
//! idempotent replay, service, access, queue, rate. The replay comes before every check that can change with time, so
//! the retry of an accepted request always finds its run.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Input, Output, Run, RunLinks, RunState, StateReasonCode};
use deskgate_protocol::{ApplicationId, EndpointId, FileId, RunId};

use super::CallerLimits;
use super::access::Caller;
use super::refusal::{PriorResult, Refusal};
use super::runs::{visible_run, visible_state, without_outcome};
use super::{files, typed_data};
use crate::storage::Precedence;
use crate::store::Store;
use crate::store::admissions::{AcceptedRun, Admission, Admissions, Submission};

/// Seconds that a run may wait for a start by default.
pub const DEFAULT_QUEUE_TTL_S: u32 = 24 * 3600;
/// Awake seconds that a run may execute by default.
pub const DEFAULT_DURATION_S: u32 = 3600;

/// A caller's request for a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The requested service.
    pub endpoint_id: EndpointId,
    /// The caller's own name for this piece of work.
    pub idempotency_key: String,
    /// The digest of the whole body, canonical.
    pub fingerprint: Sha256Digest,
    /// The submitted input.
    pub input: Input,
    /// The same as JSON text.
    pub input_json: String,
    /// The files that it is to be given.
    pub files: Vec<FileId>,
    /// The data that the result is to have, by a schema that can be used.
    pub output: Option<Output>,
    /// The caller's labels.
    pub metadata: BTreeMap<String, String>,
    /// Seconds it may wait for a start.
    pub queue_ttl_s: u32,
    /// Awake seconds it may execute.
    pub max_duration_s: u32,
    /// The caller's trace.
    pub traceparent: Option<String>,
    /// How many assistants that call each other stand before it.
    pub depth: u8,
}

/// An admitted run; `replayed` when it was admitted by an earlier request.
#[derive(Clone, Debug)]
pub struct AdmittedRun {
    /// Its record at this moment.
    pub run: Run,
    /// Whether an earlier request made it.
    pub replayed: bool,
}

/// Decides on submissions.
#[derive(Clone)]
pub struct AdmissionService {
    pub(super) store: Store,
    admissions: Admissions,
    pub(super) waiting: WaitingRunCounts,
    pub(super) precedence: Precedence,
    /// How long a run is kept that ends at once.
    pub(super) retention: Duration,
}

impl AdmissionService {
    /// A service over the shared commits, whose submissions go before the bytes of files.
    pub fn new(store: Store, admissions: Admissions, limits: &CallerLimits, precedence: Precedence) -> Self {
        let waiting = WaitingRunCounts::new(store.clone(), limits.waiting_runs_per_application);
        Self { store, admissions, waiting, precedence, retention: limits.retention }
    }

    /// Admits a request of a caller with `runs:write`, or finds the run that the same request made before. Returns only
    /// after the commit.
    ///
    /// # Errors
    /// A [`Refusal`] of the first check that fails.
    pub async fn admit(&self, caller: &Caller, mut request: RunRequest) -> Result<AdmittedRun, Refusal> {
        if !caller.may_use(request.endpoint_id) {
            return Err(Refusal::NotFound);
        }
        let run_id = RunId::new();
        let identity = identity(caller, "POST runs", &request.endpoint_id.to_string(), &request.idempotency_key);
        let mut no_room = self.no_room(caller).await?;
        if no_room.is_none() {
            no_room = files::resolve(&self.store, caller.into(), &mut request).await?;
        }
        let submission = submission(caller.into(), run_id, identity, &mut request, no_room.is_none())?;
        match self.decide(submission, &request.input, no_room).await? {
            Decision::Accepted(accepted) => {
                Ok(AdmittedRun { run: self.accepted(caller.app_id(), run_id, request, accepted), replayed: false })
            }
            Decision::Known { run_id, fingerprint } => {
                self.replay(caller, run_id, fingerprint == request.fingerprint).await
            }
        }
    }

    /// Whether a submission becomes a run. Its data is checked by the schema of the version that is published at the moment of
    /// acceptance.
    async fn decide(
        &self,
        submission: Submission,
        input: &Input,
        no_room: Option<Refusal>,
    ) -> Result<Decision, Refusal> {
        let _first = self.precedence.go_first();
        let mut submission = Arc::new(submission);
        for _ in 0..MAX_VERSIONS_CHECKED {
            let unchecked = match self.admissions.admit(Arc::clone(&submission)).await? {
                Admission::Accepted(accepted) => return Ok(Decision::Accepted(accepted)),
                Admission::Known { run_id, fingerprint } => return Ok(Decision::Known { run_id, fingerprint }),
                Admission::NoSuchEndpoint => return Err(Refusal::NotFound),
                Admission::Disabled => return Err(Refusal::ApplicationDisabled),
                Admission::Paused => return Err(Refusal::AccessPaused),
                Admission::ServiceDisabled => return Err(Refusal::ServiceDisabled),
                Admission::QueueFull => return Err(no_room.unwrap_or_else(|| self.waiting.full())),
                Admission::OutputNotTaken => return Err(typed_data::output_not_taken()),
                Admission::FilesNotTaken => return Err(files::not_taken()),
                Admission::FileGone => return Err(files::deleted_meanwhile()),
                Admission::Unchecked(schema) => schema,
            };
            let checked_version = Some(unchecked.version);
            typed_data::check_input(unchecked, input.data()).await?;
            submission = Arc::new(Submission { checked_version, ..Arc::unwrap_or_clone(submission) });
        }
        Err(typed_data::kept_changing())
    }

    /// Admits a run that the owner of an application's service requests, of a draft or of the published version. It passes the same
    /// checks as callers' runs: the service, access, the queue, its data. Every request is another run.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: its data does not fit the service's schema.
    /// [`Refusal::NotFound`]: the application has no such published service. [`Refusal::ApplicationDisabled`]: the
    /// application was disabled. [`Refusal::AccessPaused`]: access is paused. [`Refusal::ServiceDisabled`]: the service
    /// is disabled. [`Refusal::QueueFull`]: too many of the
    /// application's runs wait. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer,
    /// or refuses the statement.
    pub async fn admit_own(
        &self,
        app_id: ApplicationId,
        draft: Option<Sha256Digest>,
        mut request: RunRequest,
    ) -> Result<Run, Refusal> {
        let run_id = RunId::new();
        let identity = digest_of(&["owner", &run_id.to_string()]);
        let room = self.waiting.has_room(app_id).await?;
        let whose = Principal { app_id, subject: OWNER_SUBJECT };
        if let Some(refusal) = files::resolve(&self.store, whose, &mut request).await? {
            return Err(refusal);
        }
        let submission = Submission { draft, ..submission(whose, run_id, identity, &mut request, room)? };
        match self.decide(submission, &request.input, None).await? {
            Decision::Accepted(accepted) => Ok(self.accepted(app_id, run_id, request, accepted)),
            // A fresh identity is never known.
            Decision::Known { .. } => Err(Refusal::Internal),
        }
    }

    /// Admits an event of another system, or finds the run that the same event made before. Returns the run, and
    /// whether it existed.
    pub(super) async fn admit_event(
        &self,
        whose: Principal<'_>,
        identity: Sha256Digest,
        mut request: RunRequest,
        within_rate: bool,
    ) -> Result<(RunId, bool), Refusal> {
        let run_id = RunId::new();
        let no_room = self.no_room_for(whose.app_id, within_rate, Refusal::TooManyEvents).await?;
        let submission = submission(whose, run_id, identity, &mut request, no_room.is_none())?;
        match self.decide(submission, &request.input, no_room).await? {
            Decision::Accepted(accepted) => Ok((self.accepted(whose.app_id, run_id, request, accepted).run_id, false)),
            Decision::Known { run_id, .. } => Ok((run_id, true)),
        }
    }

    fn accepted(&self, app_id: ApplicationId, run_id: RunId, request: RunRequest, accepted: AcceptedRun) -> Run {
        self.waiting.one_more(app_id);
        tracing::info!(%run_id, %app_id, endpoint_id = %request.endpoint_id, "run accepted");
        new_run(run_id, request, accepted)
    }

    /// The refusal that new work of this caller would get. The replay of older work finds its run all the same.
    pub(super) async fn no_room(&self, caller: &Caller) -> Result<Option<Refusal>, Refusal> {
        self.no_room_for(caller.app_id(), caller.is_within_rate(), Refusal::RateLimited).await
    }

    /// The same for a caller beyond a rate with this refusal.
    pub(super) async fn no_room_for(
        &self,
        app_id: ApplicationId,
        within_rate: bool,
        beyond: Refusal,
    ) -> Result<Option<Refusal>, Refusal> {
        Ok(match self.waiting.has_room(app_id).await? {
            false => Some(self.waiting.full()),
            true if within_rate => None,
            true => Some(beyond),
        })
    }

    /// The answer to a request whose identity made a run before.
    pub(super) async fn replay(&self, caller: &Caller, run_id: RunId, same: bool) -> Result<AdmittedRun, Refusal> {
        if !same {
            return Err(Refusal::IdempotencyKeyReused { existing: PriorResult::Run(run_id) });
        }
        let stored = self.store.run(caller.app_id(), caller.subject(), run_id).await?;
        // The run existed a moment ago.
        let run = stored.map(visible_run).ok_or(Refusal::RunPurged)?;
        let run = if caller.needs(Scope::RunsRead).is_ok() { run } else { without_outcome(run) };
        Ok(AdmittedRun { run, replayed: true })
    }
}

/// What was decided about a submission that was not refused.
enum Decision {
    /// It is a run.
    Accepted(AcceptedRun),
    /// It made a run before, by a body of this digest.
    Known { run_id: RunId, fingerprint: Sha256Digest },
}

/// How many versions of a service an input is checked by, if others are published meanwhile.
pub(super) const MAX_VERSIONS_CHECKED: usize = 3;

/// The subject of the owner's own runs.
pub(super) const OWNER_SUBJECT: &str = "owner";

/// The application and subject that a run is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Principal<'a> {
    /// The application.
    pub app_id: ApplicationId,
    /// Its business user.
    pub subject: &'a str,
}

impl<'a> From<&'a Caller> for Principal<'a> {
    fn from(caller: &'a Caller) -> Self {
        Self { app_id: caller.app_id(), subject: caller.subject() }
    }
}

/// The submission to store; `room` says whether new work is allowed.
pub(super) fn submission(
    whose: Principal<'_>,
    run_id: RunId,
    identity: Sha256Digest,
    request: &mut RunRequest,
    room: bool,
) -> Result<Submission, Refusal> {
    let seconds = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    Ok(Submission {
        run_id,
        app_id: whose.app_id,
        subject: whose.subject.to_owned(),
        endpoint_id: request.endpoint_id,
        identity,
        fingerprint: request.fingerprint,
        draft: None,
        input: std::mem::take(&mut request.input_json),
        output: request.output.as_ref().map(serde_json::to_string).transpose().map_err(|_| Refusal::Internal)?,
        files: request.files.clone(),
        checked_version: None,
        metadata: serde_json::to_string(&request.metadata).map_err(|_| Refusal::Internal)?,
        queue_ttl_s: seconds(request.queue_ttl_s),
        max_duration_s: seconds(request.max_duration_s),
        traceparent: request.traceparent.clone(),
        depth: request.depth,
        queue_open: room,
    })
}

/// The identity of a request that creates work. Its first half is [`under_key`], so that accepted work is found by its
/// key without knowing its address.
pub(super) fn identity(caller: &Caller, route: &str, target: &str, key: &str) -> Sha256Digest {
    let mut identity = digest_of(&[route, target, key]);
    identity.0[..16].copy_from_slice(&under_key(caller, key));
    identity
}

/// The common beginning of the identities of all requests of this application and subject under one Idempotency-Key.
pub(super) fn under_key(caller: &Caller, key: &str) -> [u8; 16] {
    let digest = digest_of(&[&caller.app_id().to_string(), caller.subject(), key]);
    std::array::from_fn(|place| digest.0[place])
}

/// Lengths stand before the parts, so that no two requests make the same text.
pub(super) fn digest_of(parts: &[&str]) -> Sha256Digest {
    let text = parts.iter().fold(String::new(), |text, part| text + &format!("{}:{part}", part.len()));
    Sha256Digest::of(text.as_bytes())
}

/// The record of a run that was just accepted.
pub(super) fn new_run(run_id: RunId, request: RunRequest, accepted: AcceptedRun) -> Run {
    let (state, reason) = visible_state(RunState::Queued, accepted.presence, accepted.conversation_position.is_some());
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
        output: request.output.or(accepted.service_output),
        result: None,
        artifacts: Vec::new(),
        error: None,
        stop: None,
        usage: None,
        metadata: request.metadata,
        queue_position: None,
        conversation_position: accepted.conversation_position,
        last_sequence: 1,
        created_at: accepted.created_at,
        queue_expires_at: accepted.queue_expires_at,
        started_at: None,
        finished_at: None,
        receipt: None,
        purge_at: None,
        content_deleted_at: None,
        links: RunLinks::of(run_id),
    }
}

/// How often an application's waiting runs are counted again.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The most applications whose count is cached.
const MAX_CACHED_COUNTS: usize = 10_000;

/// The number of waiting runs of each application. Counted once a second; in between this replica adds what it accepts:
/// so the limit can be passed only by what other replicas accept meanwhile, and by what is admitted at the same moment.
///
/// A long queue takes long to count. So one caller counts, and the others use the old count meanwhile.
#[derive(Clone)]
pub(super) struct WaitingRunCounts {
    store: Store,
    limit: u32,
    counts: Arc<Mutex<HashMap<ApplicationId, Arc<WaitingCount>>>>,
}

/// The waiting runs of one application.
#[derive(Default)]
struct WaitingCount {
    known: Mutex<CachedCount>,
    counting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct CachedCount {
    counted_at: Option<Instant>,
    count: i64,
    /// Accepted by this replica since it started.
    accepted: i64,
}

impl WaitingRunCounts {
    fn new(store: Store, limit: u32) -> Self {
        Self { store, limit, counts: Arc::default() }
    }

    async fn has_room(&self, app_id: ApplicationId) -> Result<bool, Refusal> {
        let (limit, waiting) = (i64::from(self.limit), self.waiting(app_id));
        let count = waiting.count(async || Ok(self.store.waiting_runs(app_id, limit).await?)).await?;
        Ok(count < limit)
    }

    pub(super) fn full(&self) -> Refusal {
        Refusal::QueueFull { limit: self.limit }
    }

    pub(super) fn one_more(&self, app_id: ApplicationId) {
        let waiting = lock(&self.counts).get(&app_id).cloned();
        if let Some(waiting) = waiting {
            let mut known = lock(&waiting.known);
            known.count += 1;
            known.accepted += 1;
        }
    }

    fn waiting(&self, app_id: ApplicationId) -> Arc<WaitingCount> {
        let mut counts = lock(&self.counts);
        if counts.len() >= MAX_CACHED_COUNTS {
            counts.retain(|_, waiting| Arc::strong_count(waiting) > 1 || lock(&waiting.known).is_fresh());
        }
        counts.entry(app_id).or_default().clone()
    }
}

impl WaitingCount {
    /// The count; `ask` counts in the tables.
    async fn count(&self, ask: impl AsyncFnOnce() -> Result<i64, Refusal>) -> Result<i64, Refusal> {
        let known = self.known();
        if known.is_fresh() {
            return Ok(known.count);
        }
        let _counting = match (self.counting.try_lock(), known.counted_at) {
            (Ok(counting), _) => counting,
            (Err(_), Some(_)) => return Ok(known.count),
            // There is no old count to use.
            (Err(_), None) => self.counting.lock().await,
        };
        let before = self.known();
        if before.is_fresh() {
            return Ok(before.count);
        }
        let asked = Instant::now();
        let counted = ask().await?;
        let mut known = lock(&self.known);
        // Runs accepted meanwhile may or may not be among the counted.
        known.count = counted + (known.accepted - before.accepted);
        known.counted_at = Some(asked);
        Ok(known.count)
    }

    fn known(&self) -> CachedCount {
        *lock(&self.known)
    }
}

impl CachedCount {
    fn is_fresh(&self) -> bool {
        self.counted_at.is_some_and(|counted| counted.elapsed() < COUNT_INTERVAL)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// As if the second had passed.
    fn age(waiting: &WaitingCount) {
        lock(&waiting.known).counted_at = Instant::now().checked_sub(COUNT_INTERVAL);
    }

    #[tokio::test]
    async fn while_one_caller_counts_again_the_others_go_by_the_old_count() {
        let waiting = WaitingCount::default();
        assert_eq!(waiting.count(async || Ok(7)).await.unwrap(), 7);
        age(&waiting);
        let (answer, asked) = oneshot::channel();
        let counting = waiting.count(async || Ok(asked.await.unwrap()));
        let others = async {
            let never = async || panic!("two counted at the same time");
            assert_eq!(waiting.count(never).await.unwrap(), 7);
            answer.send(9).unwrap();
        };
        let (counted, ()) = tokio::join!(counting, others);
        assert_eq!(counted.unwrap(), 9);
    }

    #[tokio::test]
    async fn what_is_accepted_while_it_is_counted_is_not_forgotten() {
        let waiting = WaitingCount::default();
        let count = waiting.count(async || {
            lock(&waiting.known).accepted += 2;
            Ok(5)
        });
        assert_eq!(count.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_count_that_fails_is_asked_for_again() {
        let waiting = WaitingCount::default();
        assert!(waiting.count(async || Err(Refusal::StoreUnavailable)).await.is_err());
        assert_eq!(waiting.count(async || Ok(3)).await.unwrap(), 3);
    }
}
