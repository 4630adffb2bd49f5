//! The JSON Schema Test Suite for draft 2020-12, asked of our own door: all of it but what asks for other hosts, as the sources of a
//! package bring it (`scripts/setup test`).
//!
//! Each schema is asked as that of a member of an object, because typed data is an object, and as it is where it is one of objects.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use deskgate_schema::DataSchema;
use serde_json::{Map, Value, json};

/// Where a schema of the suite stands in the one that is read: ours are of objects, the suite's of anything.
const PLACE: &str = "/properties/v";

/// The refusals of schemas that lie outside of what `docs/data.md` says a schema may be, by what stands in them.
const REFUSALS: [&str; 7] = [
    // A reference to elsewhere, or by a whole address.
    "only references into the same schema",
    // A name of another resource inside the schema.
    "$id is supported at the top only",
    // A reference whose meaning depends on where it is reached from, and a name for one.
    "$dynamicRef is not supported",
    "$dynamicAnchor is not supported",
    "references with percent-encoding",
    // A keyword of an earlier draft.
    "dependencies is not supported",
    // A vocabulary of its own.
    "only draft 2020-12 is supported",
];

/// Where we decide otherwise than the suite says, on purpose: how the names of these tests begin.
const OTHERWISE: [&str; 5] = [
    // It says that formats are only remarks; here they count, as optional/format says.
    "format: ",
    // A whole number beyond 2^53 is to be text, so that every reader keeps it.
    "bignum: integer: ",
    "bignum: number: ",
    "bignum: maximum integer comparison: ",
    "bignum: minimum integer comparison: ",
];

/// Files of the suite that ask for other hosts.
const REMOTE: [&str; 1] = ["refRemote"];

/// What a folder of the suite has: cases, each with a schema and data.
fn cases(folder: &Path) -> Vec<(String, Value)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
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

fn tests(case: &Value) -> &[Value] {
    case["tests"].as_array().expect("a list")
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

/// A schema of the suite as that of a member. Its address and its draft are those of the whole.
fn as_member(schema: &Value) -> Value {
    let mut inner = placed(schema);
    let mut whole = Map::new();
    if let Some(members) = inner.as_object_mut() {
        for name in ["$id", "$schema"] {
            whole.extend(members.remove(name).map(|value| (name.to_owned(), value)));
        }
    }
    whole.insert("type".to_owned(), json!("object"));
    whole.insert("properties".to_owned(), json!({ "v": inner }));
    Value::Object(whole)
}

/// A schema of the suite as it is, if it is asked of objects only and says of nothing else that it is one.
fn as_whole(case: &Value) -> Option<Value> {
    let mut members = case["schema"].as_object()?.clone();
    let says_object = members.get("type").is_some_and(|kind| kind == "object");
    let may_say_so =
        !members.contains_key("type") && !members.contains_key("$anchor") && !refers_to_root(&case["schema"]);
    let is_asked = tests(case).iter().all(|test| test["data"].is_object());
    members.insert("type".to_owned(), json!("object"));
    ((says_object || may_say_so) && is_asked).then_some(Value::Object(members))
}

fn refers_to_root(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.get("$ref").is_some_and(|reference| reference == "#") || members.values().any(refers_to_root)
        }
        Value::Array(items) => items.iter().any(refers_to_root),
        _ => false,
    }
}

/// What became of the cases.
#[derive(Default)]
struct Outcome {
    /// The names of those that are refused in each way they can be asked, with the reason.
    refused: BTreeSet<String>,
    /// The tests that went otherwise than the suite says.
    otherwise: BTreeSet<String>,
    /// How many went as it says.
    agreed: usize,
}

impl Outcome {
    fn ask(&mut self, folder: &Path) {
        for (name, case) in cases(folder) {
            if !REMOTE.iter().any(|file| name.starts_with(&format!("{file}: "))) {
                self.ask_case(&name, &case);
            }
        }
    }

    fn ask_case(&mut self, name: &str, case: &Value) {
        let member = DataSchema::read(as_member(&case["schema"]));
        let whole = as_whole(case).map(DataSchema::read);
        if let (Err(refused), None | Some(Err(_))) = (&member, &whole) {
            self.refused.insert(format!("{name} | {}", refused.0));
            return;
        }
        for test in tests(case) {
            let data = &test["data"];
            let in_member = member.as_ref().ok().map(|schema| schema.check(&json!({ "v": data })).is_ok());
            let in_whole = whole.as_ref().and_then(|read| read.as_ref().ok()).map(|schema| schema.check(data).is_ok());
            if [in_member, in_whole].into_iter().flatten().all(|fits| test["valid"] == fits) {
                self.agreed += 1;
            } else {
                self.otherwise.insert(format!("{name}: {}", text(test, "description")));
            }
        }
    }
}

/// The suite's folder for the draft.
fn suite() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it stands in the repository");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = root.join(target).join("tools/schema-suite/tests/draft2020-12");
    assert!(folder.is_dir(), "{} is missing: run scripts/setup test", folder.display());
    folder
}

#[test]
fn every_schema_is_refused_for_a_reason_that_we_tell_or_decides_as_the_suite_says() {
    let folder = suite();
    let mut outcome = Outcome::default();
    for part in ["", "optional", "optional/format"] {
        outcome.ask(&folder.join(part));
    }
    let is_told = |refused: &str| REFUSALS.iter().any(|words| refused.contains(words));
    let untold: Vec<_> = outcome.refused.iter().filter(|refused| !is_told(refused)).collect();
    assert!(untold.is_empty(), "refused for another reason: {untold:#?}");
    let is_meant = |test: &str| OTHERWISE.iter().any(|name| test.starts_with(name));
    let wrong: Vec<_> = outcome.otherwise.iter().filter(|test| !is_meant(test)).collect();
    assert!(wrong.is_empty(), "otherwise than the suite says: {wrong:#?}");
    for name in OTHERWISE {
        assert!(outcome.otherwise.iter().any(|test| test.starts_with(name)), "all goes as the suite says: {name}");
    }
    assert!(outcome.agreed > 1_600, "{} of the suite's tests are asked and agree", outcome.agreed);
}
