//! Ranges of addresses, as in `10.0.0.0/8`: which addresses are inside, which count as one source, and in
//! [`destinations`] where this gateway may connect to.

pub mod destinations;

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// One range (RFC 4632, RFC 4291).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address and no range of addresses such as 10.0.0.0/8")]
pub struct InvalidNetwork(String);

impl Network {
    /// Whether an address is inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                self.bits == 0 || (own.to_bits() ^ other.to_bits()) >> (32 - u32::from(self.bits)) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                self.bits == 0 || (own.to_bits() ^ other.to_bits()) >> (128 - u32::from(self.bits)) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let wrong = || InvalidNetwork(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

/// Several ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Whether an address is in one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Networks {
    type Err = InvalidNetwork;

    /// Ranges with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// The network that counts as one source. A client with one IPv6 address has the 2^64 beside it, too.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(own) => IpAddr::V6(Ipv6Addr::from_bits(own.to_bits() & !u128::from(u64::MAX))),
        own => own,
    }
}

/// The one header in which trusted proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, which most of them set.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl FromStr for ForwardedHeader {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "x-forwarded-for" => Ok(Self::XForwardedFor),
            "forwarded" => Ok(Self::Forwarded),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_inside_when_the_first_bits_are_the_same() {
        let networks: Networks = "10.0.0.0/8, 192.0.2.7,2001:db8::/33".parse().unwrap();
        for inside in ["10.0.0.0", "10.255.255.255", "192.0.2.7", "::ffff:10.1.2.3", "2001:db8:7fff::1"] {
            assert!(networks.contain(address(inside)), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "192.0.2.6", "2001:db8:8000::1", "::a00:1"] {
            assert!(!networks.contain(address(outside)), "{outside}");
        }
        let all: Networks = "0.0.0.0/0".parse().unwrap();
        assert!(all.contain(address("203.0.113.1")) && !all.contain(address("::1")));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "a", "10.0.0.1:80"] {
            assert!(text.parse::<Networks>().is_err(), "{text}");
        }
        assert!("".parse::<Networks>().unwrap().is_empty());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_source() {
        assert_eq!(source(address("2001:db8::1")), source(address("2001:db8::ffff:1")));
        assert_ne!(source(address("2001:db8::1")), source(address("2001:db8:0:1::1")));
        assert_eq!(source(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }
}
