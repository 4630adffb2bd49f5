//! A private PostgreSQL cluster of our own, for when no database URL is configured.
//!
//! It lives in the state directory, runs the system's PostgreSQL programs, and listens on one Unix socket in a
//! directory that other users cannot enter; never on TCP. It belongs to one process at a time.
//!
//! States of the files: absent, growing under another name (`postgres.partial`), complete (`postgres`).
//! States of the server: preparing, starting, ready, ended by itself and started again, stopped.
//!
//! - **Trust.** The kernel authenticates connections (peer authentication); only the account of this process is
//!   accepted. As root, the server runs as an unprivileged account.
//! - **Killed predecessor.** Its server stops by itself where the machine supports that; otherwise the next start
//!   recognises it by its working directory, stops it, and starts its own.
//! - **Killed server.** The supervisor starts it again; clients see their connections end and reconnect.
//! - **Power cut.** All acknowledged data is on disk; the next start recovers.

mod account;
mod binaries;
mod error;
mod initdb;
mod log;
mod orphan;
mod parent_death;
mod paths;
mod settings;
mod socket_dir;
mod supervisor;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use deskgate_protocol::canonical::Sha256Digest;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

pub use error::ClusterError;
use supervisor::{StartedServer, Supervisor};

/// The database, and its only user.
const DATABASE_NAME: &str = "deskgate";
const USER_NAME: &str = "deskgate";
/// Only a part of the socket's name: nothing listens on this port.
const SOCKET_PORT: u16 = 5432;
const SOCKET_PORT_TEXT: &str = "5432";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The paths of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The gateway's state directory. Made with mode 0700 if there is none.
    pub state_dir: PathBuf,
    /// The directory with `postgres` and `initdb`; otherwise the system's newest is found, or the version that created
    /// the data.
    pub bin_dir: Option<PathBuf>,
    /// The directory to make the socket's directory in; otherwise `/run` for root, the session's
    /// runtime directory for a person, and `/tmp` where there is none.
    pub socket_parent: Option<PathBuf>,
}

impl ClusterConfig {
    /// Everything but the state directory found by itself.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), bin_dir: None, socket_parent: None }
    }
}

/// Looks for the PostgreSQL programs that a cluster in this state directory needs, and starts nothing but their
/// `--version`.
///
/// # Errors
/// [`ClusterError::NoBinaries`] and [`ClusterError::OtherMajor`], and [`ClusterError::NotData`].
pub fn find_programs(state_dir: &Path) -> Result<(), ClusterError> {
    let data_dir = state_dir.join(paths::DATA_DIR_NAME);
    let existing = paths::major_of(&data_dir)?;
    let directories = binaries::directories(None, std::env::var_os("PATH").as_deref());
    binaries::choose(&directories, existing.map(|major| (data_dir.as_path(), major))).map(drop)
}

/// Refuses root as the user of another account's cluster: PostgreSQL takes only that account.
///
/// # Errors
/// [`ClusterError::NotForRoot`].
pub fn not_roots_in_anothers(state_dir: &Path) -> Result<(), ClusterError> {
    account::not_roots_in_anothers(state_dir)
}

/// Where PostgreSQL's programs may be, the server's and its clients'.
pub(super) fn program_directories() -> Vec<PathBuf> {
    binaries::directories(None, std::env::var_os("PATH").as_deref())
}

/// The properties of a database that is created here now: PostgreSQL's major version, and a digest of the options of
/// `initdb`. A stored copy with the same value is equivalent.
///
/// # Errors
/// As [`find_programs`].
pub fn maker() -> Result<String, ClusterError> {
    let directories = binaries::directories(None, std::env::var_os("PATH").as_deref());
    let chosen = binaries::choose(&directories, None)?;
    let told = Sha256Digest::of(initdb::options().join(" ").as_bytes()).to_string();
    Ok(format!("{}-{}", chosen.major, &told[..8]))
}

/// A running private cluster.
///
/// End it with [`Cluster::stop`]. If it is dropped instead, the server is shut down immediately, and
/// dropping waits for that: no data is lost, the next start recovers.
#[derive(Debug)]
pub struct Cluster {
    keeper: Supervisor,
    started: StartedServer,
}

impl Cluster {
    /// Starts the cluster, after making it if it is new, and returns when it takes connections.
    ///
    /// # Errors
    /// See [`ClusterError`]. Nothing is left running. Cancelling ends the server too.
    pub async fn start(config: ClusterConfig) -> Result<Self, ClusterError> {
        let began = Instant::now();
        let state_dir = config.state_dir.clone();
        let (keeper, started) = Supervisor::begin(config)?;
        let started = started.await.map_err(|_| {
            let source = std::io::Error::other("its thread ended without saying why");
            ClusterError::io("starting PostgreSQL in", &state_dir)(source)
        })??;
        let cluster = Self { keeper, started };
        if let Err(error) = cluster.ensure_database().await {
            cluster.stop().await;
            return Err(error);
        }
        let started = &cluster.started;
        tracing::info!(
            data_dir = %started.data_dir.display(),
            is_new = started.is_new,
            elapsed_ms = began.elapsed().as_millis(),
            "private PostgreSQL started"
        );
        Ok(cluster)
    }

    /// The settings for a connection.
    pub fn connect_config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.started.socket_dir).port(SOCKET_PORT).user(USER_NAME).dbname(DATABASE_NAME);
        config.connect_timeout(CONNECT_TIMEOUT);
        config
    }

    /// The address as a URL that psql, pg_dump and other programs understand. Holds no secret: the kernel authenticates
    /// connections.
    pub fn url(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        let mut host = String::new();
        for byte in self.started.socket_dir.as_os_str().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => host.push(char::from(*byte)),
                _ => host.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("postgresql://{USER_NAME}@{host}:{SOCKET_PORT}/{DATABASE_NAME}")
    }

    /// The directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        &self.started.socket_dir
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.started.data_dir
    }

    /// The number of the server's first process; none between its end and its next start.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.keeper.postmaster().map(|pid| pid.as_raw_pid().cast_unsigned())
    }

    /// Stops the server, with clients connected or not, and frees the state directory. Takes less than
    /// two seconds unless the disk hangs.
    pub async fn stop(self) {
        self.keeper.stop().await;
    }

    /// The database itself is created here and not with the files: the next start completes an interrupted one.
    async fn ensure_database(&self) -> Result<(), ClusterError> {
        match run(&self.connect_config(), "").await {
            Err(error) if error.code() == Some(&SqlState::INVALID_CATALOG_NAME) => {}
            other => return Ok(other?),
        }
        let mut maintenance = self.connect_config();
        maintenance.dbname("postgres");
        Ok(run(&maintenance, &format!("/* ensure_database */ CREATE DATABASE {DATABASE_NAME}")).await?)
    }
}

/// Runs one statement on a connection of its own.
async fn run(config: &tokio_postgres::Config, statement: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let mut done = std::pin::pin!(client.batch_execute(statement));
    tokio::select! {
        done = &mut done => done,
        closed = connection => {
            closed?;
            // Closed in good order, but before the answer: the client knows that as an error.
            done.await
        }
    }
}
