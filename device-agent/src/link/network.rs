//! This computer's network: that something about it changed, and which addresses are its own.
//!
//! The kernel says so on a netlink socket (`rtnetlink(7)`). What it says is of no interest, only that it does: whoever
//! waits for the gateway dials then, and whoever has a line looks whether the line still has an address. On other
//! systems, and where the socket is forbidden, nothing is ever said, and heartbeats and back-off have to do.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// News of this computer's network from the moment it was made.
#[derive(Debug)]
pub(super) struct NetworkMonitor {
    #[cfg(target_os = "linux")]
    news: Option<tokio::net::UnixDatagram>,
}

impl NetworkMonitor {
    /// Listens from now on.
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

    /// Waits until something changed: an interface, an address, a route. What changed meanwhile counts as one change.
    /// Cancel-safe.
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

/// Whether an address is one of this computer's, so that what is sent to it can arrive.
pub(super) fn is_ours(address: IpAddr) -> bool {
    !matches!(UdpSocket::bind((address, 0)), Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The address that this computer would speak from to `there`, as things stand. Nothing is sent.
pub(super) fn local_address_for(there: SocketAddr) -> Option<IpAddr> {
    let anywhere: SocketAddr = if there.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(anywhere).ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Waits until an address is this computer's no more.
pub(super) async fn wait_until_lost(address: IpAddr) {
    let mut network = NetworkMonitor::listen();
    while is_ours(address) {
        network.changed().await;
    }
}

/// Does what stands on an address, unless that is taken away; then `None`.
pub(super) async fn while_address_held<T>(ground: Option<IpAddr>, work: impl Future<Output = T>) -> Option<T> {
    let Some(address) = ground else { return Some(work.await) };
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

    /// A netlink socket is a socket of datagrams, and the runtime's only type for one that has no port is this.
    pub(super) fn listen() -> io::Result<UnixDatagram> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol is NETLINK_ROUTE, whose number is zero.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, NETLINK_GROUPS))?;
        UnixDatagram::from_std(socket.into())
    }

    /// Reads what there is, at least one message, and lets go of it.
    pub(super) async fn changed(news: &UnixDatagram) -> io::Result<()> {
        // Of a longer message the rest is dropped.
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

    /// The kernel had more to say than it could keep: news as well.
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
        // Kept for documentation (RFC 5737): nobody has it.
        assert!(!is_ours(Ipv4Addr::new(192, 0, 2, 7).into()));
        assert!(!is_ours(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).into()));
    }

    #[test]
    fn one_speaks_to_oneself_from_ones_own_address() {
        assert_eq!(local_address_for(([127, 0, 0, 1], 9).into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
