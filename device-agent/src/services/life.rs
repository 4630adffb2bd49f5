//! A service's life after its publication: disabled and enabled, unpublished, moved to another application, removed.
//!
//! The gateway always comes first: what it may still accept or hand out must not be forgotten here. Each step can be
//! repeated if its answer was lost.

use deskgate_definition::{Definition, Service};
use deskgate_program::records::counted;
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId};
use deskgate_protocol::management::{
    ApplicationState, EnableEndpoint, ManagementCall, ManagementErrorCode, PreviewUnpublishing, PublishedEndpoint,
    ShowApplication, UnpublishEndpoint, UnpublishingPreview,
};
use serde::{Deserialize, Serialize};

use super::{CallError, Error, GatewayClient, ServiceManager};

/// What ends at the gateway when a service is taken away from its callers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ServiceEnding {
    /// Nothing: it is not published.
    Nothing,
    /// It is published.
    Published(Box<UnpublishingPreview>),
    /// It was published, and this gateway does not know it.
    Elsewhere,
}

impl ServiceEnding {
    /// What ends, a line for each thing.
    pub fn lines(&self) -> Vec<String> {
        let preview = match self {
            Self::Nothing => return Vec::new(),
            Self::Elsewhere => {
                let line =
                    "This gateway does not know it. Where it was published it stays so, and its runs fail there.";
                return vec![line.to_owned()];
            }
            Self::Published(preview) => preview,
        };
        let UnpublishingPreview { endpoint, runs_queued, runs_in_progress, conversations, keys, webhooks } = &**preview;
        let mut lines = vec![
            format!("{}, closed to callers", endpoint.endpoint_id),
            format!("{}, cancelled", counted(*runs_queued, "queued run")),
            format!("{}, stopped; what was changed stays changed", counted(*runs_in_progress, "started run")),
            format!("{}, closed to new messages", counted(*conversations, "conversation")),
        ];
        if *keys > 0 {
            lines.push(format!("{} limited to it, with nothing left to call", counted(*keys, "key")));
        }
        if *webhooks > 0 {
            lines.push(format!("{}, whose events are refused", counted(*webhooks, "webhook")));
        }
        lines
    }
}

impl<G: GatewayClient> ServiceManager<G> {
    /// What ends with a service.
    ///
    /// # Errors
    /// There is no such service, or the gateway or the database failed.
    pub async fn preview_ending(&self, draft_id: DraftId) -> Result<ServiceEnding, Error> {
        let service = self.show(draft_id).await?;
        let Some(endpoint_id) = service.endpoint_id else { return Ok(ServiceEnding::Nothing) };
        Ok(match self.if_known(PreviewUnpublishing { endpoint_id }).await? {
            Some(preview) if preview.endpoint.closed_at.is_none() => ServiceEnding::Published(Box::new(preview)),
            None if service.published.is_some() => ServiceEnding::Elsewhere,
            _ => ServiceEnding::Nothing,
        })
    }

    /// Saves the draft once more, under another name, as a new service.
    ///
    /// # Errors
    /// The name is wrong, there is no such service, or the database failed.
    pub async fn duplicate(&self, draft_id: DraftId, name: String, app_id: ApplicationId) -> Result<Service, Error> {
        let draft = self.show(draft_id).await?.draft;
        self.create(app_id, Definition { name, ..draft }).await
    }

    /// Lets a published service accept new work, or refuse it. What was accepted is executed.
    ///
    /// # Errors
    /// There is no such service, it was never published, or the gateway or the database failed.
    pub async fn enable(&self, draft_id: DraftId, enabled: bool) -> Result<PublishedEndpoint, Error> {
        let service = self.show(draft_id).await?;
        let endpoint_id = service.published.and(service.endpoint_id).ok_or(Error::NotPublished(draft_id))?;
        let endpoint = self.if_known(EnableEndpoint { endpoint_id, enabled }).await?;
        endpoint.ok_or(Error::NotPublished(draft_id))
    }

    /// Takes a service away from its callers and ends its runs. Its draft stays, and publishing it again brings it back
    /// under the same service ID.
    ///
    /// # Errors
    /// There is no such service, it was never published, or the gateway or the database failed.
    pub async fn unpublish(&self, draft_id: DraftId) -> Result<Service, Error> {
        let service = self.show(draft_id).await?;
        let endpoint_id = service.endpoint_id.ok_or(Error::NotPublished(draft_id))?;
        self.if_known(UnpublishEndpoint { endpoint_id }).await?.ok_or(Error::NotPublished(draft_id))?;
        self.store.unpublish(draft_id).await?;
        self.show(draft_id).await
    }

    /// Unpublishes a service, and removes it from this computer.
    ///
    /// # Errors
    /// There is no such service, or the gateway or the database failed.
    pub async fn remove(&self, draft_id: DraftId) -> Result<Service, Error> {
        let service = self.show(draft_id).await?;
        self.take_away(service.endpoint_id).await?;
        self.store.remove(draft_id).await?;
        Ok(service)
    }

    /// Unpublishes a service, and gives its draft to another application, where it can be published.
    ///
    /// # Errors
    /// There is no such service, the application is not active, or the gateway or the database failed.
    pub async fn give_to(&self, draft_id: DraftId, app_id: ApplicationId) -> Result<Service, Error> {
        let service = self.show(draft_id).await?;
        if service.app_id == app_id {
            return Ok(service);
        }
        let application = self.gateway.call(ShowApplication { app_id }).await?;
        if application.state != ApplicationState::Active {
            return Err(Error::NotActive { name: application.name, state: application.state.as_str() });
        }
        self.take_away(service.endpoint_id).await?;
        self.store.give_to(draft_id, app_id).await?;
        self.show(draft_id).await
    }

    /// Unpublishes at the gateway, if it ever heard of it.
    async fn take_away(&self, endpoint_id: Option<EndpointId>) -> Result<(), Error> {
        let Some(endpoint_id) = endpoint_id else { return Ok(()) };
        self.if_known(UnpublishEndpoint { endpoint_id }).await?;
        Ok(())
    }

    /// The reply about a service; `None` if the gateway does not know it.
    async fn if_known<C: ManagementCall + Send>(&self, request: C) -> Result<Option<C::Reply>, CallError> {
        match self.gateway.call(request).await {
            Ok(reply) => Ok(Some(reply)),
            Err(CallError::Refused(no)) if no.code == ManagementErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
