//! A run that the owner requests, to try a published service, or a draft before it is published.

use std::collections::BTreeMap;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{
    ManagementError, ManagementErrorCode, PublishedEndpoint, TransferGrant, TryDraft, TryEndpoint,
};
use deskgate_protocol::run::{Input, Output, Run};
use deskgate_protocol::service::check_name;
use deskgate_protocol::{ApplicationId, EndpointId, FileId};
use serde_json::Value;

use super::{Desktop, DesktopResult, conflict, invalid, not_found, quota_reached};
use crate::domain::admission::RunRequest;
use crate::domain::body_quota::MAX_TEXT_BYTES;
use crate::domain::files::check_list;
use crate::domain::refusal::Refusal;
use crate::domain::transfers::owner;
use crate::domain::typed_data;

/// The owner looks at a trial soon.
const TRIAL_QUEUE_TTL_S: u32 = 3600;
/// The default of callers' runs; the service's own limit holds too.
const TRIAL_DURATION_S: u32 = 3600;

impl Desktop {
    /// Starts a run of a published service, through the same admission as callers' runs.
    ///
    /// # Errors
    /// `Invalid`: the input is empty or too large, or its data does not fit the service's schema. `NotFound`: the device has no such published service. `Conflict`:
    /// access is paused, the service or its application was disabled, or too many of its runs wait. `Unavailable`: the database does
    /// not answer, or refuses the statement.
    pub async fn try_endpoint(&self, request: TryEndpoint) -> DesktopResult<Run> {
        let TryEndpoint { endpoint_id, input, data, files } = request;
        let input = trial_input(input, data)?;
        let unknown = || not_found(format!("this device has no published service {endpoint_id}"));
        let endpoint = self.known(endpoint_id).await?.ok_or_else(unknown)?;
        self.admit_trial(endpoint.app_id, endpoint_id, None, TrialInput { input, files, output: None }).await
    }

    /// Starts a run of a draft, through the same admission. Callers cannot call a draft, whether it is of a published service
    /// or of one that never was.
    ///
    /// # Errors
    /// As of [`try_endpoint`](Self::try_endpoint); also `Invalid`: the name is not usable. `NotFound`: the application is not an
    /// active one of this device, or the service belongs to another one. `QuotaReached`: there are the most services that there may
    /// be.
    pub async fn try_draft(&self, request: TryDraft) -> DesktopResult<Run> {
        let input = trial_input(request.input.clone(), request.data.clone())?;
        check_name(&request.name).map_err(invalid)?;
        if let Some(output) = &request.output {
            typed_data::check_schema(output.schema.clone(), "/output/schema").await.map_err(refused)?;
        }
        let TryDraft { app_id, endpoint_id, definition_sha256, .. } = request;
        let is_noted = match self.known(endpoint_id).await? {
            Some(known) => known.app_id == app_id,
            None => self.store.note_draft(self.owner(), &request).await?.map_err(quota_reached)?,
        };
        if !is_noted {
            return Err(not_found(format!("there is no active application {app_id} with a service {endpoint_id}")));
        }
        let trial = TrialInput { input, files: request.files, output: request.output.map(|output| *output) };
        self.admit_trial(app_id, endpoint_id, Some(definition_sha256), trial).await
    }

    /// A ticket for the owner's own transfers.
    pub fn grant_transfer(&self) -> TransferGrant {
        TransferGrant { ticket: owner::ticket(&self.cipher, self.device_id) }
    }

    async fn known(&self, endpoint_id: EndpointId) -> DesktopResult<Option<PublishedEndpoint>> {
        let own = self.store.published_by(self.device_id).await?;
        Ok(own.into_iter().find(|own| own.endpoint_id == endpoint_id))
    }

    async fn admit_trial(
        &self,
        app_id: ApplicationId,
        endpoint_id: EndpointId,
        draft: Option<Sha256Digest>,
        TrialInput { input, files, output }: TrialInput,
    ) -> DesktopResult<Run> {
        if let Some(flaw) = check_list(&files) {
            return Err(refused(Refusal::Invalid(vec![flaw])));
        }
        let input_json = serde_json::to_string(&input).map_err(|_| refused(Refusal::Internal))?;
        let request = RunRequest {
            files,
            endpoint_id,
            idempotency_key: String::new(),
            fingerprint: Sha256Digest::of(input_json.as_bytes()),
            input,
            input_json,
            output,
            metadata: BTreeMap::new(),
            queue_ttl_s: TRIAL_QUEUE_TTL_S,
            max_duration_s: TRIAL_DURATION_S,
            traceparent: None,
            depth: 0,
        };
        let run = self.admission.admit_own(app_id, draft, request).await.map_err(|refusal| match refusal {
            Refusal::ServiceDisabled => {
                conflict(format!("the service is disabled; enable it with: deskgate service enable {endpoint_id}"))
            }
            other => refused(other),
        })?;
        // The requester has the input already, and a reply has little space.
        Ok(Run { input: None, ..run })
    }
}

/// What a trial is given, and the data that it must answer with.
struct TrialInput {
    input: Input,
    files: Vec<FileId>,
    output: Option<Output>,
}

fn trial_input(text: String, data: Option<Value>) -> DesktopResult<Input> {
    if !(1..=MAX_TEXT_BYTES).contains(&text.len()) {
        return Err(invalid(format!("an input has 1 to {MAX_TEXT_BYTES} bytes; this has {}", text.len())));
    }
    Ok(Input { text, more: data.map(|data| ("data".to_owned(), data)).into_iter().collect() })
}

fn refused(refusal: Refusal) -> ManagementError {
    match refusal {
        Refusal::Invalid(_) | Refusal::SchemaUnsupported(_) => invalid(refusal.to_string()),
        Refusal::AccessPaused => conflict("access is paused; enable it with: deskgate access enable".to_owned()),
        Refusal::ApplicationDisabled | Refusal::QueueFull { .. } => conflict(refusal.to_string()),
        Refusal::NotFound => not_found("the service is not published any more".to_owned()),
        other => ManagementError { code: ManagementErrorCode::Unavailable, message: other.to_string() },
    }
}
