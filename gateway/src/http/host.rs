//! The host that a request is for (RFC 9112, section 3.2; RFC 9113, section 8.3.1).
//!
//! The gateway serves every host alike. But a proxy may choose by it, so one that can be read in two ways is refused: what
//! is before the gateway and the gateway itself must not see different requests.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Version, header};

/// What is wrong with the header Host; `None`: nothing.
pub(super) fn host_flaw(request: &Request) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Some("The header Host was sent more than once."),
        (Some(host), None) => host,
        // HTTP/1.0 did not have it, and HTTP/2 has another place for it.
        (None, None) if request.version() == Version::HTTP_11 => return Some("The header Host is missing."),
        (None, None) => return None,
    };
    let Some(host) = authority(host) else {
        return Some("The header Host is not the name or address of a host, with or without a port.");
    };
    match request.uri().authority() {
        Some(named) if request.version() == Version::HTTP_2 && *named != host => {
            Some("The header Host names another host than :authority.")
        }
        _ => None,
    }
}

/// A host with an optional port.
fn authority(value: &HeaderValue) -> Option<Authority> {
    let authority: Authority = value.to_str().ok()?.parse().ok()?;
    let (host, text) = (authority.host(), authority.as_str());
    let port = text.strip_prefix(host).filter(|_| !host.is_empty())?;
    let is_port = match port.strip_prefix(':') {
        // A port may be empty.
        Some(digits) => {
            digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.is_empty() || digits.parse::<u16>().is_ok())
        }
        None => port.is_empty(),
    };
    is_port.then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn flaw(version: Version, uri: &str, hosts: &[&[u8]]) -> Option<&'static str> {
        let mut request = axum::http::Request::get(uri).version(version).body(Body::empty()).expect("a request");
        for host in hosts {
            request.headers_mut().append(header::HOST, HeaderValue::from_bytes(host).expect("a value"));
        }
        host_flaw(&request)
    }

    #[test]
    fn exactly_one_host_is_taken_and_only_where_one_is_owed() {
        for host in ["x", "gateway.example.com:8484", "127.0.0.1", "[::1]:443", "[2001:db8::1]", "x_y", "x:"] {
            assert_eq!(flaw(Version::HTTP_11, "/", &[host.as_bytes()]), None, "{host}");
        }
        for host in
            ["", " ", "a b", "a/b", "a@b", "u:p@b", "a:b", "a:70000", "a:1:2", "http://a", "a, b", "[::1", "\u{e9}"]
        {
            assert!(flaw(Version::HTTP_11, "/", &[host.as_bytes()]).is_some(), "{host:?}");
        }
        assert_eq!(flaw(Version::HTTP_11, "/", &[]), Some("The header Host is missing."));
        assert_eq!(flaw(Version::HTTP_11, "/", &[b"a", b"a"]), Some("The header Host was sent more than once."));
        assert_eq!(flaw(Version::HTTP_10, "/", &[]), None);
        assert!(flaw(Version::HTTP_10, "/", &[b"a", b"b"]).is_some());
        assert_eq!(flaw(Version::HTTP_2, "http://a/", &[]), None);
        assert_eq!(flaw(Version::HTTP_2, "http://a/", &[b"A"]), None);
        assert!(flaw(Version::HTTP_2, "http://a/", &[b"b"]).is_some());
        // A proxy's whole target counts instead of the header (RFC 9112, section 3.2.2).
        assert_eq!(flaw(Version::HTTP_11, "http://a/", &[b"b"]), None);
    }
}
