//! The page that only tells: what leads where, by keys.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Pages;
use super::door::Visitor;
use super::frame::{Frame, Item, Section};

#[derive(Template)]
#[template(path = "help.html")]
struct Help {
    frame: Frame,
}

impl Help {
    /// The places that have a key.
    fn places(&self) -> impl Iterator<Item = Item> {
        self.frame.items()
    }
}

/// `GET /help`
pub(super) async fn help(State(pages): State<Pages>, visitor: Visitor) -> Response {
    let frame = Frame::new(&pages, &visitor, Section::Help, "Help").await;
    super::html(StatusCode::OK, &Help { frame })
}
