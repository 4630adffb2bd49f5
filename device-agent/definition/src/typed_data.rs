//! The data that a service takes and gives beside text, by its owner's schemas, and whether it takes files.

use deskgate_protocol::run::Output;
use deskgate_protocol::service::{ServiceData, check_tool_name};
use deskgate_schema::DataSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The data of a service. Schemas are JSON Schema, draft 2020-12; see [`DataSchema`] for what of it is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TypedData {
    /// What `input.data` must fit; absent: any data is taken, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// What the data of every result fits; absent: results are text, unless a run brings a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Whether a run may bring a schema of its own where the service has none.
    pub caller_schema: bool,
    /// Whether a run may be given files. Not unless its owner says so: they are the strongest way to lead an assistant astray.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub takes_files: bool,
    /// The service's name as a tool of MCP; absent: the gateway makes one of its name when it is first published, and keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
}

impl Default for TypedData {
    fn default() -> Self {
        Self { input_schema: None, output_schema: None, caller_schema: true, takes_files: false, tool_name: None }
    }
}

impl TypedData {
    /// Whether it says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What the gateway and callers know of it.
    pub(crate) fn published(&self, read_only: bool) -> ServiceData {
        let Self { input_schema, output_schema, caller_schema, takes_files, tool_name } = self.clone();
        let caller_schema = caller_schema && output_schema.is_none();
        ServiceData { input_schema, output_schema, caller_schema, takes_files, tool_name, read_only }
    }

    /// The output of the service's own schema.
    pub fn output(&self) -> Option<Output> {
        let schema = self.output_schema.clone()?;
        Some(Output { name: ServiceData::OUTPUT_NAME.to_owned(), schema })
    }

    /// Whether a run may have this output: the service's own, or that of a caller where one is taken.
    pub fn takes(&self, output: Option<&Output>) -> bool {
        match (&self.output_schema, output) {
            (_, None) => true,
            (Some(own), Some(asked)) => *own == asked.schema,
            (None, Some(_)) => self.caller_schema,
        }
    }

    /// Checks that both schemas can be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, schema) in [("input_schema", &self.input_schema), ("output_schema", &self.output_schema)] {
            if let Some(schema) = schema {
                DataSchema::read(schema.clone()).map_err(|error| format!("{name}: {}", error.0))?;
            }
        }
        self.tool_name
            .as_deref()
            .map_or(Ok(()), |name| check_tool_name(name).map_err(|why| format!("tool_name: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_takes_its_own_output_or_a_callers_and_never_another_beside_its_own() {
        let schema = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } } });
        let asked = |schema| Output { name: "x".to_owned(), schema };
        let (open, closed) = (TypedData::default(), TypedData { caller_schema: false, ..TypedData::default() });
        let own = TypedData { output_schema: Some(schema("a")), ..TypedData::default() };
        assert!([&open, &closed, &own].iter().all(|data| data.takes(None)));
        assert!(open.takes(Some(&asked(schema("b")))) && !closed.takes(Some(&asked(schema("b")))));
        assert!(own.takes(Some(&asked(schema("a")))) && !own.takes(Some(&asked(schema("b")))));
        let published = [&own, &open, &closed].map(|data| data.published(false).caller_schema);
        assert_eq!(published, [false, true, false]);
        assert_eq!(own.output(), Some(Output { name: "result".to_owned(), schema: schema("a") }));
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_named_with_its_place() {
        let remote = json!({ "type": "object", "properties": { "a": { "$ref": "https://example.com/x" } } });
        let data = TypedData { output_schema: Some(remote), ..TypedData::default() };
        let said = data.check().expect_err("it would be fetched");
        assert!(said.starts_with("output_schema: /properties/a/$ref: "), "{said}");
        assert_eq!(TypedData::default().check(), Ok(()));
    }
}
