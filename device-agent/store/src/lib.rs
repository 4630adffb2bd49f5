//! The device's own SQLite database: journal, approvals, audit, transcripts, services, settings.
//!
//! One thread owns the connection; all other code holds a cheap handle and awaits. An awaited write is on disk, not
//! only handed to the system (WAL with `synchronous=FULL`), because the frames that follow it are promises to the
//! gateway. The file is locked: two agents can never share a journal.

pub mod approvals;
pub mod artifacts;
pub mod audit;
pub mod budgets;
pub mod calls;
mod draft_trials;
mod error;
#[cfg(test)]
mod full_disk;
pub mod intents;
pub mod journal;
pub mod ledger;
pub mod model_failures;
#[cfg(test)]
mod plans;
pub mod receipts;
pub mod retention;
mod schema;
mod service_life;
pub mod services;
pub mod settings;
mod shorten;
pub mod spending;
mod time;
pub mod tool_lists;
pub mod transcripts;
mod withdrawal;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::jws::ReceiptSigner;
use rusqlite::Transaction;
use tokio::sync::watch;

pub use approvals::Approvals;
pub use artifacts::Artifacts;
pub use audit::Audit;
pub use error::Error;
pub use journal::Journal;
pub use ledger::Ledger;
pub use receipts::Receipts;
pub use retention::RetentionSettings;
pub use services::Services;
pub use settings::{Setting, Settings};
pub use transcripts::Transcripts;
use worker::{DatabaseJob, Durability, Worker};

/// A handle to the open database. Clones are cheap; the file is closed and unlocked when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Store {
    worker: Arc<Worker>,
    /// Changes with each request for approval that is made or answered.
    requests: watch::Sender<()>,
    /// Changes with each frozen version of a service.
    publications: watch::Sender<()>,
    /// Signs what the device says of runs.
    signer: Option<ReceiptSigner>,
    /// Whether it is known that no budget of a month is set. Changes on the worker's thread only.
    has_no_budget: Arc<AtomicBool>,
}

impl Store {
    /// Opens the database, creates it if it does not exist, and migrates its schema.
    ///
    /// The file has mode 0600, and a missing directory is created with 0700.
    ///
    /// # Errors
    /// The file cannot be used, or another process has it open; others can read it or write its directory (the error
    /// names the command that fixes it).
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let requests = watch::Sender::new(());
        Ok(Self::on(Worker::open(path.into(), requests.clone()).await?, requests))
    }

    /// Opens the database read-only: it is neither created nor migrated.
    ///
    /// # Errors
    /// As [`Self::open`]; or an earlier version of the program wrote the file.
    pub async fn look(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self::on(Worker::look(path.into()).await?, watch::Sender::new(())))
    }

    fn on(worker: Worker, requests: watch::Sender<()>) -> Self {
        let (publications, has_no_budget) = (watch::Sender::new(()), Arc::default());
        Self { worker: Arc::new(worker), requests, publications, signer: None, has_no_budget }
    }

    /// The same store, which signs what it says of runs. Without this it takes none.
    #[must_use]
    pub fn signing_with(self, signer: ReceiptSigner) -> Self {
        Self { signer: Some(signer), ..self }
    }

    fn signer(&self) -> Result<ReceiptSigner, Error> {
        self.signer.clone().ok_or(Error::NoKey)
    }

    /// The approval requests.
    pub fn approvals(&self) -> Approvals {
        Approvals::new(self.clone())
    }

    /// What runs handed out.
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::new(self.clone())
    }

    /// The audit of requests, decisions and calls.
    pub fn audit(&self) -> Audit {
        Audit::new(self.clone())
    }

    /// The ledger of one attempt of a run.
    pub fn ledger(&self, run_id: RunId, attempt: u32) -> Ledger {
        Ledger::new(self.clone(), run_id, attempt)
    }

    /// The journal of runs that the device has taken and not settled.
    pub fn journal(&self) -> Journal {
        Journal::new(self.clone())
    }

    /// The receipts: what the device signed about offers and outcomes.
    pub fn receipts(&self) -> Receipts {
        Receipts::new(self.clone())
    }

    /// The transcripts of conversations.
    pub fn transcripts(&self) -> Transcripts {
        Transcripts::new(self.clone())
    }

    /// The services: drafts and published versions.
    pub fn services(&self) -> Services {
        Services::new(self.clone())
    }

    /// Settings: small values that outlive the process.
    pub fn settings(&self) -> Settings {
        Settings::new(self.clone())
    }

    /// Changes with each request for approval that is made or answered, after that was stored.
    pub fn request_changes(&self) -> watch::Receiver<()> {
        self.requests.subscribe()
    }

    /// Lets whoever follows the requests look again, because something beside the database has changed.
    pub fn wake_requests(&self) {
        self.requests.send_replace(());
    }

    /// Does `work` in one transaction that is on disk when this returns.
    async fn durably<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(Durability::Full, work).await
    }

    /// Does `work` in one transaction that only a power cut may undo. For reading, and for data that can be lost
    /// without harm.
    async fn lazily<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run(Durability::Normal, work).await
    }

    /// Does a step of a run, in one transaction with those of other runs that wait at the same time; see [`worker`].
    async fn step<R: Send + 'static>(
        &self,
        sync: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        self.worker.run_shared(sync, work).await
    }

    /// Queues `work` for a transaction that nobody waits for: what is asked of the store afterwards finds it done. The end
    /// of this process may lose it. `what` names it in the log, should it fail.
    async fn eventually(
        &self,
        what: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<(), Error> + Send + 'static,
    ) {
        let failed = move |error: Error| tracing::warn!(%error, "{what} could not be written");
        let told = move |outcome: Result<(), Error>| outcome.unwrap_or_else(failed);
        if let Err(closed) = self.worker.add(DatabaseJob::new(Durability::Normal, work, told)).await {
            failed(closed);
        }
    }

    /// Makes every version of a service unreadable, as damage to the file would.
    #[cfg(any(test, feature = "damage"))]
    pub async fn damage_versions(&self, of: deskgate_protocol::ids::EndpointId) {
        self.lazily(move |tx| {
            tx.execute("UPDATE service_version SET definition = '?' WHERE endpoint_id = ?1", [of.to_string()])?;
            Ok(())
        })
        .await
        .expect("an open database");
    }

    /// Makes a request unreadable, as damage to the file would.
    #[cfg(any(test, feature = "damage"))]
    pub async fn damage_request(&self, id: deskgate_protocol::ids::ApprovalId) {
        let sql = "UPDATE approval SET plan = '?' WHERE approval_id = ?1";
        self.lazily(move |tx| Ok(tx.execute(sql, [id.to_string()])?)).await.expect("an open database");
    }

    /// Makes all transcripts `days` days older.
    #[cfg(any(test, feature = "damage"))]
    pub async fn age_transcripts(&self, days: i64) {
        let sql = "UPDATE transcript SET said_at = said_at - ?1";
        self.lazily(move |tx| Ok(tx.execute(sql, [days * 24 * 3600])?)).await.expect("an open database");
    }

    /// How many exchanges are stored, visible or not.
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
