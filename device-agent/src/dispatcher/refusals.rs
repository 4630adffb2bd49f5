//! How many refused offers are signed one by one: a gateway that offers without end does not fill the disk.

use std::time::Duration;

use tokio::time::Instant;

/// How many refused offers are signed at once, ...
const MAX_BURST_RECEIPTS: u32 = 64;
/// ... and then one in this time.
const RECEIPT_INTERVAL: Duration = Duration::from_secs(1);

/// The rate, and how many offers it left out.
#[derive(Debug, Default)]
pub(super) struct RefusalRate {
    /// When the rate is used up no more.
    full_at: Option<Instant>,
    /// Refused offers that were not signed since the last that was.
    unlisted: u64,
}

impl RefusalRate {
    /// How many offers were not signed before this one, which is; none if this one is not signed either.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        let from = self.full_at.map_or(now, |at| at.max(now));
        if from - now >= RECEIPT_INTERVAL * MAX_BURST_RECEIPTS {
            self.unlisted += 1;
            return None;
        }
        self.full_at = Some(from + RECEIPT_INTERVAL);
        Some(std::mem::take(&mut self.unlisted))
    }

    /// An offer could not be signed, which was to name `unlisted` others.
    pub(super) fn not_listed(&mut self, unlisted: u64) {
        self.unlisted += unlisted + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_without_end_are_counted_and_no_longer_signed_one_by_one() {
        let (mut rate, now) = (RefusalRate::default(), Instant::now());
        assert!((0..MAX_BURST_RECEIPTS).all(|_| rate.next(now) == Some(0)));
        assert_eq!((rate.next(now), rate.next(now)), (None, None));
        assert_eq!(rate.next(now + RECEIPT_INTERVAL), Some(2));
        assert_eq!(rate.next(now + RECEIPT_INTERVAL), None);
        rate.not_listed(0);
        assert_eq!(rate.next(now + 3 * RECEIPT_INTERVAL), Some(2));
    }
}
