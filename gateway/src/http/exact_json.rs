//! What a JSON text says that its value cannot keep: members that stand twice, and numbers that would change.
//!
//! A parser keeps the last of two equal members and rounds a number with too many digits, both in silence. Two bodies
//! that differ would then be the same request.

use std::collections::HashSet;

use crate::domain::refusal::Flaw;

/// How many flaws are told at once.
const MAX_FLAWS: usize = 16;

/// The flaws of a text that is known to be JSON.
pub(super) fn flaws(json: &[u8]) -> Vec<Flaw> {
    let (mut flaws, mut levels, mut rest) = (Vec::new(), Vec::<Level>::new(), json);
    while let Some(first) = rest.first().filter(|_| flaws.len() < MAX_FLAWS) {
        let length = match first {
            b'"' => string_length(rest),
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| is_of_a_number(**byte)).count(),
            _ => 1,
        };
        let (token, behind) = rest.split_at(length.clamp(1, rest.len()));
        rest = behind;
        match first {
            b'{' => levels.push(Level::Object { seen: HashSet::new(), name: String::new(), is_name_next: true }),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Array(index)) => *index += 1,
                Some(Level::Object { is_name_next, .. }) => *is_name_next = true,
                None => {}
            },
            b'"' => {
                let Some(Level::Object { seen, name, is_name_next }) = levels.last_mut() else { continue };
                if std::mem::take(is_name_next) {
                    *name = serde_json::from_slice(token).unwrap_or_default();
                    if !seen.insert(name.clone()) {
                        let detail = "this member stands more than once in its object; send it once";
                        flaws.push(Flaw::new(pointer(&levels), "duplicate_member", detail));
                    }
                }
            }
            b'-' | b'0'..=b'9' if !is_kept(&String::from_utf8_lossy(token)) => {
                let detail = "a number that can be kept as it is: a whole number of 64 bits, or one with at most 15 \
                              digits and an exponent up to 300; send others as text";
                flaws.push(Flaw::new(pointer(&levels), "number_not_exact", detail));
            }
            _ => {}
        }
    }
    flaws
}

/// An object or array around the place that is read.
enum Level {
    Object { seen: HashSet<String>, name: String, is_name_next: bool },
    Array(usize),
}

/// The JSON pointer (RFC 6901) of the place inside these levels.
fn pointer(levels: &[Level]) -> String {
    let step = |level: &Level| match level {
        Level::Object { name, .. } => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Level::Array(index) => format!("/{index}"),
    };
    levels.iter().map(step).collect()
}

/// The length of the string that a text begins with, in its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let was_escaped = is_escaped;
        is_escaped = !was_escaped && *byte == b'\\';
        *byte == b'"' && !was_escaped
    });
    end.map_or(text.len(), |end| end + 2)
}

fn is_of_a_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Whether a number has the same digits when it is written again.
fn is_kept(number: &str) -> bool {
    if number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok() {
        return true;
    }
    let written = number.parse::<f64>().map(|value| format!("{value:e}"));
    written.is_ok_and(|written| decimal(number).is_some_and(|exact| Some(exact) == decimal(&written)))
}

/// A number as its digits without zeros at either end, and the power of ten of the last one; zero has neither.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (sign, unsigned) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    let cut = i64::try_from(digits.len() - significant.len()).ok()?;
    let shift = i64::try_from(fraction.len()).ok()?;
    let power = exponent.parse::<i64>().ok()?.checked_add(cut)?.checked_sub(shift)?;
    Some((sign, significant.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> Vec<(String, &'static str)> {
        serde_json::from_str::<serde_json::Value>(json).expect("a test's text is JSON");
        flaws(json.as_bytes()).into_iter().map(|flaw| (flaw.pointer, flaw.code)).collect()
    }

    #[test]
    fn a_member_that_stands_twice_is_found_however_it_is_written() {
        assert_eq!(told(r#"{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}],"":5,"d\"e":"{\"a\":6,\"a\":7}"}"#), []);
        let twice = |pointer: &str| vec![(pointer.to_owned(), "duplicate_member")];
        assert_eq!(told(r#"{"a":1,"a":1}"#), twice("/a"));
        assert_eq!(told(r#"{"a":[0,{"b/c~":null , "x":{} , "b\u002fc~" : 1}]}"#), twice("/a/1/b~1c~0"));
        assert_eq!(told(r#"{"":{"k\\":1,"k":2},"z":{"k\\":1,"\u006b\\":2}}"#), twice("/z/k\\"));
    }

    #[test]
    fn a_number_that_would_change_is_found_and_every_other_is_kept() {
        for kept in [
            "0",
            "-0",
            "0.0",
            "0e999999999999999999999",
            "9223372036854775807",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1.10",
            "1E3",
            "123.456e-7",
            "5e-324",
            "1.7976931348623157e308",
            "1e22",
            "100000000000000000000",
            "3.141592653589793",
            "1e-5",
            "0.000001",
        ] {
            assert_eq!(told(&format!("[{kept}]")), [], "{kept}");
        }
        for changed in [
            "18446744073709551616",
            "-9223372036854775809",
            "9007199254740993.0",
            "0.1000000000000000055",
            "3.14159265358979323846",
            "1e-400",
            "2e-324",
            "1e-99999999999999999999",
        ] {
            let found = told(&format!(r#"{{"n":[true,{changed}]}}"#));
            assert_eq!(found, [("/n/1".to_owned(), "number_not_exact")], "{changed}");
        }
    }

    #[test]
    fn what_is_told_is_bounded() {
        let many = format!("{{{}}}", vec![r#""a":1"#; 1000].join(","));
        assert_eq!(told(&many).len(), MAX_FLAWS);
    }
}
