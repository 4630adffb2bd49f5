//! Enabling and pausing access to everything this computer has published.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Redirect, Response};
use deskgate_protocol::management::{GetAccess, SetAccess};

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::live::Topic;
use super::{PageError, Pages};
use crate::local::GetStatus;

#[derive(Template)]
#[template(path = "access.html")]
struct AccessQuestion {
    frame: Frame,
    enabled: bool,
    in_hand: usize,
}

/// `GET /access`: the question before the change.
pub(super) async fn ask(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let access = pages.handler().manage(GetAccess {}).await?;
    let status = pages.handler().request(GetStatus {}).await?;
    let in_hand = status.work.runs.as_array().map_or(0, Vec::len);
    let title = if access.enabled { "Pause access?" } else { "Enable access?" };
    let frame = Frame::new(&pages, &visitor, Section::Overview, title).await;
    Ok(super::html(StatusCode::OK, &AccessQuestion { frame, enabled: access.enabled, in_hand }))
}

/// `POST /access`
pub(super) async fn set(State(pages): State<Pages>, fields: FormFields) -> Result<Redirect, PageError> {
    pages.handler().manage(SetAccess { enabled: fields.get("enabled") == "yes" }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to("/"))
}
