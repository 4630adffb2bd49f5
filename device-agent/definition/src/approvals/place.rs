//! What a rule is about, besides a tool: paths of the working directory, or hosts.
//!
//! The two never mix. Only calls of Fetch are about a host, and only rules that name Fetch are about hosts: a rule for
//! `*` with a path says nothing about them.

use std::path::Path;

use super::{CaseRule, HostPattern, PathPattern};
use crate::ToolName;

/// The tools whose calls are about a file or folder of the working directory.
const PATH_TOOLS: [ToolName; 6] =
    [ToolName::Read, ToolName::Grep, ToolName::Glob, ToolName::Edit, ToolName::Write, ToolName::Deliver];

/// Whether the calls of a tool are about a host.
pub(super) fn is_about_hosts(tool: &str) -> bool {
    tool == ToolName::Fetch.as_str()
}

/// The calls that a rule is about, among those of its tool.
#[derive(Clone, Debug)]
pub(super) enum PlacePattern {
    /// All of them.
    Any,
    /// Those about these paths.
    Paths(PathPattern),
    /// Those about these hosts.
    Hosts(HostPattern),
}

impl PlacePattern {
    /// Reads the place in a rule for `tool`, which may be `*`.
    ///
    /// # Errors
    /// It could never match a call of the tool; the error says what to write instead.
    pub(super) fn new(tool: &str, place: Option<&str>, case: CaseRule) -> Result<Self, String> {
        let Some(place) = place else { return Ok(Self::Any) };
        if is_about_hosts(tool) {
            return HostPattern::new(place).map(Self::Hosts);
        }
        if tool != "*" && !PATH_TOOLS.iter().any(|known| known.as_str() == tool) {
            return Err(format!("a call of {tool} is about no file, so its rule takes no path"));
        }
        PathPattern::new(place, case).map(Self::Paths)
    }

    /// Whether the pattern covers a call of `tool` about `place`.
    pub(super) fn covers(&self, tool: &str, place: Option<&str>) -> bool {
        match (self, place) {
            (Self::Any, _) => true,
            (Self::Paths(pattern), Some(path)) => !is_about_hosts(tool) && pattern.covers(Path::new(path)),
            (Self::Hosts(pattern), Some(host)) => is_about_hosts(tool) && pattern.covers(host),
            (Self::Paths(_) | Self::Hosts(_), None) => false,
        }
    }

    /// Its paths, if it is about some.
    pub(super) fn paths(&self) -> Option<&PathPattern> {
        match self {
            Self::Paths(pattern) => Some(pattern),
            Self::Any | Self::Hosts(_) => None,
        }
    }
}
