//! The device's own SQLite database: journal, approvals, audit, transcripts, services, settings.
//!
//! One thread owns the connection; everybody else holds a cheap handle and awaits. A write that was
//! awaited is on disk, not only handed to the system (WAL with `synchronous=FULL`), because the
//! frames that follow it are promises to the gateway. One process at a time: the file is locked, so
//! that two agents can never share a journal.

pub mod approvals;
pub mod audit;
mod error;
pub mod intents;
pub mod journal;
pub mod ledger;
#[cfg(test)]
mod plans;
pub mod retention;
mod schema;
pub mod services;
pub mod settings;
mod time;
pub mod tool_lists;
pub mod transcripts;
mod withdrawal;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use deskgate_protocol::ids::RunId;
use rusqlite::Transaction;
use tokio::sync::watch;

pub use approvals::Approvals;
pub use audit::Audit;
pub use error::Error;
pub use journal::Journal;
pub use ledger::Ledger;
pub use retention::RetentionSettings;
pub use services::Services;
pub use settings::{Setting, Settings};
pub use transcripts::Transcripts;
use worker::{Durability, Worker};

/// A handle to the open database. Cloning is cheap; the file is closed, and its lock released, when
/// the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Store {
    worker: Arc<Worker>,
    /// Changes with each decision about a request.
    decisions: watch::Sender<()>,
}

impl Store {
    /// Opens the database, creates it when it is not there, and brings its schema up to date.
    ///
    /// The file has mode 0600, and a missing directory is made with 0700. A file that others can
    /// read, or a directory that others can write, is refused with the command that mends it.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self { worker: Arc::new(Worker::open(path.into()).await?), decisions: watch::Sender::new(()) })
    }

    /// Opens the database for reading only: nothing is made, brought up to date or written.
    pub async fn look(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self { worker: Arc::new(Worker::look(path.into()).await?), decisions: watch::Sender::new(()) })
    }

    /// Requests for approval.
    pub fn approvals(&self) -> Approvals {
        Approvals::new(self.clone())
    }

    /// What was asked, decided and executed.
    pub fn audit(&self) -> Audit {
        Audit::new(self.clone())
    }

    /// What one attempt of a run writes down before it acts.
    pub fn ledger(&self, run_id: RunId, attempt: u32) -> Ledger {
        Ledger::new(self.clone(), run_id, attempt)
    }

    /// What the device has taken and not got rid of.
    pub fn journal(&self) -> Journal {
        Journal::new(self.clone())
    }

    /// What was said in conversations.
    pub fn transcripts(&self) -> Transcripts {
        Transcripts::new(self.clone())
    }

    /// Drafts and published versions.
    pub fn services(&self) -> Services {
        Services::new(self.clone())
    }

    /// Small values that outlive the process.
    pub fn settings(&self) -> Settings {
        Settings::new(self.clone())
    }

    fn tell_of_decisions(&self) {
        self.decisions.send_replace(());
    }

    /// Changes with each decision about a request.
    pub fn decisions(&self) -> watch::Receiver<()> {
        self.decisions.subscribe()
    }

    /// Does `work` in one transaction that is on disk when this returns.
    async fn durably<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(Durability::Full, work).await
    }

    /// Does `work` in one transaction that a power cut may undo, but nothing less. For reading, and
    /// for what can be forgotten without harm.
    async fn lazily<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(Durability::Normal, work).await
    }

    /// Makes every version of a service unreadable, as a damaged file would.
    #[cfg(any(test, feature = "damage"))]
    pub async fn damage_versions(&self, of: deskgate_protocol::ids::EndpointId) {
        self.lazily(move |tx| {
            tx.execute("UPDATE service_version SET definition = '?' WHERE endpoint_id = ?1", [of.to_string()])?;
            Ok(())
        })
        .await
        .expect("an open database");
    }

    /// Makes a request unreadable, as a damaged file would.
    #[cfg(any(test, feature = "damage"))]
    pub async fn damage_request(&self, id: deskgate_protocol::ids::ApprovalId) {
        let sql = "UPDATE approval SET plan = '?' WHERE approval_id = ?1";
        self.lazily(move |tx| Ok(tx.execute(sql, [id.to_string()])?)).await.expect("an open database");
    }

    /// Makes everything that was said so many days older.
    #[cfg(any(test, feature = "damage"))]
    pub async fn age_transcripts(&self, days: i64) {
        let sql = "UPDATE transcript SET said_at = said_at - ?1";
        self.lazily(move |tx| Ok(tx.execute(sql, [days * 24 * 3600])?)).await.expect("an open database");
    }

    /// How many exchanges are kept, whether or not anybody sees them.
    #[cfg(any(test, feature = "damage"))]
    pub async fn transcripts_kept(&self) -> i64 {
        let sql = "SELECT count(*) FROM transcript";
        self.lazily(move |tx| Ok(tx.query_row(sql, [], |row| row.get(0))?)).await.expect("an open database")
    }

    /// Lets the database grow no further, so that SQLite itself reports a full disk.
    #[cfg(any(test, feature = "damage"))]
    pub async fn fill_up(&self, full: bool) {
        self.lazily(move |tx| {
            let pages: i64 = if full { 1 } else { 1_000_000 };
            tx.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))?;
            Ok(())
        })
        .await
        .expect("a pragma writes nothing");
    }
}
