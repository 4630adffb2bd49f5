//! The document as pages for people: one for each operation and each record, with a list of all beside it, and a search.
//!
//! | file | what it does |
//! |---|---|
//! | `views` | what the templates show of operations, records and callbacks |
//! | `samples` | each operation as a program in curl, Python and TypeScript |
//! | `search` | the index that the page's own script searches |

mod samples;
mod search;
mod views;

use std::sync::LazyLock;

use askama::Template;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::VERSION;

use self::views::{CallbackView, OperationView, RecordView, Reference};
use super::DOCUMENT;
use crate::http::error::Error;
use crate::http::html::{self, BreakablePath, Text};

static REFERENCE: LazyLock<Reference> = LazyLock::new(|| Reference::of(&DOCUMENT));

/// The name of the page about callbacks, below `/api/v1/docs/`.
const CALLBACKS_PAGE: &str = "callbacks";

/// A page of the reference.
#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage {
    reference: &'static Reference,
    /// The page's name below `/api/v1/docs/`; empty for the first page.
    current: &'static str,
    title: &'static str,
    content: Content,
}

/// What is beside the list.
enum Content {
    Overview,
    Operation(&'static OperationView),
    Record(&'static RecordView),
    Callbacks(&'static [CallbackView]),
}

/// `GET /api/v1/docs`.
pub(in crate::http) async fn index() -> Result<Response, Error> {
    show("", "API reference", Content::Overview)
}

/// `GET /api/v1/docs/{name}`: an operation, a record, or the callbacks.
pub(in crate::http) async fn page(name: Result<Path<String>, PathRejection>) -> Result<Response, Error> {
    let Path(name) = name.map_err(|_| Error::not_found())?;
    if name == CALLBACKS_PAGE {
        return show(CALLBACKS_PAGE, "Callbacks", Content::Callbacks(&REFERENCE.callbacks));
    }
    if let Some(operation) = REFERENCE.operations().find(|operation| operation.id == name) {
        return show(&operation.id, &operation.summary, Content::Operation(operation));
    }
    match REFERENCE.records.iter().find(|record| record.name == name) {
        Some(record) => show(&record.name, &record.name, Content::Record(record)),
        None => Err(Error::not_found()),
    }
}

fn show(current: &'static str, title: &'static str, content: Content) -> Result<Response, Error> {
    html::answer_with_search(&ReferencePage { reference: &REFERENCE, current, title, content })
}

/// `GET /api/v1/docs/search.js`.
pub(in crate::http) async fn script() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")),
        (header::CACHE_CONTROL, html::CACHE_CONTROL_VALUE),
    ];
    (headers, include_str!("../../../../templates/search.js"))
}

/// `GET /api/v1/docs/search.json`.
pub(in crate::http) async fn search_index() -> impl IntoResponse {
    static INDEX: LazyLock<String> = LazyLock::new(|| search::index(&REFERENCE).to_string());
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, html::CACHE_CONTROL_VALUE),
    ];
    (headers, INDEX.as_str())
}
