//! What each caller did and saw, as one line of JSON for each call, written while it happens.
//!
//! Times are microseconds since the pass began, by the one clock of this program. Nothing here comes from the product
//! but what it answered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Since when times are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_at: SystemTime,
}

impl Clock {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), began_at: SystemTime::now() }
    }

    /// Microseconds since then.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("a pass ends before that")
    }

    /// A time of the computer's clock, in nanoseconds since 1970, as microseconds since then; 0 for what was before.
    pub(crate) fn at(&self, unix_ns: u64) -> u64 {
        let began = self.began_at.duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from((u128::from(unix_ns) / 1000).saturating_sub(began)).expect("a pass ends before that")
    }
}

/// A line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum HistoryRecord {
    Call(CallRecord),
    Done(OperationRecord),
    Followed(FollowRecord),
    Decided(DecisionRecord),
    Probed(ProbeRecord),
    Stale(StaleFinishRecord),
    Revoked(RevocationRecord),
    Published(PublicationRecord),
}

/// One request, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallRecord {
    pub(crate) caller: String,
    /// Which of the caller's operations it is a try of.
    pub(crate) operation: u64,
    pub(crate) asked: CallAction,
    /// The desk whose service it is about.
    pub(crate) desk: usize,
    pub(crate) replica: usize,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// None when no whole answer came.
    pub(crate) status: Option<u16>,
    /// The code of a problem.
    pub(crate) code: String,
    /// Whether the answer says when to come again.
    pub(crate) retry_after: bool,
    /// The version of the service that a run shows; 0 for none.
    pub(crate) version: u64,
    pub(crate) seen: AnswerContent,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "asked", rename_all = "snake_case")]
pub(crate) enum CallAction {
    #[default]
    Nothing,
    /// A run. The job is the idempotency key; `changed` says that the body is another one than the job's.
    Submit {
        job: String,
        changed: bool,
    },
    /// A message in a conversation, in a generation.
    Say {
        job: String,
        conversation: String,
        generation: u64,
    },
    /// An event of another system, signed; the job is its identifier. `forged` says that it must not count.
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
    /// Anything at all, with a key that is revoked at some time.
    Guest {
        name: String,
    },
}

impl CallAction {
    /// The job that is to be accepted, if one is.
    pub(crate) fn job(&self) -> Option<&str> {
        match self {
            Self::Submit { job, changed: false } | Self::Say { job, .. } | Self::Event { job, forged: false } => {
                Some(job)
            }
            _ => None,
        }
    }
}

/// What an answer said.
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
        /// Of what came of it: state, result, error and when it ended.
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
        /// `stopped`, `reset` …; empty before it is completed.
        code: String,
        new_generation: Option<u64>,
    },
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
    /// The run that it made or waited for.
    pub(crate) run_id: Option<String>,
}

/// A run followed by its stream, over all connections that it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FollowRecord {
    pub(crate) caller: String,
    pub(crate) run_id: String,
    /// Each with what it showed, in order.
    pub(crate) connections: Vec<StreamConnection>,
    /// Whether a stream said that the run has ended, and was closed.
    pub(crate) is_whole: bool,
}

/// One connection of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamConnection {
    /// The event behind which it began.
    pub(crate) after: u64,
    pub(crate) events: Vec<StoredEvent>,
    /// Whether it came to a stream at all, whether the gateway said that it closes it, and whether the caller left.
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
    /// Of everything it says.
    pub(crate) digest: u64,
}

impl StoredEvent {
    /// One as it came.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let sequence = value["sequence"].as_u64()?;
        Some(Self { sequence, kind: value["type"].as_str()?.to_owned(), digest: digest(value) })
    }

    /// Whether it ends its run.
    pub(crate) fn is_final(&self) -> bool {
        ["run.succeeded", "run.failed", "run.cancelled", "run.expired"].contains(&self.kind.as_str())
    }
}

/// What the owner of a device decided of what waited for that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionRecord {
    pub(crate) run_id: String,
    pub(crate) at: u64,
    pub(crate) matter: DecisionTopic,
    pub(crate) is_yes: bool,
    /// Whether the device said that it took the decision.
    pub(crate) is_taken: bool,
}

/// A version of a desk's service, and the release that its instructions name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PublicationRecord {
    pub(crate) desk: usize,
    pub(crate) version: u64,
    pub(crate) release: u64,
}

/// What was revoked, and what came of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RevocationRecord {
    pub(crate) name: String,
    /// When the revocation was confirmed.
    pub(crate) acknowledged: u64,
    /// Whether something was open with it: a stream, or a device's session.
    pub(crate) has_open: bool,
    /// When that ended, if it did.
    pub(crate) ended: Option<u64>,
    /// Microseconds that it may take to that.
    pub(crate) bound: u64,
}

/// What an owner is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DecisionTopic {
    /// Whether a run of which nobody knows how it ended runs again.
    RunAgain,
    /// Whether a call of a tool may run.
    Call,
}

/// What somebody was answered who asked for what is not theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProbeRecord {
    pub(crate) caller: String,
    pub(crate) at: u64,
    /// As whom it was asked.
    pub(crate) by: String,
    /// Method and path.
    pub(crate) asked: String,
    /// Whether it asks for a list, in which nothing of the other's may stand.
    pub(crate) is_list: bool,
    pub(crate) status: u16,
    /// The code of a problem.
    pub(crate) code: String,
    /// What of the other's the answer shows.
    pub(crate) shows: Vec<String>,
    /// Status and code of the same request for what does not exist.
    pub(crate) twin: Option<(u16, String)>,
}

/// A run of which a device said an end that it had no right to say any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StaleFinishRecord {
    pub(crate) run_id: String,
    pub(crate) at: u64,
    /// What was over: the attempt, or the session.
    pub(crate) over: String,
    /// The result of the attempt and session that are not over.
    pub(crate) wanted: String,
    /// The result that the run has.
    pub(crate) ended: String,
}

/// A number for what a document says; the same in every build.
pub(crate) fn digest(value: &Value) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    sorted(value).to_string().bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The same, with the members of objects in one order.
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

/// The histories of all callers: each in a file of its own, all together in memory.
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
    /// In a folder that is there.
    pub(crate) fn within(folder: PathBuf) -> Self {
        Self { folder, written: Arc::default() }
    }

    /// Writes down what a caller did.
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

    /// Everything so far.
    pub(crate) fn all(&self) -> Vec<HistoryRecord> {
        self.lock().records.clone()
    }

    /// How many operations of a name succeeded so far.
    pub(crate) fn succeeded(&self, name: &str) -> usize {
        let is_one = |record: &&HistoryRecord| matches!(record, HistoryRecord::Done(done) if done.succeeded && done.name == name);
        self.lock().records.iter().filter(is_one).count()
    }
}
