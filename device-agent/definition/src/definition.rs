//! A service's definition: set by its owner, frozen when it is published.

use std::path::{Component, Path, PathBuf};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::service::{self, ServiceData};
use serde::{Deserialize, Serialize};

use super::{
    ApprovalPolicy, CostShownTo, ModelReads, Network, ProtectedPaths, Reasoning, RunLimits, Skill, ToolName, TypedData,
};
use crate::mcp_server::{self, MAX_MCP_SERVERS};
use crate::provider::{PROVIDER_NAME_RULE, is_provider_name};
use crate::{McpServer, Provider};

/// Everything that decides how a run of this service is executed.
///
/// Publishing freezes it with a digest; an offer for another digest is refused. The definition never leaves the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Unique within the application.
    pub name: String,
    /// What the service does, for callers.
    pub description: String,
    /// The folder that tools work in. Absolute.
    pub working_directory: PathBuf,
    /// The model provider, or the scripted assistant.
    pub provider: Provider,
    /// Which of the provider's models, by the provider's own name; for `scripted`: `folder`, or `script:` and a file's path.
    pub model: String,
    /// How much the model reasons, and who reads a summary of it.
    #[serde(default, skip_serializing_if = "Reasoning::is_default")]
    pub reasoning: Reasoning,
    /// What the model reads beside text; absent: as is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_reads: Option<ModelReads>,
    /// The fixed task.
    pub instructions: String,
    /// The tools the assistant may call; empty: conversation only.
    pub tools: Vec<ToolName>,
    /// Instructions for kinds of work, which the assistant loads when it needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// MCP servers whose tools the assistant may call too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServer>,
    /// Which calls run by themselves, which ask first, and which never run.
    #[serde(default, skip_serializing_if = "ApprovalPolicy::is_default")]
    pub approvals: ApprovalPolicy,
    /// Patterns of files that no tool changes; see [`super::ProtectedPaths`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// The network that commands have. Only Bash uses it: what Fetch reaches is a matter of rules.
    #[serde(default, skip_serializing_if = "Network::is_none")]
    pub network: Network,
    /// Who is told what a run cost.
    #[serde(default, skip_serializing_if = "CostShownTo::is_default")]
    pub cost_shown_to: CostShownTo,
    /// The data that it takes and gives beside text.
    #[serde(default, skip_serializing_if = "TypedData::is_default")]
    pub data: TypedData,
    /// The limits of one run.
    pub limits: RunLimits,
}

impl Definition {
    /// The definition that a new service begins with: the scripted assistant with the workspace tools, and neither a name
    /// nor a folder.
    pub fn blank() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            working_directory: PathBuf::new(),
            provider: Provider::Scripted,
            model: "folder".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            instructions: "Answer the caller's question about the files in the working directory.".to_owned(),
            tools: ToolName::WORKSPACE_TOOLS.to_vec(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: ApprovalPolicy::default(),
            protected: Vec::new(),
            network: Network::None,
            data: TypedData::default(),
            limits: RunLimits::default_for(&ToolName::WORKSPACE_TOOLS, &[]),
        }
    }

    /// Checks every field, and reports each wrong one once, with what to write instead.
    ///
    /// The working directory must be absolute and exist: a missing folder is a typing error. The checks find out
    /// whether the folder suits.
    ///
    /// # Errors
    /// The fields that are not acceptable.
    pub fn validate(&self) -> Result<(), InvalidDefinition> {
        let wrong: Vec<FieldError> = [
            ("name", service::check_name(&self.name)),
            ("description", service::check_description(&self.description)),
            ("working_directory", self.check_working_directory()),
            ("provider", self.check_provider()),
            ("model", self.check_model()),
            ("instructions", self.check_instructions()),
            ("tools", self.check_tools()),
            ("skills", self.check_skills()),
            ("mcp", self.check_mcp()),
            ("approvals", self.approvals.check()),
            ("protected", ProtectedPaths::new(&self.protected).map(drop)),
            ("network", self.check_network()),
            ("data", self.data.check()),
            ("limits", self.limits.check()),
        ]
        .into_iter()
        .filter_map(|(field, result)| result.err().map(|message| FieldError { field: field.into(), message }))
        .collect();
        if wrong.is_empty() { Ok(()) } else { Err(InvalidDefinition(wrong)) }
    }

    /// How many tokens the model takes in one call, including its answer: as the owner said, or as is known of the model.
    /// `None` for the scripted assistant, which has no model.
    pub fn context_tokens(&self, known: Option<u64>) -> Option<u64> {
        let default = (self.provider != Provider::Scripted).then_some(known.unwrap_or(DEFAULT_CONTEXT_TOKENS));
        self.limits.context_tokens.or(default)
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

    /// Only the name is checked: the provider may be configured later, and the checks find out whether it is there.
    fn check_provider(&self) -> Result<(), String> {
        match &self.provider {
            Provider::Scripted => Ok(()),
            Provider::Account(name) => match is_provider_name(name) {
                true => Ok(()),
                false => Err(PROVIDER_NAME_RULE.to_owned()),
            },
        }
    }

    fn check_model(&self) -> Result<(), String> {
        let length = self.model.chars().count();
        match (&self.provider, self.model.strip_prefix("script:")) {
            (Provider::Account(_), _) if (1..=MAX_MODEL_CHARS).contains(&length) => Ok(()),
            (Provider::Account(_), _) => Err(format!("a model's name has 1 to {MAX_MODEL_CHARS} characters")),
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
        match length > MAX_INSTRUCTIONS_BYTES {
            true => Err(format!("instructions have at most {MAX_INSTRUCTIONS_BYTES} bytes; these have {length}")),
            false => Ok(()),
        }
    }

    fn check_tools(&self) -> Result<(), String> {
        match self.tools.iter().enumerate().find(|(at, tool)| self.tools[..*at].contains(tool)) {
            Some((_, tool)) => Err(format!("{tool} is listed twice; list it once")),
            None => Ok(()),
        }
    }

    /// A network that no tool uses would mislead the reader of the definition.
    fn check_network(&self) -> Result<(), String> {
        match self.network == Network::Host && !self.tools.contains(&ToolName::Bash) {
            true => Err("only commands use a network, and this service has no Bash; write \"none\"".to_owned()),
            false => Ok(()),
        }
    }

    fn check_skills(&self) -> Result<(), String> {
        if self.skills.len() > MAX_SKILLS {
            return Err(format!("a service has at most {MAX_SKILLS} skills; this one has {}", self.skills.len()));
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
        if self.mcp.len() > MAX_MCP_SERVERS {
            return Err(format!(
                "a service has at most {} MCP servers; this one has {}",
                MAX_MCP_SERVERS,
                self.mcp.len()
            ));
        }
        for (at, server) in self.mcp.iter().enumerate() {
            let sound = mcp_server::check_name(&server.name).and_then(|()| mcp_server::check_url(&server.url));
            sound.map_err(|error| error.to_string())?;
            if self.mcp[..at].iter().any(|other| other.name == server.name) {
                return Err(format!("the MCP server {} is listed twice; list it once", server.name));
            }
        }
        Ok(())
    }

    /// What the gateway and callers know of it, beside its name and description.
    pub fn published_data(&self) -> ServiceData {
        let only_reads = |tool: &ToolName| matches!(tool, ToolName::Read | ToolName::Grep | ToolName::Glob);
        self.data.published(self.tools.iter().all(only_reads) && self.mcp.is_empty())
    }

    /// The digest that identifies a published version.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of_json(self).expect("a definition is text, numbers and lists, all of which JSON can hold")
    }
}

/// The context window of a model where none is configured or known: today's models have at least this much.
const DEFAULT_CONTEXT_TOKENS: u64 = 128_000;

/// At most this many skills for each service.
const MAX_SKILLS: usize = 32;

/// The length limit of a model's name, in characters.
const MAX_MODEL_CHARS: usize = 200;

/// The size limit of the instructions, in bytes: far above what people write, far below what a model takes.
pub const MAX_INSTRUCTIONS_BYTES: usize = 256 * 1024;

/// One field of a definition that is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// The field's name, as in the file.
    pub field: std::borrow::Cow<'static, str>,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// A definition with at least one error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the service's definition is not valid: {}", .0.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join("; "))]
pub struct InvalidDefinition(pub Vec<FieldError>);

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
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "Answer from the folder.".to_owned(),
            tools: ToolName::ALL.to_vec(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: ApprovalPolicy::default(),
            protected: Vec::new(),
            network: Network::None,
            limits: RunLimits::default(),
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
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "x".repeat(MAX_INSTRUCTIONS_BYTES + 1),
            tools: vec![ToolName::Read, ToolName::Glob, ToolName::Read],
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: ApprovalPolicy { expiry_s: 0, ..ApprovalPolicy::default() },
            protected: vec!["!x".to_owned()],
            network: Network::Host,
            limits: RunLimits { max_turns: 0, max_duration_s: 0, concurrency: 0, ..RunLimits::default() },
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
    fn a_model_of_an_account_has_a_window_and_the_scripted_assistant_none() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut definition = sound(folder.path());
        assert_eq!(definition.context_tokens(None), None);
        definition.provider = Provider::Account("work".to_owned());
        assert_eq!(definition.context_tokens(None), Some(DEFAULT_CONTEXT_TOKENS));
        assert_eq!(definition.context_tokens(Some(1_000_000)), Some(1_000_000));
        definition.limits.context_tokens = Some(4096);
        assert_eq!(definition.context_tokens(Some(1_000_000)), Some(4096));
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
        let other =
            Definition { approvals: ApprovalPolicy { expiry_s: 60, ..ApprovalPolicy::default() }, ..one.clone() };
        assert_ne!(one.digest(), other.digest());
        let online = Definition { network: Network::Host, tools: ToolName::ALL.to_vec(), ..one.clone() };
        assert_eq!(online.validate(), Ok(()));
        assert_ne!(online.digest(), Definition { network: Network::None, ..online.clone() }.digest());
        let json = serde_json::to_string(&one).expect("JSON");
        assert_eq!(serde_json::from_str::<Definition>(&json).expect("reads back").digest(), one.digest());
    }

    /// The tools that there were when the digests were taken.
    const WORKSPACE_AND_BASH: [ToolName; 6] =
        [ToolName::Read, ToolName::Grep, ToolName::Glob, ToolName::Edit, ToolName::Write, ToolName::Bash];

    /// The digest identifies a published service: runs that wait at a gateway, and the owner's published versions,
    /// carry it.
    #[test]
    fn the_digest_of_a_definition_stays_what_it_was() {
        let definition = Definition {
            name: "Invoices".to_owned(),
            description: "Reads invoices.\nAnswers in one line.".to_owned(),
            working_directory: "/srv/invoices".into(),
            provider: Provider::Account("work".to_owned()),
            model: "claude-sonnet".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "Find the open invoices – all of them.".to_owned(),
            tools: WORKSPACE_AND_BASH.to_vec(),
            skills: vec![Skill {
                name: "dates".to_owned(),
                description: "How dates are written.".to_owned(),
                instructions: "Write them as 2026-11-23.".to_owned(),
                source: "/home/me/skills/dates".into(),
            }],
            mcp: vec![
                McpServer {
                    name: "crm".to_owned(),
                    url: "https://crm.example.com/mcp".to_owned(),
                    tools_sha256: Some(Sha256Digest::of(b"tools")),
                },
                McpServer { name: "erp".to_owned(), url: "https://erp.example.com/".to_owned(), tools_sha256: None },
            ],
            approvals: serde_json::from_value(serde_json::json!({
                "rules": [
                    { "action": "deny", "tool": "Read", "path": "secrets/**" },
                    { "action": "ask", "tool": "*" },
                    { "action": "allow", "tool": "Bash" },
                ],
                "expiry_s": 3600,
                "on_denial": "end_run",
            }))
            .expect("sound rules"),
            protected: vec![".env".to_owned(), "/keys/".to_owned()],
            network: Network::Host,
            limits: RunLimits {
                max_turns: 20,
                max_duration_s: 600,
                concurrency: 2,
                max_output_tokens: Some(5000),
                context_tokens: Some(64_000),
                budget: Default::default(),
            },
        };
        assert_eq!(definition.digest().to_string(), "82ca7e5ddb5517d8790a1ada70c8cc013cba1a1d1b81f51f7740f1e0aa423d9a");
        let plain = Definition { tools: WORKSPACE_AND_BASH.to_vec(), ..sound(Path::new("/srv/work")) };
        assert_eq!(plain.digest().to_string(), "6ca211dd38ad0dcb1baf3b4e7b71ccf013ddd4a2cdfd8782d9139c3abe5c97a6");
    }
}
