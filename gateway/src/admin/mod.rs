//! The server administrator's door: a private Unix socket, and the command line that speaks to it.
//!
//! | file | what it does |
//! |---|---|
//! | `sendings` | hosts that callbacks may go to, and deliveries: both sides of those commands |
//! | [`office`] | answers on the socket, inside the running gateway |
//! | [`commands`] | what each command asks and prints |
//! | [`check`] | configuration and surroundings, before anything runs |

pub mod check;
pub mod commands;
pub mod office;
mod sendings;

use deskgate_protocol::management::{DeliveryDetail, DeliveryPage, ListDeliveries, RecoverDeliveries, Recovery};
use deskgate_protocol::{DeliveryId, DeviceId, Timestamp};
use serde::{Deserialize, Serialize};

/// What the command line asks the running gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// How it is.
    Status,
    /// Pair the device of an identity file.
    DeviceAdd {
        /// The file's text.
        file: String,
    },
    /// Every device.
    DeviceList,
    /// End a device.
    DeviceRevoke {
        /// Which.
        device_id: DeviceId,
    },
    /// Give a device another name.
    DeviceRename {
        /// Which.
        device_id: DeviceId,
        /// Its new name.
        name: String,
    },
    /// A new control token; older ones end after the overlap.
    TokenRotate {
        /// Seconds.
        overlap_s: u64,
        /// Whether whoever asks writes it into a file.
        to_file: bool,
    },
    /// The SSH host key.
    HostKey,
    /// Read again what can change without a restart.
    Reload,
    /// The hosts that callbacks may go to.
    Allowlist,
    /// Allow one more.
    AllowlistAdd {
        /// Its exact name.
        host: String,
    },
    /// Allow one no more.
    AllowlistRemove {
        /// Its exact name.
        host: String,
    },
    /// Deliveries of all applications, newest first.
    DeliveryList(ListDeliveries),
    /// One delivery with its attempts.
    DeliveryShow {
        /// Which.
        delivery_id: DeliveryId,
    },
    /// Send one again.
    DeliveryResend {
        /// Which.
        delivery_id: DeliveryId,
    },
    /// Send again what failed since a time.
    DeliveryRecover(RecoverDeliveries),
}

/// What the running gateway answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// How it is.
    Status(Status),
    /// A paired device with what its user needs.
    Paired(Box<Paired>),
    /// Devices, oldest first.
    Devices {
        /// The devices.
        devices: Vec<DeviceView>,
    },
    /// Done.
    Done,
    /// What was read again, in words.
    Reloaded {
        /// What.
        what: String,
    },
    /// A new control token. Written to a file, never to the screen.
    Token {
        /// The text.
        text: String,
        /// Where the gateway keeps it.
        kept_in: Option<String>,
    },
    /// The SSH host key; absent when there is no SSH listener.
    HostKey {
        /// `SHA256:…` and the key's text.
        key: Option<(String, String)>,
    },
    /// Hosts that callbacks may go to, sorted.
    Hosts {
        /// Their names.
        hosts: Vec<String>,
    },
    /// Deliveries, newest first.
    Deliveries(DeliveryPage),
    /// One delivery with its attempts.
    Delivery(Box<DeliveryDetail>),
    /// How much is sent again, or would be.
    Recovered(Recovery),
    /// Not done, and why.
    No {
        /// For programs.
        code: No,
        /// For people.
        message: String,
    },
}

/// A paired device with what its user needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Paired {
    /// The device.
    pub device: DeviceView,
    /// What its user needs.
    pub invitation: Invitation,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum No {
    /// A value is not acceptable.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// Not in this state.
    Refused,
    /// The database does not work at the moment.
    Unavailable,
}

/// How a gateway is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// What backends use, including `/api/v1`.
    pub address: String,
    /// The SSH listener.
    pub ssh: Option<String>,
    /// How it stands with the public listener's certificate; absent for plain HTTP.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Whether the database answers.
    pub database: bool,
    /// Devices that are connected.
    pub devices_connected: usize,
    /// Devices that are paired.
    pub devices_paired: usize,
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
    /// When it was paired.
    pub paired_at: Timestamp,
    /// When it was last heard of.
    pub last_seen_at: Option<Timestamp>,
}

/// What a desktop user needs to connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invitation {
    /// What to dial over SSH.
    pub ssh_address: Option<String>,
    /// What the host key's fingerprint must be.
    pub host_key_fingerprint: Option<String>,
    /// The name of the control socket that the forward asks for.
    pub control_socket: Option<String>,
    /// What backends use, including `/api/v1`.
    pub address: String,
    /// Where the control token is on this server.
    pub token_file: Option<String>,
}
