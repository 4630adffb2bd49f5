//! Answers about the connection to the gateway: what is saved of it, what is in force, and whether it would work.

use std::time::Duration;

use deskgate_protocol::management::SetAccess;
use deskgate_protocol::secret::ControlToken;
use tokio::sync::oneshot;

use super::desk::Desk;
use super::no::{failed, invalid, refused};
use super::orders::Order;
use super::{LineView, No, NoCode, SaveConnection, TestConnection, Tested};
use crate::link::{self, Connector, Credentials, LinkError, LinkHandle, LinkStatus};
use crate::services::Gateway;
use crate::settings::{Connection, Mode};

/// How long a test waits for the line's next attempt.
const TEST_LIMIT: Duration = Duration::from_secs(40);

impl Desk {
    async fn reconnect(&self) -> Result<(), No> {
        let stopping =
            || refused("the agent is stopping. The connection is saved, and in force when it starts again".to_owned());
        let (done, down) = oneshot::channel();
        self.orders.send(Order::Reconnect(done)).await.map_err(|_| stopping())?;
        down.await.map_err(|_| stopping())
    }

    pub(super) async fn connection(&self) -> Result<Connection, No> {
        Ok(self.store.settings().connection().await?)
    }

    /// The draft is kept whatever happens, so that a failed save can be corrected and repeated.
    pub(super) async fn save(&self, ask: SaveConnection) -> Result<Connection, No> {
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
    pub(super) async fn test(&self, ask: TestConnection) -> Result<Tested, No> {
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
        LinkStatus::Disconnected { why, next_attempt_at, .. } => {
            // Without a next attempt only a person can help.
            let code = if next_attempt_at.is_some() { NoCode::CannotReach } else { NoCode::NotAuthorised };
            Err(No { code, message: why })
        }
        LinkStatus::Connecting => {
            Err(No { code: NoCode::CannotReach, message: format!("{address} has not answered yet") })
        }
    }
}

pub(super) fn view(status: LinkStatus) -> LineView {
    match status {
        LinkStatus::Disconnected { why, next_attempt_at, .. } => LineView::Disconnected { why, next_attempt_at },
        LinkStatus::Connecting => LineView::Connecting,
        LinkStatus::Connected { since, device_id, gateway_version, .. } => {
            LineView::Connected { since, device_id, gateway_version }
        }
        LinkStatus::Refused { refused, next_attempt_at } => LineView::Refused { refused, next_attempt_at },
    }
}
