//! The handler of requests from the command line and the pages, inside the agent.

use std::path::PathBuf;
use std::sync::Arc;

use deskgate_assistant::mcp::McpServers;
use deskgate_assistant::providers::Providers;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{AskedBy, ManagementCall, ManagementRequest};
use deskgate_secrets::{KeyChange, KeyPreference, Secret, SecretError};
use deskgate_store::Store;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::NewKey;
use super::commands::AgentCommand;
use super::ended_runs::SharedEndedRuns;
use super::export::ManagementClient;
use super::health_memory::HealthMonitor;
use super::launch::LaunchCodes;
use super::pairing::PairingMonitor;
use super::pending_decisions::PendingDecisions;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use crate::account::TokenManager;
use crate::dispatcher::{DispatcherHandle, UnfinishedMessage};
use crate::identity::DeviceKey;
use crate::link::LinkHandle;
use crate::power::{AwakeStatus, KeepAwake};
use crate::services::{CheckEnvironment, CheckProgress, GatewayClient, ServiceManager};
use crate::transfers::Transfers;

/// The connection in force: replaced when another one is saved.
#[derive(Clone)]
pub struct ActiveConnection {
    /// The dispatcher of that connection.
    pub dispatcher: DispatcherHandle,
    /// The link's handle.
    pub link: LinkHandle,
    /// Whether the computer is kept awake.
    pub kept_awake: watch::Receiver<AwakeStatus>,
    /// The ended runs of a built-in gateway.
    pub ended_runs: Option<SharedEndedRuns>,
    /// The owner's files and artifacts, over that connection.
    pub transfers: Transfers,
}

/// The data and handles behind the answers.
#[derive(Clone)]
pub struct RequestHandler {
    /// Services and settings.
    pub store: Store,
    /// The device's key.
    pub key: DeviceKey,
    /// The file of the saved control token.
    pub token_file: PathBuf,
    /// The file of the host keys that the remote gateway announced.
    pub host_keys_file: PathBuf,
    /// The file of the gateways that this device knows.
    pub known_gateways_file: PathBuf,
    /// The person's home directory, which no service may have as a whole.
    pub home: Option<PathBuf>,
    /// The model providers.
    pub providers: Providers,
    /// The MCP servers.
    pub mcp_servers: McpServers,
    /// The sign-ins at hosted gateways.
    pub token_manager: TokenManager,
    /// The preferred place for keys of both.
    pub key_preference: KeyPreference,
    /// The agent's own folder.
    pub own_folder: PathBuf,
    /// The connection in force; absent until the first one is up, and during a change.
    pub active_connection: watch::Receiver<Option<ActiveConnection>>,
    /// The queue of the agent's commands.
    pub commands: mpsc::Sender<AgentCommand>,
    /// The address of the management pages, and the codes that open them.
    pub launch: LaunchCodes,
    /// The cached health of the agent.
    pub health: HealthMonitor,
    /// Decisions that do not count yet.
    pub pending_decisions: PendingDecisions,
    /// Held while one request changes what callers can use: of two at once, the later could end what the earlier has begun.
    pub publication_turn: Arc<tokio::sync::Mutex<()>>,
    /// The pairing that is under way.
    pub pairing: PairingMonitor,
    /// The running checks.
    pub checking: CheckProgress,
    /// When runs keep the computer awake.
    pub keep_awake: watch::Sender<KeepAwake>,
    /// Changes whenever a command has paused or enabled access.
    pub access_changes: watch::Sender<()>,
}

impl RequestHandler {
    /// Sends a request to the gateway for a page.
    ///
    /// # Errors
    /// There is no connection in force, the gateway refused, or no readable reply came in time.
    pub async fn manage<C: ManagementCall + Send>(&self, call: C) -> Result<C::Reply, ErrorReply> {
        Ok(self.active()?.dispatcher.asked_by(AskedBy::Page).call(call).await?)
    }

    /// The same for what is shown beside something else: a gateway that does not answer at once is not waited for.
    ///
    /// # Errors
    /// As [`manage`](Self::manage).
    pub async fn glance<C: ManagementCall + Send>(&self, call: C) -> Result<C::Reply, ErrorReply> {
        Ok(self.active()?.dispatcher.asked_by(AskedBy::Page).glancing().call(call).await?)
    }

    /// What the assistant of a run is writing, or wrote last.
    pub fn writing(&self, run_id: RunId) -> Option<UnfinishedMessage> {
        let active = self.active_connection.borrow();
        active.as_ref().and_then(|active| active.dispatcher.writing().borrow().of(run_id).cloned())
    }

    /// A page or a command asks something, so the owner is here.
    pub(super) fn note_person(&self) {
        if let Some(active) = self.active_connection.borrow().as_ref() {
            active.link.note_person();
        }
    }

    pub(super) fn active(&self) -> Result<ActiveConnection, ErrorReply> {
        self.active_connection.borrow().clone().ok_or_else(|| ErrorReply {
            code: ErrorReplyCode::CannotReach,
            message: "the agent is connecting to its gateway; try again in a moment".to_owned(),
        })
    }

    pub(super) fn services(&self, asker: Requester) -> Result<ServiceManager<DispatcherHandle>, ErrorReply> {
        let gateway = self.active()?.dispatcher.asked_by(asker.into());
        let computer = CheckEnvironment {
            home: self.home.clone(),
            own_folder: self.own_folder.clone(),
            accounts: self.providers.clone(),
            servers: self.mcp_servers.clone(),
        };
        Ok(ServiceManager::new(self.store.services(), gateway, computer).with_progress(self.checking.clone()))
    }

    pub(super) async fn device_name(&self) -> Result<String, ErrorReply> {
        Ok(self.store.settings().device_name().await?.unwrap_or_else(|| "this computer".to_owned()))
    }

    pub(super) async fn pass_on(&self, request: ManagementRequest, asker: Requester) -> Result<Value, ErrorReply> {
        let changes_access = matches!(request, ManagementRequest::SetAccess(_));
        let reply = self.active()?.dispatcher.asked_by(asker.into()).pass_on(request).await?;
        if changes_access {
            self.access_changes.send_replace(());
        }
        Ok(reply)
    }
}

impl ManagementClient for RequestHandler {
    type Error = ErrorReply;

    async fn call_gateway<C: ManagementCall + Send>(&self, call: C) -> Result<C::Reply, ErrorReply> {
        self.manage(call).await
    }
}

/// The change of a key, as given.
pub(super) fn key_change(key: &NewKey) -> Result<KeyChange, SecretError> {
    Ok(match key {
        NewKey::Keep => KeyChange::Keep,
        NewKey::Forget => KeyChange::Forget,
        NewKey::Replace(text) => KeyChange::Replace(Secret::new(text)?),
    })
}
