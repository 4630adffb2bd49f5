//! The life of a device's applications: created, disabled, completed, removed.

use deskgate_protocol::management::{
    Application, ApplicationState, CompleteDisabling, CreateApplication, CreatedApplication, CreatedKey,
    DisableApplication, DisablingPreview, OutstandingWork, PreviewDisabling, RemoveApplication, RemovedApplication,
    Scope, ShowApplication,
};
use deskgate_protocol::secret::ApplicationKey;
use deskgate_protocol::service::check_name;
use deskgate_protocol::{ApplicationId, KeyId};

use super::{Desktop, DesktopResult, conflict, invalid, new_key, not_found, quota_reached};

impl Desktop {
    /// Creates an application with a key that has every scope.
    ///
    /// # Errors
    /// `Invalid`: the name is not usable. `Conflict`: the device has an application of this name. `Unavailable`: the
    /// database does not answer, or refuses the statement.
    pub async fn create_application(&self, request: CreateApplication) -> DesktopResult<CreatedApplication> {
        check_name(&request.name).map_err(invalid)?;
        let secret = ApplicationKey::generate(KeyId::new());
        let key = new_key(&secret, "first key", &Scope::ALL);
        let created = self.store.create_application(self.owner(), ApplicationId::new(), &request.name, &key).await?;
        let (application, key) = created.map_err(quota_reached)?.ok_or_else(|| {
            conflict(format!("there is already an application named {:?}; choose another name", request.name))
        })?;
        tracing::info!(app_id = %application.app_id, device_id = %self.device_id, "application created");
        Ok(CreatedApplication { application, key: CreatedKey { key, text: secret.reveal().to_owned() } })
    }

    /// The applications that were not removed, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn applications(&self) -> DesktopResult<Vec<Application>> {
        Ok(self.store.applications(self.device_id).await?)
    }

    /// One application.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn application(&self, request: ShowApplication) -> DesktopResult<Application> {
        self.store.application(self.device_id, request.app_id).await?.ok_or_else(|| unknown(request.app_id))
    }

    /// What disabling would end.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn preview_disabling(&self, request: PreviewDisabling) -> DesktopResult<DisablingPreview> {
        self.store.preview_disabling(self.device_id, request.app_id).await?.ok_or_else(|| unknown(request.app_id))
    }

    /// Ends an application's keys, services and runs for good.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn disable_application(&self, request: DisableApplication) -> DesktopResult<Application> {
        let disabled = self.store.disable_application(self.owner(), request.app_id, self.retention).await?;
        let application = disabled.ok_or_else(|| unknown(request.app_id))?;
        tracing::info!(app_id = %request.app_id, state = %application.state, "application disabled");
        Ok(application)
    }

    /// Completes disabling, if nothing is outstanding.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Conflict`: the application is active, or work of it is
    /// outstanding. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn complete_disabling(&self, request: CompleteDisabling) -> DesktopResult<Application> {
        let completed = self.store.complete_disabling(self.owner(), request.app_id, self.retention).await?;
        let application = completed.ok_or_else(|| unknown(request.app_id))?;
        match (application.state, application.outstanding) {
            (ApplicationState::Active, _) => {
                Err(conflict(format!("{:?} is active; disable it first", application.name)))
            }
            (ApplicationState::Disabling, outstanding) => {
                let waits = waits_for(&outstanding.unwrap_or_default());
                Err(conflict(format!("disabling {:?} waits for {waits}", application.name)))
            }
            (ApplicationState::Disabled | ApplicationState::Removed, _) => Ok(application),
        }
    }

    /// Takes a disabled application off the list.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Conflict`: its disabling is not complete. `Unavailable`: the
    /// database does not answer, or refuses the statement.
    pub async fn remove_application(&self, request: RemoveApplication) -> DesktopResult<Application> {
        let removed = self.store.remove_application(self.owner(), request.app_id).await?;
        let application = removed.ok_or_else(|| unknown(request.app_id))?;
        if application.state == ApplicationState::Removed {
            tracing::info!(app_id = %request.app_id, "application removed");
            return Ok(application);
        }
        Err(conflict(format!(
            "{:?} is {}; only what is disabled can be removed, and an application is once its disabling is complete",
            application.name, application.state
        )))
    }

    /// The removed applications with records that can still be read, the last removed first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn removed(&self) -> DesktopResult<Vec<RemovedApplication>> {
        Ok(self.store.removed_applications(self.device_id, self.retention).await?)
    }
}

/// What is outstanding, in words.
fn waits_for(outstanding: &OutstandingWork) -> String {
    let OutstandingWork { runs_to_stop, runs_to_reconcile, resets } = *outstanding;
    let parts = [
        (runs_to_stop, "to stop (the desktop must be connected)", "run"),
        (
            runs_to_reconcile,
            "of unknown outcome (the desktop ends it when it is connected, or its user does: deskgate run reconcile)",
            "run",
        ),
        (resets, "to be acknowledged by the desktop", "reset"),
    ];
    let parts = parts.iter().filter(|(count, ..)| *count > 0);
    let words: Vec<_> = parts
        .map(|(count, rest, noun)| format!("{count} {noun}{} {rest}", if *count == 1 { "" } else { "s" }))
        .collect();
    if words.is_empty() { "requests that were being accepted; try again".to_owned() } else { words.join(", ") }
}

fn unknown(app_id: ApplicationId) -> super::ManagementError {
    not_found(format!("there is no application {app_id}"))
}
