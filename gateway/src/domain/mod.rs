//! The domain: every decision of the gateway, without HTTP, SSH or SQL.
//!
//! | file | what it decides |
//! |---|---|
//! | [`access`] | who a caller is and what its key allows |
//! | `auth_failures` | how often a source may come without a good key |
//! | [`rates`] | how many requests a key may make |
//! | [`body_quota`] | how many bodies of a key are read at once |
//! | [`admission`] | whether a submission becomes a run |
//! | [`conversations`] | who may have a conversation, and send messages |
//! | [`operations`] | who may stop a run or reset a conversation |
//! | [`runs`] | how a stored run is seen |
//! | [`run_list`] | which runs a list shows |
//! | [`events`] | what a stream of a run's events shows, from where, and until when |
//! | [`feeds`] | one reader for all open streams |
//! | [`artifacts`] | which artifacts of a run are there, and their bytes |
//! | [`files`] | what of callers' files is taken, and which runs have them |
//! | [`transfers`] | which bytes a device may have and bring |
//! | [`typed_data`] | whether schemas can be used, and data fits them |
//! | [`quota`] | how many of a kind may be there at once |
//! | `samples` | events of runs that never existed, for trying receivers |
//! | [`trial`] | who is sent a stream that shows whether a proxy holds events back |
//! | [`lookup`] | which record the end of an identifier means |
//! | [`key_watcher`] | ends what a revoked key left open |
//! | [`destinations`] | where callbacks may go |
//! | [`deliveries`] | payloads for receivers, and when to retry |
//! | [`accounts`] | which key is whose, where devices come with accounts |
//! | [`devices`] | who may open a session, and what happens to the runs it holds |
//! | [`health`] | what is wrong with this gateway |
//! | [`webhooks`] | whether an event of another system is genuine, wanted, and what becomes of it |
//! | [`desktop`] | a device's requests about its own applications and services |
//! | [`refusal`] | why a request was declined, for a person |

pub mod access;
pub mod accounts;
pub mod admission;
pub mod artifacts;
mod auth_failures;
pub mod body_quota;
pub mod conversations;
pub mod deliveries;
pub mod desktop;
pub mod destinations;
pub mod devices;
pub mod events;
pub mod feeds;
pub mod files;
pub mod health;
pub mod invitations;
pub mod key_watcher;
pub mod lookup;
pub mod mcp_calls;
pub mod operations;
pub mod quota;
pub mod rates;
pub mod refusal;
pub mod run_content;
pub mod run_list;
pub mod runs;
mod samples;
pub mod storage_check;
pub mod transfers;
pub mod trial;
pub mod typed_data;
pub mod unkeyed_requests;
pub mod webhooks;

use std::num::NonZeroU32;
use std::time::Duration;

pub use crate::store::commit_limit::MAX_CONCURRENT_COMMITS;
pub use crate::store::objects::StorageQuotas;
pub use crate::store::quotas;

use quotas::Quotas;
use rates::Rate;

/// The limits of callers, and of devices.
#[derive(Clone, Copy, Debug)]
pub struct CallerLimits {
    /// Runs of one application that may wait for a start.
    pub waiting_runs_per_application: u32,
    /// Requests of one key.
    pub rate: Rate,
    /// Requests of one source a minute that may come without a good key.
    pub failed_authentications_per_minute: NonZeroU32,
    /// How long ended runs are kept.
    pub retention: Duration,
    /// Streams of one application that may be open on one gateway.
    pub streams_per_application: usize,
    /// Reads of one application that may wait for a change on one gateway.
    pub waits_per_application: usize,
    /// Requests with a body of one key that may be under way at once on one gateway.
    pub bodies_per_key: usize,
    /// Bytes that their bodies may have together.
    pub body_bytes_per_key: usize,
    /// Commits of submissions that may be under way at once, and two to four of devices' reports. `None`: as the disk asks
    /// for.
    pub concurrent_commits: Option<usize>,
    /// How much a device and an account may make.
    pub quotas: Quotas,
    /// Uploads of one key that may be under way at once on one gateway.
    pub uploads_per_key: usize,
    /// How many bytes may be stored.
    pub storage: StorageQuotas,
}

impl Default for CallerLimits {
    fn default() -> Self {
        const FAILED_AUTHENTICATIONS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(120).expect("not zero");
        Self {
            waiting_runs_per_application: 10_000,
            rate: Rate::default(),
            failed_authentications_per_minute: FAILED_AUTHENTICATIONS_PER_MINUTE,
            retention: Duration::from_secs(30 * 24 * 3600),
            streams_per_application: 1000,
            waits_per_application: 1000,
            bodies_per_key: 256,
            body_bytes_per_key: 32 * 1024 * 1024,
            concurrent_commits: None,
            quotas: Quotas::default(),
            uploads_per_key: 8,
            storage: StorageQuotas::default(),
        }
    }
}
