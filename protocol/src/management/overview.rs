//! The numbers that the desktop's overview shows.

use serde::{Deserialize, Serialize};

use crate::ids::ApplicationId;
use crate::time::Timestamp;

/// Asks for the numbers of the device's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetOverview {}

/// The reply to [`GetOverview`]: one moment of the gateway's database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// When.
    pub at: Timestamp,
    /// Runs that wait for a start.
    pub waiting: u32,
    /// Runs that were started and have not ended.
    pub in_progress: u32,
    /// What waits for the person.
    pub needs: AttentionCounts,
    /// The last 24 hours, oldest first; the last one is under way.
    pub hours: Vec<Hour>,
    /// The last 7 days, oldest first; the last one is under way. Days are those of UTC.
    pub days: Vec<Day>,
    /// How long the runs took that ended in these days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<DurationStats>,
    /// Every application that was not removed, oldest first.
    pub applications: Vec<ApplicationNumbers>,
}

impl Overview {
    /// Runs accepted since the first full hour after `moment`, within the last 24 hours.
    pub fn accepted_since(&self, moment: Timestamp) -> u32 {
        let hours = self.hours.iter().filter(|hour| hour.began_at >= moment);
        hours.map(|hour| hour.accepted).fold(0, u32::saturating_add)
    }
}

/// Runs that wait for the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionCounts {
    /// Runs that await approval.
    pub approvals: u32,
    /// Since when the one does that waits longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_approval_at: Option<Timestamp>,
    /// Runs that await reconciliation.
    pub reconciliations: u32,
    /// Since when the one does that waits longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_reconciliation_at: Option<Timestamp>,
}

/// One hour of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// When it began.
    pub began_at: Timestamp,
    /// Runs that were accepted in it.
    pub accepted: u32,
    /// Runs that waited for a start when it ended, or wait now. There may have been more in between.
    pub waiting: u32,
}

/// How the runs of one day ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// When it began.
    pub began_at: Timestamp,
    /// Runs that were answered.
    pub succeeded: u32,
    /// Runs that ended without an answer.
    pub failed: u32,
    /// Runs that were stopped, or never begun.
    pub cancelled: u32,
    /// Runs that were not started in time.
    pub expired: u32,
    /// How long those took that had been started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<DurationStats>,
}

/// How long runs took, from their start to their end. Correct to 5 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationStats {
    /// Of so many runs.
    pub runs: u32,
    /// Half of them took no longer than these milliseconds.
    pub p50_ms: u64,
    /// 95 in 100 took no longer.
    pub p95_ms: u64,
}

/// The numbers of one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationNumbers {
    /// Which one.
    pub app_id: ApplicationId,
    /// When one of its keys was last used, to about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_call_at: Option<Timestamp>,
    /// Runs accepted in each of [`Overview::hours`].
    pub accepted: Vec<u32>,
}
