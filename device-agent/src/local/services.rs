//! Services: what is asked about their drafts, their checks and their publication.

use std::path::PathBuf;
use std::time::Duration;

use deskgate_definition::{Check, Definition, Report, Service};
use deskgate_protocol::{ApplicationId, DraftId};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::desk::Desk;
use super::no::failed;
use super::reply::{Asker, No};
use super::request::Ask;
use crate::services::Folder;

/// Saves a new service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateService {
    /// Who may call it.
    pub app_id: ApplicationId,
    /// What it is.
    pub definition: Definition,
}

impl Ask for CreateService {
    type Answer = Service;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Service, No> {
        desk.services(asker)?.create(self.app_id, self.definition).await.map_err(No::from)
    }
}

/// Replaces a draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EditService {
    /// Which service.
    pub draft_id: DraftId,
    /// What it is to be.
    pub definition: Definition,
}

impl Ask for EditService {
    type Answer = Service;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Service, No> {
        desk.services(asker)?.edit(self.draft_id, self.definition).await.map_err(No::from)
    }
}

/// Lists services.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListServices {}

impl Ask for ListServices {
    type Answer = Vec<Service>;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Vec<Service>, No> {
        desk.services(asker)?.list().await.map_err(No::from)
    }
}

/// Shows a service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowService {
    /// Which.
    pub draft_id: DraftId,
}

impl Ask for ShowService {
    type Answer = Service;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Service, No> {
        desk.services(asker)?.show(self.draft_id).await.map_err(No::from)
    }
}

/// Looks at a folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LookAtFolder {
    /// Its whole path.
    pub path: PathBuf,
}

impl Ask for LookAtFolder {
    type Answer = Folder;

    async fn answer(self, _: &Desk, _: Asker) -> Result<Folder, No> {
        folder(self).await
    }
}

/// Checks a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckService {
    /// Which service's.
    pub draft_id: DraftId,
    /// A number of the asker's own, to follow this check by and no other one of the same draft.
    #[serde(default)]
    pub follower: Option<u64>,
}

impl Ask for CheckService {
    type Answer = Report;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Report, No> {
        let checked = desk.services(asker)?.check_for(self.follower, self.draft_id).await;
        checked.map_err(No::from)
    }
}

/// Asks what the check of a draft has found beyond what is known. Answered as soon as there is something.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FollowCheck {
    /// Which service's.
    pub draft_id: DraftId,
    /// The number that it was asked for with.
    pub follower: u64,
    /// How many findings are known.
    pub known: usize,
}

impl Ask for FollowCheck {
    type Answer = Vec<Check>;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Vec<Check>, No> {
        Ok(desk.checking.beyond(self.draft_id, self.follower, self.known).await)
    }
}

/// Publishes a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PublishService {
    /// Which service's.
    pub draft_id: DraftId,
}

impl Ask for PublishService {
    type Answer = Service;

    async fn answer(self, desk: &Desk, asker: Asker) -> Result<Service, No> {
        desk.services(asker)?.publish(self.draft_id).await.map_err(No::from)
    }
}

/// A folder may be on a disk that is gone; a page does not wait for it.
const LOOK: Duration = Duration::from_secs(2);
/// Each look at such a folder holds a thread for as long as the disk is gone: there are never more of them.
static LOOKS: Semaphore = Semaphore::const_new(4);

pub(super) async fn folder(ask: LookAtFolder) -> Result<Folder, No> {
    let look = async {
        let place = LOOKS.acquire().await;
        let look = move || {
            let _place = place;
            Folder::look(&ask.path)
        };
        tokio::task::spawn_blocking(look).await
    };
    let silent = || Ok(Folder::Unusable { why: "its disk does not answer".to_owned() });
    let looked = timeout(LOOK, look).await.unwrap_or_else(|_| silent());
    looked.map_err(|_| failed("the agent failed while it looked at the folder".to_owned()))
}
