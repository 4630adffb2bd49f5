//! PostgreSQL for tests: the product's own private cluster, run by the test instead of a gateway.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use deskgate_gateway::store::cluster::{Cluster, ClusterConfig};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio_postgres::NoTls;

use crate::process;
use crate::template;
use crate::wait::until;

/// A database, with the cluster that it is in.
#[derive(Debug)]
pub struct Postgres {
    server: Arc<ClusterServer>,
    url: String,
}

#[derive(Debug)]
struct ClusterServer {
    folder: TempDir,
    /// Absent while it is stopped.
    cluster: Mutex<Option<Cluster>>,
}

impl Postgres {
    /// A fresh database in the cluster that the tests of this process share. The cluster ends with
    /// its last user.
    pub async fn shared() -> Self {
        static SHARED_SERVER: Mutex<Weak<ClusterServer>> = Mutex::const_new(Weak::new());
        static NEXT_DATABASE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let server = {
            let mut shared = SHARED_SERVER.lock().await;
            match shared.upgrade() {
                Some(server) => server,
                None => {
                    let server = Arc::new(ClusterServer::start().await);
                    *shared = Arc::downgrade(&server);
                    server
                }
            }
        };
        let name = format!("test_{}", NEXT_DATABASE.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let own = server.url().await;
        run(&own, &format!("CREATE DATABASE {name}")).await.expect("a fresh cluster makes databases");
        let (start, _) = own.rsplit_once('/').expect("the URL ends with the database");
        Self { url: format!("{start}/{name}"), server }
    }

    /// A cluster of this test's own, which it may kill, stop and start.
    pub async fn start_exclusive() -> Self {
        let server = ClusterServer::start().await;
        Self { url: server.url().await, server: Arc::new(server) }
    }

    /// The same database for an account that only owns the database, without other rights on the server.
    pub async fn as_owner_only(&self) -> Self {
        let role = "CREATE ROLE owner_only; GRANT ALL ON SCHEMA public TO owner_only";
        run(&self.url, role).await.expect("a fresh cluster has no such role");
        Self { url: format!("{}?options=-c%20role%3Downer_only", self.url), server: Arc::clone(&self.server) }
    }

    /// The same database for a new account with these attributes, which owns what it makes there.
    pub async fn as_account(&self, name: &str, attributes: &str) -> Self {
        let role = format!("CREATE ROLE {name} {attributes}; GRANT ALL ON SCHEMA public TO {name}");
        run(&self.url, &role).await.expect("a fresh cluster has no such role");
        Self { url: format!("{}?options=-c%20role%3D{name}", self.url), server: Arc::clone(&self.server) }
    }

    /// The database URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the server and all its processes. Its supervisor starts it again.
    pub async fn kill_9(&self) {
        let cluster = self.server.cluster.lock().await;
        let first = cluster.as_ref().and_then(Cluster::postmaster_pid).expect("the server runs");
        let rest = process::children(first);
        assert!(process::kill_9(first), "the server runs");
        for number in rest {
            process::kill_9(number);
        }
        until("the killed server to be gone", async || {
            let now = cluster.as_ref().and_then(Cluster::postmaster_pid);
            if now == Some(first) { Err(format!("process {first} is there")) } else { Ok(()) }
        })
        .await;
    }

    /// Suspends the server and all its processes until [`Self::thaw`]: connections get neither an answer nor a refusal.
    pub async fn freeze(&self) {
        for number in self.processes().await {
            process::send_signal(number, Signal::STOP);
        }
    }

    /// Resumes them.
    pub async fn thaw(&self) {
        for number in self.processes().await {
            process::send_signal(number, Signal::CONT);
        }
    }

    /// The server's processes. The first one is the one that starts the others.
    async fn processes(&self) -> Vec<u32> {
        let cluster = self.server.cluster.lock().await;
        let first = cluster.as_ref().and_then(Cluster::postmaster_pid).expect("the server runs");
        std::iter::once(first).chain(process::children(first)).collect()
    }

    /// A connection that stays open until it is dropped; `None` if the server accepts no more.
    pub async fn open_connection(&self) -> Option<DatabaseHold> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.ok()?;
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(connection);
        Some(DatabaseHold { client, _driver: driver })
    }

    /// Shuts the server down. It stays stopped until [`Postgres::start`].
    pub async fn stop(&self) {
        let cluster = self.server.cluster.lock().await.take();
        cluster.expect("the server runs").stop().await;
    }

    /// Starts a stopped server on the same data, at the same address.
    pub async fn start(&self) {
        self.start_from(None).await;
    }

    /// As [`Postgres::start`], with the programs of a folder.
    pub async fn start_from(&self, bin_dir: Option<PathBuf>) {
        let mut cluster = self.server.cluster.lock().await;
        let config = ClusterConfig { bin_dir, ..ClusterConfig::new(self.server.folder.path()) };
        *cluster = Some(Cluster::start(config).await.expect("it ran before"));
    }

    /// The path of the server's program.
    pub async fn program(&self) -> PathBuf {
        let first = self.processes().await[0];
        std::fs::read_link(format!("/proc/{first}/exe")).expect("it runs")
    }

    /// The server's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.server.folder.path().join("postgres")
    }

    /// Locks the rows of a table, as a long transaction does.
    pub async fn lock_table(&self, table: &str) -> DatabaseHold {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the database answers");
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(connection);
        let statement = format!("BEGIN; SELECT FROM {table} FOR UPDATE");
        client.batch_execute(&statement).await.expect("a table");
        DatabaseHold { client, _driver: driver }
    }

    /// Changes rows directly in the database. Returns how many.
    pub async fn change(&self, statement: &str) -> u64 {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the database answers");
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(connection);
        client.execute(statement, &[]).await.expect("a valid statement")
    }

    /// Runs statements that may fail; their results are dropped.
    ///
    /// # Errors
    /// The server refused a statement.
    pub async fn try_run(&self, statements: &str) -> Result<(), tokio_postgres::Error> {
        run(&self.url, statements).await
    }

    /// The rows of a query, each as one line of JSON.
    pub async fn rows(&self, query: &str) -> Vec<serde_json::Value> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the database answers");
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(connection);
        let rows = client.query(&format!("SELECT row_to_json(q) FROM ({query}) q"), &[]).await.expect("a valid query");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// A connection with its locks, until this is dropped.
#[derive(Debug)]
pub struct DatabaseHold {
    client: tokio_postgres::Client,
    _driver: tokio::task::JoinSet<Result<(), tokio_postgres::Error>>,
}

impl DatabaseHold {
    /// Runs statements on it.
    ///
    /// # Errors
    /// The server refused a statement.
    pub async fn run(&self, statements: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(statements).await
    }
}

impl ClusterServer {
    async fn start() -> Self {
        let folder = TempDir::with_prefix("deskgate-pg-").expect("a temporary folder");
        template::lay_out(folder.path()).await;
        let cluster = Cluster::start(ClusterConfig::new(folder.path())).await.expect("PostgreSQL is installed");
        Self { folder, cluster: Mutex::new(Some(cluster)) }
    }

    async fn url(&self) -> String {
        self.cluster.lock().await.as_ref().expect("the server runs").url()
    }
}

impl Drop for ClusterServer {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.get_mut().take() {
            let sockets: PathBuf = cluster.socket_dir().to_owned();
            drop(cluster);
            // The product keeps the cluster for its next start; a test has no next start.
            let _ = std::fs::remove_dir_all(sockets);
        }
    }
}

async fn run(url: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    client.batch_execute(statement).await
}
