use serde_json::json;

use super::*;

fn schema(value: Value) -> DataSchema {
    DataSchema::read(value).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(value: Value) -> Finding {
    match DataSchema::read(value) {
        Ok(schema) => panic!("{schema:?}"),
        Err(UnsupportedSchema(found)) => found,
    }
}

fn object(members: Value) -> Value {
    let mut schema = json!({ "type": "object" });
    let members = members.as_object().cloned().expect("an object");
    schema.as_object_mut().expect("an object").extend(members);
    schema
}

#[test]
fn data_fits_or_each_place_that_does_not_is_told() {
    let invoices = schema(object(json!({
        "properties": { "count": { "type": "integer" }, "ids": { "type": "array", "items": { "type": "string" } } },
        "required": ["count", "ids"],
        "additionalProperties": false,
    })));
    assert_eq!(invoices.check(&json!({ "count": 2, "ids": ["2026-102", "2026-103"] })), Ok(()));
    let Mismatch(found) =
        invoices.check(&json!({ "count": "two", "ids": [1], "more": 1 })).expect_err("three mistakes");
    let pointers: Vec<_> = found.iter().map(|found| found.pointer.as_str()).collect();
    assert!(["", "/count", "/ids/0"].iter().all(|pointer| pointers.contains(pointer)), "{found:?}");
    let secret = schema(object(json!({ "properties": { "a": { "const": 1 } } })));
    let told = secret.check(&json!({ "a": "sk-canary" })).expect_err("no 1").to_string();
    assert!(told.contains("/a") && !told.contains("canary"), "{told}");
    let many = json!({ "ids": vec![1; 100], "count": 0 });
    assert_eq!(invoices.check(&many).expect_err("numbers").0.len(), MAX_MISMATCHES);
}

#[test]
fn formats_and_patterns_count() {
    let day =
        schema(object(json!({ "properties": { "day": { "format": "date" }, "id": { "pattern": "^inv-[0-9]+$" } } })));
    assert_eq!(day.check(&json!({ "day": "2026-11-27", "id": "inv-7" })), Ok(()));
    assert!(day.check(&json!({ "day": "27.11.2026" })).is_err() && day.check(&json!({ "id": "inv-x" })).is_err());
}

#[test]
fn what_is_no_schema_for_an_object_of_this_draft_is_refused_at_its_place() {
    let at = |value: Value| refused(value).pointer;
    assert_eq!(at(json!(true)), "");
    assert_eq!(at(json!({ "type": "array" })), "/type");
    let behind = refused(object(json!({ "properties": { "a": { "pattern": "a(?!b)" } } })));
    assert!(behind.pointer == "/properties/a/pattern" && behind.detail.contains("look-around"), "{behind}");
    assert_eq!(at(object(json!({ "$schema": "http://json-schema.org/draft-07/schema#" }))), "/$schema");
    assert_eq!(at(object(json!({ "properties": { "a": { "$dynamicRef": "#a" } } }))), "/properties/a/$dynamicRef");
    assert_eq!(at(object(json!({ "properties": { "a/b": { "$id": "x" } } }))), "/properties/a~1b/$id");
    assert_eq!(at(object(json!({ "properties": { "a": 3 } }))), "/properties/a");
    assert_eq!(at(object(json!({ "properties": { "a": { "type": "text" } } }))), "/properties/a/type");
    assert_eq!(at(object(json!({ "properties": { "a": { "pattern": "(" } } }))), "/properties/a/pattern");
    // What only a backtracking engine can do.
    assert!(DataSchema::read(object(json!({ "properties": { "a": { "pattern": "(a)\\1" } } }))).is_err());
    for elsewhere in
        ["https://example.com/s.json", "file:///etc/passwd", "other.json#/a", "#/nowhere", "#unnamed", "#/%24defs"]
    {
        assert_eq!(
            at(object(json!({ "properties": { "a": { "$ref": elsewhere } } }))),
            "/properties/a/$ref",
            "{elsewhere}"
        );
    }
    assert_eq!(at(object(json!({ "description": "x".repeat(MAX_SCHEMA_BYTES) }))), "");
    let many: serde_json::Map<_, _> = (0..=MAX_PROPERTIES).map(|n| (n.to_string(), json!({}))).collect();
    assert!(refused(object(json!({ "properties": many }))).detail.contains("properties"));
    let mut deep = json!({});
    (0..MAX_DEPTH + 1).for_each(|_| deep = json!({ "properties": { "a": deep } }));
    assert!(refused(object(json!({ "properties": { "a": deep } }))).detail.contains("deeper"));
}

#[test]
fn references_within_the_schema_work_and_trees_are_described_by_themselves() {
    let tree = schema(json!({
        "type": "object",
        "properties": {
            "name": { "$ref": "#/$defs/name" },
            "children": { "type": "array", "items": { "$ref": "#" } },
            "note": { "$ref": "#note" },
        },
        "$defs": { "name": { "type": "string" }, "note": { "$anchor": "note", "maxLength": 3 } },
    }));
    assert_eq!(tree.check(&json!({ "name": "a", "children": [{ "name": "b", "children": [] }] })), Ok(()));
    let Mismatch(found) = tree.check(&json!({ "children": [{ "children": [{ "name": 7 }] }] })).expect_err("a number");
    assert_eq!(found[0].pointer, "/children/0/children/0/name");
    assert!(tree.check(&json!({ "note": "long" })).is_err());
    let of_two = json!({ "$defs": { "n": { "properties": { "l": { "$ref": "#/$defs/n" }, "r": { "$ref": "#/$defs/n" } } } },
        "type": "object", "properties": { "root": { "$ref": "#/$defs/n" } } });
    assert_eq!(schema(of_two).check(&json!({ "root": { "l": { "r": {} }, "r": {} } })), Ok(()));
}

/// A schema that would be looked at more often than any computer could.
fn laughs(levels: usize, wide: usize) -> Value {
    let level = |n: usize| json!({ "allOf": vec![json!({ "$ref": format!("#/$defs/l{}", n + 1) }); wide] });
    let mut defs: serde_json::Map<_, _> = (0..levels).map(|n| (format!("l{n}"), level(n))).collect();
    defs.insert(format!("l{levels}"), json!({ "maxLength": 3 }));
    object(json!({ "properties": { "a": { "$ref": "#/$defs/l0" } }, "$defs": defs }))
}

#[test]
fn what_would_cost_too_much_is_refused_before_anything_is_compiled() {
    assert!(refused(laughs(7, 10)).detail.contains("references followed"));
    assert!(refused(laughs(500, 1)).detail.contains("look at the same value"));
    assert!(DataSchema::read(laughs(6, 2)).is_ok());
    let step =
        |n: usize| (format!("d{n}"), json!({ "properties": { "a": { "$ref": format!("#/$defs/d{}", n + 1) } } }));
    let mut steps: serde_json::Map<_, _> = (0..100).map(step).collect();
    steps.insert("d100".to_owned(), json!(true));
    assert!(
        refused(object(json!({ "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": steps })))
            .detail
            .contains("deeper")
    );
    let round = |value: Value| object(json!({ "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": value }));
    for circle in [
        json!({ "a": { "$ref": "#/$defs/a" } }),
        json!({ "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } }),
    ] {
        assert!(refused(round(circle)).detail.contains("without looking at a part"));
    }
    assert!(refused(object(json!({ "allOf": [{ "$ref": "#" }] }))).detail.contains("without looking"));
    // Each would have all those inside it look at the value again.
    let mut asked = json!({ "properties": { "q": true } });
    (0..4).for_each(|_| asked = json!({ "allOf": [asked], "unevaluatedProperties": { "type": "integer" } }));
    assert!(refused(object(json!({ "properties": { "a": asked } }))).detail.contains("unevaluatedProperties"));
    assert!(DataSchema::read(object(json!({ "properties": { "a": asked["allOf"][0] } }))).is_ok());
    // Keywords of earlier drafts, which the validator follows all the same.
    for earlier in ["dependencies", "additionalItems"] {
        let named = if earlier == "dependencies" {
            json!({ "x": { "$ref": "#/$defs/a" } })
        } else {
            json!({ "$ref": "#/$defs/a" })
        };
        let found = refused(round(json!({ "a": { "prefixItems": [{}], earlier: named } })));
        assert_eq!(found.pointer, format!("/$defs/a/{earlier}"), "{found}");
    }
    // Each level of the data would double the work.
    let again = |n: usize| vec![json!({ "properties": { "c": { "$ref": "#/$defs/a" } } }); n];
    assert!(DataSchema::read(round(json!({ "a": { "allOf": again(1) } }))).is_ok());
    assert!(refused(round(json!({ "a": { "allOf": again(2) } }))).detail.contains("more than once"));
    let both = json!({ "a": { "properties": { "c": { "$ref": "#/$defs/a" } }, "patternProperties": { "^c": { "$ref": "#/$defs/a" } } } });
    assert!(refused(round(both)).detail.contains("more than once"));
    // Two that each go deeper, side by side: the work would grow with a power of the depth.
    let two = json!({ "a": { "properties": { "c": { "$ref": "#/$defs/a" } }, "additionalProperties": { "$ref": "#/$defs/b" } },
        "b": { "additionalProperties": { "$ref": "#/$defs/b" } } });
    assert!(refused(round(two)).detail.contains("more than once"));
}

#[test]
fn numbers_that_readers_change_and_data_that_is_too_large_are_refused() {
    let any = schema(object(json!({})));
    for (number, fits) in [(1_u64 << 53, true), ((1 << 53) + 1, false), (u64::MAX, false)] {
        let found = any.check(&json!({ "a": [{ "n": number }] }));
        assert_eq!(found.is_ok(), fits, "{number}");
        assert!(fits || found.expect_err("too large").0[0].pointer == "/a/0/n");
    }
    assert!(any.check(&json!({ "a": -9_007_199_254_740_993_i64 })).is_err());
    let written = |number: &str| serde_json::from_str::<Value>(&format!(r#"{{"a": {number}}}"#)).expect("JSON");
    for (number, fits) in [
        ("98765432109876543210", false),
        ("-9400111899223344556677", false),
        ("9.876543210987654321e19", false),
        ("6.02214076e23", true),
        ("-1e300", true),
        ("100000000000000000000", true),
        ("0.12345678901234567", true),
        ("9007199254740992.0", true),
    ] {
        assert_eq!(any.check(&written(number)).is_ok(), fits, "{number}");
    }
    assert!(any.check(&json!({ "a": "x".repeat(MAX_DATA_BYTES) })).is_err());
    let mut deep = json!({});
    (0..MAX_DATA_DEPTH).for_each(|_| deep = json!({ "a": deep }));
    assert_eq!(any.check(&deep), Ok(()));
    assert!(any.check(&json!({ "a": deep })).is_err());
}
