//! A limit on how many of a kind, or how much of it, may exist at once, counted for each owner.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counts of all owners.
#[derive(Clone, Debug)]
pub struct Quota<K> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    limit: usize,
}

impl<K: Copy + Eq + Hash> Quota<K> {
    /// Creates a quota with so many permits for each owner.
    pub fn new(limit: usize) -> Self {
        Self { counts: Arc::default(), limit }
    }

    /// The permits of each owner.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A permit for this owner, or `None` when all are taken.
    pub fn acquire(&self, owner: K) -> Option<QuotaPermit<K>> {
        self.acquire_many(owner, 1)
    }

    /// So many permits for this owner at once, or `None` when fewer are left.
    pub fn acquire_many(&self, owner: K, many: usize) -> Option<QuotaPermit<K>> {
        let mut counts = self.lock();
        let taken = counts.get(&owner).copied().unwrap_or_default();
        let taken = taken.checked_add(many).filter(|taken| *taken <= self.limit)?;
        counts.insert(owner, taken);
        Some(QuotaPermit { places: self.clone(), owner, many })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        // No code panics while it holds the lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One permit, or several; released when it is dropped.
#[derive(Debug)]
pub struct QuotaPermit<K: Copy + Eq + Hash> {
    places: Quota<K>,
    owner: K,
    many: usize,
}

impl<K: Copy + Eq + Hash> Drop for QuotaPermit<K> {
    fn drop(&mut self) {
        let mut counts = self.places.lock();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= self.many;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_left_and_nothing_is_kept_of_an_owner_who_is_gone() {
        let places = Quota::new(1);
        let first = places.acquire(7);
        assert!(first.is_some() && places.acquire(7).is_none() && places.acquire(8).is_some());
        drop(first);
        assert!(places.acquire(7).is_some());
        assert!(places.lock().is_empty());
    }

    #[test]
    fn who_needs_more_than_is_left_gets_nothing_and_takes_nothing() {
        let places = Quota::new(10);
        let most = places.acquire_many(7, 8);
        assert!(most.is_some() && places.acquire_many(7, 3).is_none() && places.acquire_many(7, usize::MAX).is_none());
        assert!(places.acquire_many(7, 2).is_some() && places.acquire_many(8, 10).is_some());
        drop(most);
        assert!(places.acquire_many(7, 10).is_some());
    }

    #[test]
    fn with_a_limit_of_none_nobody_enters() {
        assert!(Quota::new(0).acquire(7).is_none());
    }
}
