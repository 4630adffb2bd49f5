//! Services: their list, and what is done with the editor's form.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::{Definition, FieldError, Service};
use deskgate_protocol::ids::{ApplicationId, DraftId};
use deskgate_protocol::management::{ApplicationState, ListApplications, ShowApplication};
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::Shape;
use super::live::Topic;
use super::service_editor::ServiceEditor;
use super::service_form;
use super::{PageError, Pages, service_gallery, stages};
use crate::local::{
    CheckService, CreateService, EditService, ElsewhereApplication, ListElsewhere, ListMcpServers, ListServices,
    ListStandings, ServiceStanding, ShowService,
};
use crate::services::folder_listing;

#[derive(Template)]
#[template(path = "services.html")]
struct ServicesPage {
    frame: Frame,
    groups: Vec<ServiceGroup>,
    /// Applications of other gateways.
    elsewhere: Vec<ElsewhereApplication>,
    /// Services whose application has ended, or is known nowhere.
    left: Vec<Service>,
    standings: HashMap<DraftId, ServiceStanding>,
}

/// The services of one application.
struct ServiceGroup {
    app_id: ApplicationId,
    application: String,
    services: Vec<Service>,
}

impl ServicesPage {
    fn standing(&self, service: &Service) -> (Shape, &'static str) {
        stages::standing(service, self.standings.get(&service.draft_id).copied(), self.frame.access())
    }
}

/// `GET /services`
pub(super) async fn list(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let handler = pages.handler();
    let (frame, services, standings, applications, elsewhere) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Services, "Services"),
        handler.request(ListServices {}),
        handler.request(ListStandings {}),
        handler.glance(ListApplications {}),
        handler.request(ListElsewhere {}),
    );
    let (services, elsewhere) = (services?, elsewhere.unwrap_or_default());
    let of = |app_id| services.iter().filter(|service| service.app_id == app_id).cloned().collect();
    let groups: Vec<_> = match applications {
        Ok(applications) => applications
            .into_iter()
            .filter(|app| app.state == ApplicationState::Active)
            .map(|app| ServiceGroup { app_id: app.app_id, services: of(app.app_id), application: app.name })
            .collect(),
        // Without the gateway their names are not known.
        Err(_) => {
            let mut owners: Vec<_> = services.iter().map(|service| service.app_id).collect();
            owners.sort();
            owners.dedup();
            let group =
                |app_id: ApplicationId| ServiceGroup { app_id, services: of(app_id), application: app_id.to_string() };
            owners.into_iter().map(group).collect()
        }
    };
    let is_shown = |app_id| {
        groups.iter().any(|group: &ServiceGroup| group.app_id == app_id)
            || elsewhere.iter().any(|app| app.app_id == app_id)
    };
    let left = services.iter().filter(|service| !is_shown(service.app_id)).cloned().collect();
    let standings = standings.unwrap_or_default();
    Ok(super::html(StatusCode::OK, &ServicesPage { frame, groups, elsewhere, left, standings }))
}

/// The query of the page for a new service.
#[derive(Debug, Default, Deserialize)]
pub(super) struct NewQuery {
    #[serde(default)]
    template: String,
}

/// `GET /applications/{id}/services/new`: the templates, and the editor once one is chosen.
pub(super) async fn ask_new(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    Query(NewQuery { template }): Query<NewQuery>,
) -> Result<Response, PageError> {
    let Some(definition) = service_gallery::chosen(&template) else {
        return service_gallery::show(&pages, &visitor, app_id).await;
    };
    let mut fields = service_form::fields(&definition);
    fields.0.push(("template".to_owned(), template));
    ServiceEditor::blank(app_id, fields).show(&pages, &visitor).await
}

/// `POST /applications/{id}/services/new`
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let mut editor = match ServiceEditor::blank(app_id, fields).take(&pages, &visitor).await? {
        Ok(answer) => return Ok(answer),
        Err(editor) => editor,
    };
    let before = service_gallery::chosen(editor.fields.get("template")).unwrap_or_else(Definition::blank);
    let definition = match read(&pages, &mut editor.fields, &before).await? {
        Ok(definition) => definition,
        Err(wrong) => return ServiceEditor { wrong, ..editor }.show(&pages, &visitor).await,
    };
    // Without an application it could never be published.
    pages.handler().manage(ShowApplication { app_id }).await?;
    let service = pages.handler().request(CreateService { app_id, definition }).await?;
    saved(&pages, service.draft_id, &editor.fields).await
}

/// The query of a service's page.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ServiceQuery {
    #[serde(default)]
    tried: String,
}

/// `GET /services/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    Query(ServiceQuery { tried }): Query<ServiceQuery>,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    ServiceEditor { tried: tried.parse().ok(), ..ServiceEditor::of(service) }.show(&pages, &visitor).await
}

/// `POST /services/{id}`: saves the draft, and checks it if that was the button.
pub(super) async fn edit(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    let (before, now) = (service.draft.clone(), service.draft.digest().to_string());
    let editor = ServiceEditor { fields, ..ServiceEditor::of(service) };
    let mut editor = match editor.take(&pages, &visitor).await? {
        Ok(answer) => return Ok(answer),
        Err(editor) => editor,
    };
    let definition = match read(&pages, &mut editor.fields, &before).await? {
        Ok(definition) if editor.fields.get("was") == now => definition,
        Ok(_) => {
            let problem = "The draft was changed elsewhere after you opened it. Nothing was saved; what you wrote stands \
                           below. Save again to replace that change.";
            let problem = Some(problem.to_owned());
            return ServiceEditor { problem, ..editor }.show(&pages, &visitor).await;
        }
        Err(wrong) => return ServiceEditor { wrong, ..editor }.show(&pages, &visitor).await,
    };
    if definition != before {
        pages.handler().request(EditService { draft_id, definition }).await?;
    }
    saved(&pages, draft_id, &editor.fields).await
}

async fn read(
    pages: &Pages,
    fields: &mut FormFields,
    before: &Definition,
) -> Result<Result<Definition, Vec<FieldError>>, PageError> {
    let secrets = service_form::take_out_secrets(fields);
    if !secrets.is_empty() {
        return Ok(Err(secrets));
    }
    // A folder that was written from `~` is kept, and shown, by its whole path.
    for (name, value) in &mut fields.0 {
        let path = folder_listing::from_home(value, pages.handler().home.as_deref());
        if let Some(path) = path.filter(|_| name == "working_directory") {
            *value = path.display().to_string();
        }
    }
    let servers = pages.handler().request(ListMcpServers {}).await?;
    Ok(service_form::definition(fields, before, &servers).await)
}

async fn saved(pages: &Pages, draft_id: DraftId, fields: &FormFields) -> Result<Response, PageError> {
    pages.live().changed(Topic::Status);
    if fields.get("then") == "check" {
        pages.handler().request(CheckService { draft_id, follower: None }).await?;
        return Ok(Redirect::to(&format!("/services/{draft_id}#checks")).into_response());
    }
    Ok(Redirect::to(&format!("/services/{draft_id}")).into_response())
}

/// `POST /services/{id}/check`: checks the saved draft. Returns when the checks are done.
pub(super) async fn check(State(pages): State<Pages>, Path(draft_id): Path<DraftId>) -> Result<Redirect, PageError> {
    pages.handler().request(CheckService { draft_id, follower: None }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to(&format!("/services/{draft_id}#checks")))
}
