//! Limits on connections that have not yet proved a key.
//!
//! Everything here happens before a byte is read, so an attacker's cost is a TCP connection and ours is a look-up in a
//! table.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::identity::PublicKey;
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

/// The source connects too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its source connects too often")]
pub(super) struct TooFast;

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
    waiting: BTreeMap<u64, (PeerSource, CancellationToken)>,
    next: u64,
}

/// The state of one source: a token bucket for its rate, its unauthenticated connections, and the keys that it proved.
struct SourceState {
    waiting: usize,
    tokens: f64,
    filled: Instant,
    proved: HashMap<PublicKey, Instant>,
}

/// What a source may connect at once, beside one for each key that it proved: a first time, and after a rest. So scanners
/// that count connections come to hardly more than the rate; ssh-audit wants fewer than 20 a second in a second and a half.
const MAX_BURST: f64 = 4.0;
/// How long a paired key counts for the source that it came from.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// The most keys that are remembered of one source.
const MAX_KEYS_OF_SOURCE: usize = 4096;
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
    /// At a limit, of the source or in all, the oldest waiting connection gives way to the newest: a device proves its
    /// key within a second, so it gets through while attackers who only hold connections open push out one another.
    /// Behind one address there may be many devices, and an attacker: for each key that was proved from there lately,
    /// the source has one place and one connection a second more.
    pub(super) fn admit(
        self: &Arc<Self>,
        source: PeerSource,
        cut: &CancellationToken,
        now: Instant,
    ) -> Result<PendingPermit, TooFast> {
        let mut book = self.book();
        if book.sources.len() >= MAX_SOURCES_BEFORE_SWEEP {
            book.sources.retain(|_, standing| standing.matters(self.per_second, now));
        }
        let standing = book.sources.entry(source).or_insert_with(|| SourceState {
            waiting: 0,
            tokens: self.per_second.min(MAX_BURST),
            filled: now,
            proved: HashMap::new(),
        });
        if !standing.take(self.per_second, now) {
            return Err(TooFast);
        }
        if standing.waiting >= self.per_source + standing.proved.len() {
            book.push_out(|of| of == source);
        }
        if book.waiting.len() >= self.in_all {
            book.push_out(|_| true);
        }
        let number = book.next;
        book.next += 1;
        book.waiting.insert(number, (source, cut.clone()));
        book.sources.entry(source).and_modify(|standing| standing.waiting += 1);
        Ok(PendingPermit { gate: Arc::clone(self), source, number })
    }

    fn book(&self) -> MutexGuard<'_, LimiterState> {
        // The tables are consistent between any two statements, so a panic elsewhere does not break them.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimiterState {
    /// Ends the oldest waiting connection of such a source.
    fn push_out(&mut self, concerns: impl Fn(PeerSource) -> bool) {
        let oldest = self.waiting.iter().find(|(_, (source, _))| concerns(*source)).map(|(number, _)| *number);
        if let Some((_, cut)) = oldest.and_then(|number| self.leave(number)) {
            cut.cancel();
        }
    }

    /// A connection waits no longer.
    fn leave(&mut self, number: u64) -> Option<(PeerSource, CancellationToken)> {
        let left = self.waiting.remove(&number)?;
        if let Some(standing) = self.sources.get_mut(&left.0) {
            standing.waiting = standing.waiting.saturating_sub(1);
        }
        Some(left)
    }
}

impl SourceState {
    /// Connections a second.
    fn rate(&self, per_second: f64) -> f64 {
        per_second + self.proved.len() as f64
    }

    /// Connections at once.
    fn burst(&self, per_second: f64) -> f64 {
        per_second.min(MAX_BURST) + self.proved.len() as f64
    }

    fn refilled(&self, per_second: f64, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        (self.tokens + passed * self.rate(per_second)).min(self.burst(per_second))
    }

    /// Whether forgetting the source would change anything for it.
    fn matters(&mut self, per_second: f64, now: Instant) -> bool {
        self.forget_old_keys(now);
        self.waiting > 0 || !self.proved.is_empty() || self.refilled(per_second, now) < self.burst(per_second)
    }

    fn forget_old_keys(&mut self, now: Instant) {
        self.proved.retain(|_, proved| now.saturating_duration_since(*proved) < KNOWN_FOR);
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

impl PendingPermit {
    /// The connection proved a paired key, and waits no longer.
    pub(super) fn proved(self, key: PublicKey, now: Instant) {
        let mut book = self.gate.book();
        let Some(standing) = book.sources.get_mut(&self.source) else { return };
        standing.forget_old_keys(now);
        let is_first = !standing.proved.contains_key(&key);
        if is_first && standing.proved.len() >= MAX_KEYS_OF_SOURCE {
            return;
        }
        standing.proved.insert(key, now);
        // Others of its place may come right behind it.
        standing.tokens += f64::from(u8::from(is_first));
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        self.gate.book().leave(self.number);
    }
}

#[cfg(test)]
mod tests {
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
    fn at_a_sources_limit_its_oldest_connection_makes_room_and_no_others() {
        let (gate, now) = (gate(64, 4, 19), Instant::now());
        let enter = |from: &str, second: u64| {
            let cut = CancellationToken::new();
            (gate.admit(source(from), &cut, now + Duration::from_secs(second)).expect("always let in"), cut)
        };
        let other = enter("192.0.2.2", 0);
        let crowd: Vec<_> = (0..6).map(|second| enter("192.0.2.1", second)).collect();
        let cut: Vec<_> = crowd.iter().map(|(_, cut)| cut.is_cancelled()).collect();
        assert_eq!((cut, other.1.is_cancelled()), (vec![true, true, false, false, false, false], false));
        // What was pushed out leaves once, and not for another.
        drop(crowd);
        assert_eq!(gate.book().waiting.len(), 1);
    }

    #[test]
    fn a_source_with_devices_has_a_place_and_a_connection_a_second_for_each() {
        let (gate, now) = (gate(64, 1, 2), Instant::now());
        let enter = |at: Instant| {
            let cut = CancellationToken::new();
            gate.admit(source("192.0.2.1"), &cut, at).map(|permit| (permit, cut))
        };
        let key = |number: u8| PublicKey::from_bytes([number; 32]);
        // Ten devices come one after the other.
        for number in 0..10 {
            enter(now + Duration::from_secs(u64::from(number))).expect("within the rate").0.proved(key(number), now);
        }
        // After a blackout they come back together, past somebody who holds connections open.
        let later = now + Duration::from_secs(60);
        let all: Vec<_> = (0..12).map(|_| enter(later).expect("two, and one for each device")).collect();
        assert_eq!(all.iter().filter(|(_, cut)| cut.is_cancelled()).count(), 1, "one place, and one for each device");
        assert!(enter(later).is_err());
        drop(all);
        // A day later nothing is left of them.
        let next_day = now + KNOWN_FOR + Duration::from_secs(60);
        enter(next_day).expect("the bucket is full").0.proved(key(1), next_day);
        assert_eq!(gate.book().sources[&source("192.0.2.1")].proved.len(), 1);
    }

    #[test]
    fn a_source_that_connects_too_fast_is_slowed_down_and_no_other_is() {
        let (gate, now, cut) = (gate(64, 4, 5), Instant::now(), CancellationToken::new());
        let knock = |who: &str, at: Instant| gate.admit(source(who), &cut, at).map(drop);
        assert!((0..4).all(|_| knock("192.0.2.1", now).is_ok()), "at first four");
        assert_eq!(knock("192.0.2.1", now), Err(TooFast));
        assert_eq!(knock("192.0.2.2", now), Ok(()));
        assert_eq!(knock("192.0.2.1", now + Duration::from_millis(210)), Ok(()));
        assert_eq!(knock("192.0.2.1", now + Duration::from_millis(210)), Err(TooFast));
    }

    #[test]
    fn a_scanner_counts_fewer_than_twenty_connections_a_second_at_first_and_after_a_rest() {
        let config = TunnelConfig::new("x");
        let (gate, now, cut) = (ConnectionLimiter::new(&config), Instant::now(), CancellationToken::new());
        for rested in [0, 3600] {
            let begins = now + Duration::from_secs(rested);
            // As ssh-audit counts: one after the other for a second and a half.
            let knocks = (0..1500).map(|passed| begins + Duration::from_millis(passed));
            let let_in = knocks.filter(|at| gate.admit(source("192.0.2.1"), &cut, *at).map(drop).is_ok()).count();
            assert!((20..30).contains(&let_in), "{let_in} in 1.5 s after {rested} s");
        }
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
