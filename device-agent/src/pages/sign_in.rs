//! Signing in: exchanges a launch code for a session.
//!
//! Opening the link has no effect, so that a browser that preloads links cannot use the code up; the page that it shows
//! sends the code.

use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::sign_in_form::SignInPage;
use super::{PageError, Pages};
use crate::local::launch::is_page;

/// The page's address in a launch link.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LaunchQuery {
    #[serde(default)]
    code: String,
    /// The page it leads to.
    #[serde(default)]
    to: String,
}

/// `GET /sign-in`
pub(super) async fn show(Query(link): Query<LaunchQuery>) -> Response {
    super::html(StatusCode::OK, &SignInPage { code: &link.code, to: &link.to, wrong: false })
}

/// `POST /sign-in`
pub(super) async fn enter(State(pages): State<Pages>, fields: FormFields) -> Result<Response, PageError> {
    if !pages.handler().launch.redeem(fields.get("code")) {
        tracing::warn!("a launch code was not good");
        return Ok(super::html(StatusCode::FORBIDDEN, &SignInPage { code: "", to: fields.get("to"), wrong: true }));
    }
    let session = pages.sessions().begin().await?;
    // Without an expiry the cookie ends with the browser; other ports of this host get it too, so its name is specific
    // to the agent.
    let cookie = format!("{}={session}; Path=/; HttpOnly; SameSite=Strict", pages.cookie());
    let cookie = HeaderValue::from_str(&cookie).expect("a name of ours and base64 are visible ASCII");
    tracing::info!("a browser signed in to the management pages");
    let to = Some(fields.get("to")).filter(|to| is_page(to)).unwrap_or("/");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(to)).into_response())
}

/// `POST /sign-out`: every browser at once.
pub(super) async fn leave(State(pages): State<Pages>, _: Visitor) -> Result<Redirect, PageError> {
    pages.sessions().end_all().await?;
    Ok(Redirect::to("/"))
}
