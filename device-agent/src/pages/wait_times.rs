//! The waiting times of approval requests.

use super::labels::{DurationText, Shape};
use super::plot::Plot;
use crate::local::{ApprovalState, ApprovalView, median};

/// How many of the newest answers are drawn.
const MAX_WAITS_DRAWN: usize = 40;

/// The newest answers, the oldest first.
pub(super) struct WaitTimes {
    pub(super) plot: Plot,
    pub(super) rows: Vec<WaitTime>,
    pub(super) median: DurationText,
}

/// The waiting time of one answer.
pub(super) struct WaitTime {
    pub(super) view: ApprovalView,
    seconds: i64,
}

impl WaitTime {
    /// How long it took.
    pub(super) fn length(&self) -> DurationText {
        DurationText(self.seconds)
    }

    fn shape(&self) -> Shape {
        match self.view.approval.state {
            ApprovalState::Approved | ApprovalState::ApprovedForRun => Shape::Good,
            ApprovalState::Denied => Shape::Bad,
            _ => Shape::Unknown,
        }
    }

    /// The answer in a word.
    pub(super) fn word(&self) -> &'static str {
        match self.shape() {
            Shape::Good => "allowed",
            Shape::Bad => "denied",
            _ => "expired",
        }
    }
}

impl WaitTimes {
    /// The plot's width.
    pub(super) fn width() -> f64 {
        Plot::width(MAX_WAITS_DRAWN)
    }

    /// The median in a sentence.
    pub(super) fn half(&self) -> String {
        match self.rows.len() {
            1 => format!("The only one waited {}.", self.median),
            all => format!("Median wait of the last {all}: {}.", self.median),
        }
    }

    /// From approval requests; `None` if none of them was answered.
    pub(super) fn of(views: &[ApprovalView]) -> Option<Self> {
        let wait = |view: &ApprovalView| Some(WaitTime { seconds: view.waited_s()?, view: view.clone() });
        let mut rows: Vec<_> = views.iter().filter_map(wait).collect();
        rows.sort_by_key(|wait| std::cmp::Reverse(wait.view.approval.decided_at));
        rows.truncate(MAX_WAITS_DRAWN);
        rows.reverse();
        let median = DurationText(median(rows.iter().map(|wait| wait.seconds))?);
        let longest = DurationText(rows.iter().map(|wait| wait.seconds).max().unwrap_or_default());
        let sentence = format!(
            "How long each of the last {} requests waited, the newest at the right: median {median}, longest {longest}",
            rows.len()
        );
        let column = |wait: &WaitTime| vec![(wait.shape(), u32::try_from(wait.seconds.max(1)).unwrap_or(u32::MAX))];
        // Aligned to the right, so that a few bars are as wide as many.
        let empty = std::iter::repeat_n(Vec::new(), MAX_WAITS_DRAWN - rows.len());
        let plot = Plot::new(sentence, &empty.chain(rows.iter().map(column)).collect::<Vec<_>>());
        Some(Self { plot, rows, median })
    }
}
