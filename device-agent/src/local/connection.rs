//! Requests about the connection to the gateway and the drafts of its modes.

use deskgate_protocol::DeviceId;
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
