//! The scripted assistant: no language model, no provider, the same answer every time.
//!
//! Two models:
//! - `folder` reads the working directory with the real tools and answers from their results.
//! - `script:PATH` plays a file; see [`Script`] for its format.
//!
//! It uses no tokens and so reports none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::script::ScriptAction;
use super::{Assistant, AssistantError, ModelEvent, ModelRequest, Script, folder};

/// The scripted assistant, opened for one run.
#[derive(Debug)]
pub struct ScriptedAssistant(ScriptedModel);

#[derive(Debug)]
enum ScriptedModel {
    Folder,
    Script { script: Script, played_errors: Arc<[AtomicU32]> },
}

impl ScriptedAssistant {
    /// Opens a model by its name in a definition: `folder`, or `script:` and a path. The script is the owner's
    /// configuration: it may be anywhere and is read now, not through the tools.
    ///
    /// # Errors
    /// [`AssistantError::UnknownModel`]: the name is neither of the two. [`AssistantError::Script`]: the script cannot
    /// be read or is not valid.
    pub fn open(model: &str) -> Result<Self, AssistantError> {
        match model.strip_prefix("script:") {
            Some(path) => Ok(Self::play(Script::load(Path::new(path))?)),
            None if model == "folder" => Ok(Self(ScriptedModel::Folder)),
            None => Err(AssistantError::UnknownModel(model.chars().take(100).collect())),
        }
    }

    /// Plays a script.
    pub fn play(script: Script) -> Self {
        let played_errors = (0..script.steps()).map(|_| AtomicU32::new(0)).collect();
        Self(ScriptedModel::Script { script, played_errors })
    }
}

impl Assistant for ScriptedAssistant {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        match &self.0 {
            ScriptedModel::Folder => stream::iter(folder::respond(&request.messages, &request.tools)).boxed(),
            ScriptedModel::Script { script, played_errors } => {
                let errors = Arc::clone(played_errors);
                let count = move |step: usize| errors[step].fetch_add(1, Ordering::Relaxed);
                perform(script.turn(&request.messages, count))
            }
        }
    }
}

/// Performs the actions in order, with the script's waits.
fn perform(actions: Vec<ScriptAction>) -> BoxStream<'static, ModelEvent> {
    stream::iter(actions)
        .filter_map(|action| async {
            match action {
                ScriptAction::Wait(milliseconds) => {
                    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                    None
                }
                ScriptAction::Say(event) => Some(event),
            }
        })
        .boxed()
}
