//! Artifacts: the files that runs handed out, as downloads that no browser shows by itself.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::file::{Artifact, UNKNOWN_MEDIA_TYPE};
use deskgate_protocol::management::Scope;
use deskgate_protocol::{ArtifactId, RunId};

use super::Api;
use super::error::Error;
use super::files::{FileBytes, content_digest_of};
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::problems::Code;
use super::runs::identifier;
use crate::domain::access::AuthenticatedRequest;

refusals!(
    DownloadRefusals = COMMON_CODES,
    &[Code::NotFound, Code::RunPurged, Code::ArtifactMissing, Code::RangeNotSatisfiable, Code::StorageUnavailable]
);

/// Downloads an artifact.
///
/// The bytes of a file that a run handed out, as its record lists it. They are somebody else's: do not show them to people without a
/// look at what they are. `Range` goes on where a download broke off; `Content-Digest` is that of the whole file. Needs the scope `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run_id}/artifacts/{artifact_id}",
    operation_id = "download_artifact",
    tag = "Runs",
    params(
        ("run_id" = RunId, Path, description = "The run."),
        ("artifact_id" = ArtifactId, Path, description = "The artifact, as the run's record names it."),
        ("Range" = Option<String>, Header, description = "One range of bytes, as `bytes=1000-`."),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of what was read before."),
        ("If-Range" = Option<String>, Header, description = "The `ETag` of what was read before: another file is sent whole."),
    ),
    responses(
        (
            status = 200,
            description = "The bytes.",
            body = FileBytes,
            content_type = "application/octet-stream",
            headers(
                ("ETag" = String, description = "The SHA-256 of the whole file."),
                ("Content-Disposition" = String, description = "Its name."),
                ("Content-Digest" = String, description = "The SHA-256 of the whole file (RFC 9530)."),
            ),
        ),
        (
            status = 206,
            description = "The part that `Range` names.",
            body = FileBytes,
            content_type = "application/octet-stream",
            headers(("Content-Range" = String, description = "Which part it is.")),
        ),
        (status = 304, description = "The file is the one that `If-None-Match` names."),
        DownloadRefusals,
    ),
)]
pub(super) async fn download(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    path: Result<Path<(String, String)>, PathRejection>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let (run_id, artifact_id) = path
        .map(|Path((run, artifact))| (Ok(Path(run)), Ok(Path(artifact))))
        .unwrap_or_else(|_| (Ok(Path(String::new())), Ok(Path(String::new()))));
    let (run_id, artifact_id): (RunId, ArtifactId) = (identifier(run_id)?, identifier(artifact_id)?);
    let artifact = api.artifacts.find(&caller, run_id, artifact_id).await?;
    let etag = format!("\"{}\"", artifact.sha256);
    if headers.get_all(header::IF_NONE_MATCH).iter().any(|sent| names(sent, &etag)) {
        let headers = [(header::ETAG, HeaderValue::from_str(&etag).expect("hexadecimal digits in quotes"))];
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let range = match headers.get(header::IF_RANGE) {
        // A range is defined for GET only.
        _ if method != Method::GET => ByteRange::Whole,
        Some(sent) if sent.as_bytes() != etag.as_bytes() => ByteRange::Whole,
        _ => byte_range(&headers, artifact.size),
    };
    let (status, first, length) = match range {
        ByteRange::Whole => (StatusCode::OK, 0, artifact.size),
        ByteRange::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        ByteRange::Beyond => return Err(Error::range_not_satisfiable(artifact.size)),
    };
    let body = match method {
        Method::HEAD => Body::empty(),
        _ => Body::from_stream(api.artifacts.read(&caller, &artifact, first, length).await?),
    };
    let mut response = (status, body).into_response();
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_LENGTH, length.into());
    answer.insert(header::CONTENT_TYPE, content_type(&artifact));
    answer.insert(header::CONTENT_DISPOSITION, disposition(&artifact.name));
    answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    answer.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.insert(header::ETAG, HeaderValue::from_str(&etag).expect("hexadecimal digits in quotes"));
    answer.insert("repr-digest", content_digest_of(&artifact.sha256));
    if let ByteRange::Part { first, last } = range {
        let text = format!("bytes {first}-{last}/{}", artifact.size);
        answer.insert(header::CONTENT_RANGE, HeaderValue::from_str(&text).expect("digits"));
    } else {
        answer.insert("content-digest", content_digest_of(&artifact.sha256));
    }
    Ok(response)
}

/// Whether an If-None-Match names this validator: a list of them, or `*` (RFC 9110, section 13.1.2).
fn names(sent: &HeaderValue, etag: &str) -> bool {
    let opaque = |text: &str| text.trim().trim_start_matches("W/") == etag;
    sent.to_str().is_ok_and(|sent| sent.trim() == "*" || sent.split(',').any(opaque))
}

/// What a device says the artifact is.
fn content_type(artifact: &Artifact) -> HeaderValue {
    let text = HeaderValue::from_str(&artifact.media_type);
    text.unwrap_or(HeaderValue::from_static(UNKNOWN_MEDIA_TYPE))
}

/// A download under this name (RFC 6266), for clients that read only ASCII too.
fn disposition(name: &str) -> HeaderValue {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%') || c == ' ' { c } else { '_' })
        .collect();
    let encoded: String = name
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    let text = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    HeaderValue::from_str(&text).expect("visible ASCII and spaces")
}

/// What a request asks for of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteRange {
    Whole,
    Part { first: u64, last: u64 },
    Beyond,
}

/// The range that a request names (RFC 9110, section 14.2). One that cannot be read, and several at once, count as none.
fn byte_range(headers: &HeaderMap, size: u64) -> ByteRange {
    let mut sent = headers.get_all(header::RANGE).iter();
    let (Some(only), None) = (sent.next(), sent.next()) else { return ByteRange::Whole };
    let spec = only.to_str().ok().and_then(|text| text.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.and_then(|spec| spec.trim().split_once('-')) else { return ByteRange::Whole };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        // What is too large for a number is beyond every file.
        true if !text.is_empty() => Some(text.parse().unwrap_or(u64::MAX)),
        _ => None,
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => ByteRange::Whole,
        (Some(first), _) if first >= size => ByteRange::Beyond,
        (Some(first), Some(last)) => ByteRange::Part { first, last: last.min(size - 1) },
        (Some(first), None) if last.is_empty() => ByteRange::Part { first, last: size - 1 },
        (None, Some(0)) if first.is_empty() => ByteRange::Beyond,
        (None, Some(_)) if first.is_empty() && size == 0 => ByteRange::Beyond,
        (None, Some(length)) if first.is_empty() => {
            ByteRange::Part { first: size.saturating_sub(length), last: size - 1 }
        }
        _ => ByteRange::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_of_bytes_or_none() {
        let range = |text: &'static str, size| {
            let headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(text))]);
            byte_range(&headers, size)
        };
        let part = |first, last| ByteRange::Part { first, last };
        assert_eq!(range("bytes=0-0", 10), part(0, 0));
        assert_eq!(range("bytes=3-", 10), part(3, 9));
        assert_eq!(range("bytes=3-99", 10), part(3, 9));
        assert_eq!(range("bytes=-4", 10), part(6, 9));
        assert_eq!(range("bytes=-40", 10), part(0, 9));
        for beyond in ["bytes=10-", "bytes=99999999999999999999-", "bytes=-0"] {
            assert_eq!(range(beyond, 10), ByteRange::Beyond, "{beyond}");
        }
        for beyond in ["bytes=0-", "bytes=-1"] {
            assert_eq!(range(beyond, 0), ByteRange::Beyond, "{beyond}");
        }
        for none in ["bytes=5-3", "bytes=0-1,3-4", "items=0-1", "bytes=a-b", "bytes=-", "bytes", "bytes=+1-2"] {
            assert_eq!(range(none, 10), ByteRange::Whole, "{none}");
        }
    }

    #[test]
    fn a_name_is_told_in_ascii_and_in_full() {
        let told = |name: &str| disposition(name).to_str().expect("ASCII").to_owned();
        assert_eq!(told("a b.pdf"), "attachment; filename=\"a b.pdf\"; filename*=UTF-8''a%20b.pdf");
        assert_eq!(
            told("Größe \"%\".csv"),
            "attachment; filename=\"Gr__e ___.csv\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%22%25%22.csv"
        );
    }

    /// Names that somebody chose to do harm, and whether they are taken.
    const NAMES: &[(&str, bool)] = &include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/names/list.rs"));

    #[test]
    fn no_name_leaves_its_place_in_the_header_and_each_is_read_back() {
        for (name, _) in NAMES.iter().filter(|(_, is_taken)| *is_taken) {
            let header = disposition(name);
            let text = header.to_str().expect("visible ASCII");
            let rest = text.strip_prefix("attachment; filename=\"").expect("a quoted text");
            let (plain, rest) = rest.split_once('"').expect("its end");
            assert!(!plain.contains(['\\', '%']) && plain.chars().count() == name.chars().count(), "{text}");
            let encoded = rest.strip_prefix("; filename*=UTF-8''").expect("nothing between the two");
            // RFC 8187, section 3.2.1.
            let is_of_value = |c: char| c.is_ascii_alphanumeric() || "!#$&+-.^_`|~%".contains(c);
            assert!(encoded.chars().all(is_of_value), "{text}");
            let mut pieces = encoded.split('%');
            let mut read = pieces.next().expect("what stands before the first").as_bytes().to_vec();
            for piece in pieces {
                let (byte, plain) = piece.split_at(2);
                read.push(u8::from_str_radix(byte, 16).expect("hexadecimal"));
                read.extend_from_slice(plain.as_bytes());
            }
            assert_eq!(String::from_utf8(read).expect("UTF-8"), *name);
        }
    }
}
