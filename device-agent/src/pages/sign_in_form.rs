//! The page on which a browser signs in.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

#[derive(Template)]
#[template(path = "sign-in.html")]
pub(super) struct SignInPage<'a> {
    pub(super) code: &'a str,
    pub(super) to: &'a str,
    pub(super) wrong: bool,
}

/// The page for a browser without a session.
pub(super) fn page() -> Response {
    super::html(StatusCode::UNAUTHORIZED, &SignInPage { code: "", to: "", wrong: false })
}
