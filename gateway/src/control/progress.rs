//! How much of each run a session's device has reported: the position of a message's pieces among the events.

use std::collections::HashMap;

use deskgate_protocol::RunId;

/// Runs that are tracked. A device holds far fewer; for other runs the reported number is 0, so that their pieces are
/// dropped rather than shown too late.
const MAX_TRACKED_RUNS: usize = 4096;

/// The newest attempt of each run and its newest number.
#[derive(Debug, Default)]
pub(super) struct ReportProgress(HashMap<RunId, (u32, u64)>);

impl ReportProgress {
    /// Records that the device has reported event `seq` of this attempt.
    pub(super) fn note(&mut self, run_id: RunId, attempt: u32, seq: u64) {
        if self.0.len() < MAX_TRACKED_RUNS || self.0.contains_key(&run_id) {
            let newest = self.0.entry(run_id).or_default();
            *newest = (attempt, seq).max(*newest);
        }
    }

    /// Forgets a run whose end the device has reported.
    pub(super) fn forget(&mut self, run_id: RunId) {
        self.0.remove(&run_id);
    }

    /// The number of the newest event of this attempt; 0 before the first.
    pub(super) fn of(&self, run_id: RunId, attempt: u32) -> u64 {
        self.0.get(&run_id).filter(|(newest, _)| *newest == attempt).map_or(0, |(_, seq)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_within_their_attempt_and_never_go_back() {
        let (mut reported, run_id) = (ReportProgress::default(), RunId::new());
        reported.note(run_id, 1, 7);
        reported.note(run_id, 1, 5);
        assert_eq!((reported.of(run_id, 1), reported.of(run_id, 2), reported.of(RunId::new(), 1)), (7, 0, 0));
        reported.note(run_id, 2, 1);
        reported.note(run_id, 1, 8);
        assert_eq!((reported.of(run_id, 1), reported.of(run_id, 2)), (0, 1));
        reported.forget(run_id);
        assert_eq!(reported.of(run_id, 2), 0);
    }

    #[test]
    fn a_device_that_names_many_runs_does_not_fill_the_memory() {
        let mut reported = ReportProgress::default();
        (0..2 * MAX_TRACKED_RUNS).for_each(|_| reported.note(RunId::new(), 1, 1));
        assert_eq!(reported.0.len(), MAX_TRACKED_RUNS);
    }
}
