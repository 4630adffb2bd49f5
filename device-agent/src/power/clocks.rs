//! Measures how long the computer slept, by two clocks of which one stands still during sleep.
//!
//! Linux: `CLOCK_BOOTTIME` goes on, `CLOCK_MONOTONIC` does not (clock_gettime(2)).

use std::time::Duration;

/// The two clocks are not read at the same moment; a smaller difference is no sleep.
const MIN_SLEEP: Duration = Duration::from_millis(500);

/// Measures the sleep since the last call.
#[derive(Debug)]
pub(super) struct SleepClocks {
    apart: Duration,
}

impl SleepClocks {
    /// Starts to measure.
    pub(super) fn now() -> Self {
        Self { apart: apart() }
    }

    /// The sleep since the last call; zero if there was none.
    pub(super) fn slept(&mut self) -> Duration {
        self.grown_to(apart())
    }

    fn grown_to(&mut self, apart: Duration) -> Duration {
        let grown = apart.saturating_sub(self.apart);
        if grown < MIN_SLEEP {
            return Duration::ZERO;
        }
        self.apart = apart;
        grown
    }
}

/// The difference of the clocks: all sleep since the computer started.
#[cfg(target_os = "linux")]
fn apart() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // In this order, so that a pause between the two readings does not count as sleep.
    let whole = read(ClockId::Boottime);
    whole.saturating_sub(read(ClockId::Monotonic))
}

/// Other systems are not supported yet: their sleep shows when the connection is found dead.
#[cfg(not(target_os = "linux"))]
fn apart() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sleep_is_told_once_and_readings_a_moment_apart_are_none() {
        let mut clocks = SleepClocks { apart: Duration::from_secs(100) };
        assert_eq!(clocks.grown_to(Duration::from_millis(100_400)), Duration::ZERO);
        assert_eq!(clocks.grown_to(Duration::from_secs(130)), Duration::from_secs(30));
        assert_eq!(clocks.grown_to(Duration::from_secs(130)), Duration::ZERO);
        assert_eq!(clocks.grown_to(Duration::from_millis(129_999)), Duration::ZERO, "read in an unlucky moment");
        assert_eq!(clocks.grown_to(Duration::from_secs(131)), Duration::from_secs(1));
    }

    #[test]
    fn a_computer_that_is_awake_has_not_slept() {
        let mut clocks = SleepClocks::now();
        std::thread::yield_now();
        assert_eq!(clocks.slept(), Duration::ZERO);
    }
}
