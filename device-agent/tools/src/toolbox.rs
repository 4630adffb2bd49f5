//! The known tools, and those of one run.

use std::sync::Arc;

use deskgate_definition::approvals::Rulebook;
use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_definition::{ModelReads, Skill, ToolName};
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::deliver::Outbox;
use crate::engine::access::AccessError;
use crate::engine::journal_room::JournalRoom;
use crate::engine::places::{self, Places};
use crate::engine::seen_files::SeenFiles;
use crate::engine::workspace::{Workspace, WorkspaceError, WorkspaceOptions};
use crate::sandbox::{CommandLimits, Sandbox, SandboxError};
use crate::{bash, deliver, edit, fetch, glob, grep, read, skill, write};

/// Why a run's tools cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ToolboxError {
    /// The working directory cannot be used.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The sandbox for commands cannot be created.
    #[error("{}; to do: {}", .0, .0.next())]
    Sandbox(#[from] SandboxError),
}

/// The tools of one run.
pub struct Toolbox {
    tools: Vec<(ToolSpec, Arc<dyn Tool>)>,
}

impl Toolbox {
    /// Opens the working directory once, for the tools `names`, with the skills beside them. Without tools the
    /// directory is not touched. Blocks for a few system calls; with Bash for an empty command.
    ///
    /// # Errors
    /// The working directory or the sandbox cannot be used.
    pub fn open(names: &[ToolName], skills: &[Skill], options: WorkspaceOptions<'_>) -> Result<Self, ToolboxError> {
        Self::open_under(&Rulebook::default(), names, skills, ModelReads::Text, None, options)
    }

    /// The same for a service with rules, whose model reads so much: paths that the rules deny are hidden from the tools. What it
    /// hands out goes to `outbox`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_under(
        rules: &Rulebook,
        names: &[ToolName],
        skills: &[Skill],
        reads: ModelReads,
        outbox: Option<Arc<dyn Outbox>>,
        options: WorkspaceOptions<'_>,
    ) -> Result<Self, ToolboxError> {
        let skills = (!skills.is_empty()).then(|| -> Box<dyn Tool> { Box::new(skill::SkillTool::new(skills)) });
        let files = options.files.map(places::open_files).transpose()?;
        let known = Arc::new(SeenFiles::default());
        // A service without tools of this kind reads the files that the run was given, and nothing else.
        let only_files = files.clone().filter(|_| !names.contains(&ToolName::Read)).map(|files| -> Box<dyn Tool> {
            Box::new(read::ReadTool::new(Places::new(Arc::clone(&files), Some(files)), Arc::clone(&known), reads))
        });
        if names.is_empty() {
            return Ok(Self::with(only_files.into_iter().chain(skills).collect()));
        }
        let workspace = Arc::new(Workspace::open(options)?);
        let room = Arc::new(JournalRoom::of(options.own_folder));
        let seen_by = |name: &ToolName| match (name, rules.hidden_from(name.as_str())) {
            // A tool that changes a file is judged by its path, which no link can exchange.
            (ToolName::Read | ToolName::Grep | ToolName::Glob | ToolName::Deliver, hidden) if !hidden.is_empty() => {
                workspace.with_hidden(hidden).map(Arc::new)
            }
            _ => Ok(Arc::clone(&workspace)),
        };
        let make = |name: &ToolName| -> Result<Box<dyn Tool>, ToolboxError> {
            let (workspace, known) = (seen_by(name)?, Arc::clone(&known));
            let places = Places::new(Arc::clone(&workspace), files.clone());
            Ok(match name {
                ToolName::Read => Box::new(read::ReadTool::new(places, known, reads)),
                ToolName::Grep => Box::new(grep::GrepTool::new(places)),
                ToolName::Glob => Box::new(glob::GlobTool::new(places)),
                ToolName::Edit => Box::new(edit::EditTool::new(workspace, known, Arc::clone(&room))),
                ToolName::Write => Box::new(write::WriteTool::new(workspace, known, Arc::clone(&room))),
                ToolName::Bash => {
                    let sandbox =
                        Sandbox::open(workspace, options.own_folder, options.network, CommandLimits::default())?;
                    let sandbox = match &files {
                        Some(files) => sandbox.with_files(files)?,
                        None => sandbox,
                    };
                    Box::new(bash::BashTool::new(sandbox, options.network))
                }
                ToolName::Fetch => Box::new(fetch::FetchTool::new()),
                ToolName::Deliver => {
                    Box::new(deliver::DeliverTool::new(workspace, known, Arc::clone(&room), outbox.clone()))
                }
            })
        };
        let own = only_files.into_iter().chain(skills).map(Ok);
        Ok(Self::with(names.iter().map(make).chain(own).collect::<Result<_, _>>()?))
    }

    /// Adds tools that are ready.
    pub fn add(&mut self, tools: Vec<Box<dyn Tool>>) {
        self.tools.extend(Self::with(tools).tools);
    }

    /// A toolbox of tools that are ready.
    pub fn with(tools: Vec<Box<dyn Tool>>) -> Self {
        Self { tools: tools.into_iter().map(|tool| (tool.spec(), Arc::from(tool))).collect() }
    }

    /// The specifications for the model.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.iter().map(|(spec, _)| spec)
    }

    /// What kind of effect a tool can have; `None` if the run has no tool of this name.
    pub fn kind(&self, name: &str) -> Option<ToolKind> {
        self.find(name).map(|tool| tool.kind())
    }

    /// What a call would do; `None` if the run has no tool of this name.
    pub fn plan(&self, name: &str, arguments: &Value) -> Option<BoxFuture<'static, Result<Plan, ToolOutput>>> {
        self.find(name).map(|tool| tool.plan(arguments))
    }

    /// What a call that a person has allowed would do now; `None` if the run has no tool of this name.
    pub fn plan_again(&self, name: &str, arguments: &Value) -> Option<BoxFuture<'static, Result<Plan, ToolOutput>>> {
        self.find(name).map(|tool| tool.plan_again(arguments))
    }

    /// Runs one call. An unknown tool name gives an error output, like any other mistake of a model. A call does not
    /// begin before the future is polled, nor after `stop`.
    pub fn call(&self, name: &str, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let tool = self.find(name).cloned();
        async move {
            match tool {
                _ if stop.is_cancelled() => Ok(ToolOutput::error(AccessError::Stopped.to_string())),
                Some(tool) => tool.run(arguments, stop).await,
                None => Ok(ToolOutput::error("There is no such tool in this service.")),
            }
        }
        .boxed()
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|(spec, _)| spec.name == name).map(|(_, tool)| tool)
    }
}
