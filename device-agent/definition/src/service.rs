//! A service with its draft and its published version, and how far it has come.

use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId};
use serde::{Deserialize, Serialize};

use crate::{CheckReport, Definition};

/// How far a service has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStage {
    /// Saved, and not checked in this form, or not with success.
    Draft,
    /// Every check of exactly this definition passed.
    Checked,
    /// Exactly this definition is what callers use.
    Published,
}

/// A service with its draft and, once there is one, its published version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What this device knows it by.
    pub draft_id: DraftId,
    /// The application that may call it.
    pub app_id: ApplicationId,
    /// What callers know it by; chosen before the first publication is sent.
    pub endpoint_id: Option<EndpointId>,
    /// The definition as it was last saved.
    pub draft: Definition,
    /// The newest checks, perhaps of an older draft.
    pub checks: Option<CheckReport>,
    /// When it was first saved.
    pub created_at: Timestamp,
    /// When it was last saved.
    pub changed_at: Timestamp,
    /// The newest version that the gateway confirmed.
    pub published: Option<Version>,
}

impl Service {
    /// Where the draft stands. A service with a newer draft is `published` in its older version too.
    pub fn stage(&self) -> ServiceStage {
        if self.published.as_ref().is_some_and(|version| version.definition == self.draft) {
            ServiceStage::Published
        } else if self.checks.as_ref().is_some_and(|report| report.allows(&self.draft)) {
            ServiceStage::Checked
        } else {
            ServiceStage::Draft
        }
    }
}

/// A frozen version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Counted from 1.
    pub version: u32,
    /// What it does. Its digest is [`Definition::digest`].
    pub definition: Definition,
    /// The checks it passed.
    pub checks: CheckReport,
    /// When the gateway confirmed it; `None` while its answer is awaited.
    pub published_at: Option<Timestamp>,
    /// Why nothing of it runs; `None` as long as it does. Publishing ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}
