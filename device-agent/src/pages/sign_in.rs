//! Signing in: exchanges a launch code for a session.
//!
//! Opening the link has no effect, so that a browser that preloads links cannot use the code up; the page that it shows
//! sends the code.

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
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
    super::html(StatusCode::OK, &SignInPage { code: &link.code, to: &link.to, wrong: false, ended: false })
}

/// `POST /sign-in`
pub(super) async fn enter(State(pages): State<Pages>, fields: FormFields) -> Result<Response, PageError> {
    if !pages.handler().launch.redeem(fields.get("code")) {
        tracing::warn!("a launch code was not good");
        return Ok(super::html(
            StatusCode::FORBIDDEN,
            &SignInPage { code: "", to: fields.get("to"), wrong: true, ended: false },
        ));
    }
    let (session, mount) = pages.sessions().begin().await?;
    // Without an expiry the cookie ends with the browser. Other ports of this host get it too, with requests for the same
    // path, which nobody else knows.
    let cookie = pages.set_cookie(&session, &mount.cookie_path());
    tracing::info!("a browser signed in to the management pages");
    let to = Some(fields.get("to")).filter(|to| is_page(to)).unwrap_or("/");
    let inside = mount.put_on(Redirect::to(to).into_response()).await;
    Ok(([(header::SET_COOKIE, cookie)], inside).into_response())
}

/// `POST /sign-out`: every browser at once. What it leads to is below a path that is no more, and so the page to sign in.
pub(super) async fn leave(State(pages): State<Pages>, _: Visitor) -> Result<Redirect, PageError> {
    pages.sessions().end_all().await?;
    Ok(Redirect::to("/"))
}
