//! The public side of a service: what a caller and the gateway may know of it.
//!
//! The working directory, model, instructions, capabilities and rules stay on the device.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hidden::hidden;
use crate::ids::EndpointId;
use crate::time::Timestamp;

/// A published service as a business backend lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Service))]
pub struct Endpoint {
    /// What runs are submitted to.
    pub id: EndpointId,
    /// Its name within the application.
    pub name: String,
    /// What it does, in its owner's words.
    pub description: String,
    /// The published version, counted from 1.
    pub version: u32,
    /// The schema that `input.data` must fit: JSON Schema, draft 2020-12. Absent: any data is taken, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub input_schema: Option<Value>,
    /// The schema that `result.data` of every run fits. Absent: a result has no data, unless its run brings a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub output_schema: Option<Value>,
    /// Whether a run may bring a schema of its own, as `output`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub caller_schema: bool,
    /// Whether a run may be given files, as `input.files`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub takes_files: bool,
    /// Its name as a tool of MCP: at most 64 of `a` to `z`, digits and underscores.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub tool_name: String,
    /// Whether its assistant can only read: it has no tool that changes anything, or reaches beyond its folder.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub read_only: bool,
    /// The device that executes it.
    pub device: EndpointDevice,
}

/// The data that a service takes and gives beside text, as its owner publishes it; see [`Endpoint`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceData {
    /// What `input.data` must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// What `result.data` fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Whether a run may bring a schema of its own, where there is none.
    #[serde(default)]
    pub caller_schema: bool,
    /// Whether a run may be given files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_files: bool,
    /// The name that its owner chose for it as a tool of MCP. Absent: it keeps the one it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Whether its assistant can only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl ServiceData {
    /// The name of the output of a service's own schema.
    pub const OUTPUT_NAME: &'static str = "result";
}

/// What a caller may know of the device behind a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ServiceDevice))]
pub struct EndpointDevice {
    /// Whether it takes work at this moment.
    pub connected: bool,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
}

/// The version of runs of a draft: its owner tries it before it is published. Published versions are counted from 1.
pub const DRAFT_VERSION: u32 = 0;

/// The length limits of names and descriptions, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// See [`MAX_NAME_CHARS`].
pub const MAX_DESCRIPTION_CHARS: usize = 1000;

/// Checks a name from a person: not blank, within the limit, and nothing in it that is not seen. Otherwise two services
/// could look alike.
///
/// # Errors
/// What is wrong with the name, for people.
pub fn check_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if name.trim().is_empty() || name.trim() != name {
        Err("a name must not be blank or begin or end with a space".to_owned())
    } else if length > MAX_NAME_CHARS {
        Err(format!("a name has at most {MAX_NAME_CHARS} characters; this one has {length}"))
    } else if let Some(c) = hidden(name).chain(name.chars().filter(|c| *c == '\t')).next() {
        Err(format!("a name must not contain characters that are not seen; this one has U+{:04X}", u32::from(c)))
    } else {
        Ok(())
    }
}

/// The most characters of the name of a tool of MCP.
pub const MAX_TOOL_NAME_CHARS: usize = 64;

/// Checks the name of a service as a tool of MCP.
///
/// # Errors
/// What is wrong with the name, for people.
pub fn check_tool_name(name: &str) -> Result<(), String> {
    let is_taken = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    if name.is_empty() || name.len() > MAX_TOOL_NAME_CHARS || !name.bytes().all(is_taken) {
        return Err(format!("the name of a tool has 1 to {MAX_TOOL_NAME_CHARS} of a to z, digits and underscores"));
    }
    match name.starts_with("deskgate_") {
        true => Err("names of tools that begin with deskgate_ are the gateway's own".to_owned()),
        false => Ok(()),
    }
}

/// Checks a description from a person: within the limit, no control characters but line breaks.
///
/// # Errors
/// What is wrong with the description, for people.
pub fn check_description(description: &str) -> Result<(), String> {
    let length = description.chars().count();
    if length > MAX_DESCRIPTION_CHARS {
        Err(format!("a description has at most {MAX_DESCRIPTION_CHARS} characters; this one has {length}"))
    } else if description.chars().any(|c| c.is_control() && c != '\n') {
        Err("a description must not contain control characters other than line breaks".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_that_look_alike_are_not_both_names() {
        for name in ["Billing", "Größe 漢字", "👩\u{200d}💻 desk", "a\u{300}"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            " a",
            "a\0b",
            "a\tb",
            "Bill\u{200b}ing",
            "\u{202e}gnilliB",
            "Bill\u{200d}ing",
            "Billing\u{fe0f}",
            "x\u{e0041}",
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert_eq!(
            check_name("a\u{200b}"),
            Err("a name must not contain characters that are not seen; this one has U+200B".to_owned())
        );
    }

    #[test]
    fn a_tool_has_a_name_that_every_client_takes() {
        for name in ["ask_invoices", "a", "_", "2", &"x".repeat(64)] {
            assert_eq!(check_tool_name(name), Ok(()), "{name}");
        }
        for name in ["", "Ask", "ask-invoices", "ask invoices", "größe", "deskgate_run", &"x".repeat(65)] {
            assert!(check_tool_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_description_has_lines_and_nothing_that_a_database_refuses() {
        assert_eq!(check_description("What it does.\nAnd what not."), Ok(()));
        assert!(
            check_description("a\0b").is_err() && check_description(&"x".repeat(MAX_DESCRIPTION_CHARS + 1)).is_err()
        );
    }
}
