//! Trying a checked draft before it is published.

use deskgate_definition::{CheckReport, CheckResult, Service};
use deskgate_protocol::file::{File, InputFile};
use deskgate_protocol::ids::DraftId;
use deskgate_protocol::management::{ManagementErrorCode, ShowRun, TryDraft};
use deskgate_protocol::run::{Input, Run};

use serde_json::Value;

use super::{CallError, Error, GatewayClient, ServiceManager};

impl<G: GatewayClient> ServiceManager<G> {
    /// Starts a run of the draft with this input. Callers cannot call it. The draft is prepared for exactly this input first, so
    /// that the gateway can have nothing else executed by it.
    ///
    /// # Errors
    /// The draft is not checked, a check failed, its last test run has not ended, there is no such service, or the gateway or the
    /// database failed.
    pub async fn try_draft(
        &self,
        draft_id: DraftId,
        text: String,
        data: Option<Value>,
        files: &[File],
    ) -> Result<Run, Error> {
        let service = self.show(draft_id).await?;
        let report = passed(&service)?;
        self.await_last_trial(&service).await?;
        let given = (!files.is_empty()).then(|| serde_json::to_value(InputFile::list(files)).expect("files are JSON"));
        let more = [("data", data.clone()), ("files", given)];
        let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let input = Input { text: text.clone(), more };
        let prepared = self.store.prepare_trial(draft_id, &service.draft, report, &input).await?;
        let trial = prepared.ok_or(Error::NotFound(draft_id))?;
        let request = TryDraft {
            app_id: service.app_id,
            endpoint_id: trial.endpoint_id,
            name: service.draft.name.clone(),
            definition_sha256: trial.digest,
            input: text,
            data,
            files: files.iter().map(|file| file.file_id).collect(),
            output: service.draft.data.output().map(Box::new),
        };
        let run = self.gateway.call(request).await?;
        // Its offer may have been faster.
        self.store.claim_trial(&trial, &input, run.run_id).await?;
        Ok(run)
    }

    /// A run that has not ended needs its draft, also after a restart of the agent.
    async fn await_last_trial(&self, service: &Service) -> Result<(), Error> {
        let Some(endpoint_id) = service.endpoint_id else { return Ok(()) };
        let Some(run_id) = self.store.last_trial(endpoint_id).await? else { return Ok(()) };
        match self.gateway.call(ShowRun::without_events(run_id)).await {
            Ok(detail) if !detail.run.state.successors().is_empty() => Err(Error::TrialUnderWay(run_id)),
            Ok(_) => Ok(()),
            Err(CallError::Refused(no)) if no.code == ManagementErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The checks of exactly this draft, all of which passed.
pub(super) fn passed(service: &Service) -> Result<&CheckReport, Error> {
    let draft_id = service.draft_id;
    let report = service.checks.as_ref().filter(|report| report.definition_sha256 == service.draft.digest());
    let report = report.ok_or(Error::NotChecked(draft_id))?;
    match report.checks.iter().find(|check| check.verdict == CheckResult::Fail) {
        None => Ok(report),
        Some(failed) => {
            let next = failed.next.clone().unwrap_or_default();
            Err(Error::CheckFailed { draft_id, cause: failed.cause.clone(), next })
        }
    }
}
