//! What hostile schemas and data may cost.

use std::time::{Duration, Instant};

use deskgate_schema::{DataSchema, MAX_DATA_DEPTH, MAX_PATTERNS, Mismatch};
use serde_json::{Map, Value, json};

/// The most that a check may take, in an unoptimised build on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

fn of(member: Value) -> DataSchema {
    let schema = json!({ "type": "object", "properties": { "v": member } });
    DataSchema::read(schema).unwrap_or_else(|error| panic!("{error}"))
}

/// What is found, in bounded time.
fn found(schema: &DataSchema, member: impl Into<Value>) -> Result<(), Mismatch> {
    let data = json!({ "v": member.into() });
    let began = Instant::now();
    let found = schema.check(&data);
    assert!(began.elapsed() < LONGEST, "it took {:?}", began.elapsed());
    found
}

fn numbers(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!(n)).collect()
}

/// The one thing that is told.
fn only(found: Result<(), Mismatch>) -> String {
    let Mismatch(found) = found.expect_err("it does not fit");
    assert!(found.len() == 1 && found[0].pointer.is_empty(), "{found:?}");
    found[0].detail.clone()
}

#[test]
fn the_largest_schema_that_is_taken_validates_the_deepest_data_on_a_small_stack() {
    let mut chain: Map<_, _> =
        (0..7).map(|n| (format!("d{n}"), json!({ "allOf": [{ "$ref": format!("#/$defs/d{}", n + 1) }] }))).collect();
    chain.insert(
        "d7".to_owned(),
        json!({ "items": { "$ref": "#/$defs/d0" }, "properties": { "c": { "$ref": "#/$defs/d0" } } }),
    );
    let schema = json!({ "type": "object", "properties": { "c": { "$ref": "#/$defs/d0" } }, "$defs": chain });
    let data = "{\"c\":[".repeat(MAX_DATA_DEPTH / 2) + &"]}".repeat(MAX_DATA_DEPTH / 2);
    let checked = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || {
        let data: Value = serde_json::from_str(&data).expect("JSON");
        DataSchema::read(schema).expect("it is taken").check(&data)
    });
    assert_eq!(checked.expect("started").join().expect("no overflow"), Ok(()));
}

#[test]
fn schema_and_data_that_are_too_much_together_are_refused_and_not_checked() {
    let alternatives: Vec<_> = (0..3_000).map(|n| json!(100_000 + n)).collect();
    let names: Vec<_> = (0..2_000).map(|n| json!(format!("n{n}"))).collect();
    let empty = vec![json!({}); 80_000];
    for (schema, data) in [
        (json!({ "items": { "enum": alternatives } }), numbers(40_000)),
        (json!({ "items": { "required": names } }), empty.clone()),
        (json!({ "items": { "dependentRequired": { "a": names } } }), empty.clone()),
        (json!({ "items": { "anyOf": vec![json!({ "type": "string" }); 900] } }), numbers(40_000)),
    ] {
        let told = only(found(&of(schema), data));
        assert!(told.contains("steps"), "{told}");
    }
    let patterns = |count| -> Value {
        let pattern = |n| json!({ "pattern": format!("(x{n})|[ab].{{100}}d$") });
        json!({ "type": "object", "properties": { "v": { "allOf": (0..count).map(pattern).collect::<Vec<_>>() } } })
    };
    let many = DataSchema::read(patterns(MAX_PATTERNS)).unwrap_or_else(|error| panic!("{error}"));
    assert!(found(&many, "a".repeat(250_000)).is_err());
    let too_many = DataSchema::read(patterns(MAX_PATTERNS + 1)).expect_err("too many").0;
    assert!(too_many.detail.contains("patterns"), "{too_many}");
    // The same asked of less.
    assert_eq!(found(&of(json!({ "items": { "enum": numbers(3_000) } })), numbers(1_000)), Ok(()));
}

#[test]
fn a_validator_keeps_no_more_places_than_are_worth_telling() {
    let strings = of(json!({ "items": { "type": "string" } }));
    let Mismatch(told) = found(&strings, numbers(1_000)).expect_err("numbers");
    assert!(told.len() > 1 && told[0].pointer.starts_with("/v/"), "{told:?}");
    let much = of(json!({ "items": { "anyOf": vec![json!({ "type": "string" }); 30] } }));
    assert!(only(found(&much, numbers(40_000))).contains("too large to say where"));
    let fits: Vec<_> = (0..20_000).map(|n| json!(n.to_string())).collect();
    assert_eq!(found(&much, fits), Ok(()));
}

#[test]
fn one_pattern_over_the_longest_text_ends() {
    for pattern in ["^(a|aa){1,100}b$", "(a?){100}[ab]{100}b$", "(a*)*b", "(.*)(.*)(.*)b"] {
        assert!(found(&of(json!({ "pattern": pattern })), "a".repeat(250_000)).is_err(), "{pattern}");
    }
    let many: Map<_, _> = (0..20_000).map(|n| (format!("{n}a"), json!(1))).collect();
    let schema = of(json!({ "patternProperties": { "^(a|b|[0-9])*x$": false }, "uniqueItems": true }));
    assert_eq!(found(&schema, many), Ok(()));
}
