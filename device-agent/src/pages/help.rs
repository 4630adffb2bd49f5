//! The help page: the keys of the sections.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Pages;
use super::auth::Visitor;
use super::frame::{Frame, NavItem, Section};

#[derive(Template)]
#[template(path = "help.html")]
struct HelpPage {
    frame: Frame,
}

impl HelpPage {
    /// The sections that have a key.
    fn places(&self) -> impl Iterator<Item = NavItem> {
        self.frame.groups().flatten()
    }
}

/// `GET /help`
pub(super) async fn help(State(pages): State<Pages>, visitor: Visitor) -> Response {
    let frame = Frame::new(&pages, &visitor, Section::Help, "Help").await;
    super::html(StatusCode::OK, &HelpPage { frame })
}
