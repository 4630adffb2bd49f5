//! One private PostgreSQL for all tests of this program, with a database for each test.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use deskgate_gateway::store::cluster::{Cluster, ClusterConfig};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;
use tokio_util::task::AbortOnDropHandle;

use super::{template, until};

/// A cluster that runs for as long as a test holds it.
pub(crate) struct SharedCluster {
    cluster: Cluster,
    _dir: TempDir,
}

static RUNNING_CLUSTER: Mutex<Weak<SharedCluster>> = Mutex::const_new(Weak::new());

/// An empty database of a test's own.
pub(crate) struct TestDatabase {
    name: String,
    shared: Arc<SharedCluster>,
}

impl TestDatabase {
    pub(crate) async fn new() -> Self {
        let shared = shared().await;
        let name = format!("test_{}", uuid::Uuid::now_v7().simple());
        execute(&shared.cluster.connect_config(), &format!("CREATE DATABASE {name}")).await;
        Self { name, shared }
    }

    pub(crate) fn url(&self) -> String {
        let url = self.shared.cluster.url();
        let (server, _) = url.rsplit_once('/').expect("the database stands at the end");
        format!("{server}/{}", self.name)
    }

    /// The socket on which its server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.shared.cluster.socket_dir().join(".s.PGSQL.5432")
    }

    /// Executes statements past the gateway.
    pub(crate) async fn execute(&self, statements: &str) {
        execute(&self.config(), statements).await;
    }

    /// A connection past the gateway, for as long as both are held.
    pub(crate) async fn connect(&self) -> (tokio_postgres::Client, AbortOnDropHandle<()>) {
        let (client, connection) = self.config().connect(NoTls).await.expect("connected");
        let driven = tokio::spawn(async move {
            // It ends with the test.
            let _ = connection.await;
        });
        (client, AbortOnDropHandle::new(driven))
    }

    /// The only value of a query, as text.
    pub(crate) async fn value(&self, query: &str) -> String {
        let (client, connection) = self.config().connect(NoTls).await.expect("connected");
        let query = format!("SELECT ({query})::text");
        let rows = async move { client.query_one(&query, &[]).await.expect("answered").get(0) };
        tokio::select! {
            value = rows => value,
            ended = connection => panic!("the connection ended: {ended:?}"),
        }
    }

    /// The only value of a query, as a number.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.value(query).await.parse().expect("a number")
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, condition: &str) {
        super::until(condition, async || self.value(condition).await == "true").await;
    }

    /// Begins a transaction that others have to wait for.
    pub(crate) async fn begin(&self) -> OpenTransaction {
        let (client, connection) = self.config().connect(NoTls).await.expect("connected");
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let transaction = OpenTransaction { client, _driver: driver };
        transaction.execute("BEGIN").await;
        transaction
    }

    /// Waits until a statement of this name waits for a lock.
    pub(crate) async fn waits_for_a_lock(&self, statement: &str) {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND position('-- {statement}' IN query) > 0"
        );
        until(&format!("{statement} waits for a lock"), async || self.value(&waiting).await != "0").await;
    }

    fn config(&self) -> tokio_postgres::Config {
        let mut config = self.shared.cluster.connect_config();
        config.dbname(&self.name);
        config
    }
}

/// A transaction that is open until it is committed, or dropped.
pub(crate) struct OpenTransaction {
    client: tokio_postgres::Client,
    _driver: JoinSet<Result<(), tokio_postgres::Error>>,
}

impl OpenTransaction {
    pub(crate) async fn execute(&self, statements: &str) {
        self.client.batch_execute(statements).await.expect("executed");
    }

    pub(crate) async fn commit(self) {
        self.execute("COMMIT").await;
    }
}

async fn shared() -> Arc<SharedCluster> {
    let mut running = RUNNING_CLUSTER.lock().await;
    if let Some(shared) = running.upgrade() {
        return shared;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    template::lay_out(dir.path()).await;
    let cluster = Cluster::start(ClusterConfig::new(dir.path())).await.expect("PostgreSQL starts");
    let shared = Arc::new(SharedCluster { cluster, _dir: dir });
    *running = Arc::downgrade(&shared);
    shared
}

async fn execute(config: &tokio_postgres::Config, statements: &str) {
    let (client, connection) = config.connect(NoTls).await.expect("connected");
    tokio::select! {
        done = client.batch_execute(statements) => done.expect("executed"),
        ended = connection => panic!("the connection ended: {ended:?}"),
    }
}
