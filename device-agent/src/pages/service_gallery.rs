//! What a new service may begin as: a card for each template.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_definition::{Definition, ServiceTemplate};
use deskgate_protocol::ids::ApplicationId;
use deskgate_protocol::management::{Application, ShowApplication};

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::{PageError, Pages};

/// What the form says if it began without a template.
const EMPTY: &str = "empty";

#[derive(Template)]
#[template(path = "service-gallery.html")]
struct GalleryPage {
    frame: Frame,
    app: Application,
}

impl GalleryPage {
    fn icon(template: &ServiceTemplate) -> &'static str {
        match template {
            ServiceTemplate::ReadOnly => "search",
            ServiceTemplate::Drafts => "edit",
            ServiceTemplate::Code => "terminal",
        }
    }

    fn tools(template: &ServiceTemplate) -> String {
        template.definition().tools.iter().map(|tool| tool.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The page for an application.
pub(super) async fn show(pages: &Pages, visitor: &Visitor, app_id: ApplicationId) -> Result<Response, PageError> {
    let app = pages.handler().manage(ShowApplication { app_id }).await?;
    let frame = Frame::new(pages, visitor, Section::Services, "New service").await;
    Ok(super::html(StatusCode::OK, &GalleryPage { frame, app }))
}

/// The definition that a template's name stands for, as its card or the form says it; `None` while none is chosen.
pub(super) fn chosen(name: &str) -> Option<Definition> {
    match name.parse::<ServiceTemplate>() {
        Ok(template) => Some(template.definition()),
        Err(_) => (name == EMPTY).then(Definition::blank),
    }
}

/// The title of the editor of a new service, by the form.
pub(super) fn title(fields: &FormFields) -> String {
    match fields.get("template").parse::<ServiceTemplate>() {
        Ok(template) => format!("New service: {}", template.title().to_lowercase()),
        Err(_) => "New service, from nothing".to_owned(),
    }
}
