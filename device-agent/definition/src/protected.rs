//! Files that a service's owner protects from changes: patterns as in a `.gitignore`.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// At most this many patterns for each service.
const MAX_PATTERNS: usize = 64;
/// The length limit of a pattern, in characters.
const MAX_PATTERN_CHARS: usize = 500;

/// Checked patterns. A pattern without a slash matches a name at any depth; one that matches a folder covers everything
/// in it. Upper and lower case are the same, because some file systems treat them so.
#[derive(Clone)]
pub struct ProtectedPaths(Gitignore);

impl std::fmt::Debug for ProtectedPaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Protected({} patterns)", self.0.len())
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
        let mut builder = GitignoreBuilder::new("");
        // Case folding makes no pattern invalid.
        let _ = builder.case_insensitive(true);
        for pattern in patterns {
            let wrong = |why: &str| Err(format!("{pattern:?}: {why}"));
            if pattern.trim().is_empty() || pattern.starts_with(['!', '#']) {
                return wrong(
                    "a pattern names what is protected, such as .env or secrets/**, and begins with neither ! nor #",
                );
            }
            if pattern.chars().count() > MAX_PATTERN_CHARS || pattern.chars().any(char::is_control) {
                return wrong("a pattern has at most 500 characters and no control characters");
            }
            if pattern.split('/').any(|part| part == "..") {
                return wrong("a pattern is relative to the working directory and goes nowhere else");
            }
            if let Err(error) = builder.add_line(None, pattern) {
                return wrong(&error.to_string());
            }
        }
        builder.build().map(Self).map_err(|error| error.to_string())
    }

    /// Whether a file is protected, or a folder with everything in it. The path has neither `.` nor `..`.
    pub fn covers_all_of(&self, path: &Path, is_folder: bool) -> bool {
        !self.0.is_empty() && self.0.matched_path_or_any_parents(path, is_folder).is_ignore()
    }

    /// Whether a path is protected. It is relative to the working directory and has neither `.` nor `..`.
    pub fn covers(&self, path: &Path) -> bool {
        !self.0.is_empty() && self.0.matched_path_or_any_parents(path, false).is_ignore()
    }
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
        for path in [".envrc", "a/secrets/b", "docs/deep/a.md", "env"] {
            assert!(!protected.covers(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_pattern_that_would_mean_something_else_than_it_says_is_refused() {
        for wrong in ["", " ", "!keep", "#note", "a\nb", "../x", "a/../b", &"x".repeat(501)] {
            let told = protected(&[wrong]).expect_err("refused");
            assert!(told.contains(&format!("{wrong:?}")), "{told}");
        }
        assert!(protected(&["x"; 65]).is_err());
    }
}
