//! Searches for secrets outside their allowed places: in logs, tables, answers, and the process list.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// A secret or another private text.
#[derive(Clone, Debug)]
struct KnownSecret {
    name: String,
    text: String,
    /// Its bytes as a table shows them.
    hex: String,
    /// A caller's own words: they are allowed in the tables, and in answers to that caller.
    is_input: bool,
}

/// The kind of text that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeakSource {
    Log,
    Table,
    Answer,
    Process,
}

/// All secrets, and the findings so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeakScanner {
    known: Vec<KnownSecret>,
    found: Arc<Mutex<BTreeSet<String>>>,
}

impl LeakScanner {
    /// Adds a secret that only its holders may have.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        self.insert(name, text, false);
    }

    /// Adds words that callers write into their submissions.
    pub(crate) fn add_input(&mut self, text: &str) {
        self.insert("what a caller wrote", text, true);
    }

    fn insert(&mut self, name: &str, text: &str, is_input: bool) {
        assert!(text.len() >= 16, "{name} is too short to be found by chance only");
        let mut hex = String::new();
        for byte in text.bytes() {
            let _ = write!(hex, "{byte:02x}");
        }
        self.known.push(KnownSecret { name: name.to_owned(), text: text.to_owned(), hex, is_input });
    }

    /// The number of secrets.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// Searches a text for all secrets, and records findings.
    pub(crate) fn look(&self, place: LeakSource, what: &str, text: &str) {
        let may_be = |secret: &KnownSecret| secret.is_input && matches!(place, LeakSource::Table | LeakSource::Answer);
        for secret in self.known.iter().filter(|secret| !may_be(secret)) {
            if text.contains(&secret.text) || text.contains(&secret.hex) {
                let found = format!("{} is in {what}", secret.name);
                self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(found);
            }
        }
    }

    /// Searches every process: its command line and its environment.
    pub(crate) fn look_at_processes(&self) {
        let own = std::process::id().to_string();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(number) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if number.bytes().all(|byte| byte.is_ascii_digit()) && number != own {
                for file in ["cmdline", "environ"] {
                    let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
                    let text = String::from_utf8_lossy(&bytes);
                    let program = text.split('\0').next().unwrap_or_default().to_owned();
                    self.look(LeakSource::Process, &format!("{file} of {program}"), &text);
                }
            }
        }
    }

    /// The findings.
    pub(crate) fn found(&self) -> Vec<String> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_as_it_is_and_as_bytes_and_an_input_only_where_it_must_not_be() {
        let mut secrets = LeakScanner::default();
        secrets.add("the key", "sk-0123456789abcdef");
        secrets.add_input("words-0123456789");
        secrets.look(LeakSource::Answer, "an answer", "input: words-0123456789");
        secrets.look(LeakSource::Log, "a log", "nothing");
        assert_eq!(secrets.found(), Vec::<String>::new());
        secrets.look(LeakSource::Table, "runs", r"\x736b2d30313233343536373839616263646566");
        secrets.look(LeakSource::Log, "a log", "said words-0123456789");
        assert_eq!(secrets.found(), ["the key is in runs", "what a caller wrote is in a log"]);
    }
}
