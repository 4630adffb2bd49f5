//! Which pages of browsers may ask: none but those of the computer that the gateway itself runs on.
//!
//! A page of any site can have a browser send requests to addresses that the site does not know, by a name that it points there (DNS
//! rebinding). Such a request says the page's origin. Programs other than browsers send none.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

use crate::http::Api;
use crate::http::error::Error;

/// A request of no page, or of one that may ask.
pub(super) struct AllowedOrigin;

impl FromRequestParts<Arc<Api>> for AllowedOrigin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, Error> {
        if is_allowed(&parts.headers, parts.uri.authority()) { Ok(Self) } else { Err(Error::origin_not_allowed()) }
    }
}

fn is_allowed(headers: &HeaderMap, authority: Option<&Authority>) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return !headers.contains_key(header::ORIGIN) };
    let origin: Option<Uri> = origin.to_str().ok().and_then(|text| text.parse().ok());
    let host: Option<Authority> = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    // HTTP/2 has another place for it.
    let host = host.or_else(|| authority.cloned());
    let is_local = |host: &str| matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let origin = origin.as_ref().and_then(|origin| origin.host());
    origin.is_some_and(is_local) && host.is_some_and(|host| is_local(host.host()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_a_site_may_not_ask() {
        let allowed = |host: &str, origins: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("visible"));
            for origin in origins {
                headers.append(header::ORIGIN, origin.parse().expect("visible"));
            }
            is_allowed(&headers, None)
        };
        assert!(allowed("gateway.example", &[]));
        assert!(allowed("localhost:8484", &["http://localhost:6274"]) && allowed("127.0.0.1:8484", &["http://[::1]"]));
        for (host, origin) in [
            ("evil.example", "http://evil.example"),
            ("evil.example", "http://localhost:6274"),
            ("localhost:8484", "http://evil.example"),
            ("localhost:8484", "null"),
            ("localhost:8484", "http://localhost.evil.example"),
            ("gateway.example", "https://gateway.example"),
        ] {
            assert!(!allowed(host, &[origin]), "{host} {origin}");
        }
        assert!(!allowed("localhost", &["http://localhost", "http://localhost"]));
    }
}
