//! Applications: the business systems that may call services, and how their life goes.

use serde::{Deserialize, Serialize};

use super::CreatedKey;
use crate::ids::ApplicationId;
use crate::time::Timestamp;
use crate::words::words;

/// A new application with its first key, which has every scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateApplication {
    /// A recognisable name, unique among the device's applications that were not removed.
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

/// Lists the applications that were not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListApplications {}

/// Shows one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowApplication {
    /// Which one.
    pub app_id: ApplicationId,
}

words! {
    /// Where an application stands (specification, section 3). Nothing leads back: keys are never restored.
    ApplicationState {
        /// Its keys are good.
        Active = "active",
        /// Its keys are revoked and it takes nothing new; something of it has not ended yet.
        Disabling = "disabling",
        /// Nothing of it works any more.
        Disabled = "disabled",
        /// It is off the list. What it left behind can be read until it is deleted.
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
    /// Where it stands.
    pub state: ApplicationState,
    /// Since when its keys are refused for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// When nothing of it worked any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When it was taken off the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    /// While it is `disabling`: what has not ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<OutstandingWork>,
}

/// What disabling waits for. All zero: it can be completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingWork {
    /// Runs that were told to stop and have not. A run has when its result is stored and acknowledged.
    pub runs_to_stop: u32,
    /// Runs of which nobody knows what they changed. The device ends them when it hears of the stop, or its owner says
    /// what became of them.
    pub runs_to_reconcile: u32,
    /// Resets of conversations that the device has not acknowledged.
    pub resets: u32,
}

impl Application {
    /// Whether its disabling is complete.
    pub fn is_wound_up(&self) -> bool {
        matches!(self.state, ApplicationState::Disabled | ApplicationState::Removed)
    }
}

impl OutstandingWork {
    /// Whether nothing is waited for.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Asks what disabling would end, for whoever is to confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewDisabling {
    /// Which application.
    pub app_id: ApplicationId,
}

/// The reply to [`PreviewDisabling`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisablingPreview {
    /// The application.
    pub application: Application,
    /// Keys that stop working; the same as its `live_keys`.
    pub live_keys: u32,
    /// Services that nobody can call any more.
    pub services: u32,
    /// Runs that would be cancelled before they start.
    pub runs_queued: u32,
    /// Runs that would be stopped; what they changed stays changed.
    pub runs_in_progress: u32,
    /// Conversations that nobody could go on with.
    pub conversations: u32,
}

/// Disables an application: from this moment its keys are revoked for good, its services take nothing and its runs
/// end. With nothing to wait for it is `disabled` at once, otherwise `disabling`. Repeated, it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisableApplication {
    /// Which one.
    pub app_id: ApplicationId,
}

/// Completes disabling. A conflict while something is outstanding. Repeated, it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteDisabling {
    /// Of which application.
    pub app_id: ApplicationId,
}

/// Takes an application off the list; its name is free for another one. A conflict unless it is `disabled`. Repeated,
/// it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveApplication {
    /// Which one.
    pub app_id: ApplicationId,
}

/// Lists removed applications of which something can still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRemoved {}

/// A removed application, and what it left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedApplication {
    /// The application.
    #[serde(flatten)]
    pub application: Application,
    /// Its runs that were not deleted yet, counted up to 10,000.
    pub runs: u32,
    /// When the last of its runs is deleted, at the latest. Each goes when its own time is over.
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
            later.insert(0, *state);
        }
        assert!(Active.may_become(Disabling) && Disabling.may_become(Disabled) && Disabled.may_become(Removed));
        assert!(!Active.may_become(Removed) && !Disabling.may_become(Removed), "what still works is not removed");
    }
}
