//! How a session begins: the challenge, the hello, and the welcome or refusal.

use serde::{Deserialize, Serialize};

use crate::identity::{PublicKey, RecognisedServer};
use crate::ids::{DeviceId, GatewayId, JournalId, RunId};
use crate::{Half, ProtocolRange};

/// Asks a device to prove who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Random, for this session only.
    pub nonce: String,
    /// The gateway that asks.
    pub gateway_id: GatewayId,
    /// Its product version.
    pub gateway_version: String,
    /// The protocols it speaks.
    pub protocol: ProtocolRange,
}

/// The device's identity, and the runs it still works on.
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
    /// By what it recognised the server, as it is signed. Devices before protocol 2 did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<RecognisedServer>,
    /// The name its user gave it; only where there is no pairing to know it from: at hosted gateways, and with an invitation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Random, for this session only: the gateway's host keys sign it. If absent, the welcome names no host keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// The journal that the device keeps of runs. A device that names it answers `recall`. Absent from older devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_id: Option<JournalId>,
    /// Every run in its journal that the gateway has not acknowledged as finished.
    pub in_flight: Vec<InFlightRun>,
}

/// One unfinished entry of the device's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightRun {
    /// The run's identifier.
    pub run_id: RunId,
    /// The attempt's number.
    pub attempt: u32,
    /// Its state.
    pub status: InFlightStatus,
}

/// The state of an unfinished run on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InFlightStatus {
    /// Taken, but the start was not confirmed, so nothing was executed.
    Taken,
    /// Being executed.
    Running,
    /// A restart of the device cut its execution off before anything was written: the next attempt is offered to this
    /// device. For a run that was unknown it means that the desktop user decided that it runs again.
    Interrupted,
    /// The device was restarted, and a writing tool call has no outcome. The run awaits reconciliation, keeps its slot,
    /// and is offered again only after `reconciled`. Answered by an `ack` with the number of the last stored event: the
    /// desktop user's decision takes the numbers after it, even if it was made before the gateway knew of the unknown
    /// state; a `finish` that settles the run takes the next number.
    Unknown,
    /// Ended; its `finish` follows.
    Finished,
}

/// The device is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its identifier on this gateway.
    pub device_id: DeviceId,
    /// The number of this session; a newer session of the same key has a higher one.
    pub epoch: u64,
    /// The protocol number of this session.
    pub protocol: u32,
    /// The times and limits of this session.
    pub policy: Policy,
    /// All host keys of the gateway's own SSH listener, for a device that connected through it: the present one, and
    /// one that it will use in future. A key that is absent here is no longer the gateway's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<ProvenHostKey>,
}

/// A host key, and the proof that the gateway has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenHostKey {
    /// Its public half.
    pub public_key: PublicKey,
    /// [`crate::identity::HostKeyProof`], base64.
    pub signature: String,
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
    /// The most unacknowledged events of one run.
    pub unacknowledged_events: u32,
    /// Seconds after which the gateway deletes an ended run. The device keeps nothing of it for longer. Absent: the
    /// device's owner alone decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
}

/// Why a device is refused, sent before the stream closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRefusal {
    /// For programs.
    pub code: RefusedCode,
    /// For people: what is wrong and what to do next.
    pub message: String,
    /// Whether an automatic retry can help.
    pub should_retry: bool,
    /// Seconds to wait before that retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// The gateway's product version.
    pub gateway_version: String,
    /// The device's product version, if it was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_version: Option<String>,
    /// Which half to upgrade if the versions do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Half>,
}

/// The codes of [`SessionRefusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// Major or minor versions differ, or there is no common protocol.
    VersionMismatch,
    /// The key is not paired with this gateway.
    UnknownDevice,
    /// The key was paired and has been revoked.
    RevokedDevice,
    /// The signature does not match, or the SSH key is another one.
    BadProof,
    /// The device recognised another server than this one: somebody passed its hello on.
    OtherServer,
    /// The first frame was not a `hello`, or came too late.
    BadHello,
    /// The gateway is stopping or has no database at the moment.
    Unavailable,
    /// The key was paired by another account or by the gateway's administrator, or no account was given.
    OtherAccount,
    /// The account has reached its limit of devices.
    TooManyDevices,
    /// The invitation has ended, was refused, or another device came with it.
    InvitationOver,
}
