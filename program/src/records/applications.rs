//! Applications: what disabling one ends, what it waits for, and waiting until it is complete. The desktop user's and the
//! administrator's commands share this, and query in two ways.

use std::time::Duration;

use deskgate_protocol::management::{Application, ApplicationState, DisablingPreview};

use super::counted;
use crate::duration;
use crate::exit::{Exit, Failure};

/// How one of the two programs names its commands in a next step.
#[derive(Clone, Copy, Debug)]
pub struct Commands {
    /// The commands about applications, such as `deskgate app`.
    pub app: &'static str,
    /// The command that lists runs.
    pub runs: &'static str,
}

/// An application: its name and state, and what comes next.
pub fn text(app: &Application, commands: Commands) -> String {
    let id = app.app_id;
    let Commands { app: command, runs } = commands;
    let rest = match (app.state, app.outstanding) {
        (ApplicationState::Active, _) => format!("{} active", counted(app.live_keys, "key")),
        (ApplicationState::Disabling, Some(left)) if !left.is_none() => format!(
            "its keys are refused; waits for {} to stop, {} of unknown outcome, {}; its device must be connected\n\
             Then: {command} complete-disabling {id}",
            counted(left.runs_to_stop, "run"),
            counted(left.runs_to_reconcile, "run"),
            counted(left.resets, "reset")
        ),
        (ApplicationState::Disabling, _) => {
            format!("its keys are refused; nothing is left: {command} complete-disabling {id}")
        }
        (ApplicationState::Disabled, _) => {
            format!("nothing of it works any more; {command} remove {id} takes it off the list")
        }
        (ApplicationState::Removed, _) => format!("off the list; what is kept of it: {runs} --app {id}"),
    };
    format!("{} ({id}): {}\n{rest}", app.name, app.state)
}

/// What disabling an application ends, in numbers.
pub fn would_end(preview: &DisablingPreview) -> String {
    format!(
        "  {}, revoked for good; keys cannot be restored\n  {}, closed to callers\n  {}, cancelled\n  \
         {}, stopped; what was changed stays changed\n  {}, closed to new messages",
        counted(preview.live_keys, "key"),
        counted(preview.services, "service"),
        counted(preview.runs_queued, "queued run"),
        counted(preview.runs_in_progress, "started run"),
        counted(preview.conversations, "conversation"),
    )
}

/// The application once its disabling is complete, or the time is over; without a time to wait for, as it is now.
/// `show` queries it, `complete` completes the disabling when nothing is outstanding.
///
/// # Errors
/// Those of the queries.
pub async fn wait_until_disabled(
    application: Application,
    wait: Option<Duration>,
    show: impl AsyncFn() -> Result<Application, Failure>,
    complete: impl AsyncFn() -> Result<Application, Failure>,
) -> Result<Application, Failure> {
    let Some(wait) = wait else { return Ok(application) };
    duration::until(wait, application, Application::is_fully_disabled, async || {
        let application = show().await?;
        match application.outstanding {
            Some(left) if left.is_none() => complete().await,
            _ => Ok(application),
        }
    })
    .await
}

/// The result of the command.
///
/// # Errors
/// The caller waited, and the disabling is not complete yet.
pub fn verdict(application: &Application, wait: Option<Duration>) -> Result<(), Failure> {
    match wait.is_some() && !application.is_fully_disabled() {
        true => Err(Failure::new(Exit::Pending, "it is not complete yet; its keys are refused already")),
        false => Ok(()),
    }
}
