//! All listeners of a gateway, bound before anything is served.

use std::net::SocketAddr;
use std::path::Path;

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::{Settings, StartError};
use crate::addresses::Addresses;
use crate::tunnel::HostKeys;
use deskgate_program::socket;

/// The bound listeners, and their addresses.
pub(super) struct Listeners {
    pub(super) http: TcpListener,
    pub(super) ssh: Option<(TcpListener, HostKeys)>,
    pub(super) ops: Option<TcpListener>,
    pub(super) control: Option<UnixListener>,
    pub(super) admin: Option<UnixListener>,
    pub(super) addresses: Addresses,
}

impl Listeners {
    /// Binds the listeners in the settings.
    pub(super) fn bind(settings: &Settings) -> Result<Self, StartError> {
        let http = listen(settings.listen)?;
        let ssh = match settings.ssh_listen {
            Some(address) => {
                let host_keys = HostKeys::load_or_create(&settings.state_dir)?;
                Some((listen(address)?, host_keys))
            }
            None => None,
        };
        let ops = match settings.ops_listen {
            Some(address) => Some(listen(address)?),
            None => None,
        };
        let (http_address, ssh_address) = (bound(&http)?, ssh.as_ref().map(|(ssh, _)| bound(ssh)).transpose()?);
        let scheme = if settings.tls.is_some() || settings.acme.is_some() { "https" } else { "http" };
        let addresses = Addresses {
            http: http_address,
            public_url: settings.public_url.clone().unwrap_or_else(|| format!("{scheme}://{http_address}")),
            ssh: ssh_address,
            ops: ops.as_ref().map(bound).transpose()?,
            ssh_public: settings.ssh_public_address.clone().or(ssh_address.map(|address| address.to_string())),
        };
        let private = |path: &Path, mode, group| {
            let listener = socket::bind_for(path, mode, group);
            listener.map_err(|source| StartError::Listen { address: path.display().to_string(), source })
        };
        let control = settings.control_socket.as_deref().map(|path| private(path, 0o660, None)).transpose()?;
        let (mode, group) = if settings.admin_group.is_some() { (0o660, settings.admin_group) } else { (0o600, None) };
        let admin = settings.admin_socket.as_deref().map(|path| private(path, mode, group)).transpose()?;
        Ok(Self { http, ssh, ops, control, admin, addresses })
    }
}

/// Connections that the system keeps until they are accepted; its own limit holds, too (`net.core.somaxconn`). When it is
/// full, new ones are dropped, and their callers try again after a second or more.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listening = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A port is free again as soon as its gateway has ended.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listening().map_err(|source| StartError::Listen { address: address.to_string(), source })
}

fn bound(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    let address = listener.local_addr();
    address.map_err(|source| StartError::Listen { address: "a bound socket".to_owned(), source })
}
