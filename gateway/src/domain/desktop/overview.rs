//! The numbers of the desktop's overview.

use std::collections::BTreeMap;

use deskgate_protocol::Timestamp;
use deskgate_protocol::management::{ApplicationNumbers, Day, DurationStats, Hour, Overview};
use deskgate_protocol::run::RunState;
use jiff::SignedDuration;

use super::{Desktop, DesktopResult};
use crate::store::counts::RunNumbers;

const OVERVIEW_HOURS: i64 = 24;
const OVERVIEW_DAYS: i64 = 7;
/// The factor between two neighbouring buckets of times (`migrations/0008`).
const BUCKET_GROWTH_FACTOR: f64 = 1.1;

impl Desktop {
    /// The numbers of this device's runs.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn overview(&self) -> DesktopResult<Overview> {
        Ok(overview(&self.store.numbers(self.device_id).await?))
    }
}

fn overview(numbers: &RunNumbers) -> Overview {
    let hour = |place| after(numbers.first_hour, SignedDuration::from_hours(place));
    let accepted = |app_id, hour| numbers.accepted.get(&(app_id, hour)).copied().unwrap_or_default();
    let applications = numbers.applications.iter().map(|&(app_id, last_call_at)| ApplicationNumbers {
        app_id,
        last_call_at,
        accepted: (0..OVERVIEW_HOURS).map(|place| accepted(app_id, hour(place))).collect(),
    });
    let days =
        (0..OVERVIEW_DAYS).map(|place| day(numbers, after(numbers.first_day, SignedDuration::from_hours(24 * place))));
    Overview {
        at: numbers.at,
        waiting: numbers.waiting,
        in_progress: numbers.in_progress,
        needs: numbers.needs,
        hours: hours(numbers, (0..OVERVIEW_HOURS).map(hour)),
        days: days.collect(),
        took: took(numbers.took.values().flatten()),
        applications: applications.collect(),
    }
}

/// The queue length now is known. Before each hour it was the length after it, less what came in, plus what left.
fn hours(numbers: &RunNumbers, hours: impl DoubleEndedIterator<Item = Timestamp>) -> Vec<Hour> {
    let mut waiting = i64::from(numbers.waiting);
    let mut backwards: Vec<_> = hours
        .rev()
        .map(|began_at| {
            let of_hour = numbers.accepted.iter().filter(|((_, hour), _)| *hour == began_at);
            let accepted = of_hour.map(|(_, count)| count).sum();
            let left = numbers.left.get(&began_at).copied().unwrap_or_default();
            let hour = Hour { began_at, accepted, waiting: u32::try_from(waiting).unwrap_or_default() };
            waiting += i64::from(left) - i64::from(accepted);
            hour
        })
        .collect();
    backwards.reverse();
    backwards
}

fn day(numbers: &RunNumbers, began_at: Timestamp) -> Day {
    let ended = |state: RunState| {
        let fitting = numbers.ended.iter().filter(|(day, ended, _)| *day == began_at && *ended == state);
        fitting.map(|(.., count)| count).sum()
    };
    Day {
        began_at,
        succeeded: ended(RunState::Succeeded),
        failed: ended(RunState::Failed),
        cancelled: ended(RunState::Cancelled),
        expired: ended(RunState::Expired),
        took: numbers.took.get(&began_at).and_then(took),
    }
}

/// The statistics of the buckets; `None` if they are empty.
fn took<'a>(buckets: impl IntoIterator<Item = (&'a i32, &'a u32)>) -> Option<DurationStats> {
    let mut sorted: BTreeMap<i32, u32> = BTreeMap::new();
    for (bucket, count) in buckets {
        *sorted.entry(*bucket).or_default() += count;
    }
    let runs: u32 = sorted.values().sum();
    let no_longer_than = |percent: u64| {
        let mut left = (u64::from(runs) * percent).div_ceil(100);
        let found = sorted.iter().find(|(_, count)| {
            left = left.saturating_sub(u64::from(**count));
            left == 0
        });
        found.map(|(bucket, _)| middle(*bucket))
    };
    if runs == 0 {
        return None;
    }
    Some(DurationStats { runs, p50_ms: no_longer_than(50)?, p95_ms: no_longer_than(95)? })
}

/// The milliseconds in the middle of a bucket.
fn middle(bucket: i32) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and casts saturate")]
    let milliseconds = BUCKET_GROWTH_FACTOR.powf(f64::from(bucket) + 0.5).round() as u64;
    milliseconds
}

fn after(moment: Timestamp, duration: SignedDuration) -> Timestamp {
    // Within a week of the present no time is out of range.
    moment.0.checked_add(duration).map_or(moment, Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_runs_took_no_longer_than_the_median_and_one_in_twenty_longer_than_the_95th_percentile() {
        let bucket = |ms: f64| (ms.ln() / BUCKET_GROWTH_FACTOR.ln()).floor() as i32;
        let near = |ms: u64, expected: f64| (ms as f64 / expected - 1.0).abs() < 0.051;
        let runs: BTreeMap<i32, u32> = [(bucket(40_000.0), 60), (bucket(2_000.0), 30), (bucket(190_000.0), 10)].into();
        let took = took(&runs).expect("there are some");
        assert_eq!(took.runs, 100);
        assert!(near(took.p50_ms, 40_000.0) && near(took.p95_ms, 190_000.0), "{took:?}");
        assert_eq!(super::took(&BTreeMap::new()), None);
        let one: BTreeMap<i32, u32> = [(bucket(5.0), 1)].into();
        assert!(super::took(&one).is_some_and(|took| took.p50_ms == took.p95_ms));
    }
}
