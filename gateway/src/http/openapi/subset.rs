//! Restricts the document to what client generators support.
//!
//! Members are never null, so an optional one is marked by its absence from `required` alone. Sets that may grow are
//! not closed for clients: a value added next year must not break a client made today.

use serde_json::{Map, Value, json};

/// The sets of words that never grow, and those that only clients write.
const CLOSED_ENUMS: [&str; 3] = ["Phase", "Effects", "OnBusy"];

/// Rewrites the whole document.
pub(super) fn keep_to(document: &mut Value) {
    walk(document);
    let schemas = document["components"]["schemas"].as_object_mut().into_iter().flatten();
    for (_, schema) in schemas.filter(|(name, _)| !CLOSED_ENUMS.contains(&name.as_str())) {
        open(schema);
    }
}

fn walk(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(walk),
        Value::Object(members) => {
            tidy(members);
            members.values_mut().for_each(walk);
        }
        _ => {}
    }
}

fn tidy(members: &mut Map<String, Value>) {
    let null = json!({ "type": "null" });
    if let Some(Value::Array(choices)) = members.get_mut("oneOf") {
        choices.retain(|choice| *choice != null);
        if let [Value::Object(only)] = &mut choices[..] {
            let only = std::mem::take(only);
            members.remove("oneOf");
            members.extend(only);
        }
    }
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|name| name != "null");
        if let [Value::String(only)] = &types[..] {
            let only = only.clone();
            members.insert("type".to_owned(), only.into());
        }
    }
    // Names of members are texts anyway, and generators do not know the keyword.
    if members.get("propertyNames") == Some(&json!({ "type": "string" })) {
        members.remove("propertyNames");
    }
    for key in ["description", "summary"] {
        if let Some(Value::String(text)) = members.get_mut(key) {
            // Links of our own documentation lead nowhere here.
            *text = text.replace("[`", "`").replace("`]", "`");
        }
    }
}

/// Names the words that are known today without excluding others.
fn open(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if let Some(words) = members.remove("enum") {
        members.insert("x-extensible-enum".to_owned(), words);
        let text = members.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{text} Words may be added.").trim_start().to_owned();
        members.insert("description".to_owned(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_taken_out_and_sets_of_words_are_opened() {
        let one = json!({ "oneOf": [{ "$ref": "#/x", "description": "y" }, { "type": "null" }] });
        let two = json!({ "type": ["integer", "null"], "propertyNames": { "type": "string" } });
        let state = json!({ "type": "string", "description": "See [`X`].", "enum": ["a"] });
        let phase = json!({ "type": "string", "enum": ["b"] });
        let mut document = json!({
            "components": { "schemas": { "One": one, "Two": two, "State": state, "Phase": phase } }
        });
        keep_to(&mut document);
        let schemas = json!({
            "One": { "$ref": "#/x", "description": "y" },
            "Two": { "type": "integer" },
            "State": { "type": "string", "description": "See `X`. Words may be added.", "x-extensible-enum": ["a"] },
            "Phase": { "type": "string", "enum": ["b"] },
        });
        assert_eq!(document, json!({ "components": { "schemas": schemas } }));
    }
}
