//! The findings of a running check, in memory, for pages and command lines that follow it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deskgate_definition::Check;
use deskgate_protocol::ids::DraftId;
use tokio::sync::watch;

/// The running checks. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CheckProgress {
    now: watch::Sender<HashMap<DraftId, RunningCheck>>,
    /// How many checks were ever begun.
    begun: Arc<AtomicU64>,
}

/// A running check.
#[derive(Clone, Debug, Default)]
pub struct RunningCheck {
    /// The names of its checks, as far as they are known beforehand, in the order of its report.
    pub names: Vec<String>,
    /// Its findings, in the order they were found.
    pub found: Vec<Check>,
    /// The number by which its caller follows it.
    follower: Option<u64>,
    /// Distinguishes it from every other one.
    number: u64,
}

impl RunningCheck {
    /// The names of the outstanding checks.
    pub fn rest(&self) -> impl Iterator<Item = &str> {
        let missing = |name: &&String| !self.found.iter().any(|check| check.name == **name);
        self.names.iter().filter(missing).map(String::as_str)
    }
}

impl CheckProgress {
    /// The running check of a draft, if there is one.
    pub fn of(&self, draft_id: DraftId) -> Option<RunningCheck> {
        self.now.borrow().get(&draft_id).cloned()
    }

    /// Changes whenever a check begins, finds something or ends.
    pub fn watch(&self) -> watch::Receiver<HashMap<DraftId, RunningCheck>> {
        self.now.subscribe()
    }

    /// The findings, beyond the first `known`, of the draft's check with this follower number, as soon as there are
    /// some. Waits for a check that has not begun yet; cancel-safe.
    pub async fn wait_for_more(&self, draft_id: DraftId, follower: u64, known: usize) -> Vec<Check> {
        let mut changes = self.watch();
        let more = |all: &HashMap<DraftId, RunningCheck>| {
            all.get(&draft_id).is_some_and(|it| it.follower == Some(follower) && it.found.len() > known)
        };
        match changes.wait_for(more).await {
            Ok(all) => all.get(&draft_id).map(|it| it.found[known..].to_vec()).unwrap_or_default(),
            // Impossible while this handle holds the sender.
            Err(_) => Vec::new(),
        }
    }

    /// Begins to show a check. It replaces an older one of the same draft.
    pub(super) fn begin(&self, draft_id: DraftId, names: Vec<String>, follower: Option<u64>) -> ProgressGuard {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.now.send_modify(|all| {
            all.insert(draft_id, RunningCheck { names, found: Vec::new(), follower, number });
        });
        ProgressGuard { progress: self.clone(), draft_id, number }
    }
}

/// A check that is shown until this is dropped.
#[derive(Debug)]
pub(super) struct ProgressGuard {
    progress: CheckProgress,
    draft_id: DraftId,
    number: u64,
}

impl ProgressGuard {
    /// Adds a finding.
    pub(super) fn record(&self, check: &Check) {
        self.progress.now.send_if_modified(|all| {
            let own = all.get_mut(&self.draft_id).filter(|it| it.number == self.number);
            own.map(|it| it.found.push(check.clone())).is_some()
        });
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.progress.now.send_if_modified(|all| {
            let own = all.get(&self.draft_id).is_some_and(|it| it.number == self.number);
            own && all.remove(&self.draft_id).is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::checks::pass;

    #[tokio::test]
    async fn each_finding_is_told_once_and_a_newer_check_takes_the_place_of_an_older_one() {
        let (progress, draft_id) = (CheckProgress::default(), DraftId::new());
        let names = |found: Vec<Check>| found.into_iter().map(|check| check.name).collect::<Vec<_>>();
        let watching = progress.clone();
        let first = tokio::spawn(async move { watching.wait_for_more(draft_id, 7, 0).await });
        let older = progress.begin(draft_id, vec!["one".to_owned(), "two".to_owned()], Some(7));
        older.record(&pass("one", ""));
        assert_eq!(names(first.await.expect("no panic")), ["one"]);
        older.record(&pass("two", ""));
        assert_eq!(names(progress.wait_for_more(draft_id, 7, 1).await), ["two"]);
        let newer = progress.begin(draft_id, vec!["one".to_owned()], Some(8));
        newer.record(&pass("one", ""));
        let mut of_older = std::pin::pin!(progress.wait_for_more(draft_id, 7, 0));
        assert!(futures_util::poll!(of_older.as_mut()).is_pending(), "what another check finds is not told here");
        assert_eq!(names(progress.wait_for_more(draft_id, 8, 0).await), ["one"]);
        older.record(&pass("three", ""));
        drop(older);
        assert!(progress.of(draft_id).is_some_and(|it| it.found.len() == 1), "the newer one is shown");
        drop(newer);
        assert!(progress.of(draft_id).is_none());
    }

    #[test]
    fn a_check_that_outlives_a_newer_one_is_not_taken_for_the_newest() {
        let (progress, draft_id) = (CheckProgress::default(), DraftId::new());
        let begin = || progress.begin(draft_id, Vec::new(), None);
        let oldest = begin();
        drop(begin());
        let _newest = begin();
        oldest.record(&pass("one", ""));
        drop(oldest);
        assert!(progress.of(draft_id).is_some_and(|it| it.found.is_empty()));
    }
}
