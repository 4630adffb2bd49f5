//! The private socket: the requests of the command line to the running agent.
//!
//! | file | what it does |
//! |---|---|
//! | here | the list of requests |
//! | [`request`] | the type of a request, and how the agent answers |
//! | [`reply`] | the reply, and the requester |
//! | [`agent`] | requests about the agent as a whole |
//! | [`account`] | requests about the account of a hosted gateway |
//! | [`approvals`] | requests about approvals and unsettled runs |
//! | [`calls`] | the tool calls of runs |
//! | [`handler`] | answers requests, inside the agent |
//! | [`export`] | an application's runs as JSON Lines |
//! | [`files`] | files for the owner's runs, artifacts that the owner gets, and how both are shown |
//! | [`ended_runs`] | the interface to a built-in gateway's ended runs |
//! | [`find`] | search by identifier or name |
//! | [`health`] | checks the agent's health, and answers about it |
//! | `health_memory` | the health data cached between two checks |
//! | `keys` | moves keys, and reports when they cannot be read |
//! | [`launch`] | the codes that open the management pages |
//! | `line`, `decisions` | answer requests about the connection, and about approvals |
//! | [`mcp`] | MCP servers, their tools, and the pinned lists |
//! | [`connection`], [`providers`], [`services`], [`status`] | the requests about each, and their answers |
//! | [`service_life`] | requests that end a service, disable it, or take it elsewhere |
//! | [`unsettled`] | the runs that wait for a decision, and the end of those that are not known here |
//! | [`settings`] | the agent's own settings |
//! | [`receipts`] | requests about what this device signed |
//! | `error_reply` | errors as replies |
//! | [`notices`] | shows a notification for each call that waits |
//! | [`queueing`] | what a run waits for that this device could execute |
//! | [`elsewhere`] | applications of other gateways, and how they are made again at this one |
//! | [`leaving`] | what stays behind when the device goes to another gateway |
//! | [`pairing`] | pairing by an invitation, in the background |
//! | [`pending_decisions`] | decisions that can still be undone |
//! | [`opener`] | opens the pages in the person's browser |
//! | [`retention`] | how long data is kept, and what would be deleted |
//! | [`commands`] | commands for the agent as a whole, and their callers |
//!
//! Each request is a type and names the type of its answer ([`TypedRequest`]). Only this user and root are answered.

pub mod account;
pub mod agent;
pub mod approvals;
pub mod calls;
pub mod commands;
pub mod connection;
mod decisions;
pub mod elsewhere;
pub mod ended_runs;
mod error_reply;
pub mod export;
pub mod files;
pub mod find;
pub mod handler;
pub mod health;
pub mod health_memory;
mod keys;
pub mod launch;
pub mod leaving;
mod line;
pub mod mcp;
pub mod notices;
pub mod opener;
mod optional_watch;
pub mod pairing;
pub mod pending_decisions;
pub mod providers;
pub mod queueing;
pub mod receipts;
pub mod reply;
pub mod request;
pub mod reserve;
pub mod retention;
pub mod service_life;
pub mod services;
pub mod settings;
mod spending;
pub mod status;
pub mod unsettled;

pub use deskgate_assistant::listing::ListedModel;
pub use deskgate_assistant::mcp::connections::McpServerConfig as ConfiguredServer;
pub use deskgate_assistant::mcp::sign_in::{McpSignInPrompt, McpSignInStatus, McpSignOut, SignInView};
pub use deskgate_assistant::profile::{Api, Need, Profile};
pub use deskgate_assistant::providers::{ProviderConfig, travels_openly};
pub use deskgate_definition::{KeyPlace, ModelFailure};
use deskgate_protocol::management::ManagementRequest;
pub use deskgate_store::audit;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::account::{AccountStatus, SignInPrompt};
pub use crate::autostart;
pub use crate::dispatcher::{GLANCE_TIMEOUT, UnfinishedMessage};
pub use crate::health::bundle::{Bundle, of_disk};
pub use crate::health::log_follower::LogFollower;
pub use crate::health::{HealthProblem, HealthReport, ProblemCode, Severity};
pub use crate::link::{ConnectStage, HostKeys};
pub use crate::power::AwakeStatus;
pub use crate::services::life::ServiceEnding;
pub use crate::services::standing::{ServiceStanding, stage};
pub use crate::services::summary::summary;
pub use account::{AccountView, CancelSignIn, GetAccount, SignIn, SignOut};
pub use agent::{GetIdentity, OpenPages, OpenedPages, Stop};
pub use approvals::{
    ApprovalState, ApprovalView, DecideApproval, Decision, Evidence, FindApprovals, ListApprovals, ListAudit, OnDisk,
    OwnerFinding, Plan, PlanPreview, ReconcileRun, ShowApproval, ShowEvidence, ShowModelFailure, median,
};
pub use calls::{CallRecord, ListCalls, ShowCall};
pub use connection::{
    AcceptGateway, AcceptedGateway, ConnectionTestResult, DiscardConnection, DropHostKeys, FollowedHostKey,
    GetConnection, GetHostKeys, HostKeysView, SaveConnection, TestConnection,
};
pub use elsewhere::{CopiedApplication, CopyApplication, ElsewhereApplication, ListElsewhere};
pub use files::{GetArtifact, SavedArtifact, ShownFile, UploadFile};
pub use find::{Find, HitKind, SearchHit, SearchResults};
use handler::RequestHandler;
pub use health::{GetHealth, GetLog, IgnoreDuration, IgnoreProblem, MakeBundle};
pub use health_memory::HealthMonitor;
pub use leaving::{GetBelongings, LeftBehind, PreviewLeaving};
pub use mcp::{
    AcceptMcpTools, CancelMcpSignIn, ChangedMcpServer, GetMcpSignIn, ListMcpServers, LookAtMcpServer, RemoveMcpServer,
    RemovedMcpServer, ReviewMcpServers, SetMcpServer, SignInMcpServer, SignOutMcpServer,
};
pub use notices::{GetNotifications, SetNotifications};
pub use pairing::{CancelPairing, GetPairing, InvitationView, Pair, PairingView, ReadInvitation};
pub use pending_decisions::{DecideSoon, PendingDecision, UNDO_TIME, UndoDecision};
pub use providers::{ListModels, ListProviders, NewKey, RemoveProvider, SetProvider};
pub use queueing::{ListQueueReasons, QueueReason};
pub use receipts::{ListReceipts, MAX_RECEIPTS_PER_PAGE, ReceiptVerdict};
pub use reply::{AgentReply, ErrorReply, ErrorReplyCode, Requester};
pub use request::TypedRequest;
pub use retention::{Amount, Retention, ReviewRetention, SetRetention};
pub use service_life::{
    DuplicateService, EnableService, ListStandings, MoveService, PreviewServiceEnding, RemoveService, ShowToolName,
    UnpublishService,
};
pub use services::{
    CheckService, CreateService, EditService, FollowCheck, ListFolders, ListServices, ListVersions, LookAtFolder,
    PublishService, ShowService, TryServiceDraft,
};
pub use settings::{
    ChangeSettings, GetAutostart, GetSettings, SecretLocation, SetAutostart, SettingValue, SettingsView,
};
pub use spending::{
    Budget, BudgetLevel, BudgetScope, BudgetStatus, MonthSpending, RemoveBudget, ServiceSpending, SetBudget,
    ShowRunSpending, ShowSpending, Spending, this_month,
};
pub use status::{AgentStatus, GetStatus, LineView, WorkView};
pub use unsettled::{EndUnknownRuns, EndedUnknownRuns, ListUnsettled, UnsettledRuns};

request::requests! {
    /// The agent's status.
    GetStatus;
    /// Stop the agent. Answered when it has ended its work, with the runs that waited for a decision and were cut off.
    Stop;
    /// Search by identifier or name.
    Find;
    /// A link that opens the management pages, once and within a minute.
    OpenPages;
    /// The public half of the device's identity, signed afresh.
    GetIdentity;
    /// The connection's settings.
    GetConnection;
    /// Edit a mode's draft, and perhaps put it in force.
    SaveConnection;
    /// Discard a mode's draft.
    DiscardConnection;
    /// Make one connection with a mode's draft, and report the result.
    TestConnection;
    /// The remote gateway's pinned host key, and the keys that are followed in its place.
    GetHostKeys;
    /// Drop the host keys that the remote gateway announced.
    DropHostKeys;
    /// Take another gateway at the connection's address for the known one.
    AcceptGateway;
    /// What stays behind at the present gateway if a mode's draft became active.
    PreviewLeaving;
    /// What belongs to the present gateway.
    GetBelongings;
    /// Applications of other gateways that have services here.
    ListElsewhere;
    /// Make an application of another gateway again at the present one.
    CopyApplication;
    /// Where an invitation leads.
    ReadInvitation;
    /// Pair this device by an invitation.
    Pair;
    /// How far the pairing is.
    GetPairing;
    /// Cancel a pairing that is under way.
    CancelPairing;
    /// The account's status at the hosted gateway.
    GetAccount;
    /// Begin a sign-in there.
    SignIn;
    /// Cancel a waiting sign-in.
    CancelSignIn;
    /// Sign out there.
    SignOut;
    /// The agent's own settings.
    GetSettings;
    /// Change the agent's own settings.
    ChangeSettings;
    /// How much is kept, and how much would be deleted with other retention times.
    ReviewRetention;
    /// Set the retention times, and delete older data.
    SetRetention;
    /// Whether the agent starts at login.
    GetAutostart;
    /// Enable or disable starting at login.
    SetAutostart;
    /// Save a new service.
    CreateService;
    /// Replace a service's draft.
    EditService;
    /// Every service, oldest first.
    ListServices;
    /// One service.
    ShowService;
    /// Examine a folder for a service.
    LookAtFolder;
    /// The folders in a folder.
    ListFolders;
    /// Make every check of a draft.
    CheckService;
    /// The findings so far of a running check.
    FollowCheck;
    /// Publish a checked draft.
    PublishService;
    /// Start a run of a checked draft.
    TryServiceDraft;
    /// Uploads a file for runs that the owner requests.
    UploadFile;
    /// Gets an artifact of a run into a new file.
    GetArtifact;
    /// The published versions of a service, newest first.
    ListVersions;
    /// Save a draft once more as a new service.
    DuplicateService;
    /// Enable or disable a published service.
    EnableService;
    /// What ends with a service at the gateway.
    PreviewServiceEnding;
    /// Take a service away from its callers.
    UnpublishService;
    /// Give a service to another application.
    MoveService;
    /// Remove a service.
    RemoveService;
    /// What the gateway says of each service.
    ListStandings;
    /// The name of a service as a tool of MCP.
    ShowToolName;
    /// The model providers of this device.
    ListProviders;
    /// Add a model provider, or change it.
    SetProvider;
    /// The models that a provider's key can use.
    ListModels;
    /// Remove a model provider and its key.
    RemoveProvider;
    /// The MCP servers of this device.
    ListMcpServers;
    /// Add an MCP server, or change it.
    SetMcpServer;
    /// Remove an MCP server and its key.
    RemoveMcpServer;
    /// Begin a sign-in for an MCP server.
    SignInMcpServer;
    /// The status of an MCP server's sign-in.
    GetMcpSignIn;
    /// Cancel an MCP server's waiting sign-in.
    CancelMcpSignIn;
    /// Sign out of an MCP server.
    SignOutMcpServer;
    /// The state of the MCP servers, by their last lists.
    ReviewMcpServers;
    /// Get an MCP server's tools.
    LookAtMcpServer;
    /// Accept another list of tools into the drafts that name its server.
    AcceptMcpTools;
    /// The approval requests.
    ListApprovals;
    /// Approval requests by the end of their identifier.
    FindApprovals;
    /// One approval request.
    ShowApproval;
    /// Decide about an approval request.
    DecideApproval;
    /// Decide about an approval request, with a time to undo that.
    DecideSoon;
    /// Undo a decision that does not count yet.
    UndoDecision;
    /// What the next run of each service waits for on this device.
    ListQueueReasons;
    /// The tool calls of a run.
    ListCalls;
    /// One tool call of a run.
    ShowCall;
    /// The audit of requests, decisions and calls.
    ListAudit;
    /// Receipts of this device, in their order.
    ListReceipts;
    /// The evidence about an unsettled run.
    ShowEvidence;
    /// Why the model of a run could not be used.
    ShowModelFailure;
    /// What the models of a run used up.
    ShowRunSpending;
    /// What models used up in a month.
    ShowSpending;
    /// Set what models may use up in a month.
    SetBudget;
    /// Remove what models may use up in a month.
    RemoveBudget;
    /// Settle a run whose end is unknown.
    ReconcileRun;
    /// The runs that wait for their owner's decision.
    ListUnsettled;
    /// End all runs that this device knows nothing of.
    EndUnknownRuns;
    /// The health report.
    GetHealth;
    /// Set whether a problem is ignored.
    IgnoreProblem;
    /// The end of the agent's log.
    GetLog;
    /// The support bundle.
    MakeBundle;
    /// The settings of notifications.
    GetNotifications;
    /// Change the settings of notifications.
    SetNotifications;
}

fn to_json(answer: impl Serialize) -> Result<Value, ErrorReply> {
    serde_json::to_value(answer).map_err(|error| error_reply::failed(error.to_string()))
}
