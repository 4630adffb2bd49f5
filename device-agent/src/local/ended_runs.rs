//! What the ended runs of a built-in gateway are asked: how many there are, and how long they are kept.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a built-in gateway's ended runs are asked.
pub trait EndedRuns: Send + Sync {
    /// How many there are, and how many ended longer ago.
    fn count(&self, ago: Duration) -> Answer<'_, (u64, u64)>;
    /// Keep them no longer than this after their end.
    fn keep(&self, retention: Duration) -> Answer<'_, ()>;
}

/// An answer that is waited for, or why there is none.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;
/// A built-in gateway's ended runs.
pub type SharedEndedRuns = Arc<dyn EndedRuns>;
