//! Waiting, on a command line, until an application is disabled completely. The desktop user's and the administrator's
//! commands share this, and query in two ways.

use std::time::Duration;

use deskgate_protocol::management::Application;

use crate::duration;
use crate::exit::{Exit, Failure};

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
    duration::until(wait, application, Application::is_wound_up, async || {
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
    match wait.is_some() && !application.is_wound_up() {
        true => Err(Failure::new(Exit::Pending, "it is not complete yet; its keys are refused already")),
        false => Ok(()),
    }
}
