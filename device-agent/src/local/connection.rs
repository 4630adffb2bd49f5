//! How the gateway is reached: what is asked about the drafts of its modes.

use deskgate_protocol::DeviceId;
use serde::{Deserialize, Serialize};

use super::desk::Desk;
use super::reply::{Asker, No};
use super::request::Ask;
use crate::link::{HostKeys, Stage};
use crate::settings::{Connection, Edit, Mode};

/// Asks for the connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetConnection {}

impl Ask for GetConnection {
    type Answer = Connection;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Connection, No> {
        desk.connection().await
    }
}

/// Edits a mode's draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SaveConnection {
    /// Which mode.
    pub mode: Mode,
    /// The fields to change.
    pub edit: Edit,
    /// A new control token; absent keeps the saved one.
    pub control_token: Option<String>,
    /// Whether to stop there, without putting the draft in force.
    pub draft_only: bool,
    /// Whether runs in progress may be abandoned.
    pub abandon_runs: bool,
}

impl Ask for SaveConnection {
    type Answer = Connection;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Connection, No> {
        desk.save(self).await
    }
}

/// Throws a draft away.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DiscardConnection {
    /// Which mode's.
    pub mode: Mode,
}

impl Ask for DiscardConnection {
    type Answer = Connection;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Connection, No> {
        desk.discard(self.mode).await
    }
}

/// Tests a mode's draft, or what is saved for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestConnection {
    /// Which mode.
    pub mode: Mode,
}

impl Ask for TestConnection {
    type Answer = Tested;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Tested, No> {
        desk.test(self).await
    }
}

/// What a test found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tested {
    /// What was dialled.
    pub address: String,
    /// What went well, in its order.
    pub passed: Vec<Stage>,
    /// What did not; absent also where that cannot be told.
    pub failed_at: Option<Stage>,
    /// Why not; absent when this device was let in.
    pub failed: Option<No>,
    /// What to compare, where the server's key is not the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeys>,
    /// The gateway's version, once it let this device in.
    pub gateway_version: Option<String>,
    /// Who this device is to it.
    pub device_id: Option<DeviceId>,
}
