//! Management requests: what the desktop sends to its gateway over the control channel.
//!
//! Each request is a type, and names the type of its reply ([`ManagementCall`]). A device reads and changes only its
//! own records. The public address offers no such call.

mod activity;
mod applications;
mod callbacks;
mod conversations;
mod lookup;
mod operations;
mod overview;
mod runs;
mod services;
mod webhooks;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ids::{ApplicationId, EndpointId, KeyId};
use crate::operation::ControlOperation;
use crate::run::Run;
use crate::time::Timestamp;
use crate::words::api_words;

pub use activity::{Activity, ActivityKind, ActivityPage, Actor, AskedBy, ListActivity};
pub use applications::{
    Application, ApplicationState, CompleteDisabling, CreateApplication, CreatedApplication, DisableApplication,
    DisablingPreview, ListApplications, ListRemoved, OutstandingWork, PreviewDisabling, RemoveApplication,
    RemovedApplication, ShowApplication,
};
pub use callbacks::{
    Allowlist, Callback, CallbackFormat, CallbackOff, CallbackWithSecret, CloseListener, DeliveryAttempt,
    DeliveryDetail, DeliveryPage, DestinationKind, ForwardBatch, ForwardOutcome, ForwardedDelivery, ListCallbacks,
    ListDeliveries, OpenListener, OpenedListener, OwnDelivery, PollListener, RecoverDeliveries, Recovery,
    ResendDelivery, RollCallbackSecret, SetAllowlist, SetCallback, ShowAllowlist, ShowCallback, ShowDelivery,
    TestCallback, TriggerDelivery,
};
pub use conversations::{
    ConversationDetail, ConversationPage, ListConversations, MESSAGE_TEXT_CHARS, OwnConversation, ResetConversation,
    ShowConversation,
};
pub use lookup::{FindByEnd, FoundByEnd, MAX_FOUND_BY_END, RecordKind};
pub use operations::{ShowOperation, StopRun};
pub use overview::{ApplicationNumbers, AttentionCounts, Day, DurationStats, GetOverview, Hour, Overview};
pub use runs::{
    ExportRuns, GrantTransfer, LISTED_TEXT_CHARS, ListRuns, ListedRun, RunDetail, RunExport, RunPage, ShowRun,
    TransferGrant, TryDraft, TryEndpoint,
};
pub use services::{
    EnableEndpoint, ListEndpoints, PreviewUnpublishing, PublishEndpoint, PublishedEndpoint, UnpublishEndpoint,
    UnpublishingPreview,
};
pub use webhooks::{
    ChangeWebhook, CreateWebhook, EnableWebhook, HashAlgorithm, ListWebhooks, MappedRun, PlainHmac, ReceiptOutcome,
    RemoveWebhook, RollWebhookSecret, SecretText, ShowWebhook, SignatureEncoding, TestWebhook, TrialOutcome, Webhook,
    WebhookDetail, WebhookFilter, WebhookMapping, WebhookReceipt, WebhookSample, WebhookScheme, WebhookSettings,
    WebhookTrial, WebhookWithSecret,
};

/// A request with the reply that belongs to it.
pub trait ManagementCall: Serialize + Into<ManagementRequest> {
    /// The reply to a request that succeeded.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident => $reply:ty;)*) => {
        /// Every management request.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "call", rename_all = "snake_case")]
        pub enum ManagementRequest {
            $($(#[$doc])* $name($name),)*
        }

        $(
            impl ManagementCall for $name {
                type Reply = $reply;
            }

            impl From<$name> for ManagementRequest {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*
    };
}

calls! {
    /// A new application with its first key.
    CreateApplication => CreatedApplication;
    /// The device's applications that are not removed, oldest first.
    ListApplications => Vec<Application>;
    /// One application, removed or not.
    ShowApplication => Application;
    /// What was done to the device's applications, newest first.
    ListActivity => ActivityPage;
    /// One more key.
    CreateKey => CreatedKey;
    /// An application's keys, oldest first.
    ListKeys => Vec<KeyRecord>;
    /// Ends a key at once and for good.
    RevokeKey => KeyRecord;
    /// Replaces a key by a new one; the old one stays valid for a chosen time.
    RollKey => CreatedKey;
    /// What disabling an application would end.
    PreviewDisabling => DisablingPreview;
    /// Ends an application's keys, runs and services for good.
    DisableApplication => Application;
    /// Completes disabling, once nothing is outstanding.
    CompleteDisabling => Application;
    /// Takes a disabled application off the list.
    RemoveApplication => Application;
    /// Removed applications whose records can still be read, the last removed first.
    ListRemoved => Vec<RemovedApplication>;
    /// Publishes a checked service, or a new version of it.
    PublishEndpoint => PublishedEndpoint;
    /// The services that the device has published here, also those that are not any more, oldest first.
    ListEndpoints => Vec<PublishedEndpoint>;
    /// What unpublishing a service would end.
    PreviewUnpublishing => UnpublishingPreview;
    /// Takes a service away from its callers, and ends its runs.
    UnpublishEndpoint => PublishedEndpoint;
    /// Enables or disables a published service.
    EnableEndpoint => PublishedEndpoint;
    /// Starts a run of a published service for the service's owner.
    TryEndpoint => Run;
    /// Starts a run of a draft for the service's owner.
    TryDraft => Run;
    /// A ticket for the owner's own transfers.
    GrantTransfer => TransferGrant;
    /// Enables or pauses external access to everything this device published.
    SetAccess => Access;
    /// Whether access is enabled.
    GetAccess => Access;
    /// The numbers of the overview.
    GetOverview => Overview;
    /// Records by the end of their identifier.
    FindByEnd => FoundByEnd;
    /// Runs of the device's applications, newest first.
    ListRuns => RunPage;
    /// An application's runs with their stored events, newest first.
    ExportRuns => RunExport;
    /// One run with its stored events.
    ShowRun => RunDetail;
    /// Ends a run.
    StopRun => ControlOperation;
    /// Conversations of the device's applications, newest first.
    ListConversations => ConversationPage;
    /// One conversation with its messages.
    ShowConversation => ConversationDetail;
    /// Resets a conversation.
    ResetConversation => ControlOperation;
    /// The state of a stop or a reset.
    ShowOperation => ControlOperation;
    /// An application's callback, if it has one.
    ShowCallback => Option<Callback>;
    /// The callbacks of the device's applications, oldest first.
    ListCallbacks => Vec<Callback>;
    /// Sets where an application's events are sent, and which events.
    SetCallback => CallbackWithSecret;
    /// Makes a new secret; the old one also signs for a chosen time.
    RollCallbackSecret => CallbackWithSecret;
    /// Sends a test event to a callback.
    TestCallback => OwnDelivery;
    /// Sends a sample of an event.
    TriggerDelivery => Vec<OwnDelivery>;
    /// Deliveries of the device's applications, newest first.
    ListDeliveries => DeliveryPage;
    /// One delivery with its attempts.
    ShowDelivery => DeliveryDetail;
    /// Sends a delivery again.
    ResendDelivery => OwnDelivery;
    /// Sends again the deliveries that failed since a time.
    RecoverDeliveries => Recovery;
    /// The hosts that callbacks may be sent to.
    ShowAllowlist => Allowlist;
    /// Replaces the hosts that callbacks may be sent to.
    SetAllowlist => Allowlist;
    /// Opens a listener for an application's events at the desktop.
    OpenListener => OpenedListener;
    /// Takes the deliveries that a listener is to post.
    PollListener => ForwardBatch;
    /// Ends a listener.
    CloseListener => ();
    /// A new incoming webhook with its secret.
    CreateWebhook => WebhookWithSecret;
    /// Webhooks that are not removed, oldest first.
    ListWebhooks => Vec<Webhook>;
    /// One webhook with what it last received.
    ShowWebhook => WebhookDetail;
    /// Changes a webhook's settings.
    ChangeWebhook => Webhook;
    /// Enables or disables a webhook.
    EnableWebhook => Webhook;
    /// Gives a webhook another secret.
    RollWebhookSecret => WebhookWithSecret;
    /// Removes a webhook for good.
    RemoveWebhook => Webhook;
    /// Shows what an event would become.
    TestWebhook => WebhookTrial;
}

/// Creates a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateKey {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// Its name, for people.
    pub name: String,
    /// What the key may do.
    pub scopes: Vec<Scope>,
    /// The services it is limited to; empty means all of the application's.
    #[serde(default)]
    pub endpoints: Vec<EndpointId>,
    /// The one subject it may name.
    #[serde(default)]
    pub fixed_subject: Option<String>,
    /// When it expires.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// The networks it may be used from, such as `10.0.0.0/8`; empty means everywhere.
    #[serde(default)]
    pub allowed_cidrs: Vec<String>,
}

/// A key's record with its full text, which is shown only this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedKey {
    /// The record.
    pub key: KeyRecord,
    /// The full text: `dgk_…`.
    pub text: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Lists an application's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListKeys {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Revokes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeKey {
    /// The key's identifier.
    pub key_id: KeyId,
}

/// Replaces a key by a new one with the same rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollKey {
    /// The key's identifier.
    pub key_id: KeyId,
    /// Seconds for which the old key stays valid, at most 30 days.
    pub overlap_s: u32,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Its identifier.
    pub key_id: KeyId,
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// Its name, for people.
    pub name: String,
    /// The last four characters of its secret.
    pub last4: String,
    /// What the key may do.
    pub scopes: Vec<Scope>,
    /// The services it is limited to; empty means all of the application's.
    pub endpoints: Vec<EndpointId>,
    /// The one subject it may name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_subject: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The networks it may be used from; empty means everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_cidrs: Vec<String>,
    /// When it was last used, to about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// The address it was last used from. Earlier addresses are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_address: Option<String>,
    /// When it was last used from an address other than the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_address_at: Option<Timestamp>,
    /// What the owner should check about this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<KeyWarning>,
}

api_words! {
    /// Why the owner of a live key should check it.
    pub enum KeyWarning {
        /// It was used from a new address within the last 7 days.
        NewAddress = "new_address",
        /// It was not used for 90 days.
        Unused = "unused",
    }
}

crate::words! {
    /// What a key may do (specification, section 5; http-api, section "Scopes").
    pub enum Scope {
        /// List published services.
        EndpointsRead = "endpoints:read",
        /// Submit work.
        RunsWrite = "runs:write",
        /// Retrieve runs and their results.
        RunsRead = "runs:read",
        /// Stop runs.
        RunsControl = "runs:control",
        /// Create conversations; with `runs:write`, send messages in them.
        ConversationsWrite = "conversations:write",
        /// Read conversations.
        ConversationsRead = "conversations:read",
        /// Reset conversations.
        ConversationsControl = "conversations:control",
        /// Read deliveries and their state.
        DeliveriesRead = "deliveries:read",
        /// Upload files for runs, read about them and delete them.
        FilesWrite = "files:write",
    }
}

/// Enables or pauses access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAccess {
    /// Whether requests are to be accepted.
    pub enabled: bool,
}

/// Asks whether access is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetAccess {}

/// Whether the gateway accepts requests for this device's services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Whether requests are accepted.
    pub enabled: bool,
    /// When that was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// The public address of the gateway, including `/api/v1`.
    pub address: String,
}

/// Why a management request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ManagementError {
    /// For programs.
    pub code: ManagementErrorCode,
    /// For people: what is wrong and what to do next.
    pub message: String,
}

/// The codes of [`ManagementError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagementErrorCode {
    /// A value is not acceptable.
    Invalid,
    /// The record does not exist, or belongs to another device.
    NotFound,
    /// It cannot be done in the present state.
    Conflict,
    /// Only the gateway's administrator can change it, on the server.
    AdministratorOnly,
    /// A quota leaves no room for another one.
    QuotaReached,
    /// The gateway has no database at the moment; the request changed nothing.
    Unavailable,
}
