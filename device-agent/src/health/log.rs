//! The end of the agent's log, without what could be a secret.
//!
//! The agent writes no secret into its log. Whoever shows or sends the log does not rely on that.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use deskgate_protocol::secret::SecretKind;

use crate::visible;

/// As much of the log is looked through.
const LOOKED_AT: u64 = 512 * 1024;
/// What begins like a secret and is shorter is a word.
const SHORTEST: usize = 8;
/// A word of this many characters is no word.
const LONGEST: usize = 40;
/// What stands in the place of a secret.
const REMOVED: &str = "[removed]";

/// The last lines that hold `filter`, each one visible as it is. Empty where an agent in the foreground writes its log
/// elsewhere.
pub fn tail(path: &Path, lines: usize, filter: &str) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT)))?;
        let mut bytes = Vec::new();
        file.take(LOOKED_AT).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = redacted(&String::from_utf8_lossy(&bytes));
    let mut last: Vec<_> =
        text.lines().rev().filter(|line| line.contains(filter)).take(lines).map(visible::line).collect();
    last.reverse();
    last
}

/// The text without whatever looks like a secret: by how it begins, by the word before it, or by its length.
pub fn redacted(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c: char| !in_a_key(c)).unwrap_or(rest.len());
        if length == 0 {
            clean.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        clean.push_str(&word_of(word, &clean));
        rest = after;
    }
    clean
}

fn in_a_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_+/=.~".contains(c)
}

/// A word, or what is left of it.
fn word_of(word: &str, before: &str) -> String {
    let boundary = |at: usize| !word[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_secret = |at: usize| word.len() - at >= SHORTEST && SecretKind::of(&word[at..]).is_some();
    if let Some(at) = (0..word.len()).find(|at| boundary(*at) && is_secret(*at)) {
        return format!("{}{REMOVED}", &word[..at]);
    }
    // Words are ASCII here.
    let ends = |text: &str| before.to_ascii_lowercase().trim_end_matches([' ', '"', ':']).ends_with(text);
    let told = ["bearer", "basic", "password", "api_key"].into_iter().any(ends);
    let coded =
        ["code=", "token=", "key=", "password="].into_iter().find_map(|name| Some(word.find(name)? + name.len()));
    match coded {
        Some(at) if word.len() - at >= SHORTEST => format!("{}{REMOVED}", &word[..at]),
        _ if told && word.len() >= SHORTEST => REMOVED.to_owned(),
        _ if is_long(word) && !before.ends_with("SHA256:") => REMOVED.to_owned(),
        _ => word.to_owned(),
    }
}

/// Base64 or hexadecimal of some length, and no path.
fn is_long(word: &str) -> bool {
    word.len() >= LONGEST && !word.starts_with(['/', '~', '.']) && !word.contains("=/") && !word.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_a_text_and_the_rest_stays() {
        for (text, clean) in [
            ("key dgk_0123456789abcdef refused", "key [removed] refused"),
            ("https://x/?a=sk-ant-0123456789", "https://x/?a=[removed]"),
            ("Authorization: Bearer canary-canary", "Authorization: Bearer [removed]"),
            ("/sign-in?code=AbCdEfGhIj", "/sign-in?code=[removed]"),
            ("\"dgt_0123456789\",\"whsec_0123456789\"", "\"[removed]\",\"[removed]\""),
            ("-----BEGIN OPENSSH", "[removed] OPENSSH"),
            ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB", "[removed]"),
        ] {
            assert_eq!(redacted(text), clean);
        }
        for text in [
            "run_019ab3c4d5e67f8091a2b3c4d5e6f708 ended, task-list done in 3.2 s",
            "fingerprint SHA256:dlqIyXYrBcsFcSkyLbNrgJvD8HvWCyvaAzBgyLqN9u8",
            "cannot open /home/me/a/very/long/path/with-many-parts/and/no/end/to/it",
            "Größe 漢字 \"quoted\" sk-1",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    #[test]
    fn the_last_lines_that_fit_are_shown_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.log");
        assert_eq!(tail(&path, 5, ""), Vec::<String>::new());
        std::fs::write(&path, "INFO one\nWARN two\x1b[2K\nINFO three\nWARN dgk_0123456789\n").expect("written");
        assert_eq!(tail(&path, 2, ""), ["INFO three", "WARN [removed]"]);
        assert_eq!(tail(&path, 5, "WARN"), ["WARN two<U+001B>[2K", "WARN [removed]"]);
    }
}
