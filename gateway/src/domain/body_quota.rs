//! Limits the bodies of each key that are read and processed at once, by number and bytes.
//!
//! The rate is checked last, so that a replay finds its run whatever the rate is. The cost of a key beyond its rate is
//! limited here, before any of a body is read.

use deskgate_protocol::KeyId;

use super::CallerLimits;
use super::quota::{Quota, QuotaPermit};
use super::refusal::Refusal;

/// The largest body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The most bytes of an input's text.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;

/// The quota for bodies on this replica.
#[derive(Clone, Debug)]
pub struct BodyQuota {
    requests: Quota<KeyId>,
    bytes: Quota<KeyId>,
}

/// A permit for one body, until it is dropped.
#[derive(Debug)]
pub struct BodyPermit {
    _request: QuotaPermit<KeyId>,
    _bytes: QuotaPermit<KeyId>,
}

impl BodyQuota {
    /// Creates the quota, with the same limits for every key.
    pub fn new(limits: &CallerLimits) -> Self {
        let (requests, bytes) = (limits.bodies_per_key, limits.body_bytes_per_key);
        Self { requests: Quota::new(requests), bytes: Quota::new(bytes) }
    }

    /// A permit for a body of at most so many bytes.
    ///
    /// # Errors
    /// [`Refusal::TooManyBodies`] while the key's other bodies take too much of the quota.
    pub fn acquire(&self, key_id: KeyId, bytes: usize) -> Result<BodyPermit, Refusal> {
        let room = || {
            Some(BodyPermit {
                _request: self.requests.acquire(key_id)?,
                _bytes: self.bytes.acquire_many(key_id, bytes)?,
            })
        };
        room().ok_or(Refusal::TooManyBodies)
    }
}
