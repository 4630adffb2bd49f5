//! The addresses at which a gateway can be reached.

use std::net::SocketAddr;

/// The addresses at which a gateway can be reached.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The public API, without `/api/v1`.
    pub http: SocketAddr,
    /// The address that backends use, without `/api/v1`.
    pub public_url: String,
    /// The SSH listener.
    pub ssh: Option<SocketAddr>,
    /// The operations listener.
    pub ops: Option<SocketAddr>,
    /// The SSH address that devices dial.
    pub ssh_public: Option<String>,
}
