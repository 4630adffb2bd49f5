//! Limits on connections that have not yet proved a key.
//!
//! Everything here happens before a byte is read, so an attacker's cost is a TCP connection and ours is a look-up in a
//! table.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::TunnelConfig;

/// The source that limits are counted for: an IPv4 address, or the /64 that one IPv6 subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerSource(IpAddr);

impl PeerSource {
    pub(super) fn of(peer: SocketAddr) -> Self {
        Self(match peer.ip().to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

/// Why a connection is closed before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// The source connects too often.
    TooFast,
    /// The source has too many connections that have not proved a key.
    TooManyFromSource,
}

/// The limiter's tables.
pub(super) struct ConnectionLimiter {
    per_source: usize,
    in_all: usize,
    per_second: f64,
    book: Mutex<LimiterState>,
}

#[derive(Default)]
struct LimiterState {
    sources: HashMap<PeerSource, SourceState>,
    /// By order of arrival, so that the first is the oldest.
    waiting: BTreeMap<u64, CancellationToken>,
    next: u64,
}

/// The state of one source: a token bucket for its rate, and its unauthenticated connections.
struct SourceState {
    waiting: usize,
    tokens: f64,
    filled: Instant,
}

/// The most sources before irrelevant ones are removed.
const MAX_SOURCES_BEFORE_SWEEP: usize = 1024;

impl ConnectionLimiter {
    pub(super) fn new(config: &TunnelConfig) -> Arc<Self> {
        Arc::new(Self {
            per_source: config.max_unauthenticated_per_source,
            in_all: config.max_unauthenticated,
            per_second: f64::from(config.accepts_per_second_per_source),
            book: Mutex::default(),
        })
    }

    /// Lets a connection wait for its authentication, or refuses it. `cut` is cancelled if the connection has to give
    /// way later.
    ///
    /// When the limit in all is reached, the oldest waiting connection gives way to the newest: a device proves its key
    /// within milliseconds, so it gets through while attackers who only hold connections open push out one another.
    pub(super) fn admit(
        self: &Arc<Self>,
        source: PeerSource,
        cut: &CancellationToken,
        now: Instant,
    ) -> Result<PendingPermit, LimitExceeded> {
        let mut book = self.book();
        if book.sources.len() >= MAX_SOURCES_BEFORE_SWEEP {
            book.sources.retain(|_, standing| standing.waiting > 0 || !standing.is_full(self.per_second, now));
        }
        let standing =
            book.sources.entry(source).or_insert(SourceState { waiting: 0, tokens: self.per_second, filled: now });
        if !standing.take(self.per_second, now) {
            return Err(LimitExceeded::TooFast);
        }
        if standing.waiting >= self.per_source {
            return Err(LimitExceeded::TooManyFromSource);
        }
        standing.waiting += 1;
        if book.waiting.len() >= self.in_all
            && let Some((_, oldest)) = book.waiting.pop_first()
        {
            oldest.cancel();
        }
        let number = book.next;
        book.next += 1;
        book.waiting.insert(number, cut.clone());
        Ok(PendingPermit { gate: Arc::clone(self), source, number })
    }

    fn book(&self) -> MutexGuard<'_, LimiterState> {
        // The tables are consistent between any two statements, so a panic elsewhere does not break them.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceState {
    fn refilled(&self, per_second: f64, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        (self.tokens + passed * per_second).min(per_second)
    }

    fn is_full(&self, per_second: f64, now: Instant) -> bool {
        self.refilled(per_second, now) >= per_second
    }

    fn take(&mut self, per_second: f64, now: Instant) -> bool {
        self.tokens = self.refilled(per_second, now);
        self.filled = now;
        let allowed = self.tokens >= 1.0;
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

impl std::fmt::Debug for PendingPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({}, {:?})", self.number, self.source)
    }
}

/// A connection that has not yet proved a key. Dropping it, by then or because the connection ended, releases its slot.
pub(super) struct PendingPermit {
    gate: Arc<ConnectionLimiter>,
    source: PeerSource,
    number: u64,
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        let mut book = self.gate.book();
        book.waiting.remove(&self.number);
        if let Some(standing) = book.sources.get_mut(&self.source) {
            standing.waiting = standing.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn source(text: &str) -> PeerSource {
        PeerSource::of(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    fn gate(in_all: usize, per_source: usize, per_second: u32) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(&TunnelConfig {
            max_unauthenticated: in_all,
            max_unauthenticated_per_source: per_source,
            accepts_per_second_per_source: per_second,
            ..TunnelConfig::new("x")
        })
    }

    #[test]
    fn a_mapped_address_is_its_ipv4_source_and_ipv6_counts_per_64() {
        assert_eq!(source("::ffff:192.0.2.7"), source("192.0.2.7"));
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_ne!(source("192.0.2.7"), source("192.0.2.8"));
    }

    #[test]
    fn the_fifth_of_one_source_is_turned_away_until_one_leaves() {
        let (gate, now, cut) = (gate(64, 4, 19), Instant::now(), CancellationToken::new());
        let mut held: Vec<_> = (0..4).map(|_| gate.admit(source("192.0.2.1"), &cut, now).expect("has room")).collect();
        assert_eq!(gate.admit(source("192.0.2.1"), &cut, now).err(), Some(LimitExceeded::TooManyFromSource));
        assert!(gate.admit(source("192.0.2.2"), &cut, now).is_ok(), "another source is not concerned");
        held.pop();
        assert!(gate.admit(source("192.0.2.1"), &cut, now).is_ok());
    }

    #[test]
    fn a_source_that_connects_too_fast_is_slowed_down_and_no_other_is() {
        let (gate, now, cut) = (gate(64, 4, 5), Instant::now(), CancellationToken::new());
        let knock = |who: &str, at: Instant| gate.admit(source(who), &cut, at).map(drop);
        assert!((0..5).all(|_| knock("192.0.2.1", now).is_ok()));
        assert_eq!(knock("192.0.2.1", now), Err(LimitExceeded::TooFast));
        assert_eq!(knock("192.0.2.2", now), Ok(()));
        assert_eq!(knock("192.0.2.1", now + Duration::from_millis(210)), Ok(()));
        assert_eq!(knock("192.0.2.1", now + Duration::from_millis(210)), Err(LimitExceeded::TooFast));
    }

    #[test]
    fn when_all_places_are_taken_the_oldest_makes_room_for_the_newest() {
        let (gate, now) = (gate(3, 4, 5), Instant::now());
        let enter = |n: u8| {
            let cut = CancellationToken::new();
            (gate.admit(source(&format!("192.0.2.{n}")), &cut, now).expect("always let in"), cut)
        };
        let crowd: Vec<_> = (1..=5).map(enter).collect();
        assert_eq!(
            crowd.iter().map(|(_, cut)| cut.is_cancelled()).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
        drop(crowd);
        assert!(gate.book().waiting.is_empty());
        assert!(gate.book().sources.values().all(|standing| standing.waiting == 0));
    }

    #[test]
    fn sources_that_no_longer_matter_are_forgotten() {
        let (gate, now, cut) = (gate(64, 4, 5), Instant::now(), CancellationToken::new());
        for n in 0..MAX_SOURCES_BEFORE_SWEEP {
            let address = format!("2001:db8:{n:x}::1");
            gate.admit(source(&address), &cut, now).map(drop).expect("let in");
        }
        gate.admit(source("192.0.2.1"), &cut, now + Duration::from_secs(2)).map(drop).expect("let in");
        assert_eq!(gate.book().sources.len(), 1);
    }
}
