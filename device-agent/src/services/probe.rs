//! Where the capability checks touch the real thing: one call of a tool, one look at a provider.

use std::path::Path;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Provider, ToolName};
use crate::assistant;
use crate::tools::Toolbox;

/// Calls `tool` once in `directory` as a run would. `Ok` says in a few words what it found.
pub async fn try_tool(tool: ToolName, directory: &Path) -> Result<String, String> {
    let toolbox = open(directory).await?;
    let call = async |name: ToolName, arguments| {
        let output = toolbox.call(name.as_str(), arguments, CancellationToken::new()).await;
        output.map_err(|failure| failure.to_string())
    };
    let arguments = match tool {
        ToolName::Glob => json!({ "pattern": "*" }),
        ToolName::Grep => json!({ "pattern": ".", "head_limit": 1 }),
        ToolName::Read => {
            let files = call(ToolName::Glob, json!({ "pattern": "*" })).await?;
            match files.text.lines().map(|name| directory.join(name)).find(|path| path.is_file()) {
                Some(file) => json!({ "file_path": file, "limit": 1 }),
                None => return Ok("the folder has no file at its top to try it on".to_owned()),
            }
        }
    };
    let output = call(tool, arguments).await?;
    match (tool, output.is_error) {
        // Which file happens to stand first says nothing about the tool: one that it must refuse is
        // an answer too.
        (ToolName::Read, _) => Ok("opened a file of the folder as a run would".to_owned()),
        (_, false) => Ok("worked in the folder as in a run".to_owned()),
        (_, true) => Err(output.text),
    }
}

async fn open(directory: &Path) -> Result<Toolbox, String> {
    let directory = directory.to_owned();
    let opened = tokio::task::spawn_blocking(move || Toolbox::open(&ToolName::ALL, &directory)).await;
    opened.map_err(|_| "the tools failed unexpectedly".to_owned())?.map_err(|error| error.to_string())
}

/// Asks whether the provider answers and has the model. `Ok` says in a few words what it found.
pub async fn try_provider(provider: Provider, model: &str) -> Result<String, String> {
    let model = model.to_owned();
    let opened = tokio::task::spawn_blocking(move || assistant::open(provider, &model).map(drop)).await;
    opened.map_err(|_| "the provider failed unexpectedly".to_owned())?.map_err(|error| error.to_string())?;
    Ok("the scripted assistant is ready; it needs no account and asks no model".to_owned())
}
