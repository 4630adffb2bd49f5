//! Ends the open streams and waiting reads of keys that are no longer valid.
//!
//! A key is checked when a request arrives. What stays open after that is ended here, within the 5 s of the threat
//! model (A6): all keys in use are checked together, twice a second. A key that was revoked at another replica while
//! the database cannot be reached from here looks like any other key then, so a key that could not be confirmed for a
//! while is ended too. Its callers come again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use deskgate_protocol::KeyId;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::refusal::Refusal;
use crate::store::{Error, Store};

/// The pause between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the database may take for one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// After so long without a confirmation a key counts as invalid. That is noticed after a pause and a failed check, so
/// its streams end within 3.5 s.
const CONFIRMATION_TTL: Duration = Duration::from_secs(2);

/// Watches the keys that have something open.
#[derive(Clone)]
pub struct KeyWatcher {
    store: Store,
    watched: Arc<Mutex<HashMap<KeyId, WatchEntry>>>,
}

struct WatchEntry {
    key: Weak<WatchState>,
    /// The time of the last query that confirmed the key.
    confirmed: Instant,
}

#[derive(Debug, Default)]
struct WatchState {
    over: CancellationToken,
    why: OnceLock<Refusal>,
}

/// A watched key, for as long as this is held.
#[derive(Clone, Debug)]
pub struct KeyWatch(Arc<WatchState>);

impl KeyWatch {
    /// Waits until the key is no longer valid; returns the refusal that a request with it would get.
    pub async fn ended(&self) -> Refusal {
        self.0.over.cancelled().await;
        self.0.why.get().cloned().unwrap_or(Refusal::Internal)
    }
}

impl WatchState {
    fn end(&self, why: Refusal) {
        // The first reason stays.
        let _ = self.why.set(why);
        self.over.cancel();
    }
}

impl KeyWatcher {
    /// Watches no key yet, and checks only while [`KeyWatcher::run`] runs.
    pub fn new(store: Store) -> Self {
        Self { store, watched: Arc::default() }
    }

    /// Watches the key of this caller, which was just checked.
    pub fn watch(&self, caller: &Caller) -> KeyWatch {
        let mut watched = self.lock();
        if let Some(key) = watched.get(&caller.key_id()).and_then(|entry| entry.key.upgrade()) {
            return KeyWatch(key);
        }
        let key = Arc::new(WatchState::default());
        let entry = WatchEntry { key: Arc::downgrade(&key), confirmed: Instant::now() };
        watched.insert(caller.key_id(), entry);
        KeyWatch(key)
    }

    /// Checks the watched keys at intervals, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_some() {
            self.look().await;
        }
    }

    async fn look(&self) {
        let key_ids = self.in_use();
        if key_ids.is_empty() {
            return;
        }
        let asked = Instant::now();
        let late = |_| Err(Error::Unavailable(format!("no answer within {} ms", CHECK_TIMEOUT.as_millis())));
        let live = timeout(CHECK_TIMEOUT, self.store.live_keys(&key_ids)).await.unwrap_or_else(late);
        let mut watched = self.lock();
        for key_id in key_ids {
            let Some(entry) = watched.get_mut(&key_id) else { continue };
            let over = match &live {
                Ok(live) => match live.get(&key_id) {
                    Some(false) => {
                        entry.confirmed = asked;
                        continue;
                    }
                    Some(true) => Refusal::ApplicationDisabled,
                    None => Refusal::CredentialInvalid { hint: String::new() },
                },
                Err(_) if entry.confirmed.elapsed() < CONFIRMATION_TTL => continue,
                Err(error) => {
                    tracing::warn!(%key_id, %error, "what is open with a key ends: the key cannot be confirmed");
                    Refusal::StoreUnavailable
                }
            };
            if let Some(key) = watched.remove(&key_id).and_then(|entry| entry.key.upgrade()) {
                key.end(over);
            }
        }
    }

    /// The keys that still have something open.
    fn in_use(&self) -> Vec<KeyId> {
        let mut watched = self.lock();
        watched.retain(|_, entry| entry.key.strong_count() > 0);
        watched.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, WatchEntry>> {
        // No code panics while it holds the lock.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
