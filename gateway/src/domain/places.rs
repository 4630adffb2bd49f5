//! How many of a kind may be there at once, counted for each owner.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counts of all owners.
#[derive(Clone, Debug)]
pub struct Places<K> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    limit: usize,
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// So many places for each owner.
    pub fn new(limit: usize) -> Self {
        Self { counts: Arc::default(), limit }
    }

    /// How many there are for each owner.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A place for this owner, or `None` when all are taken.
    pub fn enter(&self, owner: K) -> Option<Place<K>> {
        let mut counts = self.lock();
        let count = counts.entry(owner).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), owner })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        // Nothing panics while it holds the lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A taken place; free again when it is dropped.
#[derive(Debug)]
pub struct Place<K: Copy + Eq + Hash> {
    places: Places<K>,
    owner: K,
}

impl<K: Copy + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut counts = self.places.lock();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
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
        let places = Places::new(1);
        let first = places.enter(7);
        assert!(first.is_some() && places.enter(7).is_none() && places.enter(8).is_some());
        drop(first);
        assert!(places.enter(7).is_some());
        assert!(places.lock().is_empty());
    }

    #[test]
    fn with_a_limit_of_none_nobody_enters() {
        assert!(Places::new(0).enter(7).is_none());
    }
}
