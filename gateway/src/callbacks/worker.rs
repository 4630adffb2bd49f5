//! Takes what is due, sends it, records the outcome.
//!
//! One task runs the rounds; each attempt is a task of its own. Outcomes that are ready together are written together,
//! and only written outcomes free capacity. Everything here may be lost at any moment: a delivery whose outcome was not
//! written is due again when its lease is over.

use std::time::Duration;

use deskgate_protocol::DestinationId;
use deskgate_protocol::delivery::DeliveryErrorCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub use super::attempt::DeliveryTransport;
use super::attempt::attempt;
use super::concurrency::{ConcurrencyLimits, INITIAL_CONCURRENCY};
use crate::domain::deliveries::{PayloadBuilder, SignedRequest};
use crate::store::deliveries::outcomes::{AttemptOutcome, Disposition};
use crate::store::{Error, Store};

/// Attempts that are under way at once.
const MAX_CONCURRENT_ATTEMPTS: usize = 256;
/// Bytes of the attempts under way; below this, one more may begin.
const MAX_BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;
/// Hints can be lost, and failed deliveries become due without one, so the tables are polled this often.
const DELIVERY_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two polls while changes keep coming.
const DELIVERY_DEBOUNCE_INTERVAL: Duration = Duration::from_millis(5);
/// The time for attempts under way when the gateway stops; longer ones are repeated later.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The timings of deliveries.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryTimings {
    /// How long a delivery is leased to an attempt before it is due again. Longer than any attempt takes.
    pub lease: Duration,
    /// The retention of ended deliveries.
    pub retention: Duration,
}

impl DeliveryTimings {
    /// The usual lease.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
}

/// An attempt that ended.
struct FinishedAttempt {
    /// The destination.
    to: DestinationId,
    /// The bytes it sent.
    bytes: usize,
    outcome: AttemptOutcome,
}

/// The attempts of one replica.
struct DeliveryWorker<P> {
    store: Store,
    scribe: PayloadBuilder,
    post: P,
    clocks: DeliveryTimings,
    limits: ConcurrencyLimits,
    attempts: JoinSet<FinishedAttempt>,
    /// The bytes of the attempts under way.
    bytes: usize,
    /// Outcomes that are not written yet.
    unwritten: Vec<FinishedAttempt>,
    /// Whether any callback was enabled, and when that was read.
    is_on: Option<Instant>,
    failing: bool,
}

/// Runs rounds until `stop`, then finishes what is under way.
pub async fn run<P: DeliveryTransport>(
    store: Store,
    scribe: PayloadBuilder,
    post: P,
    clocks: DeliveryTimings,
    stop: CancellationToken,
) {
    let mut anything = store.notifier().subscribe_any();
    let mut rounds = DeliveryWorker {
        store,
        scribe,
        post,
        clocks,
        limits: ConcurrencyLimits::default(),
        attempts: JoinSet::new(),
        bytes: 0,
        unwritten: Vec::new(),
        is_on: None,
        failing: false,
    };
    loop {
        let looked = Instant::now();
        // Marked as seen before the poll: changes during the poll start another one.
        anything.borrow_and_update();
        let is_on = rounds.look().await;
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(looked + DELIVERY_POLL_INTERVAL) => {}
            Some(ended) = rounds.attempts.join_next() => rounds.ended(ended),
            // The sender lives as long as the store.
            Ok(()) = anything.changed(), if is_on => {}
        }
        // Changes within this moment share one poll and one write.
        if stop.run_until_cancelled(sleep_until(looked + DELIVERY_DEBOUNCE_INTERVAL)).await.is_none() {
            break;
        }
    }
    let rest = async {
        while let Some(ended) = rounds.attempts.join_next().await {
            rounds.ended(ended);
        }
    };
    // Longer attempts are cut off; their records say that the outcome is unknown.
    let _ = timeout(DRAIN_TIMEOUT, rest).await;
    rounds.gather();
    let last = std::mem::take(&mut rounds.unwritten);
    match rounds.settle(&last).await {
        Ok(()) => rounds.count(last),
        Err(error) => tracing::warn!(%error, "what came of the last deliveries was not written down"),
    }
}

impl<P: DeliveryTransport> DeliveryWorker<P> {
    /// Writes outcomes, and beside that begins what is due. Returns whether there is anything to wait for at all.
    async fn look(&mut self) -> bool {
        self.gather();
        match self.round().await {
            Ok(is_on) => {
                self.failing = false;
                is_on
            }
            Err(error) => {
                if !self.failing {
                    tracing::warn!(%error, "deliveries wait for the database");
                }
                self.failing = true;
                false
            }
        }
    }

    async fn round(&mut self) -> Result<bool, Error> {
        if self.is_on.is_none_or(|asked| asked.elapsed() >= DELIVERY_POLL_INTERVAL) {
            self.is_on = self.store.has_callbacks().await?.then(Instant::now);
        }
        let finished = std::mem::take(&mut self.unwritten);
        let (written, claimed) = match self.failing {
            // Their leases may be over: they must not be claimed again before it is written what came of them.
            true => match self.settle(&finished).await {
                Ok(()) => (Ok(()), self.claim().await),
                Err(error) => (Err(error), Ok(Vec::new())),
            },
            false => tokio::join!(self.settle(&finished), self.claim()),
        };
        match written {
            Ok(()) => self.count(finished),
            Err(_) => self.unwritten = finished,
        }
        self.begin(claimed?);
        written.map(|()| self.is_on.is_some())
    }

    /// What is due, as far as there is room for it.
    async fn claim(&self) -> Result<Vec<(DestinationId, Result<SignedRequest, AttemptOutcome>)>, Error> {
        let (free, bytes) = (
            MAX_CONCURRENT_ATTEMPTS.saturating_sub(self.attempts.len()),
            MAX_BYTES_IN_FLIGHT.saturating_sub(self.bytes),
        );
        if self.is_on.is_none() || free == 0 || bytes == 0 {
            return Ok(Vec::new());
        }
        let limit = u32::try_from(free).unwrap_or(u32::MAX);
        let rooms = self.limits.rooms();
        let claimed = self.store.claim_deliveries(limit, bytes, &rooms, INITIAL_CONCURRENCY, self.clocks.lease).await?;
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let to: Vec<DestinationId> = claimed.iter().map(|claimed| claimed.destination_id).collect();
        Ok(to.into_iter().zip(self.scribe.build(claimed).await?).collect())
    }

    fn begin(&mut self, claimed: Vec<(DestinationId, Result<SignedRequest, AttemptOutcome>)>) {
        for (to, signed) in claimed {
            self.limits.begin(to);
            match signed {
                Ok(signed) => {
                    let bytes = signed.body.len();
                    self.bytes += bytes;
                    let posting = attempt(self.post.clone(), signed);
                    self.attempts.spawn(async move { FinishedAttempt { to, bytes, outcome: posting.await } });
                }
                Err(outcome) => {
                    // The next claim must not take it again.
                    if outcome.becomes == Disposition::GivenBack {
                        self.limits.leave_to_others(to);
                    }
                    self.unwritten.push(FinishedAttempt { to, bytes: 0, outcome });
                }
            }
        }
    }

    fn ended(&mut self, ended: Result<FinishedAttempt, tokio::task::JoinError>) {
        match ended {
            Ok(ended) => {
                self.bytes = self.bytes.saturating_sub(ended.bytes);
                self.unwritten.push(ended);
            }
            // A gateway must not run half-broken: the owner of this task stops it.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// Collects every attempt that has ended by now.
    fn gather(&mut self) {
        while let Some(ended) = self.attempts.try_join_next() {
            self.ended(ended);
        }
    }

    async fn settle(&self, finished: &[FinishedAttempt]) -> Result<(), Error> {
        if finished.is_empty() {
            return Ok(());
        }
        let outcomes: Vec<AttemptOutcome> = finished.iter().map(|ended| ended.outcome.clone()).collect();
        let off = self.store.settle_deliveries(&outcomes, self.clocks.retention).await?;
        for off in off {
            tracing::warn!(app_id = %off.app_id, why = %off.why, "nothing is sent to this callback any more");
        }
        Ok(())
    }

    /// Takes written outcomes into account: only those free capacity.
    fn count(&mut self, written: Vec<FinishedAttempt>) {
        for FinishedAttempt { to, outcome, .. } in written {
            if outcome.becomes == Disposition::GivenBack {
                continue;
            }
            self.limits.end(to, outcome.becomes == Disposition::Delivered);
            self.store.metrics().callback_attempted(counted(&outcome));
            tracing::debug!(delivery_id = %outcome.delivery_id, attempt = outcome.attempt,
                state = %outcome.becomes.state(), status = outcome.status_code,
                code = outcome.error_code.map(DeliveryErrorCode::as_str), "attempted");
        }
    }
}

/// The label that counts an attempt.
fn counted(outcome: &AttemptOutcome) -> &'static str {
    match (outcome.becomes, outcome.error_code) {
        (Disposition::Delivered, _) => "delivered",
        (_, Some(DeliveryErrorCode::HostNotAllowed | DeliveryErrorCode::HostNotPublic)) => "blocked",
        (Disposition::Again(_), _) => "retry",
        (Disposition::Exhausted | Disposition::Discarded | Disposition::GivenBack, _) => "exhausted",
    }
}
