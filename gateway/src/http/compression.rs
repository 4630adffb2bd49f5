//! Answers as gzip (RFC 9110, section 8.4.1.3), where the caller asks for it and there is something to gain.
//!
//! Streams are never compressed, since an event must arrive when it happens, and refusals are not either, since they
//! repeat what was sent. Why it betrays nothing of the rest stands in docs/security.md.

use std::io::Write;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Shorter answers fit into one packet as they are.
const MIN_BYTES: u64 = 1024;
/// Longer ones are compressed beside the tasks that answer others.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// The types that are compressed.
const TYPES: [&str; 3] = ["application/json", "text/html", "text/css"];

/// Whether a caller asks for gzip by its name.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_gzip && quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|quality| quality > 0.0))
    })
}

/// Compresses an answer that was asked for so, if it is long enough and of a known length.
pub(super) async fn compress(mut response: Response, is_asked_for: bool) -> Response {
    let is_long = response.body().size_hint().exact().is_some_and(|bytes| bytes > MIN_BYTES);
    if !is_long || !is_compressible(response.headers()) {
        return response;
    }
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !is_asked_for {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let plain = to_bytes(body, usize::MAX).await.expect("a body of known length is in memory");
    let packed = if plain.len() > MAX_INLINE_BYTES {
        let plain = plain.clone();
        tokio::task::spawn_blocking(move || gzip(&plain)).await.unwrap_or_default()
    } else {
        gzip(&plain)
    };
    if packed.is_empty() || packed.len() >= plain.len() {
        return Response::from_parts(parts, Body::from(plain));
    }
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(packed))
}

fn is_compressible(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()?.split(';').next());
    kind.is_some_and(|kind| TYPES.contains(&kind.trim())) && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Empty if it cannot be done.
fn gzip(plain: &Bytes) -> Vec<u8> {
    // Most of the gain for a tenth of the time that the last bit takes.
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_name_it() {
        for (sent, expected) in [
            ("gzip", true),
            ("GZIP;q=0.5", true),
            ("br, gzip ; q=1.0", true),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("*", false),
            ("identity", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, sent.parse().expect("visible"));
            assert_eq!(is_asked_for(&headers), expected, "{sent}");
        }
        assert!(!is_asked_for(&HeaderMap::new()));
    }
}
