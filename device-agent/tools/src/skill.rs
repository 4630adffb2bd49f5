//! Skill: gives the assistant the instructions of a skill when it needs them.

use std::sync::Arc;

use deskgate_definition::Skill as Instructions;
use deskgate_definition::tool::{Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The tool's name.
pub(super) const SKILL_TOOL_NAME: &str = "Skill";

pub(super) struct SkillTool {
    skills: Arc<[Instructions]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillArguments {
    skill: String,
}

impl SkillTool {
    pub(super) fn new(skills: &[Instructions]) -> Self {
        Self { skills: skills.into() }
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> ToolSpec {
        let list: Vec<_> = self.skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description)).collect();
        let names: Vec<_> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        ToolSpec {
            name: SKILL_TOOL_NAME.to_owned(),
            description: format!(
                "Gives the owner's instructions for a kind of work. Ask for a skill before you do the work that it is \
                 for:\n{}",
                list.join("\n")
            ),
            parameters: json!({
                "type": "object",
                "properties": { "skill": { "type": "string", "enum": names, "description": "The skill's name." } },
                "required": ["skill"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn run(&self, arguments: Value, _stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let skills = Arc::clone(&self.skills);
        async move {
            let SkillArguments { skill } = match crate::blocking::parse(SKILL_TOOL_NAME, arguments) {
                Ok(arguments) => arguments,
                Err(complaint) => return Ok(ToolOutput::error(complaint)),
            };
            Ok(match skills.iter().find(|known| known.name == skill) {
                Some(known) => ToolOutput::ok(known.instructions.clone()),
                None => {
                    let names: Vec<_> = skills.iter().map(|known| known.name.as_str()).collect();
                    ToolOutput::error(format!("There is no such skill. The skills are: {}.", names.join(", ")))
                }
            })
        }
        .boxed()
    }
}
