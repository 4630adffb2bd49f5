//! Knows the identifiers in a text: they say what a log is about, and open nothing.

use deskgate_protocol::ids::{ID_DIGITS, PREFIXES};

/// How many characters of a word belong to identifiers. Its words are ASCII.
pub(super) fn length_of(word: &str) -> usize {
    let (mut length, mut at) = (0, 0);
    while at < word.len() {
        let found = identifier(word, at).unwrap_or_default();
        length += found;
        at += found.max(1);
    }
    length
}

/// The length of the identifier that begins here. One within a longer run of letters and digits is none.
fn identifier(word: &str, at: usize) -> Option<usize> {
    let (before, rest) = (word.get(..at)?, word.get(at..)?);
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if before.ends_with(goes_on) {
        return None;
    }
    let prefix = PREFIXES.iter().find(|prefix| rest.starts_with(**prefix))?;
    let (digits, after) = rest.get(prefix.len()..)?.split_at_checked(ID_DIGITS)?;
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_hex && !after.starts_with(goes_on)).then_some(prefix.len() + ID_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::super::redact;
    use super::*;

    const DIGITS: &str = "019ab3c4d5e67f8091a2b3c4d5e6f708";

    #[test]
    fn every_identifier_stays_wherever_a_log_writes_it() {
        for prefix in PREFIXES {
            let id = format!("{prefix}{DIGITS}");
            assert_eq!(length_of(&id), id.len());
            for text in [
                id.clone(),
                format!("INFO run started some_long_name_of_a_field_id={id} attempt=1"),
                format!("{{\"some_long_name_of_a_field_id\":\"{id}\"}}"),
                format!("GET http://127.0.0.1:7420/api/v1/somethings/{id}/and/more/events"),
                format!("7420/runs/{id}/{id}"),
            ] {
                assert_eq!(redact(&text), text);
            }
        }
    }

    #[test]
    fn what_only_holds_the_beginning_of_an_identifier_is_still_taken_for_a_secret() {
        let opaque = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB";
        for secret in [
            format!("run_{DIGITS}0123456789abcdef"),
            format!("run_{DIGITS}_0123456789abcdef"),
            format!("xrun_{DIGITS}0123456789"),
            format!("run_{}", DIGITS.to_uppercase() + "0123"),
            format!("run_{DIGITS}/{opaque}"),
            format!("{opaque}=run_{DIGITS}"),
            format!("{opaque}=="),
            format!("dgk_{DIGITS}_0123456789abcdef"),
        ] {
            let clean = redact(&format!("said {secret} and on"));
            assert!(clean.contains("[removed]") && !clean.contains("0123456789") && !clean.contains(opaque), "{clean}");
        }
        assert_eq!((length_of("run_"), length_of("run_019ab3c4"), length_of("")), (0, 0, 0));
    }
}
