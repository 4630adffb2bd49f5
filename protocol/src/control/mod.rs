//! The frames of the control channel: one closed enum for each direction.
//!
//! A session begins with `challenge`, `hello`, and then `welcome` or `refused`. After that the device pulls: `ready`
//! declares how many more runs it can take, and how many of them each service has places for. The gateway offers at most
//! that many: runs of a service without a place stay queued while runs of other services pass them.
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
//! A device that comes with an invitation sends its `hello` too, and is answered with `invited`, and then with `paired` or
//! `refused`: no session begins.
//!
//! A `control` frame (stop a run, reset a conversation) may come at any time. `control_done` answers it when it is
//! carried out; for a stop it follows the run's `finish`.
//!
//! After a restart, a device may not know what a run changed. The hello then lists the run as `unknown` until the
//! desktop user settles it: `finish` reports that it ended, `reconciled` that it runs again. The gateway decides
//! nothing about it.
//!
//! A gateway that was restored from a backup does not know which of the runs in it began since. It asks with `recall`
//! about those that had not begun, if the device has the very journal that it had at the time of the backup: what that
//! never had is queued again. About all others their owner decides.
//!
//! The bytes of files that a run is given, and of artifacts that it hands out, go over streams of their own
//! ([`crate::transfer`]); a device asks here for the ticket that opens them.
//!
//! A device that is about to sleep sends `suspend`, and `resume` when it is awake again and the session is still open;
//! a new session has the same effect. In between the gateway offers it nothing, and keeps the runs that it executes.
//!
//! Every other frame that changes a run carries run and attempt. A frame of an outdated attempt changes nothing and is
//! answered with `revoke`. On this channel an attempt is numbered when it is offered, so that nothing that is said of one
//! offer can be taken for another. Callers see another number ([`crate::run::Run::attempt`]): how often the run began.

mod event;
mod session;
mod work;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{DeviceId, EndpointId, OperationId, RunId};
use crate::management::{AskedBy, ManagementError, ManagementRequest};
use crate::operation::OutcomeCode;
use crate::run::Outcome;
use crate::secret::{AccessToken, ControlToken};
use crate::time::Timestamp;
use crate::transfer::TransferTicket;

pub use event::*;
pub use session::*;
pub use work::*;

/// The most management requests that may be in progress in one session; a gateway refuses more.
pub const MAX_CONCURRENT_REQUESTS: usize = 32;

/// The most services that one `ready` may name as full, and that may be given places in one session; a gateway ends the
/// session of a device that names more.
pub const MAX_NAMED_SERVICES: usize = 1024;

/// The most runs in one `recall`, and in its answer.
pub const MAX_RECALLED_RUNS: usize = 500;

/// What a gateway sends to a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum GatewayFrame {
    /// The first frame of a session.
    Challenge(Challenge),
    /// The device is admitted.
    Welcome(Welcome),
    /// The device came with an invitation, and waits for the administrator's confirmation. Sent once; `paired` or `refused`
    /// follows.
    Invited {
        /// Until when it waits.
        expires_at: Timestamp,
    },
    /// The administrator confirmed the device: it is paired, and has this control token. The gateway closes the stream
    /// afterwards. Until the invitation ends, the same device may come again and is told once more, with another token.
    Paired {
        /// Its identifier on this gateway.
        device_id: DeviceId,
        /// Opens the control channel from now on.
        control_token: ControlToken,
    },
    /// The device is refused. The gateway closes the stream afterwards.
    Refused(SessionRefusal),
    /// A run to take, within the slots the device declared.
    Offer(Offer),
    /// The start is durable: execute.
    Start {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
    },
    /// A control operation to carry out, answered by `control_done`. It is sent again in every session until it is
    /// completed; a repetition changes nothing.
    Control {
        /// The operation's identifier.
        operation_id: OperationId,
        /// What to do.
        #[serde(flatten)]
        order: Order,
    },
    /// This attempt no longer belongs to the device: stop it and forget it.
    Revoke {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// Why it is revoked.
        code: RevokeCode,
    },
    /// Events of this attempt are durable through this number.
    Ack {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// The highest durable number.
        through: u64,
    },
    /// The gateway was restored from a backup, and does not know what became of these runs since, at most
    /// [`MAX_RECALLED_RUNS`]. Answered by `recalled`. Only for a device whose `hello` names its journal.
    Recall {
        /// The runs, none of which had begun when the backup was made.
        runs: Vec<RunId>,
    },
    /// The answer to a management request.
    Reply {
        /// The number of the request.
        request_id: u64,
        /// The result; its value has the type that belongs to the request.
        #[serde(flatten)]
        result: ManagementResult,
    },
    /// The answer to `request_ticket`.
    Ticket {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// Opens transfers of this attempt, for [`crate::transfer::TICKET_TTL`].
        ticket: TransferTicket,
    },
    /// Checks that the device answers. The loop that also takes offers answers with `pong`.
    Ping,
    /// This gateway is stopping: take no more runs, reconnect soon.
    Drain,
    /// The gateway ends the session.
    Bye {
        /// Why the session ends.
        code: ByeCode,
        /// The reason, for the device's log.
        message: String,
    },
}

/// What a device sends to a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum DeviceFrame {
    /// The answer to the challenge.
    Hello(Hello),
    /// Adds this many slots to those declared before; a service may have fewer.
    Ready {
        /// How many slots are added; 0 when only services change.
        slots: u32,
        /// Places that are added to those that services were given before in this session. A service that was named here
        /// is offered at most as many runs as it has places: an offer of it uses up a place like a slot, whatever comes of
        /// it. One that was never named has as many as there are slots. Older devices name none, and older gateways
        /// ignore this: what they offer beyond it is refused as `busy`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        places: Vec<ServicePlaces>,
        /// The services that are full, at most [`MAX_NAMED_SERVICES`]: their runs stay queued until a later `ready` does
        /// not name them. An offer already on its way is refused as `busy`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        full: Vec<EndpointId>,
    },
    /// The offer is in the device's journal.
    Accept {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
    },
    /// The device refuses the offer.
    Refuse {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// Why it is refused.
        code: RefuseCode,
    },
    /// Something happened in a run.
    Event {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// Numbered from 1 in each attempt, without gaps.
        seq: u64,
        /// What happened.
        event: DeviceEvent,
    },
    /// More of the message that the assistant is writing. It has no number, is not stored or acknowledged, and is
    /// dropped when the connection is busy. The `message_completed` counts.
    Delta {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// What was written.
        #[serde(flatten)]
        delta: MessageDelta,
    },
    /// The run ended, with exactly this outcome.
    Finish {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
        /// The number after its last event.
        seq: u64,
        /// How it ended.
        outcome: Outcome,
        /// What the device signed about that ([`crate::receipt`]), for whoever asks for the run. Sent again, it is the
        /// same. Absent if the device has signed nothing that fits this outcome, or is older.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<String>,
    },
    /// The desktop user settled an `unknown` run: it runs again. The gateway raises the attempt and offers it to this
    /// device. If a stop is pending, the run is cancelled instead and the attempt revoked. May be repeated.
    Reconciled {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt that was unknown.
        attempt: u32,
    },
    /// The answer to `recall`. The device says nothing of runs that it took in any attempt, whatever became of them.
    Recalled {
        /// Those of the asked runs that its journal never had.
        never_had: Vec<RunId>,
    },
    /// A control operation was carried out. For a stop it follows the `finish`.
    ControlDone {
        /// The operation's identifier.
        operation_id: OperationId,
        /// What came of it.
        outcome: OutcomeCode,
    },
    /// The computer is about to sleep: offer nothing, and keep every started run. Ends with `resume` or the next
    /// session; it has no answer.
    Suspend,
    /// The computer is awake again, and the session is still open.
    Resume,
    /// A management request of the desktop.
    Request {
        /// Chosen by the device; repeated in the reply.
        request_id: u64,
        /// Where in the desktop it comes from.
        by: AskedBy,
        /// The request.
        request: ManagementRequest,
    },
    /// Asks for a ticket for transfers of this attempt ([`crate::transfer`]). Answered by `ticket`.
    RequestTicket {
        /// The run's identifier.
        run_id: RunId,
        /// The attempt's number.
        attempt: u32,
    },
    /// A newer access token of the connection's account, so that the connection outlasts the token it began with. Only
    /// for hosted gateways. It has no answer; an invalid token ends the session.
    Token {
        /// The token.
        access_token: AccessToken,
    },
    /// The answer to a `ping`.
    Pong,
}

impl DeviceFrame {
    /// Slots without a word about services.
    pub fn ready(slots: u32) -> Self {
        Self::Ready { slots, places: Vec::new(), full: Vec::new() }
    }
}

/// The result of a management request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagementResult {
    /// The reply that belongs to the request.
    Ok(Value),
    /// Why the request failed.
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
    /// The device sends but does not read, or left two pings unanswered.
    Unresponsive,
    /// The device sent a frame that its version does not send.
    ProtocolViolation,
    /// The gateway stops or lost its database.
    Unavailable,
    /// The account's access token expired, and no valid newer one arrived.
    SignInExpired,
}
