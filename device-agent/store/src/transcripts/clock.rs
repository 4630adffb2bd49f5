//! The time by which silence is measured, in seconds: it follows the computer's clock, and never runs faster than time.
//!
//! A clock that is set wrong, and be it by years, must not make every conversation old at once. So what the clock
//! says has passed counts only as far as it can have passed: since the last time, by a clock that nobody sets; and
//! of the time before a start, which no such clock tells, [`MAX_UNOBSERVED_TIME`].

use std::time::Duration;

use rusqlite::Transaction;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// The most that counts of the time in which nobody looked.
pub(super) const MAX_UNOBSERVED_TIME: Duration = Duration::from_secs(24 * 3600);

#[cfg(target_os = "linux")]
const MONOTONIC_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC_CLOCK: ClockId = ClockId::Monotonic;

/// A moment of the clock that nobody sets; on Linux it goes on during sleep.
pub(crate) fn moment() -> Duration {
    Duration::try_from(clock_gettime(MONOTONIC_CLOCK)).unwrap_or_default()
}

/// Moves the time on to what the computer's clock says, but by `most` at most, and never back.
pub(super) fn move_on(tx: &Transaction<'_>, most: Duration) -> Result<(), Error> {
    tx.execute(
        "UPDATE transcript_clock SET now = now + max(0, min(unixepoch() - wall, ?1)), wall = unixepoch()",
        [most.as_secs() as i64],
    )?;
    Ok(())
}
