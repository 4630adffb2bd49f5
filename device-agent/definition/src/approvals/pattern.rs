//! The paths that a rule's pattern covers.
//!
//! A pattern begins at the working directory. `*` and `?` stay within one name, `**` crosses folders. A pattern that
//! matches a folder stands for everything in it: `keys`, `keys/` and `keys/**` say the same.

use std::path::{Component, Path};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The size limit of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// The paths that a rule is about.
#[derive(Clone, Debug)]
pub struct PathPattern {
    /// `None`: every path.
    matcher: Option<Gitignore>,
    /// The leading folders of the pattern that hold no wildcard.
    fixed: std::path::PathBuf,
    case: CaseRule,
}

/// Whether upper and lower case are the same. Some file systems treat them so: patterns that deny fold case, patterns
/// that allow do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseRule {
    /// Upper and lower case are the same.
    Folded,
    /// Upper and lower case differ.
    Exact,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The text is no valid pattern; the error describes what to write instead.
    pub fn new(text: &str, case: CaseRule) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the path is empty; leave it out for every place".to_owned());
        }
        if text.len() > MAX_PATTERN_BYTES || text.chars().any(char::is_control) {
            return Err(format!("a path has at most {MAX_PATTERN_BYTES} bytes and no control characters"));
        }
        if text.starts_with('/') {
            return Err("a path lies below the working directory and begins there, without a slash".to_owned());
        }
        if text.split('/').any(|part| part == ".." || part == ".") {
            return Err("a path is written without \".\" and \"..\"".to_owned());
        }
        if text.ends_with(char::is_whitespace) {
            return Err("a path must not end with white space".to_owned());
        }
        let whole = text.trim_end_matches('/').trim_end_matches("/**").trim_end_matches('/');
        if whole == "**" || whole.is_empty() {
            return Ok(Self { matcher: None, fixed: "".into(), case });
        }
        let unusable = |error: ignore::Error| format!("the path is not a pattern: {error}");
        let mut builder = GitignoreBuilder::new(".");
        builder.case_insensitive(case == CaseRule::Folded).map_err(unusable)?;
        // The slash anchors it to the working directory, and takes their special meaning from a leading "!" and "#".
        builder.add_line(None, &format!("/{whole}")).map_err(unusable)?;
        let matcher = builder.build().map_err(unusable)?;
        let is_fixed = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let fixed = case.fold(whole.split('/').take_while(is_fixed).collect());
        Ok(Self { matcher: Some(matcher), fixed, case })
    }

    /// Whether the pattern covers a path, relative to the working directory.
    pub fn covers(&self, place: &Path) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        let place = plain(place);
        place.ancestors().take_while(|part| !part.as_os_str().is_empty()).any(|part| {
            // Not every path is known to be a folder or not, and patterns do not distinguish them.
            matcher.matched(part, true).is_ignore()
        })
    }

    /// Whether the pattern covers a path or may cover something below it. Errs on the side of yes.
    pub fn may_touch(&self, place: &Path) -> bool {
        let place = plain(place);
        let folded = self.case.fold(place.clone());
        self.covers(&place) || self.fixed.starts_with(&folded) || folded.starts_with(&self.fixed)
    }
}

impl CaseRule {
    fn fold(self, path: std::path::PathBuf) -> std::path::PathBuf {
        match (self, path.to_str()) {
            (Self::Folded, Some(text)) => text.to_lowercase().into(),
            _ => path,
        }
    }
}

/// The path without `.` components; the working directory itself is the empty path.
fn plain(place: &Path) -> std::path::PathBuf {
    place.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, place: &str) -> bool {
        PathPattern::new(pattern, CaseRule::Exact).expect("a pattern").covers(Path::new(place))
    }

    #[test]
    fn a_pattern_begins_at_the_working_directory_and_covers_what_is_in_a_folder() {
        for pattern in ["keys", "keys/", "keys/**"] {
            assert!(covers(pattern, "keys") && covers(pattern, "keys/a") && covers(pattern, "keys/a/b"), "{pattern}");
            assert!(!covers(pattern, "other/keys") && !covers(pattern, "keys2") && !covers(pattern, "."), "{pattern}");
        }
        assert!(covers("*.env", "a.env") && !covers("*.env", "a/b.env"));
        assert!(covers("**/*.env", "a.env") && covers("**/*.env", "a/b.env") && covers("**/.git", "a/.git/config"));
        assert!(covers("src/*/gen", "src/x/gen/a.rs") && !covers("src/*/gen", "src/x/y/gen/a.rs"));
        assert!(covers("**", ".") && covers("**", "anything/at/all"));
        assert!(covers("!odd", "!odd") && covers("#odd", "#odd"), "nothing is negated and nothing a comment");
    }

    #[test]
    fn a_place_that_may_contain_a_match_is_never_missed() {
        let touches = |pattern: &str, place: &str| {
            PathPattern::new(pattern, CaseRule::Folded).expect("one").may_touch(Path::new(place))
        };
        assert!(touches("src/keys", ".") && touches("src/keys", "src") && touches("src/keys", "src/keys/a"));
        assert!(!touches("src/keys", "docs") && !touches("src/keys", "src/other"));
        assert!(touches("**/*.env", "docs") && touches("src/*/gen", "src/x"));
        assert!(!touches("src/*/gen", "docs"));
        assert!(touches("Src/Keys", "src") && touches("src/keys", "SRC/keys/a"));
    }

    #[test]
    fn what_keeps_away_folds_upper_and_lower_case() {
        let covers = |case| PathPattern::new("Keys/*.txt", case).expect("one").covers(Path::new("keys/A.TXT"));
        assert!(covers(CaseRule::Folded) && !covers(CaseRule::Exact));
    }
}
