//! What one definition of a service has otherwise than another, field by field.

use std::collections::BTreeSet;

use deskgate_definition::Definition;
use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// A field that two definitions have differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldDifference {
    /// Its name, in words.
    pub field: String,
    /// Its lines, each after `-` (the older one alone has it), `+` (the newer one alone) or a space (both).
    pub lines: Vec<String>,
}

/// The fields that differ, by name.
pub fn between(old: &Definition, new: &Definition) -> Vec<FieldDifference> {
    let of = |definition: &Definition| serde_json::to_value(definition).unwrap_or_default();
    let (old, new) = (of(old), of(new));
    let fields: BTreeSet<_> =
        old.as_object().into_iter().chain(new.as_object()).flat_map(serde_json::Map::keys).collect();
    let changed = fields.into_iter().filter(|field| old.get(*field) != new.get(*field));
    changed.map(|field| difference(field, &shown(old.get(field)), &shown(new.get(field)))).collect()
}

fn difference(field: &str, old: &str, new: &str) -> FieldDifference {
    let differ = TextDiff::from_lines(old, new);
    let line = |change: similar::Change<&str>| {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        format!("{sign}{}", change.value().trim_end_matches('\n'))
    };
    FieldDifference { field: field.replace('_', " "), lines: differ.iter_all_changes().map(line).collect() }
}

/// The value of a definition's member, for people, in lines that end.
fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    format!("{}\n", if text.trim().is_empty() { "(empty)" } else { text.trim_end() })
}

#[cfg(test)]
mod tests {
    use deskgate_definition::ToolName;

    use super::*;

    #[test]
    fn a_long_text_differs_in_its_lines_and_a_list_as_a_whole() {
        let old = Definition { instructions: "Read.\nAnswer.".to_owned(), ..Definition::blank() };
        let tools = vec![ToolName::Read, ToolName::Glob];
        let new = Definition { instructions: "Read.\nAnswer briefly.".to_owned(), tools, ..Definition::blank() };
        let found = between(&old, &new);
        let of = |field: &str| &found.iter().find(|found| found.field == field).expect("it differs").lines;
        assert_eq!(of("instructions")[..], [" Read.", "-Answer.", "+Answer briefly."]);
        assert_eq!(of("tools")[1], "+Read, Glob");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(between(&new, &new), []);
    }
}
