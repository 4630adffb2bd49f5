//! Reads a request's body: within the key's quota, with bounded size, time and depth, as one JSON object.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use deskgate_protocol::canonical::Sha256Digest;
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};

use super::Api;
use super::error::Error;
use super::exact_json;
use crate::domain::access::Caller;
use crate::domain::body_quota::{BodyPermit, MAX_BODY_BYTES};
use crate::domain::refusal::{Flaw, Refusal};

const MAX_JSON_DEPTH: usize = 64;

/// A request's headers, and its body while it arrives. The last extractor of a handler, as it takes both away.
pub(super) struct ReceivedRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl<S: Sync> FromRequest<S> for ReceivedRequest {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        let (parts, body) = request.into_parts();
        Ok(Self { headers: parts.headers, body })
    }
}

/// A body that is not read yet. Its permit is held as long as this is: until the request is answered.
pub(super) struct RequestBody<'a> {
    headers: &'a HeaderMap,
    body: Body,
    /// The time for all of it to arrive.
    time: Duration,
    _room: BodyPermit,
}

impl<'a> RequestBody<'a> {
    /// Refuses the body when its key's quota is used up.
    pub(super) fn of(api: &Api, caller: &Caller, headers: &'a HeaderMap, body: Body) -> Result<Self, Refusal> {
        let bytes = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok());
        let room =
            api.bodies.acquire(caller.key_id(), bytes.map_or(MAX_BODY_BYTES, |bytes| bytes.min(MAX_BODY_BYTES)))?;
        Ok(Self::new(headers, body, api.listener.body, room))
    }

    pub(super) fn new(headers: &'a HeaderMap, body: Body, time: Duration, room: BodyPermit) -> Self {
        Self { headers, body, time, _room: room }
    }

    /// Reads an optional body, as [`Self::members`].
    pub(super) async fn optional_members(
        &mut self,
        allowed: &[&str],
    ) -> Result<(Sha256Digest, Map<String, Value>), Error> {
        if self.body.is_end_stream() && !self.headers.contains_key(header::CONTENT_TYPE) {
            return Ok((Sha256Digest::of(b"{}"), Map::new()));
        }
        self.members(allowed).await
    }

    /// Reads a JSON object, which may have these members only; and the digest of its canonical form.
    pub(super) async fn members(&mut self, allowed: &[&str]) -> Result<(Sha256Digest, Map<String, Value>), Error> {
        let members = object(&self.bytes().await?)?;
        if let Some(unknown) = members.keys().find(|name| !allowed.contains(&name.as_str())) {
            return Err(Error::unknown_field(unknown));
        }
        let value = Value::Object(members);
        let fingerprint =
            Sha256Digest::of_value(&value).map_err(|_| Error::malformed_json("The body has no canonical form."))?;
        let Value::Object(members) = value else { unreachable!("it was made from an object two lines above") };
        Ok((fingerprint, members))
    }

    /// Reads a JSON object with any members.
    pub(super) async fn object(&mut self) -> Result<Map<String, Value>, Error> {
        object(&self.bytes().await?)
    }

    async fn bytes(&mut self) -> Result<bytes::Bytes, Error> {
        bytes(self.headers, &mut self.body, self.time, MAX_BODY_BYTES).await
    }
}

/// The bytes of a body that is declared as JSON: at most `limit` of them, and all within `time`.
pub(super) async fn bytes(
    headers: &HeaderMap,
    body: &mut Body,
    time: Duration,
    limit: usize,
) -> Result<bytes::Bytes, Error> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| !is_identity(coding)) {
        return Err(Error::unsupported_content_encoding());
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (_, Some(_)) => return Err(Error::content_type_repeated()),
        (Some(only), None) if is_json(only) => {}
        _ => return Err(Error::unsupported_media_type()),
    }
    let too_large = Error::payload_too_large(limit);
    let announced = headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large);
    }
    match tokio::time::timeout(time, Limited::new(body, limit).collect()).await {
        Err(_) => Err(Error::body_timeout(time.as_secs())),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large),
        Ok(Err(_)) => Err(Error::malformed_json("The body ended before it was complete.")),
    }
}

/// Whether a Content-Encoding says that nothing was done to the body.
pub(super) fn is_identity(coding: &HeaderValue) -> bool {
    coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
}

fn is_json(kind: &HeaderValue) -> bool {
    let essence = kind.to_str().ok().and_then(|text| text.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Parses a body as a JSON object.
fn object(bytes: &[u8]) -> Result<Map<String, Value>, Error> {
    if depth(bytes) > MAX_JSON_DEPTH {
        return Err(Error::malformed_json(format!("The body is nested deeper than {MAX_JSON_DEPTH} levels.")));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => match exact_json::flaws(bytes) {
            flaws if flaws.is_empty() => Ok(members),
            flaws => Err(Refusal::Invalid(flaws).into()),
        },
        Ok(_) => Err(Refusal::Invalid(vec![Flaw::new("", "wrong_type", "a JSON object")]).into()),
        Err(error) => Err(Error::malformed_json(format!(
            "The body is not JSON: it breaks off or errs at line {}, column {}.",
            error.line(),
            error.column()
        ))),
    }
}

/// How deep a JSON text is nested, without building it.
fn depth(json: &[u8]) -> usize {
    let (mut deepest, mut depth, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        assert_eq!(depth(br#"{"a":[[1]],"b":"[[[[\"[["}"#), 3);
        assert_eq!(depth("]]]]".as_bytes()), 0);
    }
}
