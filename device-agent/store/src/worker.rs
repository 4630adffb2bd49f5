//! The thread that owns the connection, and the queue in front of it.
//!
//! Jobs that share and wait together are done in one transaction, in their order, and told of it after its commit: so they
//! wait for the disk once. Each sees what the ones before it did, and one that fails undoes itself alone. Only a failure of the
//! disk also undoes those before it; all of them are told so, and may try again.

use std::collections::VecDeque;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use deskgate_program::crash;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Action;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Error, schema};

/// How many jobs may wait in the queue. Further callers wait.
const JOB_QUEUE_LEN: usize = 64;
/// Statements that stay prepared: more than there are on the way of a run.
const PREPARED_STATEMENTS: usize = 256;

/// One caller's work.
pub(super) struct DatabaseJob {
    sync: Durability,
    /// Whether other jobs may be in its transaction.
    shares: bool,
    /// Its name among the points to die at.
    name: String,
    work: BoxedWork,
}

type BoxedWork = Box<dyn FnOnce(Result<&Transaction<'_>, Error>) -> FinishedWork + Send>;

/// Work that was done in a transaction which is not committed yet.
struct FinishedWork {
    /// Why its changes are not kept.
    failure: Option<rusqlite::Error>,
    /// Tells the caller, once it is known what came of the commit.
    tell: Box<dyn FnOnce(Result<(), Error>)>,
}

impl DatabaseJob {
    /// `tell` gets the work's result, or why it was not committed.
    pub(super) fn new<R: 'static>(
        sync: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
        tell: impl FnOnce(Result<R, Error>) + Send + 'static,
    ) -> Self {
        let name = crash::function(&work);
        let work = move |transaction: Result<&Transaction<'_>, Error>| match transaction.and_then(work) {
            Ok(value) => FinishedWork {
                failure: None,
                tell: Box::new(|committed: Result<(), Error>| tell(committed.map(|()| value))),
            },
            Err(error) => {
                let failure = match &error {
                    Error::Sqlite(error) => copy(error),
                    other => failure(&other.to_string()),
                };
                FinishedWork { failure: Some(failure), tell: Box::new(|_| tell(Err(error))) }
            }
        };
        Self { sync, shares: false, name, work: Box::new(work) }
    }

    /// The same in a transaction that it may share.
    fn sharing(self) -> Self {
        Self { shares: true, ..self }
    }
}

/// How durable a commit is before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// Handed to the system: survives the end of this process, not a power cut.
    Normal,
    /// On disk.
    Full,
}

#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<DatabaseJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Opens for reading and writing: creates what is missing, and migrates the schema. `requests` is told of each commit
    /// that changed requests for approval.
    pub(super) async fn open(path: PathBuf, requests: watch::Sender<()>) -> Result<Self, Error> {
        Self::start(path, open, requests).await
    }

    /// Opens read-only, and creates nothing.
    pub(super) async fn look(path: PathBuf) -> Result<Self, Error> {
        Self::start(path, look, watch::Sender::new(())).await
    }

    async fn start(
        path: PathBuf,
        open: fn(&Path) -> Result<Connection, Error>,
        requests: watch::Sender<()>,
    ) -> Result<Self, Error> {
        let (opened, result) = oneshot::channel();
        let (jobs, mut queue) = mpsc::channel::<DatabaseJob>(JOB_QUEUE_LEN);
        let at = path.clone();
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                let mut session = match open(&path).and_then(|connection| Session::of(connection, requests)) {
                    Ok(session) => session,
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                let mut waiting = None;
                while let Some(first) = waiting.take().or_else(|| queue.blocking_recv()) {
                    let jobs = gather(first, &mut queue, &mut waiting);
                    session.work_off(jobs);
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
        self.wait_for(|tell| DatabaseJob::new(sync, work, tell)).await
    }

    /// The same in a transaction that other such work shares.
    pub(super) async fn run_shared<R: Send + 'static>(
        &self,
        sync: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.wait_for(|tell| DatabaseJob::new(sync, work, tell).sharing()).await
    }

    async fn wait_for<R: Send + 'static>(
        &self,
        job: impl FnOnce(Box<dyn FnOnce(Result<R, Error>) + Send>) -> DatabaseJob,
    ) -> Result<R, Error> {
        let (answer, result) = oneshot::channel();
        // The caller may be gone; the work is done all the same, as promised.
        self.add(job(Box::new(|outcome| drop(answer.send(outcome))))).await?;
        result.await.map_err(|_| Error::Closed)?
    }

    /// Adds a job to the queue, and waits only for a place there.
    pub(super) async fn add(&self, job: DatabaseJob) -> Result<(), Error> {
        self.jobs.as_ref().ok_or(Error::Closed)?.send(job).await.map_err(|_| Error::Closed)
    }
}

/// The jobs that share the first one's transaction. `waiting` gets the one behind them, if it does not.
fn gather(
    first: DatabaseJob,
    queue: &mut mpsc::Receiver<DatabaseJob>,
    waiting: &mut Option<DatabaseJob>,
) -> VecDeque<DatabaseJob> {
    let (shares, mut jobs) = (first.shares, VecDeque::from([first]));
    while shares
        && jobs.len() < JOB_QUEUE_LEN
        && let Ok(job) = queue.try_recv()
    {
        if !job.shares {
            *waiting = Some(job);
            break;
        }
        jobs.push_back(job);
    }
    jobs
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
    /// Whether requests for approval were changed since `requests` was told.
    requests_changed: Arc<AtomicBool>,
    requests: watch::Sender<()>,
}

impl Session {
    fn of(mut connection: Connection, requests: watch::Sender<()>) -> Result<Self, Error> {
        let reads = connection.pragma_query_value(None, "query_only", |row| row.get(0))?;
        connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
        // Otherwise a statement that could use a partial index is planned anew each time with other values.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let requests_changed = Arc::new(AtomicBool::new(false));
        let changed = Arc::clone(&requests_changed);
        connection.update_hook(Some(move |_: Action, _: &str, table: &str, _: i64| {
            if table == "approval" {
                changed.store(true, Ordering::Relaxed);
            }
        }))?;
        Ok(Self { connection, reads, synchronous: None, requests_changed, requests })
    }

    /// Does the jobs in their order, in one transaction as long as that lasts.
    fn work_off(&mut self, mut jobs: VecDeque<DatabaseJob>) {
        while !jobs.is_empty() {
            let mut finished = Vec::with_capacity(jobs.len());
            let committed = self.transact(&mut jobs, &mut finished);
            for work in finished {
                (work.tell)(committed.as_ref().copied().map_err(|error| Error::Sqlite(copy(error))));
            }
        }
    }

    /// Does jobs in one transaction, and commits it.
    ///
    /// # Errors
    /// What `finished` got is undone, or the commit failed. Jobs that were not begun are left in `jobs`.
    fn transact(
        &mut self,
        jobs: &mut VecDeque<DatabaseJob>,
        finished: &mut Vec<FinishedWork>,
    ) -> Result<(), rusqlite::Error> {
        let sync = jobs.iter().map(|job| job.sync).max().unwrap_or(Durability::Normal);
        let writes = !self.reads;
        let transaction = match self.begin(sync) {
            Ok(transaction) => transaction,
            Err(error) => {
                finished.extend(jobs.drain(..).map(|job| (job.work)(Err(Error::Sqlite(copy(&error))))));
                return Err(error);
            }
        };
        let (share, mut names) = (jobs.len() > 1, Vec::new());
        while let Some(job) = jobs.pop_front() {
            let work = if share { in_savepoint(&transaction, job.work) } else { (job.work)(Ok(&transaction)) };
            let failed = work.failure.as_ref().map(copy);
            finished.push(work);
            match failed {
                // A full disk and some other failures undo the whole transaction.
                failed if transaction.is_autocommit() => {
                    return Err(failed.unwrap_or_else(|| failure("the transaction was undone")));
                }
                None if writes => names.push(job.name),
                None => {}
                Some(_) if !share => return Ok(()),
                Some(_) => {}
            }
        }
        names.iter().for_each(|name| crash::before(name));
        transaction.commit()?;
        names.iter().for_each(|name| crash::after(name));
        if self.requests_changed.swap(false, Ordering::Relaxed) {
            self.requests.send_replace(());
        }
        Ok(())
    }

    fn begin(&mut self, sync: Durability) -> Result<Transaction<'_>, rusqlite::Error> {
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
        self.connection.transaction_with_behavior(behaviour)
    }
}

/// Does a job so that its failure undoes nothing of the jobs before it.
fn in_savepoint(transaction: &Transaction<'_>, work: BoxedWork) -> FinishedWork {
    let say = |sql| transaction.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
    if let Err(error) = say("SAVEPOINT job") {
        return work(Err(Error::Sqlite(error)));
    }
    let work = work(Ok(transaction));
    // Without a transaction there is nothing left to undo.
    if transaction.is_autocommit() {
        return work;
    }
    let ended = match work.failure {
        Some(_) => say("ROLLBACK TO job").and_then(|_| say("RELEASE job")),
        None => say("RELEASE job"),
    };
    if ended.is_err() {
        // Nobody may be told that half a job is done: then nothing of all is.
        let _ = say("ROLLBACK");
    }
    work
}

/// The same failure, for one more caller.
fn copy(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => failure(&other.to_string()),
    }
}

fn failure(message: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
    rusqlite::Error::SqliteFailure(code, Some(message.to_owned()))
}

fn open(path: &Path) -> Result<Connection, Error> {
    make(path)?;
    secure(path)?;
    let mut connection = Connection::open(path)?;
    take(path, &connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Overwrites deleted data, because it is other people's. Costs a write for each page that becomes free.
    connection.pragma_update(None, "secure_delete", true)?;
    // What a savepoint could bring back is kept in memory, not in a file elsewhere.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
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

    /// Whether the job of this transaction shares it with others.
    fn is_shared(tx: &Transaction<'_>) -> bool {
        tx.execute_batch("RELEASE job; SAVEPOINT job").is_ok()
    }

    /// Does jobs that all wait behind one, and returns what each was told.
    async fn together(store: &Store, bytes: &[i64]) -> Vec<Result<bool, Error>> {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let held = store.lazily(move |_| Ok(wait.recv().is_ok()));
        let jobs = bytes.iter().enumerate().map(|(place, bytes)| {
            let (key, bytes) = (format!("job {place}"), *bytes);
            store.step(Durability::Full, move |tx| {
                let shared = is_shared(tx);
                let sql = "INSERT INTO setting (key, value) VALUES (?1, json_quote(printf('%.*c', abs(?2), 'x')))";
                tx.execute(sql, rusqlite::params![key, bytes])?;
                if bytes < 0 { Err(Error::NoKey) } else { Ok(shared) }
            })
        });
        let jobs = futures_util::future::join_all(jobs);
        let (held, told, ()) = tokio::join!(held, jobs, async {
            // All have been queued by the polls before this one.
            go.send(()).expect("the thread waits");
        });
        assert!(held.expect("released"));
        told
    }

    async fn keys(store: &Store) -> Vec<String> {
        let keys = store.lazily(|tx| {
            let mut statement = tx.prepare("SELECT key FROM setting WHERE key LIKE 'job %' ORDER BY key")?;
            Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        });
        keys.await.expect("read")
    }

    #[tokio::test]
    async fn jobs_that_wait_together_share_a_transaction_and_one_that_fails_undoes_itself_alone() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let told = together(&store, &[10, -10, 10]).await;
        assert!(matches!(told.as_slice(), [Ok(true), Err(Error::NoKey), Ok(true)]), "{told:?}");
        assert_eq!(keys(&store).await, ["job 0", "job 2"]);
        assert!(!store.lazily(|tx| Ok(is_shared(tx))).await.expect("done"), "alone it needs no savepoint");
    }

    #[tokio::test]
    async fn whoever_is_told_that_a_job_is_done_finds_it_also_where_the_disk_is_full() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        let store = Store::open(&path).await.expect("opens");
        store.fill_up(true).await;
        let told = together(&store, &[1, 1 << 20, 2, 3 << 20]).await;
        assert!(matches!(told[1], Err(Error::Sqlite(_))), "{told:?}");
        drop(store);
        let store = Store::open(&path).await.expect("opens");
        let kept: Vec<_> = (0..told.len()).filter(|place| told[*place].is_ok()).map(|n| format!("job {n}")).collect();
        assert_eq!(keys(&store).await, kept);
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
