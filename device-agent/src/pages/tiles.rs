//! The four numbers of the overview, with what became of them over time where that is known.

use deskgate_protocol::management::{Hour, Overview as Numbers};

use super::labels::Shape;
use super::plot::Spark;
use crate::local::MonthSpending;

/// One number.
pub(super) struct Tile {
    pub(super) name: &'static str,
    /// The address of the page that is about it.
    pub(super) page: &'static str,
    pub(super) number: String,
    /// What helps to judge it.
    pub(super) beside: String,
    pub(super) spark: Option<Spark>,
}

impl Tile {
    /// Runs, waiting ones, failed ones, and what was spent.
    pub(super) fn all(numbers: &Numbers, month: Option<&MonthSpending>) -> Vec<Self> {
        let hours = |count: fn(&Hour) -> u32| numbers.hours.iter().map(count).collect::<Vec<_>>();
        let (accepted, waiting) = (hours(|hour| hour.accepted), hours(|hour| hour.waiting));
        let failed: Vec<_> = numbers.days.iter().map(|day| day.failed).collect();
        let most = |counts: &[u32]| counts.iter().copied().max().unwrap_or_default();
        let (calls, failures) = (accepted.iter().sum::<u32>(), failed.iter().sum::<u32>());
        let accepted_sentence =
            format!("Runs an hour, last 24 hours: {calls} in all, at most {} in an hour", most(&accepted));
        let waiting_sentence = format!(
            "Runs waiting at the end of each of the last 24 hours: now {}, highest {}",
            numbers.waiting,
            most(&waiting)
        );
        let failed_sentence = format!("Failed runs a day, last 7 days: {failures} in all, at most {}", most(&failed));
        let spent = month.map(MonthSpending::total).unwrap_or_default();
        vec![
            Tile {
                name: "Runs",
                page: "/runs",
                number: calls.to_string(),
                beside: format!("peak {} an hour", most(&accepted)),
                spark: Some(Spark::line(accepted_sentence, "24 h ago", "", &accepted)),
            },
            Tile {
                name: "Waiting",
                page: "/runs?state=queued",
                number: numbers.waiting.to_string(),
                beside: format!("peak {}", most(&waiting)),
                spark: Some(Spark::line(waiting_sentence, "24 h ago", Shape::Waiting.class(), &waiting)),
            },
            Tile {
                name: "Failed",
                page: "/runs?state=failed",
                number: failures.to_string(),
                beside: "in 7 days".to_owned(),
                spark: Some(Spark::bars(failed_sentence, "6 d ago", Shape::Bad.class(), &failed)),
            },
            Tile {
                name: "Spent",
                page: "/spending",
                number: format!("${:.2}", spent.cost.0 as f64 / 1e6),
                beside: "this month".to_owned(),
                spark: None,
            },
        ]
    }
}
