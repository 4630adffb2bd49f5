//! What a service is: fixed by its owner, frozen when it is published.

use std::path::PathBuf;

use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};

/// Everything that decides how a run of this service is executed.
///
/// Publishing freezes it with a digest; an offer for another digest is refused. Nothing in it ever
/// leaves the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Unique within the application.
    pub name: String,
    /// What it does, for the people who call it.
    pub description: String,
    /// The folder that tools work in. Absolute.
    pub working_directory: PathBuf,
    /// Who answers.
    pub provider: Provider,
    /// Which of the provider's models; for `scripted`: `folder`, or `script:` and a file's path.
    pub model: String,
    /// The fixed task.
    pub instructions: String,
    /// The tools the assistant may call; none means conversation only.
    pub tools: Vec<ToolName>,
    /// What one run may take.
    pub limits: Limits,
}

impl Definition {
    /// The digest that a published version is known by.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_json(self).expect("a definition is text, numbers and lists, all of which JSON can hold")
    }
}

/// The model providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// No model and no account: answers from the folder, or plays a script.
    Scripted,
}

/// The tools, by the names that models know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ToolName {
    /// Reads a text file.
    Read,
    /// Searches file contents.
    Grep,
    /// Finds files by pattern.
    Glob,
}

impl ToolName {
    /// Every tool.
    pub const ALL: [Self; 3] = [Self::Read, Self::Grep, Self::Glob];

    /// The name that models, people and definitions use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Grep => "Grep",
            Self::Glob => "Glob",
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

/// No such tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tool; tools are Read, Grep and Glob")]
pub struct UnknownTool;

/// What one run may take, and how many may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Model calls in one run.
    pub max_turns: u32,
    /// Awake seconds in one run. An offer may ask for less, never for more.
    pub max_duration_s: u32,
    /// Runs of this service at the same time.
    pub concurrency: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_turns: 50, max_duration_s: 3600, concurrency: 4 }
    }
}
