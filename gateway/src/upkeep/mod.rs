//! Work that is due because time passes: each kind is a named pass that can be run once. The bytes of files and artifacts are
//! deleted by [`objects`].

pub mod objects;

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::store::{Error, Store};

/// The pause between two rounds. Every replica runs them; they do not disturb each other.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// The heartbeats of the rounds, for other parts of the gateway.
#[derive(Clone, Debug, Default)]
pub struct UpkeepHeartbeats {
    /// Records each round that succeeded.
    pub queue: Heartbeat,
    /// Records the end of each step, with success or not: also while the database is away.
    pub turning: Heartbeat,
}

/// Runs rounds until `stop`.
pub async fn run(store: Store, retention: Duration, pulses: UpkeepHeartbeats, stop: CancellationToken) {
    let mut rounds = interval(ROUND_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    while stop.run_until_cancelled(rounds.tick()).await.is_some() {
        match round(&store, retention, &pulses.turning).await {
            Ok(_) => {
                pulses.queue.beat();
                failing = false;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "upkeep waits for the database");
                }
                failing = true;
            }
        }
    }
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepCounts {
    /// Offers that were not accepted and are queued again.
    pub offers_returned: usize,
    /// Runs that never started in time.
    pub expired: usize,
    /// Runs whose device was lost beyond its lease.
    pub lost: usize,
    /// Runs whose device was removed.
    pub removed: usize,
    /// Runs that were ended or asked to stop because their application was disabled or their service unpublished.
    pub told: usize,
    /// Unpublished services whose runs have all been told to end.
    pub services_told: usize,
    /// Resets whose device was removed.
    pub resets_failed: usize,
    /// Ended runs that were deleted because their time was over.
    pub purged: usize,
    /// Deleted runs whose last rows are removed now.
    pub forgotten: usize,
    /// Resets that ended long ago and were deleted.
    pub resets_forgotten: usize,
    /// Requests that opened a conversation long ago and were forgotten.
    pub openings_forgotten: usize,
    /// Old entries of the activity list that were deleted.
    pub activity_forgotten: usize,
    /// Old receipts of webhooks that were deleted.
    pub receipts_forgotten: usize,
    /// Requests without a key that can no longer be repeated.
    pub unkeyed_forgotten: usize,
    /// Calls of MCP that are over.
    pub calls_forgotten: usize,
    /// Old counts of runs that were deleted.
    pub counts_forgotten: usize,
    /// Deliveries without a receiver that were discarded.
    pub deliveries_discarded: usize,
    /// Deliveries that ended long ago and were deleted.
    pub deliveries_purged: usize,
    /// Invitations that ended long ago and were deleted.
    pub invitations_forgotten: usize,
    /// Listeners that ended long ago and were deleted.
    pub listeners_forgotten: usize,
    /// Counts that were added up with others.
    pub counts_folded: usize,
}

/// Statements of one pass that deletes runs: enough to keep up with what is accepted, and few enough that
/// the other passes are not kept waiting.
const MAX_DELETE_STATEMENTS: usize = 20;

/// One round of every pass.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn run_once(store: &Store, retention: Duration) -> Result<UpkeepCounts, Error> {
    round(store, retention, &Heartbeat::default()).await
}

/// Runs a pass, and then records an iteration in `turning`.
async fn step(turning: &Heartbeat, pass: impl Future<Output = Result<usize, Error>>) -> Result<usize, Error> {
    let done = pass.await;
    turning.beat();
    done
}

async fn round(store: &Store, retention: Duration, turning: &Heartbeat) -> Result<UpkeepCounts, Error> {
    let round = UpkeepCounts {
        offers_returned: step(turning, store.return_unaccepted_offers()).await?,
        expired: step(turning, store.expire_queued(retention)).await?,
        lost: step(turning, store.suspend_lost_runs()).await?,
        removed: step(turning, store.end_runs_of_revoked_devices(retention)).await?,
        told: step(turning, store.tell_runs_of_what_ended(retention)).await?,
        services_told: step(turning, store.note_runs_of_services_told(None)).await?,
        resets_failed: step(turning, store.fail_resets_of_revoked_devices()).await?,
        purged: purge(store, turning).await?,
        forgotten: step(turning, store.forget_purged_runs()).await?,
        resets_forgotten: step(turning, store.forget_resets(retention)).await?,
        openings_forgotten: step(turning, store.forget_openings(retention)).await?,
        activity_forgotten: step(turning, store.forget_activity()).await?,
        receipts_forgotten: step(turning, store.forget_receipts(retention)).await?,
        unkeyed_forgotten: step(turning, store.forget_unkeyed()).await?,
        calls_forgotten: step(turning, store.forget_mcp_calls()).await?,
        counts_forgotten: step(turning, store.forget_counts()).await?,
        deliveries_discarded: step(turning, store.discard_deliveries(retention)).await?,
        deliveries_purged: step(turning, store.purge_deliveries()).await?,
        invitations_forgotten: step(turning, store.forget_invitations()).await?,
        listeners_forgotten: step(turning, store.forget_listeners()).await?,
        counts_folded: step(turning, store.fold_counts()).await?,
    };
    if round != UpkeepCounts::default() {
        tracing::info!(?round, "upkeep");
    }
    Ok(round)
}

/// Deletes ended runs until none is left to delete, or the other passes are due.
async fn purge(store: &Store, turning: &Heartbeat) -> Result<usize, Error> {
    let mut purged = 0;
    for _ in 0..MAX_DELETE_STATEMENTS {
        match step(turning, store.purge_runs()).await? {
            0 => break,
            count => purged += count,
        }
    }
    Ok(purged)
}
