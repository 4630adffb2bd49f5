//! The OpenAPI document, made from the handlers' own types, and the page on which people read it.
//!
//! | file | what it does |
//! |---|---|
//! | `bodies` | the schemas of requests' bodies |
//! | `pages` | the schemas of lists' pages |
//! | `refusals` | the problems a call can answer with, as responses |
//! | `submission_answers` | the answers to a submission, as responses |
//! | `examples` | one example for each answer |
//! | `common` | the parts of every call: headers, and the security scheme |
//! | `subset` | removes what client generators do not support |
//! | `callbacks` | the events that callbacks bring, as `webhooks` |
//! | `reference` | the document as pages for people |
//!
//! A handler describes itself with `#[utoipa::path]`, and `http::calls` lists it; nothing else is needed.

pub(super) mod bodies;
mod callbacks;
mod common;
pub(super) mod examples;
pub(super) mod pages;
pub(super) mod reference;
pub(super) mod refusals;
pub(super) mod submission_answers;
mod subset;

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use serde_json::Value;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Deskgate",
        version = deskgate_protocol::VERSION,
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
        contact(name = "The administrator of this gateway"),
        description = "Runs for an assistant that works on somebody's desktop: submit them, follow them, read their results.\n\n\
            A call names a business user of yours in `X-Gateway-Subject` and sees what was submitted for that user by \
            the same application, nothing else. Work that is accepted is stored durably before it is answered with \
            202. Whatever creates work takes an `Idempotency-Key` and may be repeated safely.\n\n\
            Values may be added to those that `x-extensible-enum` lists, and members to every record: ignore what \
            you do not know. Branch on a run's `phase`, which never gets new values.",
    ),
    servers((url = "/", description = "The gateway that serves this document.")),
    components(schemas(
        refusals::Problem,
        deskgate_protocol::HookId,
        callbacks::RunCallback,
        callbacks::ConversationCallback,
        callbacks::TestCallback,
    )),
    tags(
        (name = "Services", description = "What can be called."),
        (name = "Runs", description = "Pieces of accepted work."),
        (name = "Files", description = "What runs are given beside their text."),
        (name = "Conversations", description = "Runs that see what was said before."),
        (name = "Webhooks", description = "Where other systems send their signed events."),
        (name = "Control operations", description = "Stops and resets, from being asked for to being confirmed."),
        (name = "Deliveries", description = "Whether callbacks told somebody of an event; kept apart from what happened."),
        (name = "Callbacks", description = "What the gateway posts to an application's own address."),
    ),
)]
struct Base;

/// The finished document. It depends on the program only, so it is made once.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let document = super::calls().into_openapi();
    let mut document = serde_json::to_value(document).expect("the document is made of texts, numbers and lists");
    document["webhooks"] = callbacks::webhooks();
    subset::keep_to(&mut document);
    common::add(&mut document);
    document
});

/// The document's base, to which the router's calls are added.
pub(super) fn base() -> utoipa::openapi::OpenApi {
    Base::openapi()
}

/// The document as it is served and checked in, for `deskgate-gateway openapi`.
pub fn json() -> String {
    let mut text = serde_json::to_string_pretty(&*DOCUMENT).expect("it is JSON already");
    text.push('\n');
    text
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn document() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, super::html::CACHE_CONTROL_VALUE),
    ];
    // It may wait long for a slow reader, so all answers share it.
    static DOCUMENT_TEXT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(json()));
    (headers, DOCUMENT_TEXT.clone())
}
