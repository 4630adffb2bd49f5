//! Limits attempts of one source without a good key: so many a minute, and as many at once.
//!
//! Any text of the right form costs a database query to find that it is unknown. So a source that failed too often is
//! refused before that. It gets one attempt more with every part of a minute that passes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::refusal::Refusal;
use crate::networks::source;

/// The most sources that are tracked. A client with more addresses than that is limited by connections, not here.
const MAX_TRACKED_SOURCES: usize = 10_000;

/// The failures of every source on this replica.
#[derive(Clone, Debug)]
pub(super) struct AuthFailures {
    per_minute: f64,
    sources: Arc<Mutex<HashMap<IpAddr, FailureCount>>>,
}

/// The failures of a source, less those that time has forgiven.
#[derive(Clone, Copy, Debug)]
struct FailureCount {
    times: f64,
    counted: Instant,
}

/// An attempt that counts as failed until it is forgiven, so that parallel attempts are limited too.
#[derive(Debug)]
pub(super) struct PendingFailure {
    failures: AuthFailures,
    source: IpAddr,
}

impl AuthFailures {
    /// Creates the counter, with the same limit for every source.
    pub(super) fn new(per_minute: NonZeroU32) -> Self {
        Self { per_minute: f64::from(per_minute.get()), sources: Arc::default() }
    }

    /// Counts one more attempt of a source; refused when it failed too often.
    pub(super) fn begin(&self, from: IpAddr) -> Result<PendingFailure, Refusal> {
        let (source, now) = (source(from), Instant::now());
        let mut sources = self.lock();
        if sources.len() >= MAX_TRACKED_SOURCES && !sources.contains_key(&source) {
            sources.retain(|_, failed| self.left(*failed, now) > 0.0);
            if sources.len() >= MAX_TRACKED_SOURCES {
                sources.clear();
            }
        }
        let before = sources.get(&source).map_or(0.0, |failed| self.left(*failed, now));
        if before + 1.0 > self.per_minute {
            return Err(Refusal::TooManyFailures);
        }
        sources.insert(source, FailureCount { times: before + 1.0, counted: now });
        Ok(PendingFailure { failures: self.clone(), source })
    }

    /// The failures that time has not forgiven yet.
    fn left(&self, failed: FailureCount, now: Instant) -> f64 {
        let forgiven = now.saturating_duration_since(failed.counted).as_secs_f64() * self.per_minute / 60.0;
        (failed.times - forgiven).max(0.0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, FailureCount>> {
        // No code panics while it holds the lock.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingFailure {
    /// Takes back the failure.
    pub(super) fn forgive(self) {
        if let Some(failed) = self.failures.lock().get_mut(&self.source) {
            failed.times = (failed.times - 1.0).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn failures(per_minute: u32) -> AuthFailures {
        AuthFailures::new(NonZeroU32::new(per_minute).unwrap())
    }

    #[test]
    fn a_source_that_failed_too_often_is_refused_and_others_are_not() {
        let failures = failures(2);
        let here = "2001:db8::1".parse().unwrap();
        assert!(failures.begin(here).is_ok());
        failures.begin(here).unwrap().forgive();
        assert!(failures.begin(here).is_ok() && failures.begin(here).is_err(), "what was forgiven does not count");
        assert!(failures.begin("2001:db8::2".parse().unwrap()).is_err(), "its neighbours are the same source");
        assert!(failures.begin("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }

    #[test]
    fn time_forgives() {
        let failures = failures(60);
        let now = Instant::now();
        let failed = FailureCount { times: 60.0, counted: now };
        for (seconds, left) in [(0, 60.0), (1, 59.0), (60, 0.0), (600, 0.0)] {
            assert_eq!(failures.left(failed, now + Duration::from_secs(seconds)), left);
        }
    }

    #[test]
    fn so_many_sources_are_remembered_and_no_more() {
        let failures = failures(1);
        for address in 0..u32::try_from(MAX_TRACKED_SOURCES).unwrap() + 100 {
            assert!(failures.begin(IpAddr::V4(address.into())).is_ok());
            assert!(failures.lock().len() <= MAX_TRACKED_SOURCES);
        }
    }
}
