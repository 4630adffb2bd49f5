//! The time by which silence is measured, in seconds: it follows the computer's clock, and never runs faster than real
//! time.
//!
//! A clock that is wrong, even by years, must not make every conversation old at once. The time that the computer's
//! clock has advanced counts only as far as a monotonic clock confirms it; before a start, where no monotonic clock
//! helps, at most [`MAX_UNOBSERVED_TIME`] counts.

use std::time::Duration;

use rusqlite::Transaction;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// At most this much of an unobserved time counts.
pub(super) const MAX_UNOBSERVED_TIME: Duration = Duration::from_secs(24 * 3600);

#[cfg(target_os = "linux")]
const MONOTONIC_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC_CLOCK: ClockId = ClockId::Monotonic;

/// The monotonic clock; on Linux it goes on during sleep.
pub(crate) fn moment() -> Duration {
    Duration::try_from(clock_gettime(MONOTONIC_CLOCK)).unwrap_or_default()
}

/// Advances the time to the computer's clock, but at most by `most`, and never back.
pub(super) fn move_on(tx: &Transaction<'_>, most: Duration) -> Result<(), Error> {
    tx.execute(
        "UPDATE transcript_clock SET now = now + max(0, min(unixepoch() - wall, ?1)), wall = unixepoch()",
        [most.as_secs() as i64],
    )?;
    Ok(())
}
