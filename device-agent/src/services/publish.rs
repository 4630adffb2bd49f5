//! Publishing: freezing a checked draft as a numbered version that callers may use.
//!
//! The version is frozen on this device *before* the gateway is called, under an endpoint that was chosen before too.
//! So a request whose answer was lost is repeated unchanged and publishes once, and an offer for a version with an
//! outstanding confirmation finds its definition.

use deskgate_definition::Service;
use deskgate_protocol::ids::DraftId;
use deskgate_protocol::management::{ListEndpoints, ManagementErrorCode, PublishEndpoint};
use deskgate_store::services::{FreezeOutcome, FrozenVersion};

use super::{CallError, Error, GatewayClient, ServiceManager};

impl<G: GatewayClient> ServiceManager<G> {
    /// Publishes the draft, if every check of exactly this definition passed. Publishing an unchanged draft again has
    /// no effect.
    ///
    /// # Errors
    /// The draft is not checked, a check failed, there is no such service, or the gateway or the database failed.
    pub async fn publish(&self, draft_id: DraftId) -> Result<Service, Error> {
        let service = self.show(draft_id).await?;
        let report = super::trials::passed(&service)?;
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
            data: Box::new(service.draft.published_data()),
        };
        match self.gateway.call(request).await {
            Ok(published) => Ok(self.store.confirm(&frozen, published.published_at).await?),
            Err(CallError::Refused(refused)) if refused.code != ManagementErrorCode::Unavailable => {
                // A definite refusal: the version was not published, so its number is free again.
                self.store.thaw(&frozen).await?;
                Err(CallError::Refused(refused).into())
            }
            Err(unknown) => Err(unknown.into()),
        }
    }

    /// Settles an earlier publication of another content without an answer: the gateway knows whether it happened.
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
