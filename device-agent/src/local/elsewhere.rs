//! Applications of other gateways whose services are on this computer: listed, and made again at the present gateway.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use deskgate_definition::Service;
use deskgate_protocol::ApplicationId;
use deskgate_protocol::management::{Application, ApplicationState, CreateApplication, CreatedKey, ListApplications};
use deskgate_store::Setting;
use serde::{Deserialize, Serialize};

use super::error_reply::{not_found, refused};
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::settings::{ConnectionSettings, Mode};

/// What is known of applications that have services here, also while their gateway is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KnownApplications(BTreeMap<ApplicationId, KnownApplication>);

/// An application, as its gateway named it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownApplication {
    name: String,
    gateway: String,
}

impl Setting for KnownApplications {
    const NAME: &'static str = "known_applications";
}

/// Lists applications of other gateways that have services here.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListElsewhere {}

/// An application of another gateway, and its services here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ElsewhereApplication {
    /// Its identifier there.
    pub app_id: ApplicationId,
    /// Its name there.
    pub name: String,
    /// Its gateway, in words.
    pub gateway: String,
    /// Its services.
    pub services: Vec<Service>,
    /// Whether each of its services has one of the same name at the present gateway, under an application of the same name.
    pub is_copied: bool,
}

impl TypedRequest for ListElsewhere {
    type Response = Vec<ElsewhereApplication>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Self::Response, ErrorReply> {
        let present = handler.glance(ListApplications {}).await?;
        handler.elsewhere(&present).await
    }
}

/// Makes an application of another gateway again at the present one, with drafts of its services. One that has the name there is
/// used, and what it has already is left as it is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CopyApplication {
    /// Its identifier at the other gateway.
    pub app_id: ApplicationId,
}

/// An application that was made again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopiedApplication {
    /// The application at the present gateway.
    pub application: Application,
    /// Its first key, which is shown only this once; absent if the application was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CreatedKey>,
    /// The services that were made: drafts, to be checked and published.
    pub services: Vec<Service>,
}

impl TypedRequest for CopyApplication {
    type Response = CopiedApplication;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<CopiedApplication, ErrorReply> {
        let _turn = handler.publication_turn.lock().await;
        let present = handler.manage(ListApplications {}).await?;
        let found = handler.elsewhere(&present).await?.into_iter().find(|found| found.app_id == self.app_id);
        let from = found.ok_or_else(|| {
            not_found(format!("there is no application {} of another gateway; see: deskgate service list", self.app_id))
        })?;
        let (application, key) = match active(&present, &from.name) {
            Some(application) => (application.clone(), None),
            None => {
                let created = handler.manage(CreateApplication { name: from.name.clone() }).await?;
                (created.application, Some(created.key))
            }
        };
        let app_id = application.app_id;
        let there = names_of(&handler.store.services().list().await?, app_id);
        let manager = handler.services(asker)?;
        let mut services = Vec::new();
        for service in from.services.into_iter().filter(|service| !there.contains(&service.draft.name)) {
            match manager.duplicate(service.draft_id, service.draft.name, app_id).await {
                Ok(service) => services.push(service),
                // The key is shown only this once, so it is told all the same. The rest is made when it is asked for again.
                Err(error) if key.is_some() => {
                    tracing::warn!(%app_id, %error, "a service of another gateway could not be made here");
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if key.is_none() && services.is_empty() {
            return Err(refused(format!("the application {} and its services are at this gateway already", from.name)));
        }
        Ok(CopiedApplication { application, key, services })
    }
}

impl RequestHandler {
    /// Notes what is known of the applications of the present gateway that have services here.
    pub(super) async fn remember_applications(&self, present: &[Application]) -> Result<(), ErrorReply> {
        let connection = self.connection().await?;
        let settings = self.store.settings();
        let services = self.store.services().list().await?;
        let owners: BTreeSet<_> = services.iter().map(|service| service.app_id).collect();
        let mut known = settings.get::<KnownApplications>().await?;
        let before = known.clone();
        known.0.retain(|app_id, _| owners.contains(app_id));
        for app in present.iter().filter(|app| owners.contains(&app.app_id)) {
            known.0.insert(app.app_id, KnownApplication { name: app.name.clone(), gateway: gateway(&connection) });
        }
        if known != before {
            settings.set(&known).await?;
        }
        Ok(())
    }

    /// The applications that were last known at another gateway than the present one.
    pub(super) async fn applications_elsewhere(&self) -> Result<BTreeMap<ApplicationId, KnownApplication>, ErrorReply> {
        let here = gateway(&self.connection().await?);
        let mut known = self.store.settings().get::<KnownApplications>().await?.0;
        known.retain(|_, app| app.gateway != here);
        Ok(known)
    }

    async fn elsewhere(&self, present: &[Application]) -> Result<Vec<ElsewhereApplication>, ErrorReply> {
        let services = self.store.services().list().await?;
        let away = self.applications_elsewhere().await?.into_iter();
        let found = away.filter(|(app_id, _)| !present.iter().any(|app| app.app_id == *app_id));
        let found = found.map(|(app_id, KnownApplication { name, gateway })| {
            let own: Vec<_> = services.iter().filter(|service| service.app_id == app_id).cloned().collect();
            let there = active(present, &name).map(|app| names_of(&services, app.app_id)).unwrap_or_default();
            let is_copied = own.iter().all(|service| there.contains(&service.draft.name));
            ElsewhereApplication { app_id, name, gateway, services: own, is_copied }
        });
        Ok(found.filter(|app| !app.services.is_empty()).collect())
    }
}

fn active<'a>(present: &'a [Application], name: &str) -> Option<&'a Application> {
    present.iter().find(|app| app.state == ApplicationState::Active && app.name == name)
}

fn names_of(services: &[Service], app_id: ApplicationId) -> HashSet<String> {
    services.iter().filter(|service| service.app_id == app_id).map(|service| service.draft.name.clone()).collect()
}

/// The gateway that a connection leads to, in words.
fn gateway(connection: &ConnectionSettings) -> String {
    match connection.mode {
        Mode::BuiltIn => "the built-in gateway".to_owned(),
        Mode::Remote => connection.saved.remote.ssh_address.clone(),
        Mode::Hosted => connection.saved.hosted.gateway_address.clone(),
    }
}
