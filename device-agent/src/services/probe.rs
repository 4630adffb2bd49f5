//! Real tests for the capability checks: one call of a tool, one request to a provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::providers::Providers;
use deskgate_assistant::{
    self, Assistant, AssistantError, ErrorKind, Message, ModelError, ModelEvent, ModelRequest, NativeMessage,
    StopReason, ToolAnswer, ToolCall,
};
use deskgate_definition::tool::ToolSpec;
use deskgate_definition::{Definition, Provider, ToolName};
use deskgate_tools::engine::workspace::WorkspaceOptions;
use deskgate_tools::sandbox::probe;
use deskgate_tools::{Toolbox, ToolboxError, bash_spec};
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The timeout of a model's test.
const MODEL_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a call that failed and may succeed is made.
const MODEL_ATTEMPTS: u32 = 3;
/// The pause before another, unless the provider asks for one.
const MODEL_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause that a provider may ask for: a longer one is told.
const MAX_PAUSE: Duration = Duration::from_secs(10);

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
        probe(WorkspaceOptions { protected, network: *network, ..WorkspaceOptions::of(working_directory, &own) })
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
        ToolName::Edit | ToolName::Write | ToolName::Bash | ToolName::Fetch | ToolName::Deliver => {
            return Err(format!("{tool} is tried in another way"));
        }
    };
    let output = call(tool, arguments).await?;
    match (tool, output.is_error) {
        // Which file comes first depends on the folder: a refusal of that file also shows that the tool works.
        (ToolName::Read, _) => Ok("opened a file of the folder as a run would".to_owned()),
        (_, false) => Ok("worked in the folder as in a run".to_owned()),
        (_, true) => Err(output.text),
    }
}

/// Makes ready to fetch a page, without fetching one.
///
/// # Errors
/// No page can be fetched on this computer.
pub async fn try_fetch() -> Result<(), String> {
    // Reads the certificates that this computer trusts.
    tokio::task::spawn_blocking(deskgate_tools::fetch::probe).await.map_err(|_| "the check itself failed".to_owned())?
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

/// The specifications of a service's own tools as a model gets them, without opening its sandbox.
pub async fn specs(definition: &Definition, own: &Path) -> Vec<ToolSpec> {
    let (definition, own) = (definition.clone(), own.to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        let Definition { working_directory, protected, network, .. } = &definition;
        let names: Vec<_> = definition.tools.iter().copied().filter(|tool| *tool != ToolName::Bash).collect();
        let options =
            WorkspaceOptions { protected, network: *network, ..WorkspaceOptions::of(working_directory, &own) };
        let opened = Toolbox::open(&names, &definition.skills, options)?;
        let mut specs: Vec<_> = opened.specs().cloned().collect();
        if let Some(place) = definition.tools.iter().position(|tool| *tool == ToolName::Bash) {
            specs.insert(place, bash_spec(definition.network));
        }
        Ok::<_, ToolboxError>(specs)
    });
    // Whether the tools can be opened is another check.
    opened.await.ok().and_then(Result::ok).unwrap_or_default()
}

async fn open(directory: &Path, own: &Path) -> Result<Toolbox, String> {
    let (directory, own) = (directory.to_owned(), own.to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], WorkspaceOptions::of(&directory, &own))
    })
    .await;
    opened.map_err(|_| "the tools failed unexpectedly".to_owned())?.map_err(|error| error.to_string())
}

/// The tool of the check: it returns the word that it was called with.
const CHECK_TOOL: &str = "Check";
/// What the check asks.
const CHECK_REQUEST: &str = "Call the tool Check with the word ready. Then say what it returned.";
/// What it asks where a service has no tools.
const CHECK_REQUEST_WITHOUT_TOOLS: &str = "Say: ready";

/// Why the model of a service cannot be used, with the provider's own words: for the owner alone.
#[derive(Debug, thiserror::Error)]
pub enum ModelTrouble {
    /// The provider cannot be opened: it is not configured, or its key cannot be read.
    #[error(transparent)]
    NotOpened(#[from] AssistantError),
    /// The provider refuses the key, or the account.
    #[error("{0}")]
    KeyRefused(String),
    /// Asked as a run asks, the model fails.
    #[error("{0}")]
    Fails(String),
}

impl ModelTrouble {
    fn of(error: &ModelError) -> Self {
        match error.kind {
            ErrorKind::Auth => Self::KeyRefused(error.for_owner()),
            _ => Self::Fails(error.for_owner()),
        }
    }

    fn fails(cause: &str) -> Self {
        Self::Fails(cause.to_owned())
    }

    /// The same with the name of the tool that the provider knows by its place alone: `tools[3]` or `tools.3`.
    fn naming_tool(self, tools: &[ToolSpec]) -> Self {
        let Self::Fails(cause) = self else { return self };
        let place = cause.split("tools").skip(1).find_map(|rest| {
            let rest = rest.strip_prefix(['[', '.'])?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
        });
        match place.and_then(|place| tools.get(place)) {
            Some(ToolSpec { name, .. }) if !cause.contains(name.as_str()) => {
                Self::Fails(format!("{cause} (this is about the tool {name})"))
            }
            _ => Self::Fails(cause),
        }
    }

    /// The same failure at a later step.
    fn after(self, step: &str) -> Self {
        match self {
            Self::Fails(cause) => Self::Fails(format!("{step}: {cause}")),
            other => other,
        }
    }
}

/// Asks the service's model what a run asks: with the service's limits, effort and tools, a call of a tool and the
/// answer after its result. `Ok` describes in a few words what it found.
///
/// Only a real call shows that the key may use the model, and many a model fails at the second; it costs a few tokens.
/// `specs` are the tools of the service, those of other servers with them, as far as they are known.
///
/// # Errors
/// The provider cannot be opened, or its model reports an error, breaks off, calls no tool, or does not answer within a
/// minute. The error says why, in the provider's own words too: it is for the owner alone.
pub async fn try_provider(
    accounts: &Providers,
    definition: &Definition,
    specs: Vec<ToolSpec>,
) -> Result<String, ModelTrouble> {
    let opened = {
        let (accounts, definition) = (accounts.clone(), definition.clone());
        tokio::task::spawn_blocking(move || deskgate_assistant::open(&accounts, &definition)).await
    };
    let assistant = opened.map_err(|_| ModelTrouble::fails("the provider failed unexpectedly"))??;
    if definition.provider == Provider::Scripted {
        return Ok("the scripted assistant is ready; it needs no account and asks no model".to_owned());
    }
    let has_tools = !(definition.tools.is_empty() && definition.skills.is_empty() && definition.mcp.is_empty());
    let model = &definition.model;
    match timeout(MODEL_TIMEOUT, converse(assistant.as_ref(), definition, specs, has_tools)).await {
        Ok(Ok(())) if has_tools => Ok(format!("{model} called a tool and answered")),
        Ok(Ok(())) => Ok(format!("{model} answered")),
        Ok(Err(cause)) => Err(cause),
        Err(_) => Err(ModelTrouble::Fails(format!("{model} did not answer within {} s", MODEL_TIMEOUT.as_secs()))),
    }
}

/// A call of the check's tool and the answer after it; without tools, one answer.
async fn converse(
    assistant: &dyn Assistant,
    definition: &Definition,
    mut specs: Vec<ToolSpec>,
    has_tools: bool,
) -> Result<(), ModelTrouble> {
    let text = if has_tools { CHECK_REQUEST } else { CHECK_REQUEST_WITHOUT_TOOLS };
    specs.extend(has_tools.then(|| ToolSpec {
        name: CHECK_TOOL.to_owned(),
        description: "Returns the word that it is called with.".to_owned(),
        parameters: json!({
            "type": "object", "properties": { "word": { "type": "string" } }, "required": ["word"],
            "additionalProperties": false,
        }),
    }));
    let mut messages = vec![Message::User { text: text.to_owned(), details: None }];
    let tools: Arc<[ToolSpec]> = specs.into();
    let ask = async |messages: &[Message]| {
        let request = ModelRequest {
            system: "This is a check whether everything works. Do what the message asks, and nothing else.".into(),
            messages: Arc::new(messages.to_vec()),
            tools: Arc::clone(&tools),
            max_output_tokens: definition.limits.max_output_tokens,
            effort: definition.reasoning.effort,
        };
        answer(assistant, request).await.map_err(|trouble| trouble.naming_tool(&tools))
    };
    let CheckAnswer { calls, native, .. } = match ask(&messages).await? {
        answer if has_tools => answer,
        answer => return answer.said_something(),
    };
    if !calls.iter().any(|call| call.name == CHECK_TOOL) {
        return Err(ModelTrouble::fails(
            "the model answered without calling the tool that it was asked to call; choose a model that calls tools, or \
             leave the tools out",
        ));
    }
    let results = calls.iter().map(|call| {
        ToolAnswer::text(
            call.id.clone(),
            call.arguments["word"].as_str().unwrap_or("ready").to_owned(),
            call.name != CHECK_TOOL,
        )
    });
    let results = Message::ToolResults(results.collect());
    messages.push(Message::Assistant { text: String::new(), tool_calls: calls, native });
    messages.push(results);
    let answered = ask(&messages).await.and_then(CheckAnswer::said_something);
    answered.map_err(|trouble| trouble.after("after the result of a tool"))
}

/// What the model answered.
#[derive(Default)]
struct CheckAnswer {
    text: String,
    calls: Vec<ToolCall>,
    native: Option<NativeMessage>,
}

impl CheckAnswer {
    fn said_something(self) -> Result<(), ModelTrouble> {
        match self.text.trim().is_empty() && self.calls.is_empty() {
            true => Err(ModelTrouble::fails("the model ended without an answer")),
            false => Ok(()),
        }
    }
}

/// One answer. A failure that may pass is tried again.
async fn answer(assistant: &dyn Assistant, request: ModelRequest) -> Result<CheckAnswer, ModelTrouble> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut answer = CheckAnswer::default();
        let mut events = assistant.respond(request.clone());
        let failed = loop {
            match events.next().await {
                Some(ModelEvent::End(StopReason::Refused)) => {
                    return Err(ModelTrouble::fails("the model declined to answer"));
                }
                Some(ModelEvent::End(StopReason::Length))
                    if answer.text.trim().is_empty() && answer.calls.is_empty() =>
                {
                    return Err(ModelTrouble::fails(
                        "the model reached its limit of output tokens before it answered; raise --max-output-tokens",
                    ));
                }
                Some(ModelEvent::End(_)) => return Ok(answer),
                Some(ModelEvent::TextDelta(text)) => answer.text.push_str(&text),
                Some(ModelEvent::ToolCall(call)) => answer.calls.push(call),
                Some(ModelEvent::Native(message)) => answer.native = Some(message),
                Some(ModelEvent::Error(error)) => break Some(error),
                Some(_) => {}
                None => break None,
            }
        };
        match failed {
            Some(error)
                if error.retryable
                    && attempts < MODEL_ATTEMPTS
                    && error.retry_after.is_none_or(|asked| asked < MAX_PAUSE) =>
            {
                tokio::time::sleep(error.retry_after.unwrap_or(MODEL_PAUSE)).await;
            }
            Some(error) => return Err(ModelTrouble::of(&error)),
            None if attempts < MODEL_ATTEMPTS => tokio::time::sleep(MODEL_PAUSE).await,
            None => return Err(ModelTrouble::fails("the model's answer broke off before its end")),
        }
    }
}
