//! Real tests for the capability checks: one call of a tool, one request to a provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::providers::Providers;
use deskgate_assistant::{self, Assistant, Message, ModelEvent, ModelRequest};
use deskgate_definition::{Definition, Network, Provider, ToolName};
use deskgate_tools::Toolbox;
use deskgate_tools::engine::workspace::WorkspaceOptions;
use deskgate_tools::sandbox::probe;
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The timeout of a model's test.
const MODEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a sandbox as a run of this service would, and tries to escape from it. `Ok` describes in a few words what was
/// done; the error is why commands cannot run there, and the one thing to do next.
///
/// # Errors
/// The working directory cannot be used, no sandbox can be started in it, or an attempt to get out of it succeeded or
/// was not made; or the check itself failed.
pub async fn try_sandbox(definition: &Definition, own: &Path) -> Result<String, (String, String)> {
    let (definition, own) = (definition.clone(), own.to_owned());
    let tried = tokio::task::spawn_blocking(move || {
        let Definition { working_directory, protected, network, .. } = &definition;
        probe(WorkspaceOptions { directory: working_directory, own_folder: &own, protected, network: *network })
    });
    match tried.await {
        Ok(Ok(attempts)) => Ok(format!("{attempts} attempts to get out of it failed")),
        Ok(Err(error)) => Err((error.to_string(), error.next())),
        Err(_) => Err(("the check itself failed".to_owned(), "run the check again".to_owned())),
    }
}

/// Calls `tool`, one that works on files, in `directory` as a run would. `own` is the agent's own folder. `Ok`
/// describes in a few words what it found.
///
/// # Errors
/// The tools cannot be opened in the folder, or the call failed. For a writing tool: the file cannot be made, changed
/// or removed.
pub async fn try_tool(tool: ToolName, directory: &Path, own: &Path) -> Result<String, String> {
    if tool.writes() {
        return try_writing(directory, own).await;
    }
    let toolbox = open(directory, own).await?;
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
        ToolName::Edit | ToolName::Write | ToolName::Bash => return Err(format!("{tool} is tried in another way")),
    };
    let output = call(tool, arguments).await?;
    match (tool, output.is_error) {
        // Which file comes first depends on the folder: a refusal of that file also shows that the tool works.
        (ToolName::Read, _) => Ok("opened a file of the folder as a run would".to_owned()),
        (_, false) => Ok("worked in the folder as in a run".to_owned()),
        (_, true) => Err(output.text),
    }
}

/// Creates a file, changes it, and removes it.
async fn try_writing(directory: &Path, own: &Path) -> Result<String, String> {
    let toolbox = open(directory, own).await?;
    let name = format!("deskgate-check-{:016x}.tmp", rand::random::<u64>());
    let steps = [
        (ToolName::Write, json!({ "file_path": name, "content": "before\n" })),
        (ToolName::Edit, json!({ "file_path": name, "old_string": "before", "new_string": "after" })),
    ];
    let mut found = Ok("made a file of its own in the folder, changed it, and removed it".to_owned());
    for (tool, arguments) in steps {
        match toolbox.call(tool.as_str(), arguments, CancellationToken::new()).await {
            Ok(output) if !output.is_error => {}
            Ok(output) => found = Err(output.text),
            Err(failure) => found = Err(failure.to_string()),
        }
        if found.is_err() {
            break;
        }
    }
    match tokio::fs::remove_file(directory.join(&name)).await {
        Err(error) if found.is_ok() => Err(format!("{name} was made and cannot be removed: {error}")),
        _ => found,
    }
}

async fn open(directory: &Path, own: &Path) -> Result<Toolbox, String> {
    let (directory, own) = (directory.to_owned(), own.to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        Toolbox::open(
            &ToolName::WORKSPACE_TOOLS,
            &[],
            WorkspaceOptions { directory: &directory, own_folder: &own, protected: &[], network: Network::None },
        )
    })
    .await;
    opened.map_err(|_| "the tools failed unexpectedly".to_owned())?.map_err(|error| error.to_string())
}

/// Asks the provider's model for a word, as a run would. `Ok` describes in a few words what it found.
///
/// Only a real call shows that the key may use the model; it costs a few tokens.
///
/// The service's own limit of output tokens is used, because some servers refuse a limit above the model's.
///
/// # Errors
/// The provider cannot be opened, or its model reports an error, breaks off, or does not answer within a minute. The
/// error says why.
pub async fn try_provider(
    accounts: &Providers,
    provider: &Provider,
    model: &str,
    max_output_tokens: Option<u64>,
) -> Result<String, String> {
    let opened = {
        let (accounts, provider, model) = (accounts.clone(), provider.clone(), model.to_owned());
        tokio::task::spawn_blocking(move || deskgate_assistant::open(&accounts, &provider, &model)).await
    };
    let assistant = opened.map_err(|_| "the provider failed unexpectedly".to_owned())?;
    let assistant = assistant.map_err(|error| error.to_string())?;
    if *provider == Provider::Scripted {
        return Ok("the scripted assistant is ready; it needs no account and asks no model".to_owned());
    }
    match timeout(MODEL_TIMEOUT, answers(assistant.as_ref(), max_output_tokens)).await {
        Ok(answered) => answered.map(|()| format!("{model} answered")),
        Err(_) => Err(format!("{model} did not answer within {} s", MODEL_TIMEOUT.as_secs())),
    }
}

async fn answers(assistant: &dyn Assistant, max_output_tokens: Option<u64>) -> Result<(), String> {
    let mut answer = assistant.respond(ModelRequest {
        system: "Answer with one word.".into(),
        messages: Arc::new(vec![Message::User { text: "Say: ready".to_owned(), details: None }]),
        tools: Arc::new([]),
        max_output_tokens: max_output_tokens.or(Some(64)),
    });
    while let Some(event) = answer.next().await {
        match event {
            ModelEvent::End(_) => return Ok(()),
            ModelEvent::Error(error) => return Err(error.to_string()),
            _ => {}
        }
    }
    Err("the model's answer broke off before its end".to_owned())
}
