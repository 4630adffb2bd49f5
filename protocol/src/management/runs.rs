//! The runs of the device's applications, as their owner sees them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Sha256Digest;
use crate::ids::{ApplicationId, EndpointId, FileId, RunId};
use crate::run::{Output, Run, RunEvent, RunState};
use crate::transfer::TransferTicket;

/// Lists runs of the device's applications, removed ones included. All filters must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRuns {
    /// The size of the page, 1 to 100.
    pub limit: u32,
    /// Only runs older than this one: the `next` of the page before.
    #[serde(default)]
    pub before: Option<RunId>,
    /// Only runs in one of these states; empty: in any.
    #[serde(default)]
    pub states: Vec<RunState>,
    /// Only runs of this application.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
    /// Only runs of this service.
    #[serde(default)]
    pub endpoint_id: Option<EndpointId>,
    /// Only what this identifier names: a run (`run_…`), the messages of a conversation (`conv_…`), or the run of a
    /// stop (`op_…`).
    #[serde(default)]
    pub find: Option<String>,
}

/// Starts a run of one of the device's published services, as a caller would. The reply is the run, without its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TryEndpoint {
    /// The service's identifier.
    pub endpoint_id: EndpointId,
    /// The input's text for the assistant: 1 byte to 256 KiB.
    pub input: String,
    /// The input's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The input's files, which the owner uploaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileId>,
}

/// Asks for a ticket for the owner's own transfers: files for runs that the owner requests, and artifacts of the device's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTransfer {}

/// A ticket for the owner's own transfers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferGrant {
    /// The ticket.
    pub ticket: TransferTicket,
}

/// Starts a run of a draft that its owner tries. The gateway offers it under [`DRAFT_VERSION`](crate::service::DRAFT_VERSION), and accepts nothing else for that
/// draft. The reply is the run, without its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TryDraft {
    /// The application that the service belongs to.
    pub app_id: ApplicationId,
    /// The service's identifier, which the device chose, published or not.
    pub endpoint_id: EndpointId,
    /// The draft's name.
    pub name: String,
    /// The digest of the draft, which stays on the device.
    pub definition_sha256: Sha256Digest,
    /// The input's text for the assistant: 1 byte to 256 KiB.
    pub input: String,
    /// The input's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The input's files, which the owner uploaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileId>,
    /// The data that the draft gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<Output>>,
}

/// Characters of a run's input that a list shows.
pub const LISTED_TEXT_CHARS: usize = 200;

/// A run in a list of its device's owner, without input, result and receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedRun {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// How its input begins. Absent once the input was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// How its result begins: only as a message of a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
}

impl std::ops::Deref for ListedRun {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

/// A page of runs, newest first, each with the first [`LISTED_TEXT_CHARS`] of its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPage {
    /// The runs. With narrow filters a page may be short, or empty, although there are more.
    pub runs: Vec<ListedRun>,
    /// Whether there may be older ones.
    pub has_more: bool,
    /// Where the page after this one begins: its `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// Reads an application's full runs for an export, newest first, as many as fit one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportRuns {
    /// The application, which may be removed.
    pub app_id: ApplicationId,
    /// Only runs older than this one: the `next` of the reply before.
    #[serde(default)]
    pub before: Option<RunId>,
}

/// The reply to [`ExportRuns`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunExport {
    /// The runs, each with its first events; [`ShowRun`] has the others, if there are more.
    pub runs: Vec<RunDetail>,
    /// Where the next reply begins: its `before`. Absent in the last reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// Shows one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowRun {
    /// The run's identifier.
    pub run_id: RunId,
    /// Events after this sequence only.
    #[serde(default)]
    pub after: u64,
    /// Seconds to wait until there is an event after `after`, at most 60.
    #[serde(default)]
    pub wait_s: u32,
}

impl ShowRun {
    /// Shows a run as it is now, without any of its events.
    pub fn without_events(run_id: RunId) -> Self {
        Self { run_id, after: i64::MAX.unsigned_abs(), wait_s: 0 }
    }
}

/// The reply to [`ShowRun`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Its stored events after `after`, oldest first; at most 1,000, and about 1 MiB. There are more while the last
    /// one's sequence is below the run's.
    pub events: Vec<RunEvent>,
    /// The subject that it was submitted for. Absent if an older gateway does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl RunDetail {
    /// Whether `events` reaches the run's newest event; `after` is the sequence of the last one seen before.
    pub fn is_complete(&self, after: u64) -> bool {
        self.events.last().is_none_or(|last| last.sequence.max(after) >= self.run.last_sequence)
    }
}
