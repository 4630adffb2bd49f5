//! The private socket: what the command line may ask of the running agent.
//!
//! | file | what it does |
//! |---|---|
//! | here | the requests and answers |
//! | [`account`] | those about the account of a hosted gateway |
//! | [`approvals`] | those about approvals and unsettled runs |
//! | [`desk`] | answers them, inside the agent |
//! | [`export`] | an application's runs as JSON Lines |
//! | [`find`] | finds things by identifier or name |
//! | [`health`] | looks at the agent's health, and answers about it |
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
//! | [`orders`] | what the agent is told as a whole, and who waits for it |
//!
//! Each request is a type and names the type of its answer ([`Ask`]). Only this user and root are
//! answered.

pub mod account;
pub mod approvals;
pub mod connection;
mod decisions;
pub mod desk;
pub mod export;
pub mod find;
pub mod health;
mod keys;
pub mod launch;
mod line;
pub mod mcp;
mod moved;
mod no;
pub mod notices;
pub mod opener;
pub mod orders;
pub mod providers;
pub mod retention;
pub mod services;
pub mod settings;
pub mod status;

use deskgate_program::socket;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{AskedBy, ManagementRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::account::{Invitation, Standing};
pub use crate::assistant::accounts::{Configured, Kind};
pub use crate::autostart;
pub use crate::health::bundle::{Bundle, of_disk};
pub use crate::health::{Code, Problem, Report as HealthReport, Severity};
pub use crate::link::{HostKeys, Stage};
use crate::mcp::connections;
pub use crate::mcp::connections::Configured as ConfiguredServer;
pub use crate::power::KeptAwake;
pub use crate::secrets::Place;
use crate::services::offers::ServerView;
use crate::services::{Check, Folder, Report, Service};
use crate::settings::{Connection, Notifications};
pub use crate::store::audit;
pub use account::{AccountView, CancelSignIn, GetAccount, SignIn, SignOut};
pub use approvals::{
    ApprovalState, ApprovalView, DecideApproval, Decision, Evidence, Finding, ListApprovals, ListAudit, OnDisk, Plan,
    ReconcileRun, ShowApproval, ShowEvidence, Shown, median,
};

pub use connection::{DiscardConnection, GetConnection, SaveConnection, TestConnection, Tested};
pub use find::{Find, Found, Thing, ThingKind};
pub use health::{GetHealth, GetLog, Ignore, IgnoreProblem, MakeBundle};
pub use mcp::{AcceptMcpTools, ListMcpServers, LookAtMcpServer, RemoveMcpServer, ReviewMcpServers, SetMcpServer};
pub use notices::{GetNotifications, SetNotifications};
pub use providers::{ListProviders, NewKey, RemoveProvider, SetProvider};
pub use retention::{Amount, Retention, ReviewRetention, SetRetention};
pub use services::{
    CheckService, CreateService, EditService, FollowCheck, ListServices, LookAtFolder, PublishService, ShowService,
};
pub use settings::{ChangeSettings, Chosen, GetAutostart, GetSettings, SecretPlace, SetAutostart, SettingsView};
pub use status::{AgentStatus, GetStatus, LineView, WorkView};

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
    /// Find something by its identifier or name.
    Find => Found;
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
    /// Who is signed in at the hosted gateway.
    GetAccount => AccountView;
    /// Begin a sign-in there.
    SignIn => Invitation;
    /// Stop to wait for one.
    CancelSignIn => AccountView;
    /// Sign out there.
    SignOut => AccountView;
    /// What is chosen about the agent itself.
    GetSettings => SettingsView;
    /// Choose something about the agent itself.
    ChangeSettings => SettingsView;
    /// How much is kept, and what would go if it were kept for so long.
    ReviewRetention => Retention;
    /// Keep things for so long, and delete what is older.
    SetRetention => Retention;
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
    /// Look at a folder that a service may work in.
    LookAtFolder => Folder;
    /// Make every check of a draft.
    CheckService => Report;
    /// What a check that runs has found so far.
    FollowCheck => Vec<Check>;
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
    /// How the MCP servers stand, by what they last offered.
    ReviewMcpServers => Vec<ServerView>;
    /// Ask an MCP server for its tools.
    LookAtMcpServer => ServerView;
    /// Take another list of tools over into the drafts that name its server.
    AcceptMcpTools => ServerView;
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

/// Ends the agent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Whether runs in progress are cut off instead of waited for. They start again with the agent. One that waits for a
    /// person's decision always is.
    pub now: bool,
}

/// Asks for a link to the management pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenPages {
    /// The path of the page that it leads to; the overview if none is named.
    #[serde(default)]
    pub page: Option<String>,
}

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
