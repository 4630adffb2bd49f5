//! Waiting, on a command line, until an application is disabled for good. The desktop user's and the administrator's commands
//! do the same, and ask in two ways.

use std::time::Duration;

use deskgate_protocol::management::Application;

use crate::duration;
use crate::exit::{Exit, Failure};

/// The application once its disabling is complete, or the time is over; as it is without a time to wait for. `show` asks for it
/// as it is, `complete` completes its disabling once nothing is left to wait for.
///
/// # Errors
/// Those of the questions.
pub async fn wait_until_disabled(
    application: Application,
    wait: Option<Duration>,
    show: impl AsyncFn() -> Result<Application, Failure>,
    complete: impl AsyncFn() -> Result<Application, Failure>,
) -> Result<Application, Failure> {
    let Some(wait) = wait else { return Ok(application) };
    duration::until(wait, application, Application::is_wound_up, async || {
        let application = show().await?;
        match application.outstanding {
            Some(left) if left.is_none() => complete().await,
            _ => Ok(application),
        }
    })
    .await
}

/// What the command ends with.
///
/// # Errors
/// Whoever waited, and it is not complete yet.
pub fn verdict(application: &Application, wait: Option<Duration>) -> Result<(), Failure> {
    match wait.is_some() && !application.is_wound_up() {
        true => Err(Failure::new(Exit::Pending, "it is not complete yet; its keys are refused already")),
        false => Ok(()),
    }
}
