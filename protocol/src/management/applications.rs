//! Applications: the business systems that may call services, and their states.

use serde::{Deserialize, Serialize};

use super::CreatedKey;
use crate::ids::ApplicationId;
use crate::time::Timestamp;
use crate::words::api_words;

/// A new application with its first key, which has every scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateApplication {
    /// A recognisable name, unique among the device's applications that are not removed.
    pub name: String,
}

/// The reply to [`CreateApplication`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedApplication {
    /// The application.
    pub application: Application,
    /// Its first key.
    pub key: CreatedKey,
}

/// Lists the applications that are not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListApplications {}

/// Shows one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowApplication {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

api_words! {
    /// The state of an application (specification, section 3). States only move forward: keys are never restored.
    pub enum ApplicationState {
        /// Its keys are valid.
        Active = "active",
        /// Its keys are revoked and it accepts nothing new; some of its work has not ended yet.
        Disabling = "disabling",
        /// All of its work has ended.
        Disabled = "disabled",
        /// It is off the list. Its runs can be read until they are deleted.
        Removed = "removed",
    }
}

impl ApplicationState {
    /// The states an application may move to from here.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::Active => &[Self::Disabling],
            Self::Disabling => &[Self::Disabled],
            Self::Disabled => &[Self::Removed],
            Self::Removed => &[],
        }
    }

    /// Whether an application may move from here to `next`.
    pub fn may_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }
}

/// A business system that may call services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// Its identifier.
    pub app_id: ApplicationId,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// How many of its keys are neither revoked nor expired.
    pub live_keys: u32,
    /// Its state.
    pub state: ApplicationState,
    /// When its keys were revoked for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// When all of its work had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When it was taken off the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    /// While it is `disabling`: the work that has not ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<OutstandingWork>,
}

/// The work that disabling waits for. If all are zero, it can be completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingWork {
    /// Runs with a stop that have not ended. A run has ended when its result is stored and acknowledged.
    pub runs_to_stop: u32,
    /// Runs whose effects are unknown. The device ends them when it gets the stop, or their owner settles them.
    pub runs_to_reconcile: u32,
    /// Resets of conversations that the device has not acknowledged.
    pub resets: u32,
}

impl Application {
    /// Whether its disabling is complete.
    pub fn is_fully_disabled(&self) -> bool {
        matches!(self.state, ApplicationState::Disabled | ApplicationState::Removed)
    }
}

impl OutstandingWork {
    /// Whether nothing is outstanding.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Shows what disabling would end, for the confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewDisabling {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// The reply to [`PreviewDisabling`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisablingPreview {
    /// The application.
    pub application: Application,
    /// Keys that stop working; the same as its `live_keys`.
    pub live_keys: u32,
    /// Services that would be closed.
    pub services: u32,
    /// Runs that would be cancelled before they start.
    pub runs_queued: u32,
    /// Runs that would be stopped; their effects so far remain.
    pub runs_in_progress: u32,
    /// Conversations that would be closed to new messages.
    pub conversations: u32,
}

/// Disables an application: its keys are revoked for good at once, its services accept nothing and its runs end. If
/// nothing is outstanding it is `disabled` at once, otherwise `disabling`. A repeated request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisableApplication {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Completes disabling. Fails with a conflict while something is outstanding. A repeated request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteDisabling {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Takes an application off the list, which frees its name. Fails with a conflict unless it is `disabled`. A repeated
/// request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveApplication {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Lists removed applications whose records can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRemoved {}

/// A removed application, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedApplication {
    /// The application.
    #[serde(flatten)]
    pub application: Application,
    /// Its runs that are not deleted yet, counted up to 10,000.
    pub runs: u32,
    /// When the last of its runs is deleted at the latest. Each run has its own time.
    pub kept_until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::ApplicationState::*;
    use super::*;

    #[test]
    fn nothing_that_was_disabled_works_again() {
        let mut later = Vec::new();
        for state in ApplicationState::ALL {
            assert!(later.iter().all(|after: &ApplicationState| !state.may_become(*after)), "{state} leads back");
            later.insert(0, state);
        }
        assert!(Active.may_become(Disabling) && Disabling.may_become(Disabled) && Disabled.may_become(Removed));
        assert!(!Active.may_become(Removed) && !Disabling.may_become(Removed), "what still works is not removed");
    }
}
