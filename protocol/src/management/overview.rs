//! The numbers that the desktop's overview shows.

use serde::{Deserialize, Serialize};

use crate::ids::ApplicationId;
use crate::time::Timestamp;

/// Asks for the numbers of the device's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetOverview {}

/// The reply to [`GetOverview`]: one snapshot of the gateway's database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// When the numbers were read.
    pub at: Timestamp,
    /// Runs that wait for a start.
    pub waiting: u32,
    /// Runs that were started and have not ended.
    pub in_progress: u32,
    /// Runs that wait for the desktop user.
    pub needs: AttentionCounts,
    /// The last 24 hours, oldest first; the last one is not over.
    pub hours: Vec<Hour>,
    /// The last 7 days in UTC, oldest first; the last one is not over.
    pub days: Vec<Day>,
    /// The durations of the runs that ended in these days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<DurationStats>,
    /// Every application that is not removed, oldest first.
    pub applications: Vec<ApplicationNumbers>,
}

impl Overview {
    /// Runs accepted since the first full hour after `moment`, within the last 24 hours.
    pub fn accepted_since(&self, moment: Timestamp) -> u32 {
        let hours = self.hours.iter().filter(|hour| hour.began_at >= moment);
        hours.map(|hour| hour.accepted).fold(0, u32::saturating_add)
    }
}

/// Runs that wait for the desktop user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionCounts {
    /// Runs that await approval.
    pub approvals: u32,
    /// When the oldest of these began to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_approval_at: Option<Timestamp>,
    /// Runs that await reconciliation.
    pub reconciliations: u32,
    /// When the oldest of these began to wait.
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
    /// Runs that waited for a start at the end of the hour, or wait now. There may have been more in between.
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
    /// Runs that were stopped, or cancelled before a start.
    pub cancelled: u32,
    /// Runs that were not started in time.
    pub expired: u32,
    /// The durations of the runs that had been started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<DurationStats>,
}

/// Durations of runs from their start to their end. Correct to 5 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationStats {
    /// The number of runs.
    pub runs: u32,
    /// The median in milliseconds.
    pub p50_ms: u64,
    /// The 95th percentile in milliseconds.
    pub p95_ms: u64,
}

/// The numbers of one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationNumbers {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// When one of its keys was last used, to about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_call_at: Option<Timestamp>,
    /// Runs accepted in each of [`Overview::hours`].
    pub accepted: Vec<u32>,
}
