//! What the templates show of operations, records and callbacks.

use serde_json::Value;

use super::samples::{self, Sample, SampleCall};

/// Everything that the pages show.
pub(super) struct Reference {
    pub(super) introduction: Vec<String>,
    pub(super) groups: Vec<OperationGroup>,
    pub(super) callbacks: Vec<CallbackView>,
    pub(super) records: Vec<RecordView>,
}

/// Operations that belong together.
pub(super) struct OperationGroup {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) operations: Vec<OperationView>,
}

pub(super) struct OperationView {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) summary: String,
    pub(super) description: String,
    pub(super) is_signed: bool,
    pub(super) parameters: Vec<FieldView>,
    pub(super) body: Option<BodyView>,
    pub(super) answers: Vec<ResponseView>,
    pub(super) refusals: Vec<RefusalGroup>,
    pub(super) samples: [Sample; 3],
}

/// An event that callbacks bring.
pub(super) struct CallbackView {
    pub(super) event: String,
    pub(super) description: String,
    pub(super) headers: Vec<FieldView>,
    pub(super) body: Option<BodyView>,
}

/// A parameter, a header or a member.
pub(super) struct FieldView {
    pub(super) name: String,
    pub(super) kind: TypeView,
    /// Where a parameter is sent.
    pub(super) place: String,
    pub(super) required: bool,
    pub(super) description: String,
}

/// A type in words, with the record it links to.
pub(super) struct TypeView {
    pub(super) text: String,
    pub(super) record: Option<String>,
}

/// A body with an example.
pub(super) struct BodyView {
    pub(super) kind: TypeView,
    pub(super) example: String,
}

/// A successful answer.
pub(super) struct ResponseView {
    pub(super) status: String,
    pub(super) description: String,
    pub(super) headers: Vec<FieldView>,
    pub(super) bodies: Vec<BodyView>,
}

/// The problems of one status.
pub(super) struct RefusalGroup {
    pub(super) status: String,
    pub(super) codes: Vec<String>,
}

pub(super) struct RecordView {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) kind: TypeView,
    pub(super) words: Vec<String>,
    pub(super) members: Vec<FieldView>,
}

impl Reference {
    /// Of the finished document.
    pub(super) fn of(document: &Value) -> Self {
        let calls = || {
            members(&document["paths"])
                .flat_map(|(path, methods)| members(methods).map(move |(method, call)| (path, method, call)))
        };
        let group = |tag: &Value| OperationGroup {
            name: text(&tag["name"]),
            description: text(&tag["description"]),
            operations: calls()
                .filter(|(_, _, call)| call["tags"][0] == tag["name"])
                .map(|(path, method, call)| OperationView::of(document, path, method, call))
                .collect(),
        };
        let groups = list(&document["tags"]).map(group);
        Self {
            introduction: text(&document["info"]["description"]).split("\n\n").map(str::to_owned).collect(),
            groups: groups.filter(|group| !group.operations.is_empty()).collect(),
            callbacks: members(&document["webhooks"])
                .map(|(event, item)| CallbackView::of(event, &item["post"]))
                .collect(),
            records: members(&document["components"]["schemas"])
                .map(|(name, schema)| RecordView::of(name, schema))
                .collect(),
        }
    }

    /// All operations, in the order of the list.
    pub(super) fn operations(&self) -> impl Iterator<Item = &OperationView> {
        self.groups.iter().flat_map(|group| &group.operations)
    }
}

impl OperationView {
    fn of(document: &Value, path: &str, method: &str, call: &Value) -> Self {
        let (refused, answered): (Vec<_>, Vec<_>) = members(&call["responses"])
            .partition(|(_, response)| response["content"].get(PROBLEM_MEDIA_TYPE).is_some());
        let codes = |response: &Value| {
            members(&response["content"][PROBLEM_MEDIA_TYPE]["examples"]).map(|(code, _)| code.clone()).collect()
        };
        let method = method.to_uppercase();
        let parameters: Vec<_> =
            list(&call["parameters"]).map(|parameter| FieldView::parameter(resolve(document, parameter))).collect();
        let is_signed = list(&call["security"]).next().is_none();
        let samples = samples::of(&SampleCall {
            method: &method,
            path,
            is_signed,
            is_download: answered
                .iter()
                .any(|(_, response)| response["content"].get("application/octet-stream").is_some()),
            is_upload: call["requestBody"]["content"].get("application/octet-stream").is_some(),
            has_idempotency_key: parameters.iter().any(|parameter| parameter.name == "Idempotency-Key"),
            is_stream: answered.iter().any(|(_, response)| response["content"].get(STREAM_MEDIA_TYPE).is_some()),
            body: call["requestBody"]["content"].pointer("/application~1json/example"),
        });
        Self {
            id: text(&call["operationId"]),
            method,
            path: path.to_owned(),
            summary: text(&call["summary"]),
            description: text(&call["description"]),
            is_signed,
            parameters,
            body: bodies(&call["requestBody"]).next(),
            answers: answered.iter().map(|(status, response)| ResponseView::of(document, status, response)).collect(),
            refusals: refused
                .iter()
                .map(|(status, response)| RefusalGroup { status: (*status).clone(), codes: codes(response) })
                .collect(),
            samples,
        }
    }
}

impl CallbackView {
    fn of(event: &str, call: &Value) -> Self {
        Self {
            event: event.to_owned(),
            description: text(&call["description"]),
            headers: list(&call["parameters"]).map(FieldView::parameter).collect(),
            body: bodies(&call["requestBody"]).next(),
        }
    }
}

const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
const STREAM_MEDIA_TYPE: &str = "text/event-stream";

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
            bodies: bodies(response).collect(),
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

impl RecordView {
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

/// The forms of a body or an answer, each with its example.
fn bodies(holder: &Value) -> impl Iterator<Item = BodyView> {
    members(&holder["content"]).map(|(form, content)| {
        let example = &content["example"];
        let example = match (form.as_str(), example) {
            (STREAM_MEDIA_TYPE, Value::Object(_)) => {
                let line = |name: &&str| example.get(name).map(|value| format!("{name}: {}\n", text(value)));
                ["id", "event", "data"].iter().filter_map(line).collect()
            }
            _ => serde_json::to_string_pretty(example).unwrap_or_default(),
        };
        BodyView { kind: TypeView::of(&content["schema"]), example }
    })
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
