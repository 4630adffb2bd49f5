//! When each request of a load is due. A slow answer delays no later request, so that a stall shows in every latency that
//! it caused.

use std::time::Duration;

/// A rate of requests, each due independent of the answers before it.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    per_second: f64,
}

impl Schedule {
    /// A rate in requests per second.
    pub fn per_second(per_second: f64) -> Self {
        Self { per_second }
    }

    /// When the request with this number is due, from the begin of the load.
    pub fn due(self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.per_second)
    }

    /// How many requests are due within a time.
    pub fn count(self, lasts: Duration) -> u64 {
        (self.per_second * lasts.as_secs_f64()) as u64
    }
}
