//! The destination guard: resolves a host name, and refuses it unless all its addresses are public.
//!
//! The name is looked up once for each attempt, and the checked addresses are the ones that are connected to, so
//! nothing can change in between. One address that is not public refuses the whole name: an attacker who answers with
//! two would only have to be lucky.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use deskgate_protocol::delivery::DeliveryErrorCode;
use tokio::sync::Semaphore;

use crate::domain::destinations::HostName;

/// The only allowed port.
const HTTPS_PORT: u16 = 443;
/// Concurrent look-ups. Each has a thread, and the system's resolver may keep it long after the caller gave up.
const MAX_CONCURRENT_LOOKUPS: usize = 32;
/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// What the registry of special IPv4 addresses names, and multicast
/// (IANA, RFC 6890 with its updates; RFC 5771; RFC 1112).
const SPECIAL_V4: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // shared by carriers
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local, and clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112
    (Ipv4Addr::new(192, 52, 193, 0), 24), // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(192, 175, 48, 0), 24), // AS112
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, and broadcast
];

/// The only part of IPv6 that is assigned to the public (RFC 4291, section 2.4). All that embeds an IPv4 address lies
/// outside (mapped, compatible, NAT64) or among what follows.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// What the registry of special IPv6 addresses names inside of it (IANA, RFC 6890 with its updates).
const SPECIAL_V6: [(Ipv6Addr, u32); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, benchmarks, ORCHID …
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x004f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether an address belongs to the public Internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let within = |(range, bits): &(Ipv4Addr, u32)| (range.to_bits() ^ address.to_bits()) >> (32 - bits) == 0;
            !SPECIAL_V4.iter().any(within)
        }
        IpAddr::V6(address) => {
            let within = |(range, bits): &(Ipv6Addr, u32)| (range.to_bits() ^ address.to_bits()) >> (128 - bits) == 0;
            within(&GLOBAL_V6) && !SPECIAL_V6.iter().any(within)
        }
    }
}

/// The addresses of a host that may be connected to, in the resolver's order.
///
/// # Errors
/// There is none, or one of them is not public.
pub fn public_addresses(found: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, DeliveryErrorCode> {
    let found: Vec<_> = found.into_iter().collect();
    if found.is_empty() {
        return Err(DeliveryErrorCode::DnsFailed);
    }
    if !found.iter().all(|address| is_public(address.ip())) {
        return Err(DeliveryErrorCode::HostNotPublic);
    }
    Ok(found.into_iter().take(MAX_ADDRESSES).collect())
}

/// Looks names up. Clones share the limit.
#[derive(Clone)]
pub(super) struct Guard(Arc<Semaphore>);

impl Guard {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)))
    }

    /// The addresses that a host may be connected at. The caller limits the time.
    pub(super) async fn addresses(&self, host: &HostName) -> Result<Vec<SocketAddr>, DeliveryErrorCode> {
        let place = self.0.clone().acquire_owned().await.map_err(|_| DeliveryErrorCode::DnsFailed)?;
        let name = host.as_str().to_owned();
        let looking_up = tokio::task::spawn_blocking(move || {
            let found = (name.as_str(), HTTPS_PORT).to_socket_addrs();
            // Released with the thread, not when the caller gives up.
            drop(place);
            found
        });
        match looking_up.await {
            Ok(Ok(found)) => public_addresses(found),
            _ => Err(DeliveryErrorCode::DnsFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_special_address_is_public_at_either_end_of_its_range() {
        for address in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.255",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "192.175.48.1",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "100:0:0:1::1",
            "1fff:ffff::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002::1",
            "2002:7f00:1::1",
            "2620:4f:8000::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ffff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_lies_beside_them_is() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2620:4f:8001::1",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn one_address_that_is_not_public_refuses_the_name() {
        let at = |texts: &[&str]| {
            public_addresses(texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), HTTPS_PORT)))
        };
        assert_eq!(at(&[]), Err(DeliveryErrorCode::DnsFailed));
        assert_eq!(at(&["8.8.8.8", "127.0.0.1"]), Err(DeliveryErrorCode::HostNotPublic));
        assert_eq!(at(&["2001:4860:4860::8888", "8.8.8.8", "fe80::1"]), Err(DeliveryErrorCode::HostNotPublic));
        assert_eq!(at(&["8.8.8.8", "2001:4860:4860::8888"]).unwrap().len(), 2);
        let many: Vec<_> = (0..20).map(|n| format!("8.8.8.{n}")).collect();
        let mut many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(at(&many).unwrap().len(), MAX_ADDRESSES);
        many.push("10.0.0.1");
        assert_eq!(at(&many), Err(DeliveryErrorCode::HostNotPublic), "also one that would not be tried");
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused() {
        let guard = Guard::new();
        // The system's own name leads to loopback, through its resolver.
        let found = ("localhost", HTTPS_PORT).to_socket_addrs().unwrap();
        assert_eq!(public_addresses(found), Err(DeliveryErrorCode::HostNotPublic));
        let nowhere = HostName::parse("nothing.invalid").unwrap();
        assert_eq!(guard.addresses(&nowhere).await, Err(DeliveryErrorCode::DnsFailed));
    }
}
