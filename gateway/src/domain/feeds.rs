//! One reader for all open streams: the events of a followed run are read once and sent to all followers.
//!
//! A hint says which run changed; runs that change while one read is under way share the next. So that a lost hint
//! costs a moment and nothing else, followed runs are also polled in turn, up to `RUNS_POLLED_PER_SECOND`. Followers
//! may miss updates: a stream that did sees the gap in the sequence and reads it from the tables.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::run::{EventType, RunEvent, RunState, StateReasonCode};
use deskgate_protocol::{DeviceId, RunId};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::runs::visible_state;
use crate::notify::{MessagePiece, Topic, Watcher};
use crate::store::Store;
use crate::store::events::RunProgress;

/// Runs that are polled each second without a hint.
const RUNS_POLLED_PER_SECOND: usize = 1000;
/// Runs in one read.
const MAX_RUNS_PER_READ: usize = 64;
/// Events of one run in one read.
const MAX_EVENTS_PER_READ: usize = 16;
/// Updates that a stream may have pending before it reads from the tables.
const UPDATE_CAPACITY: usize = 32;
/// Streams that may be waiting to join.
const JOIN_CAPACITY: usize = 256;

/// The state a caller sees, and why.
pub type VisibleState = (RunState, Option<StateReasonCode>);

/// An event, serialized once for all its followers.
#[derive(Debug)]
pub struct SerializedEvent {
    /// Its number in the run.
    pub sequence: u64,
    /// Its type.
    pub kind: EventType,
    /// The whole event as JSON.
    pub json: String,
}

impl SerializedEvent {
    /// Serializes an event.
    ///
    /// # Errors
    /// The event cannot be written as JSON.
    pub fn of(event: &RunEvent) -> Result<Self, serde_json::Error> {
        Ok(Self { sequence: event.sequence, kind: event.kind, json: serde_json::to_string(event)? })
    }
}

/// An update for the followers of a run.
#[derive(Clone, Debug)]
pub enum FeedUpdate {
    /// An event was stored.
    Event(Arc<SerializedEvent>),
    /// The run's visible state changed without an event.
    Seen(VisibleState),
    /// A piece of the assistant's message.
    Said {
        /// The piece.
        said: Arc<MessagePiece>,
        /// The last event that was sent before. For a stream that has shown a later one this piece is old: the message
        /// may be complete already.
        last: u64,
    },
}

/// A follower's subscription to a run's feed.
#[derive(Debug)]
pub struct FeedSubscription {
    /// The last event that the run's followers received.
    pub last: u64,
    /// The run's visible state when it joined.
    pub seen: VisibleState,
    /// All updates from then on.
    pub news: broadcast::Receiver<FeedUpdate>,
}

struct JoinRequest {
    run_id: RunId,
    last: u64,
    seen: VisibleState,
    answer: oneshot::Sender<FeedSubscription>,
}

/// Lets streams join.
#[derive(Clone)]
pub struct Feeds(mpsc::Sender<JoinRequest>);

/// The task that reads for all feeds.
pub struct FeedReader {
    store: Store,
    joins: mpsc::Receiver<JoinRequest>,
    /// Message pieces of all runs.
    said: broadcast::Receiver<Arc<MessagePiece>>,
    feeds: BTreeMap<RunId, Feed>,
    /// One entry for each feed.
    changes: FuturesUnordered<BoxFuture<'static, FeedChange>>,
    /// Runs to be read next.
    changed: HashSet<RunId>,
    /// The run that was polled last.
    looked: RunId,
}

struct Feed {
    last: u64,
    seen: VisibleState,
    speaker: Option<ActiveAttempt>,
    news: broadcast::Sender<FeedUpdate>,
}

/// The device and attempt that may send message pieces in a run.
struct ActiveAttempt {
    device_id: DeviceId,
    attempt: u32,
    /// How many of its events have been read here.
    reported: u64,
}

/// A hint for a run, or its last follower left.
struct FeedChange {
    run_id: RunId,
    watcher: Watcher,
}

impl Feeds {
    /// Creates the feeds, and the task that serves them.
    pub fn new(store: Store) -> (Self, FeedReader) {
        let (sender, joins) = mpsc::channel(JOIN_CAPACITY);
        let reader = FeedReader {
            joins,
            said: store.notifier().subscribe_pieces(),
            store,
            feeds: BTreeMap::new(),
            changes: FuturesUnordered::new(),
            changed: HashSet::new(),
            looked: before_all(),
        };
        (Self(sender), reader)
    }

    /// Follows a run that was just read with this last event and this state. `None`: the gateway has stopped.
    pub async fn join(&self, run_id: RunId, last: u64, seen: VisibleState) -> Option<FeedSubscription> {
        let (answer, joined) = oneshot::channel();
        self.0.send(JoinRequest { run_id, last, seen, answer }).await.ok()?;
        joined.await.ok()
    }
}

impl FeedReader {
    /// Reads and sends updates until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut look = tokio::time::interval(Duration::from_secs(1));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(join) = self.joins.recv() => self.join(join),
                Some(change) = self.changes.next() => self.note(change),
                _ = look.tick() => self.look(),
                // A slow reader misses some pieces; that is harmless.
                Ok(said) = self.said.recv() => self.pass_on(said),
            }
            self.read().await;
        }
    }

    fn join(&mut self, JoinRequest { run_id, last, seen, answer }: JoinRequest) {
        let feed = self.feeds.entry(run_id).or_insert_with(|| {
            let news = broadcast::Sender::new(UPDATE_CAPACITY);
            let watcher = self.store.notifier().watch(Topic::Run(run_id));
            self.changes.push(change(run_id, watcher, news.clone()));
            // Events between the caller's reading and this moment.
            self.changed.insert(run_id);
            Feed { last, seen, speaker: None, news }
        });
        if feed.last < last {
            // A caller that knows more than was sent here must not be shown something older.
            self.changed.insert(run_id);
        }
        // A caller that no longer waits needs no subscription.
        let _ = answer.send(FeedSubscription { last: feed.last, seen: feed.seen, news: feed.news.subscribe() });
    }

    fn note(&mut self, FeedChange { run_id, watcher }: FeedChange) {
        let Some(feed) = self.feeds.get(&run_id) else { return };
        if feed.news.receiver_count() == 0 {
            self.feeds.remove(&run_id);
            self.changed.remove(&run_id);
            return;
        }
        self.changes.push(change(run_id, watcher, feed.news.clone()));
        self.changed.insert(run_id);
    }

    fn pass_on(&mut self, said: Arc<MessagePiece>) {
        if let Some(feed) = self.feeds.get(&said.run_id)
            && feed.speaker.as_ref().is_some_and(|speaker| speaker.may_say(&said))
        {
            let _ = feed.news.send(FeedUpdate::Said { said, last: feed.last });
        }
    }

    /// Polls the next runs in turn.
    fn look(&mut self) {
        let turn: Vec<RunId> = self
            .feeds
            .range((Excluded(self.looked), Unbounded))
            .take(RUNS_POLLED_PER_SECOND)
            .map(|(run_id, _)| *run_id)
            .collect();
        self.looked = turn.last().copied().filter(|_| turn.len() == RUNS_POLLED_PER_SECOND).unwrap_or_else(before_all);
        self.changed.extend(turn);
    }

    /// Collects all pending changes, so that one read is enough for them.
    fn gather(&mut self) {
        while let Ok(join) = self.joins.try_recv() {
            self.join(join);
        }
        while let Some(Some(change)) = self.changes.next().now_or_never() {
            self.note(change);
        }
        // These pieces were sent before the events that are read next.
        for _ in 0..self.said.len() {
            if let Ok(said) = self.said.try_recv() {
                self.pass_on(said);
            }
        }
    }

    async fn read(&mut self) {
        self.gather();
        while !self.changed.is_empty() {
            let next: Vec<RunId> = self.changed.iter().take(MAX_RUNS_PER_READ).copied().collect();
            for run_id in &next {
                self.changed.remove(run_id);
            }
            let after: Vec<_> = next.iter().filter_map(|id| Some((*id, self.feeds.get(id)?.last))).collect();
            match self.store.progress(&after, MAX_EVENTS_PER_READ as i64).await {
                Ok(found) => found.iter().for_each(|progress| self.tell(progress)),
                Err(error) => {
                    tracing::warn!(%error, "events for open streams could not be read; looking again");
                    self.changed.clear();
                }
            }
            self.gather();
        }
    }

    fn tell(&mut self, progress: &RunProgress) {
        if progress.events.len() == MAX_EVENTS_PER_READ {
            self.changed.insert(progress.run_id);
        }
        if let Some(feed) = self.feeds.get_mut(&progress.run_id) {
            feed.tell(progress);
        }
    }
}

impl ActiveAttempt {
    /// Pieces and events arrive on different ways. A piece that an event has overtaken is dropped: that event may have
    /// completed its message.
    fn may_say(&self, said: &MessagePiece) -> bool {
        (said.device_id, said.attempt) == (self.device_id, self.attempt) && said.after >= self.reported
    }
}

impl Feed {
    fn tell(&mut self, progress: &RunProgress) {
        let RunProgress { device_id, attempt, device_seq, .. } = *progress;
        self.speaker = Some(ActiveAttempt { device_id, attempt, reported: device_seq });
        for event in &progress.events {
            self.last = event.sequence;
            // An event that cannot be serialized is a gap, which a stream that reads it reports.
            if let Ok(told) = SerializedEvent::of(event) {
                let _ = self.news.send(FeedUpdate::Event(Arc::new(told)));
            }
        }
        let seen = visible_state(progress.state, progress.presence, progress.awaits_turn);
        if seen != self.seen {
            self.seen = seen;
            let _ = self.news.send(FeedUpdate::Seen(seen));
        }
    }
}

/// The identifier before all runs.
fn before_all() -> RunId {
    uuid::Uuid::nil().into()
}

fn change(run_id: RunId, mut watcher: Watcher, news: broadcast::Sender<FeedUpdate>) -> BoxFuture<'static, FeedChange> {
    async move {
        tokio::select! {
            () = watcher.changed() => {}
            () = news.closed() => {}
        }
        FeedChange { run_id, watcher }
    }
    .boxed()
}
