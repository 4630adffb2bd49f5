//! Records a run's steps and requests in the store, for the turn.

use std::time::Duration;

use deskgate_assistant::ModelError;
use deskgate_definition::tool::{EndedCall, PlannedCall};
use deskgate_definition::{BudgetStatus, ExpectedCall, ModelFailure};
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::ApprovalResolution;
use deskgate_protocol::ids::{ApprovalId, EndpointId};
use deskgate_store::approvals::ApprovalState;
use deskgate_store::ledger::{IntentBasis, RequestDetails};
use deskgate_store::spending::{Spending, this_month};
use deskgate_store::{Error, Ledger};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::Job;
use super::turn::{ApprovalAnswer, ApprovalRequest, CallBasis, TurnEvent};

/// The ledger of one attempt, and the details of its requests.
pub(super) struct RunRecorder {
    ledger: Ledger,
    endpoint_id: EndpointId,
    service: String,
    provider: String,
    model: String,
    subject: Option<String>,
    expiry: Duration,
    /// Cancelled when requests no longer wait for a decision.
    leaving: CancellationToken,
}

impl RunRecorder {
    pub(super) fn of(job: &Job, ledger: Ledger) -> Self {
        Self {
            ledger,
            endpoint_id: job.offer.endpoint_id,
            service: job.definition.name.clone(),
            provider: job.definition.provider.to_string(),
            model: job.definition.model.clone(),
            subject: job.offer.subject.clone(),
            expiry: Duration::from_secs(job.definition.approvals.expiry_s.into()),
            leaving: job.leaving.clone(),
        }
    }

    /// Sets an expiry outside of a definition's range, for tests.
    #[cfg(test)]
    pub(super) fn waiting(self, expiry: Duration) -> Self {
        Self { expiry, ..self }
    }

    pub(super) fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, TurnEvent> {
        let ApprovalRequest { call, why, follows } = request;
        let (endpoint_id, expiry, ledger) = (self.endpoint_id, self.expiry, self.ledger.clone());
        let (service, subject) = (self.service.clone(), self.subject.clone());
        async move {
            let asking = RequestDetails { endpoint_id, service, subject, why, follows, expiry };
            written(ledger.ask(call, asking).await, |(approval_id, expires_at)| TurnEvent::Asked {
                approval_id,
                expires_at,
            })
        }
        .boxed()
    }

    /// A request whose answer cannot be read expires on disk too, so that it is not decided later. If that cannot be
    /// written either, the run ends. A person may take days: an agent that is about to end stops the run instead.
    pub(super) fn answer(&self, approval_id: ApprovalId) -> BoxFuture<'static, TurnEvent> {
        let (ledger, longest, leaving) = (self.ledger.clone(), self.expiry, self.leaving.clone());
        async move {
            let answered = tokio::select! {
                biased;
                () = leaving.cancelled() => return TurnEvent::Stop,
                answered = ledger.answer(approval_id, longest) => answered,
            };
            let ended = match answered {
                Ok(approval) => Ok((approval.state, approval.reason)),
                Err(error) => {
                    tracing::error!(%approval_id, %error, "the answer to a request cannot be read; the request ends");
                    ledger.expire(approval_id).await.map(|state| (state, None))
                }
            };
            written(ended, |(state, reason)| {
                TurnEvent::Answered(match state {
                    ApprovalState::Approved => ApprovalAnswer::Once,
                    ApprovalState::ApprovedForRun => ApprovalAnswer::ForRun,
                    ApprovalState::Denied => ApprovalAnswer::Denied { reason },
                    ApprovalState::Waiting | ApprovalState::Expired | ApprovalState::Withdrawn => {
                        ApprovalAnswer::Expired
                    }
                })
            })
        }
        .boxed()
    }

    /// How the request ended. If that cannot be recorded, the end of the run does it.
    pub(super) async fn withdraw(&self, approval_id: ApprovalId) -> ApprovalResolution {
        match self.ledger.withdraw(approval_id).await {
            Ok(ApprovalState::Approved | ApprovalState::ApprovedForRun) => ApprovalResolution::Approved,
            Ok(ApprovalState::Denied) => ApprovalResolution::Denied,
            Ok(ApprovalState::Expired) => ApprovalResolution::Expired,
            Ok(ApprovalState::Waiting | ApprovalState::Withdrawn) => ApprovalResolution::Withdrawn,
            Err(error) => {
                tracing::warn!(%approval_id, %error, "a request could not be taken back yet");
                ApprovalResolution::Withdrawn
            }
        }
    }

    /// Keeps why an approved call was not carried out. If that cannot be written, only the owner knows less.
    pub(super) async fn not_done(&self, approval_id: ApprovalId, why: String) {
        if let Err(error) = self.ledger.not_done(approval_id, why).await {
            tracing::warn!(%approval_id, %error, "why an approved call was not carried out could not be kept");
        }
    }

    pub(super) fn begin(&self, call: PlannedCall, basis: CallBasis) -> BoxFuture<'static, TurnEvent> {
        let ledger = self.ledger.clone();
        let by = match basis {
            CallBasis::Rules => IntentBasis::Rules,
            CallBasis::Approval(approval_id) => IntentBasis::Approval(approval_id),
            CallBasis::Grant(approval_id) => IntentBasis::Grant(approval_id),
        };
        async move {
            match ledger.begin(call, by).await {
                Err(Error::AsksFirst) => TurnEvent::AsksFirst,
                begun => written(begun, |()| TurnEvent::Begun),
            }
        }
        .boxed()
    }

    /// Keeps why the model could not be used. If that cannot be written, only the owner knows less.
    pub(super) async fn keep_failure(&self, error: ModelError) {
        let failure = ModelFailure {
            at: Timestamp::now(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            message: error.message,
            detail: error.detail.map(|detail| *detail).unwrap_or_default(),
        };
        if let Err(error) = self.ledger.keep_model_failure(failure).await {
            tracing::warn!(%error, "why the model failed could not be kept");
        }
    }

    /// How many tokens the budgets of the month let a model call write, or what happens in its place.
    pub(super) async fn reserve(&self, call: ExpectedCall) -> Result<u64, TurnEvent> {
        let budgets = self.ledger.budgets(self.endpoint_id, this_month()).await.map_err(|error| {
            tracing::error!(%error, "the budgets cannot be read; the run ends");
            TurnEvent::NotWritten
        })?;
        let mut least = u64::MAX;
        for BudgetStatus { budget, spent, scope } in &budgets {
            least = least.min(budget.room(spent, &call).ok_or(TurnEvent::BudgetReached(*scope))?);
        }
        Ok(least)
    }

    /// Counts what model calls used up. If that cannot be written, only the owner knows less.
    pub(super) async fn spend(&self, spent: Spending) {
        self.ledger.spend(self.endpoint_id, this_month(), spent).await;
    }

    /// Keeps a call with its end. If that cannot be written, only the owner knows less.
    pub(super) async fn keep_call(&self, call: EndedCall) {
        self.ledger.end_call(call).await;
    }

    pub(super) fn note(&self, call_id: String, ok: bool) -> BoxFuture<'static, TurnEvent> {
        let ledger = self.ledger.clone();
        async move { written(ledger.note(call_id, ok).await, |()| TurnEvent::Noted) }.boxed()
    }
}

fn written<T>(result: Result<T, Error>, event: impl FnOnce(T) -> TurnEvent) -> TurnEvent {
    match result {
        Ok(value) => event(value),
        Err(error) => {
            tracing::error!(%error, "the journal could not be written; the run ends");
            TurnEvent::NotWritten
        }
    }
}
