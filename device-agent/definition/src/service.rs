//! A service with its draft, its published version and its stage.

use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId};
use serde::{Deserialize, Serialize};

use crate::{CheckReport, Definition, Provider};

/// The stage that a service has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStage {
    /// Saved; this form was not checked, or a check failed.
    Draft,
    /// Every check of exactly this definition passed.
    Checked,
    /// Exactly this definition is what callers use.
    Published,
}

/// A service with its draft and, once there is one, its published version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The service's identifier on this device.
    pub draft_id: DraftId,
    /// The application that may call it.
    pub app_id: ApplicationId,
    /// The endpoint's identifier for callers; chosen before the first publication is sent.
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
    /// The stage of the draft. A service with a newer draft is `published` in its older version too.
    pub fn stage(&self) -> ServiceStage {
        if self.published.as_ref().is_some_and(|version| version.definition == self.draft) {
            ServiceStage::Published
        } else if self.checks.as_ref().is_some_and(|report| report.allows(&self.draft)) {
            ServiceStage::Checked
        } else {
            ServiceStage::Draft
        }
    }

    /// Whether a version is the one that callers use.
    pub fn publishes(&self, version: &Version) -> bool {
        self.published.as_ref().is_some_and(|published| published.version == version.version)
    }

    /// Whether its draft or its published version names a provider.
    pub fn uses(&self, provider: &Provider) -> bool {
        let published = self.published.as_ref().map(|version| &version.definition);
        [Some(&self.draft), published].into_iter().flatten().any(|definition| definition.provider == *provider)
    }
}

/// A frozen version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The version's number, counted from 1.
    pub version: u32,
    /// The frozen definition. Its digest is [`Definition::digest`].
    pub definition: Definition,
    /// The checks it passed.
    pub checks: CheckReport,
    /// When the gateway confirmed it; `None` while the confirmation is outstanding.
    pub published_at: Option<Timestamp>,
    /// Why the version is paused; `None` while it is active. Publishing ends the pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}
