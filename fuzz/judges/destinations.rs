//! Destinations: only a public name at port 443 over HTTPS, or a public address, is allowed, in every notation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use deskgate_gateway::domain::destinations::Destination;
use deskgate_program::public_hosts::HostName;
use deskgate_program::public_hosts::address::is_public;
use deskgate_program::public_hosts::lookup::public_addresses;

/// Judges a text as a callback's URL and as a name on the allowlist, and bytes as addresses.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(read) = Destination::parse(&text) {
        name(read.host());
        assert!(read.as_str().starts_with(&format!("https://{}/", read.host())), "{read}");
        assert!(read.as_str().ends_with(read.target()) && read.target().starts_with('/'), "{read}");
        assert_eq!(Destination::parse(read.as_str()).as_ref(), Ok(&read), "read again it is the same");
    }
    if let Ok(read) = HostName::parse(&text) {
        name(&read);
        assert_eq!(HostName::parse(read.as_str()).as_ref(), Ok(&read), "read again it is the same");
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    addresses.extend(bytes.first_chunk().map(|own: &[u8; 4]| IpAddr::from(*own)));
    addresses.extend(bytes.first_chunk().map(|own: &[u8; 16]| IpAddr::from(*own)));
    addresses.extend(text.trim().parse::<IpAddr>());
    // The address in the first four bytes, in every form in which IPv6 can carry it.
    if let Some(own) = bytes.first_chunk::<4>() {
        addresses.extend(carried(Ipv4Addr::from(*own)).map(IpAddr::from));
    }
    let found: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, 443)).collect();
    // Each of them is judged, also after one that is not public.
    let private = addresses.iter().filter(|own| !address(**own)).count();
    assert_eq!(public_addresses(found.clone()).is_ok(), private == 0 && !found.is_empty(), "{found:?}");
}

/// Checks that no resolver reads it as an address, and that it is not a local name.
fn name(host: &HostName) {
    let text = host.as_str();
    assert!(text.parse::<IpAddr>().is_err() && !is_inet_aton(text), "{text} is an address");
    assert!(text.is_ascii() && text.to_ascii_lowercase() == text && text.contains('.'), "{text}");
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)), "{text}");
    for zone in ["localhost", "local", "internal", "home.arpa", "onion", "alt"] {
        assert!(text != zone && !text.ends_with(&format!(".{zone}")), "{text} is not public");
    }
}

/// Whether `inet_aton`, which resolvers try before a look-up, accepts a text: one to four numbers, each decimal, octal
/// or hexadecimal.
fn is_inet_aton(text: &str) -> bool {
    let number = |part: &str| {
        let lower = part.to_ascii_lowercase();
        match lower.strip_prefix("0x") {
            Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            None => !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_digit()),
        }
    };
    text.split('.').count() <= 4 && text.split('.').all(number)
}

/// Judges one address by the standard library's own rules, independent of our tables.
fn address(address: IpAddr) -> bool {
    if !is_public(address) {
        return false;
    }
    match address {
        IpAddr::V4(own) => v4(own),
        IpAddr::V6(own) => {
            assert!(own.segments()[0] & 0xe000 == 0x2000, "{own} is not global");
            assert!(!own.is_loopback() && !own.is_unspecified() && !own.is_multicast(), "{own}");
            assert!(!own.is_unique_local() && !own.is_unicast_link_local(), "{own}");
            assert!(own.to_ipv4().is_none() && !carries(own), "{own} carries an address of IPv4");
        }
    }
    true
}

fn v4(own: Ipv4Addr) {
    let [a, b, ..] = own.octets();
    let special = own.is_private()
        || own.is_loopback()
        || own.is_link_local()
        || own.is_broadcast()
        || own.is_documentation()
        || own.is_unspecified()
        || own.is_multicast();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_for_benchmarks = a == 198 && (18..20).contains(&b);
    assert!(!special && !is_shared && !is_for_benchmarks && a != 0 && a < 224, "{own} is not public");
}

/// The forms in which IPv6 carries an IPv4 address: mapped, compatible, translated twice, 6to4, Teredo.
fn carried(own: Ipv4Addr) -> [Ipv6Addr; 6] {
    let bits = u128::from(own.to_bits());
    [
        own.to_ipv6_mapped(),
        Ipv6Addr::from_bits(bits),
        Ipv6Addr::from_bits(0xffff_0000_0000 | bits),
        Ipv6Addr::from_bits(0x0064_ff9b_u128 << 96 | bits),
        Ipv6Addr::from_bits(0x2002_u128 << 112 | bits << 80),
        Ipv6Addr::from_bits(0x2001_0000_u128 << 96 | (bits ^ 0xffff_ffff)),
    ]
}

/// Whether it looks like 6to4 or Teredo, which are within the public ranges.
fn carries(own: Ipv6Addr) -> bool {
    matches!(own.segments(), [0x2002, ..] | [0x2001, 0, ..])
}
