//! The static files: style sheet, script, icons. They hold no secret, so they need no session.

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

/// The path of the style sheet.
pub(super) const STYLESHEET_PATH: &str = "/style.css";

/// All icons, in one file.
pub(super) const ICONS_PATH: &str = "/icons.svg";

/// Whether a path is answered without a session.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, STYLESHEET_PATH | ICONS_PATH | "/script.js" | "/icon.svg" | "/sign-in")
}

/// `GET /style.css`
pub(super) async fn css() -> impl IntoResponse {
    of("text/css; charset=utf-8", include_str!("../../templates/style.css"))
}

/// `GET /script.js`
pub(super) async fn script() -> impl IntoResponse {
    of("text/javascript; charset=utf-8", include_str!("../../templates/script.js"))
}

/// `GET /icon.svg`
pub(super) async fn icon() -> impl IntoResponse {
    of("image/svg+xml", include_str!("../../templates/icon.svg"))
}

/// `GET /icons.svg`
pub(super) async fn icons() -> impl IntoResponse {
    of("image/svg+xml", include_str!("../../templates/icons.svg"))
}

fn of(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text)
}
