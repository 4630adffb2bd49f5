//! Notifies open pages of changes. Each tab holds one stream; a page that gets a change of something it shows fetches
//! itself again and replaces those parts.
//!
//! Changes on this computer are sent at once. The gateway's data is polled every few seconds, and only while a page is
//! open.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{GetAccess, ListDeliveries, ListRuns, ListWebhooks};
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Pages;
use super::auth::Visitor;
use crate::local::handler::{ActiveConnection, RequestHandler};

/// The path of the stream.
pub(super) const PATH: &str = "/live";
/// How many changes a slow tab may be behind; beyond that it fetches everything.
const CHANGE_QUEUE_LEN: usize = 64;
/// How often the gateway is polled while a page is open.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often open pages are told at most that an assistant has written more.
const WRITING_INTERVAL: Duration = Duration::from_millis(200);
/// How many runs are compared with those of the last poll.
const RUNS_COMPARED: u32 = 20;

deskgate_protocol::words! {
    /// What has changed.
    pub(super) enum Topic {
        /// The connection, access, the agent's work.
        Status = "status",
        /// Requests for approval.
        Approvals = "approvals",
        /// Runs, as the gateway knows them.
        Runs = "runs",
        /// Checks of drafts.
        Checks = "checks",
        /// Deliveries, as the gateway knows them.
        Deliveries = "deliveries",
        /// Webhooks and what they received.
        Webhooks = "webhooks",
        /// What assistants are writing.
        Writing = "writing",
    }
}

/// The sender of changes.
pub(super) struct LiveUpdates {
    changes: Changes,
    /// How many tabs have connected so far.
    tabs: Arc<AtomicU64>,
    stop: CancellationToken,
}

/// The changes, numbered: a page has the number of the newest one before it was made, and misses none until its stream is there.
#[derive(Clone)]
struct Changes {
    sender: broadcast::Sender<Topic>,
    number: Arc<AtomicU64>,
}

impl Changes {
    fn new() -> Self {
        let (sender, _) = broadcast::channel(CHANGE_QUEUE_LEN);
        // So that no page of an earlier agent has a number of this one's.
        let first = Timestamp::now().0.as_millisecond().unsigned_abs();
        Self { sender, number: Arc::new(AtomicU64::new(first)) }
    }

    fn send(&self, topic: Topic) {
        // What is being written changes all the time, and is told again at once.
        if topic != Topic::Writing {
            self.number.fetch_add(1, Ordering::SeqCst);
        }
        // There may be no open page.
        let _ = self.sender.send(topic);
    }
}

impl LiveUpdates {
    /// Follows the agent until `stop`.
    pub(super) fn new(handler: RequestHandler, stop: CancellationToken) -> Self {
        let changes = Changes::new();
        let tabs = Arc::new(AtomicU64::new(0));
        let (follow, until) = (Box::pin(follow(handler, changes.clone(), Arc::clone(&tabs))), stop.clone());
        tokio::spawn(async move { until.run_until_cancelled(follow).await });
        Self { changes, tabs, stop }
    }

    /// Notifies every tab.
    pub(super) fn changed(&self, topic: Topic) {
        self.changes.send(topic);
    }

    /// The number of the newest change.
    pub(super) fn number(&self) -> u64 {
        self.changes.number.load(Ordering::SeqCst)
    }
}

async fn follow(handler: RequestHandler, changes: Changes, tabs: Arc<AtomicU64>) {
    // Requests change without a connection, too.
    let mut requests = handler.store.request_changes();
    let mut pairing = handler.pairing.watch();
    let (told, told_pairing) = (changes.clone(), changes.clone());
    let follow_requests = async {
        while requests.changed().await.is_ok() {
            told.send(Topic::Approvals);
        }
    };
    // And a pairing goes on while there is none.
    let follow_pairing = async {
        while pairing.changed().await.is_ok() {
            told_pairing.send(Topic::Status);
        }
    };
    tokio::select! {
        () = follow_requests => {}
        () = follow_pairing => {}
        () = follow_connections(&handler, changes, &tabs) => {}
    }
}

async fn follow_connections(handler: &RequestHandler, changes: Changes, tabs: &AtomicU64) {
    let mut active_connections = handler.active_connection.clone();
    loop {
        let active = active_connections.borrow_and_update().clone();
        changes.send(Topic::Status);
        let next = active_connections.changed();
        let ended = match active {
            Some(active) => tokio::select! {
                ended = next => ended,
                () = follow_engine(handler, active, &changes, tabs) => Ok(()),
            },
            None => next.await,
        };
        if ended.is_err() {
            return;
        }
    }
}

/// Returns when the connection's dispatcher has ended and another one is there or will be.
async fn follow_engine(handler: &RequestHandler, active: ActiveConnection, changes: &Changes, tabs: &AtomicU64) {
    let (mut work, mut line) = (active.dispatcher.watch(), active.link.status());
    let (mut accounts, mut access) = (handler.token_manager.watch(), handler.access_changes.subscribe());
    let (mut health, mut checks) = (handler.health.watch(), handler.checking.watch());
    let mut writing = active.dispatcher.writing();
    let mut told_writing = Instant::now();
    let mut seen = GatewaySnapshot::default();
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let topics = tokio::select! {
            changed = work.changed() => match changed {
                Ok(()) => vec![Topic::Status, Topic::Runs],
                Err(_) => return std::future::pending().await,
            },
            _ = accounts.changed() => vec![Topic::Status],
            // Two changes between two looks at the gateway would be none.
            _ = access.changed() => vec![Topic::Status],
            changed = line.changed() => match changed {
                Ok(()) => vec![Topic::Status],
                Err(_) => return std::future::pending().await,
            },
            changed = paced(&mut writing, told_writing + WRITING_INTERVAL) => match changed {
                Ok(()) => {
                    told_writing = Instant::now();
                    vec![Topic::Writing]
                }
                Err(_) => return std::future::pending().await,
            },
            _ = health.changed() => vec![Topic::Status],
            _ = checks.changed() => vec![Topic::Checks],
            // Always ticking: a page that opens while the agent is idle must not wait for a change.
            _ = look.tick() => match changes.sender.receiver_count() {
                0 => Vec::new(),
                _ => seen.compare(handler, tabs.load(Ordering::Relaxed)).await,
            },
        };
        for topic in topics {
            changes.send(topic);
        }
    }
}

/// The next change, not before a moment.
async fn paced<T>(changes: &mut watch::Receiver<T>, from: Instant) -> Result<(), watch::error::RecvError> {
    tokio::time::sleep_until(from).await;
    changes.changed().await
}

/// The gateway's data at the last poll.
#[derive(Debug, Default)]
struct GatewaySnapshot {
    /// How many tabs had connected by then. A later one may show something newer, which is no change once it is undone.
    tabs: u64,
    runs: Option<Sha256Digest>,
    deliveries: Option<Sha256Digest>,
    webhooks: Option<Sha256Digest>,
    enabled: Option<bool>,
}

impl GatewaySnapshot {
    /// Polls again, and returns the changes.
    async fn compare(&mut self, handler: &RequestHandler, tabs: u64) -> Vec<Topic> {
        let newest = ListRuns { limit: RUNS_COMPARED, ..ListRuns::default() };
        let told = ListDeliveries { limit: RUNS_COMPARED, ..ListDeliveries::default() };
        let hooks = handler.manage(ListWebhooks { app_id: None });
        let (newest, told, hooks, access) =
            tokio::join!(handler.manage(newest), handler.manage(told), hooks, handler.manage(GetAccess {}));
        let runs = newest.ok().and_then(|page| Sha256Digest::of_json(&page.runs).ok());
        let deliveries = told.ok().and_then(|page| Sha256Digest::of_json(&page.deliveries).ok());
        let webhooks = hooks.ok().and_then(|hooks| Sha256Digest::of_json(&hooks).ok());
        let now = Self { tabs, runs, deliveries, webhooks, enabled: access.ok().map(|access| access.enabled) };
        let before = std::mem::replace(self, now);
        let other = before.tabs != self.tabs;
        let changed = [
            (Topic::Runs, before.runs != self.runs),
            (Topic::Deliveries, before.deliveries != self.deliveries),
            (Topic::Webhooks, before.webhooks != self.webhooks),
            (Topic::Status, before.enabled != self.enabled),
        ];
        changed.into_iter().filter(|(_, changed)| other || *changed).map(|(topic, _)| topic).collect()
    }
}

/// The query of the stream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamQuery {
    /// The number of the newest change when the page was made; absent: it cannot be had again.
    after: Option<u64>,
}

/// `GET /live`: until the session ends.
pub(super) async fn stream(
    State(pages): State<Pages>,
    Query(StreamQuery { after }): Query<StreamQuery>,
    visitor: Visitor,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (changes, stop) = (pages.live().changes.sender.subscribe(), pages.live().stop.clone());
    pages.live().tabs.fetch_add(1, Ordering::Relaxed);
    // What changed while the page was on its way is not among the changes to come.
    let missed = after.is_some_and(|after| after != pages.live().number());
    let hello = Event::default().event("hello").data(if missed { "late" } else { "here" });
    let begin = Some(hello.retry(Duration::from_secs(1)));
    let events = futures_util::stream::unfold((begin, changes, stop), |(begin, mut changes, stop)| async move {
        if let Some(event) = begin {
            return Some((Ok(event), (None, changes, stop)));
        }
        let topic = match stop.run_until_cancelled(changes.recv()).await? {
            Ok(topic) => topic.as_str(),
            Err(RecvError::Lagged(_)) => "everything",
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(Event::default().event("changed").data(topic)), (None, changes, stop)))
    });
    let ended = async move { pages.sessions().until_ended(visitor.session).await };
    Sse::new(events.take_until(ended)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
