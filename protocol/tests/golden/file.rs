//! One golden file: reads it, compares samples with it both ways, and rewrites it on request.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use deskgate_protocol::frame::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// One golden file: its stored and its expected content.
pub(crate) struct Golden {
    path: PathBuf,
    stored: BTreeMap<String, Box<RawValue>>,
    seen: Vec<(String, String)>,
    rewrite: bool,
}

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
        let rewrite = std::env::var("DESKGATE_REWRITE_GOLDEN").is_ok_and(|value| value == "1");
        let stored = match rewrite {
            true => BTreeMap::new(),
            false => serde_json::from_str(&std::fs::read_to_string(&path).expect("the file is there")).expect("JSON"),
        };
        Self { path, stored, seen: Vec::new(), rewrite }
    }

    /// Compares a sample both ways.
    pub(crate) fn sample<T: Serialize + DeserializeOwned + PartialEq + Debug>(&mut self, name: String, value: T) {
        let written = serde_json_canonicalizer::to_string(&value).expect("JSON can hold it");
        if !self.rewrite {
            let stored = self.stored.remove(&name).unwrap_or_else(|| panic!("no golden sample {name:?}"));
            assert_eq!(written, stored.get(), "{name} is written otherwise");
            let read: T = serde_json::from_str(stored.get()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(read, value, "{name} is read otherwise");
            let sent = encode(&value).expect("within the limit");
            assert_eq!(decode::<T>(&sent).expect("reads back"), value, "{name} on the wire");
        }
        self.seen.push((name, written));
    }

    pub(crate) fn text_of(&self, name: &str) -> String {
        self.seen.iter().find(|(known, _)| known == name).expect("listed").1.clone()
    }

    /// Checks that no stored sample is left over: one that is not listed means that a variant disappeared.
    pub(crate) fn close(self) {
        if self.rewrite {
            let lines: Vec<_> = self.seen.iter().map(|(name, text)| format!("  {name:?}: {text}")).collect();
            std::fs::write(&self.path, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("writable");
        }
        let left: Vec<_> = self.stored.keys().collect();
        assert!(left.is_empty(), "samples of nothing: {left:?}");
    }
}
