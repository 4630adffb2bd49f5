//! How a stored run is shown to callers.

use std::time::Duration;

use deskgate_protocol::RunId;
use deskgate_protocol::run::{Run, RunState, StateReasonCode};

use super::access::Caller;
use super::refusal::Refusal;
use crate::notify::Topic;
use crate::store::Store;
use crate::store::devices::Presence;
use crate::store::runs::StoredRun;

/// Hints can be lost, so waiting reads poll this often.
const RUN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The run as a caller sees it at this moment: `queued` reads `waiting_for_device` while the device
/// is away, and a running one says that its model is.
pub fn visible_run(stored: StoredRun) -> Run {
    let StoredRun { mut run, presence, model_is_unavailable, awaits_turn } = stored;
    let (state, reason) = match visible_state(run.state, presence, awaits_turn) {
        (RunState::Running, None) if model_is_unavailable => {
            (RunState::Running, Some(StateReasonCode::ModelUnavailable))
        }
        seen => seen,
    };
    run.state = state;
    run.state_reason = reason.map(StateReasonCode::reason);
    run
}

/// The identifier of a run as a response of OpenAI's API.
pub fn response_id(run_id: RunId) -> String {
    format!("resp_{}", run_id.uuid().simple())
}

/// The run for a key that may submit and not read: how far it is, as the answer to its submission says, and not what came of it.
pub fn without_outcome(run: Run) -> Run {
    Run { result: None, error: None, stop: None, usage: None, receipt: None, ..run }
}

/// The state a caller sees, and why. `awaits_turn`: it waits for earlier messages of its conversation.
pub fn visible_state(stored: RunState, presence: Presence, awaits_turn: bool) -> (RunState, Option<StateReasonCode>) {
    use StateReasonCode::*;
    match (stored, presence) {
        (RunState::Queued, Presence::Connected) if awaits_turn => (RunState::Queued, Some(ConversationBusy)),
        (RunState::Queued, Presence::Connected) => (RunState::Queued, Some(DeviceBusy)),
        (RunState::Queued, Presence::Paused) => (RunState::WaitingForDevice, Some(DevicePaused)),
        (RunState::Queued, Presence::Asleep) => (RunState::WaitingForDevice, Some(DeviceAsleep)),
        (RunState::Queued, Presence::Incompatible) => (RunState::WaitingForDevice, Some(DeviceIncompatible)),
        (RunState::Queued, Presence::Offline) => (RunState::WaitingForDevice, Some(DeviceOffline)),
        (RunState::AwaitingApproval, _) => (stored, Some(ApprovalPending)),
        (RunState::AwaitingReconciliation, _) => (stored, Some(OutcomeUnknown)),
        (RunState::Cancelling, _) => (stored, Some(StopRequested)),
        _ => (stored, None),
    }
}

/// A run of this caller. Only its owner learns that it existed and was deleted.
///
/// # Errors
/// [`Refusal::NotFound`]: no such run, or another application's or subject's, or of a service that the key may not use.
/// [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the
/// database does not answer, or refuses the statement.
pub async fn find(store: &Store, caller: &Caller, run_id: RunId) -> Result<StoredRun, Refusal> {
    let (app_id, subject) = (caller.app_id(), caller.subject());
    let found = store.run(app_id, subject, run_id).await?;
    // A run of a service that the key may not use is treated as unknown.
    if let Some(stored) = found.filter(|stored| caller.may_use(stored.run.endpoint_id)) {
        return Ok(stored);
    }
    match store.purged_run(app_id, subject, run_id).await? {
        Some(endpoint_id) if caller.may_use(endpoint_id) => Err(Refusal::RunPurged),
        _ => Err(Refusal::NotFound),
    }
}

/// Reads a run of this caller. With `wait`, returns when its state or its newest event differs
/// from what it was first, or when the time is up.
///
/// # Errors
/// [`Refusal::NotFound`]: no such run, or another application's or subject's, or of a service that the key may not use.
/// [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the
/// database does not answer, or refuses the statement.
pub async fn read(store: &Store, caller: &Caller, run_id: RunId, wait: Duration) -> Result<Run, Refusal> {
    let mut watcher = store.notifier().watch(Topic::Run(run_id));
    let first = visible_run(find(store, caller, run_id).await?);
    if wait.is_zero() || first.state.successors().is_empty() {
        return Ok(first);
    }
    let shown_before = (first.state, first.last_sequence);
    let change = async {
        loop {
            let is_hinted = tokio::time::timeout(RUN_POLL_INTERVAL, watcher.changed()).await.is_ok();
            // Nearly every hint is of a change; a poll nearly never finds one, and has a mark of a few bytes read.
            if !is_hinted {
                let mark = store.run_mark(run_id).await?;
                let shown = mark.map(|(state, sequence, presence)| (visible_state(state, presence, false).0, sequence));
                if shown == Some(shown_before) {
                    continue;
                }
            }
            let run = visible_run(find(store, caller, run_id).await?);
            if (run.state, run.last_sequence) != shown_before {
                return Ok(run);
            }
        }
    };
    match tokio::time::timeout(wait, change).await {
        Ok(changed) => changed,
        Err(_) => find(store, caller, run_id).await.map(visible_run),
    }
}

/// Reads a run of this caller once it has ended, or as it is when the time is up.
///
/// # Errors
/// As of [`read`].
pub async fn read_end(store: &Store, caller: &Caller, run_id: RunId, wait: Duration) -> Result<Run, Refusal> {
    let mut watcher = store.notifier().watch(Topic::Run(run_id));
    let end = async {
        // A run that is not there any more has ended, too.
        while store.run_mark(run_id).await?.is_some_and(|(state, ..)| !state.successors().is_empty()) {
            let _ = tokio::time::timeout(RUN_POLL_INTERVAL, watcher.changed()).await;
        }
        Ok::<_, Refusal>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(wait, end).await {
        return Err(error);
    }
    find(store, caller, run_id).await.map(visible_run)
}
