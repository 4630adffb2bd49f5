//! Where the capability checks touch the real thing: one call of a tool, one look at a provider.

use std::path::Path;

use super::{Provider, ToolName};

/// Calls `tool` once in `directory` as a run would. `Ok` says in a few words what it found.
pub async fn try_tool(tool: ToolName, directory: &Path) -> Result<String, String> {
    let directory = directory.to_owned();
    let look = move || -> std::io::Result<String> {
        let names: Vec<_> = std::fs::read_dir(&directory)?.collect::<Result<_, _>>()?;
        let first_file = names.iter().find(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        match (tool, first_file) {
            (ToolName::Read | ToolName::Grep, Some(file)) => {
                std::fs::File::open(file.path())?;
                Ok("opened a file of the folder".to_owned())
            }
            (ToolName::Read | ToolName::Grep, None) => Ok("the folder has no file at its top to try it on".to_owned()),
            (ToolName::Glob, _) => Ok(format!("found {} entries", names.len())),
        }
    };
    match tokio::task::spawn_blocking(look).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tool failed unexpectedly".to_owned()),
    }
}

/// Asks whether the provider answers and has the model. `Ok` says in a few words what it found.
pub async fn try_provider(provider: Provider, model: &str) -> Result<String, String> {
    let Provider::Scripted = provider;
    let Some(path) = model.strip_prefix("script:") else {
        return match model {
            "folder" => Ok("the scripted assistant answers from the folder; no model is asked".to_owned()),
            other => Err(format!("the scripted assistant has no model \"{other}\"")),
        };
    };
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file));
    let text = match read.await {
        Ok(result) => result.map_err(|error| format!("{path}: {error}"))?,
        Err(_) => return Err(format!("{path}: reading failed unexpectedly")),
    };
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(_) => Ok("the script file can be read".to_owned()),
        Err(error) => Err(format!("{path}: {error}")),
    }
}
