//! Witnesses beside the product: folders byte for byte, levels of a process, and texts that people are shown.

use std::collections::BTreeMap;
use std::path::Path;

use deskgate_harness::usage::memory_mib;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::hidden::hides;
use deskgate_tests::process;

/// The path of everything in a folder, with the digest of each file and the target of each link.
pub(crate) fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            let content = match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    left.push(path);
                    "folder".to_owned()
                }
                Ok(kind) if kind.is_symlink() => format!("link to {:?}", std::fs::read_link(&path).ok()),
                _ => std::fs::read(&path).map_or_else(|error| error.to_string(), |b| Sha256Digest::of(&b).to_string()),
            };
            found.insert(name, content);
        }
    }
    found
}

/// The names that differ between two looks at a folder.
pub(crate) fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

/// How much a process uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) resident_mib: f64,
    pub(crate) files: usize,
}

impl Levels {
    /// The levels of a process; `None` if it has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self { resident_mib: memory_mib(pid, "VmRSS").ok()?, files: process::files(pid) })
    }

    /// What grew beyond its bound since `before`.
    pub(crate) fn growth_since(self, before: Self, mib: f64, files: usize) -> Vec<String> {
        let mut grown = Vec::new();
        if self.resident_mib > before.resident_mib + mib {
            grown.push(format!("memory grew from {:.0} to {:.0} MiB", before.resident_mib, self.resident_mib));
        }
        if self.files > before.files + files {
            grown.push(format!("open files grew from {} to {}", before.files, self.files));
        }
        grown
    }
}

/// What a text would do to the terminal that shows it, or hide in it: the first such character.
pub(crate) fn hidden_in(text: &str) -> Option<String> {
    let found = text.chars().find(|c| !matches!(c, '\n' | '\t') && hides(*c))?;
    Some(format!("U+{:04X}", u32::from(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_one_other_byte_is_another_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("in")).expect("made");
        std::fs::write(folder.path().join("in/a"), "1").expect("written");
        let before = tree(folder.path());
        assert_eq!(changes(&before, &tree(folder.path())), Vec::<String>::new());
        std::fs::write(folder.path().join("in/a"), "2").expect("written");
        std::os::unix::fs::symlink("a", folder.path().join("in/b")).expect("linked");
        assert_eq!(changes(&before, &tree(folder.path())), ["in/a", "in/b"]);
    }

    #[test]
    fn escapes_and_directions_are_hidden_characters_and_lines_are_not() {
        assert_eq!(hidden_in("connected\n\tto 1.2.3.4"), None);
        assert_eq!(hidden_in("a\u{1b}[2J"), Some("U+001B".to_owned()));
        assert_eq!(hidden_in("a\u{202e}b"), Some("U+202E".to_owned()));
    }

    #[test]
    fn growth_within_its_bound_is_none() {
        let before = Levels { resident_mib: 40.0, files: 20 };
        let now = Levels { resident_mib: 90.0, files: 30 };
        assert!(now.growth_since(before, 64.0, 32).is_empty());
        assert_eq!(now.growth_since(before, 10.0, 5).len(), 2);
    }
}
