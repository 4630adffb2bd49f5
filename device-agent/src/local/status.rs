//! The agent's status: connection, work, problems.

use deskgate_protocol::control::SessionRefusal;
use deskgate_protocol::management::{Access, GetAccess};
use deskgate_protocol::{DeviceId, Timestamp, VERSION};
use serde::{Deserialize, Serialize};

use super::connection::FollowedHostKey;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::dispatcher;
use crate::health::HealthProblem;
use crate::link::{HostKeys, LinkStatus};
use crate::power::AwakeStatus;
use crate::services::{CallError, GatewayClient as _};
use crate::settings::Mode;

/// Gets the agent's status.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetStatus {}

impl TypedRequest for GetStatus {
    type Response = AgentStatus;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<AgentStatus, ErrorReply> {
        handler.status().await
    }
}

/// The agent's status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The agent's version.
    pub version: String,
    /// The agent's process number.
    pub pid: u32,
    /// The device's name.
    pub device_name: String,
    /// The device key's fingerprint.
    pub fingerprint: String,
    /// The mode in force.
    pub mode: Mode,
    /// The connection's status.
    pub line: LineView,
    /// Whether access is enabled, and the API's address; absent when the gateway cannot be reached.
    pub access: Option<Access>,
    /// Whether the gateway keeps the connection and did not answer a request within two seconds.
    #[serde(default)]
    pub gateway_is_silent: bool,
    /// Slots, active runs, problems.
    pub work: WorkView,
    /// Whether the computer is kept from automatic sleep during work.
    pub kept_awake: AwakeStatus,
    /// The address of the management pages; absent while they are not available.
    pub pages: Option<String>,
    /// The host keys that the remote gateway announced and proved: they are trusted in place of the pinned one. Empty
    /// while the pinned one is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed_host_keys: Vec<FollowedHostKey>,
    /// The problems of the newest check, the worst first; see [`GetHealth`](super::GetHealth).
    #[serde(default)]
    pub problems: Vec<HealthProblem>,
}

/// The status of the connection to the gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LineView {
    /// There is no connection.
    Disconnected {
        /// Why, for people.
        why: String,
        /// The keys to compare, if the server's key is not the pinned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_keys: Option<HostKeys>,
        /// When the next automatic attempt is.
        next_attempt_at: Option<Timestamp>,
    },
    /// A connection attempt is under way.
    Connecting,
    /// The session is open.
    Connected {
        /// When it was opened.
        since: Timestamp,
        /// This device's identifier at the gateway.
        device_id: DeviceId,
        /// The gateway's version.
        gateway_version: String,
    },
    /// The gateway refused.
    Refused {
        /// The gateway's refusal.
        refused: SessionRefusal,
        /// When the next automatic attempt is.
        next_attempt_at: Option<Timestamp>,
    },
}

/// The agent's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkView {
    /// How many runs may execute at once.
    pub slots: u32,
    /// Whether the agent stops.
    pub stopping: bool,
    /// The problem that prevents work.
    pub problem: Option<String>,
    /// The active runs.
    pub runs: serde_json::Value,
}

impl From<dispatcher::DispatcherStatus> for WorkView {
    fn from(status: dispatcher::DispatcherStatus) -> Self {
        let runs = serde_json::to_value(&status.runs).unwrap_or_default();
        Self { slots: status.slots, stopping: status.stopping, problem: status.problem, runs }
    }
}

impl RequestHandler {
    pub(super) async fn status(&self) -> Result<AgentStatus, ErrorReply> {
        let (active, connection) = (self.active()?, self.connection().await?);
        let line = view(active.link.status().borrow().clone());
        let work = active.dispatcher.status().into();
        let access = match line {
            LineView::Connected { .. } => Some(active.dispatcher.glancing().call(GetAccess {}).await),
            _ => None,
        };
        let gateway_is_silent = matches!(access, Some(Err(CallError::TimedOut { .. })));
        Ok(AgentStatus {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            device_name: self.device_name().await?,
            fingerprint: self.key.public_key().fingerprint(),
            mode: connection.mode,
            line,
            access: access.and_then(Result::ok),
            gateway_is_silent,
            work,
            kept_awake: active.kept_awake.borrow().clone(),
            pages: self.launch.address().map(|address| format!("http://{address}/")),
            followed_host_keys: match connection.mode {
                Mode::Remote => self.keys_of(&connection.saved.remote).followed,
                Mode::BuiltIn | Mode::Hosted => Vec::new(),
            },
            problems: self.health.watch().borrow().clone(),
        })
    }
}

pub(super) fn view(status: LinkStatus) -> LineView {
    match status {
        LinkStatus::Disconnected { why, host_keys, next_attempt_at, .. } => {
            LineView::Disconnected { why, host_keys, next_attempt_at }
        }
        LinkStatus::Connecting => LineView::Connecting,
        LinkStatus::Connected { since, device_id, gateway_version, .. } => {
            LineView::Connected { since, device_id, gateway_version }
        }
        LinkStatus::Refused { refused, next_attempt_at } => LineView::Refused { refused, next_attempt_at },
    }
}
