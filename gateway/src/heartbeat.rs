//! Whether a loop still goes round.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a loop last went round successfully. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Default for Heartbeat {
    /// A loop that begins now.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Heartbeat {
    /// The loop went round.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long ago it did.
    pub fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}
