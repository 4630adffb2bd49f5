//! Checks the content of bodies, member by member.

use std::collections::BTreeMap;

use deskgate_protocol::FileId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::run::{Input, MAX_OUTPUT_NAME_CHARS, Output, is_output_name};
use serde_json::{Map, Value};

use super::error::Error;
use super::request_body::RequestBody;
use crate::domain::admission::{DEFAULT_DURATION_S, DEFAULT_QUEUE_TTL_S};
use crate::domain::body_quota::MAX_BODY_BYTES;
pub(super) use crate::domain::body_quota::MAX_TEXT_BYTES;
use crate::domain::refusal::{Flaw, Refusal};
use crate::domain::typed_data;

pub(super) const MAX_QUEUE_TTL_S: u32 = 7 * 24 * 3600;
pub(super) const MAX_DURATION_S: u32 = 24 * 3600;
/// The highest attempt or generation.
pub(super) const MAX_COUNT: u32 = i32::MAX as u32;

/// A submission's body.
#[derive(Debug)]
pub(super) struct SubmissionBody {
    /// The digest of the canonical JSON.
    pub fingerprint: Sha256Digest,
    /// The submitted input.
    pub input: Input,
    /// The input as JSON text.
    pub input_json: String,
    /// The files of the input.
    pub files: Vec<FileId>,
    /// The data that the result is to have.
    pub output: Option<Output>,
    /// The caller's labels.
    pub metadata: BTreeMap<String, String>,
    /// Seconds it may wait for a start.
    pub queue_ttl_s: u32,
    /// Awake seconds it may execute.
    pub max_duration_s: u32,
}

/// Reads and checks a submission.
pub(super) async fn submission(incoming: &mut RequestBody<'_>) -> Result<SubmissionBody, Error> {
    let (fingerprint, members) = incoming.members(&SUBMISSION_MEMBERS).await?;
    submitted(fingerprint, members, Vec::new()).await
}

/// A message's body.
#[derive(Debug)]
pub(super) struct MessageBody {
    /// The run that it becomes.
    pub submission: SubmissionBody,
    /// The generation that the caller expects.
    pub expected_generation: u32,
    /// What becomes of it while the conversation is busy.
    pub on_busy: OnBusy,
}

/// Reads and checks a message.
pub(super) async fn message(incoming: &mut RequestBody<'_>) -> Result<MessageBody, Error> {
    let (fingerprint, mut members) = incoming.members(&MESSAGE_MEMBERS).await?;
    let mut flaws = Vec::new();
    let expected = generation(members.remove("expected_generation"), &mut flaws);
    let on_busy = on_busy(members.remove("on_busy"), &mut flaws);
    let submission = submitted(fingerprint, members, flaws).await?;
    // Without one there was a flaw.
    Ok(MessageBody { submission, expected_generation: expected.unwrap_or_default(), on_busy })
}

/// The generation that a caller expects.
pub(super) fn generation(value: Option<Value>, flaws: &mut Vec<Flaw>) -> Option<u32> {
    let detail = "a whole number from 1 on: the generation as the conversation was last read";
    let code = if value.is_some() { "out_of_range" } else { "required" };
    let generation = value.as_ref().and_then(whole).filter(|generation| (1..=MAX_COUNT).contains(generation));
    if generation.is_none() {
        flaws.push(Flaw::new("/expected_generation", code, detail));
    }
    generation
}

/// What becomes of a message while its conversation is busy.
pub(super) fn on_busy(value: Option<Value>, flaws: &mut Vec<Flaw>) -> OnBusy {
    let Some(value) = value else { return OnBusy::default() };
    let known = value.as_str().and_then(|word| word.parse().ok());
    known.unwrap_or_else(|| {
        let code = if value.is_string() { "out_of_range" } else { "wrong_type" };
        flaws.push(Flaw::new("/on_busy", code, "one of \"reject\", \"enqueue\" and \"interrupt\""));
        OnBusy::default()
    })
}

async fn submitted(
    fingerprint: Sha256Digest,
    mut members: Map<String, Value>,
    mut flaws: Vec<Flaw>,
) -> Result<SubmissionBody, Error> {
    let input = input(members.remove("input"), &mut flaws);
    let output = output(members.remove("output"), &mut flaws);
    let metadata = metadata(members.remove("metadata"), &mut flaws);
    let mut seconds = |name: &str, default, most| match members.remove(name) {
        None => default,
        Some(value) => whole(&value).filter(|n| (1..=most).contains(n)).unwrap_or_else(|| {
            flaws.push(Flaw::new(format!("/{name}"), "out_of_range", format!("a whole number from 1 to {most}")));
            default
        }),
    };
    let queue_ttl_s = seconds("queue_ttl_s", DEFAULT_QUEUE_TTL_S, MAX_QUEUE_TTL_S);
    let max_duration_s = seconds("max_duration_s", DEFAULT_DURATION_S, MAX_DURATION_S);
    match input {
        Some((input, input_json, files)) if flaws.is_empty() => {
            if let Some(output) = &output {
                typed_data::check_schema(output.schema.clone(), "/output/schema").await?;
            }
            Ok(SubmissionBody { fingerprint, input, input_json, files, output, metadata, queue_ttl_s, max_duration_s })
        }
        _ => Err(Refusal::Invalid(flaws).into()),
    }
}

/// The labels of a run: how many, and how long names and values.
pub(super) const MAX_LABELS: usize = 16;
pub(super) const MAX_LABEL_NAME_CHARS: usize = 64;
pub(super) const MAX_LABEL_CHARS: usize = 512;

pub(super) const SUBMISSION_MEMBERS: [&str; 5] = ["input", "output", "metadata", "queue_ttl_s", "max_duration_s"];
pub(super) const MESSAGE_MEMBERS: [&str; 7] =
    ["expected_generation", "on_busy", "input", "output", "metadata", "queue_ttl_s", "max_duration_s"];
pub(super) const FILE_MEMBERS: [&str; 1] = ["file_id"];
pub(super) const OUTPUT_MEMBERS: [&str; 2] = ["name", "schema"];
pub(super) const CONVERSATION_MEMBERS: [&str; 2] = ["endpoint_id", "conversation_key"];
pub(super) const RESET_MEMBERS: [&str; 1] = ["expected_generation"];
pub(super) const STOP_MEMBERS: [&str; 2] = ["expected_attempt", "reason"];

/// The input, its JSON text, and the files in it.
fn input(value: Option<Value>, flaws: &mut Vec<Flaw>) -> Option<(Input, String, Vec<FileId>)> {
    let mut more = match value {
        None => {
            flaws.push(Flaw::new("/input", "required", "an object with a member \"text\""));
            return None;
        }
        Some(Value::Object(members)) => members,
        Some(_) => {
            flaws.push(Flaw::new("/input", "wrong_type", "an object with a member \"text\""));
            return None;
        }
    };
    let files = more.get("files").map_or_else(Vec::new, |value| files(value, flaws));
    match more.shift_remove("text") {
        Some(Value::String(text)) if (1..=MAX_TEXT_BYTES).contains(&text.len()) => {
            let input = Input { text, more };
            // Numbers are reformatted when they are handed on, and may grow by that.
            if let Some(json) = serde_json::to_string(&input).ok().filter(|json| json.len() <= MAX_BODY_BYTES) {
                return Some((input, json, files));
            }
            flaws.push(Flaw::new(
                "/input",
                "out_of_range",
                format!("at most {MAX_BODY_BYTES} bytes when it is written out"),
            ));
        }
        None => flaws.push(Flaw::new("/input/text", "required", "a string")),
        Some(Value::String(text)) => {
            let detail = format!("1 to {MAX_TEXT_BYTES} bytes of UTF-8; this has {}", text.len());
            flaws.push(Flaw::new("/input/text", "out_of_range", detail));
        }
        Some(_) => flaws.push(Flaw::new("/input/text", "wrong_type", "a string")),
    }
    None
}

/// The files of an input.
fn files(value: &Value, flaws: &mut Vec<Flaw>) -> Vec<FileId> {
    let Value::Array(entries) = value else {
        flaws.push(Flaw::new("/input/files", "wrong_type", "a list of objects with the member \"file_id\""));
        return Vec::new();
    };
    let mut files = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let pointer = format!("/input/files/{place}");
        let Value::Object(members) = entry else {
            flaws.push(Flaw::new(pointer, "wrong_type", "an object with the member \"file_id\""));
            continue;
        };
        if let Some(unknown) = members.keys().find(|name| !FILE_MEMBERS.contains(&name.as_str())) {
            let pointer = format!("{pointer}/{}", unknown.replace('~', "~0").replace('/', "~1"));
            flaws.push(Flaw::new(pointer, "not_taken", "a file is named by its \"file_id\" alone"));
        }
        match members.get("file_id") {
            Some(Value::String(text)) => match text.parse() {
                Ok(file_id) => files.push(file_id),
                Err(_) => {
                    let detail = "the identifier of a file, as its upload was answered with";
                    flaws.push(Flaw::new(format!("{pointer}/file_id"), "out_of_range", detail));
                }
            },
            other => {
                let code = if other.is_some() { "wrong_type" } else { "required" };
                flaws.push(Flaw::new(format!("{pointer}/file_id"), code, "a string"));
            }
        }
    }
    flaws.extend(crate::domain::files::check_list(&files));
    files
}

/// The run's own output. Whether its schema can be used is found out later, as that may take a while.
pub(super) fn output(value: Option<Value>, flaws: &mut Vec<Flaw>) -> Option<Output> {
    let detail = "an object with the members \"name\" and \"schema\"";
    let mut members = match value? {
        Value::Object(members) => members,
        _ => {
            flaws.push(Flaw::new("/output", "wrong_type", detail));
            return None;
        }
    };
    if let Some(unknown) = members.keys().find(|name| !OUTPUT_MEMBERS.contains(&name.as_str())) {
        let pointer = format!("/output/{}", unknown.replace('~', "~0").replace('/', "~1"));
        flaws.push(Flaw::new(pointer, "not_taken", format!("`output` is {detail}")));
    }
    let name = match members.remove("name") {
        Some(Value::String(name)) if is_output_name(&name) => Some(name),
        Some(Value::String(_)) => {
            let detail = format!("1 to {MAX_OUTPUT_NAME_CHARS} of the characters a-z, A-Z, 0-9, _ and -");
            flaws.push(Flaw::new("/output/name", "out_of_range", detail));
            None
        }
        other => {
            let code = if other.is_some() { "wrong_type" } else { "required" };
            flaws.push(Flaw::new("/output/name", code, "a string"));
            None
        }
    };
    let Some(schema) = members.remove("schema") else {
        flaws.push(Flaw::new("/output/schema", "required", "a JSON Schema, an object"));
        return None;
    };
    name.map(|name| Output { name, schema })
}

pub(super) fn metadata(value: Option<Value>, flaws: &mut Vec<Flaw>) -> BTreeMap<String, String> {
    let members = match value {
        None => return BTreeMap::new(),
        Some(Value::Object(members)) => members,
        Some(_) => {
            flaws.push(Flaw::new("/metadata", "wrong_type", "an object of strings"));
            return BTreeMap::new();
        }
    };
    if members.len() > MAX_LABELS {
        let detail = format!("at most {MAX_LABELS} members; this has {}", members.len());
        flaws.push(Flaw::new("/metadata", "out_of_range", detail));
        return BTreeMap::new();
    }
    let mut labels = BTreeMap::new();
    for (name, value) in members {
        let pointer = format!("/metadata/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::String(text)
                if (1..=MAX_LABEL_NAME_CHARS).contains(&name.chars().count())
                    && text.chars().count() <= MAX_LABEL_CHARS =>
            {
                labels.insert(name, text);
            }
            Value::String(_) => {
                let detail =
                    format!("names of 1 to {MAX_LABEL_NAME_CHARS} characters and values of up to {MAX_LABEL_CHARS}");
                flaws.push(Flaw::new(pointer, "out_of_range", detail));
            }
            _ => flaws.push(Flaw::new(pointer, "wrong_type", "a string")),
        }
    }
    labels
}

/// A whole number, also when it is written as `60.0` or `6e1`: in JSON that is the same number.
pub(super) fn whole(value: &Value) -> Option<u32> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    // Whole and in range, so nothing is cut off.
    number.map(|number| number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::{HeaderMap, HeaderValue, header};
    use deskgate_protocol::KeyId;

    use crate::domain::body_quota::BodyQuota;

    async fn read(body: &str) -> Result<SubmissionBody, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let room = BodyQuota::new(&Default::default()).acquire(KeyId::new(), body.len()).expect("enough");
        let body = Body::from(body.to_owned());
        submission(&mut RequestBody::new(&headers, body, Duration::from_secs(5), room)).await
    }

    #[tokio::test]
    async fn further_members_of_the_input_are_kept() {
        let read = read(r#"{"input":{"text":"hello","order":7}}"#).await.expect("valid");
        assert_eq!((read.input.text.as_str(), &read.input.more["order"]), ("hello", &Value::from(7)));
        assert_eq!((read.queue_ttl_s, read.max_duration_s), (DEFAULT_QUEUE_TTL_S, DEFAULT_DURATION_S));
    }

    #[tokio::test]
    async fn key_order_does_not_change_the_fingerprint_and_content_does() {
        let print = async |body| read(body).await.expect("valid").fingerprint;
        let one = print(r#"{"input":{"text":"a","n":1},"queue_ttl_s":5}"#).await;
        assert_eq!(one, print(r#" { "queue_ttl_s": 5, "input": { "n": 1.0, "text": "\u0061" } } "#).await);
        assert_ne!(one, print(r#"{"input":{"text":"a","n":1},"queue_ttl_s":6}"#).await);
    }
}
