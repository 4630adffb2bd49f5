//! What a tool call would do, as a person has to see it: without hidden, reordering or control characters.

use deskgate_program::visible;

use super::diff::{Difference, Layouts, html_bytes};
use crate::local::{Plan, PlanPreview};

/// How many lines a preview shows of a call.
pub(super) const PREVIEW_LINES: usize = 24;
/// How many characters of them.
const MAX_PREVIEW_CHARS: usize = 2_000;

/// What a call would do.
pub(super) enum CallPreview {
    /// It changes a file.
    Difference(Difference),
    /// It runs a command.
    Command { command: String, words: Vec<String> },
    /// It gets a page.
    Page(String),
    /// It hands a file out: its name, what else is known of it, and how it begins if it is text.
    Delivery { name: String, about: String, text: Option<String> },
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
            (Some(PlanPreview::Delivery { name, media_type, size, sha256, text }), _) => Self::Delivery {
                name: visible::line(name),
                about: format!("{size} bytes, {}, sha256 {sha256}", visible::line(media_type)),
                text: text.as_ref().map(|text| visible::block(text, "")),
            },
            (_, Some(arguments)) => {
                let json: Option<serde_json::Value> = serde_json::from_str(arguments).ok();
                let pretty = json.and_then(|json| serde_json::to_string_pretty(&json).ok());
                Self::Arguments(visible::block(pretty.as_deref().unwrap_or(arguments), ""))
            }
            (_, None) => Self::Gone,
        }
    }

    /// The same with a choice of layouts, if it is a difference.
    pub(super) fn in_layout(mut self, layouts: Layouts) -> Self {
        if let Self::Difference(difference) = &mut self {
            difference.layouts = Some(layouts);
        }
        self
    }

    /// Its beginning, and whether something of it is left out.
    pub(super) fn cut(self) -> (Self, bool) {
        let beginning = |text: String| -> (String, bool) {
            let shown: String = text.split_inclusive('\n').take(PREVIEW_LINES).collect();
            let shown: String = shown.chars().take(MAX_PREVIEW_CHARS).collect();
            let is_cut = shown.len() < text.len();
            (shown, is_cut)
        };
        match self {
            Self::Difference(difference) => {
                let (difference, left_out) = difference.cut(PREVIEW_LINES);
                (Self::Difference(difference), left_out > 0)
            }
            Self::Command { command, words } => {
                let (command, is_cut) = beginning(command);
                (Self::Command { command, words: if is_cut { Vec::new() } else { words } }, is_cut)
            }
            Self::Page(url) => {
                let (url, is_cut) = beginning(url);
                (Self::Page(url), is_cut)
            }
            Self::Delivery { name, about, text } => {
                let (text, is_cut) = text.map(beginning).map_or((None, false), |(text, is_cut)| (Some(text), is_cut));
                (Self::Delivery { name, about, text }, is_cut)
            }
            Self::Arguments(arguments) => {
                let (arguments, is_cut) = beginning(arguments);
                (Self::Arguments(arguments), is_cut)
            }
            Self::Gone => (Self::Gone, false),
        }
    }

    /// Whether it changes more than what is shown here.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Difference(difference) if difference.goes_on())
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
            Self::Command { command, words } => {
                html_bytes(command) + words.iter().map(|word| html_bytes(word) + 30).sum::<usize>()
            }
            Self::Page(text) | Self::Arguments(text) => html_bytes(text),
            Self::Delivery { name, about, text } => {
                html_bytes(name) + about.len() + text.as_deref().map_or(0, html_bytes)
            }
            Self::Gone => 0,
        }
    }
}
