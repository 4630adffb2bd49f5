//! A service's schema as a part of a tool's: what it refers to in itself is found at its new place.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What a keyword of JSON Schema holds (draft 2020-12).
enum Holds {
    /// Something that is no schema.
    Data,
    Schema,
    ListOfSchemas,
    MapOfSchemas,
    Reference,
    /// What names a schema as a whole: the whole is another one now.
    Name,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        "$schema" | "$id" | "$anchor" => Holds::Name,
        "$ref" => Holds::Reference,
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => Holds::MapOfSchemas,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Holds::ListOfSchemas,
        "items"
        | "additionalProperties"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Holds::Schema,
        _ => Holds::Data,
    }
}

/// The places of subschemas, by their anchors.
type Anchors = BTreeMap<String, String>;

/// The schema at the place `place` of another one: a fragment, as `#/properties/data`. One that cannot be moved becomes a schema of any object.
pub(super) fn nested(schema: &Value, place: &str) -> Value {
    let mut anchors = Anchors::new();
    find_anchors(schema, place, &mut anchors);
    moved(schema, place, &anchors).unwrap_or_else(|| json!({ "type": "object" }))
}

fn find_anchors(schema: &Value, place: &str, anchors: &mut Anchors) {
    let Some(members) = schema.as_object() else { return };
    if let Some(name) = members.get("$anchor").and_then(Value::as_str) {
        anchors.insert(name.to_owned(), place.to_owned());
    }
    for (keyword, value) in members {
        match (holds(keyword), value) {
            (Holds::Schema, schema) => find_anchors(schema, &format!("{place}/{keyword}"), anchors),
            (Holds::ListOfSchemas, Value::Array(list)) => {
                for (at, schema) in list.iter().enumerate() {
                    find_anchors(schema, &format!("{place}/{keyword}/{at}"), anchors);
                }
            }
            (Holds::MapOfSchemas, Value::Object(map)) => {
                for (name, schema) in map {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    find_anchors(schema, &format!("{place}/{keyword}/{name}"), anchors);
                }
            }
            _ => {}
        }
    }
}

/// `None`: it refers to something that is not found in it.
fn moved(schema: &Value, place: &str, anchors: &Anchors) -> Option<Value> {
    let Some(members) = schema.as_object() else { return Some(schema.clone()) };
    let mut moved_members = Map::new();
    for (keyword, value) in members {
        let value = match (holds(keyword), value) {
            (Holds::Name, _) => continue,
            (Holds::Reference, Value::String(target)) => {
                let fragment = target.strip_prefix('#')?;
                let at = fragment.is_empty() || fragment.starts_with('/');
                let target = if at { format!("{place}{fragment}") } else { anchors.get(fragment)?.clone() };
                json!(target)
            }
            (Holds::Schema, schema) => moved(schema, place, anchors)?,
            (Holds::ListOfSchemas, Value::Array(list)) => {
                list.iter().map(|schema| moved(schema, place, anchors)).collect::<Option<_>>()?
            }
            (Holds::MapOfSchemas, Value::Object(map)) => {
                let named = map.iter().map(|(name, schema)| Some((name.clone(), moved(schema, place, anchors)?)));
                Value::Object(named.collect::<Option<_>>()?)
            }
            (_, data) => data.clone(),
        };
        moved_members.insert(keyword.clone(), value);
    }
    Some(Value::Object(moved_members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_whole_as_a_part_of_another() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/x", "type": "object",
            "properties": {
                "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#" }, "c": { "$ref": "#note" }, "$schema": { "const": { "$ref": "#/x" } },
            },
            "required": ["$schema"],
            "$defs": { "a": { "type": "string" }, "n/1": { "$anchor": "note", "anyOf": [{ "$ref": "#note" }, true] } },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "a": { "$ref": "#/p/$defs/a" }, "b": { "$ref": "#/p" }, "c": { "$ref": "#/p/$defs/n~11" },
                "$schema": { "const": { "$ref": "#/x" } },
            },
            "required": ["$schema"],
            "$defs": { "a": { "type": "string" }, "n/1": { "anyOf": [{ "$ref": "#/p/$defs/n~11" }, true] } },
        });
        assert_eq!(nested(&schema, "#/p"), expected);
        let elsewhere =
            json!({ "type": "object", "properties": { "a": { "$ref": "https://example.com/x#/$defs/a" } } });
        assert_eq!(nested(&elsewhere, "#/p"), json!({ "type": "object" }));
    }
}
