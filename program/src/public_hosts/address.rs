//! Which addresses belong to the public Internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
            assert!(!is_public(address.parse().expect("an address")), "{address}");
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
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
    }
}
