//! Where the gateway's SSH server is, and how it is recognised.

use std::path::PathBuf;

use super::host_pin::HostPin;

/// Where the gateway's SSH server is, and how it is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// A name or an address.
    pub host: String,
    /// 22 for a server's sshd; the gateway's own listener has a port of its own.
    pub port: u16,
    /// The account on the server. The gateway's own listener does not look at it.
    pub user: String,
    /// The control socket's path on the server.
    pub socket_path: String,
    /// Which server is the right one.
    pub pin: HostPin,
    /// Where the keys are kept that it announces in the place of a pinned one; `None`: nothing is followed.
    pub followed: Option<PathBuf>,
}

impl Ssh {
    pub(super) fn address(&self) -> String {
        super::address(&self.host, self.port)
    }
}
