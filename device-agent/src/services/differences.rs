//! What one version of a service has otherwise than another, field by field.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use deskgate_definition::{Definition, Service, Version};
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

/// A published version, or the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChoice {
    /// The draft.
    Draft,
    /// The published version of that number.
    Published(u32),
}

impl FromStr for VersionChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "draft" => Ok(Self::Draft),
            number => number
                .trim_start_matches('v')
                .parse()
                .map(Self::Published)
                .map_err(|_| format!("{text:?} is neither a version's number nor \"draft\"")),
        }
    }
}

impl fmt::Display for VersionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draft => f.write_str("draft"),
            Self::Published(number) => write!(f, "{number}"),
        }
    }
}

/// One version beside another.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The older one.
    pub from: VersionChoice,
    /// The newer one.
    pub to: VersionChoice,
    /// The fields that differ.
    pub fields: Vec<FieldDifference>,
}

/// Compares two versions of a service; by default the newest published one with the draft. `versions`: the published ones, newest
/// first.
///
/// # Errors
/// The chosen version that is none of them.
pub fn compare(
    service: &Service,
    versions: &[Version],
    from: Option<VersionChoice>,
    to: Option<VersionChoice>,
) -> Result<Comparison, VersionChoice> {
    let newest = versions.first().map_or(VersionChoice::Draft, |version| VersionChoice::Published(version.version));
    let (from, to) = (from.unwrap_or(newest), to.unwrap_or(VersionChoice::Draft));
    let definition = |chosen| match chosen {
        VersionChoice::Draft => Ok(&service.draft),
        VersionChoice::Published(number) => {
            let known = versions.iter().find(|version| version.version == number);
            known.map(|version| &version.definition).ok_or(chosen)
        }
    };
    Ok(Comparison { from, to, fields: between(definition(from)?, definition(to)?) })
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
