//! The history of each caller: one line of JSON for each call, written while it happens.
//!
//! Times are microseconds since the pass began, by this program's one clock. Everything else in it comes from the
//! product's answers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A clock that counts from the start of the pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_at: SystemTime,
}

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), began_at: SystemTime::now() }
    }

    /// Microseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("a pass ends before that")
    }

    /// Converts a time of the computer's clock, in nanoseconds since 1970, to microseconds since the start; 0 if it was
    /// before.
    pub(crate) fn at(&self, unix_ns: u64) -> u64 {
        let began = self.began_at.duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from((u128::from(unix_ns) / 1000).saturating_sub(began)).expect("a pass ends before that")
    }
}

/// A line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum HistoryRecord {
    Call(Box<CallRecord>),
    Done(OperationRecord),
    Followed(FollowRecord),
    Decided(DecisionRecord),
    Probed(ProbeRecord),
    Stale(StaleFinishRecord),
    Revoked(RevocationRecord),
    Published(PublicationRecord),
    Budget(BudgetRecord),
    RefusedBody(RefusedBodyRecord),
    Given(GivenRecord),
    Made(MadeRecord),
    Fetched(FetchedRecord),
}

/// What a job is given, and what it is to hand out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenRecord {
    pub(crate) job: String,
    /// The files, in the order in which the run names them.
    pub(crate) files: Vec<String>,
    /// The paths in its service's folder that it is to hand out.
    pub(crate) paths: Vec<String>,
}

/// A file in a service's folder that a run made, as it was after the run's end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MadeRecord {
    pub(crate) run_id: String,
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// An artifact that was downloaded to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FetchedRecord {
    pub(crate) run_id: String,
    pub(crate) artifact_id: String,
    pub(crate) at: u64,
    /// In how many parts.
    pub(crate) parts: usize,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// A file or an artifact, as an answer lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedFile {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// Of an artifact: `stored` or `missing`, and what its run says of it.
    pub(crate) state: String,
    pub(crate) description: String,
}

impl ListedFile {
    /// Reads it from its JSON; `None` if that is about something else.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let id = value["file_id"].as_str().or_else(|| value["artifact_id"].as_str())?;
        Some(Self {
            id: id.to_owned(),
            name: text("name"),
            size: value["size"].as_u64()?,
            sha256: text("sha256"),
            state: text("state"),
            description: text("description"),
        })
    }

    /// Reads all of a list.
    pub(crate) fn read_all(list: &Value) -> Vec<Self> {
        list.as_array().into_iter().flatten().filter_map(Self::read).collect()
    }
}

/// A body that was refused before it was read, and the good request behind it on the same connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RefusedBodyRecord {
    pub(crate) caller: String,
    pub(crate) replica: usize,
    /// The length of the body.
    pub(crate) bytes: u64,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// The refusal's status; absent if no complete answer arrived.
    pub(crate) refused: Option<u16>,
    /// Whether the refusal left the connection open.
    pub(crate) is_kept: bool,
    /// The status of the request behind it; absent if no complete answer arrived, or the connection was not kept.
    pub(crate) behind: Option<u16>,
}

/// One request with its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallRecord {
    pub(crate) caller: String,
    /// The caller's operation that it is a try of.
    pub(crate) operation: u64,
    pub(crate) asked: CallAction,
    /// The desktop whose service it concerns.
    pub(crate) desktop: usize,
    pub(crate) replica: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// Absent if no complete answer arrived.
    pub(crate) status: Option<u16>,
    /// The code of a problem.
    pub(crate) code: String,
    /// Whether the answer has a retry time.
    pub(crate) retry_after: bool,
    /// The service version that a run shows; 0 if none.
    pub(crate) version: u64,
    /// Why a run is in its state, as it shows; empty if it does not say.
    pub(crate) reason: String,
    /// The code of the error that a run ended with.
    pub(crate) error: String,
    /// What that error says of effects.
    #[serde(default)]
    pub(crate) effects: String,
    /// The files that a run was given, and what it handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<ListedFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<ListedFile>,
    pub(crate) seen: AnswerContent,
}

/// The requested action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "asked", rename_all = "snake_case")]
pub(crate) enum CallAction {
    #[default]
    Nothing,
    /// A run. The job is the idempotency key; `changed` means that the body differs from the job's.
    Submit {
        job: String,
        changed: bool,
    },
    /// A message in a generation of a conversation.
    Say {
        job: String,
        conversation: String,
        generation: u64,
    },
    /// A signed event of another system; the job is its identifier. `forged` means that it must not count.
    Event {
        job: String,
        forged: bool,
    },
    Read {
        run_id: String,
    },
    Stop {
        run_id: String,
    },
    Open {
        conversation_key: String,
    },
    Look {
        conversation: String,
    },
    Reset {
        conversation: String,
        generation: u64,
    },
    Operation {
        operation_id: String,
    },
    /// A file with these bytes; `changed` means that they differ from those that the key was first used with.
    Upload {
        key: String,
        size: u64,
        sha256: String,
        changed: bool,
    },
    FindFile {
        file_id: String,
    },
    DeleteFile {
        file_id: String,
    },
    Download {
        run_id: String,
        artifact_id: String,
    },
    /// Any request with a key that is revoked at some time.
    Guest {
        name: String,
    },
}

impl CallAction {
    /// The job to accept, if there is one.
    pub(crate) fn job(&self) -> Option<&str> {
        match self {
            Self::Submit { job, changed: false } | Self::Say { job, .. } | Self::Event { job, forged: false } => {
                Some(job)
            }
            _ => None,
        }
    }
}

/// The content of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "seen", rename_all = "snake_case")]
pub(crate) enum AnswerContent {
    #[default]
    Nothing,
    Run {
        run_id: String,
        phase: String,
        state: String,
        attempt: u64,
        /// The digest of its outcome: state, result, error and end time.
        digest: u64,
    },
    /// The run that an event became.
    Became {
        run_id: String,
    },
    Conversation {
        conversation: String,
        generation: u64,
        state: String,
        active: Option<String>,
    },
    /// A refusal that names the generation.
    Generation {
        conversation: String,
        generation: u64,
    },
    Operation {
        operation_id: String,
        state: String,
        /// `stopped`, `reset` and so on; empty before it is completed.
        code: String,
        new_generation: Option<u64>,
    },
    File(ListedFile),
}

impl AnswerContent {
    /// The run that it shows.
    pub(crate) fn run_id(&self) -> Option<&str> {
        match self {
            Self::Run { run_id, .. } | Self::Became { run_id } => Some(run_id),
            _ => None,
        }
    }
}

/// One operation: a call with all its repetitions, or a run to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationRecord {
    pub(crate) caller: String,
    pub(crate) operation: u64,
    pub(crate) name: String,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) tries: u32,
    pub(crate) succeeded: bool,
    /// The run that it made or awaited.
    pub(crate) run_id: Option<String>,
}

/// A run followed by its stream, over all its connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FollowRecord {
    pub(crate) caller: String,
    pub(crate) run_id: String,
    /// The connections with their events, in order.
    pub(crate) connections: Vec<StreamConnection>,
    /// Whether a stream reported the run's end and was closed.
    pub(crate) is_whole: bool,
}

/// One connection of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamConnection {
    /// The event after which it began.
    pub(crate) after: u64,
    pub(crate) events: Vec<StoredEvent>,
    /// Whether the stream opened, whether the gateway announced that it closes it, and whether the caller left.
    pub(crate) was_open: bool,
    pub(crate) was_told: bool,
    pub(crate) was_left: bool,
    pub(crate) ended: u64,
}

/// A stored event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredEvent {
    pub(crate) sequence: u64,
    pub(crate) kind: String,
    /// The digest of its content.
    pub(crate) digest: u64,
    /// Whether the run's model is away, where the event says so.
    pub(crate) model_is_away: Option<bool>,
}

impl StoredEvent {
    /// Reads an event from its JSON.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let sequence = value["sequence"].as_u64()?;
        let kind = value["type"].as_str()?.to_owned();
        let model_is_away = (kind == "usage.updated").then(|| value["data"]["model_unavailable"] == true);
        Some(Self { sequence, kind, digest: digest(value), model_is_away })
    }

    /// Whether it ends its run.
    pub(crate) fn is_final(&self) -> bool {
        ["run.succeeded", "run.failed", "run.cancelled", "run.expired"].contains(&self.kind.as_str())
    }
}

/// A decision of a device's owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionRecord {
    pub(crate) run_id: String,
    pub(crate) at: u64,
    pub(crate) matter: DecisionTopic,
    pub(crate) is_yes: bool,
    /// Whether the device confirmed the decision.
    pub(crate) is_taken: bool,
}

/// A version of a desktop's service, and the release that its instructions name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PublicationRecord {
    pub(crate) desktop: usize,
    pub(crate) version: u64,
    pub(crate) release: u64,
}

/// A monthly budget that a desktop's owner set for a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BudgetRecord {
    pub(crate) desktop: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) tokens: u64,
    /// Whether the device confirmed it.
    pub(crate) is_taken: bool,
}

/// A revocation and its effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RevocationRecord {
    pub(crate) name: String,
    /// When the revocation was confirmed.
    pub(crate) acknowledged: u64,
    /// Whether a stream or session was open with it.
    pub(crate) has_open: bool,
    /// When that ended, if it did.
    pub(crate) ended: Option<u64>,
    /// The microseconds allowed until then.
    pub(crate) bound: u64,
}

/// The subject of an owner's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DecisionTopic {
    /// Whether a run with an unknown outcome runs again.
    RunAgain,
    /// Whether a tool call may run.
    Call,
}

/// A request for a resource of another owner, with its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeRecord {
    pub(crate) caller: String,
    pub(crate) at: u64,
    /// The identity of the request.
    pub(crate) by: String,
    /// Method and path.
    pub(crate) asked: String,
    /// Whether it requests a list, which must not contain another owner's resources.
    pub(crate) is_list: bool,
    pub(crate) status: u16,
    /// The code of a problem.
    pub(crate) code: String,
    /// The other owner's values that the answer shows.
    pub(crate) shows: Vec<String>,
    /// Status and code of the same request for an unused identifier.
    pub(crate) twin: Option<(u16, String)>,
}

/// A run whose device reported an end in an outdated scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StaleFinishRecord {
    pub(crate) run_id: String,
    pub(crate) at: u64,
    /// The outdated scope: the attempt or the session.
    pub(crate) over: String,
    /// The result that the present attempt and session reported.
    pub(crate) wanted: String,
    /// The run's result.
    pub(crate) ended: String,
}

/// A digest of a document; the same in every build.
pub(crate) fn digest(value: &Value) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    sorted(value).to_string().bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The same value with sorted object members.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            members.into_iter().collect()
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// The histories of all callers: one file each, and all together in memory.
#[derive(Clone, Debug)]
pub(crate) struct Histories {
    folder: PathBuf,
    written: Arc<Mutex<HistoryState>>,
}

#[derive(Debug, Default)]
struct HistoryState {
    records: Vec<HistoryRecord>,
    files: BTreeMap<String, File>,
}

impl Histories {
    /// Histories in an existing folder.
    pub(crate) fn within(folder: PathBuf) -> Self {
        Self { folder, written: Arc::default() }
    }

    /// Records one entry of a caller.
    pub(crate) fn note(&self, caller: &str, record: HistoryRecord) {
        let mut written = self.lock();
        let file = written.files.entry(caller.to_owned()).or_insert_with(|| {
            File::create(self.folder.join(format!("{caller}.jsonl"))).expect("the report's folder can be written")
        });
        let line = serde_json::to_string(&record).expect("a record is JSON") + "\n";
        file.write_all(line.as_bytes()).expect("the disk is not full");
        written.records.push(record);
    }

    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All records so far.
    pub(crate) fn all(&self) -> Vec<HistoryRecord> {
        self.lock().records.clone()
    }

    /// How many operations of a name succeeded so far.
    pub(crate) fn succeeded(&self, name: &str) -> usize {
        let is_one = |record: &&HistoryRecord| matches!(record, HistoryRecord::Done(done) if done.succeeded && done.name == name);
        self.lock().records.iter().filter(is_one).count()
    }
}
