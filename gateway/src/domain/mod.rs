//! What may happen: every decision of the gateway, without HTTP, SSH or SQL.
//!
//! | file | what it decides |
//! |---|---|
//! | [`access`] | who a caller is and what its key allows |
//! | [`admission`] | whether a submission becomes a run |
//! | [`conversations`] | who may have a conversation, and speak in it |
//! | [`operations`] | who may stop a run or reset a conversation |
//! | [`runs`] | how a stored run is seen |
//! | [`devices`] | who may open a session, and what happens to the runs it holds |
//! | [`desktop`] | what a device may ask about its own applications and services |
//! | [`refusal`] | why not, for a person |

pub mod access;
pub mod admission;
pub mod conversations;
pub mod desktop;
pub mod devices;
pub mod operations;
pub mod refusal;
pub mod runs;

use std::time::Duration;

/// The limits that callers can meet.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs of one application that may wait for a start.
    pub waiting_runs_per_application: u32,
    /// How long ended runs are kept.
    pub retention: Duration,
    /// Commits of submissions that may be under way at once.
    pub concurrent_commits: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting_runs_per_application: 10_000,
            retention: Duration::from_secs(30 * 24 * 3600),
            concurrent_commits: 2,
        }
    }
}
