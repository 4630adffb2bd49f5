//! The rate limit's status in the headers of every answer: `RateLimit` and `RateLimit-Policy` as in
//! draft-ietf-httpapi-ratelimit-headers-11.

use std::sync::{Arc, OnceLock};

use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};

use crate::domain::rates::RateStatus;

const RATE_LIMIT_HEADER: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY_HEADER: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The slot in which the extractor that counts a request stores the status, for the answer.
#[derive(Clone, Debug, Default)]
pub(super) struct RateLimitSlot(Arc<OnceLock<(&'static str, RateStatus)>>);

impl RateLimitSlot {
    /// Adds an empty slot to a request.
    pub(super) fn with(extensions: &mut Extensions) -> Self {
        let note = Self::default();
        extensions.insert(note.clone());
        note
    }

    /// Stores the status of the key. A request is counted once.
    pub(super) fn leave(extensions: &Extensions, standing: RateStatus) {
        if let Some(note) = extensions.get::<Self>() {
            note.say("key", standing);
        }
    }

    /// Stores the status of something else than a key.
    pub(super) fn say(&self, what: &'static str, standing: RateStatus) {
        let _ = self.0.set((what, standing));
    }

    /// Writes the headers, if the request was counted.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        let Some((what, standing)) = self.0.get() else { return };
        let (burst, per_second) = (standing.rate.burst.get(), standing.rate.per_second.get());
        let window = burst.div_ceil(per_second);
        let (remaining, reset) = (standing.remaining, standing.full_after_s());
        headers.insert(RATE_LIMIT_POLICY_HEADER, value(&format!("\"{what}\";q={burst};w={window}")));
        headers.insert(RATE_LIMIT_HEADER, value(&format!("\"{what}\";r={remaining};t={reset}")));
    }
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("visible ASCII characters")
}
