//! Promises of the shared commit, on a private cluster.

use std::time::{Duration, Instant};

use deskgate_gateway::notify::ChangeNotifier;
use deskgate_gateway::store::Database;
use deskgate_gateway::store::admissions::{Admission, Admissions, Submission};
use deskgate_gateway::store::cluster::{Cluster, ClusterConfig};
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::{ApplicationId, DeviceId, EndpointId, RunId};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

const RUN_COUNT: i64 = 200;

async fn connect(cluster: &Cluster) -> (Client, tokio::task::JoinSet<()>) {
    let (client, connection) = cluster.connect_config().connect(NoTls).await.expect("connected");
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move {
        // The client hears of it too.
        let _ = connection.await;
    });
    (client, driver)
}

fn submission(number: i64) -> Submission {
    let digest = Sha256Digest::of(&number.to_be_bytes());
    Submission {
        run_id: RunId::new(),
        app_id: ApplicationId::from(uuid::Uuid::nil()),
        subject: "customer".to_owned(),
        endpoint_id: EndpointId::from(uuid::Uuid::nil()),
        identity: digest,
        fingerprint: digest,
        draft: None,
        input: r#"{"text":"work"}"#.to_owned(),
        output: None,
        files: Vec::new(),
        checked_version: None,
        metadata: "{}".to_owned(),
        queue_ttl_s: 60,
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
        queue_open: true,
    }
}

/// A plan that is made on an empty table is kept for long; it must be one for a full table.
#[tokio::test]
async fn admitting_a_run_never_reads_the_other_runs_even_if_the_gateway_began_on_an_empty_table() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = Cluster::start(ClusterConfig::new(dir.path())).await.expect("started");
    let (wake, _changes) = ChangeNotifier::new();
    let database = Database::new(&cluster.url(), None, None).expect("a URL");
    let store = database.open(true, wake).await.expect("opened");
    let (client, _driver) = connect(&cluster).await;
    let id = DeviceId::from(uuid::Uuid::nil()).uuid();
    let rows = format!(
        "INSERT INTO devices (device_id, name, public_key, access_enabled) VALUES ('{id}', 'd', 'k', true);
        INSERT INTO applications (app_id, device_id, name) VALUES ('{id}', '{id}', 'a');
        INSERT INTO endpoints (endpoint_id, app_id, device_id, name, description, version, definition_sha256)
            VALUES ('{id}', '{id}', '{id}', 'e', '', 1, sha256('definition'))"
    );
    client.batch_execute(&rows).await.expect("prepared");

    let tasks = Tasks::new(CancellationToken::new());
    let admissions = Admissions::start(&store, &tasks, &CommitLimit::fixed(1));
    for number in 0..RUN_COUNT {
        let admission = admissions.admit(submission(number)).await.expect("committed");
        assert!(matches!(admission, Admission::Accepted(_)), "{admission:?}");
    }
    let again = admissions.admit(submission(0)).await.expect("committed");
    assert!(matches!(again, Admission::Known { .. }), "{again:?}");

    // Closed connections have reported everything to the server.
    drop((admissions, store));
    assert!(tasks.stop(Duration::from_secs(10)).await, "the committers ended");
    let told = "SELECT n_tup_ins, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'runs'";
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let row = client.query_one(told, &[]).await.expect("answered");
        let (inserted, read): (i64, i64) = (row.get(0), row.get(1));
        if inserted == RUN_COUNT {
            assert_eq!(read, 0, "rows that were read by scanning the table");
            break;
        }
        assert!(Instant::now() < deadline, "the server counted only {inserted} insertions");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.stop().await;
}
