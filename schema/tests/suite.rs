//! The JSON Schema Test Suite for draft 2020-12 (`suite/README.md` says which part of it), asked of our own door.

use std::collections::BTreeSet;
use std::path::Path;

use deskgate_schema::DataSchema;
use serde_json::{Map, Value, json};

/// Where a schema of the suite stands in the one that is read: ours are of objects, the suite's of anything.
const PLACE: &str = "/properties/v";

/// What a file of the suite has: cases, each with a schema and data.
fn cases(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let read: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).expect("readable")).expect("JSON");
        cases.extend(read.into_iter().map(|case| (format!("{name}: {}", text(&case, "description")), case)));
    }
    cases
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of[member].as_str().expect("text")
}

/// The same schema one step further down, so that references from its root are longer.
fn placed(schema: &Value) -> Value {
    let moved = |text: &str| match text.strip_prefix('#') {
        Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => format!("#{PLACE}{pointer}"),
        _ => text.to_owned(),
    };
    match schema {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let value = match (name.as_str(), value) {
                    ("$ref", Value::String(text)) => Value::String(moved(text)),
                    ("const" | "enum", _) => value.clone(),
                    _ => placed(value),
                };
                (name.clone(), value)
            };
            Value::Object(members.iter().map(member).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(placed).collect(),
        other => other.clone(),
    }
}

/// What became of the cases: the names of those that are refused, with the reason, and of the tests that went otherwise.
#[derive(Default)]
struct Outcome {
    refused: BTreeSet<String>,
    otherwise: BTreeSet<String>,
    agreed: usize,
}

fn ask(folder: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, case) in cases(folder) {
        let mut schema = placed(&case["schema"]);
        if let Some(members) = schema.as_object_mut() {
            let draft = members.remove("$schema");
            assert!(draft.is_none_or(|draft| draft == "https://json-schema.org/draft/2020-12/schema"), "{name}");
        }
        let whole = json!({ "type": "object", "properties": { "v": schema } });
        let schema = match DataSchema::read(whole) {
            Ok(schema) => schema,
            Err(refused) => {
                outcome.refused.insert(format!("{name} | {}", refused.0));
                continue;
            }
        };
        for test in case["tests"].as_array().expect("a list") {
            let fits = schema.check(&json!({ "v": test["data"] })).is_ok();
            if test["valid"] == fits {
                outcome.agreed += 1;
            } else {
                outcome.otherwise.insert(format!("{name}: {}", text(test, "description")));
            }
        }
    }
    outcome
}

/// Compares with a list in the folder of the suite, one to a line; lines with `#` say why.
fn is_listed(found: &BTreeSet<String>, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(file);
    let listed = std::fs::read_to_string(path).expect("it is there");
    let listed: BTreeSet<_> =
        listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(found).collect();
    assert!(new.is_empty() && gone.is_empty(), "{file}: new are {new:#?}; no longer so are {gone:#?}");
}

#[test]
fn every_schema_of_the_suite_is_refused_with_a_reason_or_decides_as_the_suite_says() {
    let outcome = ask("draft2020-12");
    is_listed(&outcome.refused, "refused.txt");
    is_listed(&outcome.otherwise, "otherwise.txt");
    assert!(outcome.agreed > 1_000, "{}", outcome.agreed);
}

#[test]
fn formats_count_as_the_suite_says() {
    let outcome = ask("draft2020-12/format");
    assert_eq!(outcome.refused, BTreeSet::new());
    is_listed(&outcome.otherwise, "formats-otherwise.txt");
    assert!(outcome.agreed > 500, "{}", outcome.agreed);
}
