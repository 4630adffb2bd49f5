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
    /// Whether the browser had a session, which ended of age.
    pub(super) ended: bool,
}

/// The page for a browser without a session: the same whatever it asked for, unless its session `ended` of age.
pub(super) fn page(ended: bool) -> Response {
    super::html(StatusCode::UNAUTHORIZED, &SignInPage { code: "", to: "", wrong: false, ended })
}
