//! Answers requests about the connection to the gateway: settings, drafts and tests.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use deskgate_protocol::DeviceId;
use deskgate_protocol::management::SetAccess;
use deskgate_protocol::secret::ControlToken;
use tokio::sync::oneshot;

use super::commands::AgentCommand;
use super::error_reply::{failed, invalid, refused};
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode};
use super::{
    AcceptGateway, AcceptedGateway, ConnectStage, ConnectionTestResult, FollowedHostKey, HostKeysView, SaveConnection,
    TestConnection,
};
use crate::link::announced_keys::{self, FollowedKey};
use crate::link::{self, Connector, Credentials, HostedConnector, KnownGateways, LinkError, LinkHandle, LinkStatus};
use crate::services::GatewayClient;
use crate::settings::{ConnectionSettings, InvalidSettings, Mode, Remote};

/// How long a test waits for the link's next attempt.
const CONNECTION_TEST_TIMEOUT: Duration = Duration::from_secs(40);

impl RequestHandler {
    async fn reconnect(&self) -> Result<(), ErrorReply> {
        let stopping =
            || refused("the agent is stopping. The connection is saved, and active when it starts again".to_owned());
        let (done, down) = oneshot::channel();
        self.commands.send(AgentCommand::Reconnect(done)).await.map_err(|_| stopping())?;
        down.await.map_err(|_| stopping())
    }

    pub(super) async fn connection(&self) -> Result<ConnectionSettings, ErrorReply> {
        Ok(self.store.settings().get::<ConnectionSettings>().await?)
    }

    /// The draft is kept in any case, so that a failed save can be corrected and repeated.
    pub(super) async fn save(&self, ask: SaveConnection) -> Result<ConnectionSettings, ErrorReply> {
        let token: Option<ControlToken> = match &ask.control_token {
            Some(text) => Some(text.trim().parse().map_err(|error| invalid(format!("control-token: {error}")))?),
            None => None,
        };
        ask.edit.check().map_err(|pasted| invalid(pasted.to_string()))?;
        let (settings, mode, edit) = (self.store.settings(), ask.mode, ask.edit);
        let edited = move |connection: &mut ConnectionSettings| {
            connection.edit(mode, edit);
            connection.clone()
        };
        let connection = settings.update(edited).await?;
        let token_draft = self.token_draft();
        if let Some(token) = token {
            deskgate_program::token::save(&token_draft, &token).map_err(|error| failed(error.to_string()))?;
        }
        if ask.draft_only {
            return Ok(connection);
        }
        let unusable = |why| refused(format!("{why}\nThe draft is kept; it is not active."));
        let mut saved = connection.clone();
        saved.save(ask.mode).map_err(unusable)?;
        match ask.mode {
            Mode::BuiltIn => self.may_listen(&connection, &saved).await?,
            Mode::Remote if !token_draft.exists() && !self.token_file.exists() => {
                return Err(refused(
                    "control-token: a remote gateway needs its private control token; the command line takes it with \
                     --token-file.\nThe draft is kept; it is not active."
                        .to_owned(),
                ));
            }
            // A user may sign in later: until then the status shows that.
            Mode::Remote | Mode::Hosted => {}
        }
        self.may_leave(&connection, &saved, ask.abandon_runs)?;
        if ask.mode == Mode::Remote && token_draft.exists() {
            let moved = std::fs::rename(&token_draft, &self.token_file);
            moved.map_err(|error| failed(format!("{}: {error}", self.token_file.display())))?;
        }
        if saved.mode != connection.mode
            && let Ok(active) = self.active()
        {
            // The old gateway may be unreachable; its device is then offline anyway.
            let _ = active.dispatcher.call(SetAccess { enabled: false }).await;
        }
        // Read again in the same transaction as the write, so that concurrent changes are kept.
        let save = move |connection: &mut ConnectionSettings| connection.save(mode).map(|()| connection.clone());
        let saved = settings.update(save).await?.map_err(unusable)?;
        if saved.saved.remote.pin_count != connection.saved.remote.pin_count {
            self.discard_followed_keys()?;
        }
        self.reconnect().await?;
        Ok(saved)
    }

    /// The pinned key of the remote mode, and the followed ones.
    pub(super) async fn host_keys(&self) -> Result<HostKeysView, ErrorReply> {
        Ok(self.keys_of(&self.connection().await?.saved.remote))
    }

    pub(super) fn keys_of(&self, remote: &Remote) -> HostKeysView {
        let pinned = remote.host_key.clone();
        let followed = remote.ssh(self.host_keys_file.clone()).map(|ssh| announced_keys::trusted_keys(&ssh));
        match followed.unwrap_or(Ok(None)) {
            Ok(keys) => HostKeysView {
                pinned,
                followed: keys.into_iter().flatten().map(Into::into).collect(),
                unreadable: None,
            },
            Err(why) => {
                let unreadable = Some(format!("{} {why}", self.host_keys_file.display()));
                HostKeysView { pinned, followed: Vec::new(), unreadable }
            }
        }
    }

    /// Drops the followed keys. The connection in force is made again, by the pin.
    pub(super) async fn drop_host_keys(&self) -> Result<HostKeysView, ErrorReply> {
        let pin_anew = |connection: &mut ConnectionSettings| {
            connection.pin_anew();
            connection.clone()
        };
        let connection = self.store.settings().update(pin_anew).await?;
        self.discard_followed_keys()?;
        if connection.mode == Mode::Remote {
            self.reconnect().await?;
        }
        Ok(self.keys_of(&connection.saved.remote))
    }

    /// The number of pins ends a readable record already; one that is damaged would block every server.
    fn discard_followed_keys(&self) -> Result<(), ErrorReply> {
        let path = &self.host_keys_file;
        announced_keys::discard(path).map_err(|error| failed(format!("{}: {error}. Remove this file", path.display())))
    }

    /// Takes another gateway at the active connection's address for the known one.
    pub(super) fn accept_gateway(&self, ask: &AcceptGateway) -> Result<AcceptedGateway, ErrorReply> {
        let gateway_id = ask.gateway_id;
        self.active()?.link.accept_gateway(gateway_id).map_err(|error| failed(error.to_string()))?;
        Ok(AcceptedGateway { gateway_id })
    }

    /// Discards a mode's draft with its token.
    pub(super) async fn discard(&self, mode: Mode) -> Result<ConnectionSettings, ErrorReply> {
        let discard = move |connection: &mut ConnectionSettings| {
            connection.discard(mode);
            connection.clone()
        };
        let connection = self.store.settings().update(discard).await?;
        if mode == Mode::Remote && self.token_draft().exists() {
            let path = self.token_draft();
            std::fs::remove_file(&path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        }
        Ok(connection)
    }

    /// The file of an entered token that is not in force: like the fields, it is a draft until it is saved.
    pub(crate) fn token_draft(&self) -> PathBuf {
        self.token_file.with_extension("draft")
    }

    /// Whether there is an entered token that is not in force.
    pub(crate) fn has_token_draft(&self) -> bool {
        self.token_draft().exists()
    }

    /// The agent cannot work without its gateway, so the address is tested before it takes effect.
    async fn may_listen(&self, from: &ConnectionSettings, to: &ConnectionSettings) -> Result<(), ErrorReply> {
        let unusable = |why: String| refused(format!("{why}\nThe draft is kept; it is not active."));
        let address = to.saved.builtin.address().map_err(|why| unusable(why.to_string()))?;
        let known = if from.mode == Mode::BuiltIn { self.store.settings().builtin_port().await? } else { None };
        let ours = from.mode == Mode::BuiltIn
            && (from.saved.builtin.listen == to.saved.builtin.listen || known == Some(address.port()));
        if !ours && let Err(error) = TcpListener::bind(address) {
            return Err(unusable(format!("listen: {address} cannot be used: {error}")));
        }
        Ok(())
    }

    /// Active runs belong to the gateway they came from.
    pub(super) fn may_leave(
        &self,
        from: &ConnectionSettings,
        to: &ConnectionSettings,
        abandon_runs: bool,
    ) -> Result<(), ErrorReply> {
        let in_hand = self.in_hand();
        if !to.same_gateway(from) && in_hand > 0 && !abandon_runs {
            return Err(refused(format!(
                "{in_hand} runs of the present gateway are in progress. Pause access and wait for them, or add \
                 --accept-risk=abandon-runs.\nThe draft is kept; it is not active."
            )));
        }
        Ok(())
    }

    pub(super) fn in_hand(&self) -> usize {
        self.active_connection.borrow().as_ref().map_or(0, |active| active.dispatcher.status().runs.len())
    }

    /// Fields in force are tested by the link itself: a second session with this device's key would end the first, and
    /// report no runs in flight.
    pub(super) async fn test(&self, ask: TestConnection) -> Result<ConnectionTestResult, ErrorReply> {
        let connection = self.connection().await?;
        if ask.mode == Mode::BuiltIn {
            return Err(invalid("the built-in gateway has nothing to test: it runs inside the agent".to_owned()));
        }
        let in_use = connection.mode == ask.mode;
        let (connector, token, saved) = self.tested(&connection, ask.mode).await?;
        let (address, stages) = (connector.address(), stages(ask.mode));
        if in_use && saved {
            return Ok(probe(&self.active()?.link, address, stages).await);
        }
        let connected =
            self.active().is_ok_and(|active| matches!(*active.link.status().borrow(), LinkStatus::Connected { .. }));
        if in_use && (connected || self.in_hand() > 0) {
            return Err(refused(
                "a test of other fields would end the session in use, or lose its runs, if they lead to the same \
                 gateway. Save them instead: the connection then shows how they do"
                    .to_owned(),
            ));
        }
        let known_gateways = Some(KnownGateways::new(self.known_gateways_file.clone()));
        let credentials = Credentials { key: self.key.clone(), token, known_gateways, journal_id: None };
        Ok(match link::connect_once(&connector, &credentials, Vec::new()).await {
            Ok(session) => ConnectionTestResult::good(
                address,
                stages,
                session.gateway_version().to_owned(),
                session.welcome().device_id,
            ),
            Err(error) => {
                let host_keys = error.host_keys();
                ConnectionTestResult {
                    host_keys,
                    ..ConnectionTestResult::failed(address, stages, error.failed_at(), error.into())
                }
            }
        })
    }

    /// The connector and credentials of a mode's fields, and whether these are the saved ones.
    async fn tested(
        &self,
        connection: &ConnectionSettings,
        mode: Mode,
    ) -> Result<(Connector, Option<ControlToken>, bool), ErrorReply> {
        let unusable = |unusable: InvalidSettings| invalid(unusable.to_string());
        if mode == Mode::Hosted {
            let fields = connection.hosted_draft.as_ref().unwrap_or(&connection.saved.hosted);
            let (gateway, device_name) = (fields.address().map_err(unusable)?, self.device_name().await?);
            let hosted = HostedConnector { gateway, token_manager: self.token_manager.clone(), device_name };
            return Ok((Connector::Hosted(hosted), None, *fields == connection.saved.hosted));
        }
        let fields = connection.remote_draft.as_ref().unwrap_or(&connection.saved.remote);
        let mut ssh = fields.ssh(self.host_keys_file.clone()).map_err(unusable)?;
        if let Some(followed) = &mut ssh.followed {
            followed.read_only = true;
        }
        let connector = Connector::Ssh(ssh);
        let token_draft = self.token_draft();
        let saved = *fields == connection.saved.remote && !token_draft.exists();
        let token_file = if token_draft.exists() { &token_draft } else { &self.token_file };
        let token = deskgate_program::token::load(token_file);
        let token = token.map_err(|error| invalid(format!("control-token: {error}")))?;
        Ok((connector, Some(token), saved))
    }
}

impl From<FollowedKey> for FollowedHostKey {
    fn from(FollowedKey { key, announcement }: FollowedKey) -> Self {
        let (announced_at, announced_by) = announcement.map(|it| (it.at, it.by)).unzip();
        Self { fingerprint: key.fingerprint(), announced_at, announced_by }
    }
}

/// The stages of an attempt in this mode.
fn stages(mode: Mode) -> &'static [ConnectStage] {
    if mode == Mode::Hosted { ConnectStage::HOSTED } else { ConnectStage::REMOTE }
}

/// The result of the current attempt, or of one that is made now.
async fn probe(link: &LinkHandle, address: String, stages: &[ConnectStage]) -> ConnectionTestResult {
    let mut status = link.status();
    if matches!(*status.borrow_and_update(), LinkStatus::Disconnected { .. } | LinkStatus::Refused { .. }) {
        link.kick();
        // The agent always outlives its socket; without a change the old status is shown again.
        let _ = tokio::time::timeout(CONNECTION_TEST_TIMEOUT, status.changed()).await;
    }
    let settled = status.wait_for(|status| !matches!(status, LinkStatus::Connecting));
    let outcome = match tokio::time::timeout(CONNECTION_TEST_TIMEOUT, settled).await {
        Ok(Ok(outcome)) => outcome.clone(),
        _ => LinkStatus::Connecting,
    };
    match outcome {
        LinkStatus::Connected { device_id, gateway_version, .. } => {
            ConnectionTestResult::good(address, stages, gateway_version, device_id)
        }
        LinkStatus::Refused { refused, .. } => ConnectionTestResult::failed(
            address,
            stages,
            ConnectStage::of_refusal(refused.code),
            LinkError::Refused(Box::new(refused)).into(),
        ),
        LinkStatus::Disconnected { why, failed_at, host_keys, next_attempt_at } => {
            // Without a next attempt only a person can help.
            let code =
                if next_attempt_at.is_some() { ErrorReplyCode::CannotReach } else { ErrorReplyCode::NotAuthorised };
            ConnectionTestResult {
                host_keys,
                ..ConnectionTestResult::failed(address, stages, failed_at, ErrorReply { code, message: why })
            }
        }
        LinkStatus::Connecting => {
            let message = format!("{address} has not answered yet");
            ConnectionTestResult::failed(
                address,
                stages,
                Some(ConnectStage::Address),
                ErrorReply { code: ErrorReplyCode::CannotReach, message },
            )
        }
    }
}

impl ConnectionTestResult {
    fn good(address: String, stages: &[ConnectStage], gateway_version: String, device_id: DeviceId) -> Self {
        let (passed, gateway_version, device_id) = (stages.to_vec(), Some(gateway_version), Some(device_id));
        Self { address, passed, failed_at: None, failed: None, host_keys: None, gateway_version, device_id }
    }

    fn failed(address: String, stages: &[ConnectStage], failed_at: Option<ConnectStage>, no: ErrorReply) -> Self {
        let passed = stages.iter().copied().take_while(|stage| failed_at.is_some_and(|failed| failed != *stage));
        Self {
            address,
            passed: passed.collect(),
            failed_at,
            failed: Some(no),
            host_keys: None,
            gateway_version: None,
            device_id: None,
        }
    }
}
