//! The frames of the control channel: one closed enum for each direction.
//!
//! A session begins with `challenge`, `hello`, and then `welcome` or `refused`. After that the
//! device pulls: it says with `ready` how many runs it has room for, and is offered no more.
//!
//! ```text
//! gateway                                device
//!    │ ◄────────────────────────── ready   │  room for n more
//!    │ offer ────────────────────────────► │  journals that it took the run
//!    │ ◄────────────────────────── accept  │
//!    │ start ────────────────────────────► │  the start is durable: only now it executes
//!    │ ◄──────────────────── event event   │  numbered from 1 for each attempt
//!    │ ack ──────────────────────────────► │  durable through this number
//!    │ ◄──────────────────── delta delta   │  what the assistant writes, passed on and forgotten
//!    │ ◄────────────────────────── finish  │  takes the last number; resent until acknowledged
//!    │ ack ──────────────────────────────► │
//! ```
//!
//! Every frame that changes a run carries run and attempt. A frame of an attempt that is no longer
//! the run's changes nothing and is answered with `revoke`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Sha256Digest;
use crate::identity::PublicKey;
use crate::ids::{DeviceId, EndpointId, GatewayId, RunId};
use crate::management::{ManagementError, ManagementRequest};
use crate::run::{Input, Outcome, Usage};
use crate::{Half, ProtocolRange};

/// Management requests of one session that may be under way at once; a gateway refuses more.
pub const MAX_REQUESTS: usize = 32;

/// What a gateway sends to a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum GatewayFrame {
    /// The first frame of a session.
    Challenge(Challenge),
    /// The device is in.
    Welcome(Welcome),
    /// The device is not let in. The gateway closes the stream afterwards.
    Refused(Refused),
    /// A run to take, within the slots the device declared.
    Offer(Offer),
    /// The start is durable: execute.
    Start {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
    },
    /// This attempt is not the device's any more: stop it and forget it.
    Revoke {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// Why.
        code: RevokeCode,
    },
    /// Events of this attempt are durable through this number.
    Ack {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// The highest durable number.
        through: u64,
    },
    /// The answer to a management request.
    Reply {
        /// The number of the request.
        request_id: u64,
        /// What came of it; the value has the shape that belongs to the request.
        #[serde(flatten)]
        result: ManagementResult,
    },
    /// Are you there? Answered by `pong`, from the loop that also takes offers.
    Ping,
    /// This gateway stops: take nothing more, dial again soon.
    Drain,
    /// The gateway ends the session.
    Bye {
        /// Why.
        code: ByeCode,
        /// For the log of the other side.
        message: String,
    },
}

/// What a device sends to a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum DeviceFrame {
    /// The answer to the challenge.
    Hello(Hello),
    /// Room for this many runs more than was declared before.
    Ready {
        /// How many more.
        slots: u32,
    },
    /// The offer is journalled.
    Accept {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
    },
    /// The offer is not taken.
    Refuse {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// Why.
        code: RefuseCode,
    },
    /// Something happened in a run.
    Event {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// Dense from 1 in each attempt.
        seq: u64,
        /// What happened.
        event: DeviceEvent,
    },
    /// More of the message that the assistant is writing: neither numbered nor stored nor
    /// acknowledged, and left out when the line is busy. The `message_completed` counts.
    Delta {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// What was written.
        #[serde(flatten)]
        delta: MessageDelta,
    },
    /// The run ended, with exactly this outcome.
    Finish {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// The number after its last event.
        seq: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A management request of the desktop.
    Request {
        /// Chosen by the device; repeated in the reply.
        request_id: u64,
        /// What is asked.
        request: ManagementRequest,
    },
    /// Here.
    Pong,
}

/// Asks a device to prove who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Random, for this session only.
    pub nonce: String,
    /// Which gateway asks.
    pub gateway_id: GatewayId,
    /// Its product version.
    pub gateway_version: String,
    /// The protocols it speaks.
    pub protocol: ProtocolRange,
}

/// Who the device is and what it still works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The paired key.
    pub public_key: PublicKey,
    /// Its product version.
    pub device_version: String,
    /// The protocols it speaks.
    pub protocol: ProtocolRange,
    /// [`crate::identity::HelloProof`], base64.
    pub signature: String,
    /// Every run in its journal that the gateway has not acknowledged as finished.
    pub in_flight: Vec<InFlight>,
}

/// One unfinished entry of the device's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Which run.
    pub run_id: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// Where it stands.
    pub status: InFlightStatus,
}

/// Where an unfinished run stands on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InFlightStatus {
    /// Taken; the start was never confirmed, so nothing was executed.
    Taken,
    /// Being executed.
    Running,
    /// Its execution was cut off by a restart of the device before anything was written.
    Interrupted,
    /// Ended; the `finish` follows.
    Finished,
}

/// The device is let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its identifier on this gateway.
    pub device_id: DeviceId,
    /// The number of this session; a newer session of the same key has a higher one.
    pub epoch: u64,
    /// The protocol both speak from here on.
    pub protocol: u32,
    /// The times and limits of this session.
    pub policy: Policy,
}

/// The times and limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Milliseconds between two pings.
    pub heartbeat_ms: u64,
    /// Milliseconds of silence after which started runs await reconciliation.
    pub lease_ms: u64,
    /// Milliseconds within which an offer must be accepted.
    pub offer_ms: u64,
    /// Events of one run that may be under way unacknowledged.
    pub unacknowledged_events: u32,
}

/// Why a device is not let in: data, not a closed socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// For programs.
    pub code: RefusedCode,
    /// For people: what is wrong and what to do next.
    pub message: String,
    /// Whether dialling again by itself can help.
    pub should_retry: bool,
    /// How long to wait before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// The gateway's product version.
    pub gateway_version: String,
    /// The device's product version, if it got as far as saying it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_version: Option<String>,
    /// Which half to upgrade, when versions do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Half>,
}

/// The codes of [`Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// Major or minor version differ, or no protocol is common.
    VersionMismatch,
    /// The key is not paired with this gateway.
    UnknownDevice,
    /// The key was paired and has been revoked.
    RevokedDevice,
    /// The signature does not hold, or the SSH key is another one.
    BadProof,
    /// The first frame was no `hello`, or came too late.
    BadHello,
    /// The gateway is stopping or has no database at the moment.
    Unavailable,
}

/// One run, offered to the one device that may execute it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Which run.
    pub run_id: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// The service.
    pub endpoint_id: EndpointId,
    /// Its version at acceptance.
    pub endpoint_version: u32,
    /// The digest of the definition the run was accepted for; the device compares it with its own.
    pub definition_sha256: Sha256Digest,
    /// What was submitted.
    pub input: Input,
    /// How long it may execute, in awake seconds.
    pub max_duration_s: u32,
    /// The caller's trace (W3C Trace Context), to be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Why an offer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefuseCode {
    /// The device does not hold this definition: the run fails.
    DefinitionMismatch,
    /// The service's own concurrency is used up, or the device stops: the run stays queued.
    Busy,
}

/// Why an attempt is taken from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevokeCode {
    /// The run has another attempt, or belongs to a newer session.
    StaleAttempt,
    /// The run is final.
    AlreadyFinal,
    /// This gateway does not know the run, or it is another device's.
    UnknownRun,
}

/// What a device reports of a run while it executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeviceEvent {
    /// A tool began. No arguments: they stay on the device.
    ToolStarted {
        /// Unique within the run.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
    },
    /// A tool ended.
    ToolCompleted {
        /// As in `tool_started`.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
        /// How it ended.
        status: ToolStatus,
    },
    /// The assistant finished a message. Text beyond 60,000 bytes is cut.
    MessageCompleted {
        /// Unique within the run.
        message_id: String,
        /// What it said.
        text: String,
    },
    /// The usage so far.
    UsageUpdated {
        /// Totals, not differences.
        usage: Usage,
    },
}

/// Bytes of text in one [`MessageDelta`] at most: even when each of them is escaped, it fits into a
/// notification of PostgreSQL.
pub const DELTA_LIMIT: usize = 1024;

/// A piece of a message that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDelta {
    /// As in the `message_completed` that follows.
    pub message_id: String,
    /// Characters (Unicode scalar values) of the message before it. Text from an offset on replaces
    /// what was there: a model that is asked again begins anew.
    pub offset: u64,
    /// The next characters; at most [`DELTA_LIMIT`] bytes.
    pub text: String,
}

/// What kind of effect a tool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// It only looks.
    Read,
    /// It changes something.
    Write,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It did what was asked.
    Ok,
    /// It could not, and the assistant was told why.
    Error,
}

/// What came of a management request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagementResult {
    /// The reply that belongs to the request.
    Ok(Value),
    /// Why not.
    Error(ManagementError),
}

/// Why a gateway ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByeCode {
    /// A newer session of the same key took over.
    Replaced,
    /// The device was revoked.
    Revoked,
    /// The device sends but does not read, or did not answer two pings.
    Unresponsive,
    /// A frame that no device of this version sends.
    ProtocolViolation,
    /// The gateway stops or lost its database.
    Unavailable,
}
