//! How a session begins: the challenge, who the device is, and what it is told.

use serde::{Deserialize, Serialize};

use crate::identity::PublicKey;
use crate::ids::{DeviceId, GatewayId, RunId};
use crate::{Half, ProtocolRange};

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
    /// What its user calls it, where that is not known from its pairing: on a line of a hosted gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Random, for this session only: what the gateway's host keys sign. Without it, none are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Every run in its journal that the gateway has not acknowledged as finished.
    pub in_flight: Vec<InFlightRun>,
}

/// One unfinished entry of the device's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightRun {
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
    /// Its execution was cut off by a restart of the device before anything was written: the next attempt is offered to
    /// this device. A gateway takes it also of a run that was unknown, as the desktop user's word that it runs again.
    Interrupted,
    /// The device was restarted, and a writing tool call has no outcome. The run awaits reconciliation, keeps its slot,
    /// and is not offered again before the device says `reconciled`. Answered by an `ack` with the number of the last event
    /// that is stored: what the desktop user decided follows it, also when they did before the gateway knew anything; a
    /// `finish` that settles it takes the next number.
    Unknown,
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
    /// All host keys of the gateway's own SSH listener, to a device that came through it: the one it shows now, and one
    /// that it will show in future. A key that is not among them any more is not the gateway's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<ProvenHostKey>,
}

/// A host key, and that whoever speaks has it.
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
    /// Events of one run that may be under way unacknowledged.
    pub unacknowledged_events: u32,
}

/// Why a device is not let in: data, not a closed socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRefusal {
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

/// The codes of [`SessionRefusal`].
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
    /// The key was paired by another account, or by the gateway's administrator, or comes without its account.
    OtherAccount,
    /// The account has as many devices as it may.
    TooManyDevices,
}
