//! The administrator's service: a private Unix socket, and the command line that uses it.
//!
//! | file | what it does |
//! |---|---|
//! | [`applications`] [`runs`] | of all devices: both sides of those commands |
//! | [`invitations`] | invitations of devices: both sides of those commands |
//! | `deliveries` | hosts that callbacks may go to, and deliveries: both sides of those commands |
//! | [`service`] [`state`] | answers on the socket, inside the running gateway; what they are made from |
//! | [`commands`] `client` | what each command asks and prints; asking on the socket |
//! | [`storage`] | whether the bytes of files and artifacts are there |
//! | [`status`] | how the running gateway is |
//! | [`upgrade`] | whether this program may take the running one's place |
//! | [`doctor`] `public_probe` | the running gateway, and its address as seen from outside |
//! | [`backup`] | a dump of the database: created, verified, restored |
//! | [`bundle`] | a file for support |
//! | [`check`] | configuration and surroundings, before anything runs |

pub mod applications;
pub mod backup;
pub mod bundle;
pub mod check;
mod client;
pub mod commands;
mod deliveries;
pub mod doctor;
pub mod host_key;
pub mod invitations;
mod public_probe;
pub mod runs;
pub mod service;
pub mod state;
pub mod status;
pub mod storage;
pub mod upgrade;

use deskgate_protocol::management::{
    Application, DeliveryDetail, DeliveryPage, DisablingPreview, FindByEnd, FoundByEnd, ListDeliveries,
    RecoverDeliveries, Recovery,
};
use deskgate_protocol::operation::ControlOperation;
use deskgate_protocol::{DeliveryId, DeviceId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::domain::health::GatewayProblem;
use crate::domain::storage_check::StorageReport;

/// A request of the command line to the running gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum AdminRequest {
    /// Report the gateway's status.
    Status,
    /// Pair the device of an identity file.
    DeviceAdd {
        /// The file's text.
        file: String,
    },
    /// List devices: all, oldest first, or a page of them, newest first.
    DeviceList {
        /// At most so many, 1 to 100; absent: all.
        #[serde(default)]
        limit: Option<u32>,
        /// Only devices that were paired before this one.
        #[serde(default)]
        before: Option<DeviceId>,
    },
    /// End a device.
    DeviceRevoke {
        /// The device to revoke.
        device_id: DeviceId,
        /// Whether its applications are disabled too.
        #[serde(default)]
        disable_applications: bool,
    },
    /// Give a device another name.
    DeviceRename {
        /// The device to rename.
        device_id: DeviceId,
        /// Its new name.
        name: String,
    },
    /// Create a control token; older ones end after the overlap.
    TokenRotate {
        /// The overlap in seconds.
        overlap_s: u64,
        /// Whether the client writes it into a file.
        to_file: bool,
    },
    /// A request about invitations of devices.
    Invitation(invitations::AdminInvitationRequest),
    /// A request about the SSH host keys.
    HostKey(host_key::AdminHostKeyRequest),
    /// Whether the bytes of files and artifacts are there.
    Storage(storage::CheckStorage),
    /// Reload what can change without a restart.
    Reload,
    /// List the hosts that callbacks may go to.
    Allowlist,
    /// Allow one more host.
    AllowlistAdd {
        /// Its exact name.
        host: String,
    },
    /// Remove a host from the list.
    AllowlistRemove {
        /// Its exact name.
        host: String,
    },
    /// List deliveries of all applications, newest first.
    DeliveryList(ListDeliveries),
    /// Show one delivery with its attempts.
    DeliveryShow {
        /// The delivery to show.
        delivery_id: DeliveryId,
    },
    /// Send a delivery again.
    DeliveryResend {
        /// The delivery to send.
        delivery_id: DeliveryId,
    },
    /// Send again what failed since a time.
    DeliveryRecover(RecoverDeliveries),
    /// Create a ticket for a trial stream.
    TrialTicket,
    /// Name the address of the gateway's private cluster.
    PrivateCluster,
    /// Find records of all devices by the end of their identifier.
    FindByEnd(FindByEnd),
    /// A request about applications.
    App(applications::AdminAppRequest),
    /// A request about runs.
    Run(runs::AdminRunRequest),
}

/// The running gateway's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum AdminReply {
    /// The gateway's status.
    Status(Box<GatewayStatus>),
    /// A paired device with what its user needs.
    Paired(Box<PairedDevice>),
    /// An invitation that was just made.
    Invited(Box<invitations::CreatedInvitation>),
    /// Invitations, newest first.
    Invitations {
        /// The invitations.
        invitations: Vec<invitations::InvitationView>,
    },
    /// A page of the paired devices.
    Devices {
        /// The devices.
        devices: Vec<DeviceView>,
        /// The `before` of the next page.
        #[serde(default)]
        next: Option<DeviceId>,
    },
    /// The device is revoked.
    Revoked {
        /// The applications that were disabled with it.
        applications: Vec<Application>,
    },
    /// The request was carried out.
    Done,
    /// What was reloaded, in words.
    Reloaded {
        /// The reloaded parts.
        what: String,
    },
    /// A new control token. Written to a file, never to the screen.
    Token {
        /// The token.
        text: String,
        /// Where the gateway stores it.
        kept_in: Option<String>,
    },
    /// The SSH host keys; absent when there is no SSH listener.
    HostKeys {
        /// The keys.
        keys: Option<Box<host_key::HostKeysView>>,
    },
    /// Whether the bytes of files and artifacts are there.
    Storage(StorageReport),
    /// Hosts that callbacks may go to, sorted.
    Hosts {
        /// Their names.
        hosts: Vec<String>,
    },
    /// Deliveries, newest first.
    Deliveries(DeliveryPage),
    /// One delivery with its attempts.
    Delivery(Box<DeliveryDetail>),
    /// How many are sent again, or would be.
    Recovered(Recovery),
    /// The address of the private cluster; absent when the database is another one.
    PrivateCluster {
        /// The address, which holds no secret.
        url: Option<String>,
    },
    /// A ticket for a trial stream.
    TrialTicket {
        /// The last part of the path.
        ticket: String,
    },
    /// Records by the end of their identifier.
    Found(FoundByEnd),
    /// Applications, newest first.
    Applications(applications::AppPage),
    /// One application.
    Application(Box<Application>),
    /// One application, and what disabling it would end.
    Preview(Box<DisablingPreview>),
    /// Runs, newest first.
    Runs(runs::RunList),
    /// One run, and what happened to it.
    Run(Box<runs::RunHistory>),
    /// The state of a stop.
    Operation(Box<ControlOperation>),
    /// The request failed.
    No {
        /// The reason, for programs.
        code: AdminErrorCode,
        /// The reason, for people.
        message: String,
    },
}

/// A paired device with what its user needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairedDevice {
    /// The device.
    pub device: DeviceView,
    /// What its user needs.
    pub details: PairingDetails,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminErrorCode {
    /// A value is not acceptable.
    Invalid,
    /// The object does not exist.
    NotFound,
    /// The request is not possible in this state.
    Refused,
    /// The database does not work at the moment.
    Unavailable,
}

/// The status of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Its version.
    pub version: String,
    /// The address that backends use, including `/api/v1`.
    pub address: String,
    /// The SSH listener.
    pub ssh: Option<String>,
    /// The status of the public listener's certificate; absent for plain HTTP.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Whether the database answers.
    pub database: bool,
    /// Devices that are connected.
    pub devices_connected: usize,
    /// Devices that are paired.
    pub devices_paired: usize,
    /// Runs that wait for a start.
    #[serde(default)]
    pub runs_waiting: u64,
    /// Started runs: running, awaiting approval, awaiting reconciliation, cancelling.
    #[serde(default)]
    pub runs_started: [u64; 4],
    /// Deliveries that wait, and seconds since the oldest was queued.
    #[serde(default)]
    pub callbacks: (u64, f64),
    /// The newest migration of the database; absent while it does not answer.
    #[serde(default)]
    pub migration: Option<i32>,
    /// Whether the database is a private cluster of this gateway's own.
    #[serde(default)]
    pub private_cluster: bool,
    /// What is wrong, the worst first.
    #[serde(default)]
    pub problems: Vec<GatewayProblem>,
}

/// A device as the administrator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its identifier.
    pub device_id: DeviceId,
    /// Its name.
    pub name: String,
    /// Its key's fingerprint.
    pub fingerprint: String,
    /// The fingerprint's beginning, to be read out.
    pub short_code: String,
    /// Its key.
    pub public_key: String,
    /// In one word: connected, paused, asleep, offline, incompatible, revoked.
    pub state: String,
    /// What to know about that state.
    pub note: Option<String>,
    /// The version it last said hello with.
    pub version: Option<String>,
    /// The account that paired it: the subject and its issuer. Absent: the administrator did.
    #[serde(default)]
    pub account: Option<String>,
    /// When it was paired.
    pub paired_at: Timestamp,
    /// When it was last seen.
    pub last_seen_at: Option<Timestamp>,
}

/// What a desktop user needs to connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairingDetails {
    /// The SSH address to dial.
    pub ssh_address: Option<String>,
    /// The expected fingerprint of the host key.
    pub host_key_fingerprint: Option<String>,
    /// The name of the control socket that the forward asks for.
    pub control_socket: Option<String>,
    /// The address that backends use, including `/api/v1`.
    pub address: String,
    /// The control token's file on this server.
    pub token_file: Option<String>,
}

fn no(code: AdminErrorCode, message: impl Into<String>) -> AdminReply {
    AdminReply::No { code, message: message.into() }
}
