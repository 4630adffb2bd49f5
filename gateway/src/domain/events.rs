//! The event stream of a run: its contents, its start, and its end.
//!
//! A stream begins with the run's record, goes on with every stored event after its cursor, and ends with the final
//! one. The cursor is the only truth: an event is shown when it is the next number, skipped when it was shown, and read
//! from the tables when there is a gap. So a stream that received too many notifications, too few or none still shows
//! each event once and in order.

use std::collections::VecDeque;
use std::sync::Arc;

use deskgate_protocol::run::{Phase, Run, RunEvent, RunState, StateReason, StateReasonCode};
use deskgate_protocol::{ApplicationId, RunId};
use futures_util::FutureExt;
use futures_util::future::join;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::CallerLimits;
use super::access::Caller;
use super::feeds::{FeedSubscription, FeedUpdate, Feeds, SerializedEvent, VisibleState};
use super::key_watcher::{KeyWatch, KeyWatcher};
use super::quota::{Quota, QuotaPermit};
use super::refusal::Refusal;
use super::runs;
use crate::metrics::OpenGuard;
use crate::notify::MessagePiece;
use crate::store::Store;

/// Events that a stream reads at once when it is behind.
const CATCH_UP_EVENTS: i64 = 32;
/// The most events on one page.
pub const MAX_PAGE_EVENTS: u32 = 100;

/// Opens streams.
#[derive(Clone)]
pub struct EventStreams {
    store: Store,
    feeds: Feeds,
    vigil: KeyWatcher,
    places: Quota<ApplicationId>,
    waits: Quota<ApplicationId>,
    draining: CancellationToken,
}

/// One item of a stream.
#[derive(Debug)]
pub enum StreamFrame {
    /// The record as it was when the stream began.
    Snapshot(Box<Run>),
    /// A stored event.
    Event(Arc<SerializedEvent>),
    /// The run started to wait for its device.
    Waiting(StateReason),
    /// A piece of the assistant's message.
    Said(Arc<MessagePiece>),
    /// The gateway stops; the stream continues elsewhere.
    Closing,
}

/// An open stream.
pub struct EventStream {
    store: Store,
    run_id: RunId,
    /// The last event that was shown.
    cursor: u64,
    /// Shown before everything else.
    first: VecDeque<StreamFrame>,
    seen: RunState,
    /// Read, and not yet shown.
    backlog: VecDeque<Arc<SerializedEvent>>,
    /// Whether the tables may hold more than the backlog.
    behind: bool,
    /// `None`: the run has ended and there are no further events.
    live: Option<broadcast::Receiver<FeedUpdate>>,
    ended: bool,
    key: KeyWatch,
    draining: CancellationToken,
    _place: QuotaPermit<ApplicationId>,
    _counted: OpenGuard,
}

/// A permit for a read that may wait, for as long as this is held.
#[derive(Debug)]
pub struct WaitPermit {
    key: KeyWatch,
    _place: QuotaPermit<ApplicationId>,
}

impl WaitPermit {
    /// Waits until the key is no longer valid; returns the refusal that a request with it would get.
    pub async fn ended(&self) -> Refusal {
        self.key.ended().await
    }
}

/// A page of a run's events.
#[derive(Debug)]
pub struct RunEventPage {
    /// Oldest first.
    pub events: Vec<RunEvent>,
    /// The cursor of the next page.
    pub last: u64,
    /// Whether there are more already.
    pub has_more: bool,
}

impl EventStreams {
    /// Streams that close when `draining` is cancelled, and the task that feeds them until `stop`.
    pub fn new(
        store: Store,
        limits: &CallerLimits,
        draining: CancellationToken,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (feeds, reader) = Feeds::new(store.clone());
        let vigil = KeyWatcher::new(store.clone());
        let work = join(reader.run(stop.clone()), vigil.clone().run(stop)).map(drop);
        let (places, waits) = (Quota::new(limits.streams_per_application), Quota::new(limits.waits_per_application));
        (Self { store, feeds, vigil, places, waits, draining }, work)
    }

    /// A permit for a read of this caller that waits for a change.
    ///
    /// # Errors
    /// [`Refusal::TooManyWaits`]: the application has as many waiting reads here as it may.
    pub fn wait(&self, caller: &Caller) -> Result<WaitPermit, Refusal> {
        let place = self.waits.acquire(caller.app_id());
        let place = place.ok_or(Refusal::TooManyWaits { limit: self.waits.limit() })?;
        Ok(WaitPermit { key: self.vigil.watch(caller), _place: place })
    }

    /// Opens a stream on a run of this caller, behind the event `after`. `None`: the run has ended, and nothing follows.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such run, or another application's or subject's, or of a service that the key may not
    /// use. [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::InvalidCursor`]: `after` is beyond the
    /// newest event. [`Refusal::TooManyStreams`]: the application has as many streams open here as it may.
    /// [`Refusal::Draining`]: the gateway no longer feeds streams. [`Refusal::StoreUnavailable`] or
    /// [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn open(&self, caller: &Caller, run_id: RunId, after: u64) -> Result<Option<EventStream>, Refusal> {
        let key = self.vigil.watch(caller);
        let run = self.run(caller, run_id, after).await?;
        let is_final = run.phase == Phase::Final;
        if is_final && after == run.last_sequence {
            return Ok(None);
        }
        let place = self.places.acquire(caller.app_id());
        let place = place.ok_or(Refusal::TooManyStreams { limit: self.places.limit() })?;
        let (last_sequence, seen) =
            (run.last_sequence, (run.state, run.state_reason.as_ref().map(|reason| reason.code)));
        let mut stream = EventStream {
            store: self.store.clone(),
            run_id,
            cursor: after,
            seen: run.state,
            backlog: VecDeque::new(),
            behind: after < last_sequence,
            live: None,
            ended: false,
            key,
            draining: self.draining.clone(),
            first: VecDeque::from([StreamFrame::Snapshot(Box::new(run))]),
            _place: place,
            _counted: self.store.metrics().stream_opened(),
        };
        if !is_final {
            let joined = self.feeds.join(run_id, last_sequence, seen).await;
            let FeedSubscription { last, news, seen } = joined.ok_or(Refusal::Draining)?;
            stream.live = Some(news);
            // Updates from before this stream joined are in the tables.
            stream.behind |= stream.cursor < last;
            let waiting = stream.note(seen).map(StreamFrame::Waiting);
            stream.first.extend(waiting);
        }
        Ok(Some(stream))
    }

    /// Up to `limit` events of a run of this caller, behind the event `after`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such run, or another application's or subject's, or of a service that the key may not
    /// use. [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::InvalidCursor`]: `after` is beyond the
    /// newest event. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses
    /// the statement.
    pub async fn page(&self, caller: &Caller, run_id: RunId, after: u64, limit: u32) -> Result<RunEventPage, Refusal> {
        self.run(caller, run_id, after).await?;
        let limit = limit.min(MAX_PAGE_EVENTS) as usize;
        let mut events = self.store.events_after(run_id, after, limit as i64 + 1).await?;
        let has_more = events.len() > limit;
        events.truncate(limit);
        let last = events.last().map_or(after, |event| event.sequence);
        Ok(RunEventPage { events, last, has_more })
    }

    /// The run, if this caller may see it and its events reach `after`.
    async fn run(&self, caller: &Caller, run_id: RunId, after: u64) -> Result<Run, Refusal> {
        let run = runs::find(&self.store, caller, run_id).await.map(runs::visible_run)?;
        if after > run.last_sequence {
            return Err(Refusal::InvalidCursor);
        }
        Ok(run)
    }
}

impl EventStream {
    /// The run of the stream.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The next item; `None` at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<StreamFrame> {
        if let Some(frame) = self.first.pop_front() {
            return Some(frame);
        }
        if self.ended {
            return None;
        }
        // A stream that has much to catch up with must end in time, too.
        let (draining, key) = (self.draining.clone(), self.key.clone());
        let frame = tokio::select! {
            biased;
            () = draining.cancelled() => Some(StreamFrame::Closing),
            _ = key.ended() => None,
            frame = self.go_on() => return frame,
        };
        self.ended = true;
        frame
    }

    async fn go_on(&mut self) -> Option<StreamFrame> {
        while !self.ended {
            if let Some(told) = self.backlog.pop_front() {
                return Some(self.show(told));
            }
            if self.behind {
                // Boxed, so that an idle stream is small.
                Box::pin(self.catch_up()).await;
            } else if let Some(frame) = self.hear().await {
                return Some(frame);
            }
        }
        None
    }

    fn show(&mut self, told: Arc<SerializedEvent>) -> StreamFrame {
        self.cursor = told.sequence;
        self.ended = told.kind.is_final();
        StreamFrame::Event(told)
    }

    async fn catch_up(&mut self) {
        let told =
            |events: Vec<RunEvent>| events.iter().map(|event| SerializedEvent::of(event).map(Arc::new)).collect();
        match self.store.events_after(self.run_id, self.cursor, CATCH_UP_EVENTS).await.map(told) {
            Ok(Ok(read)) => {
                let read: VecDeque<_> = read;
                self.behind = read.len() == CATCH_UP_EVENTS as usize;
                self.backlog = read;
            }
            // The caller reconnects, here or elsewhere, and continues after its last event.
            Ok(Err(error)) => self.give_up(&error),
            Err(error) => self.give_up(&error),
        }
    }

    fn give_up(&mut self, error: &dyn std::error::Error) {
        tracing::warn!(run_id = %self.run_id, %error, "a stream ends because its events cannot be read");
        self.ended = true;
    }

    /// Waits for an update; `None` when there was none to show.
    async fn hear(&mut self) -> Option<StreamFrame> {
        let Some(live) = &mut self.live else {
            self.ended = true;
            return None;
        };
        match live.recv().await {
            Ok(FeedUpdate::Event(told)) if told.sequence == self.cursor + 1 => return Some(self.show(told)),
            Ok(FeedUpdate::Event(told)) => self.behind = told.sequence > self.cursor,
            Ok(FeedUpdate::Said { said, last }) if last >= self.cursor => return Some(StreamFrame::Said(said)),
            Ok(FeedUpdate::Said { .. }) => {}
            Ok(FeedUpdate::Seen(seen)) => return self.note(seen).map(StreamFrame::Waiting),
            Err(RecvError::Lagged(_)) => self.behind = true,
            Err(RecvError::Closed) => self.ended = true,
        }
        None
    }

    /// Stores the run's visible state; returns the reason if it has started to wait for its device.
    fn note(&mut self, (state, reason): VisibleState) -> Option<StateReason> {
        let begins = state == RunState::WaitingForDevice && self.seen != state;
        self.seen = state;
        reason.filter(|_| begins).map(StateReasonCode::reason)
    }
}
