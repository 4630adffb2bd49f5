//! Glob: finds files by the pattern of their path, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use ignore::overrides::{Override, OverrideBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::output::Output;
use super::walk::walk;
use super::workspace::{AccessError, Links, Workspace};
use super::{Plan, Tool, ToolOutput, ToolResult, ToolSpec, display};
use crate::services::ToolName;

/// Files that one call lists.
const FILES: usize = 100;

pub(super) struct Glob {
    workspace: Arc<Workspace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

impl Glob {
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace }
    }
}

impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Glob.to_string(),
            description: format!(
                "Finds files in the working directory by pattern, such as **/*.rs or src/**/*.ts; a pattern without a \
                 slash matches names at any depth. At most {FILES} files, newest first. Ignored files and symbolic \
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
        let workspace = Arc::clone(&self.workspace);
        super::plan_on_blocking_thread(ToolName::Glob, arguments.clone(), move |arguments: Arguments| {
            super::plan_of_looking(&workspace, arguments.path.as_deref().unwrap_or(""))
        })
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let workspace = Arc::clone(&self.workspace);
        super::on_blocking_thread(ToolName::Glob, arguments, &stop, move |arguments: Arguments, stop| {
            let base = workspace.relative_without_links(arguments.path.as_deref().unwrap_or(""))?;
            let pattern = match pattern_below(&workspace, &base, &arguments.pattern) {
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

/// Models also write the directory into the pattern. `None`: an absolute pattern from elsewhere.
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
    let mut newest: BinaryHeap<Reverse<(SystemTime, Reverse<PathBuf>)>> = BinaryHeap::with_capacity(FILES + 1);
    let mut found = 0_usize;
    let walked = walk(workspace, base, hidden, stop, |path| {
        let below = path.strip_prefix(base).unwrap_or(path);
        if matcher.matched(below, false).is_whitelist() {
            // Whatever cannot be looked at from the working directory's handle is not listed.
            match workspace.look(path, Links::Refused) {
                Ok(metadata) if metadata.is_file() => {
                    found += 1;
                    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    newest.push(Reverse((modified, Reverse(path.to_owned()))));
                    if newest.len() > FILES {
                        newest.pop();
                    }
                }
                Err(AccessError::Gone) => return Err(AccessError::Gone),
                _ => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut output = Output::default();
    for Reverse((_, Reverse(path))) in newest.into_sorted_vec() {
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
