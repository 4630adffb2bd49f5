//! The private socket: what the command line may ask of the running agent.
//!
//! | file | what it does |
//! |---|---|
//! | here | the list of requests |
//! | [`request`] | what a request is, and how the agent answers |
//! | [`reply`] | what comes back, and who asked |
//! | [`agent`] | those about the agent as a whole |
//! | [`account`] | those about the account of a hosted gateway |
//! | [`approvals`] | those about approvals and unsettled runs |
//! | [`handler`] | answers them, inside the agent |
//! | [`export`] | an application's runs as JSON Lines |
//! | [`ended_runs`] | what a built-in gateway's ended runs are asked |
//! | [`find`] | finds things by identifier or name |
//! | [`health`] | looks at the agent's health, and answers about it |
//! | `health_memory` | what is remembered between two looks |
//! | `keys` | moves keys, and says when they cannot be read |
//! | [`launch`] | the codes that open the management pages |
//! | `line`, `decisions` | answer those about the connection, and about approvals |
//! | [`mcp`] | servers elsewhere, what they offer, and what of it is pinned |
//! | [`connection`], [`providers`], [`services`], [`status`] | what is asked about each, and answered |
//! | [`settings`] | what is chosen about the agent itself |
//! | `no` | what went wrong, as an answer |
//! | [`notices`] | shows a notification for each call that waits |
//! | [`opener`] | opens the pages in the person's browser |
//! | [`retention`] | for how long things are kept, and what would go |
//! | [`commands`] | what the agent is told as a whole, and who waits for it |
//!
//! Each request is a type and names the type of its answer ([`TypedRequest`]). Only this user and root are
//! answered.

pub mod account;
pub mod agent;
pub mod approvals;
pub mod commands;
pub mod connection;
mod decisions;
pub mod ended_runs;
mod error_reply;
pub mod export;
pub mod find;
pub mod handler;
pub mod health;
pub mod health_memory;
mod keys;
pub mod launch;
mod line;
pub mod mcp;
pub mod notices;
pub mod opener;
mod optional_watch;
pub mod providers;
pub mod reply;
pub mod request;
pub mod retention;
pub mod services;
pub mod settings;
pub mod status;

pub use deskgate_assistant::mcp::connections::McpServerConfig as ConfiguredServer;
pub use deskgate_assistant::providers::{ProviderConfig, ProviderKind};
pub use deskgate_definition::KeyPlace;
use deskgate_protocol::management::ManagementRequest;
pub use deskgate_store::audit;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::account::{AccountStatus, SignInPrompt};
pub use crate::autostart;
pub use crate::health::bundle::{Bundle, of_disk};
pub use crate::health::{HealthProblem, HealthReport, ProblemCode, Severity};
pub use crate::link::{ConnectStage, HostKeys};
pub use crate::power::AwakeStatus;
pub use account::{AccountView, CancelSignIn, GetAccount, SignIn, SignOut};
pub use agent::{GetIdentity, OpenPages, OpenedPages, Stop};
pub use approvals::{
    ApprovalState, ApprovalView, DecideApproval, Decision, Evidence, ListApprovals, ListAudit, OnDisk, OwnerFinding,
    Plan, PlanPreview, ReconcileRun, ShowApproval, ShowEvidence, median,
};
pub use connection::{ConnectionTestResult, DiscardConnection, GetConnection, SaveConnection, TestConnection};
pub use find::{Find, HitKind, SearchHit, SearchResults};
use handler::RequestHandler;
pub use health::{GetHealth, GetLog, IgnoreDuration, IgnoreProblem, MakeBundle};
pub use health_memory::HealthMonitor;
pub use mcp::{AcceptMcpTools, ListMcpServers, LookAtMcpServer, RemoveMcpServer, ReviewMcpServers, SetMcpServer};
pub use notices::{GetNotifications, SetNotifications};
pub use providers::{ListProviders, NewKey, RemoveProvider, SetProvider};
pub use reply::{AgentReply, ErrorReply, ErrorReplyCode, Requester};
pub use request::TypedRequest;
pub use retention::{Amount, Retention, ReviewRetention, SetRetention};
pub use services::{
    CheckService, CreateService, EditService, FollowCheck, ListServices, LookAtFolder, PublishService, ShowService,
};
pub use settings::{
    ChangeSettings, GetAutostart, GetSettings, SecretLocation, SetAutostart, SettingValue, SettingsView,
};
pub use status::{AgentStatus, GetStatus, LineView, WorkView};

request::requests! {
    /// How the agent is.
    GetStatus;
    /// End the agent. Answered when it has ended its work, with the runs that waited for a decision and were cut off.
    Stop;
    /// Find something by its identifier or name.
    Find;
    /// A link that opens the management pages, once and within a minute.
    OpenPages;
    /// The public half of the device's identity, signed afresh.
    GetIdentity;
    /// How the gateway is reached.
    GetConnection;
    /// Edit a mode's draft, and perhaps put it in force.
    SaveConnection;
    /// Throw a mode's draft away.
    DiscardConnection;
    /// Make one connection with a mode's draft, and say what came of it.
    TestConnection;
    /// Who is signed in at the hosted gateway.
    GetAccount;
    /// Begin a sign-in there.
    SignIn;
    /// Stop to wait for one.
    CancelSignIn;
    /// Sign out there.
    SignOut;
    /// What is chosen about the agent itself.
    GetSettings;
    /// Choose something about the agent itself.
    ChangeSettings;
    /// How much is kept, and what would go if it were kept for so long.
    ReviewRetention;
    /// Keep things for so long, and delete what is older.
    SetRetention;
    /// Whether the agent starts at login.
    GetAutostart;
    /// Have the agent started at login, or not any more.
    SetAutostart;
    /// Save a new service.
    CreateService;
    /// Replace a service's draft.
    EditService;
    /// Every service, oldest first.
    ListServices;
    /// One service.
    ShowService;
    /// Look at a folder that a service may work in.
    LookAtFolder;
    /// Make every check of a draft.
    CheckService;
    /// What a check that runs has found so far.
    FollowCheck;
    /// Publish a checked draft.
    PublishService;
    /// The model providers of this device.
    ListProviders;
    /// Add a model provider, or change it.
    SetProvider;
    /// Remove a model provider and its key.
    RemoveProvider;
    /// The MCP servers of this device.
    ListMcpServers;
    /// Add an MCP server, or change it.
    SetMcpServer;
    /// Remove an MCP server and its key.
    RemoveMcpServer;
    /// How the MCP servers stand, by what they last offered.
    ReviewMcpServers;
    /// Ask an MCP server for its tools.
    LookAtMcpServer;
    /// Take another list of tools over into the drafts that name its server.
    AcceptMcpTools;
    /// Requests for approval.
    ListApprovals;
    /// One request.
    ShowApproval;
    /// Decide about a request.
    DecideApproval;
    /// What was asked, decided and executed.
    ListAudit;
    /// What there is to decide by about an unsettled run.
    ShowEvidence;
    /// Settle a run whose end nobody knows.
    ReconcileRun;
    /// What is wrong, and what is fine.
    GetHealth;
    /// Say whether to hear of a problem.
    IgnoreProblem;
    /// The end of the agent's log.
    GetLog;
    /// What to send to whoever helps.
    MakeBundle;
    /// Whether notifications are shown.
    GetNotifications;
    /// Choose whether notifications are shown.
    SetNotifications;
}

fn to_json(answer: impl Serialize) -> Result<Value, ErrorReply> {
    serde_json::to_value(answer).map_err(|error| error_reply::failed(error.to_string()))
}
