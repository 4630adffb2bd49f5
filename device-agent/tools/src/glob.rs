//! Glob: finds files by a pattern of their path, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use ignore::overrides::{Override, OverrideBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use crate::engine::display;
use crate::engine::output::OutputBuffer;
use crate::engine::places::{Places, is_of_files};
use crate::engine::walk::{FileVisitor, FoundFile, walk};
use crate::engine::workspace::Workspace;

/// How many files one call lists.
const MAX_FILES_LISTED: usize = 100;

pub(super) struct GlobTool {
    places: Places,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobArguments {
    pattern: String,
    path: Option<String>,
}

impl GlobArguments {
    /// The place, the path in it, and the pattern below that. A pattern may lead to the run's files by itself.
    fn place(&self, places: &Places) -> (Arc<Workspace>, String, String) {
        let (workspace, base) = match &self.path {
            Some(path) => places.of(path),
            None if is_of_files(&self.pattern) => (places.of(&self.pattern).0, "".into()),
            None => places.of(""),
        };
        (workspace, base.into_owned(), self.pattern.clone())
    }
}

impl GlobTool {
    pub(super) fn new(places: Places) -> Self {
        Self { places }
    }
}

impl Tool for GlobTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Glob.to_string(),
            description: format!(
                "Finds files in the working directory by pattern, such as **/*.rs or src/**/*.ts; a pattern without a \
                 slash matches names at any depth. At most {MAX_FILES_LISTED} files, newest first. Ignored files and symbolic \
                 links are left out, hidden files too unless the pattern names a part that begins with a dot."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "The pattern." },
                    "path": {
                        "type": "string",
                        "description": "The directory that the pattern starts from. Default: the working directory."
                    }
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let places = self.places.clone();
        crate::blocking::plan_on_blocking_thread(ToolName::Glob, arguments.clone(), move |arguments: GlobArguments| {
            let (workspace, base, _) = arguments.place(&places);
            crate::reader::plan_of_looking(&workspace, &base)
        })
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let places = self.places.clone();
        crate::blocking::on_blocking_thread(ToolName::Glob, arguments, &stop, move |arguments: GlobArguments, stop| {
            let (workspace, base, pattern) = arguments.place(&places);
            let base = workspace.relative_without_links(&base)?;
            let pattern = match pattern_below(&workspace, &base, &pattern) {
                Some(pattern) => pattern,
                None => return Err(AccessError::Outside),
            };
            match matcher(&pattern) {
                Ok(matcher) => find(&workspace, &base, &pattern, &matcher, stop),
                Err(complaint) => Ok(ToolOutput::error(complaint)),
            }
        })
    }
}

/// Models also put the directory into the pattern. `None`: an absolute pattern from elsewhere.
fn pattern_below(workspace: &Workspace, base: &Path, pattern: &str) -> Option<String> {
    let pattern = Path::new(pattern);
    let below = if pattern.is_absolute() { pattern.strip_prefix(workspace.path().join(base)).ok()? } else { pattern };
    below.to_str().map(str::to_owned)
}

fn matcher(pattern: &str) -> Result<Override, String> {
    let build = || OverrideBuilder::new(".").add(pattern)?.build();
    match build() {
        Ok(matcher) if !matcher.is_empty() => Ok(matcher),
        Ok(_) => Err("The pattern is empty. Use **/* for every file.".to_owned()),
        Err(error) => Err(format!("The pattern is not valid: {error}")),
    }
}

fn find(
    workspace: &Workspace,
    base: &Path,
    pattern: &str,
    matcher: &Override,
    stop: &CancellationToken,
) -> Result<ToolOutput, AccessError> {
    let hidden = pattern.split('/').any(|part| part.starts_with('.') && part != "." && part != "..");
    let newest = || NewestFiles { base, matcher, files: BinaryHeap::with_capacity(MAX_FILES_LISTED + 1), found: 0 };
    let (walked, parts) = walk(workspace, base, hidden, stop, newest)?;
    let found: usize = parts.iter().map(|part| part.found).sum();
    let mut files: Vec<_> = parts.into_iter().flat_map(|part| part.files).collect();
    files.sort();
    let mut output = OutputBuffer::default();
    for Reverse((_, Reverse(path))) in files.into_iter().take(MAX_FILES_LISTED) {
        if !output.push(&display::name(&path)) {
            break;
        }
    }
    let mut notices = walked.notices();
    if found == 0 {
        notices.insert(0, "no files found".to_owned());
    } else if output.lines() < found {
        notices.push(format!("the newest {} of {found} files: use a narrower pattern or path", output.lines()));
    }
    Ok(ToolOutput::ok(output.finish(&notices)))
}

/// Seconds and nanoseconds.
type ModifiedTime = (i64, i64);

/// The newest files that one thread has found.
struct NewestFiles<'a> {
    base: &'a Path,
    matcher: &'a Override,
    /// The oldest on top; of the same time, the last by name.
    files: BinaryHeap<Reverse<(ModifiedTime, Reverse<PathBuf>)>>,
    found: usize,
}

impl FileVisitor for NewestFiles<'_> {
    fn visit(&mut self, found: &FoundFile<'_>) -> Result<(), AccessError> {
        let below = found.path.strip_prefix(self.base).unwrap_or(found.path);
        if !self.matcher.matched(below, false).is_whitelist() {
            return Ok(());
        }
        // Skips a file that was removed since it was listed.
        if let Some(modified) = found.modified() {
            self.found += 1;
            self.files.push(Reverse((modified, Reverse(found.path.to_owned()))));
            if self.files.len() > MAX_FILES_LISTED {
                self.files.pop();
            }
        }
        Ok(())
    }
}
