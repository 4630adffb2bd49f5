//! How many shared commits may be under way at the same time: as many as the time of a sync asks for.
//!
//! What comes during a commit shares the next one. Where a sync takes no time worth mentioning, one commit after the other
//! has the largest batches, and costs the least. Where it takes long, others fill the time.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Error, Store};
use deskgate_program::tasks::Tasks;

/// Commits that may be under way at the same time, whatever anybody sets. More would leave too few connections for
/// everything else.
pub const MAX_CONCURRENT_COMMITS: usize = 8;
/// The number while it is not known what a sync takes.
const DEFAULT_CONCURRENT_COMMITS: usize = 2;

const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Fewer syncs than this tell nothing of the disk.
const MIN_SYNCS: i64 = 20;

/// How many commits may be under way at the same time.
#[derive(Clone)]
pub struct CommitLimit(watch::Receiver<usize>);

impl CommitLimit {
    /// Always this number, if it is not more than [`MAX_CONCURRENT_COMMITS`].
    pub fn fixed(commits: usize) -> Self {
        Self(watch::channel(commits).1)
    }

    /// The number that suits the database's disk, as far as PostgreSQL measures its syncs. Starts the task that follows
    /// them, which ends with its group.
    pub fn follow(store: &Store, tasks: &Tasks) -> Self {
        let (suiting, limit) = watch::channel(DEFAULT_CONCURRENT_COMMITS);
        tasks.spawn("commit limit", follow(store.clone(), suiting, tasks.stopping()));
        Self(limit)
    }

    /// Waits until the committer of this number, counted from 0, may take its next batch. `false`: it never will.
    pub(super) async fn admits(&mut self, number: usize) -> bool {
        self.0.wait_for(|limit| number < *limit).await.is_ok()
    }
}

async fn follow(store: Store, suiting: watch::Sender<usize>, stop: CancellationToken) {
    let mut before: Option<WalSyncs> = None;
    loop {
        match store.wal_syncs().await {
            Ok(now) => {
                let sync_time = before.and_then(|before| now.mean_since(before));
                if let Some(sync_time) = sync_time {
                    let commits = suiting_commits(sync_time);
                    if suiting.send_if_modified(|limit| std::mem::replace(limit, commits) != commits) {
                        tracing::debug!(
                            sync_us = sync_time.as_micros(),
                            commits,
                            "commits at the same time follow the disk"
                        );
                    }
                }
                // The others are few, and counted further.
                if sync_time.is_some() || before.is_none_or(|before| now.is_counted_anew(before)) {
                    before = Some(now);
                }
            }
            Err(error) => tracing::debug!(%error, "what a sync takes could not be read"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_none() {
            return;
        }
    }
}

/// As measured with the syncs of one disk, and the same slowed by 1 and 5 ms; see BENCHMARKS.md.
fn suiting_commits(sync_time: Duration) -> usize {
    match sync_time.as_micros() {
        ..500 => 1,
        500..3000 => 2,
        _ => 4,
    }
}

/// Syncs of the write-ahead log that PostgreSQL counted and timed since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WalSyncs {
    /// Their number.
    pub count: i64,
    /// The milliseconds that they took together.
    pub ms: f64,
}

impl WalSyncs {
    /// Whether this is of another server, or of the same after its statistics were lost.
    fn is_counted_anew(self, before: Self) -> bool {
        self.count < before.count || self.ms < before.ms
    }

    /// What a sync took since then, if there were enough and they are timed.
    fn mean_since(self, before: Self) -> Option<Duration> {
        let (count, ms) = (self.count - before.count, self.ms - before.ms);
        let mean = Duration::try_from_secs_f64(ms / count as f64 / 1000.0).ok()?;
        (count >= MIN_SYNCS && ms > 0.0).then_some(mean)
    }
}

impl Store {
    /// The syncs of the write-ahead log. Without `track_wal_io_timing`, which the gateway's own PostgreSQL has, they take no
    /// time.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn wal_syncs(&self) -> Result<WalSyncs, Error> {
        let version = "-- commit_limit::version
            SELECT current_setting('server_version_num')::integer";
        let version: i32 = self.durable_one(version, &[]).await?.try_get(0)?;
        let syncs = match version {
            180_000.. => {
                "sum(fsyncs)::bigint, sum(fsync_time) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'"
            }
            _ => "wal_sync, wal_sync_time FROM pg_stat_wal",
        };
        let row = self.durable_one(&format!("-- commit_limit::wal_syncs\nSELECT {syncs}"), &[]).await?;
        let (count, ms): (Option<i64>, Option<f64>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(WalSyncs { count: count.unwrap_or_default(), ms: ms.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_what_a_sync_took_lately_and_only_what_was_timed() {
        let after = |count, ms| WalSyncs { count, ms };
        let commits = |before: WalSyncs, now: WalSyncs| now.mean_since(before).map(suiting_commits);
        assert_eq!(commits(after(0, 0.0), after(1000, 50.0)), Some(1), "50 µs each");
        assert_eq!(commits(after(1000, 50.0), after(1100, 150.0)), Some(2), "1 ms each since then");
        assert_eq!(commits(after(1000, 50.0), after(1100, 650.0)), Some(4), "6 ms");
        assert_eq!(commits(after(1000, 50.0), after(1010, 650.0)), None, "too few");
        assert_eq!(commits(after(1000, 0.0), after(2000, 0.0)), None, "not timed");
        assert_eq!(commits(after(1000, 50.0), after(30, 1.0)), None, "counted anew");
        assert!(
            after(30, 1.0).is_counted_anew(after(1000, 50.0)) && after(2000, 1.0).is_counted_anew(after(1000, 50.0))
        );
        assert!(!after(1010, 50.5).is_counted_anew(after(1000, 50.0)));
        assert_eq!(commits(after(1000, 50.0), after(1000, 50.0)), None);
    }

    #[tokio::test]
    async fn committers_beyond_the_limit_wait_until_it_rises_or_is_fixed() {
        let (limit, followed) = watch::channel(1);
        let mut followed = CommitLimit(followed);
        assert!(followed.admits(0).await);
        let mut second = followed.clone();
        let second = tokio::spawn(async move { second.admits(1).await });
        limit.send(2).expect("it is followed");
        assert!(second.await.expect("no panic"));
        limit.send(1).expect("it is followed");
        drop(limit);
        assert!(followed.admits(0).await && !followed.admits(1).await);
        assert!(CommitLimit::fixed(2).admits(1).await && !CommitLimit::fixed(2).admits(2).await);
    }
}
