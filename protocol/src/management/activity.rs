//! The activity list: who did what to the device's applications.

use serde::{Deserialize, Serialize};

use crate::ids::{ActivityId, ApplicationId, KeyId};
use crate::time::Timestamp;
use crate::words::api_words;

api_words! {
    /// Where in the desktop a management request comes from, as the desktop reports it.
    pub enum AskedBy {
        /// A person, on the management pages.
        Page = "page",
        /// A person, or their script, by the command line.
        Cli = "cli",
        /// The agent by itself.
        Agent = "agent",
    }
}

api_words! {
    /// Who did something.
    pub enum Actor {
        /// A person, on the management pages.
        Page = "page",
        /// A person, or their script, by the command line.
        Cli = "cli",
        /// The agent by itself.
        Agent = "agent",
        /// A business system with an application key.
        Key = "key",
        /// A webhook, for an event of another system.
        Webhook = "webhook",
        /// The administrator of the gateway's server.
        Administrator = "administrator",
    }
}

impl From<AskedBy> for Actor {
    fn from(asked: AskedBy) -> Self {
        match asked {
            AskedBy::Page => Self::Page,
            AskedBy::Cli => Self::Cli,
            AskedBy::Agent => Self::Agent,
        }
    }
}

api_words! {
    /// What was done.
    pub enum ActivityKind {
        /// An application was created, with its first key.
        ApplicationCreated = "application.created",
        /// An application was disabled, with its keys and services.
        ApplicationDisabled = "application.disabled",
        /// Everything of a disabled application had ended.
        DisablingCompleted = "application.disabling_completed",
        /// An application was taken off the list.
        ApplicationRemoved = "application.removed",
        /// A further key was created.
        KeyCreated = "key.created",
        /// A key was replaced by the one that is named.
        KeyRolled = "key.rolled",
        /// A key was revoked.
        KeyRevoked = "key.revoked",
        /// A version of a service was published.
        ServicePublished = "service.published",
        /// A service was disabled.
        ServiceDisabled = "service.disabled",
        /// A service was enabled.
        ServiceEnabled = "service.enabled",
        /// A service was unpublished, and its runs were ended.
        ServiceUnpublished = "service.unpublished",
        /// External access was enabled.
        AccessEnabled = "access.enabled",
        /// External access was paused.
        AccessPaused = "access.paused",
        /// The stop of a run was requested.
        RunStopped = "run.stopped",
        /// An application's callback was set or changed.
        CallbackSet = "callback.set",
        /// A callback was disabled.
        CallbackDisabled = "callback.disabled",
        /// A callback was enabled again.
        CallbackEnabled = "callback.enabled",
        /// A callback's secret was replaced.
        CallbackSecretRolled = "callback.secret_rolled",
        /// The hosts that callbacks may go to were changed.
        AllowlistChanged = "allowlist.changed",
        /// A test or a sample was sent.
        DeliveryTriggered = "delivery.triggered",
        /// A delivery was sent again.
        DeliveryResent = "delivery.resent",
        /// Failed deliveries were sent again.
        DeliveriesRecovered = "deliveries.recovered",
        /// A listener for an application's events was opened.
        ListenerOpened = "listener.opened",
        /// The reset of a conversation was requested.
        ConversationReset = "conversation.reset",
        /// An incoming webhook was created.
        WebhookCreated = "webhook.created",
        /// A webhook's settings were changed.
        WebhookChanged = "webhook.changed",
        /// A webhook was enabled.
        WebhookEnabled = "webhook.enabled",
        /// A webhook was disabled.
        WebhookDisabled = "webhook.disabled",
        /// A webhook's secret was replaced.
        WebhookSecretRolled = "webhook.secret_rolled",
        /// A webhook was removed.
        WebhookRemoved = "webhook.removed",
    }
}

/// Lists activity, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListActivity {
    /// The size of the page, 1 to 100.
    pub limit: u32,
    /// Only entries before this one: the `next` of the page before.
    #[serde(default)]
    pub before: Option<ActivityId>,
    /// Only entries about this application.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
}

/// A page of activity, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityPage {
    /// The entries.
    pub entries: Vec<Activity>,
    /// Where the page after this one begins: its `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ActivityId>,
}

/// One entry of the activity list. Kept for a year.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Its identifier.
    pub activity_id: ActivityId,
    /// When it was done.
    pub at: Timestamp,
    /// Who did it.
    pub by: Actor,
    /// The key that was used, if a business system did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// The last four characters of that key's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_last4: Option<String>,
    /// What was done.
    pub what: ActivityKind,
    /// The application; absent if all of the device's are concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<ApplicationId>,
    /// The identifier of the key, service, run or conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The name of the application, key or service at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
