//! What a stream of a run's events shows, from where, and until when.
//!
//! A stream begins with the run's record, goes on with every stored event behind its cursor, and
//! ends with the final one. The cursor is the only truth: an event is shown when it is the next
//! number, skipped when it was shown, and read from the tables when there is a gap. So a stream that
//! was told too much, too little or nothing still shows each event once and in order.

use std::collections::VecDeque;
use std::sync::Arc;

use deskgate_protocol::run::{Phase, Run, RunEvent, RunState, StateReason, StateReasonCode};
use deskgate_protocol::{ApplicationId, RunId};
use futures_util::FutureExt;
use futures_util::future::join;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::access::{Access, Caller};
use super::feeds::{Feeds, Joined, News, Seen, Told};
use super::places::{Place, Places};
use super::refusal::Refusal;
use super::runs;
use super::vigil::{Vigil, Watched};
use crate::meters::OpenStream;
use crate::store::Store;
use crate::wake::Said;

/// Events that a stream reads at once when it is behind.
const CATCH_UP: i64 = 32;
/// The most events on one page.
pub const PAGE_LIMIT: u32 = 100;

/// Opens streams.
#[derive(Clone)]
pub struct Streams {
    store: Store,
    feeds: Feeds,
    vigil: Vigil,
    places: Places<ApplicationId>,
    waits: Places<ApplicationId>,
    draining: CancellationToken,
}

/// One thing that a stream shows.
#[derive(Debug)]
pub enum Frame {
    /// The record as it was when the stream began.
    Snapshot(Box<Run>),
    /// A stored event.
    Event(Arc<Told>),
    /// The run began to wait for its device.
    Waiting(StateReason),
    /// The assistant writes.
    Said(Arc<Said>),
    /// The gateway stops; the stream goes on elsewhere.
    Closing,
}

/// An open stream.
pub struct Stream {
    store: Store,
    run_id: RunId,
    /// The last event that was shown.
    cursor: u64,
    /// Shown before everything else.
    first: VecDeque<Frame>,
    seen: RunState,
    /// Read, and not yet shown.
    backlog: VecDeque<Arc<Told>>,
    /// Whether the tables may hold more than the backlog.
    behind: bool,
    /// `None`: the run has ended, nothing comes any more.
    live: Option<broadcast::Receiver<News>>,
    ended: bool,
    key: Watched,
    draining: CancellationToken,
    _place: Place<ApplicationId>,
    _counted: OpenStream,
}

/// A read that may wait, for as long as this is held.
#[derive(Debug)]
pub struct Waiting {
    key: Watched,
    _place: Place<ApplicationId>,
}

impl Waiting {
    /// Waits until the key is good no more.
    pub async fn ended(&self) {
        self.key.ended().await;
    }
}

/// Some of a run's events.
#[derive(Debug)]
pub struct Page {
    /// Oldest first.
    pub events: Vec<RunEvent>,
    /// After which event to go on.
    pub last: u64,
    /// Whether there are more already.
    pub has_more: bool,
}

impl Streams {
    /// Streams that close when `draining` is cancelled, and the work that keeps them going until `stop`.
    pub fn new(
        store: Store,
        access: Access,
        limits: &Limits,
        draining: CancellationToken,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (feeds, reader) = Feeds::new(store.clone());
        let vigil = Vigil::new(access);
        let work = join(reader.run(stop.clone()), vigil.clone().run(stop)).map(drop);
        let (places, waits) = (Places::new(limits.streams_per_application), Places::new(limits.waits_per_application));
        (Self { store, feeds, vigil, places, waits, draining }, work)
    }

    /// Lets a read of this caller wait for a change.
    pub fn wait(&self, caller: &Caller) -> Result<Waiting, Refusal> {
        let place = self.waits.enter(caller.app_id());
        let place = place.ok_or(Refusal::TooManyWaits { limit: self.waits.limit() })?;
        Ok(Waiting { key: self.vigil.watch(caller), _place: place })
    }

    /// Opens a stream on a run of this caller, behind the event `after`.
    pub async fn open(&self, caller: &Caller, run_id: RunId, after: u64) -> Result<Stream, Refusal> {
        let key = self.vigil.watch(caller);
        let run = self.run(caller, run_id, after).await?;
        let place = self.places.enter(caller.app_id());
        let place = place.ok_or(Refusal::TooManyStreams { limit: self.places.limit() })?;
        let (last_sequence, seen) =
            (run.last_sequence, (run.state, run.state_reason.as_ref().map(|reason| reason.code)));
        let is_final = run.phase == Phase::Final;
        let mut stream = Stream {
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
            first: VecDeque::from([Frame::Snapshot(Box::new(run))]),
            _place: place,
            _counted: self.store.meters().stream_opened(),
        };
        if !is_final {
            let joined = self.feeds.join(run_id, last_sequence, seen).await;
            let Joined { last, news, seen } = joined.ok_or(Refusal::Draining)?;
            stream.live = Some(news);
            // What others were told before this one joined is in the tables.
            stream.behind |= stream.cursor < last;
            let waiting = stream.note(seen).map(Frame::Waiting);
            stream.first.extend(waiting);
        }
        Ok(stream)
    }

    /// Up to `limit` events of a run of this caller, behind the event `after`.
    pub async fn page(&self, caller: &Caller, run_id: RunId, after: u64, limit: u32) -> Result<Page, Refusal> {
        self.run(caller, run_id, after).await?;
        let limit = limit.min(PAGE_LIMIT) as usize;
        let mut events = self.store.events_after(run_id, after, limit as i64 + 1).await?;
        let has_more = events.len() > limit;
        events.truncate(limit);
        let last = events.last().map_or(after, |event| event.sequence);
        Ok(Page { events, last, has_more })
    }

    /// The run, if this caller may see it and it has come as far as `after`.
    async fn run(&self, caller: &Caller, run_id: RunId, after: u64) -> Result<Run, Refusal> {
        let run = runs::find(&self.store, caller, run_id).await.map(runs::seen)?;
        if after > run.last_sequence {
            return Err(Refusal::InvalidCursor);
        }
        Ok(run)
    }
}

impl Stream {
    /// Which run it shows.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// The next thing to show; `None` at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Frame> {
        if let Some(frame) = self.first.pop_front() {
            return Some(frame);
        }
        while !self.ended && !self.key.has_ended() {
            if let Some(told) = self.backlog.pop_front() {
                return Some(self.show(told));
            }
            if self.behind {
                // Boxed, so that a stream that only waits is small.
                Box::pin(self.catch_up()).await;
            } else if let Some(frame) = self.hear().await {
                return Some(frame);
            }
        }
        None
    }

    fn show(&mut self, told: Arc<Told>) -> Frame {
        self.cursor = told.sequence;
        self.ended = told.kind.is_final();
        Frame::Event(told)
    }

    async fn catch_up(&mut self) {
        let told = |events: Vec<RunEvent>| events.iter().map(|event| Told::of(event).map(Arc::new)).collect();
        match self.store.events_after(self.run_id, self.cursor, CATCH_UP).await.map(told) {
            Ok(Ok(read)) => {
                let read: VecDeque<_> = read;
                self.behind = read.len() == CATCH_UP as usize;
                self.backlog = read;
            }
            // The caller comes again, here or elsewhere, and goes on behind what it has.
            Ok(Err(error)) => self.give_up(&error),
            Err(error) => self.give_up(&error),
        }
    }

    fn give_up(&mut self, error: &dyn std::error::Error) {
        tracing::warn!(run_id = %self.run_id, %error, "a stream ends because its events cannot be read");
        self.ended = true;
    }

    /// Waits for news; `None` when there was none to show.
    async fn hear(&mut self) -> Option<Frame> {
        let Some(live) = &mut self.live else {
            self.ended = true;
            return None;
        };
        let heard = tokio::select! {
            biased;
            () = self.draining.cancelled() => {
                self.ended = true;
                return Some(Frame::Closing);
            }
            () = self.key.ended() => return None,
            heard = live.recv() => heard,
        };
        match heard {
            Ok(News::Event(told)) if told.sequence == self.cursor + 1 => return Some(self.show(told)),
            Ok(News::Event(told)) => self.behind = told.sequence > self.cursor,
            Ok(News::Said(said)) => return Some(Frame::Said(said)),
            Ok(News::Seen(seen)) => return self.note(seen).map(Frame::Waiting),
            Err(RecvError::Lagged(_)) => self.behind = true,
            Err(RecvError::Closed) => self.ended = true,
        }
        None
    }

    /// Notes how the run is seen now, and says so if it has begun to wait for its device.
    fn note(&mut self, (state, reason): Seen) -> Option<StateReason> {
        let begins = state == RunState::WaitingForDevice && self.seen != state;
        self.seen = state;
        reason.filter(|_| begins).map(StateReasonCode::reason)
    }
}
