//! The path of a value in a payload: a singular query of JSONPath (RFC 9535, section 2.3.5.1).
//!
//! A singular query leads to at most one value, in as many steps as it has names and indices. The whole language has
//! wildcards, slices, filters and descents, whose cost grows with powers of the payload's size, and no library bounds
//! it; and each field of a mapping takes one value anyway.

use serde_json::Value;

use super::character;

/// Bytes of a path.
const MAX_PATH_BYTES: usize = 512;
/// The largest index: JSON's exact integers (RFC 9535, section 2.1).
const MAX_INDEX: i64 = (1 << 53) - 1;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Name(String),
    /// From the end if it is negative.
    Index(i64),
}

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no path to one value, as $.issue.title or $['first name'][0]: {why} (its character {at})")]
pub struct InvalidPath {
    text: String,
    at: usize,
    why: &'static str,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// See [`InvalidPath`].
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        let wrong = |(why, rest)| InvalidPath { text: text.chars().take(80).collect(), at: character(text, rest), why };
        steps(text).map(Self).map_err(wrong)
    }

    /// The value at the path, if there is one.
    pub fn of<'a>(&self, payload: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(payload, |value, step| match (step, value) {
            (PathStep::Name(name), Value::Object(members)) => members.get(name),
            (PathStep::Index(index), Value::Array(values)) => match usize::try_from(*index) {
                Ok(index) => values.get(index),
                Err(_) => values.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?).map(|i| &values[i]),
            },
            _ => None,
        })
    }
}

/// Why parsing stopped, and the rest of the text.
type ParseStop<'a> = (&'static str, &'a str);

fn steps(text: &str) -> Result<Vec<PathStep>, ParseStop<'_>> {
    if text.len() > MAX_PATH_BYTES {
        return Err(("it is longer than 512 bytes", ""));
    }
    let mut rest = text.strip_prefix('$').ok_or(("it begins with $", text))?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step;
        (step, rest) = match rest.trim_start_matches(BLANK_CHARS) {
            "" => return Err(("it ends with a blank", rest)),
            more if more.starts_with("..") => return Err((".. leads to many values", more)),
            more if more.starts_with('.') => dotted(&more[1..])?,
            more if more.starts_with('[') => bracketed(more[1..].trim_start_matches(BLANK_CHARS))?,
            more => return Err(("a name follows a dot, or stands in brackets", more)),
        };
        steps.push(step);
    }
    Ok(steps)
}

const BLANK_CHARS: [char; 4] = [' ', '\t', '\n', '\r'];

/// A name after a dot: `member-name-shorthand`.
fn dotted(text: &str) -> Result<(PathStep, &str), ParseStop<'_>> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let end = text.find(|c: char| !first(c) && !c.is_ascii_digit()).unwrap_or(text.len());
    match text.chars().next() {
        Some(c) if first(c) => Ok((PathStep::Name(text[..end].to_owned()), &text[end..])),
        Some('*') => Err(("* leads to many values", text)),
        _ => Err(("a name after a dot begins with a letter", text)),
    }
}

/// The content of a bracket: one name in quotes, or one index.
fn bracketed(text: &str) -> Result<(PathStep, &str), ParseStop<'_>> {
    const BRACKET_ERROR: &str = "in brackets stands one name in quotes, or one index";
    let (step, rest) = match text.chars().next() {
        Some(quote @ ('\'' | '"')) => {
            let (name, rest) = quoted(&text[1..], quote)?;
            (PathStep::Name(name), rest)
        }
        Some('-' | '0'..='9') => {
            let end = text.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(text.len());
            (PathStep::Index(index(&text[..end]).map_err(|why| (why, text))?), &text[end..])
        }
        _ => return Err((BRACKET_ERROR, text)),
    };
    let rest = rest.trim_start_matches(BLANK_CHARS);
    Ok((step, rest.strip_prefix(']').ok_or((BRACKET_ERROR, rest))?))
}

fn index(digits: &str) -> Result<i64, &'static str> {
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let canonical = digits == "0" || !plain.is_empty() && !plain.starts_with('0') && !plain.contains('-');
    let number = digits.parse::<i64>().ok().filter(|number| canonical && number.abs() <= MAX_INDEX);
    number.ok_or("an index is a whole number without zeros before it")
}

/// The text before the closing quote.
fn quoted(text: &str, quote: char) -> Result<(String, &str), ParseStop<'_>> {
    const ESCAPE_ERROR: &str = "what follows a backslash is not known";
    let (mut name, mut rest) = (String::new(), text.chars());
    loop {
        let here = rest.as_str();
        let Some(c) = rest.next() else { return Err(("a quote is missing", here)) };
        match c {
            c if c == quote => return Ok((name, rest.as_str())),
            c if c < ' ' => return Err(("a control character is written with a backslash", here)),
            '\\' => match rest.next().ok_or((ESCAPE_ERROR, here))? {
                'b' => name.push('\u{8}'),
                'f' => name.push('\u{c}'),
                'n' => name.push('\n'),
                'r' => name.push('\r'),
                't' => name.push('\t'),
                c @ ('/' | '\\') => name.push(c),
                c if c == quote => name.push(c),
                'u' => {
                    let (c, more) = escaped(rest.as_str()).ok_or((ESCAPE_ERROR, here))?;
                    name.push(c);
                    rest = more.chars();
                }
                _ => return Err((ESCAPE_ERROR, here)),
            },
            c => name.push(c),
        }
    }
}

/// The character behind `\u`, which may take two of them.
fn escaped(text: &str) -> Option<(char, &str)> {
    let unit = |text: &str| {
        let digits = text.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (first, rest) = (unit(text)?, &text[4..]);
    if !(0xD800..0xDC00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let rest = rest.strip_prefix("\\u")?;
    let second = unit(rest).filter(|second| (0xDC00..0xE000).contains(second))?;
    Some((char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))?, &rest[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn found(path: &str, payload: &Value) -> Option<Value> {
        Path::parse(path).unwrap_or_else(|error| panic!("{error}")).of(payload).cloned()
    }

    #[test]
    fn a_path_leads_to_one_value_or_none() {
        let payload = json!({ "a": { "b c": [1, { "d": "x" }, null] }, "☺": true, "'": 5, "_9": 6, "😀": 7 });
        for (path, value) in [
            ("$", Some(payload.clone())),
            ("$.a['b c'][1].d", Some(json!("x"))),
            ("$ .a [ \"b c\" ]\n[ -2 ].d", Some(json!("x"))),
            ("$.a['b c'][-3]", Some(json!(1))),
            ("$.a['b c'][2]", Some(Value::Null)),
            ("$.a['b c'][3]", None),
            ("$.a['b c'][-4]", None),
            ("$.a['b c'].d", None),
            ("$.a[0]", None),
            ("$.☺", Some(json!(true))),
            (r"$['\'']", Some(json!(5))),
            ("$[\"'\"]", Some(json!(5))),
            ("$._9", Some(json!(6))),
            (r"$['\uD83D\uDE00']", Some(json!(7))),
            (r"$['\u263A']", Some(json!(true))),
        ] {
            assert_eq!(found(path, &payload), value, "{path}");
        }
    }

    #[test]
    fn what_leads_to_many_or_is_not_written_so_is_refused() {
        for path in [
            "",
            "a",
            " $",
            "$ ",
            "$.",
            "$..a",
            "$.*",
            "$[*]",
            "$[1,2]",
            "$[0:1]",
            "$[?@.a]",
            "$['a','b']",
            "$[01]",
            "$[-0]",
            "$[--1]",
            "$[-]",
            "$[9007199254740992]",
            "$[",
            "$['a'",
            "$['a",
            "$[a]",
            "$.1a",
            "$a",
            "$. a",
            r"$['\x']",
            r"$['\uD83D']",
            r"$['\uDE00']",
            r#"$['\"']"#,
            "$['\u{1}']",
            "$.a.$",
        ] {
            assert!(Path::parse(path).is_err(), "{path:?}");
        }
        assert!(Path::parse(&format!("${}", ".a".repeat(256))).is_err(), "too long");
    }

    #[test]
    fn what_is_wrong_is_found_at_its_character() {
        for (path, at) in
            [("a", 1), ("$ß..a", 2), ("$.ß..a", 4), ("$.a[01]", 5), ("$.a['ß\\x']", 7), ("$['a'", 6), ("$.1", 3)]
        {
            assert_eq!(Path::parse(path).expect_err(path).at, at, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_found_in_quotes(name: String) {
            let written = format!("$[{}]", serde_json::to_string(&name).expect("a text"));
            prop_assume!(written.len() <= MAX_PATH_BYTES && !name.contains('\u{7f}'));
            prop_assert_eq!(found(&written, &json!({ &name: 1 })), Some(json!(1)));
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = Path::parse(&text);
            let _ = Path::parse(&format!("$['{text}"));
            let _ = Path::parse(&format!("$[{text}"));
        }
    }
}
