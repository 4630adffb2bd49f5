//! Runs: their states, the one transition table, outcomes, and the events that are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{ConversationId, EndpointId, EventId, RunId};
use crate::time::Timestamp;

/// What callers branch on. A run's phase never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Durable, and no device has started it.
    Accepted,
    /// The device acknowledged the start.
    Started,
    /// Ended. Nothing changes any more.
    Final,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Started, Self::Final];

    /// The word for it in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Started => "started",
            Self::Final => "final",
        }
    }
}

impl FromStr for Phase {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or(UnknownWord)
    }
}

/// Where a run stands. New states may appear inside a phase; phases are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Stored; the device is connected but busy.
    Queued,
    /// `queued`, seen while the device is away. Computed when read, never stored.
    WaitingForDevice,
    /// Taken and acknowledged by the device.
    Running,
    /// A tool call is held for the desktop user.
    AwaitingApproval,
    /// The device was lost after an effect may have begun; the outcome is unknown.
    AwaitingReconciliation,
    /// A stop was accepted and is not yet confirmed by the executor.
    Cancelling,
    /// The assistant answered.
    Succeeded,
    /// It ended without an answer; the error says why.
    Failed,
    /// It was stopped, or its device removed before it started.
    Cancelled,
    /// It never started within its queue time.
    Expired,
}

use RunState::*;

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [Self; 10] = [
        Queued,
        WaitingForDevice,
        Running,
        AwaitingApproval,
        AwaitingReconciliation,
        Cancelling,
        Succeeded,
        Failed,
        Cancelled,
        Expired,
    ];

    /// The states a run may move to from here: the one transition table of both halves.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Queued => &[WaitingForDevice, Running, Cancelled, Expired, Failed],
            WaitingForDevice => &[Queued, Running, Cancelled, Expired, Failed],
            Running => &[AwaitingApproval, AwaitingReconciliation, Cancelling, Succeeded, Failed],
            AwaitingApproval => &[Running, AwaitingReconciliation, Cancelling, Failed],
            AwaitingReconciliation => &[Running, AwaitingApproval, Cancelling, Succeeded, Failed, Cancelled],
            Cancelling => &[Cancelled, Succeeded, Failed, AwaitingReconciliation],
            Succeeded | Failed | Cancelled | Expired => &[],
        }
    }

    /// Whether a run may move from here to `next`.
    pub fn may_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }

    /// The states from which a run may move to this one.
    pub fn predecessors(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |state| state.may_become(self))
    }

    /// The phase this state belongs to.
    pub const fn phase(self) -> Phase {
        match self {
            Queued | WaitingForDevice => Phase::Accepted,
            Running | AwaitingApproval | AwaitingReconciliation | Cancelling => Phase::Started,
            Succeeded | Failed | Cancelled | Expired => Phase::Final,
        }
    }

    /// The word for it in the API, the tables and on every page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Queued => "queued",
            WaitingForDevice => "waiting_for_device",
            Running => "running",
            AwaitingApproval => "awaiting_approval",
            AwaitingReconciliation => "awaiting_reconciliation",
            Cancelling => "cancelling",
            Succeeded => "succeeded",
            Failed => "failed",
            Cancelled => "cancelled",
            Expired => "expired",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownWord)
    }
}

/// A text is none of the words that were possible there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of the possible words")]
pub struct UnknownWord;

/// Why a run is where it is, when that is not obvious from its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateReason {
    /// For programs.
    pub code: StateReasonCode,
    /// For people.
    pub message: String,
}

/// The codes of [`StateReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateReasonCode {
    /// The device is not connected.
    DeviceOffline,
    /// The device announced that it sleeps.
    DeviceAsleep,
    /// The desktop user paused external access.
    DevicePaused,
    /// The device was refused because of its version.
    DeviceIncompatible,
    /// The device works on other runs.
    DeviceBusy,
    /// A tool call waits for the desktop user.
    ApprovalPending,
    /// Nobody knows yet how the run ended.
    OutcomeUnknown,
    /// A stop was asked for.
    StopRequested,
}

impl StateReasonCode {
    /// The reason in words.
    pub fn reason(self) -> StateReason {
        let message = match self {
            Self::DeviceOffline => {
                "The device that executes this service is not connected. The run starts when it is back."
            }
            Self::DeviceAsleep => "The device is asleep. The run starts after it wakes.",
            Self::DevicePaused => {
                "The desktop user has paused external access. The run starts after it is enabled again."
            }
            Self::DeviceIncompatible => {
                "The device's version does not match the gateway's. One of them has to be upgraded first."
            }
            Self::DeviceBusy => "The device is connected and starts this run as soon as it has room.",
            Self::ApprovalPending => "A tool call waits for the desktop user's decision.",
            Self::OutcomeUnknown => {
                "The device was lost after this run may have had an effect. Its journal or its user settles the outcome."
            }
            Self::StopRequested => "A stop was accepted and waits for the device to confirm it.",
        };
        StateReason { code: self, message: message.to_owned() }
    }
}

/// What a caller submits: `text`, and members of its own that are kept and handed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Input {
    /// The business content, 1 byte to 256 KiB.
    pub text: String,
    /// Further members, untouched.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The public result of a run that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunResult {
    /// What the assistant answered.
    pub text: String,
    /// Why it stopped there.
    pub finish_reason: FinishReason,
}

/// Why an answer ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The assistant was done.
    Completed,
    /// The answer reached a size limit and was cut.
    Length,
}

/// Why a run did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunError {
    /// For programs.
    pub code: RunErrorCode,
    /// For people. Never an internal message, a path or file contents.
    pub message: String,
    /// Whether the same work may succeed when it is submitted again under a new key.
    pub retryable: bool,
    /// Whether anything outside the run may have changed.
    pub effects: Effects,
}

/// The codes of [`RunError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunErrorCode {
    /// The model failed or answered nonsense.
    ModelError,
    /// The provider refused the credential.
    ModelAuth,
    /// A tool that the run depends on could not work at all.
    ToolError,
    /// It ran longer than `max_duration_s` of awake time.
    MaxDurationExceeded,
    /// The assistant took more turns than the service allows.
    MaxTurnsExceeded,
    /// The device was removed from the gateway.
    DeviceRemoved,
    /// The device does not hold the definition this run was accepted for.
    DefinitionMismatch,
    /// A fault of ours.
    Internal,
}

/// Whether new work under a new key is safe after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing outside the run changed.
    None,
    /// Something may have changed.
    Possible,
    /// Something changed.
    Known,
}

/// What a run has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Tokens the model read.
    pub input_tokens: u64,
    /// Tokens the model wrote.
    pub output_tokens: u64,
    /// Times the model was called.
    pub model_calls: u64,
    /// Tools that were executed.
    pub tool_calls: u64,
    /// Awake seconds between start and end.
    pub active_seconds: f64,
}

/// How a run ended. The executor makes exactly one for each run it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The assistant answered.
    Succeeded {
        /// The answer.
        result: RunResult,
        /// What it took.
        usage: Usage,
    },
    /// It ended without an answer.
    Failed {
        /// Why.
        error: RunError,
        /// What it took.
        usage: Usage,
    },
    /// It was stopped.
    Cancelled {
        /// Whether it may have changed anything before.
        effects: Effects,
        /// What it took.
        usage: Usage,
    },
}

impl Outcome {
    /// The final state this outcome leads to.
    pub fn state(&self) -> RunState {
        match self {
            Self::Succeeded { .. } => Succeeded,
            Self::Failed { .. } => Failed,
            Self::Cancelled { .. } => Cancelled,
        }
    }
}

/// The names of stored events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EventType {
    /// The run is durable.
    #[serde(rename = "run.accepted")]
    RunAccepted,
    /// The device acknowledged the start.
    #[serde(rename = "run.started")]
    RunStarted,
    /// The outcome became unknown.
    #[serde(rename = "run.awaiting_reconciliation")]
    RunAwaitingReconciliation,
    /// The outcome is known again.
    #[serde(rename = "run.reconciled")]
    RunReconciled,
    /// The same device started it again; nothing had been written.
    #[serde(rename = "run.restarted")]
    RunRestarted,
    /// A tool began.
    #[serde(rename = "tool.started")]
    ToolStarted,
    /// A tool ended.
    #[serde(rename = "tool.completed")]
    ToolCompleted,
    /// The assistant finished a message.
    #[serde(rename = "message.completed")]
    MessageCompleted,
    /// The usage so far.
    #[serde(rename = "usage.updated")]
    UsageUpdated,
    /// Final: it succeeded.
    #[serde(rename = "run.succeeded")]
    RunSucceeded,
    /// Final: it failed.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// Final: it was cancelled.
    #[serde(rename = "run.cancelled")]
    RunCancelled,
    /// Final: it never started in time.
    #[serde(rename = "run.expired")]
    RunExpired,
}

impl EventType {
    /// Every event that is stored.
    pub const ALL: [Self; 13] = [
        Self::RunAccepted,
        Self::RunStarted,
        Self::RunAwaitingReconciliation,
        Self::RunReconciled,
        Self::RunRestarted,
        Self::ToolStarted,
        Self::ToolCompleted,
        Self::MessageCompleted,
        Self::UsageUpdated,
        Self::RunSucceeded,
        Self::RunFailed,
        Self::RunCancelled,
        Self::RunExpired,
    ];

    /// The name callers see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunAccepted => "run.accepted",
            Self::RunStarted => "run.started",
            Self::RunAwaitingReconciliation => "run.awaiting_reconciliation",
            Self::RunReconciled => "run.reconciled",
            Self::RunRestarted => "run.restarted",
            Self::ToolStarted => "tool.started",
            Self::ToolCompleted => "tool.completed",
            Self::MessageCompleted => "message.completed",
            Self::UsageUpdated => "usage.updated",
            Self::RunSucceeded => "run.succeeded",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
            Self::RunExpired => "run.expired",
        }
    }

    /// Whether nothing happens in a run after it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::RunSucceeded | Self::RunFailed | Self::RunCancelled | Self::RunExpired)
    }

    /// The event that ends a run in `state`; `None` while it is not final.
    pub const fn ending(state: RunState) -> Option<Self> {
        match state {
            Succeeded => Some(Self::RunSucceeded),
            Failed => Some(Self::RunFailed),
            Cancelled => Some(Self::RunCancelled),
            Expired => Some(Self::RunExpired),
            _ => None,
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownWord)
    }
}

/// One stored event of a run. `sequence` is dense from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunEvent {
    /// Unique among all events.
    pub event_id: EventId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// Its place in the run, assigned when it was committed.
    pub sequence: u64,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When it was committed.
    pub created_at: Timestamp,
    /// Members that depend on the type.
    pub data: Value,
}

// The record is http-api's, section "Records".
/// A run as its owner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    /// The identifier of the 202.
    pub run_id: RunId,
    /// The service it was submitted to.
    pub endpoint_id: EndpointId,
    /// The version of the service at acceptance, which is the one that executes.
    pub endpoint_version: u32,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The conversation's generation it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// What to branch on.
    pub phase: Phase,
    /// Where it stands.
    pub state: RunState,
    /// Why it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<StateReason>,
    /// How often it was handed to a device.
    pub attempt: u32,
    /// What was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    /// The answer, once it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
    /// The reason, once it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// What it used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The caller's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Runs before it in the device's queue, while it is not started; counted up to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// The number of its newest event.
    pub last_sequence: u64,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it expires unless it has started.
    pub queue_expires_at: Timestamp,
    /// When the device acknowledged the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When it will be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_at: Option<Timestamp>,
    /// Where to look further.
    pub links: RunLinks,
}

/// Paths that belong to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunLinks {
    /// The run itself.
    #[serde(rename = "self")]
    pub this: String,
    /// What happens in it, as a stream or page by page.
    pub events: String,
}

impl RunLinks {
    /// The paths of one run.
    pub fn of(run_id: RunId) -> Self {
        Self { this: format!("/api/v1/runs/{run_id}"), events: format!("/api/v1/runs/{run_id}/events") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_path_leaves_a_final_state_and_phase_never_goes_back(choices in prop::collection::vec(0usize..10, 1..40)) {
            let mut state = Queued;
            for choice in choices {
                let Some(&next) = state.successors().get(choice % state.successors().len().max(1)) else {
                    prop_assert_eq!(state.phase(), Phase::Final);
                    break;
                };
                prop_assert!(next.phase() >= state.phase(), "{} to {}", state, next);
                state = next;
            }
        }
    }

    #[test]
    fn every_state_is_reachable_from_queued() {
        let mut reached = vec![Queued];
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            next += 1;
            reached.extend(state.successors().iter().filter(|s| !reached.contains(s)).copied().collect::<Vec<_>>());
        }
        assert!(RunState::ALL.iter().all(|state| reached.contains(state)));
    }

    #[test]
    fn exactly_the_states_without_successors_are_final() {
        for state in RunState::ALL {
            assert_eq!(state.successors().is_empty(), state.phase() == Phase::Final, "{state}");
            assert_eq!(EventType::ending(state).is_some(), state.phase() == Phase::Final, "{state}");
        }
        let ending: Vec<_> = RunState::ALL.into_iter().filter_map(EventType::ending).collect();
        assert!(EventType::ALL.iter().all(|kind| kind.is_final() == ending.contains(kind)));
    }

    #[test]
    fn every_word_reads_back_and_is_the_word_of_the_json() {
        for state in RunState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).expect("serialises"), state.as_str());
        }
        for kind in EventType::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("serialises"), kind.as_str());
        }
    }
}
