//! Services of this device: definitions, stages, capability checks, publication.
//!
//! ```text
//! draft ──check──► checked ──publish──► published ◄──► disabled
//!   ▲                 │                     │
//!   └────── edit ─────┴──────── edit ───────┘   (the published version stays as it is)
//! ```
//!
//! A published version is frozen: number, definition, digest, checks. Runs keep the version they
//! were accepted with. [`life`] says how a published service ends, or moves to another application.

pub mod checks;
pub mod differences;
pub mod folder;
pub mod folder_listing;
pub mod gateway;
pub mod life;
pub mod probe;
pub mod progress;
mod publish;
mod servers;
pub mod standing;
pub mod summary;
pub mod tool_pins;
mod trials;

use std::path::PathBuf;

use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::providers::Providers;
use deskgate_definition::{Check, CheckReport, Definition, InvalidDefinition, Service, Version};
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::{ApplicationId, DraftId, RunId};
use deskgate_tools::engine::identity::identity_of;

pub use folder::Folder;
pub use folder_listing::{FolderListing, ListedFolder};
pub use gateway::{CallError, GatewayClient};
pub use progress::{CheckProgress, RunningCheck};
pub use standing::ServiceStanding;

/// Why a step with a service failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidDefinition),
    /// There is no such service.
    #[error("there is no service {0}; list them with: deskgate service list")]
    NotFound(DraftId),
    /// The draft was not checked, or changed since.
    #[error("this draft has not been checked since it was last changed; run: deskgate service check {0}")]
    NotChecked(DraftId),
    /// The gateway has nothing of it that callers could use.
    #[error(
        "this service is not published at this gateway, so nothing changes for callers; see: deskgate service show {0}"
    )]
    NotPublished(DraftId),
    /// The application is not one that services can be published for.
    #[error("the application {name:?} is {state}; choose an active one, see: deskgate app list")]
    NotActive {
        /// Its name.
        name: String,
        /// Its state, in a word.
        state: &'static str,
    },
    /// The run that the draft was tried with before has not ended.
    #[error("the last test run of this draft has not ended; wait for it, or stop it: deskgate run stop {0}")]
    TrialUnderWay(RunId),
    /// A check failed.
    #[error("a check of this draft failed: {cause}; {next}, and then run: deskgate service check {draft_id}")]
    CheckFailed {
        /// The service.
        draft_id: DraftId,
        /// The cause, for people.
        cause: String,
        /// What to do next.
        next: String,
    },
    /// The draft was saved again during its check.
    #[error("this draft was changed while it was checked; run again: deskgate service check {0}")]
    Edited(DraftId),
    /// A server sent another list of tools in the meantime.
    #[error("{0} offers other tools than those you were asked about. Nothing was taken over; look at them again")]
    OtherTools(String),
    /// The gateway did not carry it out.
    #[error(transparent)]
    Gateway(#[from] CallError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] deskgate_store::Error),
}

/// Notes the folder of each published version that has none noted, which was published before folders were, and the new
/// number of its device after a start of the computer. Call it before anything runs.
///
/// # Errors
/// The database cannot be read or written.
pub async fn note_folders(services: &deskgate_store::Services) -> Result<(), deskgate_store::Error> {
    for service in services.list().await? {
        let Some((endpoint_id, version)) = service.endpoint_id.zip(service.published) else { continue };
        let directory = version.definition.working_directory.clone();
        let found = tokio::task::spawn_blocking(move || identity_of(&directory)).await;
        let Ok(Ok(found)) = found else { continue };
        let is_new = match &version.checks.folder {
            None => true,
            Some(noted) => noted.is_same(&found) && *noted != found,
        };
        if is_new {
            services.set_folder(endpoint_id, version.version, &found).await?;
        }
    }
    Ok(())
}

/// Whether another folder is where a version's was when it was published. Reads the disk.
pub fn has_another_folder(version: &Version) -> bool {
    let Some(published) = &version.checks.folder else { return false };
    identity_of(&version.definition.working_directory).is_ok_and(|found| !published.is_same(&found))
}

/// The environment of the checks on this computer.
#[derive(Clone, Debug)]
pub struct CheckEnvironment {
    /// The person's home directory, which no service may have as a whole.
    pub home: Option<PathBuf>,
    /// The agent's own folder, which no service may have at all.
    pub own_folder: PathBuf,
    /// The model providers.
    pub accounts: Providers,
    /// The MCP servers.
    pub servers: McpServers,
}

/// The actions on the services of this device.
#[derive(Clone, Debug)]
pub struct ServiceManager<G> {
    store: deskgate_store::Services,
    gateway: G,
    computer: CheckEnvironment,
    progress: CheckProgress,
}

impl<G: GatewayClient> ServiceManager<G> {
    /// A manager of the services in `store`.
    pub fn new(store: deskgate_store::Services, gateway: G, computer: CheckEnvironment) -> Self {
        Self { store, gateway, computer, progress: CheckProgress::default() }
    }

    /// Publishes the findings of its checks to `progress`.
    pub fn with_progress(self, progress: CheckProgress) -> Self {
        Self { progress, ..self }
    }

    /// Saves a new draft.
    ///
    /// # Errors
    /// A field is wrong, or the database failed.
    pub async fn create(&self, app_id: ApplicationId, definition: Definition) -> Result<Service, Error> {
        definition.validate()?;
        let now = Timestamp::now();
        let service = Service {
            draft_id: DraftId::new(),
            app_id,
            endpoint_id: None,
            draft: definition,
            checks: None,
            created_at: now,
            changed_at: now,
            published: None,
        };
        self.store.insert(&service).await?;
        Ok(service)
    }

    /// Replaces the draft. A published version stays the same until this draft is published too.
    ///
    /// # Errors
    /// A field is wrong, there is no such service, or the database failed.
    pub async fn edit(&self, draft_id: DraftId, definition: Definition) -> Result<Service, Error> {
        definition.validate()?;
        match self.store.set_draft(draft_id, &definition).await? {
            true => self.show(draft_id).await,
            false => Err(Error::NotFound(draft_id)),
        }
    }

    /// Makes every check of the draft and stores the results. Lists of tools of MCP servers are pinned in the draft as
    /// they are found: the checked lists are the ones that are published.
    ///
    /// # Errors
    /// There is no such service, it was saved before lists of tools that were found could be pinned in it, or the
    /// database failed.
    pub async fn check(&self, draft_id: DraftId) -> Result<CheckReport, Error> {
        self.check_for(None, draft_id).await
    }

    /// The same, followed by the caller, under a number of its own.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub async fn check_for(&self, follower: Option<u64>, draft_id: DraftId) -> Result<CheckReport, Error> {
        let service = self.show(draft_id).await?;
        let mut draft = service.draft.clone();
        let names = checks::names(&draft).into_iter().chain(servers::names(&draft)).collect();
        let shown = self.progress.begin(draft_id, names, follower);
        let tell = |check: &Check| shown.record(check);
        let found = servers::pin(&mut draft, &self.computer.servers, &self.store, &tell).await?;
        if draft != service.draft && !self.store.replace_draft(draft_id, &service.draft, &draft).await? {
            return Err(Error::Edited(draft_id));
        }
        let others = self.store.list().await?.into_iter().filter(|other| other.draft_id != draft_id);
        let others: Vec<_> = others.map(|other| (other.draft.name, other.draft.working_directory)).collect();
        let of_servers = tool_pins::specs(&self.store, &draft).await?;
        let mut report = checks::check(&draft, &self.computer, &others, of_servers, &tell).await;
        report.checks.extend(found);
        self.store.set_checks(draft_id, &report).await?;
        Ok(report)
    }

    /// One service.
    ///
    /// # Errors
    /// There is no such service, or the database failed.
    pub async fn show(&self, draft_id: DraftId) -> Result<Service, Error> {
        self.store.get(draft_id).await?.ok_or(Error::NotFound(draft_id))
    }

    /// The published versions of a service, newest first, as many as are shown.
    ///
    /// # Errors
    /// There is no such service, or the database failed.
    pub async fn versions(&self, draft_id: DraftId) -> Result<Vec<Version>, Error> {
        match self.show(draft_id).await?.endpoint_id {
            Some(endpoint_id) => Ok(self.store.versions(endpoint_id).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Every service, oldest first.
    ///
    /// # Errors
    /// The database cannot be read, or a service is damaged.
    pub async fn list(&self) -> Result<Vec<Service>, Error> {
        Ok(self.store.list().await?)
    }
}

#[cfg(test)]
mod tests;
