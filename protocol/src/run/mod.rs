//! Runs: their states, the one transition table, outcomes, and stored events.

mod event;
mod outcome;
mod reason;
mod state;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::file::{Artifact, InputFile};
use crate::ids::{ConversationId, EndpointId, RunId};
use crate::operation::Stop;
use crate::time::Timestamp;

pub use event::*;
pub use outcome::*;
pub use reason::*;
pub use state::*;

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

impl Input {
    /// The submitted data, which the service's `input_schema` is about.
    pub fn data(&self) -> Option<&Value> {
        self.more.get("data")
    }

    /// The files that the run is given.
    ///
    /// # Errors
    /// The member `files` is something else than a list of files, which an older gateway may have handed on.
    pub fn files(&self) -> Result<Vec<InputFile>, serde_json::Error> {
        self.more.get("files").map_or(Ok(Vec::new()), Vec::deserialize)
    }
}

/// The data that a run's result is to have beside its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Output {
    /// What the data is called, which the assistant reads: 1 to 64 of `a-z`, `A-Z`, `0-9`, `_` and `-`.
    pub name: String,
    /// The schema that it fits: JSON Schema, draft 2020-12, with the root `"type": "object"`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub schema: Value,
}

/// The longest name of an [`Output`], in characters.
pub const MAX_OUTPUT_NAME_CHARS: usize = 64;

/// Whether a text may be the name of an [`Output`].
pub fn is_output_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_OUTPUT_NAME_CHARS).contains(&name.len()) && name.bytes().all(fits)
}

// The record is defined in http-api, section "Records".
/// A run as its owner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    /// The identifier of the 202.
    pub run_id: RunId,
    /// The service it was submitted to.
    pub endpoint_id: EndpointId,
    /// The version of the service at acceptance, which is the one that executes; 0 for a draft that its owner tries.
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
    /// How often it began: 0 until its device starts it, and one more each time that it begins again. An offer that the
    /// device did not take does not count.
    pub attempt: u32,
    /// What was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    /// The data that its result has, by the run's own schema or the service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The answer, once it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
    /// The files that it handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The reason, once it failed, or was cancelled because its device was removed. A run that was stopped has none: the
    /// data of its event `run.cancelled` has the `effects`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The newest stop that was asked for while it was not final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What it used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the device signed about how it ended: a compact JWS, which its reader checks against the device's
    /// fingerprint. Absent while it is not final, if the gateway ended it alone, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 65536))]
    pub receipt: Option<String>,
    /// The caller's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Runs before it in the device's queue, while it is not started and waits for no other message; counted up to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// Messages of its conversation that go before it, while it waits for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_position: Option<u32>,
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
    /// When its caller deleted its content: since then it has neither `input` nor `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_deleted_at: Option<Timestamp>,
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
