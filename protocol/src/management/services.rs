//! Services at the gateway: published, disabled for a time, unpublished.

use serde::{Deserialize, Serialize};

use crate::canonical::Sha256Digest;
use crate::ids::{ApplicationId, EndpointId};
use crate::service::ServiceData;
use crate::time::Timestamp;

/// Publishes a version of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishEndpoint {
    /// The application that will call it.
    pub app_id: ApplicationId,
    /// Chosen by the device, so that a repeated request publishes only once.
    pub endpoint_id: EndpointId,
    /// The version to publish: 1, or one more than the published one.
    pub version: u32,
    /// Its name, unique among the application's services.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The digest of the whole definition, which stays on the device.
    pub definition_sha256: Sha256Digest,
    /// The data that it takes and gives. Older devices say nothing of it.
    #[serde(flatten)]
    pub data: Box<ServiceData>,
}

/// Lists published services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEndpoints {}

/// A published service as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedEndpoint {
    /// Its identifier.
    pub endpoint_id: EndpointId,
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The published version.
    pub version: u32,
    /// Its name as a tool of MCP. Older gateways say nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The digest of that version's definition.
    pub definition_sha256: Sha256Digest,
    /// When that version was published.
    pub published_at: Timestamp,
    /// When it became uncallable for good: its application was disabled, or it was unpublished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// When it was unpublished. Publishing a version again ends that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpublished_at: Option<Timestamp>,
    /// When its owner disabled it. It accepts no new work until it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
}

/// Asks what unpublishing would end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewUnpublishing {
    /// The service's identifier.
    pub endpoint_id: EndpointId,
}

/// What unpublishing a service would end, or what is left to end of one that was unpublished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpublishingPreview {
    /// The service.
    pub endpoint: PublishedEndpoint,
    /// Queued runs, which are cancelled.
    pub runs_queued: u32,
    /// Started runs, which are stopped.
    pub runs_in_progress: u32,
    /// Its conversations, which accept no further message.
    pub conversations: u32,
    /// Live keys that are limited to this service alone.
    pub keys: u32,
    /// Webhooks whose events start its runs.
    pub webhooks: u32,
}

/// Takes a service away from its callers. Its queued runs are cancelled, and its started ones are asked to stop.
/// Repeating it has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpublishEndpoint {
    /// The service's identifier.
    pub endpoint_id: EndpointId,
}

/// Enables or disables a published service. What a disabled one has accepted is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableEndpoint {
    /// The service's identifier.
    pub endpoint_id: EndpointId,
    /// Whether it is to accept new work.
    pub enabled: bool,
}
