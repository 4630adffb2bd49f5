//! The private socket: what the command line may ask of the running agent.
//!
//! | file | what it does |
//! |---|---|
//! | here | the requests and answers |
//! | [`approvals`] | those about approvals and unsettled runs |
//! | [`desk`] | answers them, inside the agent |
//! | [`export`] | an application's runs as JSON Lines |
//! | [`health`] | looks at the agent's health, and answers about it |
//! | [`launch`] | the codes that open the management pages |
//! | `line`, `decisions` | answer those about the connection, and about approvals |
//! | [`settings`] | what is chosen about the agent itself |
//! | `no` | what went wrong, as an answer |
//! | [`notices`] | shows a notification for each call that waits |
//! | [`opener`] | opens the pages in the person's browser |
//! | [`orders`] | what the agent is told as a whole, and who waits for it |
//!
//! Each request is a type and names the type of its answer ([`Ask`]). Only this user and root are
//! answered.

pub mod approvals;
mod decisions;
pub mod desk;
pub mod export;
pub mod health;
pub mod launch;
mod line;
mod no;
pub mod notices;
pub mod opener;
pub mod orders;
pub mod settings;

use deskgate_gateway::socket;
use deskgate_protocol::control::Refused;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{Access, AskedBy, ManagementRequest};
use deskgate_protocol::{ApplicationId, DeviceId, DraftId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::assistant::accounts::{Configured, Kind};
pub use crate::autostart;
use crate::dispatcher;
pub use crate::health::bundle::Bundle;
pub use crate::health::{Code, Problem, Report as HealthReport, Severity};
pub use crate::link::{HostKeys, Stage};
use crate::mcp::connections;
pub use crate::mcp::connections::Configured as ConfiguredServer;
pub use crate::power::KeptAwake;
use crate::services::{Definition, Report, Service};
use crate::settings::{Connection, Edit, Mode, Notifications};
pub use crate::store::audit;
pub use approvals::{
    ApprovalState, ApprovalView, DecideApproval, Decision, Evidence, Finding, ListApprovals, ListAudit, OnDisk, Plan,
    ReconcileRun, ShowApproval, ShowEvidence, Shown, median,
};

pub use health::{GetHealth, GetLog, Ignore, IgnoreProblem, MakeBundle};
pub use notices::{GetNotifications, SetNotifications};
pub use settings::{ChangeSettings, Chosen, GetAutostart, GetSettings, SecretPlace, SetAutostart, SettingsView};

/// A request with the answer that belongs to it.
pub trait Ask: Serialize + Into<Request> {
    /// What comes back when it works.
    type Answer: Serialize + DeserializeOwned;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident => $answer:ty;)*) => {
        /// Everything that may be asked.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "ask", rename_all = "snake_case")]
        pub enum Request {
            $($(#[$doc])* $name($name),)*
            /// One of the gateway's own requests, passed on.
            Manage {
                /// The request.
                request: ManagementRequest,
            },
        }

        $(
            impl Ask for $name {
                type Answer = $answer;
            }

            impl From<$name> for Request {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*
    };
}

requests! {
    /// How the agent is.
    GetStatus => AgentStatus;
    /// End the agent. Answered when it has ended its work, with the runs that waited for a decision and were cut off.
    Stop => Vec<RunId>;
    /// A link that opens the management pages, once and within a minute.
    OpenPages => OpenedPages;
    /// The public half of the device's identity, signed afresh.
    GetIdentity => IdentityFile;
    /// How the gateway is reached.
    GetConnection => Connection;
    /// Edit a mode's draft, and perhaps put it in force.
    SaveConnection => Connection;
    /// Throw a mode's draft away.
    DiscardConnection => Connection;
    /// Make one connection with a mode's draft, and say what came of it.
    TestConnection => Tested;
    /// What is chosen about the agent itself.
    GetSettings => SettingsView;
    /// Choose something about the agent itself.
    ChangeSettings => SettingsView;
    /// Whether the agent starts at login.
    GetAutostart => autostart::State;
    /// Have the agent started at login, or not any more.
    SetAutostart => autostart::State;
    /// Save a new service.
    CreateService => Service;
    /// Replace a service's draft.
    EditService => Service;
    /// Every service, oldest first.
    ListServices => Vec<Service>;
    /// One service.
    ShowService => Service;
    /// Make every check of a draft.
    CheckService => Report;
    /// Publish a checked draft.
    PublishService => Service;
    /// The model providers of this device.
    ListProviders => Vec<Configured>;
    /// Add a model provider, or change it.
    SetProvider => Configured;
    /// Remove a model provider and its key.
    RemoveProvider => ();
    /// The MCP servers of this device.
    ListMcpServers => Vec<connections::Configured>;
    /// Add an MCP server, or change it.
    SetMcpServer => connections::Configured;
    /// Remove an MCP server and its key.
    RemoveMcpServer => ();
    /// Requests for approval.
    ListApprovals => Vec<ApprovalView>;
    /// One request.
    ShowApproval => ApprovalView;
    /// Decide about a request.
    DecideApproval => ApprovalView;
    /// What was asked, decided and executed.
    ListAudit => Vec<audit::Entry>;
    /// What there is to decide by about an unsettled run.
    ShowEvidence => Vec<Evidence>;
    /// Settle a run whose end nobody knows.
    ReconcileRun => ();
    /// What is wrong, and what is fine.
    GetHealth => HealthReport;
    /// Say whether to hear of a problem.
    IgnoreProblem => HealthReport;
    /// The end of the agent's log.
    GetLog => Vec<String>;
    /// What to send to whoever helps.
    MakeBundle => Bundle;
    /// Whether notifications are shown.
    GetNotifications => Notifications;
    /// Choose whether notifications are shown.
    SetNotifications => Notifications;
}

/// What came of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer that belongs to the request.
    Ok(serde_json::Value),
    /// Why not.
    No(No),
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct No {
    /// For programs.
    pub code: NoCode,
    /// For people: what was wrong and what to do next.
    pub message: String,
}

/// The codes of [`No`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoCode {
    /// A value is not acceptable.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// Not in this state.
    Refused,
    /// The gateway cannot be reached.
    CannotReach,
    /// The gateway lets this device not in.
    NotAuthorised,
    /// Versions do not match.
    VersionMismatch,
    /// The agent failed.
    Failed,
}

/// Asks how the agent is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetStatus {}

/// How the agent is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub device_name: String,
    /// Its key's fingerprint.
    pub fingerprint: String,
    /// The mode in force.
    pub mode: Mode,
    /// How the line stands.
    pub line: LineView,
    /// Whether access is enabled and where the API is; absent when the gateway cannot be asked.
    pub access: Option<Access>,
    /// Slots, active runs, problems.
    pub work: WorkView,
    /// Whether the computer is kept from falling asleep by itself while it works.
    pub kept_awake: KeptAwake,
    /// Where the management pages are; absent while they are not up.
    pub pages: Option<String>,
    /// What is wrong, the worst first, as the newest look found it; see [`GetHealth`].
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// How the line to the gateway stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LineView {
    /// No connection.
    Disconnected {
        /// Why.
        why: String,
        /// What to compare, where the server's key is not the pinned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_keys: Option<HostKeys>,
        /// When it dials again by itself.
        next_attempt_at: Option<Timestamp>,
    },
    /// Dialling.
    Connecting,
    /// In.
    Connected {
        /// Since when.
        since: Timestamp,
        /// Who this device is to the gateway.
        device_id: DeviceId,
        /// The gateway's version.
        gateway_version: String,
    },
    /// The gateway said no.
    Refused {
        /// What it said.
        refused: Refused,
        /// When it is asked again by itself.
        next_attempt_at: Option<Timestamp>,
    },
}

/// What the agent works on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkView {
    /// Runs at the same time.
    pub slots: u32,
    /// Whether it stops.
    pub stopping: bool,
    /// What stands in the way.
    pub problem: Option<String>,
    /// Runs in hand.
    pub runs: serde_json::Value,
}

impl From<dispatcher::Status> for WorkView {
    fn from(status: dispatcher::Status) -> Self {
        let runs = serde_json::to_value(&status.runs).unwrap_or_default();
        Self { slots: status.slots, stopping: status.stopping, problem: status.problem, runs }
    }
}

/// Ends the agent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Whether runs in progress are cut off instead of waited for. They start again with the agent. One that waits for a
    /// person's decision always is.
    pub now: bool,
}

/// Asks for a link to the management pages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OpenPages {}

/// A link to the management pages.
#[derive(Clone, Serialize, Deserialize)]
pub struct OpenedPages {
    /// The link, which signs one browser in.
    pub link: String,
}

impl std::fmt::Debug for OpenedPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenedPages { link: … }")
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Whoever the kernel names at the other end of the private socket.
    Socket(socket::Peer),
    /// A signed-in browser, which is the agent's own user.
    Page,
}

impl From<Asker> for AskedBy {
    fn from(asker: Asker) -> Self {
        match asker {
            Asker::Socket(_) => Self::Cli,
            Asker::Page => Self::Page,
        }
    }
}

/// Asks for the device's identity.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetIdentity {}

/// Asks for the connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetConnection {}

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

/// Throws a draft away.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DiscardConnection {
    /// Which mode's.
    pub mode: Mode,
}

/// Tests a mode's draft, or what is saved for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestConnection {
    /// Which mode.
    pub mode: Mode,
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

/// Saves a new service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateService {
    /// Who may call it.
    pub app_id: ApplicationId,
    /// What it is.
    pub definition: Definition,
}

/// Replaces a draft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EditService {
    /// Which service.
    pub draft_id: DraftId,
    /// What it is to be.
    pub definition: Definition,
}

/// Lists services.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListServices {}

/// Shows a service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowService {
    /// Which.
    pub draft_id: DraftId,
}

/// Checks a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckService {
    /// Which service's.
    pub draft_id: DraftId,
}

/// Publishes a draft.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PublishService {
    /// Which service's.
    pub draft_id: DraftId,
}

/// Lists model providers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListProviders {}

/// Adds or changes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetProvider {
    /// What services name it by.
    pub name: String,
    /// Which API it speaks; absent keeps it.
    pub kind: Option<Kind>,
    /// Where; absent keeps it, or takes the kind's own address.
    pub base_url: Option<String>,
    /// What happens to its key.
    pub key: NewKey,
}

/// Lists MCP servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListMcpServers {}

/// Adds or changes an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetMcpServer {
    /// What services name it by.
    pub name: String,
    /// Where; absent keeps it.
    pub url: Option<String>,
    /// The header that a new key travels in; absent is `Authorization`, behind the word `Bearer`.
    pub header: Option<String>,
    /// What happens to its key.
    pub key: NewKey,
}

/// Removes an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveMcpServer {
    /// Its name.
    pub name: String,
}

/// What happens to a provider's or a server's key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewKey {
    /// The saved one stays.
    Keep,
    /// No key any more.
    Forget,
    /// This one from now on.
    Replace(String),
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Forget => "Forget",
            Self::Replace(_) => "Replace(…)",
        })
    }
}

/// Removes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveProvider {
    /// Its name.
    pub name: String,
}
