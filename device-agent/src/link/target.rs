//! The address of the gateway's SSH server, and its pin.

use std::path::PathBuf;

use super::host_pin::HostPin;

/// The address of the gateway's SSH server, and its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// A name or an address.
    pub host: String,
    /// 22 for a server's sshd; the gateway's own listener has a port of its own.
    pub port: u16,
    /// The user on the server. The gateway's own listener ignores it.
    pub user: String,
    /// The control socket's path on the server.
    pub socket_path: String,
    /// How the server is verified.
    pub pin: HostPin,
    /// Where the keys that it announces in place of a pinned one are kept; `None`: announcements are ignored.
    pub followed: Option<FollowedKeysFile>,
}

/// The record of the keys that a server announced in place of a pinned one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedKeysFile {
    /// Its path.
    pub path: PathBuf,
    /// How often the owner has pinned. What was announced under an earlier number counts no more.
    pub pin_count: u32,
    /// Whether announcements are only read: a test of a draft changes nothing for the connection in force.
    pub read_only: bool,
}

impl Ssh {
    pub(super) fn address(&self) -> String {
        super::address(&self.host, self.port)
    }
}
