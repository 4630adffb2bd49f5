//! What a tool call would do, as a person has to see it: without hidden, reordering or control characters.

use deskgate_program::visible;

use super::diff::Difference;
use crate::local::{Plan, PlanPreview};

/// What a call would do.
pub(super) enum CallPreview {
    /// It changes a file.
    Difference(Difference),
    /// It runs a command.
    Command { command: String, words: Vec<String> },
    /// It gets a page.
    Page(String),
    /// Only its arguments can be shown.
    Arguments(String),
    /// It is not kept any more.
    Gone,
}

impl CallPreview {
    /// The preview of a call. `arguments`: as JSON, or what is kept of it.
    pub(super) fn new(plan: Option<&Plan>, arguments: Option<&str>) -> Self {
        match (plan.map(|plan| &plan.shown), arguments) {
            (Some(PlanPreview::Change { diff, .. }), _) => Self::Difference(Difference::read(diff)),
            (Some(PlanPreview::Command { command, words }), _) => Self::Command {
                command: visible::block(command, ""),
                words: words.iter().map(|word| visible::line(word)).collect(),
            },
            (Some(PlanPreview::Page { url }), _) => Self::Page(visible::line(url)),
            (_, Some(arguments)) => {
                let json: Option<serde_json::Value> = serde_json::from_str(arguments).ok();
                let pretty = json.and_then(|json| serde_json::to_string_pretty(&json).ok());
                Self::Arguments(visible::block(pretty.as_deref().unwrap_or(arguments), ""))
            }
            (_, None) => Self::Gone,
        }
    }

    /// How many lines it adds to a file and removes from it.
    pub(super) fn lines_changed(&self) -> Option<(usize, usize)> {
        match self {
            Self::Difference(difference) => Some((difference.added, difference.removed)),
            _ => None,
        }
    }

    /// About how many bytes of a page it takes.
    pub(super) fn page_bytes(&self) -> usize {
        match self {
            Self::Difference(difference) => difference.page_bytes(),
            Self::Command { command, words } => command.len() + words.iter().map(|word| word.len() + 30).sum::<usize>(),
            Self::Page(text) | Self::Arguments(text) => text.len(),
            Self::Gone => 0,
        }
    }
}
