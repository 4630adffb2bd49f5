//! This computer's network: notices changes, and knows the computer's own addresses.
//!
//! The kernel reports changes on a netlink socket (`rtnetlink(7)`). Only the fact counts: a waiting link dials then,
//! and an open connection checks whether its local address still exists. On other systems, and where the socket is
//! forbidden, no changes are reported; heartbeats and back-off do the work.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Reports changes of this computer's network from its creation on.
#[derive(Debug)]
pub(super) struct NetworkMonitor {
    #[cfg(target_os = "linux")]
    news: Option<tokio::net::UnixDatagram>,
}

impl NetworkMonitor {
    /// Starts to listen.
    pub(super) fn listen() -> Self {
        #[cfg(target_os = "linux")]
        {
            let news = linux::listen();
            if let Err(error) = &news {
                tracing::debug!(%error, "changes of this computer's network are not told");
            }
            Self { news: news.ok() }
        }
        #[cfg(not(target_os = "linux"))]
        Self {}
    }

    /// Waits for a change: an interface, an address, a route. Changes in between count as one. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(news) = &self.news
            && linux::changed(news).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Whether an address is one of this computer's.
pub(super) fn is_ours(address: IpAddr) -> bool {
    !matches!(UdpSocket::bind((address, 0)), Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The local address for connections to `there`, as routed now. Sends no data.
pub(super) fn local_address_for(there: SocketAddr) -> Option<IpAddr> {
    let anywhere: SocketAddr = if there.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(anywhere).ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Waits until this computer loses an address.
pub(super) async fn wait_until_lost(address: IpAddr) {
    let mut network = NetworkMonitor::listen();
    while is_ours(address) {
        network.changed().await;
    }
}

/// Does work that depends on a local address; `None` if the address is lost.
pub(super) async fn while_address_held<T>(options: Option<IpAddr>, work: impl Future<Output = T>) -> Option<T> {
    let Some(address) = options else { return Some(work.await) };
    tokio::select! {
        done = work => Some(done),
        () = wait_until_lost(address) => None,
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
    use tokio::net::UnixDatagram;

    /// Interfaces, then addresses and routes of IPv4, then those of IPv6 (`linux/rtnetlink.h`, `RTMGRP_…`).
    const NETLINK_GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

    /// A netlink socket is a datagram socket; this is the runtime's only type for one without a port.
    pub(super) fn listen() -> io::Result<UnixDatagram> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol is NETLINK_ROUTE, whose number is zero.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, NETLINK_GROUPS))?;
        UnixDatagram::from_std(socket.into())
    }

    /// Reads the waiting messages, at least one, and discards them.
    pub(super) async fn changed(news: &UnixDatagram) -> io::Result<()> {
        // The rest of a longer message is dropped.
        let mut message = [0u8; 256];
        let mut read = lost_some(news.recv(&mut message).await);
        while read.is_ok() {
            read = lost_some(news.try_recv(&mut message));
        }
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// The kernel's queue overflowed, which means a change as well.
    fn lost_some(read: io::Result<usize>) -> io::Result<()> {
        match read {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn own_addresses_are_told_from_others() {
        assert!(is_ours(Ipv4Addr::LOCALHOST.into()));
        // Reserved for documentation (RFC 5737): no computer has it.
        assert!(!is_ours(Ipv4Addr::new(192, 0, 2, 7).into()));
        assert!(!is_ours(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).into()));
    }

    #[test]
    fn one_speaks_to_oneself_from_ones_own_address() {
        assert_eq!(local_address_for(([127, 0, 0, 1], 9).into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
