//! Answers the command line, inside the agent.

use std::path::PathBuf;
use std::time::Duration;

use deskgate_gateway::socket;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{AskedBy, Call, GetAccess, ManagementErrorCode, ManagementRequest, SetAccess};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{Timestamp, VERSION};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::launch::Launch;
use super::orders::Order;
use super::{
    AgentStatus, Ask, Asker, LineView, NewKey, No, NoCode, OpenedPages, Reply, Request, SaveConnection, SetMcpServer,
    SetProvider, Stop, TestConnection, Tested,
};
use crate::assistant::accounts::{AccountError, Accounts, Change, KeyChange};
use crate::dispatcher::{DispatcherHandle, Standing};
use crate::identity::DeviceKey;
use crate::link::{self, Connector, Credentials, LinkError, LinkHandle, LinkStatus};
use crate::mcp::Servers;
use crate::mcp::connections::{self, ConnectionError, Connections};
use crate::power::KeptAwake;
use crate::secrets::{Secret, SecretError};
use crate::services::{CallError, Computer, Error as ServiceError, Gateway, ServiceDesk};
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
    /// The person's home directory, which no service may be given whole.
    pub home: Option<PathBuf>,
    /// The model providers.
    pub accounts: Accounts,
    /// The MCP servers.
    pub servers: Servers,
    /// The agent's own folder.
    pub own: PathBuf,
    /// The line in force; absent until the first one is up, and while it is changed.
    pub engine: watch::Receiver<Option<Engine>>,
    /// Where orders go.
    pub orders: mpsc::Sender<Order>,
    /// Where the management pages are, and what opens them.
    pub launch: Launch,
}

type Answer = Result<Value, No>;

/// How long a test waits for the line's next attempt.
const TEST_LIMIT: Duration = Duration::from_secs(40);

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
            Request::OpenPages(ask) => give(ask, self.open_pages()),
            Request::GetIdentity(ask) => give(ask, self.identity().await),
            Request::GetConnection(ask) => give(ask, self.connection().await),
            Request::SaveConnection(ask) => give(ask.clone(), self.save(ask).await),
            Request::DiscardConnection(ask) => {
                let discard = move |connection: &mut Connection| {
                    connection.discard(ask.mode);
                    connection.clone()
                };
                give(ask, self.store.settings().update_connection(discard).await.map_err(No::from))
            }
            Request::TestConnection(ask) => give(ask, self.test(ask).await),
            Request::CreateService(ask) => {
                give(ask.clone(), self.services(asker)?.create(ask.app_id, ask.definition).await.map_err(No::from))
            }
            Request::EditService(ask) => {
                give(ask.clone(), self.services(asker)?.edit(ask.draft_id, ask.definition).await.map_err(No::from))
            }
            Request::ListServices(ask) => give(ask, self.services(asker)?.list().await.map_err(No::from)),
            Request::ShowService(ask) => give(ask, self.services(asker)?.show(ask.draft_id).await.map_err(No::from)),
            Request::CheckService(ask) => give(ask, self.services(asker)?.check(ask.draft_id).await.map_err(No::from)),
            Request::PublishService(ask) => {
                give(ask, self.services(asker)?.publish(ask.draft_id).await.map_err(No::from))
            }
            Request::ListProviders(ask) => give(ask, self.with_accounts(Accounts::list).await),
            Request::SetProvider(ask) => {
                let SetProvider { name, kind, base_url, key } = ask.clone();
                let set =
                    move |accounts: &Accounts| accounts.set(&name, Change { kind, base_url, key: key_change(&key)? });
                give(ask, self.with_accounts(set).await)
            }
            Request::RemoveProvider(ask) => {
                let name = ask.name.clone();
                give(ask, self.with_accounts(move |accounts| accounts.remove(&name)).await)
            }
            Request::ListMcpServers(ask) => give(ask, self.with_servers(Connections::list).await),
            Request::SetMcpServer(ask) => {
                let SetMcpServer { name, url, header, key } = ask.clone();
                let set = move |servers: &Connections| {
                    servers.set(&name, connections::Change { url, header, key: key_change(&key)? })
                };
                give(ask, self.with_servers(set).await)
            }
            Request::RemoveMcpServer(ask) => {
                let name = ask.name.clone();
                give(ask, self.with_servers(move |servers| servers.remove(&name)).await)
            }
            Request::ListApprovals(ask) => give(ask, self.approvals(ask.all).await),
            Request::ShowApproval(ask) => give(ask, self.approval(ask).await),
            Request::DecideApproval(ask) => give(ask.clone(), self.decide(ask, asker).await),
            Request::ListAudit(ask) => {
                give(ask, self.store.audit().list(ask.run_id, ask.limit).await.map_err(No::from))
            }
            Request::ShowEvidence(ask) => give(ask, self.evidence(ask.run_id).await),
            Request::ReconcileRun(ask) => give(ask, self.settle(ask, asker).await),
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
        Ok(ServiceDesk::new(self.store.services(), gateway, computer))
    }

    /// Accounts are files, and files may block.
    async fn with_accounts<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Accounts) -> Result<R, AccountError> + Send + 'static,
    ) -> Result<R, No> {
        let accounts = self.accounts.clone();
        let worked = tokio::task::spawn_blocking(move || work(&accounts)).await;
        worked.map_err(|_| failed("the agent failed while it handled its providers".to_owned()))?.map_err(No::from)
    }

    /// Servers are files too.
    async fn with_servers<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Connections) -> Result<R, ConnectionError> + Send + 'static,
    ) -> Result<R, No> {
        let connections = self.servers.connections.clone();
        let worked = tokio::task::spawn_blocking(move || work(&connections)).await;
        worked.map_err(|_| failed("the agent failed while it handled its MCP servers".to_owned()))?.map_err(No::from)
    }

    async fn status(&self) -> Result<AgentStatus, No> {
        let engine = self.engine()?;
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
            mode: self.connection().await?.mode,
            line,
            access,
            work: engine.dispatcher.status().into(),
            kept_awake: engine.kept_awake.borrow().clone(),
            pages: self.launch.address().map(|address| format!("http://{address}/")),
        })
    }

    fn open_pages(&self) -> Result<OpenedPages, No> {
        let address = self
            .launch
            .address()
            .ok_or_else(|| refused("the management pages are not up; the agent's log says why".to_owned()))?;
        Ok(OpenedPages { link: format!("http://{address}/sign-in?code={}", self.launch.issue().as_str()) })
    }

    async fn device_name(&self) -> Result<String, No> {
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

    async fn reconnect(&self) -> Result<(), No> {
        let stopping =
            || refused("the agent is stopping. The connection is saved, and in force when it starts again".to_owned());
        let (done, down) = oneshot::channel();
        self.orders.send(Order::Reconnect(done)).await.map_err(|_| stopping())?;
        down.await.map_err(|_| stopping())
    }

    async fn connection(&self) -> Result<Connection, No> {
        Ok(self.store.settings().connection().await?)
    }

    /// The draft is kept whatever happens, so that a failed save can be corrected and repeated.
    async fn save(&self, ask: SaveConnection) -> Result<Connection, No> {
        let token: Option<ControlToken> = match &ask.control_token {
            Some(text) => Some(text.trim().parse().map_err(|error| invalid(format!("control-token: {error}")))?),
            None => None,
        };
        let (settings, mode, edit) = (self.store.settings(), ask.mode, ask.edit);
        let edited = move |connection: &mut Connection| {
            connection.edit(mode, edit);
            connection.clone()
        };
        let connection = settings.update_connection(edited).await?;
        if ask.draft_only && token.is_none() {
            return Ok(connection);
        }
        let unusable = |why| refused(format!("{why}\nThe draft is kept; nothing is in force."));
        let mut saved = connection.clone();
        if !ask.draft_only {
            saved.save(ask.mode).map_err(unusable)?;
            if ask.mode == Mode::Remote && token.is_none() && !self.token_file.exists() {
                return Err(refused(
                    "a remote gateway needs its private control token: name its file with --token-file.\n\
                     The draft is kept; nothing is in force."
                        .to_owned(),
                ));
            }
            self.may_leave(&connection, &saved, ask.abandon_runs)?;
        }
        if let Some(token) = token {
            deskgate_gateway::token::save(&self.token_file, &token).map_err(|error| failed(error.to_string()))?;
        }
        if ask.draft_only {
            return Ok(connection);
        }
        if saved.mode != connection.mode
            && let Ok(engine) = self.engine()
        {
            // The gateway that is left may be out of reach; its device is away then anyway.
            let _ = engine.dispatcher.call(SetAccess { enabled: false }).await;
        }
        // Anew, in one step with the writing: nothing else that changed meanwhile is undone.
        let save = move |connection: &mut Connection| connection.save(mode).map(|()| connection.clone());
        let saved = settings.update_connection(save).await?.map_err(unusable)?;
        self.reconnect().await?;
        Ok(saved)
    }

    /// Runs in hand belong to the gateway they came from.
    fn may_leave(&self, from: &Connection, to: &Connection, abandon_runs: bool) -> Result<(), No> {
        let in_hand = self.in_hand();
        if !to.same_gateway(from) && in_hand > 0 && !abandon_runs {
            return Err(refused(format!(
                "{in_hand} runs of the present gateway are in progress. Pause access and wait for them, or add \
                 --accept-risk=abandon-runs.\nThe draft is kept; nothing is in force."
            )));
        }
        Ok(())
    }

    fn in_hand(&self) -> usize {
        self.engine.borrow().as_ref().map_or(0, |engine| engine.dispatcher.status().runs.len())
    }

    /// Fields that are in force are tested by the line itself: a second session with this device's
    /// key would end the first, and say that nothing is in flight.
    async fn test(&self, ask: TestConnection) -> Result<Tested, No> {
        let connection = self.connection().await?;
        if ask.mode == Mode::BuiltIn {
            return Err(invalid("the built-in gateway has nothing to test: it runs inside the agent".to_owned()));
        }
        let remote = connection.mode == Mode::Remote;
        let fields = connection.remote_draft.unwrap_or_else(|| connection.saved.remote.clone());
        let connector = Connector::Ssh(fields.ssh().map_err(|unusable| invalid(unusable.to_string()))?);
        let address = connector.address();
        if remote && fields == connection.saved.remote {
            return probe(&self.engine()?.link, address).await;
        }
        let connected =
            self.engine().is_ok_and(|engine| matches!(*engine.link.status().borrow(), LinkStatus::Connected { .. }));
        if remote && (connected || self.in_hand() > 0) {
            return Err(refused(
                "a test of other fields would end the session in use, or lose its runs, if they lead to the same \
                 gateway. Save them instead: the line then shows how they do"
                    .to_owned(),
            ));
        }
        let token = deskgate_gateway::token::load(&self.token_file).map_err(|error| invalid(error.to_string()))?;
        let credentials = Credentials { key: self.key.clone(), token };
        let session = link::connect_once(&connector, &credentials, Vec::new()).await?;
        Ok(Tested {
            address,
            gateway_version: session.gateway_version().to_owned(),
            device_id: session.welcome().device_id,
        })
    }

    async fn pass_on(&self, request: ManagementRequest, asker: Asker) -> Answer {
        Ok(self.engine()?.dispatcher.asked_by(asker.into()).pass_on(request).await?)
    }
}

/// The outcome of the attempt under way, or of one that is made now.
async fn probe(link: &LinkHandle, address: String) -> Result<Tested, No> {
    let mut status = link.status();
    if matches!(*status.borrow_and_update(), LinkStatus::Disconnected { .. } | LinkStatus::Refused { .. }) {
        link.kick();
        // The agent never ends before its socket; without news the old status is shown again.
        let _ = tokio::time::timeout(TEST_LIMIT, status.changed()).await;
    }
    let settled = status.wait_for(|status| !matches!(status, LinkStatus::Connecting));
    let outcome = match tokio::time::timeout(TEST_LIMIT, settled).await {
        Ok(Ok(outcome)) => outcome.clone(),
        _ => LinkStatus::Connecting,
    };
    match outcome {
        LinkStatus::Connected { device_id, gateway_version, .. } => Ok(Tested { address, gateway_version, device_id }),
        LinkStatus::Refused { refused, .. } => Err(LinkError::Refused(Box::new(refused)).into()),
        LinkStatus::Disconnected { why, next_attempt_at } => {
            // Without a next attempt only a person can help.
            let code = if next_attempt_at.is_some() { NoCode::CannotReach } else { NoCode::NotAuthorised };
            Err(No { code, message: why })
        }
        LinkStatus::Connecting => {
            Err(No { code: NoCode::CannotReach, message: format!("{address} has not answered yet") })
        }
    }
}

/// The type of the request decides the type of the answer.
fn give<A: Ask>(_ask: A, answer: Result<A::Answer, No>) -> Answer {
    serde_json::to_value(answer?).map_err(|error| failed(error.to_string()))
}

fn view(status: LinkStatus) -> LineView {
    match status {
        LinkStatus::Disconnected { why, next_attempt_at } => LineView::Disconnected { why, next_attempt_at },
        LinkStatus::Connecting => LineView::Connecting,
        LinkStatus::Connected { since, device_id, gateway_version, .. } => {
            LineView::Connected { since, device_id, gateway_version }
        }
        LinkStatus::Refused { refused, next_attempt_at } => LineView::Refused { refused, next_attempt_at },
    }
}

fn invalid(message: String) -> No {
    No { code: NoCode::Invalid, message }
}

pub(super) fn refused(message: String) -> No {
    No { code: NoCode::Refused, message }
}

fn failed(message: String) -> No {
    No { code: NoCode::Failed, message }
}

impl From<crate::store::Error> for No {
    fn from(error: crate::store::Error) -> Self {
        failed(error.to_string())
    }
}

impl From<ServiceError> for No {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::Invalid(_) => invalid(message),
            ServiceError::NotFound(_) => Self { code: NoCode::NotFound, message },
            ServiceError::NotChecked(_) | ServiceError::CheckFailed { .. } | ServiceError::Edited(_) => {
                refused(message)
            }
            ServiceError::Gateway(error) => error.into(),
            ServiceError::Store(error) => error.into(),
        }
    }
}

/// The key of a change, as it was given.
fn key_change(key: &NewKey) -> Result<KeyChange, SecretError> {
    Ok(match key {
        NewKey::Keep => KeyChange::Keep,
        NewKey::Forget => KeyChange::Forget,
        NewKey::Replace(text) => KeyChange::Replace(Secret::new(text)?),
    })
}

impl From<ConnectionError> for No {
    fn from(error: ConnectionError) -> Self {
        let message = error.to_string();
        match error {
            ConnectionError::Unknown(_) => Self { code: NoCode::NotFound, message },
            ConnectionError::Secret(SecretError::Io { .. }) => failed(message),
            ConnectionError::Damaged(_) | ConnectionError::Secret(SecretError::Loose { .. }) => refused(message),
            _ => invalid(message),
        }
    }
}

impl From<AccountError> for No {
    fn from(error: AccountError) -> Self {
        let message = error.to_string();
        match error {
            AccountError::Unknown(_) => Self { code: NoCode::NotFound, message },
            AccountError::Secret(SecretError::Io { .. }) => failed(message),
            AccountError::Damaged(_) | AccountError::Secret(SecretError::Loose { .. }) => refused(message),
            _ => invalid(message),
        }
    }
}

impl From<CallError> for No {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        let code = match &error {
            CallError::NotConnected | CallError::LineLost | CallError::TimedOut { .. } => NoCode::CannotReach,
            CallError::Busy | CallError::Stopped => NoCode::Refused,
            CallError::Unreadable(_) => NoCode::Failed,
            CallError::Refused(no) => match no.code {
                ManagementErrorCode::Invalid => NoCode::Invalid,
                ManagementErrorCode::NotFound => NoCode::NotFound,
                ManagementErrorCode::Conflict => NoCode::Refused,
                ManagementErrorCode::Unavailable => NoCode::CannotReach,
            },
        };
        Self { code, message }
    }
}

impl From<LinkError> for No {
    fn from(error: LinkError) -> Self {
        let code = match &error {
            LinkError::Refused(refused) => match refused.code {
                RefusedCode::VersionMismatch => NoCode::VersionMismatch,
                RefusedCode::Unavailable => NoCode::CannotReach,
                _ => NoCode::NotAuthorised,
            },
            error if error.is_blocked() => NoCode::NotAuthorised,
            _ => NoCode::CannotReach,
        };
        Self { code, message: error.to_string() }
    }
}
