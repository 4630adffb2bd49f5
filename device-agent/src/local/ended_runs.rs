//! The interface to a built-in gateway's ended runs: their number, and their retention.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Access to a built-in gateway's ended runs.
pub trait EndedRuns: Send + Sync {
    /// How many there are, and how many ended longer ago.
    fn count(&self, ago: Duration) -> EndedRunsFuture<'_, (u64, u64)>;
    /// Keeps them at most this long after their end.
    fn keep(&self, retention: Duration) -> EndedRunsFuture<'_, ()>;
}

/// A future answer, or why there is none.
pub type EndedRunsFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;
/// A built-in gateway's ended runs.
pub type SharedEndedRuns = Arc<dyn EndedRuns>;
