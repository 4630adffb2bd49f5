//! Schemas of typed inputs and results, and whether data fits one.
//!
//! A schema comes from an owner or a caller, data from a caller or a model: both may be hostile. A schema is JSON Schema, draft
//! 2020-12, with references to itself alone, patterns that cost no more than the text's length, and a shape for which validation
//! asks no more than [`MAX_EXPANSION`] subschemas about each value in the data; schema and data together take at most [`MAX_STEPS`].
//! Both halves are to validate with this crate, each for itself.

mod limits;

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

pub use limits::{MAX_DEPTH, MAX_EXPANSION, MAX_PATTERNS, MAX_PROPERTIES, MAX_SCHEMA_BYTES};

/// The largest data, in bytes of JSON.
pub const MAX_DATA_BYTES: usize = 256 * 1024;
/// How deep data may be nested.
pub const MAX_DATA_DEPTH: usize = 64;
/// The whole numbers that every reader of JSON keeps exactly: 2⁵³.
pub const MAX_INTEGER: u64 = 1 << 53;
/// The digits of a number that are kept however large it is.
const EXACT_DIGITS: usize = 15;
/// How many mismatches are told.
pub const MAX_MISMATCHES: usize = 20;
/// The most steps that a check may take: what the schema costs for one value, times the values and each 64 bytes of text.
pub const MAX_STEPS: usize = 20_000_000;
/// Up to so many steps each place that does not fit is told. Beyond, only that the data does not fit: a validator keeps every place,
/// and each may take a step.
pub const MAX_STEPS_TOLD: usize = 500_000;
/// How many bytes of data count as one more value.
const TEXT_OF_A_VALUE: usize = 64;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// The longest detail, in characters: values are not repeated whole.
const MAX_DETAIL_CHARS: usize = 200;

/// Something at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The place, as a JSON Pointer (RFC 6901); empty for the whole.
    pub pointer: String,
    /// What is wrong there, in words.
    pub detail: String,
}

impl Finding {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "the whole" } else { &self.pointer };
        write!(f, "{place}: {}", self.detail)
    }
}

/// Why a schema is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be used: {0}")]
pub struct UnsupportedSchema(pub Finding);

/// What of some data does not fit its schema, at most [`MAX_MISMATCHES`] places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(pub Vec<Finding>);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Finding::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

/// A schema that was found fit for use.
#[derive(Clone)]
pub struct DataSchema {
    value: Value,
    validator: Validator,
    /// The most that it costs for one value.
    cost: usize,
}

impl fmt::Debug for DataSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DataSchema").field(&self.value).finish()
    }
}

impl DataSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// It is none of draft 2020-12, it is too large, or validation by it could cost too much. The first thing that is wrong.
    pub fn read(value: Value) -> Result<Self, UnsupportedSchema> {
        let cost = limits::check(&value).map_err(UnsupportedSchema)?;
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        let built = options.with_pattern_options(patterns).build(&value);
        match built {
            Ok(validator) => Ok(Self { value, validator, cost }),
            Err(error) => {
                let pointer = error.instance_path().as_str().to_owned();
                let detail = match pointer.ends_with("/pattern") {
                    true => "this pattern is not supported: it is no regular expression, or one with look-around or \
                             back-references"
                        .to_owned(),
                    false => shorten(&error.to_string()),
                };
                Err(UnsupportedSchema(Finding::new(pointer, detail)))
            }
        }
    }

    /// The schema itself.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Whether data fits.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, data: &Value) -> Result<(), Mismatch> {
        let wrong = |found| Err(Mismatch(vec![found]));
        let values = match check_data(data) {
            Ok(values) => values,
            Err(found) => return wrong(found),
        };
        let steps = values.saturating_mul(self.cost);
        if steps > MAX_STEPS {
            let detail = format!(
                "it takes more than {MAX_STEPS} steps to check by this schema; send less, or simplify the schema"
            );
            return wrong(Finding::new("", detail));
        }
        if steps > MAX_STEPS_TOLD {
            return match self.validator.is_valid(data) {
                true => Ok(()),
                false => wrong(Finding::new("", "it does not fit the schema; it is too large to say where")),
            };
        }
        let errors = self.validator.iter_errors(data).take(MAX_MISMATCHES);
        let found: Vec<_> = errors
            .map(|error| {
                let pointer = error.instance_path().as_str().to_owned();
                // The value itself may be large, and secret.
                Finding::new(pointer, shorten(&error.masked_with("it").to_string()))
            })
            .collect();
        if found.is_empty() { Ok(()) } else { Err(Mismatch(found)) }
    }
}

/// What any data must be: small enough, and with numbers that every reader keeps. Returns
/// how many values it counts as.
fn check_data(data: &Value) -> Result<usize, Finding> {
    let bytes = data.to_string().len();
    if bytes > MAX_DATA_BYTES {
        return Err(Finding::new("", format!("it has {bytes} bytes; at most {MAX_DATA_BYTES} are taken")));
    }
    Ok(bytes / TEXT_OF_A_VALUE + check_parts(data, &mut String::new(), 0)?)
}

fn check_parts(data: &Value, pointer: &mut String, depth: usize) -> Result<usize, Finding> {
    let mut values = 1;
    let length = pointer.len();
    if depth > MAX_DATA_DEPTH {
        return Err(Finding::new(pointer.as_str(), format!("it is nested deeper than {MAX_DATA_DEPTH}")));
    }
    match data {
        Value::Number(number) => {
            if is_changed(number) {
                let detail = "a whole number beyond 2^53 is not kept exactly by every reader; write it as text";
                return Err(Finding::new(pointer.as_str(), detail));
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                limits::push(pointer, &place.to_string());
                values += check_parts(item, pointer, depth + 1)?;
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                limits::push(pointer, name);
                values += check_parts(member, pointer, depth + 1)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
    Ok(values)
}

/// Whether it is a whole number of which some readers keep another. One beyond 64 bits is already rounded when it comes here: what
/// then still has so many digits was one that had them all, as the number of a parcel, and no measurement, as 6.02e23.
fn is_changed(number: &Number) -> bool {
    if let Some(whole) = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs)) {
        return whole > MAX_INTEGER;
    }
    let digits = |rounded: f64| {
        let written = format!("{:e}", rounded.abs());
        written.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count()
    };
    number.as_f64().is_some_and(|rounded| rounded.abs() > MAX_INTEGER as f64 && digits(rounded) > EXACT_DIGITS)
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_DETAIL_CHARS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests;
