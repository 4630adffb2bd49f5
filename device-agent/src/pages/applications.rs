//! Applications: the list, one of them, and the steps from its creation to its removal.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::Service;
use deskgate_protocol::ids::{ApplicationId, DraftId};
use deskgate_protocol::management::{
    Application, ApplicationState, CompleteDisabling, CreateApplication, DisableApplication, DisablingPreview,
    ListApplications, ListKeys, ListRemoved, PreviewDisabling, RemoveApplication, RemovedApplication, ShowApplication,
};

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::keys::{self, KeyRow};
use super::labels::{CountLabel, Shape, TimeLabel};
use super::live::Topic;
use super::stages::{self, StageStep};
use super::{PageError, Pages};
use crate::local::{CopyApplication, ErrorReplyCode, ListServices, ListStandings, ServiceStanding};

/// An application's state in shape and word.
pub(super) fn state(app: &Application) -> (Shape, &'static str) {
    match app.state {
        ApplicationState::Active => (Shape::Good, "Active"),
        ApplicationState::Disabling => (Shape::Waiting, "Disabling"),
        ApplicationState::Disabled => (Shape::Over, "Disabled"),
        ApplicationState::Removed => (Shape::Over, "Removed"),
    }
}

#[derive(Template)]
#[template(path = "applications.html")]
struct ApplicationsPage {
    frame: Frame,
    rows: Vec<ApplicationRow>,
}

/// One application in the list.
struct ApplicationRow {
    app: Application,
    services: usize,
}

impl ApplicationRow {
    fn state(&self) -> (Shape, &'static str) {
        state(&self.app)
    }
}

/// `GET /applications`
pub(super) async fn list(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let frame = Frame::new(&pages, &visitor, Section::Applications, "Applications").await;
    let applications = pages.handler().manage(ListApplications {}).await?;
    let services = pages.handler().request(ListServices {}).await?;
    let services_of = |app_id| services.iter().filter(|service| service.app_id == app_id).count();
    let rows = applications.into_iter().map(|app| ApplicationRow { services: services_of(app.app_id), app }).collect();
    Ok(super::html(StatusCode::OK, &ApplicationsPage { frame, rows }))
}

#[derive(Template)]
#[template(path = "application-new.html")]
struct NewApplicationPage {
    frame: Frame,
    name: String,
    problem: Option<String>,
}

/// `GET /applications/new`
pub(super) async fn ask_new(State(pages): State<Pages>, visitor: Visitor) -> Response {
    let frame = Frame::new(&pages, &visitor, Section::Applications, "New application").await;
    super::html(StatusCode::OK, &NewApplicationPage { frame, name: String::new(), problem: None })
}

/// `POST /applications/new`: shows the first key, once.
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let name = fields.get("name").trim().to_owned();
    match pages.handler().manage(CreateApplication { name: name.clone() }).await {
        Ok(created) => {
            pages.live().changed(Topic::Status);
            Ok(keys::shown_once(&pages, &visitor, &created.application.name, created.key).await)
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let frame = Frame::new(&pages, &visitor, Section::Applications, "New application").await;
            Ok(super::html(
                StatusCode::UNPROCESSABLE_ENTITY,
                &NewApplicationPage { frame, name, problem: Some(no.message) },
            ))
        }
        Err(no) => Err(no.into()),
    }
}

/// `POST /applications/{id}/copy`: makes an application of another gateway again, and shows its first key, once.
pub(super) async fn copy(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let copied = pages.handler().request(CopyApplication { app_id }).await?;
    pages.live().changed(Topic::Status);
    Ok(match copied.key {
        Some(key) => keys::shown_once(&pages, &visitor, &copied.application.name, key).await,
        None => Redirect::to(&format!("/applications/{}", copied.application.app_id)).into_response(),
    })
}

#[derive(Template)]
#[template(path = "application.html")]
struct ApplicationPage {
    frame: Frame,
    app: Application,
    services: Vec<Service>,
    standings: HashMap<DraftId, ServiceStanding>,
    keys: Vec<KeyRow>,
}

impl ApplicationPage {
    fn state(&self) -> (Shape, &'static str) {
        state(&self.app)
    }

    fn active(&self) -> bool {
        self.app.state == ApplicationState::Active
    }

    fn bar(&self, service: &Service) -> Vec<StageStep> {
        stages::bar(service, self.standings.get(&service.draft_id).copied(), self.frame.access())
    }

    /// Whether disabling can be completed, that is, nothing is outstanding.
    fn completable(&self) -> bool {
        self.app.outstanding.is_none_or(|left| left.is_none())
    }
}

/// `GET /applications/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let app = pages.handler().manage(ShowApplication { app_id }).await?;
    let section = if app.state == ApplicationState::Removed { Section::Removed } else { Section::Applications };
    let frame = Frame::new(&pages, &visitor, section, app.name.clone()).await;
    let keys = pages.handler().manage(ListKeys { app_id }).await?;
    let mut services = pages.handler().request(ListServices {}).await?;
    services.retain(|service| service.app_id == app_id);
    let standings = pages.handler().request(ListStandings {}).await?;
    let keys = keys.into_iter().map(KeyRow::new).collect();
    Ok(super::html(StatusCode::OK, &ApplicationPage { frame, app, services, standings, keys }))
}

#[derive(Template)]
#[template(path = "application-disable.html")]
struct DisableQuestion {
    frame: Frame,
    preview: DisablingPreview,
    problem: Option<String>,
}

/// `GET /applications/{id}/disable`: the question before it, with the numbers.
pub(super) async fn ask_disable(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    question(&pages, &visitor, app_id, None).await
}

async fn question(
    pages: &Pages,
    visitor: &Visitor,
    app_id: ApplicationId,
    problem: Option<String>,
) -> Result<Response, PageError> {
    let preview = pages.handler().manage(PreviewDisabling { app_id }).await?;
    let title = format!("Disable {}?", preview.application.name);
    let frame = Frame::new(pages, visitor, Section::Applications, title).await;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(super::html(status, &DisableQuestion { frame, preview, problem }))
}

/// `POST /applications/{id}/disable`: requires the application's name, because it cannot be undone.
pub(super) async fn disable(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let app = pages.handler().manage(ShowApplication { app_id }).await?;
    if fields.get("name").trim() != app.name {
        let problem = format!("Type the application's name, {}, to confirm. Nothing was changed.", app.name);
        return question(&pages, &visitor, app_id, Some(problem)).await;
    }
    pages.handler().manage(DisableApplication { app_id }).await?;
    pages.live().changed(Topic::Runs);
    Ok(Redirect::to(&format!("/applications/{app_id}")).into_response())
}

/// `POST /applications/{id}/complete`
pub(super) async fn complete(
    State(pages): State<Pages>,
    Path(app_id): Path<ApplicationId>,
) -> Result<Redirect, PageError> {
    pages.handler().manage(CompleteDisabling { app_id }).await?;
    Ok(Redirect::to(&format!("/applications/{app_id}")))
}

#[derive(Template)]
#[template(path = "application-remove.html")]
struct RemoveQuestion {
    frame: Frame,
    app: Application,
}

/// `GET /applications/{id}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let app = pages.handler().manage(ShowApplication { app_id }).await?;
    let frame = Frame::new(&pages, &visitor, Section::Applications, format!("Remove {}?", app.name)).await;
    Ok(super::html(StatusCode::OK, &RemoveQuestion { frame, app }))
}

/// `POST /applications/{id}/remove`
pub(super) async fn remove(
    State(pages): State<Pages>,
    Path(app_id): Path<ApplicationId>,
) -> Result<Redirect, PageError> {
    pages.handler().manage(RemoveApplication { app_id }).await?;
    Ok(Redirect::to("/removed"))
}

#[derive(Template)]
#[template(path = "removed.html")]
struct RemovedApplicationsPage {
    frame: Frame,
    removed: Vec<RemovedApplication>,
}

/// `GET /removed`
pub(super) async fn removed(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let frame = Frame::new(&pages, &visitor, Section::Removed, "Removed").await;
    let removed = pages.handler().manage(ListRemoved {}).await?;
    Ok(super::html(StatusCode::OK, &RemovedApplicationsPage { frame, removed }))
}
