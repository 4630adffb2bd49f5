//! Publishing: freezing a checked draft as a numbered version that callers may use.
//!
//! The version is frozen on this device *before* the gateway is asked, under an endpoint that was
//! chosen before too. So a request whose answer was lost is repeated as it was and publishes once,
//! and an offer for a version whose confirmation is still under way finds its definition.

use deskgate_definition::{CheckResult, Service};
use deskgate_protocol::ids::DraftId;
use deskgate_protocol::management::{ListEndpoints, ManagementErrorCode, PublishEndpoint};
use deskgate_store::services::{FreezeOutcome, FrozenVersion};

use super::{CallError, Error, GatewayClient, ServiceManager};

impl<G: GatewayClient> ServiceManager<G> {
    /// Publishes the draft. Refused unless every check of exactly this definition passed. Doing it
    /// again without a change publishes nothing new.
    pub async fn publish(&self, draft_id: DraftId) -> Result<Service, Error> {
        let service = self.show(draft_id).await?;
        let report = match &service.checks {
            Some(report) if report.definition_sha256 == service.draft.digest() => report,
            _ => return Err(Error::NotChecked(draft_id)),
        };
        if let Some(failed) = report.checks.iter().find(|check| check.verdict == CheckResult::Fail) {
            let next = failed.next.clone().unwrap_or_default();
            return Err(Error::CheckFailed { draft_id, cause: failed.cause.clone(), next });
        }
        loop {
            match self.store.freeze(draft_id, &service.draft, report).await? {
                FreezeOutcome::Gone => return Err(Error::NotFound(draft_id)),
                FreezeOutcome::Frozen(frozen) => {
                    self.announce(&service, frozen).await?;
                    return self.show(draft_id).await;
                }
                FreezeOutcome::Unsettled(other) => self.settle(other).await?,
            }
        }
    }

    async fn announce(&self, service: &Service, frozen: FrozenVersion) -> Result<(), Error> {
        let request = PublishEndpoint {
            app_id: service.app_id,
            endpoint_id: frozen.endpoint_id,
            version: frozen.version,
            name: service.draft.name.clone(),
            description: service.draft.description.clone(),
            definition_sha256: frozen.digest,
        };
        match self.gateway.call(request).await {
            Ok(published) => Ok(self.store.confirm(&frozen, published.published_at).await?),
            Err(CallError::Refused(refused)) if refused.code != ManagementErrorCode::Unavailable => {
                // A clear no: nothing was published, so the number is free for another try.
                self.store.thaw(&frozen).await?;
                Err(CallError::Refused(refused).into())
            }
            Err(unknown) => Err(unknown.into()),
        }
    }

    /// An earlier publication of another content was never answered: the gateway knows whether it
    /// happened.
    async fn settle(&self, frozen: FrozenVersion) -> Result<(), Error> {
        let endpoints = self.gateway.call(ListEndpoints {}).await?;
        let happened = endpoints.iter().find(|endpoint| {
            endpoint.endpoint_id == frozen.endpoint_id
                && endpoint.version == frozen.version
                && endpoint.definition_sha256 == frozen.digest
        });
        match happened {
            Some(endpoint) => self.store.confirm(&frozen, endpoint.published_at).await?,
            None => self.store.thaw(&frozen).await?,
        }
        Ok(())
    }
}
