//! The request rate of each key: so many a second, and a burst above that.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use governor::clock::DefaultClock;
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};

/// The rate of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Requests a second, in the long run.
    pub per_second: NonZeroU32,
    /// Requests at once, after a pause.
    pub burst: NonZeroU32,
}

impl Default for Rate {
    fn default() -> Self {
        const DEFAULT_RATE_PER_SECOND: NonZeroU32 = NonZeroU32::new(50).expect("not zero");
        const DEFAULT_BURST: NonZeroU32 = NonZeroU32::new(200).expect("not zero");
        Self { per_second: DEFAULT_RATE_PER_SECOND, burst: DEFAULT_BURST }
    }
}

/// The rate limit's status after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStatus {
    /// Whether the request was still within the rate.
    pub within: bool,
    /// Requests that may follow at once.
    pub remaining: u32,
    /// The rate.
    pub rate: Rate,
}

impl RateStatus {
    /// Seconds after which an idle key has its whole burst again.
    pub fn full_after_s(&self) -> u32 {
        (self.rate.burst.get() - self.remaining).div_ceil(self.rate.per_second.get())
    }
}

impl Rate {
    /// The rate of a webhook: so many events a second, and a burst of a few seconds' worth.
    pub fn of_webhook(per_second: u32) -> Self {
        let per_second = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        Self { per_second, burst: per_second.saturating_mul(WEBHOOK_BURST_S) }
    }
}

/// Seconds' worth of events that may come at once.
const WEBHOOK_BURST_S: NonZeroU32 = NonZeroU32::new(4).expect("not zero");

type Limiter<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>;

/// Requests after which keys that were idle for long are removed.
const CLEANUP_INTERVAL_REQUESTS: u32 = 1 << 16;

/// Counts the requests of every key on this replica.
#[derive(Clone)]
pub struct Rates<K: Hash + Eq + Clone> {
    rate: Rate,
    limiter: Arc<Limiter<K>>,
    counted: Arc<AtomicU32>,
}

impl<K: Hash + Eq + Clone> Rates<K> {
    /// The same rate for every key.
    pub fn new(rate: Rate) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        let limiter = RateLimiter::keyed(quota).with_middleware::<StateInformationMiddleware>();
        Self { rate, limiter: Arc::new(limiter), counted: Arc::default() }
    }

    /// Counts one request of a key that was found valid.
    pub fn count(&self, key: K) -> RateStatus {
        if self.counted.fetch_add(1, Ordering::Relaxed) % CLEANUP_INTERVAL_REQUESTS == CLEANUP_INTERVAL_REQUESTS - 1 {
            self.limiter.retain_recent();
        }
        let outcome = self.limiter.check_key(&key);
        let remaining = outcome.as_ref().map_or(0, |state| state.remaining_burst_capacity());
        RateStatus { within: outcome.is_ok(), remaining, rate: self.rate }
    }
}

/// Counts the requests of keys that have different rates.
#[derive(Clone)]
pub struct RatesByRate<K: Hash + Eq + Clone>(Arc<Mutex<HashMap<Rate, Rates<K>>>>);

impl<K: Hash + Eq + Clone> Default for RatesByRate<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Hash + Eq + Clone> RatesByRate<K> {
    /// Counts one request of a key with its current rate. A changed rate begins a new count.
    pub fn count(&self, rate: Rate, key: K) -> RateStatus {
        let rates = {
            // No code panics while it holds the lock, and there are few rates.
            let mut by_rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            by_rate.entry(rate).or_insert_with(|| Rates::new(rate)).clone()
        };
        rates.count(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::KeyId;

    #[test]
    fn each_key_has_a_burst_of_its_own() {
        let rate = Rate { per_second: NonZeroU32::MIN, burst: NonZeroU32::new(3).unwrap() };
        let (rates, key, other) = (Rates::new(rate), KeyId::new(), KeyId::new());
        let standings: Vec<_> = (0..4).map(|_| rates.count(key)).collect();
        let shown = |standing: &RateStatus| (standing.within, standing.remaining, standing.full_after_s());
        let expected = [(true, 2, 1), (true, 1, 2), (true, 0, 3), (false, 0, 3)];
        assert_eq!(standings.iter().map(shown).collect::<Vec<_>>(), expected);
        assert!(rates.count(other).within);
    }
}
