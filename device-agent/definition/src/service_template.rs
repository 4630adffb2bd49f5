//! What a new service may begin as: definitions that lack only a name, a folder and a model.
//!
//! The pages show them as cards, the command line takes them by name, and `quickstart` begins with the one that only reads.

use crate::{Definition, RunLimits, ToolName};

deskgate_protocol::words! {
    /// A beginning of a new service.
    pub enum ServiceTemplate {
        /// Answers questions about the files of a folder, and only reads them.
        ReadOnly = "read-only",
        /// Writes drafts as files, each after a yes.
        Drafts = "drafts",
        /// Reads, changes and runs code, each change and command after a yes.
        Code = "code",
    }
}

impl ServiceTemplate {
    /// What it is for, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ReadOnly => "Answer questions",
            Self::Drafts => "Write drafts",
            Self::Code => "Help with code",
        }
    }

    /// What a service that begins so may do, and what it asks about, in a sentence.
    pub const fn may(self) -> &'static str {
        match self {
            Self::ReadOnly => "Reads and searches the files of one folder. It changes nothing, so it never asks you.",
            Self::Drafts => {
                "Reads one folder and writes files there. Each file that it writes or changes waits for your yes."
            }
            Self::Code => {
                "Reads and changes one folder, and runs commands in a sandbox without a network. Each change and each \
                 command waits for your yes."
            }
        }
    }

    /// The definition, with the scripted assistant and without a name and a folder.
    pub fn definition(self) -> Definition {
        let blank = Definition::blank();
        let (description, instructions) = self.texts();
        let tools = self.tools();
        Definition {
            description: description.to_owned(),
            instructions: instructions.map_or(blank.instructions, str::to_owned),
            limits: RunLimits::default_for(&tools, &[]),
            tools,
            ..blank
        }
    }

    fn tools(self) -> Vec<ToolName> {
        let reading = [ToolName::Read, ToolName::Grep, ToolName::Glob];
        match self {
            Self::ReadOnly => reading.to_vec(),
            Self::Drafts => ToolName::WORKSPACE_TOOLS.to_vec(),
            Self::Code => [&ToolName::WORKSPACE_TOOLS[..], &[ToolName::Bash]].concat(),
        }
    }

    /// The description for callers, and the task if it is another than the usual one.
    const fn texts(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::ReadOnly => ("Answers questions about the files of a folder.", None),
            Self::Drafts => (
                "Writes drafts as files, after its owner has agreed to each.",
                Some(
                    "Write what the caller asks for as a draft: a new file in the folder drafts/ of the working directory. \
                     Read the files that are there first, and follow their tone and form. Change no other file. Say in your \
                     answer which files you wrote.",
                ),
            ),
            Self::Code => (
                "Answers questions about code, finds causes of errors, and changes the code after its owner has agreed.",
                Some(
                    "Help with the code in the working directory. Read what the question is about before you answer. If a \
                     change is asked for, make the smallest one that does it, run the project's own checks, and say what you \
                     changed and what the checks said.",
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApprovalPolicy;

    #[test]
    fn a_template_lacks_only_a_name_and_a_folder() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for template in ServiceTemplate::ALL {
            let lacking = template.definition().validate().expect_err("it has no name");
            let fields: Vec<_> = lacking.0.iter().map(|error| error.field.as_ref()).collect();
            assert_eq!(fields, ["name", "working_directory"], "{template}");
            let whole = Definition {
                name: "Orders".to_owned(),
                working_directory: folder.path().to_owned(),
                ..template.definition()
            };
            assert!(whole.validate().is_ok(), "{template}");
        }
    }

    #[test]
    fn nothing_that_a_template_lets_change_or_run_goes_unasked() {
        for template in ServiceTemplate::ALL {
            let definition = template.definition();
            assert_eq!(definition.approvals, ApprovalPolicy::default(), "{template}");
            assert_eq!(definition.network, crate::Network::None, "{template}");
        }
        assert!(!ServiceTemplate::ReadOnly.definition().tools.iter().any(|tool| tool.writes()));
    }
}
