//! The frames of the control channel: one closed enum for each direction.
//!
//! A session begins with `challenge`, `hello`, and then `welcome` or `refused`. After that the
//! device pulls: it says with `ready` how many runs it has room for, and is offered no more. A service may have room
//! for fewer: once it is full, `ready` names it, and its runs stay queued while those of others pass them.
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
//! A `control` frame (stop a run, reset a conversation) may come at any time, and is answered by
//! `control_done` when it is carried out; a stop's answer follows the run's `finish`.
//!
//! A run of which a restarted device cannot say what it changed is `unknown` in the hello, until the desktop user settles
//! it: `finish` says that it ended, `reconciled` that it is to run again. The gateway decides nothing about it.
//!
//! A device that is about to sleep says `suspend`, and `resume` when it is awake again and the session still
//! stands; a new session says the same. In between it is offered nothing, and what it executes is not given up.
//!
//! Every other frame that changes a run carries run and attempt. A frame of an attempt that is no longer
//! the run's changes nothing and is answered with `revoke`.

mod event;
mod session;
mod work;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{EndpointId, OperationId, RunId};
use crate::management::{AskedBy, ManagementError, ManagementRequest};
use crate::operation::OutcomeCode;
use crate::run::Outcome;
use crate::secret::AccessToken;

pub use event::*;
pub use session::*;
pub use work::*;

/// Management requests of one session that may be under way at once; a gateway refuses more.
pub const MAX_CONCURRENT_REQUESTS: usize = 32;

/// Services that one `ready` may name as full; a gateway ends the session of a device that names more.
pub const MAX_FULL_SERVICES: usize = 1024;

/// What a gateway sends to a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum GatewayFrame {
    /// The first frame of a session.
    Challenge(Challenge),
    /// The device is in.
    Welcome(Welcome),
    /// The device is not let in. The gateway closes the stream afterwards.
    Refused(SessionRefusal),
    /// A run to take, within the slots the device declared.
    Offer(Offer),
    /// The start is durable: execute.
    Start {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
    },
    /// A control operation to carry out, answered by `control_done`. Comes again in every session until it is
    /// completed, and changes nothing the second time.
    Control {
        /// Which operation.
        operation_id: OperationId,
        /// What to do.
        #[serde(flatten)]
        order: Order,
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
    /// Room for this many runs more than was declared before, though not of every service.
    Ready {
        /// How many more; none when only the services change.
        slots: u32,
        /// The services none of whose runs fits, at most [`MAX_FULL_SERVICES`]: their runs stay queued until a later `ready` does
        /// not name them. An offer that was under way is refused as `busy`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        full: Vec<EndpointId>,
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
    /// The desktop user settled a run that was `unknown`: it runs again. The gateway raises the attempt and offers it to
    /// this device; a run that was to be stopped is cancelled instead, and the attempt revoked. May be repeated.
    Reconciled {
        /// Which run.
        run_id: RunId,
        /// The attempt that was unknown.
        attempt: u32,
    },
    /// A control operation was carried out. For a stop it follows the `finish`.
    ControlDone {
        /// Which operation.
        operation_id: OperationId,
        /// What came of it.
        outcome: OutcomeCode,
    },
    /// The computer is about to sleep: offer nothing, and give up nothing that was started. Ends with `resume`
    /// or with the next session; nothing answers it.
    Suspend,
    /// The computer is awake again, and the session still stands.
    Resume,
    /// A management request of the desktop.
    Request {
        /// Chosen by the device; repeated in the reply.
        request_id: u64,
        /// Where in the desktop it comes from.
        by: AskedBy,
        /// What is asked.
        request: ManagementRequest,
    },
    /// A newer access token of the account whose line this is, so that the line outlasts the one it came in with. Only on a
    /// line of a hosted gateway. Nothing answers it; one that is not good ends the session.
    Token {
        /// The token.
        access_token: AccessToken,
    },
    /// Here.
    Pong,
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
    /// The account's access token is over, and no newer one came that is good.
    SignInExpired,
}
