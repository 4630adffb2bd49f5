//! How the gateway is reached: what is asked about the drafts of its modes.

use deskgate_protocol::DeviceId;
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::link::{ConnectStage, HostKeys};
use crate::settings::{ConnectionEdit, ConnectionSettings, Mode};

/// Asks for the connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetConnection {}

impl TypedRequest for GetConnection {
    type Response = ConnectionSettings;

    async fn answer(self, desk: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        desk.connection().await
    }
}

/// Edits a mode's draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SaveConnection {
    /// Which mode.
    pub mode: Mode,
    /// The fields to change.
    pub edit: ConnectionEdit,
    /// A new control token; absent keeps the saved one.
    pub control_token: Option<String>,
    /// Whether to stop there, without putting the draft in force.
    pub draft_only: bool,
    /// Whether runs in progress may be abandoned.
    pub abandon_runs: bool,
}

impl TypedRequest for SaveConnection {
    type Response = ConnectionSettings;

    async fn answer(self, desk: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        desk.save(self).await
    }
}

/// Throws a draft away.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DiscardConnection {
    /// Which mode's.
    pub mode: Mode,
}

impl TypedRequest for DiscardConnection {
    type Response = ConnectionSettings;

    async fn answer(self, desk: &RequestHandler, _: Requester) -> Result<ConnectionSettings, ErrorReply> {
        desk.discard(self.mode).await
    }
}

/// Tests a mode's draft, or what is saved for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestConnection {
    /// Which mode.
    pub mode: Mode,
}

impl TypedRequest for TestConnection {
    type Response = ConnectionTestResult;

    async fn answer(self, desk: &RequestHandler, _: Requester) -> Result<ConnectionTestResult, ErrorReply> {
        desk.test(self).await
    }
}

/// What a test found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionTestResult {
    /// What was dialled.
    pub address: String,
    /// What went well, in its order.
    pub passed: Vec<ConnectStage>,
    /// What did not; absent also where that cannot be told.
    pub failed_at: Option<ConnectStage>,
    /// Why not; absent when this device was let in.
    pub failed: Option<ErrorReply>,
    /// What to compare, where the server's key is not the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeys>,
    /// The gateway's version, once it let this device in.
    pub gateway_version: Option<String>,
    /// Who this device is to it.
    pub device_id: Option<DeviceId>,
}
