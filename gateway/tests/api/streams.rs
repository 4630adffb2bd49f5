//! Streams inside the gateway: their two sources, the tables and the feed, may overtake each other.

use std::time::{Duration, Instant};

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::domain::access::{Access, Caller, Subject};
use deskgate_gateway::domain::events::{EventStream, EventStreams, StreamFrame};
use deskgate_gateway::domain::refusal::Refusal;
use deskgate_gateway::notify::{MessagePiece, Topic};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::RunId;
use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::management::{DisableApplication, Scope};
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::store::{TestStore, events, succeeded};
use crate::support::gateway::patient;
use crate::support::until;

/// Streams on a test store, without a server before them.
struct StreamFixture {
    test_store: TestStore,
    streams: EventStreams,
    caller: Caller,
    draining: CancellationToken,
    _work: JoinSet<()>,
}

impl StreamFixture {
    async fn new() -> Self {
        let test_store = TestStore::new().await;
        let access = Access::new(test_store.store.clone(), &patient());
        let subject = Subject::Named("anna".to_owned());
        let authenticated = access.authenticate(&test_store.device.app.key, subject, None).await.expect("a good key");
        let caller = authenticated.authorise(Scope::RunsRead).expect("it may read");
        let draining = CancellationToken::new();
        let stop = CancellationToken::new();
        let (streams, work) =
            EventStreams::new(test_store.store.clone(), &CallerLimits::default(), draining.clone(), stop);
        let mut running = JoinSet::new();
        running.spawn(work);
        Self { test_store, streams, caller, draining, _work: running }
    }

    /// A run that a device executes.
    async fn running(&self) -> (RunId, SessionKey) {
        let (session, _) = self.test_store.device.connect().await;
        (self.test_store.started(session).await, session)
    }

    async fn open(&self, run_id: RunId, after: u64) -> EventStream {
        self.streams.open(&self.caller, run_id, after).await.expect("it may be read").expect("there is more")
    }

    /// The device sends a piece of a message, after so many events of its own.
    fn say(&self, session: SessionKey, run_id: RunId, message_id: &str, after: u64) {
        let delta = MessageDelta { message_id: message_id.to_owned(), offset: 0, text: "Hello".to_owned() };
        let said = MessagePiece { device_id: session.device_id, run_id, attempt: 1, after, delta };
        self.test_store.store.notifier().publish_piece(said);
    }
}

/// The stream's next item: a number, or a name for one without.
async fn shown(stream: &mut EventStream) -> String {
    let next = tokio::time::timeout(Duration::from_secs(120), stream.next()).await.expect("something in time");
    match next {
        Some(StreamFrame::Snapshot(_)) => "snapshot".to_owned(),
        Some(StreamFrame::Event(told)) => told.sequence.to_string(),
        Some(StreamFrame::Waiting(reason)) => format!("waiting: {}", reason.message),
        Some(StreamFrame::Said(said)) => said.delta.message_id.clone(),
        Some(StreamFrame::Closing) => "closing".to_owned(),
        None => "end".to_owned(),
    }
}

#[tokio::test]
async fn a_piece_that_its_message_has_overtaken_is_not_shown() {
    let source = StreamFixture::new().await;
    let (run_id, session) = source.running().await;
    let mut stream = source.open(run_id, 2).await;
    assert_eq!(shown(&mut stream).await, "snapshot");
    source.say(session, run_id, "first", 0);
    assert_eq!(shown(&mut stream).await, "first");
    source.test_store.one(session, run_id, 1, events(1, 1)).await;
    assert_eq!(shown(&mut stream).await, "3");
    // It was said before the message was complete, and comes only now.
    source.say(session, run_id, "first", 0);
    source.say(session, run_id, "second", 1);
    assert_eq!(shown(&mut stream).await, "second");
    // A stream that opens later, with a cursor behind the message, does not see it either.
    let mut later = source.open(run_id, 3).await;
    assert_eq!(shown(&mut later).await, "snapshot");
    source.say(session, run_id, "first", 0);
    source.say(session, run_id, "third", 1);
    assert_eq!(shown(&mut later).await, "third");
}

#[tokio::test]
async fn a_stream_that_knows_more_than_the_feed_shows_no_older_piece() {
    let source = StreamFixture::new().await;
    let (run_id, session) = source.running().await;
    let mut stream = source.open(run_id, 0).await;
    let watched = || source.test_store.store.notifier().watchers(Topic::Run(run_id));
    until("the feed follows the run", async || watched() > 0).await;
    source.say(session, run_id, "first", 0);
    let mut beside = source.open(run_id, 2).await;
    assert_eq!(shown(&mut beside).await, "snapshot");

    // The feed cannot read the run's state; the stream can read the events.
    let (locker, _connection) = source.test_store.database.connect().await;
    locker.batch_execute("BEGIN; LOCK TABLE devices IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    source.test_store.one(session, run_id, 1, events(1, 1)).await;
    for expected in ["snapshot", "1", "2", "3"] {
        assert_eq!(shown(&mut stream).await, expected);
    }
    // Passed on once the feed has given up reading, with what it has read until then.
    source.say(session, run_id, "old", 0);
    while shown(&mut beside).await != "old" {}
    locker.batch_execute("COMMIT").await.expect("released");
    while shown(&mut beside).await != "3" {}
    source.say(session, run_id, "new", 1);
    assert_eq!(shown(&mut stream).await, "new");
    source.test_store.one(session, run_id, 1, succeeded(2)).await;
    assert_eq!(shown(&mut stream).await, "4");
    assert_eq!(shown(&mut stream).await, "end");
}

/// Waits until a statement waits for a lock of the test.
async fn blocked(source: &StreamFixture) {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    until("a statement waits", async || source.test_store.database.value(waiting).await != "0").await;
}

#[tokio::test]
async fn a_stream_that_has_much_to_show_closes_at_once_when_the_gateway_drains() {
    let source = StreamFixture::new().await;
    let (run_id, session) = source.running().await;
    source.test_store.one(session, run_id, 1, events(1, 100)).await;
    source.test_store.one(session, run_id, 1, succeeded(101)).await;
    let mut stream = source.open(run_id, 0).await;
    for expected in ["snapshot", "1", "2"] {
        assert_eq!(shown(&mut stream).await, expected);
    }
    source.draining.cancel();
    assert_eq!([shown(&mut stream).await, shown(&mut stream).await], ["closing", "end"]);
}

#[tokio::test]
async fn a_stream_whose_reading_takes_long_ends_when_the_gateway_drains_or_its_key_is_revoked() {
    for (drains, expected) in [(true, "closing"), (false, "end")] {
        let source = StreamFixture::new().await;
        let (run_id, _) = source.running().await;
        let mut stream = source.open(run_id, 0).await;
        assert_eq!(shown(&mut stream).await, "snapshot");
        let (locker, _connection) = source.test_store.database.connect().await;
        locker.batch_execute("BEGIN; LOCK TABLE run_events IN ACCESS EXCLUSIVE MODE").await.expect("locked");
        let ending = async {
            blocked(&source).await;
            let began = Instant::now();
            if drains {
                source.draining.cancel();
            } else {
                source.test_store.device.revoke(source.caller.key_id()).await;
            }
            began
        };
        let (last, began) = tokio::join!(shown(&mut stream), ending);
        assert_eq!(last, expected);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_waits_with_a_key_of_an_application_that_is_disabled_is_told_so() {
    let source = StreamFixture::new().await;
    let waiting = source.streams.wait(&source.caller).expect("there is room");
    let request = DisableApplication { app_id: source.caller.app_id() };
    source.test_store.device.desktop.disable_application(request).await.expect("disabled");
    let told = tokio::time::timeout(Duration::from_secs(120), waiting.ended()).await.expect("it ends");
    assert_eq!(told, Refusal::ApplicationDisabled);
}

#[tokio::test]
async fn what_cannot_be_confirmed_to_be_open_with_a_good_key_ends_within_five_seconds() {
    let source = StreamFixture::new().await;
    let (run_id, session) = source.running().await;
    let mut stream = source.open(run_id, 2).await;
    let waiting = source.streams.wait(&source.caller).expect("there is room");
    assert_eq!(shown(&mut stream).await, "snapshot");
    let (locker, _connection) = source.test_store.database.connect().await;
    locker.batch_execute("BEGIN; LOCK TABLE application_keys IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    let began = Instant::now();
    // Pieces, which do not come from the database, keep no stream open.
    let mut pieces = 0;
    loop {
        source.say(session, run_id, "piece", 0);
        match shown(&mut stream).await.as_str() {
            "piece" => pieces += 1,
            last => break assert_eq!(last, "end"),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(pieces > 0, "the stream was alive");
    assert_eq!(waiting.ended().await, Refusal::StoreUnavailable);

    // A database that is back within a moment ends no stream.
    locker.batch_execute("COMMIT").await.expect("released");
    let mut stream = source.open(run_id, 2).await;
    let waiting = source.streams.wait(&source.caller).expect("there is room");
    assert_eq!(shown(&mut stream).await, "snapshot");
    locker.batch_execute("BEGIN; LOCK TABLE application_keys IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    blocked(&source).await;
    locker.batch_execute("COMMIT").await.expect("released");
    source.test_store.one(session, run_id, 1, succeeded(1)).await;
    while shown(&mut stream).await != "3" {}
    assert!(waiting.ended().now_or_never().is_none());
}
