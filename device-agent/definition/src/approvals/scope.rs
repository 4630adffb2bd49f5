//! The scope of "allow this for the rest of the run", in words that a person reads before deciding.

use std::path::Path;

use super::place;

/// A tool and where it is allowed. It is as narrow as possible: one folder without the folders below it, or one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantScope {
    tool: String,
    place: Option<String>,
}

impl GrantScope {
    /// The scope of a call with this place. A search belongs to the folder it searches, a call of Fetch to its host,
    /// other calls to the folder of their file, a call without a place to all calls of its tool.
    pub fn of(tool: &str, place: Option<&str>) -> Self {
        let folder = |place: &str| match tool {
            "Grep" | "Glob" => place.to_owned(),
            tool if place::is_about_hosts(tool) => place.to_owned(),
            _ => Path::new(place).parent().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
        };
        Self { tool: tool.to_owned(), place: place.map(folder) }
    }
}

impl std::fmt::Display for GrantScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.place.as_deref(), self.tool.as_str()) {
            (None, tool) => write!(f, "every further call of {tool}, whatever its arguments"),
            (Some(host), tool) if place::is_about_hosts(tool) => write!(f, "{tool} of every page of {host}"),
            (Some("" | "."), "Grep" | "Glob") => write!(f, "{} of the whole working directory", self.tool),
            (Some(place), "Grep" | "Glob") => write!(f, "{} of {place}/", self.tool),
            (Some("" | "."), tool) => write!(f, "{tool} of files directly in the working directory"),
            (Some(folder), tool) => write!(f, "{tool} of files directly in {folder}/"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_one_folder_and_one_tool_and_nothing_below() {
        let docs = GrantScope::of("Write", Some("docs/a.md"));
        assert_eq!(docs, GrantScope::of("Write", Some("docs/b.md")));
        for other in [("Write", Some("docs/sub/a.md")), ("Write", Some("a.md")), ("Edit", Some("docs/a.md"))] {
            assert_ne!(docs, GrantScope::of(other.0, other.1));
        }
        assert_eq!(docs.to_string(), "Write of files directly in docs/");
        assert_ne!(GrantScope::of("Grep", Some("src")), GrantScope::of("Grep", Some("docs")));
        assert_eq!(GrantScope::of("Bash", None), GrantScope::of("Bash", None));
        let host = GrantScope::of("Fetch", Some("docs.example.com"));
        assert_eq!(host.to_string(), "Fetch of every page of docs.example.com");
        assert_ne!(host, GrantScope::of("Fetch", Some("example.com")));
        assert_ne!(host, GrantScope::of("Fetch", None));
        assert_eq!(GrantScope::of("Write", Some("a")).to_string(), "Write of files directly in the working directory");
    }
}
