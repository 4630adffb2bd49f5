//! Answers the command line, inside the agent.

use std::path::PathBuf;

use deskgate_gateway::socket;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::identity::IdentityFile;
use deskgate_protocol::management::{
    CreateApplication, CreateKey, GetAccess, ListApplications, ListEndpoints, ListKeys, ListRuns, ManagementErrorCode,
    ManagementRequest, PublishEndpoint, RevokeKey, SetAccess, ShowRun,
};
use deskgate_protocol::secret::ControlToken;
use deskgate_protocol::{Timestamp, VERSION};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{AgentStatus, Ask, LineView, No, NoCode, Reply, Request, SaveConnection, Stop, TestConnection, Tested};
use crate::dispatcher::DispatcherHandle;
use crate::identity::DeviceKey;
use crate::link::{self, Connector, Credentials, LinkError, LinkHandle, LinkStatus};
use crate::services::{CallError, Error as ServiceError, Gateway, ServiceDesk};
use crate::settings::{Connection, Mode};
use crate::store::Store;

/// The line in force: replaced when another connection is saved.
#[derive(Clone)]
pub struct Engine {
    /// The dispatcher of that line.
    pub dispatcher: DispatcherHandle,
    /// The line itself.
    pub link: LinkHandle,
}

/// What the agent is told to do as a whole.
#[derive(Debug)]
pub enum Order {
    /// Dial with the connection that is saved now. Answered when the old line is down.
    Reconnect(oneshot::Sender<()>),
    /// End. Answered when the work has ended.
    Stop {
        /// Whether to cut off what is in progress.
        now: bool,
        /// Told when it is done.
        done: oneshot::Sender<()>,
    },
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
    /// The line in force; absent until the first one is up, and while it is changed.
    pub engine: watch::Receiver<Option<Engine>>,
    /// Where orders go.
    pub orders: mpsc::Sender<Order>,
}

type Answer = Result<Value, No>;

/// Answers until `stop`.
pub async fn serve(listener: UnixListener, desk: Desk, stop: CancellationToken) {
    socket::serve(listener, false, stop, move |request: Request| {
        let desk = desk.clone();
        async move {
            match desk.answer(request).await {
                Ok(value) => Reply::Ok(value),
                Err(no) => Reply::No(no),
            }
        }
    })
    .await;
}

impl Desk {
    async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::GetStatus(ask) => give(ask, self.status().await),
            Request::Stop(ask) => give(ask, self.stop(ask).await),
            Request::GetIdentity(ask) => give(ask, self.identity().await),
            Request::GetConnection(ask) => give(ask, self.connection().await),
            Request::SaveConnection(ask) => give(ask.clone(), self.save(ask).await),
            Request::DiscardConnection(ask) => {
                let mut connection = self.connection().await?;
                connection.discard(ask.mode);
                give(ask, self.keep(connection).await)
            }
            Request::TestConnection(ask) => give(ask, self.test(ask).await),
            Request::CreateService(ask) => {
                give(ask.clone(), self.services()?.create(ask.app_id, ask.definition).await.map_err(No::from))
            }
            Request::EditService(ask) => {
                give(ask.clone(), self.services()?.edit(ask.draft_id, ask.definition).await.map_err(No::from))
            }
            Request::ListServices(ask) => give(ask, self.services()?.list().await.map_err(No::from)),
            Request::ShowService(ask) => give(ask, self.services()?.show(ask.draft_id).await.map_err(No::from)),
            Request::CheckService(ask) => give(ask, self.services()?.check(ask.draft_id).await.map_err(No::from)),
            Request::PublishService(ask) => give(ask, self.services()?.publish(ask.draft_id).await.map_err(No::from)),
            Request::Manage { request } => self.manage(request).await,
        }
    }

    fn engine(&self) -> Result<Engine, No> {
        self.engine.borrow().clone().ok_or_else(|| No {
            code: NoCode::CannotReach,
            message: "the agent is connecting to its gateway; try again in a moment".to_owned(),
        })
    }

    fn services(&self) -> Result<ServiceDesk<DispatcherHandle>, No> {
        Ok(ServiceDesk::new(self.store.services(), self.engine()?.dispatcher, self.home.clone()))
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
        })
    }

    async fn device_name(&self) -> Result<String, No> {
        Ok(self.store.settings().device_name().await?.unwrap_or_else(|| "this computer".to_owned()))
    }

    async fn identity(&self) -> Result<IdentityFile, No> {
        Ok(IdentityFile::sign(self.key.signing_key(), &self.device_name().await?, Timestamp::now()))
    }

    async fn stop(&self, ask: Stop) -> Result<(), No> {
        let (done, ended) = oneshot::channel();
        self.order(Order::Stop { now: ask.now, done }, ended).await
    }

    async fn order(&self, order: Order, done: oneshot::Receiver<()>) -> Result<(), No> {
        let stopping = || No { code: NoCode::Refused, message: "the agent is stopping".to_owned() };
        self.orders.send(order).await.map_err(|_| stopping())?;
        // An agent that ended without an answer has ended.
        let _ = done.await;
        Ok(())
    }

    async fn connection(&self) -> Result<Connection, No> {
        Ok(self.store.settings().connection().await?)
    }

    async fn keep(&self, connection: Connection) -> Result<Connection, No> {
        self.store.settings().set_connection(&connection).await?;
        Ok(connection)
    }

    /// The draft is kept whatever happens, so that a failed save can be corrected and repeated.
    async fn save(&self, ask: SaveConnection) -> Result<Connection, No> {
        let token: Option<ControlToken> = match &ask.control_token {
            Some(text) => Some(text.trim().parse().map_err(|error| invalid(format!("control-token: {error}")))?),
            None => None,
        };
        let mut connection = self.connection().await?;
        connection.edit(ask.mode, ask.edit);
        let connection = self.keep(connection).await?;
        if ask.draft_only && token.is_none() {
            return Ok(connection);
        }
        let mut saved = connection.clone();
        if !ask.draft_only {
            saved
                .save(ask.mode)
                .map_err(|unusable| refused(format!("{unusable}\nThe draft is kept; nothing is in force.")))?;
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
        let saved = self.keep(saved).await?;
        let (done, down) = oneshot::channel();
        self.order(Order::Reconnect(done), down).await?;
        Ok(saved)
    }

    /// Runs in hand belong to the gateway they came from.
    fn may_leave(&self, from: &Connection, to: &Connection, abandon_runs: bool) -> Result<(), No> {
        let in_hand = self.engine.borrow().as_ref().map_or(0, |engine| engine.dispatcher.status().runs.len());
        let elsewhere = from.mode != to.mode || from.saved.remote.ssh_address != to.saved.remote.ssh_address;
        if elsewhere && in_hand > 0 && !abandon_runs {
            return Err(refused(format!(
                "{in_hand} runs of the present gateway are in progress. Pause access and wait for them, or add \
                 --accept-risk=abandon-runs.\nThe draft is kept; nothing is in force."
            )));
        }
        Ok(())
    }

    async fn test(&self, ask: TestConnection) -> Result<Tested, No> {
        let connection = self.connection().await?;
        if ask.mode == Mode::BuiltIn {
            return Err(invalid("the built-in gateway has nothing to test: it runs inside the agent".to_owned()));
        }
        let fields = connection.remote_draft.unwrap_or(connection.saved.remote);
        let connector = Connector::Ssh(fields.ssh().map_err(|unusable| invalid(unusable.to_string()))?);
        let token = deskgate_gateway::token::load(&self.token_file).map_err(|error| invalid(error.to_string()))?;
        let credentials = Credentials { key: self.key.clone(), token };
        let address = connector.address();
        let up = connection.mode == Mode::Remote
            && self.engine().is_ok_and(|engine| matches!(*engine.link.status().borrow(), LinkStatus::Connected { .. }));
        if up {
            // A second session with this key would end the first.
            return Err(refused("this connection is in use at the moment, which is the best test there is".to_owned()));
        }
        let session = link::connect_once(&connector, &credentials, Vec::new()).await?;
        Ok(Tested {
            address,
            gateway_version: session.gateway_version().to_owned(),
            device_id: session.welcome().device_id,
        })
    }

    async fn manage(&self, request: ManagementRequest) -> Answer {
        use ManagementRequest as Pass;
        let engine = self.engine()?;
        let dispatcher = &engine.dispatcher;
        macro_rules! pass {
            ($request:expr, $kind:ty) => {{
                let reply = dispatcher.call::<$kind>($request).await?;
                serde_json::to_value(reply).map_err(|error| failed(error.to_string()))
            }};
        }
        match request {
            Pass::CreateApplication(request) => pass!(request, CreateApplication),
            Pass::ListApplications(request) => pass!(request, ListApplications),
            Pass::CreateKey(request) => pass!(request, CreateKey),
            Pass::ListKeys(request) => pass!(request, ListKeys),
            Pass::RevokeKey(request) => pass!(request, RevokeKey),
            Pass::PublishEndpoint(request) => pass!(request, PublishEndpoint),
            Pass::ListEndpoints(request) => pass!(request, ListEndpoints),
            Pass::SetAccess(request) => pass!(request, SetAccess),
            Pass::GetAccess(request) => pass!(request, GetAccess),
            Pass::ListRuns(request) => pass!(request, ListRuns),
            Pass::ShowRun(request) => pass!(request, ShowRun),
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

fn refused(message: String) -> No {
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
            ServiceError::NotChecked(_) | ServiceError::CheckFailed { .. } => refused(message),
            ServiceError::Gateway(error) => error.into(),
            ServiceError::Store(error) => error.into(),
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
