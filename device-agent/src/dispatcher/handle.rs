//! The dispatcher's handle for the rest of the agent: calls, status, stop.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::management::{AskedBy, GetAccess, ManagementCall, ManagementRequest};
use deskgate_store::journal::reconcile::OwnerFinding;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::Writing;
use crate::services::{CallError, GatewayClient};

/// The timeout of a reply, beyond the wait that the request itself asks for.
pub(super) const MANAGEMENT_REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for what is shown beside something else, and is left out if it does not come.
pub const GLANCE_TIMEOUT: Duration = Duration::from_secs(2);

/// The dispatcher's handle. Clones are cheap.
#[derive(Clone, Debug)]
pub struct DispatcherHandle {
    pub(super) by: AskedBy,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) status: watch::Receiver<DispatcherStatus>,
    pub(super) writing: watch::Receiver<Writing>,
    pub(super) patience: Duration,
}

#[derive(Debug)]
pub(super) enum Command {
    Call { by: AskedBy, request: ManagementRequest, answer: oneshot::Sender<Result<Value, CallError>> },
    Stop { now: bool },
    Suspend,
    Resume,
    Reconcile { run_id: RunId, finding: OwnerFinding, who: String, answer: oneshot::Sender<Result<(), ReconcileError>> },
}

/// The dispatcher's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DispatcherStatus {
    /// Whether there is a session.
    pub connected: bool,
    /// Whether new runs are refused because the agent stops.
    pub stopping: bool,
    /// How many runs may be active at the same time.
    pub slots: u32,
    /// The runs that are taken, executing, or wait for the gateway's acknowledgement.
    pub runs: Vec<ActiveRun>,
    /// What prevents work, in words; `None` if there is no problem.
    pub problem: Option<String>,
    /// Whether the problem is the journal.
    pub journal_fails: bool,
}

/// One run on this device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveRun {
    /// The run's identifier.
    pub run_id: RunId,
    /// The run's attempt.
    pub attempt: u32,
    /// The name of its service; empty for a run from an earlier start.
    pub service: String,
    /// The run's state.
    pub standing: ActiveRunState,
    /// When this process first had it.
    pub since: Timestamp,
    /// Model calls so far.
    pub turns: u64,
}

/// The state of a run on this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActiveRunState {
    /// Taken; waits for the gateway's confirmation.
    Taken,
    /// Execution is under way.
    Running,
    /// Ended; waits for the gateway's acknowledgement.
    Finished,
    /// Cut off by a restart, or to run again by its owner's decision; waits to be offered again.
    Interrupted,
    /// A person is asked about a tool call.
    AwaitingApproval,
    /// Cut off after it began to write; waits for its owner's decision.
    AwaitingReconciliation,
}

/// Why a run was not settled.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The run is not on this device, or does not wait for its owner.
    #[error("{0} does not need your decision; see which runs do with: deskgate status")]
    NotWaiting(RunId),
    /// The owner has settled the run already.
    #[error("the outcome of {0} is confirmed already; the gateway is told as soon as it can be")]
    Settled(RunId),
    /// The journal failed.
    #[error(transparent)]
    Store(#[from] deskgate_store::Error),
    /// The agent stops.
    #[error("the agent is stopping; try again when it has started")]
    Stopped,
}

impl DispatcherHandle {
    /// The current status.
    pub fn status(&self) -> DispatcherStatus {
        self.status.borrow().clone()
    }

    /// Changes with the status. Closes when the dispatcher has ended.
    pub fn watch(&self) -> watch::Receiver<DispatcherStatus> {
        self.status.clone()
    }

    /// What assistants are writing; changes with each piece.
    pub fn writing(&self) -> watch::Receiver<Writing> {
        self.writing.clone()
    }

    /// Stops the dispatcher and returns when it has ended. New runs are refused. With `now` the executions are stopped,
    /// and executed again after the next start; otherwise they are awaited, except those that wait for a person. May be
    /// called a second time with `now`.
    pub async fn stop(&self, now: bool) {
        // A closed channel means that it has ended already.
        let _ = self.commands.send(Command::Stop { now }).await;
        let mut status = self.status.clone();
        while status.changed().await.is_ok() {}
    }

    /// Settles an unknown run by its owner's finding. `who`: the local user, for the audit.
    ///
    /// # Errors
    /// The run does not wait for its owner, or the journal failed.
    pub async fn reconcile(&self, run_id: RunId, finding: OwnerFinding, who: String) -> Result<(), ReconcileError> {
        let (answer, reply) = oneshot::channel();
        let command = Command::Reconcile { run_id, finding, who, answer };
        self.commands.send(command).await.map_err(|_| ReconcileError::Stopped)?;
        reply.await.map_err(|_| ReconcileError::Stopped)?
    }

    /// Prepares for the computer's sleep: new runs are refused, and the gateway is notified. Returns when the gateway
    /// has received that, or cannot be reached.
    pub async fn suspend(&self) {
        let _ = self.commands.send(Command::Suspend).await;
        // Frames arrive in order, so the answer to a later request shows that the earlier frame arrived.
        let _ = self.call(GetAccess {}).await;
    }

    /// The computer is awake again. Without a preceding sleep, this has no effect.
    pub async fn resume(&self) {
        let _ = self.commands.send(Command::Resume).await;
    }

    /// The same handle for a user's requests: the gateway records who made a change.
    pub fn asked_by(self, by: AskedBy) -> Self {
        Self { by, ..self }
    }

    /// The same handle for what is shown beside something else: it waits for [`GLANCE_TIMEOUT`].
    pub fn glancing(self) -> Self {
        Self { patience: GLANCE_TIMEOUT, ..self }
    }

    /// Sends a request to the gateway; the reply is passed on unchanged.
    ///
    /// # Errors
    /// There is no session, or the gateway refused or did not answer.
    pub async fn pass_on(&self, request: ManagementRequest) -> Result<Value, CallError> {
        let limit = self.patience
            + match &request {
                ManagementRequest::ShowRun(show) => Duration::from_secs(show.wait_s.into()),
                ManagementRequest::ShowOperation(show) => Duration::from_secs(show.wait_s.into()),
                ManagementRequest::ShowDelivery(show) => Duration::from_secs(show.wait_s.into()),
                ManagementRequest::PollListener(poll) => Duration::from_secs(poll.wait_s.into()),
                _ => Duration::ZERO,
            };
        let (answer, reply) = oneshot::channel();
        let asked = async {
            self.commands.send(Command::Call { by: self.by, request, answer }).await.map_err(|_| CallError::Stopped)?;
            reply.await.map_err(|_| CallError::Stopped)?
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(result) => result,
            Err(_) => Err(CallError::TimedOut { seconds: limit.as_secs() }),
        }
    }
}

impl GatewayClient for DispatcherHandle {
    async fn call<C: ManagementCall + Send>(&self, request: C) -> Result<C::Reply, CallError> {
        let value = self.pass_on(request.into()).await?;
        serde_json::from_value(value).map_err(|error| CallError::Unreadable(error.to_string()))
    }
}
