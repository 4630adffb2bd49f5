//! Client addresses in proxies' headers: X-Forwarded-For, or Forwarded (RFC 7239).
//!
//! A proxy adds at the right, and the text to the left of that may be anybody's: open quotes, bytes that are not text.
//! So everything is read from the right.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};

use crate::networks::{ForwardedHeader, Networks};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The nearest address, seen from here, that is not a trusted proxy. Only the header that the proxies set is read: the
/// other one passes through as the caller wrote it.
pub(super) fn client_address(peer: IpAddr, headers: &HeaderMap, header: ForwardedHeader, proxies: &Networks) -> IpAddr {
    let mut nearest = peer;
    for hop in hops(headers, header) {
        // A hop that hides its address, or cannot be read, ends the chain.
        let Some(address) = hop else { break };
        nearest = address;
        if !proxies.contain(address) {
            break;
        }
    }
    nearest
}

/// The hops, nearest first.
fn hops(headers: &HeaderMap, header: ForwardedHeader) -> Vec<Option<IpAddr>> {
    let name = match header {
        ForwardedHeader::XForwardedFor => X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => header::FORWARDED,
    };
    let lines: Vec<_> =
        headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned()).collect();
    let lines = lines.iter().rev();
    match header {
        ForwardedHeader::XForwardedFor => lines.flat_map(|line| line.rsplit(',')).map(node).collect(),
        ForwardedHeader::Forwarded => lines.flat_map(|line| parts(line, b',')).map(forwarded_for).collect(),
    }
}

/// The address in one element of Forwarded, which contains `for` once.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pairs = parts(element, b';').into_iter().filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for")).map(|(_, value)| value.trim());
    let (value, None) = (values.next()?, values.next()) else { return None };
    node(value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
}

/// The parts of a text between separators outside quotes, from the right.
fn parts(text: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut end, mut quoted) = (Vec::new(), text.len(), false);
    for (place, byte) in text.bytes().enumerate().rev() {
        match byte {
            b'"' if !is_escaped(text, place) => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.push(&text[place + 1..end]);
                end = place;
            }
            _ => {}
        }
    }
    parts.push(&text[..end]);
    parts
}

/// Whether an odd number of backslashes stands before this position.
fn is_escaped(text: &str, place: usize) -> bool {
    text.as_bytes()[..place].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// An address, with optional brackets and port.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None if text.matches(':').count() == 1 => text.split(':').next()?,
        None => text,
    };
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn seen(header: ForwardedHeader, headers: &[(&str, &[u8])]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        client_address([10, 0, 0, 1].into(), &map, header, &"10.0.0.0/8".parse().unwrap()).to_string()
    }

    fn x(lines: &[&str]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
        seen(ForwardedHeader::XForwardedFor, &lines)
    }

    fn forwarded(lines: &[&str]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_bytes())).collect();
        seen(ForwardedHeader::Forwarded, &lines)
    }

    #[test]
    fn the_rightmost_address_that_is_no_trusted_proxy_is_the_callers() {
        assert_eq!(x(&[]), "10.0.0.1");
        assert_eq!(x(&["203.0.113.9"]), "203.0.113.9");
        assert_eq!(x(&["1.1.1.1, 203.0.113.9, 10.0.0.7"]), "203.0.113.9");
        assert_eq!(x(&["1.1.1.1", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(x(&["10.0.0.8, 10.0.0.9"]), "10.0.0.8");
        assert_eq!(x(&["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(x(&["::ffff:203.0.113.9"]), "203.0.113.9");
        assert_eq!(forwarded(&["for=1.1.1.1, For=\"203.0.113.9:80\";proto=https;by=10.0.0.1"]), "203.0.113.9");
        assert_eq!(forwarded(&["for=1.1.1.1", "proto=https;for=203.0.113.9, for=\"10.0.0.7\""]), "203.0.113.9");
        assert_eq!(forwarded(&["for=\"[2001:db8::1]:443\""]), "2001:db8::1");
    }

    #[test]
    fn what_a_caller_writes_itself_does_not_move_it() {
        assert_eq!(x(&["unknown, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(x(&["\"1.1.1.1, 203.0.113.9"]), "203.0.113.9");
        for written in [
            "for=\"",
            "for=\"1.1.1.1",
            "for=\"1.1.1.1, ",
            "for=1.1.1.1;by=\"",
            "for=1.1.1.1;by=\"\\",
            "for=\"\\\"",
            "for=\"1.1.1.1\\\\\"",
            ",,;;==",
        ] {
            for own in ["for=203.0.113.9", "for=\"203.0.113.9:80\"", "by=\"a, for=1.1.1.1;b\";for=203.0.113.9"] {
                assert_eq!(forwarded(&[&format!("{written}, {own}")]), "203.0.113.9", "{written} {own}");
                assert_eq!(forwarded(&[written, own]), "203.0.113.9", "{written} {own}");
            }
        }
        let no_text = [b"\xff\"\xfe, for=203.0.113.9".as_slice(), b"\xff, 203.0.113.9"];
        assert_eq!(seen(ForwardedHeader::Forwarded, &[("forwarded", no_text[0])]), "203.0.113.9");
        assert_eq!(seen(ForwardedHeader::XForwardedFor, &[("x-forwarded-for", no_text[1])]), "203.0.113.9");
    }

    #[test]
    fn a_hop_that_cannot_be_read_is_as_far_as_one_sees() {
        assert_eq!(x(&["203.0.113.9, garbage"]), "10.0.0.1");
        assert_eq!(x(&["203.0.113.9, garbage, 10.0.0.2"]), "10.0.0.2");
        for element in ["for=_hidden", "for=unknown", "proto=https", "for=1.1.1.1;for=203.0.113.9", "for=\"1.1.1.1"] {
            assert_eq!(forwarded(&[element]), "10.0.0.1", "{element}");
        }
    }

    #[test]
    fn only_the_header_that_the_proxies_set_is_believed() {
        let both = [("forwarded", b"for=1.1.1.1".as_slice()), ("x-forwarded-for", b"203.0.113.9")];
        assert_eq!(seen(ForwardedHeader::XForwardedFor, &both), "203.0.113.9");
        assert_eq!(seen(ForwardedHeader::Forwarded, &both), "1.1.1.1");
        assert_eq!(seen(ForwardedHeader::XForwardedFor, &both[..1]), "10.0.0.1");
        assert_eq!(seen(ForwardedHeader::Forwarded, &both[1..]), "10.0.0.1");
    }
}
