//! A server's list of tools: external content, bounded before it is used.

use deskgate_definition::tool::ToolSpec;
use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// At most this many tools for each server.
pub(super) const MAX_TOOLS: usize = 128;
/// The size limit of one description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
/// The size limit of a whole list, in bytes: a model reads it in every call.
const MAX_LIST_BYTES: usize = 256 * 1024;
/// The longest name that providers accept.
const MAX_NAME_BYTES: usize = 64;

/// The tools of a server at one moment, as far as models need them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    tools: Vec<ListedTool>,
}

/// One tool, in the server's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// The server's description of the tool.
    pub description: String,
    /// The arguments it takes, as a JSON schema.
    pub schema: Map<String, Value>,
}

impl ListedTool {
    /// Its arguments, for people. Models read them too, so instructions may be hidden there.
    pub fn arguments(&self) -> String {
        serde_json::to_string_pretty(&self.schema).unwrap_or_default()
    }

    /// The specification for a model, of this tool of a server; `None`: no model could call it.
    pub fn spec(&self, server: &str) -> Option<ToolSpec> {
        let Self { name, description, schema } = self;
        let (description, parameters) = (description.clone(), Value::Object(schema.clone()));
        Some(ToolSpec { name: name_for_models(server, name)?, description, parameters })
    }
}

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Too many tools.
    #[error("it lists more than {MAX_TOOLS} tools")]
    TooMany,
    /// Too much text.
    #[error(
        "its list of tools is too large: descriptions have at most {MAX_DESCRIPTION_BYTES} bytes, and all of it {MAX_LIST_BYTES}"
    )]
    TooLarge,
    /// A name that no model could call.
    #[error(
        "it lists a tool whose name cannot be used: names have letters, digits and _-./ and are short; two are never the same"
    )]
    Name,
    /// A schema that describes no arguments.
    #[error("it lists a tool whose arguments are not described as an object")]
    Schema,
}

/// A tool of a server, in the form a model gets.
pub(super) struct OfferedTool {
    /// The server's own name for it.
    pub(super) name: String,
    /// The specification for the model.
    pub(super) spec: ToolSpec,
}

impl Listing {
    /// Takes the list of a server named `server`. Its order is ignored.
    pub(super) fn new(server: &str, mut tools: Vec<ListedTool>) -> Result<Self, ListError> {
        if tools.len() > MAX_TOOLS {
            return Err(ListError::TooMany);
        }
        if tools.iter().any(|tool| tool.description.len() > MAX_DESCRIPTION_BYTES) {
            return Err(ListError::TooLarge);
        }
        if tools.iter().any(|tool| tool.schema.get("type").and_then(Value::as_str) != Some("object")) {
            return Err(ListError::Schema);
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let mut names: Vec<_> = tools.iter().map(|tool| name_for_models(server, &tool.name)).collect();
        names.sort();
        let usable = names.iter().all(|name| name.is_some());
        if !usable || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ListError::Name);
        }
        let listing = Self { tools };
        match serde_json::to_vec(&listing).map(|text| text.len()) {
            Ok(length) if length <= MAX_LIST_BYTES => Ok(listing),
            _ => Err(ListError::TooLarge),
        }
    }

    /// The digest that pins the list: names, descriptions and schemas, in the canonical form of RFC 8785.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_json(self).expect("it was read from JSON")
    }

    /// The tools, by name.
    pub fn tools(&self) -> &[ListedTool] {
        &self.tools
    }

    /// The names, for a person; without terminal control characters.
    pub fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    pub(super) fn into_tools(self, server: &str) -> impl Iterator<Item = OfferedTool> {
        self.tools.into_iter().filter_map(move |tool| Some(OfferedTool { spec: tool.spec(server)?, name: tool.name }))
    }
}

/// `mcp__server__tool`, the name for models. Providers accept fewer characters than the protocol.
fn name_for_models(server: &str, tool: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    if tool.is_empty() || !tool.bytes().all(fits) {
        return None;
    }
    let name = format!("mcp__{server}__{}", tool.replace(['.', '/'], "_"));
    (name.len() <= MAX_NAME_BYTES).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> ListedTool {
        let schema = json!({ "type": "object", "properties": {} });
        let Value::Object(schema) = schema else { unreachable!("it is written as one") };
        ListedTool { name: name.into(), description: description.into(), schema }
    }

    #[test]
    fn the_same_tools_in_another_order_have_the_same_digest_and_any_other_word_another() {
        let list = |tools: &[(&str, &str)]| {
            let tools = tools.iter().map(|(name, description)| tool(name, description)).collect();
            Listing::new("crm", tools).expect("usable").digest()
        };
        let one = list(&[("find", "Finds."), ("add", "Adds.")]);
        assert_eq!(one, list(&[("add", "Adds."), ("find", "Finds.")]));
        for other in [
            &[("find", "Finds. "), ("add", "Adds.")][..],
            &[("find", "Finds.")],
            &[("finds", "Finds."), ("add", "Adds.")],
        ] {
            assert_ne!(one, list(other));
        }
        let mut changed = tool("add", "Adds.");
        changed.schema.insert("required".into(), json!(["x"]));
        let changed = Listing::new("crm", vec![changed, tool("find", "Finds.")]).expect("usable");
        assert_ne!(one, changed.digest());
    }

    #[test]
    fn lists_that_would_flood_or_mislead_a_model_are_refused() {
        let refused = |tools: Vec<ListedTool>| Listing::new("crm", tools).expect_err("refused");
        let numbered = |count: usize, length: usize| {
            (0..count).map(|n| tool(&format!("t{n}"), &"d".repeat(length))).collect::<Vec<_>>()
        };
        assert_eq!(refused(numbered(129, 0)), ListError::TooMany);
        assert_eq!(refused(numbered(1, 9000)), ListError::TooLarge);
        assert_eq!(refused(numbered(100, 3000)), ListError::TooLarge);
        for names in [&["a b"][..], &["ü"], &[""], &["a.b", "a_b"], &["a", "a"], &["\u{1b}[2J"]] {
            assert_eq!(refused(names.iter().map(|name| tool(name, "")).collect()), ListError::Name, "{names:?}");
        }
        assert_eq!(refused(vec![tool(&"x".repeat(60), "")]), ListError::Name);
        let mut shapeless = tool("a", "");
        shapeless.schema.insert("type".into(), json!("string"));
        assert_eq!(refused(vec![shapeless]), ListError::Schema);
        assert!(Listing::new("crm", numbered(128, 100)).is_ok());
    }

    #[test]
    fn tools_are_named_as_models_know_it_and_called_by_the_servers_own_name() {
        let listing = Listing::new("crm", vec![tool("files/read.all", "Reads.")]).expect("usable");
        let offered: Vec<_> = listing.into_tools("crm").collect();
        assert_eq!(
            (offered[0].spec.name.as_str(), offered[0].name.as_str()),
            ("mcp__crm__files_read_all", "files/read.all")
        );
    }
}
