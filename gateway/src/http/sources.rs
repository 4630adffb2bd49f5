//! The number of connections, or requests through a proxy, that each source has under way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::networks::source;

/// The sources of one listener.
#[derive(Clone)]
pub(super) struct SourceQuota {
    limit: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl SourceQuota {
    /// Sources that may have `limit` each.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, counts: Arc::default() }
    }

    /// One more permit; `None` when the source has the most it may.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<SourcePermit> {
        let source = source(address);
        let mut counts = self.lock();
        let count = counts.entry(source).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(SourcePermit { sources: self.clone(), source })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // No code panics while it holds the lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit that counts until it is dropped.
pub(super) struct SourcePermit {
    sources: SourceQuota,
    source: IpAddr,
}

impl Drop for SourcePermit {
    fn drop(&mut self) {
        let mut counts = self.sources.lock();
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}
