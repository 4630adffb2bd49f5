//! The schemas of requests' bodies. `body.rs` reads them member by member, so that it can name every flaw at once; a
//! test holds the two together.

use std::collections::BTreeMap;

use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::{EndpointId, FileId};
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// What is submitted. Nothing else can be: what a run may do is decided on the desktop.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct Submission {
    input: NewInput,
    /// The data that the result is to have beside its text. A service takes it where its `caller_schema` is true.
    output: Option<NewOutput>,
    /// Labels of your own, at most 16: names of 1 to 64 characters, values of at most 512.
    #[schema(schema_with = labels)]
    metadata: Option<BTreeMap<String, String>>,
    /// Seconds it may wait for a start; a day if absent.
    #[schema(minimum = 1, maximum = 604_800)]
    queue_ttl_s: Option<u32>,
    /// Seconds of awake time it may execute; an hour if absent.
    #[schema(minimum = 1, maximum = 86_400)]
    max_duration_s: Option<u32>,
}

/// What is said in a conversation.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct Message {
    /// The generation of the conversation as it was last read.
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    expected_generation: u32,
    /// What becomes of it while the conversation works on another message; `reject` if absent. At most 16 messages wait.
    on_busy: Option<OnBusy>,
    input: NewInput,
    /// The data that the result is to have beside its text. A service takes it where its `caller_schema` is true.
    output: Option<NewOutput>,
    /// Labels of your own, at most 16: names of 1 to 64 bytes, values of at most 512.
    #[schema(schema_with = labels)]
    metadata: Option<BTreeMap<String, String>>,
    /// Seconds it may wait for a start; a day if absent.
    #[schema(minimum = 1, maximum = 604_800)]
    queue_ttl_s: Option<u32>,
    /// Seconds of awake time it may execute; an hour if absent.
    #[schema(minimum = 1, maximum = 86_400)]
    max_duration_s: Option<u32>,
}

/// A conversation that is to be there.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct NewConversation {
    /// The service it is held with.
    endpoint_id: EndpointId,
    /// Your own name for it, 1 to 255 characters, none of them a control character: the same name is the same conversation.
    #[schema(pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,255}$")]
    conversation_key: String,
}

/// Which conversation is to begin anew.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct NewReset {
    /// The generation of the conversation as it was last read.
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    expected_generation: u32,
}

/// Which run is to end, and why.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct NewStop {
    /// The attempt of the run as it was last read; any if absent.
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    expected_attempt: Option<u32>,
    /// Your own words, at most 500 bytes, none of them zero.
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// The business content: a text, and members of your own that are kept and handed on.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
struct NewInput {
    /// 1 byte to 256 KiB of UTF-8.
    #[schema(min_length = 1, max_length = 262_144)]
    text: String,
    /// Files that the run is given, at most 16 with 128 MiB together, where the service takes files.
    #[schema(max_items = 16)]
    files: Option<Vec<GivenFile>>,
    /// Data that fits the `input_schema` of the service; any value where it has none.
    data: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// A file that was uploaded before, for the same application and subject.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
struct GivenFile {
    file_id: FileId,
}

/// The data that a result is to have, by a schema of your own.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "its schema is what it is for")]
struct NewOutput {
    /// What the data is called, which the assistant reads.
    #[schema(pattern = "^[a-zA-Z0-9_-]{1,64}$")]
    name: String,
    /// The schema.
    #[schema(schema_with = data_schema)]
    schema: Value,
}

/// Labels that runs are sought by.
pub(in crate::http) struct SoughtLabels;

impl PartialSchema for SoughtLabels {
    fn schema() -> RefOr<Schema> {
        sought_labels().into()
    }
}

impl ToSchema for SoughtLabels {}

fn data_schema() -> Object {
    let root = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["object"]));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "JSON Schema, draft 2020-12, with the root `\"type\": \"object\"`; references lead to the same schema only.",
        ))
        .property("type", root)
        .required("type")
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .build()
}

fn labels() -> Object {
    labels_named(label_name())
}

/// In a parameter a name has no `][`, which is how an object in an object is written there.
fn sought_labels() -> Object {
    labels_named(label_name().pattern(Some("^([^\\]]|\\]+[^\\]\\[])*\\]*$")))
}

fn label_name() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(64))
}

fn labels_named(name: ObjectBuilder) -> Object {
    let label = ObjectBuilder::new().schema_type(Type::String).max_length(Some(512));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("Labels of your own, at most 16: names of 1 to 64 characters, values of at most 512."))
        .max_properties(Some(16))
        .property_names(Some(name.build()))
        .additional_properties(Some(label))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body;

    fn assert_members<T: PartialSchema>(read: &[&str]) {
        let schema = serde_json::to_value(T::schema()).expect("serialises");
        let mut members: Vec<_> = schema["properties"].as_object().expect("an object").keys().collect();
        let mut read = read.to_vec();
        members.sort();
        read.sort();
        assert_eq!(members, read);
    }

    #[test]
    fn the_schema_has_the_members_that_are_read() {
        assert_members::<Submission>(&body::SUBMISSION_MEMBERS);
        assert_members::<Message>(&body::MESSAGE_MEMBERS);
        assert_members::<GivenFile>(&body::FILE_MEMBERS);
        assert_members::<NewOutput>(&body::OUTPUT_MEMBERS);
        assert_members::<NewConversation>(&body::CONVERSATION_MEMBERS);
        assert_members::<NewReset>(&body::RESET_MEMBERS);
        assert_members::<NewStop>(&body::STOP_MEMBERS);
    }
}
