//! The queue beside the runs: it holds exactly the queued ones, and costs the same however long it is, whatever else the
//! database holds, and whenever its statistics were taken.

use std::time::Duration;

use deskgate_gateway::store::attempts::{AttemptUpdate, Claims, RecordOutcome, ServiceRoom};
use deskgate_gateway::upkeep::run_once;
use deskgate_program::tasks::Tasks;
use tokio_util::sync::CancellationToken;

use super::{TestStore, quoted, succeeded};
use crate::support::cluster::TestDatabase;
use crate::support::gateway::{DeviceFixture, LONG_LEASE};
use crate::support::until;

/// Runs through the line so that the plans of its statements are kept (PostgreSQL keeps one after five executions), and
/// as many while they are measured.
const ROUNDS: usize = 10;
/// Runs that are claimed, started and ended in a round: one for each way to claim.
const ENDS_OF_A_ROUND: usize = 3;
/// Each of them is updated three times; two more are claimed, and returned, one of which was made to expire, and does.
const UPDATES_OF_A_ROUND: usize = 3 * ENDS_OF_A_ROUND + 6;
const RUNS_OF_A_ROUND: usize = ENDS_OF_A_ROUND + 2;
/// How much more one case may read than another.
const MAX_RATIO: f64 = 1.5;

/// Whether statistics were taken while nothing was queued, or after all was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Analysed {
    Empty,
    Full,
}

/// The difference between the queue and the queued runs.
pub(crate) const ASTRAY_SQL: &str = "SELECT count(*) FROM (
    (SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        CASE WHEN awaits_turn THEN conversation_id END FROM runs WHERE state = 'queued' EXCEPT SELECT * FROM run_queue)
    UNION ALL
    (SELECT * FROM run_queue EXCEPT
        SELECT run_id, device_id, app_id, endpoint_id, created_at, queue_expires_at, offered_until, awaits_turn,
        CASE WHEN awaits_turn THEN conversation_id END FROM runs WHERE state = 'queued')) astray";

/// Runs of this device in a state, past the gateway.
async fn plant(test_store: &TestStore, count: usize, ended: bool) {
    let columns = if ended { ", state, result, started_at, finished_at, purge_at" } else { "" };
    let values = match ended {
        true => ", 'succeeded', '{\"text\":\"done\"}', now(), now(), now() + interval '30 days'",
        false => "",
    };
    let rows = format!(
        "INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id, identity,
            fingerprint, input, metadata, max_duration_s, created_at, queue_expires_at{columns})
        SELECT gen_random_uuid(), app_id, 'anna', endpoint_id, version, definition_sha256, device_id,
            sha256(uuid_send(gen_random_uuid())), sha256(''), '{{\"text\":\"hello\"}}', '{{}}', 60,
            now() + n * interval '1 us', now() + interval '1 hour'{values}
        FROM endpoints, generate_series(1, {count}) n WHERE endpoint_id = {}",
        quoted(test_store.device.endpoint.uuid())
    );
    test_store.database.execute(&rows).await;
}

/// Counts blocks of both tables and their indexes.
async fn blocks(database: &TestDatabase) -> f64 {
    let read = "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit) FROM pg_statio_user_tables
        WHERE relname IN ('runs', 'run_queue')";
    database.value(read).await.parse().expect("a number")
}

/// The blocks that are read for one run's way through the line and half a round of upkeep, with so many finished and
/// queued runs.
async fn blocks_of_a_run(finished: usize, queued: usize, analysed: Analysed) -> f64 {
    let test_store = TestStore::new().await;
    let off = "ALTER TABLE runs SET (autovacuum_enabled = off); ALTER TABLE run_queue SET (autovacuum_enabled = off)";
    test_store.database.execute(off).await;
    let (session, _) = test_store.device.connect().await;
    let few_places = ServiceRoom { places: vec![(test_store.device.endpoint, 5)], ..ServiceRoom::default() };
    let (idle, _) = DeviceFixture::pair(&test_store.store).await.connect().await;
    let tasks = Tasks::new(CancellationToken::new());
    let claims = Claims::start(&test_store.store, &tasks, LONG_LEASE);
    let through = async || {
        let any = ServiceRoom::default();
        for way in 0..ENDS_OF_A_ROUND {
            let claimed = match way {
                0 => test_store.store.claim(session, 1, &few_places, LONG_LEASE).await,
                1 => test_store.store.claim(session, 1, &any, LONG_LEASE).await,
                _ => tokio::join!(claims.claim(session, 1, &any), claims.claim(idle, 1, &any)).0,
            };
            let offers = claimed.expect("claimed");
            let [offer] = offers.as_slice() else { panic!("one waits: {offers:?}") };
            for what in [AttemptUpdate::Start, succeeded(1)] {
                assert_eq!(test_store.one(session, offer.run_id, offer.attempt, what).await, RecordOutcome::Done);
            }
        }
        let offers =
            test_store.store.claim(session, 2, &ServiceRoom::default(), Duration::ZERO).await.expect("claimed");
        let [expired, _] = offers.as_slice() else { panic!("two wait: {offers:?}") };
        let expire = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", expired.run_id.uuid());
        test_store.database.execute(&expire).await;
        let counts = run_once(&test_store.store, LONG_LEASE).await.expect("done");
        assert_eq!((counts.offers_returned, counts.expired), (2, 1), "{counts:?}");
        test_store.store.waiting_runs(test_store.device.app.id, 10).await.expect("counted");
    };
    plant(&test_store, finished, true).await;
    if analysed == Analysed::Full {
        plant(&test_store, queued, false).await;
    }
    for table in ["runs", "run_queue"] {
        test_store.database.execute(&format!("VACUUM ANALYZE {table}")).await;
    }
    for _ in 0..ROUNDS {
        if analysed == Analysed::Empty {
            plant(&test_store, RUNS_OF_A_ROUND, false).await;
        }
        through().await;
    }
    if analysed == Analysed::Empty {
        plant(&test_store, queued, false).await;
    }
    // A session reports what it read with the next statement a second later: one that reads neither table, because what
    // it reads is reported after the reset.
    let changed =
        "SELECT n_tup_ins || ' planted, ' || n_tup_upd || ' updated' FROM pg_stat_user_tables WHERE relname = 'runs'";
    let planted = finished + queued + if analysed == Analysed::Empty { RUNS_OF_A_ROUND * ROUNDS } else { 0 };
    let expected = format!("{planted} planted, {} updated", ROUNDS * UPDATES_OF_A_ROUND);
    until("the first rounds, and what was planted, to be reported", async || {
        test_store.store.gateway_id().await.expect("read, for connections whose commits are waited for");
        test_store.store.devices_by_host_key("").await.expect("read, for the others");
        test_store.database.value(changed).await == expected
    })
    .await;
    test_store.database.execute("SELECT pg_stat_reset()").await;
    for _ in 0..ROUNDS {
        through().await;
    }
    let TestStore { database, store, device } = test_store;
    // Closed connections have reported everything to the server.
    assert!(tasks.stop(Duration::from_secs(20)).await);
    drop((store, device, claims));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    until("its connections to be closed", async || database.value(open).await == "0").await;
    blocks(&database).await / (ENDS_OF_A_ROUND * ROUNDS) as f64
}

async fn compare(finished: usize, queued: usize) {
    let mut read = Vec::new();
    for (queued, analysed) in [(100, Analysed::Full), (queued, Analysed::Full), (queued, Analysed::Empty)] {
        let blocks = blocks_of_a_run(finished, queued, analysed).await;
        println!("{finished} finished, {queued} queued, analysed {analysed:?}: {blocks:.1} blocks a run");
        read.push(blocks);
    }
    let (least, most) = read.iter().fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
    assert!(most <= MAX_RATIO * least, "blocks a run: {read:?}");
}

#[tokio::test]
async fn a_run_costs_the_same_however_long_the_queue_is_and_whenever_statistics_were_taken() {
    compare(30_000, 20_000).await;
}

#[tokio::test]
#[ignore = "make plans"]
async fn a_run_costs_the_same_behind_a_million_finished_ones() {
    compare(1_000_000, 100_000).await;
}

#[tokio::test]
async fn the_queue_follows_whatever_happens_to_a_run() {
    let test_store = TestStore::new().await;
    let TestStore { database, store, device } = &test_store;
    let astray = async |moment: &str| assert_eq!(database.value(ASTRAY_SQL).await, "0", "{moment}");
    let queued = async || database.value("SELECT count(*) FROM run_queue").await;
    let (session, _) = device.connect().await;
    for _ in 0..5 {
        test_store.queue().await;
    }
    astray("accepted").await;
    assert_eq!(queued().await, "5");
    let offers = device.claim(session, 3).await;
    astray("offered").await;
    assert_eq!(database.value("SELECT count(*) FROM run_queue WHERE offered_until IS NULL").await, "2");
    test_store.one(session, offers[0].run_id, 1, AttemptUpdate::Start).await;
    test_store.one(session, offers[1].run_id, 1, AttemptUpdate::Return).await;
    astray("started and returned").await;
    assert_eq!(queued().await, "4");
    database.execute("UPDATE runs SET offered_until = now() WHERE offered_until IS NOT NULL").await;
    assert_eq!(store.return_unaccepted_offers().await.expect("done"), 1);
    assert_eq!(device.claim(session, 9).await.len(), 4, "all that wait are found again");
    database.execute("UPDATE runs SET queue_expires_at = now() WHERE state = 'queued'").await;
    astray("due").await;
    assert_eq!(store.expire_queued(Duration::from_secs(60)).await.expect("done"), 4);
    astray("expired").await;
    assert_eq!(queued().await, "0");

    test_store.queue().await;
    database.execute("DELETE FROM runs WHERE state = 'queued'").await;
    assert_eq!(queued().await, "0");
    test_store.queue().await;
    database.execute("DELETE FROM run_queue; SELECT refill_run_queue()").await;
    astray("made anew").await;
    assert_eq!(queued().await, "1");
}
