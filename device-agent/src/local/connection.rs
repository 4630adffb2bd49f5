//! Requests about the connection to the gateway and the drafts of its modes.

use deskgate_protocol::{DeviceId, GatewayId, Timestamp};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::link::{ConnectStage, HostKeys};
use crate::settings::{ConnectionEdit, ConnectionSettings, Mode};

/// Gets the connection's settings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetConnection {}

impl TypedRequest for GetConnection {
    type Response = ConnectionSettings;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        handler.connection().await
    }
}

/// Edits a mode's draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SaveConnection {
    /// The mode.
    pub mode: Mode,
    /// The fields to change.
    pub edit: ConnectionEdit,
    /// A new control token; absent keeps the saved one.
    pub control_token: Option<String>,
    /// Whether to save the draft only, without putting it in force.
    pub draft_only: bool,
    /// Whether runs in progress may be abandoned.
    pub abandon_runs: bool,
}

impl TypedRequest for SaveConnection {
    type Response = ConnectionSettings;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        handler.save(self).await
    }
}

/// Gets the pinned host key of the remote gateway, and the keys that are followed in its place.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetHostKeys {}

impl TypedRequest for GetHostKeys {
    type Response = HostKeysView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<HostKeysView, ErrorReply> {
        handler.host_keys().await
    }
}

/// Drops the keys that the remote gateway announced: the pinned fingerprint alone decides from then on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DropHostKeys {}

impl TypedRequest for DropHostKeys {
    type Response = HostKeysView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<HostKeysView, ErrorReply> {
        handler.drop_host_keys().await
    }
}

/// The host keys by which the remote gateway is recognised.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostKeysView {
    /// The fingerprint that the owner pinned.
    pub pinned: Option<String>,
    /// The keys that the gateway announced and proved, in place of the pinned one. Empty: the pin decides.
    pub followed: Vec<FollowedHostKey>,
    /// Why the announced keys cannot be read; no server is trusted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A host key that is trusted because the gateway announced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedHostKey {
    /// Its fingerprint.
    pub fingerprint: String,
    /// When it was first announced; absent if that was not noted.
    pub announced_at: Option<Timestamp>,
    /// The fingerprint of the key by which the gateway was recognised when it announced it.
    pub announced_by: Option<String>,
}

impl std::fmt::Display for FollowedHostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.fingerprint)?;
        match (&self.announced_at, &self.announced_by) {
            (Some(at), Some(by)) if *by == self.fingerprint => write!(f, ", announced by itself at {at}"),
            (Some(at), Some(by)) => write!(f, ", announced by {by} at {at}"),
            _ => f.write_str(", announced by the gateway"),
        }
    }
}

/// Discards a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DiscardConnection {
    /// The mode of the draft.
    pub mode: Mode,
}

impl TypedRequest for DiscardConnection {
    type Response = ConnectionSettings;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        handler.discard(self.mode).await
    }
}

/// Takes another gateway at the active connection's address for the known one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AcceptGateway {
    /// The gateway that answered there, as the problem names it.
    pub gateway_id: GatewayId,
}

/// The gateway that is the known one now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AcceptedGateway {
    /// Its identifier.
    pub gateway_id: GatewayId,
}

impl TypedRequest for AcceptGateway {
    type Response = AcceptedGateway;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<AcceptedGateway, ErrorReply> {
        handler.accept_gateway(&self)
    }
}

/// Tests a mode's draft, or its saved fields.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestConnection {
    /// The mode.
    pub mode: Mode,
}

impl TypedRequest for TestConnection {
    type Response = ConnectionTestResult;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ConnectionTestResult, ErrorReply> {
        handler.test(self).await
    }
}

/// The result of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionTestResult {
    /// The dialled address.
    pub address: String,
    /// The stages that passed, in order.
    pub passed: Vec<ConnectStage>,
    /// The stage that failed; absent if unknown.
    pub failed_at: Option<ConnectStage>,
    /// Why it failed; absent when this device was accepted.
    pub failed: Option<ErrorReply>,
    /// The keys to compare, if the server's key is not the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeys>,
    /// The gateway's version, once it has accepted this device.
    pub gateway_version: Option<String>,
    /// This device's identifier at the gateway.
    pub device_id: Option<DeviceId>,
}
