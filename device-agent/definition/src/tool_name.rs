//! The tools that a definition may name.

use serde::{Deserialize, Serialize};

/// The tools, by the names that models use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ToolName {
    /// Reads a text file.
    Read,
    /// Searches file contents.
    Grep,
    /// Finds files by pattern.
    Glob,
    /// Replaces a text in a file.
    Edit,
    /// Creates or replaces a file.
    Write,
    /// Runs commands in a sandbox.
    Bash,
    /// Reads a page of a public host.
    Fetch,
    /// Hands a file out to the application.
    Deliver,
}

impl ToolName {
    /// Every tool.
    pub const ALL: [Self; 8] =
        [Self::Read, Self::Grep, Self::Glob, Self::Edit, Self::Write, Self::Bash, Self::Fetch, Self::Deliver];

    /// The tools for the files of the working directory: the default of a new service.
    pub const WORKSPACE_TOOLS: [Self; 5] = [Self::Read, Self::Grep, Self::Glob, Self::Edit, Self::Write];

    /// The name that models, people and definitions use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Grep => "Grep",
            Self::Glob => "Glob",
            Self::Edit => "Edit",
            Self::Write => "Write",
            Self::Bash => "Bash",
            Self::Fetch => "Fetch",
            Self::Deliver => "Deliver",
        }
    }

    /// Whether the tool can change something on this computer. Fetch cannot: all that it does outside is to tell a host a URL. Nor
    /// can Deliver: what it hands out stays as it is.
    pub const fn writes(self) -> bool {
        match self {
            Self::Read | Self::Grep | Self::Glob | Self::Fetch | Self::Deliver => false,
            Self::Edit | Self::Write | Self::Bash => true,
        }
    }
}

impl std::fmt::Display for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ToolName {
    type Err = UnknownTool;

    fn from_str(text: &str) -> Result<Self, UnknownTool> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == text).ok_or(UnknownTool)
    }
}

/// The text names no tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tool; tools are Read, Grep, Glob, Edit, Write, Bash, Fetch and Deliver")]
pub struct UnknownTool;
