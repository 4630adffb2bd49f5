//! Publishing a checked draft, and starting a test run of the draft or of what is published.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::Service;
use deskgate_protocol::ids::{DraftId, EndpointId};
use deskgate_protocol::management::{ShowApplication, TryEndpoint};
use deskgate_protocol::run::Run;
use serde_json::Value;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::live::Topic;
use super::service_editor::ServiceEditor;
use super::uploads::{FormFile, FormFiles};
use super::{PageError, Pages, stages, trial};
use crate::local::{ErrorReply, ErrorReplyCode, PublishService, ShowService, TryServiceDraft, UploadFile, summary};

#[derive(Template)]
#[template(path = "service-publish.html")]
struct PublishQuestion {
    frame: Frame,
    service: Service,
    summary: Vec<String>,
}

/// `GET /services/{id}/publish`: the question before it.
pub(super) async fn ask_publish(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    if let Some(why) = stages::unpublishable(&service) {
        return ServiceEditor { problem: Some(why), ..ServiceEditor::of(service) }.show(&pages, &visitor).await;
    }
    let application = pages.handler().manage(ShowApplication { app_id: service.app_id }).await?.name;
    let title = format!("Publish {}?", service.draft.name);
    let frame = Frame::new(&pages, &visitor, Section::Applications, title).await;
    let summary = summary(&service.draft, &application);
    Ok(super::html(StatusCode::OK, &PublishQuestion { frame, service, summary }))
}

/// `POST /services/{id}/publish`: publishes exactly the draft that the question was about.
pub(super) async fn publish(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    if fields.get("definition") != service.draft.digest().to_string() {
        let problem = Some("The draft was changed while you were asked. Nothing was published.".to_owned());
        return ServiceEditor { problem, ..ServiceEditor::of(service) }.show(&pages, &visitor).await;
    }
    match pages.handler().request(PublishService { draft_id }).await {
        Ok(_) => {
            pages.live().changed(Topic::Status);
            Ok(Redirect::to(&format!("/services/{draft_id}")).into_response())
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            ServiceEditor { problem: Some(no.message), ..ServiceEditor::of(service) }.show(&pages, &visitor).await
        }
        Err(no) => Err(no.into()),
    }
}

/// `POST /services/{id}/try`: starts a run of the draft, or of the published version as a caller would, and shows it beside the form.
pub(super) async fn try_out(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    fields: FormFields,
    given: FormFiles,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    let input = fields.get("input").replace("\r\n", "\n");
    let of = fields.get("of").to_owned();
    let published = service.published.as_ref().and(service.endpoint_id).filter(|_| of == trial::OF_PUBLISHED);
    let asked = match fields.filled("data").map(|text| serde_json::from_str(&text)).transpose() {
        Err(error) => Err(invalid(format!("The data is not JSON: {error}"))),
        Ok(data) => try_with(&pages, &service, published, input.clone(), data, &given).await,
    };
    match asked {
        Ok(run) => {
            pages.live().changed(Topic::Runs);
            Ok(Redirect::to(&trial::page(&format!("/services/{draft_id}"), run.run_id)).into_response())
        }
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let mut draft = ServiceEditor { untried: Some(no.message), ..ServiceEditor::of(service) };
            let data = fields.get("data").to_owned();
            draft.fields.0.extend([("input".to_owned(), input), ("data".to_owned(), data), ("of".to_owned(), of)]);
            draft.show(&pages, &visitor).await
        }
        Err(no) => Err(no.into()),
    }
}

/// Uploads the files, and starts the run.
async fn try_with(
    pages: &Pages,
    service: &Service,
    published: Option<EndpointId>,
    input: String,
    data: Option<Value>,
    given: &FormFiles,
) -> Result<Run, ErrorReply> {
    if let Some(problem) = &given.problem {
        return Err(invalid(problem.clone()));
    }
    let (app_id, mut files) = (service.app_id, Vec::with_capacity(given.files.len()));
    for FormFile { name, path } in &given.files {
        files.push(pages.handler().request(UploadFile { app_id, path: path.clone(), name: Some(name.clone()) }).await?);
    }
    match published {
        None => pages.handler().request(TryServiceDraft { draft_id: service.draft_id, input, data, files }).await,
        Some(endpoint_id) => {
            let files = files.iter().map(|file| file.file_id).collect();
            pages.handler().manage(TryEndpoint { endpoint_id, input, data, files }).await
        }
    }
}

fn invalid(message: String) -> ErrorReply {
    ErrorReply { code: ErrorReplyCode::Invalid, message }
}
