//! A run that the owner requests, to try a published service.

use std::collections::BTreeMap;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{ManagementError, ManagementErrorCode, TryEndpoint};
use deskgate_protocol::run::{Input, Run};

use super::{Desktop, DesktopResult, conflict, invalid, not_found};
use crate::domain::admission::RunRequest;
use crate::domain::body_quota::MAX_TEXT_BYTES;
use crate::domain::refusal::Refusal;

/// The owner looks at a trial soon.
const TRIAL_QUEUE_TTL_S: u32 = 3600;
/// The default of callers' runs; the service's own limit holds too.
const TRIAL_DURATION_S: u32 = 3600;

impl Desktop {
    /// Starts a run of a published service, through the same admission as callers' runs.
    ///
    /// # Errors
    /// `Invalid`: the input is empty or too large. `NotFound`: the device has no such published service. `Conflict`:
    /// access is paused, the service or its application was disabled, or too many of its runs wait. `Unavailable`: the database does
    /// not answer, or refuses the statement.
    pub async fn try_endpoint(&self, request: TryEndpoint) -> DesktopResult<Run> {
        let TryEndpoint { endpoint_id, input: text } = request;
        if !(1..=MAX_TEXT_BYTES).contains(&text.len()) {
            return Err(invalid(format!("an input has 1 to {MAX_TEXT_BYTES} bytes; this has {}", text.len())));
        }
        let own = self.store.published_by(self.device_id).await?;
        let unknown = || not_found(format!("this device has no published service {endpoint_id}"));
        let endpoint = own.into_iter().find(|own| own.endpoint_id == endpoint_id).ok_or_else(unknown)?;
        let input = Input { text, more: serde_json::Map::new() };
        let input_json = serde_json::to_string(&input).map_err(|_| refused(Refusal::Internal))?;
        let request = RunRequest {
            endpoint_id,
            idempotency_key: String::new(),
            fingerprint: Sha256Digest::of(input_json.as_bytes()),
            input,
            input_json,
            metadata: BTreeMap::new(),
            queue_ttl_s: TRIAL_QUEUE_TTL_S,
            max_duration_s: TRIAL_DURATION_S,
            traceparent: None,
        };
        let run = self.admission.admit_own(endpoint.app_id, request).await.map_err(|refusal| match refusal {
            Refusal::ServiceDisabled => {
                conflict(format!("the service is disabled; enable it with: deskgate service enable {endpoint_id}"))
            }
            other => refused(other),
        })?;
        // The requester has the input already, and a reply has little space.
        Ok(Run { input: None, ..run })
    }
}

fn refused(refusal: Refusal) -> ManagementError {
    match refusal {
        Refusal::AccessPaused => conflict("access is paused; enable it with: deskgate access enable".to_owned()),
        Refusal::ApplicationDisabled | Refusal::QueueFull { .. } => conflict(refusal.to_string()),
        Refusal::NotFound => not_found("the service is not published any more".to_owned()),
        other => ManagementError { code: ManagementErrorCode::Unavailable, message: other.to_string() },
    }
}
