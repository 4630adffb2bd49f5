//! Answers the command line, inside the agent.

use std::path::PathBuf;

use deskgate_assistant::accounts::Accounts;
use deskgate_assistant::mcp::Servers;
use deskgate_protocol::management::{AskedBy, Call, ManagementRequest};
use deskgate_secrets::{KeyChange, Secret, SecretError, Wanted};
use deskgate_store::Store;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::NewKey;
use super::ended_runs::Runs;
use super::export::Passes;
use super::health_memory::Health;
use super::launch::Launch;
use super::orders::Order;
use super::reply::{Asker, No, NoCode};
use crate::account::Keeper;
use crate::dispatcher::DispatcherHandle;
use crate::identity::DeviceKey;
use crate::link::LinkHandle;
use crate::power::{KeepAwake, KeptAwake};
use crate::services::{Computer, Gateway, Progress, ServiceDesk};

/// The line in force: replaced when another connection is saved.
#[derive(Clone)]
pub struct Engine {
    /// The dispatcher of that line.
    pub dispatcher: DispatcherHandle,
    /// The line itself.
    pub link: LinkHandle,
    /// Whether runs keep the computer awake.
    pub kept_awake: watch::Receiver<KeptAwake>,
    /// The ended runs of a built-in gateway.
    pub ended_runs: Option<Runs>,
}

/// What the answers are made from.
#[derive(Clone)]
pub struct Desk {
    /// Services and settings.
    pub store: Store,
    /// The device's key.
    pub key: DeviceKey,
    /// The saved control token's file.
    pub token_file: PathBuf,
    /// Where the host keys are that the remote gateway announced.
    pub host_keys_file: PathBuf,
    /// The person's home directory, which no service may be given whole.
    pub home: Option<PathBuf>,
    /// The model providers.
    pub accounts: Accounts,
    /// The MCP servers.
    pub servers: Servers,
    /// Who is signed in at hosted gateways.
    pub keeper: Keeper,
    /// Where the keys of both are wanted.
    pub keys: Wanted,
    /// The agent's own folder.
    pub own: PathBuf,
    /// The line in force; absent until the first one is up, and while it is changed.
    pub engine: watch::Receiver<Option<Engine>>,
    /// Where orders go.
    pub orders: mpsc::Sender<Order>,
    /// Where the management pages are, and what opens them.
    pub launch: Launch,
    /// What is remembered of the agent's health.
    pub health: Health,
    /// The checks that run now.
    pub checking: Progress,
    /// When runs keep the computer awake.
    pub keep_awake: watch::Sender<KeepAwake>,
}

impl Desk {
    /// Asks the gateway for a page.
    pub async fn manage<C: Call + Send>(&self, call: C) -> Result<C::Reply, No> {
        Ok(self.engine()?.dispatcher.asked_by(AskedBy::Page).call(call).await?)
    }

    pub(super) fn engine(&self) -> Result<Engine, No> {
        self.engine.borrow().clone().ok_or_else(|| No {
            code: NoCode::CannotReach,
            message: "the agent is connecting to its gateway; try again in a moment".to_owned(),
        })
    }

    pub(super) fn services(&self, asker: Asker) -> Result<ServiceDesk<DispatcherHandle>, No> {
        let gateway = self.engine()?.dispatcher.asked_by(asker.into());
        let computer = Computer {
            home: self.home.clone(),
            own: self.own.clone(),
            accounts: self.accounts.clone(),
            servers: self.servers.clone(),
        };
        Ok(ServiceDesk::new(self.store.services(), gateway, computer).showing(self.checking.clone()))
    }

    pub(super) async fn device_name(&self) -> Result<String, No> {
        Ok(self.store.settings().device_name().await?.unwrap_or_else(|| "this computer".to_owned()))
    }

    pub(super) async fn pass_on(&self, request: ManagementRequest, asker: Asker) -> Result<Value, No> {
        Ok(self.engine()?.dispatcher.asked_by(asker.into()).pass_on(request).await?)
    }
}

impl Passes for Desk {
    type No = No;

    async fn pass<C: Call + Send>(&self, call: C) -> Result<C::Reply, No> {
        self.manage(call).await
    }
}

/// The key of a change, as it was given.
pub(super) fn key_change(key: &NewKey) -> Result<KeyChange, SecretError> {
    Ok(match key {
        NewKey::Keep => KeyChange::Keep,
        NewKey::Forget => KeyChange::Forget,
        NewKey::Replace(text) => KeyChange::Replace(Secret::new(text)?),
    })
}
