//! Schemas and data: both are refused with a place or decided in bounded time, and the same again.

use deskgate_schema::{DataSchema, Finding, MAX_DATA_BYTES, MAX_MISMATCHES};
use serde_json::{Value, json};

use super::{line, processor_time};

/// The most CPU seconds for one schema and its data, in an unoptimised build on a busy machine.
const LONGEST: f64 = 10.0;
/// The longest detail of a finding, in characters; it may be shortened and marked so.
const LONGEST_DETAIL: usize = 201;
/// How long the list is in which the data is repeated.
const REPEATED: usize = 500;

/// Judges a line, which is a schema, and the rest, which is data.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (schema, data) = line(&text);
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let data = serde_json::from_str(data).unwrap_or(Value::String(data.to_owned()));
    let began = processor_time();
    decide(&schema, &data);
    // What is written for one value is asked of many, also where it stands at the top.
    let inner = json!({ "type": "object", "properties": { "v": { "items": &schema } } });
    decide(&inner, &json!({ "v": vec![&data; REPEATED] }));
    let took = processor_time() - began;
    assert!(took < LONGEST, "it took {took} s");
}

fn decide(schema: &Value, data: &Value) {
    let read = DataSchema::read(schema.clone());
    let again = DataSchema::read(schema.clone());
    let (read, again) = match (read, again) {
        (Ok(read), Ok(again)) => (read, again),
        (Err(refused), Err(again)) => {
            assert_eq!(refused, again, "it is refused for another reason");
            told(&refused.0);
            return;
        }
        (read, again) => panic!("once {read:?}, once {again:?}"),
    };
    assert_eq!(read.value(), schema, "it is another schema");
    let found = read.check(data);
    assert_eq!(found, again.check(data), "it decides otherwise");
    match found {
        Ok(()) => {
            assert!(data.is_object(), "what is no object fits");
            assert!(data.to_string().len() <= MAX_DATA_BYTES, "it is too large");
        }
        Err(mismatch) => {
            assert!((1..=MAX_MISMATCHES).contains(&mismatch.0.len()), "{} places", mismatch.0.len());
            mismatch.0.iter().for_each(|found| {
                told(found);
                assert!(data.pointer(&found.pointer).is_some(), "{found:?} is nowhere in the data");
            });
        }
    }
}

fn told(found: &Finding) {
    assert!(!found.detail.is_empty() && found.detail.chars().count() <= LONGEST_DETAIL, "{found:?}");
    assert!(found.pointer.is_empty() || found.pointer.starts_with('/'), "{found:?}");
}
