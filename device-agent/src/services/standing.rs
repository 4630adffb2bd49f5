//! What the gateway knows of a service, which the device alone cannot tell: applications are disabled and removed there,
//! and another gateway knows nothing of what was published at the one before.

use std::collections::{HashMap, HashSet};

use deskgate_definition::{Service, ServiceStage};
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId};
use deskgate_protocol::management::{Application, ApplicationState, PublishedEndpoint};

deskgate_protocol::words! {
    /// What the gateway says of a service.
    pub enum ServiceStanding {
        /// Its callers can use it, while access is enabled.
        Published = "published",
        /// It is published, and its owner disabled it.
        Disabled = "disabled",
        /// It is not published.
        Unpublished = "unpublished",
        /// Its application was disabled or removed, or is unknown at this gateway, so it can never be published here.
        Ended = "ended",
        /// It belongs to another gateway, and this one does not know it.
        Elsewhere = "elsewhere",
        /// The gateway could not be asked.
        Unknown = "unknown",
    }
}

impl ServiceStanding {
    /// Whether it can never be published at this gateway as it is.
    pub fn is_out_of_reach(self) -> bool {
        matches!(self, Self::Ended | Self::Elsewhere)
    }

    /// Whether callers of this gateway cannot use it, whatever the device alone says.
    pub fn has_ended(self) -> bool {
        self.is_out_of_reach() || self == Self::Unpublished
    }

    /// The standing in a sentence; `None` if there is nothing to add to the stage.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::Published | Self::Unpublished => None,
            Self::Disabled => Some("disabled: new calls are refused"),
            Self::Ended => Some("its application has ended or is not known at this gateway: nothing can call it"),
            Self::Elsewhere => Some("it belongs to another gateway, and this one does not know it"),
            Self::Unknown => Some("the gateway cannot be asked at the moment"),
        }
    }
}

/// The stage of a service in a word, as far as the gateway bears it out.
pub fn stage(service: &Service, standing: Option<ServiceStanding>) -> &'static str {
    match (service.stage(), standing) {
        (_, Some(ServiceStanding::Ended)) => "ended",
        (_, Some(ServiceStanding::Elsewhere)) => "elsewhere",
        (ServiceStage::Published, Some(ServiceStanding::Disabled)) => "disabled",
        (ServiceStage::Published, Some(ServiceStanding::Unpublished)) => "unpublished",
        (ServiceStage::Published, _) => "published",
        (ServiceStage::Checked, _) => "checked",
        (ServiceStage::Draft, _) => "draft",
    }
}

/// The standing of each service, by what the gateway lists; `None`: it could not be asked. `elsewhere`: applications that other
/// gateways were known to have.
pub fn standings(
    services: &[Service],
    listed: Option<(&[Application], &[PublishedEndpoint])>,
    elsewhere: &HashSet<ApplicationId>,
) -> HashMap<DraftId, ServiceStanding> {
    let Some((applications, endpoints)) = listed else {
        return services.iter().map(|service| (service.draft_id, ServiceStanding::Unknown)).collect();
    };
    let active: HashMap<ApplicationId, bool> =
        applications.iter().map(|app| (app.app_id, app.state == ApplicationState::Active)).collect();
    let known: HashMap<EndpointId, &PublishedEndpoint> =
        endpoints.iter().map(|endpoint| (endpoint.endpoint_id, endpoint)).collect();
    let standing = |service: &Service| {
        let endpoint = service.endpoint_id.and_then(|endpoint_id| known.get(&endpoint_id));
        match endpoint {
            _ if active.get(&service.app_id) == Some(&false) => ServiceStanding::Ended,
            None if service.published.is_some() => ServiceStanding::Elsewhere,
            _ if !active.contains_key(&service.app_id) && elsewhere.contains(&service.app_id) => {
                ServiceStanding::Elsewhere
            }
            _ if !active.contains_key(&service.app_id) => ServiceStanding::Ended,
            Some(endpoint) if endpoint.closed_at.is_some() => ServiceStanding::Unpublished,
            Some(endpoint) if endpoint.disabled_at.is_some() => ServiceStanding::Disabled,
            Some(_) => ServiceStanding::Published,
            None => ServiceStanding::Unpublished,
        }
    };
    services.iter().map(|service| (service.draft_id, standing(service))).collect()
}
