//! Requests about the life of services: duplicated, disabled, unpublished, moved to another application, removed.

use std::collections::HashMap;

use deskgate_definition::Service;
use deskgate_protocol::management::{Application, ListApplications, ListEndpoints, PublishedEndpoint};
use deskgate_protocol::{ApplicationId, DraftId};
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::services::ServiceStanding;
use crate::services::life::ServiceEnding;
use crate::services::standing::standings;

/// Saves a draft once more as a new service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DuplicateService {
    /// The service.
    pub draft_id: DraftId,
    /// The name of the new one.
    pub name: String,
    /// The application of the new one.
    pub app_id: ApplicationId,
}

impl TypedRequest for DuplicateService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        Ok(handler.services(asker)?.duplicate(self.draft_id, self.name, self.app_id).await?)
    }
}

/// Enables or disables a published service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EnableService {
    /// The service.
    pub draft_id: DraftId,
    /// Whether it is to accept new work.
    pub enabled: bool,
}

impl TypedRequest for EnableService {
    type Response = PublishedEndpoint;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<PublishedEndpoint, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        Ok(handler.services(asker)?.enable(self.draft_id, self.enabled).await?)
    }
}

/// Asks what ends with a service at the gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PreviewServiceEnding {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for PreviewServiceEnding {
    type Response = ServiceEnding;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<ServiceEnding, ErrorReply> {
        Ok(handler.services(asker)?.preview_ending(self.draft_id).await?)
    }
}

/// Takes a service away from its callers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct UnpublishService {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for UnpublishService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        Ok(handler.services(asker)?.unpublish(self.draft_id).await?)
    }
}

/// Gives a service to another application.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MoveService {
    /// The service.
    pub draft_id: DraftId,
    /// The application.
    pub app_id: ApplicationId,
}

impl TypedRequest for MoveService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        Ok(handler.services(asker)?.give_to(self.draft_id, self.app_id).await?)
    }
}

/// Removes a service. Answered with what it was.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RemoveService {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for RemoveService {
    type Response = Service;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Service, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        Ok(handler.services(asker)?.remove(self.draft_id).await?)
    }
}

/// Gets what the gateway says of each service.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListStandings {}

impl TypedRequest for ListStandings {
    type Response = HashMap<DraftId, ServiceStanding>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Self::Response, ErrorReply> {
        let services = handler.store.services().list().await?;
        let listed = tokio::join!(handler.glance(ListApplications {}), handler.glance(ListEndpoints {}));
        handler.standings(&services, listed.0.ok().as_deref().zip(listed.1.ok().as_deref())).await
    }
}

/// Gets the name of a service as a tool of MCP, as the gateway has it. `None`: it was never published, or the gateway cannot be
/// asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowToolName {
    /// The service.
    pub draft_id: DraftId,
}

impl TypedRequest for ShowToolName {
    type Response = Option<String>;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<Option<String>, ErrorReply> {
        let service = handler.services(asker)?.show(self.draft_id).await?;
        let listed = handler.glance(ListEndpoints {}).await.unwrap_or_default();
        let known = listed.into_iter().find(|endpoint| Some(endpoint.endpoint_id) == service.endpoint_id);
        Ok(known.and_then(|endpoint| endpoint.tool_name))
    }
}

impl RequestHandler {
    /// What the gateway says of services, by what it lists; `None`: it could not be asked.
    pub(super) async fn standings(
        &self,
        services: &[Service],
        listed: Option<(&[Application], &[PublishedEndpoint])>,
    ) -> Result<HashMap<DraftId, ServiceStanding>, ErrorReply> {
        if let Some((applications, _)) = listed {
            self.remember_applications(applications).await?;
        }
        let elsewhere = self.applications_elsewhere().await?.into_keys().collect();
        Ok(standings(services, listed, &elsewhere))
    }
}
