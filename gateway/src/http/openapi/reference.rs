//! The document as a page for people.

use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use deskgate_protocol::VERSION;
use serde_json::Value;

use super::DOCUMENT;
use crate::http::error::Error;
use crate::http::html::{self, Text};

/// `GET /api/v1/docs`.
pub(in crate::http) async fn page() -> Result<Response, Error> {
    static REFERENCE_PAGE: LazyLock<ReferencePage> = LazyLock::new(|| ReferencePage::of(&DOCUMENT));
    html::answer(&*REFERENCE_PAGE)
}

#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage {
    introduction: Vec<String>,
    groups: Vec<CallGroup>,
    records: Vec<SchemaView>,
}

/// Calls that belong together.
struct CallGroup {
    name: String,
    description: String,
    calls: Vec<CallView>,
}

struct CallView {
    id: String,
    method: String,
    path: String,
    summary: String,
    description: String,
    parameters: Vec<FieldView>,
    body: Option<BodyView>,
    answers: Vec<ResponseView>,
    refusals: Vec<RefusalGroup>,
}

/// A parameter, a header or a member.
struct FieldView {
    name: String,
    kind: TypeView,
    /// Where a parameter is sent.
    place: String,
    required: bool,
    description: String,
}

/// A type in words, with the record it links to.
struct TypeView {
    text: String,
    record: Option<String>,
}

/// A body with an example.
struct BodyView {
    kind: TypeView,
    example: String,
}

/// A successful answer.
struct ResponseView {
    status: String,
    description: String,
    headers: Vec<FieldView>,
    body: Option<BodyView>,
}

/// The problems of one status.
struct RefusalGroup {
    status: String,
    codes: Vec<String>,
}

struct SchemaView {
    name: String,
    description: String,
    kind: TypeView,
    words: Vec<String>,
    members: Vec<FieldView>,
}

impl ReferencePage {
    fn of(document: &Value) -> Self {
        let calls = || {
            members(&document["paths"])
                .flat_map(|(path, methods)| members(methods).map(move |(method, call)| (path, method, call)))
        };
        let group = |tag: &Value| CallGroup {
            name: text(&tag["name"]),
            description: text(&tag["description"]),
            calls: calls()
                .filter(|(_, _, call)| call["tags"][0] == tag["name"])
                .map(|(path, method, call)| CallView::of(document, path, method, call))
                .collect(),
        };
        Self {
            introduction: text(&document["info"]["description"]).split("\n\n").map(str::to_owned).collect(),
            groups: list(&document["tags"]).map(group).collect(),
            records: members(&document["components"]["schemas"])
                .map(|(name, schema)| SchemaView::of(name, schema))
                .collect(),
        }
    }
}

impl CallView {
    fn of(document: &Value, path: &str, method: &str, call: &Value) -> Self {
        let (refused, answered): (Vec<_>, Vec<_>) = members(&call["responses"])
            .partition(|(_, response)| response["content"].get(PROBLEM_MEDIA_TYPE).is_some());
        let codes = |response: &Value| {
            members(&response["content"][PROBLEM_MEDIA_TYPE]["examples"]).map(|(code, _)| code.clone()).collect()
        };
        Self {
            id: text(&call["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            summary: text(&call["summary"]),
            description: text(&call["description"]),
            parameters: list(&call["parameters"])
                .map(|parameter| FieldView::parameter(resolve(document, parameter)))
                .collect(),
            body: shown(&call["requestBody"]),
            answers: answered.iter().map(|(status, response)| ResponseView::of(document, status, response)).collect(),
            refusals: refused
                .iter()
                .map(|(status, response)| RefusalGroup { status: (*status).clone(), codes: codes(response) })
                .collect(),
        }
    }
}

const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

impl ResponseView {
    fn of(document: &Value, status: &str, response: &Value) -> Self {
        let header = |(name, header): (&String, &Value)| {
            let header = resolve(document, header);
            FieldView::new(name, &header["schema"], true, text(&header["description"]))
        };
        Self {
            status: status.to_owned(),
            description: text(&response["description"]),
            headers: members(&response["headers"]).map(header).collect(),
            body: shown(response),
        }
    }
}

impl FieldView {
    fn new(name: &str, schema: &Value, required: bool, description: String) -> Self {
        Self { name: name.to_owned(), kind: TypeView::of(schema), place: String::new(), required, description }
    }

    fn parameter(parameter: &Value) -> Self {
        let required = parameter["required"] == true;
        let row = Self::new(&text(&parameter["name"]), &parameter["schema"], required, text(&parameter["description"]));
        Self { place: text(&parameter["in"]), ..row }
    }
}

impl TypeView {
    fn of(schema: &Value) -> Self {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            return Self { text: name.to_owned(), record: Some(name.to_owned()) };
        }
        let inner = if schema["items"].is_object() { &schema["items"] } else { &schema["additionalProperties"] };
        match schema["type"].as_str() {
            Some("array") => {
                let Self { text, record } = Self::of(inner);
                Self { text: format!("list of {text}"), record }
            }
            Some("object") if inner["type"] == "string" => Self::plain("object of strings"),
            Some(name) => match schema["format"].as_str() {
                Some("date-time") => Self::plain("date and time"),
                _ => Self::plain(name),
            },
            None => Self::plain("anything"),
        }
    }

    fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), record: None }
    }
}

impl SchemaView {
    fn of(name: &str, schema: &Value) -> Self {
        let required = |name: &str| list(&schema["required"]).any(|required| required == name);
        let words = schema.get("enum").or(schema.get("x-extensible-enum")).unwrap_or(&Value::Null);
        Self {
            name: name.to_owned(),
            description: text(&schema["description"]),
            kind: TypeView::of(schema),
            words: list(words).map(text).collect(),
            members: members(&schema["properties"])
                .map(|(name, member)| FieldView::new(name, member, required(name), text(&member["description"])))
                .collect(),
        }
    }
}

/// The first form of a body or an answer, with its example.
fn shown(holder: &Value) -> Option<BodyView> {
    let (_, content) = members(&holder["content"]).next()?;
    let example = match &content["example"] {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    Some(BodyView { kind: TypeView::of(&content["schema"]), example })
}

/// The target of a reference inside the document.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|path| document.pointer(path.strip_prefix('#')?));
    target.unwrap_or(value)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
