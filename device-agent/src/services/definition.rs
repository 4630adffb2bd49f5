//! What a service is: fixed by its owner, frozen when it is published.

use std::path::{Component, Path, PathBuf};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::service;
use serde::{Deserialize, Serialize};

use super::{Approvals, Protected, Skill};
use crate::assistant::accounts;
use crate::mcp::{self, connections};

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
    /// Which of the provider's models, by the provider's own name; for `scripted`: `folder`, or `script:` and a file's path.
    pub model: String,
    /// The fixed task.
    pub instructions: String,
    /// The tools the assistant may call; none means conversation only.
    pub tools: Vec<ToolName>,
    /// Instructions for kinds of work, which the assistant asks for when it finds them of use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// Servers elsewhere whose tools the assistant may call too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServer>,
    /// Which calls run by themselves, which ask first, and which never run.
    #[serde(default, skip_serializing_if = "Approvals::is_default")]
    pub approvals: Approvals,
    /// Files that no tool changes, as patterns; see [`super::Protected`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// The network that commands have. Nothing but Bash uses it.
    #[serde(default, skip_serializing_if = "Network::is_none")]
    pub network: Network,
    /// What one run may take.
    pub limits: Limits,
}

impl Definition {
    /// Checks every field; each that is wrong is named once, with what to write instead.
    ///
    /// The working directory must be absolute and exist, for a definition that names no folder is
    /// a typing error; whether the folder suits is asked by [`super::checks`].
    pub fn validate(&self) -> Result<(), InvalidDefinition> {
        let wrong: Vec<FieldError> = [
            ("name", service::check_name(&self.name)),
            ("description", self.check_description()),
            ("working_directory", self.check_working_directory()),
            ("provider", self.check_provider()),
            ("model", self.check_model()),
            ("instructions", self.check_instructions()),
            ("tools", self.check_tools()),
            ("skills", self.check_skills()),
            ("mcp", self.check_mcp()),
            ("approvals", self.approvals.check()),
            ("protected", Protected::new(&self.protected).map(drop)),
            ("network", self.check_network()),
            ("limits", self.limits.check()),
        ]
        .into_iter()
        .filter_map(|(field, result)| result.err().map(|message| FieldError { field: field.into(), message }))
        .collect();
        if wrong.is_empty() { Ok(()) } else { Err(InvalidDefinition(wrong)) }
    }

    /// How many tokens the model takes in one call, what it writes included. `None` for the scripted assistant, which
    /// has no model.
    pub fn context_tokens(&self) -> Option<u64> {
        let default = (self.provider != Provider::Scripted).then_some(CONTEXT_TOKENS);
        self.limits.context_tokens.or(default)
    }

    fn check_description(&self) -> Result<(), String> {
        let length = self.description.chars().count();
        if length > service::DESCRIPTION_LIMIT {
            let limit = service::DESCRIPTION_LIMIT;
            return Err(format!("a description has at most {limit} characters; this one has {length}"));
        }
        match self.description.chars().any(|c| c.is_control() && c != '\n') {
            true => Err("a description must not contain control characters other than line breaks".to_owned()),
            false => Ok(()),
        }
    }

    fn check_working_directory(&self) -> Result<(), String> {
        let path = &self.working_directory;
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return Err(format!("\"{}\" is not an absolute path without \"..\"; write the whole path", path.display()));
        }
        if path.to_str().is_none() {
            return Err("the path of the working directory is not valid UTF-8; rename the folder".to_owned());
        }
        match path.metadata() {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(format!("{} is not a directory; name the folder that holds it", path.display())),
            Err(error) => Err(format!("{} cannot be used ({error}); create it or name another", path.display())),
        }
    }

    /// Whether the account is there is asked by [`super::checks`]: it may be configured later.
    fn check_provider(&self) -> Result<(), String> {
        match &self.provider {
            Provider::Scripted => Ok(()),
            Provider::Account(name) => accounts::check_name(name).map_err(|error| error.to_string()),
        }
    }

    fn check_model(&self) -> Result<(), String> {
        let length = self.model.chars().count();
        match (&self.provider, self.model.strip_prefix("script:")) {
            (Provider::Account(_), _) if (1..=MODEL_LIMIT).contains(&length) => Ok(()),
            (Provider::Account(_), _) => Err(format!("a model's name has 1 to {MODEL_LIMIT} characters")),
            (Provider::Scripted, None) if self.model == "folder" => Ok(()),
            (Provider::Scripted, Some(file)) if Path::new(file).is_absolute() => Ok(()),
            (Provider::Scripted, _) => Err(format!(
                "the scripted assistant has no model \"{}\"; write \"folder\", or \"script:\" and an absolute path",
                self.model
            )),
        }
    }

    fn check_instructions(&self) -> Result<(), String> {
        let length = self.instructions.len();
        match length > INSTRUCTIONS_LIMIT {
            true => Err(format!("instructions have at most {INSTRUCTIONS_LIMIT} bytes; these have {length}")),
            false => Ok(()),
        }
    }

    fn check_tools(&self) -> Result<(), String> {
        match self.tools.iter().enumerate().find(|(at, tool)| self.tools[..*at].contains(tool)) {
            Some((_, tool)) => Err(format!("{tool} is listed twice; list it once")),
            None => Ok(()),
        }
    }

    /// What nothing uses would mislead whoever reads the definition.
    fn check_network(&self) -> Result<(), String> {
        match self.network == Network::Host && !self.tools.contains(&ToolName::Bash) {
            true => Err("only commands use a network, and this service has no Bash; write \"none\"".to_owned()),
            false => Ok(()),
        }
    }

    fn check_skills(&self) -> Result<(), String> {
        if self.skills.len() > SKILLS {
            return Err(format!("a service has at most {SKILLS} skills; this one has {}", self.skills.len()));
        }
        for (at, skill) in self.skills.iter().enumerate() {
            skill.check().map_err(|problem| format!("{}: {problem}", skill.source.display()))?;
            if self.skills[..at].iter().any(|other| other.name == skill.name) {
                return Err(format!("two skills are named {}; a name is what the assistant asks by", skill.name));
            }
        }
        Ok(())
    }

    fn check_mcp(&self) -> Result<(), String> {
        if self.mcp.len() > mcp::SERVERS {
            return Err(format!("a service has at most {} MCP servers; this one has {}", mcp::SERVERS, self.mcp.len()));
        }
        for (at, server) in self.mcp.iter().enumerate() {
            let sound = connections::check_name(&server.name).and_then(|()| connections::check_url(&server.url));
            sound.map_err(|error| error.to_string())?;
            if self.mcp[..at].iter().any(|other| other.name == server.name) {
                return Err(format!("the MCP server {} is listed twice; list it once", server.name));
            }
        }
        Ok(())
    }

    /// The digest that a published version is known by.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_json(self).expect("a definition is text, numbers and lists, all of which JSON can hold")
    }
}

/// The window of a model of which nobody said how large it is: the models of today have it, or a larger one.
const CONTEXT_TOKENS: u64 = 128_000;

/// The most skills of a service.
const SKILLS: usize = 32;

/// The most characters of a model's name.
const MODEL_LIMIT: usize = 200;

/// The largest instructions, in bytes: far above what people write, far below what a model takes.
pub const INSTRUCTIONS_LIMIT: usize = 256 * 1024;

/// One field of a definition that is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// Its name, as in the file.
    pub field: std::borrow::Cow<'static, str>,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// A definition with one error or more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the service's definition is not valid: {}", .0.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join("; "))]
pub struct InvalidDefinition(pub Vec<FieldError>);

/// A server elsewhere, by the name that it has on this device. Its key is kept there, and never in a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// Where it was when the service was saved.
    pub url: String,
    /// The list of its tools as the last check found it: names, descriptions and schemas. With another list nothing
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_sha256: Option<Sha256Digest>,
}

/// Who answers. In a file: `scripted`, or the name of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Provider {
    /// No model and no account: answers from the folder, or plays a script.
    Scripted,
    /// A model provider that the desktop user configured, by its name.
    Account(String),
}

impl From<String> for Provider {
    fn from(name: String) -> Self {
        if name == accounts::SCRIPTED { Self::Scripted } else { Self::Account(name) }
    }
}

impl From<Provider> for String {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::Scripted => accounts::SCRIPTED.to_owned(),
            Provider::Account(name) => name,
        }
    }
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scripted => accounts::SCRIPTED,
            Self::Account(name) => name,
        })
    }
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
    /// Replaces a text in a file.
    Edit,
    /// Creates or replaces a file.
    Write,
    /// Runs commands in a sandbox.
    Bash,
}

impl ToolName {
    /// Every tool.
    pub const ALL: [Self; 6] = [Self::Read, Self::Grep, Self::Glob, Self::Edit, Self::Write, Self::Bash];

    /// The tools for the files of the working directory: what a new service has.
    pub const WORKSPACE: [Self; 5] = [Self::Read, Self::Grep, Self::Glob, Self::Edit, Self::Write];

    /// The name that models, people and definitions use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Grep => "Grep",
            Self::Glob => "Glob",
            Self::Edit => "Edit",
            Self::Write => "Write",
            Self::Bash => "Bash",
        }
    }

    /// Whether it can change something.
    pub const fn writes(self) -> bool {
        match self {
            Self::Read | Self::Grep | Self::Glob => false,
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

/// No such tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tool; tools are Read, Grep, Glob, Edit, Write and Bash")]
pub struct UnknownTool;

/// The network that the commands of a service have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// None: not even this computer's own servers can be reached.
    #[default]
    None,
    /// The computer's: the Internet, the networks it is in, and every server on the computer itself.
    Host,
}

impl Network {
    /// Whether there is none.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The word for it in definitions and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}

impl std::str::FromStr for Network {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> Result<Self, UnknownNetwork> {
        [Self::None, Self::Host].into_iter().find(|network| network.as_str() == text).ok_or(UnknownNetwork)
    }
}

/// No such network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("commands have the network none or host")]
pub struct UnknownNetwork;

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
    /// Tokens that the model may write in one run, over all of its calls; as many as it likes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Tokens that the model takes in one call; see [`Definition::context_tokens`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_turns: 50, max_duration_s: 3600, concurrency: 4, max_output_tokens: None, context_tokens: None }
    }
}

/// The most that a limit of tokens can be.
const TOKENS: u64 = 10_000_000;

impl Limits {
    /// What a new service with these tools has: where one run may change something under another, they take turns.
    pub fn default_for(tools: &[ToolName], servers: &[McpServer]) -> Self {
        let writes = tools.iter().any(|tool| tool.writes()) || !servers.is_empty();
        let concurrency = if writes { 1 } else { Self::default().concurrency };
        Self { concurrency, ..Self::default() }
    }
}

impl Limits {
    fn check(&self) -> Result<(), String> {
        let bounds = [
            ("max_turns", self.max_turns, 1000),
            ("max_duration_s", self.max_duration_s, 24 * 3600),
            ("concurrency", self.concurrency, 64),
        ];
        if let Some((field, value, most)) = bounds.iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            return Err(format!("{field} must be from 1 to {most}; it is {value}"));
        }
        let tokens = [("max_output_tokens", self.max_output_tokens, 1), ("context_tokens", self.context_tokens, 1024)];
        match tokens.iter().find(|(_, value, least)| value.is_some_and(|value| !(*least..=TOKENS).contains(&value))) {
            Some((field, value, least)) => {
                Err(format!("{field} must be from {least} to {TOKENS}; it is {}", value.unwrap_or_default()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(folder: &Path) -> Definition {
        Definition {
            name: "Reader".to_owned(),
            description: "Reads.".to_owned(),
            working_directory: folder.to_owned(),
            provider: Provider::Scripted,
            model: "folder".to_owned(),
            instructions: "Answer from the folder.".to_owned(),
            tools: ToolName::ALL.to_vec(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: Approvals::default(),
            protected: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
        }
    }

    #[test]
    fn every_wrong_field_is_named_exactly_once() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(sound(folder.path()).validate(), Ok(()));
        let wrong = Definition {
            name: " ".to_owned(),
            description: "x".repeat(1001),
            working_directory: "relative/../path".into(),
            provider: Provider::Scripted,
            model: "gpt".to_owned(),
            instructions: "x".repeat(INSTRUCTIONS_LIMIT + 1),
            tools: vec![ToolName::Read, ToolName::Glob, ToolName::Read],
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: Approvals { expiry_s: 0, ..Approvals::default() },
            protected: vec!["!x".to_owned()],
            network: Network::Host,
            limits: Limits { max_turns: 0, max_duration_s: 0, concurrency: 0, ..Limits::default() },
        };
        let InvalidDefinition(errors) = wrong.validate().expect_err("all wrong");
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_ref()).collect();
        let all = [
            "name",
            "description",
            "working_directory",
            "model",
            "instructions",
            "tools",
            "approvals",
            "protected",
            "network",
            "limits",
        ];
        assert_eq!(fields, all);
    }

    #[test]
    fn limits_of_tokens_are_checked_and_do_not_change_a_definition_that_has_none() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut definition = sound(folder.path());
        assert!(!serde_json::to_string(&definition).expect("JSON").contains("tokens"), "its digest stays what it was");
        assert_eq!(definition.context_tokens(), None);
        definition.provider = Provider::Account("work".to_owned());
        assert_eq!(definition.context_tokens(), Some(CONTEXT_TOKENS));
        for (output, context, fits) in [
            (Some(1), Some(1024), true),
            (Some(0), None, false),
            (None, Some(1023), false),
            (Some(TOKENS + 1), None, false),
        ] {
            definition.limits.max_output_tokens = output;
            definition.limits.context_tokens = context;
            assert_eq!(definition.limits.check().is_ok(), fits, "{output:?} {context:?}");
        }
        assert_eq!(definition.context_tokens(), Some(CONTEXT_TOKENS));
    }

    #[test]
    fn a_working_directory_that_is_no_existing_folder_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "x").expect("written");
        for path in [file, folder.path().join("missing"), folder.path().join("..")] {
            assert!(sound(&path).validate().is_err(), "{}", path.display());
        }
    }

    #[test]
    fn any_change_gives_another_digest() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let one = sound(folder.path());
        let mut other = one.clone();
        other.tools.pop();
        assert_ne!(one.digest(), other.digest());
        let other = Definition { approvals: Approvals { expiry_s: 60, ..Approvals::default() }, ..one.clone() };
        assert_ne!(one.digest(), other.digest());
        let online = Definition { network: Network::Host, tools: ToolName::ALL.to_vec(), ..one.clone() };
        assert_eq!(online.validate(), Ok(()));
        assert_ne!(online.digest(), Definition { network: Network::None, ..online.clone() }.digest());
        let json = serde_json::to_string(&one).expect("JSON");
        assert_eq!(serde_json::from_str::<Definition>(&json).expect("reads back").digest(), one.digest());
    }
}
