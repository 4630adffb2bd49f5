//! Requests about services: drafts, checks and publication.

use std::path::PathBuf;
use std::time::Duration;

use deskgate_definition::{Check, CheckReport, Definition, Service, Version};
use deskgate_protocol::file::File;
use deskgate_protocol::run::Run;
use deskgate_protocol::{ApplicationId, DraftId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::error_reply::failed;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::services::{Folder, FolderListing, folder_listing};

/// Saves a new service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateService {
    /// The application that may call it.
    pub app_id: ApplicationId,
    /// The service's definition.
    pub definition: Definition,
}

impl TypedRequest for CreateService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        handler.services(asker)?.create(self.app_id, self.definition).await.map_err(ErrorReply::from)
    }
}

/// Replaces a draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EditService {
    /// The service.
    pub draft_id: DraftId,
    /// The new definition.
    pub definition: Definition,
}

impl TypedRequest for EditService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        handler.services(asker)?.edit(self.draft_id, self.definition).await.map_err(ErrorReply::from)
    }
}

/// Lists services.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListServices {}

impl TypedRequest for ListServices {
    type Response = Vec<Service>;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Vec<Service>, ErrorReply> {
        handler.services(asker)?.list().await.map_err(ErrorReply::from)
    }
}

/// Shows a service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowService {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for ShowService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        handler.services(asker)?.show(self.draft_id).await.map_err(ErrorReply::from)
    }
}

/// Examines a folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookAtFolder {
    /// The absolute path.
    pub path: PathBuf,
}

impl TypedRequest for LookAtFolder {
    type Response = Folder;

    async fn answer(self, _: &RequestHandler, _: Requester) -> Result<Folder, ErrorReply> {
        folder(self).await
    }
}

/// Lists the folders in a folder, for a person who chooses one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListFolders {
    /// The path as it was written: absolute, from `~`, or from `within`. Empty for the home directory.
    pub path: String,
    /// The folder that a relative path begins at; absent: the home directory.
    #[serde(default)]
    pub within: Option<PathBuf>,
    /// Whether hidden folders are listed too.
    #[serde(default)]
    pub hidden: bool,
}

impl TypedRequest for ListFolders {
    type Response = FolderListing;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<FolderListing, ErrorReply> {
        let (home, own) = (handler.home.clone(), handler.own_folder.clone());
        let path = folder_listing::resolve(&self.path, self.within.as_deref(), home.as_deref());
        let silent = FolderListing::unreadable(path.clone(), "its disk does not answer");
        let look = move || FolderListing::of(&path, self.hidden, home.as_deref(), &own);
        bounded(look, silent).await
    }
}

/// Checks a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckService {
    /// The service.
    pub draft_id: DraftId,
    /// The caller's own number for this check, to follow it and no other one of the same draft.
    #[serde(default)]
    pub follower: Option<u64>,
}

impl TypedRequest for CheckService {
    type Response = CheckReport;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<CheckReport, ErrorReply> {
        let checked = handler.services(asker)?.check_for(self.follower, self.draft_id).await;
        checked.map_err(ErrorReply::from)
    }
}

/// Gets the findings of a draft's check beyond the known ones. Answered as soon as there are some.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FollowCheck {
    /// The service.
    pub draft_id: DraftId,
    /// The number that the check was requested with.
    pub follower: u64,
    /// How many findings are known.
    pub known: usize,
}

impl TypedRequest for FollowCheck {
    type Response = Vec<Check>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<Check>, ErrorReply> {
        Ok(handler.checking.wait_for_more(self.draft_id, self.follower, self.known).await)
    }
}

/// Publishes a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PublishService {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for PublishService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        handler.services(asker)?.publish(self.draft_id).await.map_err(ErrorReply::from)
    }
}

/// Starts a run of a checked draft, before it is published.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TryServiceDraft {
    /// The service.
    pub draft_id: DraftId,
    /// The input's text for the assistant.
    pub input: String,
    /// The input's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The input's files, which were uploaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
}

impl TypedRequest for TryServiceDraft {
    type Response = Run;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Run, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        let Self { draft_id, input, data, files } = self;
        handler.services(asker)?.try_draft(draft_id, input, data, &files).await.map_err(ErrorReply::from)
    }
}

/// Lists the published versions of a service, newest first, up to [`MAX_SHOWN_VERSIONS`](deskgate_store::services::MAX_SHOWN_VERSIONS).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListVersions {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for ListVersions {
    type Response = Vec<Version>;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Vec<Version>, ErrorReply> {
        handler.services(asker)?.versions(self.draft_id).await.map_err(ErrorReply::from)
    }
}

/// The timeout for a folder, which may be on a disk that is gone.
const FOLDER_TIMEOUT: Duration = Duration::from_secs(2);
/// Each examination of such a folder blocks a thread for as long as the disk is gone: their number is bounded.
static FOLDER_PERMITS: Semaphore = Semaphore::const_new(4);

pub(super) async fn folder(ask: LookAtFolder) -> Result<Folder, ErrorReply> {
    let silent = Folder::Unusable { why: "its disk does not answer".to_owned() };
    bounded(move || Folder::look(&ask.path), silent).await
}

/// What a look at a folder finds, or `silent` where its disk does not answer.
async fn bounded<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static, silent: T) -> Result<T, ErrorReply> {
    let look = async {
        let place = FOLDER_PERMITS.acquire().await;
        let look = move || {
            let _place = place;
            look()
        };
        tokio::task::spawn_blocking(look).await
    };
    let looked = timeout(FOLDER_TIMEOUT, look).await.unwrap_or_else(|_| Ok(silent));
    looked.map_err(|_| failed("the agent failed while it looked at the folder".to_owned()))
}
