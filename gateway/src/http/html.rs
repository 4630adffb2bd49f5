//! Pages for people: rendered here, without requests to other servers, and useful without a script.

use std::fmt;

use askama::Template;
use askama::filters::{Html, HtmlSafe, escape};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::error::Error;
use crate::domain::refusal::Refusal;

/// The page may load only the one style sheet beside it.
const CSP_VALUE: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// As above, and the script of the search beside it, which asks this gateway for its index.
const SEARCH_CSP_VALUE: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The public pages hold no personal data and change with the program only.
pub(super) const CACHE_CONTROL_VALUE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// A page as an answer.
pub(super) fn answer(page: &impl Template) -> Result<Response, Error> {
    answer_under(CSP_VALUE, page)
}

/// A page with the search as an answer.
pub(super) fn answer_with_search(page: &impl Template) -> Result<Response, Error> {
    answer_under(SEARCH_CSP_VALUE, page)
}

fn answer_under(policy: &'static str, page: &impl Template) -> Result<Response, Error> {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a page could not be written");
        Refusal::Internal
    })?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, CACHE_CONTROL_VALUE),
    ];
    Ok((headers, text).into_response())
}

/// `GET /api/v1/docs/style.css`.
pub(super) async fn style() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (header::CACHE_CONTROL, CACHE_CONTROL_VALUE),
    ];
    (headers, include_str!("../../templates/style.css"))
}

/// Prose with `code` in backquotes.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.split('`').enumerate() {
            let escaped = escape(part, Html).map_err(|_| fmt::Error)?;
            if place % 2 == 1 { write!(f, "<code>{escaped}</code>")? } else { write!(f, "{escaped}")? }
        }
        Ok(())
    }
}

/// What [`Text`] writes is escaped already.
impl HtmlSafe for Text<'_> {}

/// A path that a narrow page may break behind its slashes.
pub(super) struct BreakablePath<'a>(pub(super) &'a str);

impl fmt::Display for BreakablePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.split('/').enumerate() {
            let escaped = escape(part, Html).map_err(|_| fmt::Error)?;
            if place == 0 { write!(f, "{escaped}")? } else { write!(f, "/<wbr>{escaped}")? }
        }
        Ok(())
    }
}

/// What [`BreakablePath`] writes is escaped already.
impl HtmlSafe for BreakablePath<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_escaped_inside_and_outside_of_code() {
        assert_eq!(
            Text("a <b> `<c>` & `d`").to_string(),
            "a &#60;b&#62; <code>&#60;c&#62;</code> &#38; <code>d</code>"
        );
    }
}
