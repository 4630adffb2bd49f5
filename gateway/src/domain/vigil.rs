//! Ends what a revoked key left open: streams, and reads that wait.
//!
//! A key is checked when a request comes. What stays open after that is ended here: each key in use
//! is looked at every two seconds, once for all that is open with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use deskgate_protocol::KeyId;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Caller};

/// Revocation ends what is open within 5 s (security.md, A6).
const PAUSE: Duration = Duration::from_secs(2);

/// Watches the keys with which something is open.
#[derive(Clone)]
pub struct Vigil {
    access: Access,
    watched: Arc<Mutex<HashMap<KeyId, Weak<CancellationToken>>>>,
}

/// A key that is watched for as long as this is held.
#[derive(Clone, Debug)]
pub struct Watched(Arc<CancellationToken>);

impl Watched {
    /// Waits until the key is good no more.
    pub async fn ended(&self) {
        self.0.cancelled().await;
    }

    /// Whether the key is good no more.
    pub fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Vigil {
    /// Watches nothing yet, and looks only while [`Vigil::run`] runs.
    pub fn new(access: Access) -> Self {
        Self { access, watched: Arc::default() }
    }

    /// Watches the key of this caller.
    pub fn watch(&self, caller: &Caller) -> Watched {
        let mut watched = self.lock();
        let entry = watched.entry(caller.key_id()).or_default();
        let token = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&token);
        Watched(token)
    }

    /// Looks at every watched key now and then, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
            self.look().await;
        }
    }

    async fn look(&self) {
        let keys: Vec<KeyId> = {
            let mut watched = self.lock();
            watched.retain(|_, token| token.strong_count() > 0);
            watched.keys().copied().collect()
        };
        for key_id in keys {
            // While the database does not answer, nothing new is shown either.
            if let Ok(false) = self.access.is_good(key_id).await
                && let Some(token) = self.lock().remove(&key_id).and_then(|token| token.upgrade())
            {
                token.cancel();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, Weak<CancellationToken>>> {
        // Nothing panics while it holds the lock.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
