//! Removes a secret that is known from somebody else's text, however it is written there.
//!
//! Whoever refuses a request likes to repeat it: in an address, where a secret is percent-encoded, or as JSON within JSON,
//! where it is escaped. Each encoder chooses for itself which characters it changes, so that no list of forms would do.

/// The shortest secret that is looked for, in bytes: a shorter one, such as `none`, is a word.
const MIN_KNOWN_BYTES: usize = 8;
/// How often a text may have been encoded: an address within an address, JSON within JSON.
const MAX_LAYERS: usize = 2;
/// More backslashes than belong to one character, so that a long row of them is not counted again and again.
const MAX_SLASHES: usize = 1 << (MAX_LAYERS + 1);
/// More bytes than an escape has that is cut off.
const MAX_ESCAPE_BYTES: usize = MAX_SLASHES + "u0000".len();

/// The text with something else in each place of the secret: as it is, percent-encoded in part or as a whole, or escaped
/// as in JSON. One that the end of the text cuts off counts, too.
pub fn without_secret(text: &str, secret: &str, replacement: &str) -> String {
    if secret.len() < MIN_KNOWN_BYTES {
        return text.to_owned();
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        let length = length_of(rest, secret.as_bytes());
        match length {
            Some(_) => clean.push_str(replacement),
            None => clean.push(first),
        }
        rest = rest.get(length.unwrap_or(first.len_utf8())..).unwrap_or_default();
    }
    clean
}

/// How many bytes the secret has at the beginning of a text, if it is there.
fn length_of(text: &str, secret: &[u8]) -> Option<usize> {
    if !text.starts_with(['%', '\\']) && text.as_bytes().first() != secret.first() {
        return None;
    }
    // A secret may have characters of an encoding itself: all that it can be is followed.
    let mut ends = vec![0];
    for (known, byte) in secret.iter().enumerate() {
        if known >= MIN_KNOWN_BYTES && ends.iter().any(|end| is_cut(&text.as_bytes()[*end..])) {
            return Some(text.len());
        }
        let mut next = Vec::new();
        for end in ends {
            next.extend(lengths_of(&text.as_bytes()[end..], *byte).map(|length| end + length));
        }
        next.sort_unstable();
        next.dedup();
        ends = next;
        if ends.is_empty() {
            return None;
        }
    }
    ends.last().copied()
}

/// How many bytes of a text stand for a byte, in each way in which they can.
fn lengths_of(text: &[u8], byte: u8) -> impl Iterator<Item = usize> {
    let literal = (text.first() == Some(&byte)).then_some(1);
    let percent = (0..MAX_LAYERS).filter_map(move |layer| {
        let prefix = ["%", &"25".repeat(layer)].concat();
        let digits = text.strip_prefix(prefix.as_bytes())?.get(..2)?;
        (value_of(digits)? == u32::from(byte)).then_some(prefix.len() + 2)
    });
    let slashes = text.iter().take(MAX_SLASHES).take_while(|byte| **byte == b'\\').count();
    let escaped = match text.get(slashes..).unwrap_or_default() {
        [b'u', digits @ ..] if slashes > 0 && digits.get(..4).and_then(value_of) == Some(u32::from(byte)) => Some(5),
        [first, ..] if slashes > 0 && *first == byte && b"\"/".contains(first) => Some(1),
        _ => None,
    };
    // Each layer doubles a backslash.
    let doubled = (1..=MAX_LAYERS).map(|layer| 1 << layer).filter(move |count| byte == b'\\' && *count <= slashes);
    literal.into_iter().chain(percent).chain(escaped.map(|length| slashes + length)).chain(doubled)
}

fn value_of(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}

/// Whether a text that was shortened ends here, perhaps within an escape.
fn is_cut(rest: &[u8]) -> bool {
    let rest = rest.strip_suffix("…".as_bytes()).unwrap_or(rest);
    if rest.len() > MAX_ESCAPE_BYTES {
        return false;
    }
    let slashes = rest.iter().take_while(|byte| **byte == b'\\').count();
    match &rest[slashes..] {
        [] => true,
        [b'%', digits @ ..] if slashes == 0 => digits.len() < "2525".len() && digits.iter().all(u8::is_ascii_hexdigit),
        [b'u', digits @ ..] if slashes > 0 => digits.len() < "0000".len() && digits.iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "ab+/=\"\\%~canary";

    #[test]
    fn a_secret_leaves_a_text_however_it_is_written_there() {
        let json = serde_json::to_string(SECRET).expect("a text");
        let json = json.trim_matches('"');
        let twice = serde_json::to_string(json).expect("a text");
        let every: String = SECRET.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let escapes: String = SECRET.bytes().map(|byte| format!("\\u{byte:04X}")).collect();
        for written in [
            SECRET,
            "ab%2B%2F%3D%22%5C%25~canary",
            "ab%2b/=%22%5c%25%7Ecanary",
            "ab%252B%252F%253D%2522%255C%2525~canary",
            json,
            twice.trim_matches('"'),
            &json.replace('/', "\\/"),
            &every,
            &escapes,
        ] {
            let text = format!("https://x/?key={written}&a=b ({written})");
            assert_eq!(without_secret(&text, SECRET, "[it]"), "https://x/?key=[it]&a=b ([it])", "{written}");
        }
    }

    #[test]
    fn a_secret_that_the_end_of_a_text_cuts_off_leaves_it_too() {
        for cut in ["ab%2B%2F%3D%22%5C%25~can", "ab+/=\"\\%~c…", "ab+/=\"\\%%7…", "ab+/=\\\"\\\\%\\u00"] {
            assert_eq!(without_secret(&format!("no: {cut}"), SECRET, "[it]"), "no: [it]", "{cut}");
        }
    }

    #[test]
    fn a_long_text_takes_time_by_its_length_and_no_more() {
        let began = std::time::Instant::now();
        for unit in ["\\", "%25", "ab+/=\"\\%~canar", "\\u005c"] {
            let text = unit.repeat(500_000 / unit.len()) + " and on";
            assert_eq!(without_secret(&text, SECRET, "[it]").len(), text.len(), "{unit}");
        }
        // With the squares of their lengths it would be days.
        assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in ["", "ab+/=\"\\% and on", "ab%2B%2F", "100 % größer \\ and on…", "~canary"] {
            assert_eq!(without_secret(text, SECRET, "[it]"), text);
        }
        assert_eq!(without_secret("none of it", "none", "[it]"), "none of it", "a word");
    }
}
