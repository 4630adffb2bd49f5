//! The question before a provider or a server is removed.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::auth::Visitor;
use super::frame::{Frame, Section};
use super::{Pages, html};

#[derive(Template)]
#[template(path = "remove.html")]
pub(super) struct RemovalQuestion {
    frame: Frame,
    /// The kind of thing: a provider, or a server.
    what: &'static str,
    /// The address of their list.
    list: &'static str,
    name: String,
    /// The services that name it.
    services: Vec<String>,
}

impl RemovalQuestion {
    /// Asks before one is removed, with the services that name it.
    pub(super) async fn ask(
        pages: &Pages,
        visitor: &Visitor,
        (what, list): (&'static str, &'static str),
        name: String,
        services: Vec<String>,
    ) -> Response {
        let frame = Frame::new(pages, visitor, Section::Applications, format!("Remove {name}?")).await;
        html(StatusCode::OK, &Self { frame, what, list, name, services })
    }
}
