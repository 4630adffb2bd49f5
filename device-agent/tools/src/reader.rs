//! Code shared by the tools that only read: the plan of a call is the path it reads.

use deskgate_definition::tool::{Plan, PlanPreview};

use crate::engine::access::AccessError;
use crate::engine::change::ChangeError;
use crate::engine::resolved_path::ResolvedPath;
use crate::engine::workspace::{LinkPolicy, Workspace};

/// The plan of a call that only reads the given path.
pub(crate) fn plan_of_looking(workspace: &Workspace, path: &str) -> Result<Plan, ChangeError> {
    // Also for a path that is hidden from the tool: the rules deny it.
    let resolved = ResolvedPath::find(workspace, &workspace.relative(path)?, LinkPolicy::Inside)?;
    if !resolved.missing().is_empty() {
        return Err(AccessError::Missing.into());
    }
    let path = resolved.path();
    let place = if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() };
    Ok(Plan { place: Some(place), shown: PlanPreview::Arguments })
}
