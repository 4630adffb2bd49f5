//! What happens to a service beside its draft, checks and publication: renamed, duplicated, moved, disabled, unpublished,
//! removed; and the page of one whose application has ended.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::Service;
use deskgate_protocol::ids::{ApplicationId, DraftId};
use deskgate_protocol::management::{Application, ApplicationState, ListApplications, ShowApplication};

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::live::Topic;
use super::{PageError, Pages, html};
use crate::local::{
    DuplicateService, EditService, ElsewhereApplication, EnableService, ErrorReply, ErrorReplyCode, ListElsewhere,
    MoveService, PreviewServiceEnding, RemoveService, ShowService, UnpublishService,
};

deskgate_protocol::words! {
    /// A step with a service, as its address names it.
    pub(super) enum LifeStep {
        /// Another name for the draft.
        Rename = "rename",
        /// The draft once more, as a new service.
        Duplicate = "duplicate",
        /// Another application.
        Move = "move",
        /// New calls are refused.
        Disable = "disable",
        /// New calls are accepted again.
        Enable = "enable",
        /// Taken away from its callers.
        Unpublish = "unpublish",
        /// Gone for good.
        Remove = "remove",
    }
}

#[derive(Template)]
#[template(path = "service-step.html")]
struct StepQuestion {
    frame: Frame,
    service: Service,
    step: LifeStep,
    problem: Option<String>,
    /// What happens.
    lines: Vec<String>,
    /// The name in the field, of a step that has one.
    name: Option<String>,
    /// The applications to choose from, of a step that has a choice.
    applications: Vec<(ApplicationId, String)>,
    chosen: Option<ApplicationId>,
    /// The word on the button; `None` if the step cannot be taken.
    button: Option<&'static str>,
    dangerous: bool,
}

impl StepQuestion {
    fn is_chosen(&self, app_id: &ApplicationId) -> bool {
        self.chosen.as_ref() == Some(app_id)
    }
}

/// `GET /services/{id}/{step}`: the question before it.
pub(super) async fn ask(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((draft_id, step)): Path<(DraftId, LifeStep)>,
) -> Result<Response, PageError> {
    question(&pages, &visitor, draft_id, step, None).await
}

/// `problem`: why the step was not taken, and what was in its fields.
async fn question(
    pages: &Pages,
    visitor: &Visitor,
    draft_id: DraftId,
    step: LifeStep,
    problem: Option<(String, FormFields)>,
) -> Result<Response, PageError> {
    let handler = pages.handler();
    let service = handler.request(ShowService { draft_id }).await?;
    let (problem, fields) = problem.unzip();
    let given = fields.as_ref().map(|fields| fields.get("name").to_owned());
    let ends = matches!(step, LifeStep::Move | LifeStep::Unpublish | LifeStep::Remove);
    let mut lines = match ends {
        true => handler.request(PreviewServiceEnding { draft_id }).await?.lines(),
        false => Vec::new(),
    };
    let is_published = !lines.is_empty();
    let mut applications = Vec::new();
    if matches!(step, LifeStep::Duplicate | LifeStep::Move) {
        let all = handler.manage(ListApplications {}).await?.into_iter();
        let others = all.filter(|app| step == LifeStep::Duplicate || app.app_id != service.app_id);
        applications =
            others.filter(|app| app.state == ApplicationState::Active).map(|app| (app.app_id, app.name)).collect();
    }
    let name = &service.draft.name;
    let (title, name, button) = match step {
        LifeStep::Rename => {
            let callers = service.published.as_ref().map(|version| {
                format!("Callers see {} until the draft is checked and published.", version.definition.name)
            });
            lines.extend(callers);
            (format!("Rename {name}"), Some(given.unwrap_or_else(|| name.clone())), "Rename")
        }
        LifeStep::Duplicate => {
            lines.push("The new service is a draft: it is checked and published by itself.".to_owned());
            (format!("Duplicate {name}"), Some(given.unwrap_or_else(|| format!("{name} 2"))), "Duplicate")
        }
        LifeStep::Move => {
            if is_published {
                lines.push("There it has another service ID, once you publish it.".to_owned());
            }
            (format!("Move {name} to another application?"), None, "Move service")
        }
        LifeStep::Disable => {
            lines.push("New calls are refused until you enable it.".to_owned());
            lines.push("What was accepted is executed.".to_owned());
            (format!("Disable {name}?"), None, "Disable service")
        }
        LifeStep::Enable => {
            lines.push("New calls are accepted, while access is enabled.".to_owned());
            (format!("Enable {name}?"), None, "Enable service")
        }
        LifeStep::Unpublish => {
            lines.push("The draft stays. Publishing it again brings it back under the same service ID.".to_owned());
            (format!("Unpublish {name}?"), None, "Unpublish service")
        }
        LifeStep::Remove => {
            lines.push("It cannot be put back. Its name is free.".to_owned());
            (format!("Remove {name}?"), None, "Remove service")
        }
    };
    let chosen = match fields {
        Some(fields) => fields.get("app").parse().ok(),
        None => Some(service.app_id),
    };
    let has_choice = !applications.is_empty() || !matches!(step, LifeStep::Duplicate | LifeStep::Move);
    if !has_choice {
        lines =
            vec!["There is no other active application. Create one first: Applications, New application.".to_owned()];
    }
    let frame = Frame::new(pages, visitor, Section::Applications, title).await;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let button = has_choice.then_some(button);
    let (name, dangerous) = (name.filter(|_| has_choice), ends);
    let page = StepQuestion { frame, service, step, problem, lines, name, applications, chosen, button, dangerous };
    Ok(html(status, &page))
}

/// `POST /services/{id}/{step}`
pub(super) async fn take(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((draft_id, step)): Path<(DraftId, LifeStep)>,
    fields: FormFields,
) -> Result<Response, PageError> {
    match done(&pages, draft_id, step, &fields).await {
        Ok(place) => {
            pages.live().changed(Topic::Status);
            pages.live().changed(Topic::Runs);
            Ok(Redirect::to(&place).into_response())
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            question(&pages, &visitor, draft_id, step, Some((no.message, fields))).await
        }
        Err(no) => Err(no.into()),
    }
}

/// Takes a step, and returns the address to go on at.
async fn done(pages: &Pages, draft_id: DraftId, step: LifeStep, fields: &FormFields) -> Result<String, ErrorReply> {
    let handler = pages.handler();
    let name = fields.get("name").trim().to_owned();
    let app_id = || {
        fields.get("app").parse::<ApplicationId>().map_err(|_| ErrorReply {
            code: ErrorReplyCode::Invalid,
            message: "Choose an application. Nothing was changed.".to_owned(),
        })
    };
    let goes_on_at = match step {
        LifeStep::Rename => {
            let mut definition = handler.request(ShowService { draft_id }).await?.draft;
            definition.name = name;
            handler.request(EditService { draft_id, definition }).await?.draft_id
        }
        LifeStep::Duplicate => handler.request(DuplicateService { draft_id, name, app_id: app_id()? }).await?.draft_id,
        LifeStep::Move => handler.request(MoveService { draft_id, app_id: app_id()? }).await?.draft_id,
        LifeStep::Disable | LifeStep::Enable => {
            handler.request(EnableService { draft_id, enabled: step == LifeStep::Enable }).await?;
            draft_id
        }
        LifeStep::Unpublish => handler.request(UnpublishService { draft_id }).await?.draft_id,
        LifeStep::Remove => {
            let app_id = handler.request(RemoveService { draft_id }).await?.app_id;
            return Ok(match handler.manage(ShowApplication { app_id }).await {
                Ok(_) => format!("/applications/{app_id}"),
                Err(_) => "/applications".to_owned(),
            });
        }
    };
    Ok(format!("/services/{goes_on_at}"))
}

/// Why a service can never be published here: its application, and a sentence about it.
pub(super) struct Ending {
    app: Option<Application>,
    why: String,
}

/// The end of a service's application, if that has ended or is not known at this gateway.
pub(super) fn ended(application: &Result<Application, ErrorReply>) -> Option<Ending> {
    match application {
        Ok(app) if app.state == ApplicationState::Active => None,
        Ok(app) => {
            let what = if app.state == ApplicationState::Removed { "removed" } else { "disabled" };
            Some(Ending { why: format!("Its application {} was {what}.", app.name), app: Some(app.clone()) })
        }
        Err(no) if no.code == ErrorReplyCode::NotFound => {
            Some(Ending { app: None, why: "This gateway does not know its application.".to_owned() })
        }
        Err(_) => None,
    }
}

#[derive(Template)]
#[template(path = "service-ended.html")]
struct EndedServicePage {
    frame: Frame,
    app: Option<Application>,
    why: String,
    /// Its application at another gateway.
    away: Option<ElsewhereApplication>,
    service: Service,
}

/// The page of a service whose application has ended: what it was, and what can still be done.
pub(super) async fn show_ended(pages: &Pages, visitor: &Visitor, service: &Service, ending: Ending) -> Response {
    let frame = Frame::new(pages, visitor, Section::Applications, service.draft.name.clone()).await;
    let Ending { app, why } = ending;
    let elsewhere = pages.handler().request(ListElsewhere {}).await.unwrap_or_default();
    let away = elsewhere.into_iter().find(|away| away.app_id == service.app_id);
    html(StatusCode::OK, &EndedServicePage { frame, app, why, away, service: service.clone() })
}
