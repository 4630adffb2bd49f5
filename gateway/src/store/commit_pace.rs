//! How many shared commits of one kind are under way at the same time.
//!
//! Where a sync takes no time there are few, so that each has much to commit. Where it is slow there are more: what comes
//! in the meantime would only wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Commits on any disk. With one alone the processor would be idle while it waits for the disk.
const MIN_COMMITS: usize = 2;
/// The time of a sync for which there is one commit more.
const SYNC_TIME_PER_COMMIT: Duration = Duration::from_millis(1);
/// For how long the fastest commit tells what a sync takes. Most commits take longer: they execute, or the processor is busy.
const MEASURE_WINDOW: Duration = Duration::from_secs(2);

/// Lets commits begin, as many as fit the disk.
#[derive(Clone)]
pub(super) struct CommitPace {
    free: Arc<Semaphore>,
    measured: Arc<Mutex<Measured>>,
    most: usize,
}

struct Measured {
    since: Instant,
    fastest: Duration,
    /// How many commits there may be.
    commits: usize,
}

/// A commit that may begin.
pub(super) struct CommitPermit {
    pace: CommitPace,
    began: Instant,
    _free: OwnedSemaphorePermit,
}

impl CommitPace {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        let (most, commits) = (most.max(1), MIN_COMMITS.min(most.max(1)));
        let measured = Measured { since: Instant::now(), fastest: Duration::MAX, commits };
        Self { free: Arc::new(Semaphore::new(commits)), measured: Arc::new(Mutex::new(measured)), most }
    }

    /// The most there ever are.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits until one more may begin.
    pub(super) async fn permit(&self) -> CommitPermit {
        let free = self.free.clone().acquire_owned().await.expect("it is never closed");
        CommitPermit { pace: self.clone(), began: Instant::now(), _free: free }
    }

    fn note(&self, took: Duration) {
        // No code panics while it holds the lock.
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.fastest = measured.fastest.min(took);
        if measured.since.elapsed() < MEASURE_WINDOW {
            return;
        }
        let wanted = commits_for(measured.fastest, self.most);
        if wanted > measured.commits {
            self.free.add_permits(wanted - measured.commits);
            measured.commits = wanted;
        } else {
            // Those that are under way are counted the next time.
            measured.commits -= self.free.forget_permits(measured.commits - wanted);
        }
        (measured.since, measured.fastest) = (Instant::now(), Duration::MAX);
    }
}

impl CommitPermit {
    /// Begins to measure: from now on nothing but the commit takes time.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// It was committed.
    pub(super) fn committed(self) {
        self.pace.note(self.began.elapsed());
    }
}

fn commits_for(sync: Duration, most: usize) -> usize {
    let commits = sync.as_micros() / SYNC_TIME_PER_COMMIT.as_micros();
    usize::try_from(commits).unwrap_or(usize::MAX).max(MIN_COMMITS).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits that took so many milliseconds each, in a window. Returns how many may begin then.
    fn after_commits_of(pace: &CommitPace, took: &[u64]) -> usize {
        let (last, others) = took.split_last().expect("there are commits");
        others.iter().for_each(|milliseconds| pace.note(Duration::from_millis(*milliseconds)));
        pace.measured.lock().expect("no panic").since = Instant::now() - MEASURE_WINDOW;
        pace.note(Duration::from_millis(*last));
        pace.free.available_permits()
    }

    #[tokio::test]
    async fn there_are_as_many_commits_as_the_fastest_one_took_milliseconds() {
        let pace = CommitPace::new(8);
        pace.note(Duration::from_millis(7));
        assert_eq!(pace.free.available_permits(), 2, "one commit tells nothing");
        assert_eq!(after_commits_of(&pace, &[9, 5, 30]), 5);
        assert_eq!(after_commits_of(&pace, &[30, 12]), 8);
        assert_eq!(after_commits_of(&pace, &[1, 40, 9]), 2);
        assert_eq!(after_commits_of(&CommitPace::new(1), &[9, 9]), 1);
    }

    #[tokio::test]
    async fn commits_that_are_under_way_are_taken_away_once_they_have_ended() {
        let pace = CommitPace::new(8);
        assert_eq!(after_commits_of(&pace, &[8, 8]), 8);
        let mut under_way = Vec::new();
        for _ in 0..7 {
            under_way.push(pace.permit().await);
        }
        assert_eq!(after_commits_of(&pace, &[1, 1]), 0);
        drop(under_way);
        assert_eq!(after_commits_of(&pace, &[1, 1]), 2);
    }
}
