//! Which addresses this gateway may connect to where others choose the destination: the public ones, by the
//! administrator's rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use deskgate_program::public_hosts::address::is_public;

use super::{Network, Networks};

/// The administrator's rules for destinations. Without any of them exactly the public addresses are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Refused, though they are public.
    pub refused: Networks,
    /// Prefixes of translators: an address inside is judged by the IPv4 address that it embeds.
    pub nat64: Nat64Prefixes,
    /// Allowed, though they are not public or are refused.
    pub allowed: Networks,
}

impl AddressRules {
    /// Whether a connection to this address is allowed.
    pub fn allow(&self, address: IpAddr) -> bool {
        if self.allowed.contain(address) {
            return true;
        }
        if self.refused.contain(address) {
            return false;
        }
        match self.nat64.embedded(address) {
            Some(inner) => {
                let inner = IpAddr::V4(inner);
                is_public(inner) && !self.refused.contain(inner)
            }
            None => is_public(address),
        }
    }
}

/// Lengths that a NAT64 prefix can have (RFC 6052, section 2.2).
const NAT64_PREFIX_BITS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// The byte that is zero in an address with an embedded one, and no part of it (RFC 6052, section 2.2).
const NAT64_ZERO_BYTE: usize = 8;

/// Prefixes under which a translator (NAT64) embeds IPv4 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nat64Prefixes(Vec<Network>);

/// A text that is not a list of NAT64 prefixes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no NAT64 prefix: an IPv6 range with /32, /40, /48, /56, /64 or /96, such as 2001:db8:64::/96")]
pub struct InvalidNat64Prefix(String);

impl Nat64Prefixes {
    /// The IPv4 address that this one embeds, if it is inside one of the prefixes. The longest prefix counts.
    fn embedded(&self, address: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V6(outer) = address else { return None };
        let inside = self.0.iter().filter(|prefix| prefix.contains(address));
        inside.max_by_key(|prefix| prefix.bits).map(|prefix| embedded_after(prefix.bits, outer))
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn embedded_after(prefix_bits: u8, outer: Ipv6Addr) -> Ipv4Addr {
    let bytes = outer.octets();
    let mut places = (usize::from(prefix_bits / 8)..bytes.len()).filter(|place| *place != NAT64_ZERO_BYTE);
    // Four bytes follow each of the allowed prefixes.
    Ipv4Addr::from([(); 4].map(|()| places.next().map_or(0, |place| bytes[place])))
}

impl FromStr for Nat64Prefixes {
    type Err = InvalidNat64Prefix;

    /// Prefixes with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidNat64Prefix> {
        let prefix = |text: &str| {
            let parsed = text.parse::<Network>().ok();
            let parsed = parsed.filter(|range| range.address.is_ipv6() && NAT64_PREFIX_BITS.contains(&range.bits));
            parsed.ok_or_else(|| InvalidNat64Prefix(text.to_owned()))
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(prefix).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn without_rules_exactly_the_public_addresses_are_allowed() {
        let rules = AddressRules::default();
        for (text, allowed) in [("8.8.8.8", true), ("2600::1", true), ("10.0.0.1", false), ("64:ff9b::808:808", false)]
        {
            assert_eq!(rules.allow(address(text)), allowed, "{text}");
        }
    }

    #[test]
    fn what_is_refused_is_refused_unless_it_is_allowed_by_name() {
        let rules = AddressRules {
            refused: "198.100.0.0/16,2600:1::/32".parse().unwrap(),
            allowed: "10.0.0.0/8,198.100.7.0/24".parse().unwrap(),
            ..AddressRules::default()
        };
        for (text, allowed) in [
            ("198.100.1.1", false),
            ("2600:1::1", false),
            ("198.101.1.1", true),
            ("198.100.7.1", true),
            ("10.1.2.3", true),
            ("192.168.0.1", false),
        ] {
            assert_eq!(rules.allow(address(text)), allowed, "{text}");
        }
    }

    /// The examples of RFC 6052, section 2.4, with a prefix in the public range and two embedded addresses.
    #[test]
    fn an_address_of_a_translator_is_judged_by_what_it_embeds() {
        for (prefix, public, private) in [
            ("2600:db8::/32", "2600:db8:808:808::", "2600:db8:a00:1::"),
            ("2600:db8:100::/40", "2600:db8:108:808:8::", "2600:db8:10a:0:1::"),
            ("2600:db8:122::/48", "2600:db8:122:808:8:800::", "2600:db8:122:a00:0:100::"),
            ("2600:db8:122:300::/56", "2600:db8:122:308:8:808::", "2600:db8:122:30a:0:1::"),
            ("2600:db8:122:344::/64", "2600:db8:122:344:8:808:800:0", "2600:db8:122:344:a:0:100:0"),
            ("2600:db8:122:344::/96", "2600:db8:122:344::808:808", "2600:db8:122:344::a00:1"),
            ("64:ff9b::/96", "64:ff9b::808:808", "64:ff9b::a00:1"),
            ("64:ff9b:1::/48", "64:ff9b:1:808:8:800::", "64:ff9b:1:a00:0:100::"),
        ] {
            let rules = AddressRules { nat64: prefix.parse().unwrap(), ..AddressRules::default() };
            assert!(rules.allow(address(public)), "{public} in {prefix}");
            assert!(!rules.allow(address(private)), "{private} in {prefix}");
            let refused = "8.8.0.0/16".parse().unwrap();
            assert!(!AddressRules { refused, ..rules }.allow(address(public)), "{public} with its range refused");
        }
    }

    #[test]
    fn what_is_no_nat64_prefix_is_refused() {
        for text in ["10.0.0.0/8", "2600::/33", "2600::1", "::/0", "a"] {
            assert!(text.parse::<Nat64Prefixes>().is_err(), "{text}");
        }
        assert!("".parse::<Nat64Prefixes>().unwrap().is_empty());
    }
}
