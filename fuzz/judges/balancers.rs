//! PROXY headers: bounded, the same for every way they come in, and a client only where the bytes say so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use deskgate_gateway::proxy_protocol::{MAX_HEADER_BYTES, ProxySource, parse};

/// Judges bytes as the beginning of a balancer's connection.
pub fn judge(bytes: &[u8]) {
    match parse(bytes) {
        Ok(Some((source, length))) => {
            assert!((16..=MAX_HEADER_BYTES).contains(&length) && length <= bytes.len());
            assert!((0..length).all(|end| parse(&bytes[..end]) == Ok(None)), "a beginning is waited for");
            assert_eq!(parse(&bytes[..length]), Ok(Some((source, length))), "what follows does not count");
            assert!(bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n"));
            let ProxySource::Client(client) = source else { return assert_eq!(bytes[12], 0x20) };
            let address = match bytes[13] {
                0x11 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[16..20]).expect("four"))),
                0x21 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[16..32]).expect("sixteen"))),
                family => panic!("family {family:#x} has no client"),
            };
            assert_eq!((bytes[12], client.ip()), (0x21, address.to_canonical()));
        }
        Ok(None) => {
            assert!(bytes.len() < MAX_HEADER_BYTES);
            assert!((0..bytes.len()).all(|end| parse(&bytes[..end]) == Ok(None)));
        }
        Err(error) => {
            let longer = [bytes, &[0; 32]].concat();
            assert!(parse(&longer).is_err(), "nothing that follows makes it good, though it may tell what it is");
            assert!(error.to_string().len() < 300);
        }
    }
}
