//! The management requests of a device about its own applications, keys, services and runs.

mod applications;
mod callbacks;
mod deliveries;
mod export;
mod listeners;
mod lists;
mod orders;
mod overview;
mod quotas;
mod services;
mod trial_runs;
mod webhooks;

use std::time::Duration;

use deskgate_protocol::management::{
    Access, Actor, CreateKey, CreatedKey, KeyRecord, ListKeys, ManagementError, ManagementErrorCode, RevokeKey,
    RollKey, RunDetail, Scope, SetAccess, ShowRun,
};
use deskgate_protocol::run::RunEvent;
use deskgate_protocol::secret::ApplicationKey;
use deskgate_protocol::service::check_name;
use deskgate_protocol::{DeviceId, KeyId};

pub use callbacks::CallbackContext;

use quotas::quota_reached;

use super::admission::AdmissionService;
use super::runs::visible_run;
use crate::encryption::DataCipher;
use crate::networks::Network;
use crate::notify::Topic;
use crate::store::activity::Owner;
use crate::store::applications::{NewKey, NewSecret};
use crate::store::{self, Store};

/// Answers one device. All that it returns or changes belongs to the device.
#[derive(Clone)]
pub struct Desktop {
    store: Store,
    device_id: DeviceId,
    by: Actor,
    admission: AdmissionService,
    cipher: DataCipher,
    public_url: String,
    retention: Duration,
    callbacks: CallbackContext,
}

type DesktopResult<T> = Result<T, ManagementError>;

/// Services that a key can be limited to by name.
const MAX_KEY_SERVICES: usize = 256;
/// Ranges of addresses that a key can be limited to.
const MAX_KEY_RANGES: usize = 64;
const MAX_EVENTS: i64 = 1000;
const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// Thirty days.
const MAX_OVERLAP_S: u32 = 30 * 24 * 3600;
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Desktop {
    /// Answers `device_id`; `public_url` is the address that backends use, without `/api/v1`; `retention` is how long
    /// ended runs are kept; the owner's own runs pass `admission`; `seal` encrypts secrets of webhooks; `callbacks` is
    /// the gateway's part in callbacks.
    pub fn new(
        store: Store,
        device_id: DeviceId,
        admission: AdmissionService,
        cipher: DataCipher,
        public_url: String,
        retention: Duration,
        callbacks: CallbackContext,
    ) -> Self {
        Self { store, device_id, by: Actor::Agent, admission, cipher, public_url, retention, callbacks }
    }

    /// The same for another actor, who is recorded with each change.
    pub fn asked_by(self, by: impl Into<Actor>) -> Self {
        Self { by: by.into(), ..self }
    }

    fn owner(&self) -> Owner {
        Owner { device_id: self.device_id, by: self.by }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// `Invalid`: the name, the fixed subject or a range of addresses is not usable, there is no scope, or there are too
    /// many services or ranges. `NotFound`:
    /// the device has no such active application, or a service is not one that the application published.
    /// `QuotaReached`: the application has the most keys it may. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn create_key(&self, request: CreateKey) -> DesktopResult<CreatedKey> {
        check_name(&request.name).map_err(invalid)?;
        if request.scopes.is_empty() {
            return Err(invalid("a key needs at least one scope".to_owned()));
        }
        if let Some(subject) = &request.fixed_subject
            && !super::access::is_subject(subject)
        {
            return Err(invalid("a fixed subject has 1 to 255 visible ASCII characters".to_owned()));
        }
        if request.endpoints.len() > MAX_KEY_SERVICES || request.allowed_cidrs.len() > MAX_KEY_RANGES {
            let text =
                format!("a key names at most {MAX_KEY_SERVICES} services and {MAX_KEY_RANGES} ranges of addresses");
            return Err(invalid(text));
        }
        if let Some(wrong) = request.allowed_cidrs.iter().find(|range| range.parse::<Network>().is_err()) {
            return Err(invalid(format!("{wrong:?} is no range of addresses such as 10.0.0.0/8")));
        }
        let own = self.store.published_by(self.device_id).await?;
        let foreign = |id| !own.iter().any(|endpoint| endpoint.endpoint_id == id && endpoint.app_id == request.app_id);
        if let Some(id) = request.endpoints.iter().copied().find(|id| foreign(*id)) {
            return Err(not_found(format!("{id} is no published service of this application")));
        }
        let secret = ApplicationKey::generate(KeyId::new());
        let key = NewKey {
            endpoints: &request.endpoints,
            fixed_subject: request.fixed_subject.as_deref(),
            expires_at: request.expires_at,
            allowed_cidrs: &request.allowed_cidrs,
            ..new_key(&secret, &request.name, &request.scopes)
        };
        let key = self.store.create_key(self.owner(), request.app_id, &key).await?.map_err(quota_reached)?;
        let key = key.ok_or_else(|| not_found(format!("there is no active application {}", request.app_id)))?;
        Ok(CreatedKey { key, text: secret.reveal().to_owned() })
    }

    /// An application's keys, oldest first.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn keys(&self, request: ListKeys) -> DesktopResult<Vec<KeyRecord>> {
        let keys = self.store.keys(self.device_id, request.app_id).await?;
        // Every application was created with a key.
        if keys.is_empty() { Err(not_found(format!("there is no application {}", request.app_id))) } else { Ok(keys) }
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// `NotFound`: the device has no such key. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn revoke_key(&self, request: RevokeKey) -> DesktopResult<KeyRecord> {
        let key = self.store.revoke_key(self.owner(), request.key_id).await?;
        key.ok_or_else(|| not_found(format!("there is no key {}", request.key_id)))
    }

    /// Replaces a key.
    ///
    /// # Errors
    /// `Invalid`: the overlap is longer than 30 days. `NotFound`: the device has no such live key. `QuotaReached`: the
    /// application has the most keys it may, and the old one would live on. `Unavailable`: the database does not answer,
    /// or refuses the statement.
    pub async fn roll_key(&self, request: RollKey) -> DesktopResult<CreatedKey> {
        if request.overlap_s > MAX_OVERLAP_S {
            return Err(invalid("a rolled key lives on for 30 days at most".to_owned()));
        }
        let secret = ApplicationKey::generate(KeyId::new());
        let new = NewSecret { key_id: secret.id(), last4: secret.last4(), digest: secret.digest() };
        let key = self.store.roll_key(self.owner(), request.key_id, request.overlap_s, &new).await?;
        let key = key.map_err(quota_reached)?;
        let key = key.ok_or_else(|| not_found(format!("there is no active key {}", request.key_id)))?;
        tracing::info!(old = %request.key_id, new = %key.key_id, device_id = %self.device_id, "key rolled");
        Ok(CreatedKey { key, text: secret.reveal().to_owned() })
    }

    /// Enables or pauses access.
    ///
    /// # Errors
    /// `NotFound`: there is no such device. `Unavailable`: the database does not answer, or refuses the statement. The
    /// change may be made all the same.
    pub async fn set_access(&self, request: SetAccess) -> DesktopResult<Access> {
        self.store.set_access(self.owner(), request.enabled).await?;
        tracing::info!(device_id = %self.device_id, enabled = request.enabled, "access changed");
        self.access().await
    }

    /// Whether access is enabled.
    ///
    /// # Errors
    /// `NotFound`: there is no such device. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn access(&self) -> DesktopResult<Access> {
        let device = self.store.device(self.device_id).await?;
        let device = device.ok_or_else(|| not_found("this device is not paired any more".to_owned()))?;
        Ok(Access {
            enabled: device.access_enabled,
            changed_at: device.access_changed_at,
            address: format!("{}/api/v1", self.public_url),
        })
    }

    /// One run with its events. With `wait_s`, waits until there is an event to show.
    ///
    /// # Errors
    /// `NotFound`: the device has no such run. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn run(&self, request: ShowRun) -> DesktopResult<RunDetail> {
        let mut watcher = self.store.notifier().watch(Topic::Run(request.run_id));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(request.wait_s.into()).min(MAX_WAIT);
        loop {
            let stored = self.store.run_of_device(self.device_id, request.run_id).await?;
            let (stored, subject) = stored.ok_or_else(|| not_found(format!("there is no run {}", request.run_id)))?;
            let run = visible_run(stored);
            let mut events = self.store.events_after(request.run_id, request.after, MAX_EVENTS).await?;
            shorten(&mut events);
            let settled = !events.is_empty() || run.state.successors().is_empty();
            if settled || tokio::time::Instant::now() >= deadline {
                return Ok(RunDetail { run, events, subject: Some(subject) });
            }
            let look_again = (tokio::time::Instant::now() + Duration::from_secs(1)).min(deadline);
            let _ = tokio::time::timeout_at(look_again, watcher.changed()).await;
        }
    }
}

/// Keeps as many events as one reply holds, and at least one.
fn shorten(events: &mut Vec<RunEvent>) {
    let mut bytes = 0;
    let mut fits = |event: &RunEvent| {
        bytes += event.data.to_string().len();
        bytes <= MAX_EVENT_BYTES
    };
    let fitting = events.iter().map_while(|event| Some(event).filter(|event| fits(event))).count();
    events.truncate(fitting.max(1));
}

fn new_key<'a>(secret: &'a ApplicationKey, name: &'a str, scopes: &'a [Scope]) -> NewKey<'a> {
    NewKey {
        key_id: secret.id(),
        name,
        last4: secret.last4(),
        digest: secret.digest(),
        scopes,
        endpoints: &[],
        fixed_subject: None,
        expires_at: None,
        allowed_cidrs: &[],
    }
}

impl From<store::Error> for ManagementError {
    fn from(error: store::Error) -> Self {
        tracing::warn!(%error, "a management request failed");
        Self {
            code: ManagementErrorCode::Unavailable,
            message: "the gateway cannot use its database at the moment; nothing was changed, try again".to_owned(),
        }
    }
}

fn invalid(message: String) -> ManagementError {
    ManagementError { code: ManagementErrorCode::Invalid, message }
}

fn not_found(message: String) -> ManagementError {
    ManagementError { code: ManagementErrorCode::NotFound, message }
}

fn conflict(message: String) -> ManagementError {
    ManagementError { code: ManagementErrorCode::Conflict, message }
}
