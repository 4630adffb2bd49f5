//! The thread that owns the connection, and the queue in front of it.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use deskgate_program::crash;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{Error, schema};

/// How many jobs may wait in the queue. Further callers wait.
const JOB_QUEUE_LEN: usize = 64;

type DatabaseJob = Box<dyn FnOnce(&mut Session) + Send>;

/// How durable a commit is before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// On disk.
    Full,
    /// Handed to the system: survives the end of this process, not a power cut.
    Normal,
}

#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<DatabaseJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Opens for reading and writing: creates what is missing, and migrates the schema.
    pub(super) async fn open(path: PathBuf) -> Result<Self, Error> {
        Self::start(path, open).await
    }

    /// Opens read-only, and creates nothing.
    pub(super) async fn look(path: PathBuf) -> Result<Self, Error> {
        Self::start(path, look).await
    }

    async fn start(path: PathBuf, open: fn(&Path) -> Result<Connection, Error>) -> Result<Self, Error> {
        let (opened, result) = oneshot::channel();
        let (jobs, mut queue) = mpsc::channel::<DatabaseJob>(JOB_QUEUE_LEN);
        let at = path.clone();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                let mut session = match open(&path).and_then(Session::of) {
                    Ok(session) => session,
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                while let Some(job) = queue.blocking_recv() {
                    job(&mut session);
                }
            })
            .map_err(|source| Error::File { path: at, source })?;
        let worker = Self { jobs: Some(jobs), thread: Some(thread) };
        result.await.map_err(|_| Error::Closed)??;
        Ok(worker)
    }

    pub(super) async fn run<R: Send + 'static>(
        &self,
        sync: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, result) = oneshot::channel();
        // The caller may be gone; the work is done all the same, as promised.
        self.add(move |session| drop(answer.send(session.transact(sync, work)))).await?;
        result.await.map_err(|_| Error::Closed)?
    }

    /// Adds a job to the queue, and waits only for a place there.
    pub(super) async fn add(&self, job: impl FnOnce(&mut Session) + Send + 'static) -> Result<(), Error> {
        self.jobs.as_ref().ok_or(Error::Closed)?.send(Box::new(job)).await.map_err(|_| Error::Closed)
    }
}

impl Drop for Worker {
    /// Waits for the thread, so that the next process finds the file closed and unlocked.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connection, and how durable its newest commit was.
pub(super) struct Session {
    connection: Connection,
    /// Whether nothing is ever written.
    reads: bool,
    synchronous: Option<Durability>,
}

impl Session {
    fn of(connection: Connection) -> Result<Self, Error> {
        let reads = connection.pragma_query_value(None, "query_only", |row| row.get(0))?;
        Ok(Self { connection, reads, synchronous: None })
    }

    pub(super) fn transact<R>(
        &mut self,
        sync: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if self.synchronous != Some(sync) {
            // The setting cannot change inside a transaction.
            let level = match sync {
                Durability::Full => "FULL",
                Durability::Normal => "NORMAL",
            };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.synchronous = Some(sync);
        }
        // A read-only connection takes no write lock.
        let behaviour = if self.reads { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
        let name = if self.reads { String::new() } else { crash::function(&work) };
        let transaction = self.connection.transaction_with_behavior(behaviour)?;
        let result = work(&transaction)?;
        crash::before(&name);
        transaction.commit()?;
        crash::after(&name);
        Ok(result)
    }
}

fn open(path: &Path) -> Result<Connection, Error> {
    make(path)?;
    secure(path)?;
    let mut connection = Connection::open(path)?;
    take(path, &connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Overwrites deleted data, because it is other people's. Costs a write for each page that becomes free.
    connection.pragma_update(None, "secure_delete", true)?;
    schema::migrate(&mut connection)?;
    hold_log_room(path);
    Ok(connection)
}

/// How many bytes of the write-ahead log have their place on the disk before they are written.
const LOG_ROOM_BYTES: u64 = 16 << 20;

/// Takes the blocks that the next commits need now, so that they find them also once somebody else has filled the disk.
/// The log keeps its length. Not every file system can; there the reserve of the agent's folder must do.
fn hold_log_room(path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let held = OpenOptions::new()
        .write(true)
        .open(log)
        .and_then(|log| Ok(rustix::fs::fallocate(&log, rustix::fs::FallocateFlags::KEEP_SIZE, 0, LOG_ROOM_BYTES)?));
    if let Err(error) = held {
        tracing::debug!(%error, "no room is held for the journal's next entries");
    }
}

fn look(path: &Path) -> Result<Connection, Error> {
    secure(path)?;
    // Opened for writing even to read: otherwise no lock excludes a running agent.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // A write-ahead log that a crash left stays for recovery; without one, closing removes what opening created.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let left = Path::new(&log).metadata().is_ok_and(|log| log.len() > 0);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, left)?;
    connection.pragma_update(None, "query_only", true)?;
    take(path, &connection)?;
    schema::check(&connection)?;
    Ok(connection)
}

/// Locks the file for this process.
fn take(path: &Path, connection: &Connection) -> Result<(), Error> {
    let in_use = |error| match error {
        rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::DatabaseBusy => {
            Error::InUse { path: path.to_owned() }
        }
        other => Error::Sqlite(other),
    };
    // A process that is just ending gets a moment; a running one keeps its lock.
    connection.busy_timeout(std::time::Duration::from_millis(500))?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Writes nothing if the mode is set already.
    connection.pragma_update(None, "journal_mode", "WAL").map_err(in_use)
}

fn failed(at: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = at.to_owned();
    move |source| Error::File { path, source }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates directory and file for their owner only. SQLite gives its side files the mode of the main one.
fn make(path: &Path) -> Result<(), Error> {
    let directory = directory_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    // Opened without truncating: only its existence and its mode matter here.
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    file.map(drop).map_err(failed(path))
}

/// Checks that others can neither read the file nor replace it.
fn secure(path: &Path) -> Result<(), Error> {
    let directory = directory_of(path);
    let open_to_others = |at: &Path, mode: u32, forbidden: u32, wanted: u32| match mode & forbidden {
        0 => Ok(()),
        _ => Err(Error::OpenToOthers { path: at.to_owned(), mode: mode & 0o7777, wanted }),
    };
    let found = directory.metadata().map_err(failed(directory))?;
    // Others may list a folder that a person made, but must not be able to replace a file in it.
    open_to_others(directory, found.mode(), 0o022, 0o700)?;
    let found = path.metadata().map_err(failed(path))?;
    open_to_others(path, found.mode(), 0o077, 0o600)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn the_files_are_for_their_owner_only() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("state/deskgate.db");
        let store = Store::open(&path).await.expect("opens");
        store.settings().set_device_name("desk").await.expect("written");
        let mode = |path: &Path| path.metadata().expect("exists").mode() & 0o777;
        assert_eq!(mode(path.parent().expect("has one")), 0o700);
        let files: Vec<_> = std::fs::read_dir(path.parent().expect("has one")).expect("readable").collect();
        assert!(files.len() >= 2, "the write-ahead log is there too");
        for file in files {
            assert_eq!(mode(&file.expect("entry").path()), 0o600);
        }
    }

    #[tokio::test]
    async fn a_file_or_folder_open_to_others_is_refused_with_the_command_that_mends_it() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        drop(Store::open(&path).await.expect("opens"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("own file");
        let error = Store::open(&path).await.expect_err("readable by others").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("own file");
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o770)).expect("own folder");
        let error = Store::open(&path).await.expect_err("writable by others").to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[tokio::test]
    async fn two_agents_never_share_a_database_and_dropping_the_first_lets_the_second_in() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        let first = Store::open(&path).await.expect("opens");
        assert!(matches!(Store::open(&path).await, Err(Error::InUse { .. })));
        drop(first);
        Store::open(&path).await.expect("free again");
    }

    #[tokio::test]
    async fn a_look_reads_also_what_a_crash_left_and_changes_no_byte() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        assert!(matches!(Store::look(&path).await, Err(Error::File { .. })));
        assert!(!path.exists(), "a look makes nothing");
        let store = Store::open(&path).await.expect("opens");
        assert!(matches!(Store::look(&path).await, Err(Error::InUse { .. })));
        store.settings().set_device_name("desk").await.expect("written");
        // The files as they are while the database is open: the state after a kill.
        let killed = home.path().join("killed");
        DirBuilder::new().mode(0o700).create(&killed).expect("ours");
        for name in ["deskgate.db", "deskgate.db-wal"] {
            std::fs::copy(home.path().join(name), killed.join(name)).expect("copied");
        }
        drop(store);
        let path = killed.join("deskgate.db");
        let digest = |file: Vec<u8>| deskgate_protocol::canonical::Sha256Digest::of(&file);
        let content =
            || ["deskgate.db", "deskgate.db-wal"].map(|name| std::fs::read(killed.join(name)).ok().map(digest));
        let before = content();
        let look = Store::look(&path).await.expect("opens");
        assert_eq!(look.settings().device_name().await.expect("readable").as_deref(), Some("desk"));
        assert!(look.settings().set_device_name("other").await.is_err(), "nothing is written");
        drop(look);
        assert_eq!(content(), before);

        let store = Store::open(&path).await.expect("opens");
        store.lazily(|tx| Ok(tx.pragma_update(None, "user_version", 1)?)).await.expect("written");
        drop(store);
        let before = content();
        assert!(matches!(Store::look(&path).await, Err(Error::OlderSchema)));
        assert_eq!(content(), before, "it is the agent that brings it up to date");
    }

    #[tokio::test]
    async fn a_newer_schema_is_refused_and_left_alone() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        let store = Store::open(&path).await.expect("opens");
        store.lazily(|tx| Ok(tx.pragma_update(None, "user_version", 99)?)).await.expect("written");
        drop(store);
        for _ in 0..2 {
            assert!(matches!(Store::open(&path).await, Err(Error::NewerSchema { found: 99, .. })));
        }
    }

    #[tokio::test]
    async fn failed_work_leaves_nothing_behind() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let failed: Result<(), Error> = store
            .durably(|tx| {
                tx.execute("INSERT INTO setting (key, value) VALUES ('device_name', '\"half\"')", [])?;
                Err(Error::Closed)
            })
            .await;
        assert!(failed.is_err());
        assert_eq!(store.settings().device_name().await.expect("readable"), None);
    }
}
