//! The answers to a submission, as responses of the document: 200 for its end or its stream, and 202.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Response, ResponseBuilder};

use super::examples;

/// The headers of each.
const HEADERS: [(&str, &str); 2] =
    [("Location", "The path of the run."), ("Idempotency-Replayed", "`true`: the run was accepted before.")];

/// Defines the responses of a call whose 202 looks like `$accepted`.
macro_rules! submission_answers {
    ($name:ident = $accepted:expr) => {
        enum $name {}

        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
                $crate::http::openapi::submission_answers::responses($accepted)
            }
        }
    };
}
pub(in crate::http) use submission_answers;

/// Both, with an example of the 202.
pub(in crate::http) fn responses(accepted: Value) -> BTreeMap<String, RefOr<Response>> {
    let content = |schema: &str, example| {
        ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).example(Some(example)).build()
    };
    let ended = ResponseBuilder::new()
        .description("With `wait`: the run, which has ended. With `Accept: text/event-stream`: its stream.")
        .content("application/json", content("Run", examples::succeeded()))
        .content("text/event-stream", content("ServerSentEvent", examples::server_sent_event()));
    let stored =
        ResponseBuilder::new().description("The run is stored.").content("application/json", content("Run", accepted));
    let told = |(status, response): (&str, ResponseBuilder)| {
        let response = HEADERS.into_iter().fold(response, |response, (name, what)| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            response.header(name, HeaderBuilder::new().schema(Some(text)).description(Some(what)).build())
        });
        (status.to_owned(), response.build().into())
    };
    [("200", ended), ("202", stored)].map(told).into()
}
