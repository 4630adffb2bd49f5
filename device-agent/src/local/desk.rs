//! Answers the command line, inside the agent.

use std::path::PathBuf;

use deskgate_program::socket;
use deskgate_protocol::identity::{IdentityFile, PublicKey};
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{AskedBy, Call, GetAccess, ManagementRequest};
use deskgate_protocol::{Timestamp, VERSION};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::export::Passes;
use super::health::Health;
use super::launch::{Launch, is_page};
use super::line::view;
use super::no::{failed, refused};
use super::orders::Order;
use super::retention::Runs;
use super::services;
use super::{AgentStatus, Ask, Asker, LineView, NewKey, No, NoCode, OpenPages, OpenedPages, Reply, Request, Stop};
use crate::account::Keeper;
use crate::assistant::accounts::Accounts;
use crate::dispatcher::{DispatcherHandle, Standing};
use crate::identity::DeviceKey;
use crate::link::{LinkHandle, followed};
use crate::mcp::Servers;
use crate::mcp::connections::Connections;
use crate::power::{KeepAwake, KeptAwake};
use crate::secrets::{KeyChange, Secret, SecretError, Wanted};
use crate::services::{Computer, Gateway, Progress, ServiceDesk};
use crate::settings::{Connection, Mode};
use crate::store::Store;

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

type Answer = Result<Value, No>;

/// Answers until `stop`.
pub async fn serve(listener: UnixListener, desk: Desk, stop: CancellationToken) {
    socket::serve(listener, false, stop, move |request: Request, peer| {
        let desk = desk.clone();
        async move {
            match desk.answer(request, Asker::Socket(peer)).await {
                Ok(value) => Reply::Ok(value),
                Err(no) => Reply::No(no),
            }
        }
    })
    .await;
}

impl Desk {
    /// Answers a page, as the private socket answers the command line.
    pub async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, No> {
        // Boxed: every page would hold the whole of every answer otherwise.
        let answer = Box::pin(self.answer(ask.into(), Asker::Page)).await?;
        serde_json::from_value(answer).map_err(|error| failed(error.to_string()))
    }

    /// Asks the gateway for a page.
    pub async fn manage<C: Call + Send>(&self, call: C) -> Result<C::Reply, No> {
        Ok(self.engine()?.dispatcher.asked_by(AskedBy::Page).call(call).await?)
    }

    async fn answer(&self, request: Request, asker: Asker) -> Answer {
        match request {
            Request::GetStatus(ask) => give(ask, self.status().await),
            Request::Stop(ask) => give(ask, self.stop(ask).await),
            Request::Find(ask) => give(ask.clone(), self.find(ask).await),
            Request::OpenPages(ask) => give(ask.clone(), self.open_pages(&ask)),
            Request::GetIdentity(ask) => give(ask, self.identity().await),
            Request::GetConnection(ask) => give(ask, self.connection().await),
            Request::SaveConnection(ask) => give(ask.clone(), self.save(ask).await),
            Request::DiscardConnection(ask) => give(ask, self.discard(ask.mode).await),
            Request::GetAccount(ask) => give(ask, self.account().await),
            Request::SignIn(ask) => give(ask, self.sign_in().await),
            Request::CancelSignIn(ask) => give(ask, self.cancel_sign_in().await),
            Request::SignOut(ask) => give(ask, self.sign_out().await),
            Request::TestConnection(ask) => give(ask, self.test(ask).await),
            Request::GetSettings(ask) => give(ask, self.settings().await),
            Request::ChangeSettings(ask) => give(ask.clone(), self.change_settings(ask).await),
            Request::ReviewRetention(ask) => give(ask, self.review_retention(ask).await),
            Request::SetRetention(ask) => give(ask, self.set_retention(ask).await),
            Request::GetAutostart(ask) => give(ask, self.autostart(None).await),
            Request::SetAutostart(ask) => give(ask, self.autostart(Some(ask.enabled)).await),
            Request::CreateService(ask) => {
                give(ask.clone(), self.services(asker)?.create(ask.app_id, ask.definition).await.map_err(No::from))
            }
            Request::EditService(ask) => {
                give(ask.clone(), self.services(asker)?.edit(ask.draft_id, ask.definition).await.map_err(No::from))
            }
            Request::ListServices(ask) => give(ask, self.services(asker)?.list().await.map_err(No::from)),
            Request::ShowService(ask) => give(ask, self.services(asker)?.show(ask.draft_id).await.map_err(No::from)),
            Request::LookAtFolder(ask) => give(ask.clone(), services::folder(ask).await),
            Request::CheckService(ask) => {
                let checked = self.services(asker)?.check_for(ask.follower, ask.draft_id).await;
                give(ask, checked.map_err(No::from))
            }
            Request::FollowCheck(ask) => {
                give(ask, Ok(self.checking.beyond(ask.draft_id, ask.follower, ask.known).await))
            }
            Request::PublishService(ask) => {
                give(ask, self.services(asker)?.publish(ask.draft_id).await.map_err(No::from))
            }
            Request::ListProviders(ask) => give(ask, self.with_accounts(Accounts::list).await),
            Request::SetProvider(ask) => give(ask.clone(), self.set_provider(ask).await),
            Request::RemoveProvider(ask) => give(ask.clone(), self.remove_provider(ask).await),
            Request::ListMcpServers(ask) => give(ask, self.with_servers(Connections::list).await),
            Request::SetMcpServer(ask) => give(ask.clone(), self.set_server(ask).await),
            Request::RemoveMcpServer(ask) => give(ask.clone(), self.remove_server(ask).await),
            Request::ReviewMcpServers(ask) => give(ask, self.review_servers().await),
            Request::LookAtMcpServer(ask) => give(ask.clone(), self.look_at_server(ask).await),
            Request::AcceptMcpTools(ask) => give(ask.clone(), self.accept_tools(ask).await),
            Request::ListApprovals(ask) => give(ask, self.approvals(ask.all).await),
            Request::ShowApproval(ask) => give(ask, self.approval(ask).await),
            Request::DecideApproval(ask) => give(ask.clone(), self.decide(ask, asker).await),
            Request::ListAudit(ask) => {
                give(ask, self.store.audit().list(ask.run_id, ask.limit).await.map_err(No::from))
            }
            Request::ShowEvidence(ask) => give(ask, self.evidence(ask.run_id).await),
            Request::ReconcileRun(ask) => give(ask, self.settle(ask, asker).await),
            Request::GetHealth(ask) => give(ask, self.health(ask).await),
            Request::IgnoreProblem(ask) => give(ask, self.ignore(ask).await),
            Request::GetLog(ask) => give(ask.clone(), self.log(ask).await),
            Request::MakeBundle(ask) => give(ask, self.bundle().await),
            Request::GetNotifications(ask) => give(ask, self.notifications().await),
            Request::SetNotifications(ask) => give(ask, self.set_notifications(ask).await),
            Request::Manage { request } => self.pass_on(request, asker).await,
        }
    }

    pub(super) fn engine(&self) -> Result<Engine, No> {
        self.engine.borrow().clone().ok_or_else(|| No {
            code: NoCode::CannotReach,
            message: "the agent is connecting to its gateway; try again in a moment".to_owned(),
        })
    }

    fn services(&self, asker: Asker) -> Result<ServiceDesk<DispatcherHandle>, No> {
        let gateway = self.engine()?.dispatcher.asked_by(asker.into());
        let computer = Computer {
            home: self.home.clone(),
            own: self.own.clone(),
            accounts: self.accounts.clone(),
            servers: self.servers.clone(),
        };
        Ok(ServiceDesk::new(self.store.services(), gateway, computer).showing(self.checking.clone()))
    }

    pub(super) async fn status(&self) -> Result<AgentStatus, No> {
        let (engine, connection) = (self.engine()?, self.connection().await?);
        let line = view(engine.link.status().borrow().clone());
        let access = match line {
            LineView::Connected { .. } => engine.dispatcher.call(GetAccess {}).await.ok(),
            _ => None,
        };
        Ok(AgentStatus {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            device_name: self.device_name().await?,
            fingerprint: self.key.public_key().fingerprint(),
            mode: connection.mode,
            line,
            access,
            work: engine.dispatcher.status().into(),
            kept_awake: engine.kept_awake.borrow().clone(),
            pages: self.launch.address().map(|address| format!("http://{address}/")),
            announced_host_keys: self.announced_host_keys(&connection),
            problems: self.health.watch().borrow().clone(),
        })
    }

    fn announced_host_keys(&self, connection: &Connection) -> Vec<String> {
        let ssh = connection.saved.remote.ssh(self.host_keys_file.clone()).ok();
        let keys =
            ssh.filter(|_| connection.mode == Mode::Remote).and_then(|ssh| followed::trusted(&ssh).ok().flatten());
        keys.unwrap_or_default().iter().map(PublicKey::fingerprint).collect()
    }

    pub(super) fn open_pages(&self, ask: &OpenPages) -> Result<OpenedPages, No> {
        if let Some(page) = ask.page.as_deref().filter(|page| !is_page(page)) {
            let message = format!("{page:?} is no page. Name its path, such as /approvals.");
            return Err(No { code: NoCode::Invalid, message });
        }
        let link = self.launch.link(ask.page.as_deref());
        let link =
            link.ok_or_else(|| refused("the management pages are not up; the agent's log says why".to_owned()))?;
        Ok(OpenedPages { link })
    }

    pub(super) async fn device_name(&self) -> Result<String, No> {
        Ok(self.store.settings().device_name().await?.unwrap_or_else(|| "this computer".to_owned()))
    }

    async fn identity(&self) -> Result<IdentityFile, No> {
        Ok(IdentityFile::sign(self.key.signing_key(), &self.device_name().await?, Timestamp::now()))
    }

    async fn stop(&self, ask: Stop) -> Result<Vec<RunId>, No> {
        let runs = self.engine().map(|engine| engine.dispatcher.status().runs).unwrap_or_default();
        let asking =
            runs.iter().filter(|run| run.standing == Standing::AwaitingApproval).map(|run| run.run_id).collect();
        let (done, ended) = oneshot::channel();
        // An agent that takes no orders any more, or ends without an answer, has ended its work.
        if self.orders.send(Order::Stop { now: ask.now, done }).await.is_ok() {
            let _ = ended.await;
        }
        Ok(asking)
    }

    async fn pass_on(&self, request: ManagementRequest, asker: Asker) -> Answer {
        Ok(self.engine()?.dispatcher.asked_by(asker.into()).pass_on(request).await?)
    }
}

impl Passes for Desk {
    type No = No;

    async fn pass<C: Call + Send>(&self, call: C) -> Result<C::Reply, No> {
        self.manage(call).await
    }
}

/// The type of the request decides the type of the answer.
fn give<A: Ask>(_ask: A, answer: Result<A::Answer, No>) -> Answer {
    serde_json::to_value(answer?).map_err(|error| failed(error.to_string()))
}

/// The key of a change, as it was given.
pub(super) fn key_change(key: &NewKey) -> Result<KeyChange, SecretError> {
    Ok(match key {
        NewKey::Keep => KeyChange::Keep,
        NewKey::Forget => KeyChange::Forget,
        NewKey::Replace(text) => KeyChange::Replace(Secret::new(text)?),
    })
}
