//! Files that are protected from changes: the names of [`PROTECTED_NAMES`], and what a service's owner adds to them or
//! takes off, by patterns as in a `.gitignore`.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::protected_names::PROTECTED_NAMES;

/// At most this many patterns for each service.
const MAX_PATTERNS: usize = 64;
/// The length limit of a pattern, in characters.
const MAX_PATTERN_CHARS: usize = 500;

/// What is protected in a working directory. A pattern without a slash matches a name at any depth; one that matches a
/// folder covers everything in it. Upper and lower case are the same, because some file systems treat them so.
#[derive(Clone)]
pub struct ProtectedPaths {
    all: Gitignore,
    /// The owner's patterns alone.
    own: Gitignore,
    names: Vec<ProtectedName>,
}

/// A name at the top of the working directory that is protected also while it is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtectedName {
    /// The name.
    pub name: String,
    /// Whether it is a folder's.
    pub is_folder: bool,
}

impl ProtectedName {
    fn new(text: &str) -> Self {
        let name = text.trim_start_matches('/');
        let name = name.strip_suffix('/').unwrap_or(name);
        Self { name: name.to_owned(), is_folder: text.ends_with('/') }
    }

    /// The name that a pattern means, if it means one name, and at the top.
    fn of(pattern: &str) -> Option<Self> {
        let name = Self::new(pattern);
        let is_plain = !name.name.is_empty() && !name.name.contains(['/', '*', '?', '[', '\\']);
        (is_plain && name.name != "." && name.name.trim() == name.name).then_some(name)
    }
}

impl std::fmt::Debug for ProtectedPaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Protected({} patterns)", self.all.len())
    }
}

impl ProtectedPaths {
    /// Reads patterns.
    ///
    /// # Errors
    /// A pattern is not valid: the error names it, and why.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.len() > MAX_PATTERNS {
            return Err(format!("a service protects at most {MAX_PATTERNS} patterns; these are {}", patterns.len()));
        }
        let mut always = PROTECTED_NAMES.to_vec();
        let mut own = builder();
        let mut names = Vec::new();
        for pattern in patterns {
            let wrong = |why: &str| Err(format!("{pattern:?}: {why}"));
            if pattern.starts_with('!') {
                let Some(place) = PROTECTED_NAMES.iter().position(|name| is_taken_off(pattern, name)) else {
                    let names = PROTECTED_NAMES.join(", ");
                    return wrong(&format!(
                        "only a name that is always protected can be taken off, with ! before it: {names}"
                    ));
                };
                always.retain(|name| *name != PROTECTED_NAMES[place]);
                continue;
            }
            if pattern.trim().is_empty() || pattern.starts_with('#') {
                return wrong(
                    "a pattern names what is protected, such as .env or secrets/**, and does not begin with #",
                );
            }
            if pattern.chars().count() > MAX_PATTERN_CHARS || pattern.chars().any(char::is_control) {
                return wrong("a pattern has at most 500 characters and no control characters");
            }
            if pattern.split('/').any(|part| part == "..") {
                return wrong("a pattern is relative to the working directory and goes nowhere else");
            }
            if let Err(error) = own.add_line(None, pattern) {
                return wrong(&error.to_string());
            }
            names.extend(ProtectedName::of(pattern));
        }
        let mut all = own.clone();
        for name in always {
            all.add_line(None, name).map_err(|error| error.to_string())?;
            names.push(ProtectedName::new(name));
        }
        names.sort_by(|one, other| one.name.cmp(&other.name));
        names.dedup_by(|one, other| one.name == other.name);
        let build = |builder: GitignoreBuilder| builder.build().map_err(|error| error.to_string());
        Ok(Self { all: build(all)?, own: build(own)?, names })
    }

    /// The names at the top of the working directory that are protected also while they are missing.
    pub fn names(&self) -> &[ProtectedName] {
        &self.names
    }

    /// Whether a file is protected, or a folder with everything in it. The path has neither `.` nor `..`.
    pub fn covers_all_of(&self, path: &Path, is_folder: bool) -> bool {
        self.all.matched_path_or_any_parents(path, is_folder).is_ignore()
    }

    /// Whether a path is protected. It is relative to the working directory and has neither `.` nor `..`.
    pub fn covers(&self, path: &Path) -> bool {
        self.covers_all_of(path, false)
    }

    /// Whether the owner has patterns of his own.
    pub fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Whether a file or folder is protected by a pattern of the owner's.
    pub fn is_covered_by_own(&self, path: &Path, is_folder: bool) -> bool {
        self.own.matched_path_or_any_parents(path, is_folder).is_ignore()
    }
}

/// Whether a pattern takes a name of [`PROTECTED_NAMES`] off: it has `!` before it.
pub fn is_taken_off(pattern: &str, name: &str) -> bool {
    let off = pattern.strip_prefix('!').map(|off| ProtectedName::new(off.trim()));
    off.is_some_and(|off| off.name == ProtectedName::new(name).name)
}

fn builder() -> GitignoreBuilder {
    let mut builder = GitignoreBuilder::new("");
    // Case folding makes no pattern invalid.
    let _ = builder.case_insensitive(true);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(patterns: &[&str]) -> Result<ProtectedPaths, String> {
        ProtectedPaths::new(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_folders_and_paths_are_covered_in_any_case_and_nothing_else() {
        let protected = protected(&[".env", "/secrets/", "docs/*.md"]).expect("sound");
        for path in [".env", "deep/er/.env", ".ENV", "secrets/a", "secrets/b/c.txt", "Secrets/a", "docs/a.md"] {
            assert!(protected.covers(Path::new(path)), "{path}");
        }
        for path in [".env2", "a/secrets/b", "docs/deep/a.md", "env"] {
            assert!(!protected.covers(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn what_programs_of_the_owner_run_is_protected_until_it_is_taken_off() {
        let mut sorted = PROTECTED_NAMES;
        sorted.sort_unstable();
        assert_eq!(sorted, PROTECTED_NAMES, "in the order of the alphabet");
        let documented = include_str!("../../../docs/sandbox-details.md");
        assert!(PROTECTED_NAMES.iter().all(|name| documented.contains(&format!("`{name}`"))));
        let always = protected(&[]).expect("sound");
        for name in PROTECTED_NAMES {
            let place = if name.ends_with('/') { format!("{name}file") } else { name.to_owned() };
            assert!(always.covers(Path::new(&place)), "{name}");
        }
        for path in ["sub/.vscode/tasks.json", ".VSCode/tasks.json", "deep/er/.envrc", ".mcp.json"] {
            assert!(always.covers(Path::new(path)), "{path}");
        }
        let less = protected(&["!.vscode/", "!.envrc", "!/.idea"]).expect("sound");
        for path in [".vscode/tasks.json", ".envrc", ".idea/a"] {
            assert!(!less.covers(Path::new(path)), "{path}");
        }
        assert!(less.covers(Path::new(".mcp.json")) && !less.has_own());
    }

    #[test]
    fn names_that_are_missing_are_known_where_a_pattern_means_one_at_the_top() {
        let protected =
            protected(&[".env", "/keys/", "*.pem", "docs/a.md", "sp[ab]ce", "!.envrc", ".bashrc"]).expect("sound");
        let names: Vec<_> = protected.names().iter().map(|name| (name.name.as_str(), name.is_folder)).collect();
        assert!(names.contains(&(".env", false)) && names.contains(&("keys", true)));
        assert_eq!(names.len(), PROTECTED_NAMES.len() - 1 + 2, "{names:?}");
        assert!(protected.is_covered_by_own(Path::new("sub/a.pem"), false));
        assert!(!protected.is_covered_by_own(Path::new(".vscode/a"), false) && protected.has_own());
    }

    #[test]
    fn a_pattern_that_would_mean_something_else_than_it_says_is_refused() {
        for wrong in ["", " ", "!keep", "!", "!.git", "#note", "a\nb", "../x", "a/../b", &"x".repeat(501)] {
            let told = protected(&[wrong]).expect_err("refused");
            assert!(told.contains(&format!("{wrong:?}")), "{told}");
        }
        assert!(protected(&["x"; 65]).is_err());
    }
}
