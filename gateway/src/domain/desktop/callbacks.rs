//! Callbacks of a desktop user's applications, and the hosts they may go to.

use std::collections::BTreeSet;
use std::time::Duration;

use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::management::{
    Allowlist, Callback, CallbackWithSecret, ManagementError, ManagementErrorCode, RollCallbackSecret, SetAllowlist,
    SetCallback, ShowCallback,
};
use deskgate_protocol::{ApplicationId, DestinationId};

use super::{Desktop, DesktopResult, MAX_OVERLAP_S, conflict, invalid, not_found};
use crate::domain::deliveries::PayloadBuilder;
use crate::domain::destinations::{Destination, HostName};
use crate::signing::SigningSecret;
use crate::store::destinations::{CallbackChange, NewCallback};

/// The gateway's part in callbacks.
#[derive(Clone)]
pub struct CallbackContext {
    /// Encrypts secrets, and builds the requests to post.
    pub scribe: PayloadBuilder,
    /// Whether the desktop may change the allowed hosts; otherwise the administrator.
    pub allowlist_is_yours: bool,
}

/// The most hosts on the allowlist.
const MAX_ALLOWED_HOSTS: usize = 1000;

impl Desktop {
    /// An application's callback, if it has one.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn callback(&self, request: ShowCallback) -> DesktopResult<Option<Callback>> {
        self.check_known(request.app_id).await?;
        Ok(self.store.callback(self.device_id, request.app_id).await?)
    }

    /// Every callback, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn callbacks(&self) -> DesktopResult<Vec<Callback>> {
        Ok(self.store.callbacks(self.device_id).await?)
    }

    /// Sets a callback, or changes it. A new one comes with its secret.
    ///
    /// # Errors
    /// `Invalid`: the address cannot be used, or the events cannot be chosen. `NotFound`: the device has no such
    /// application. `Conflict`: the application was disabled, it has no callback and no address is given, or it got a
    /// callback at the same moment. `Unavailable`: the database does not answer, or refuses the statement. The callback
    /// may be set all the same; the secret of a new one is lost then.
    pub async fn set_callback(&self, request: SetCallback) -> DesktopResult<CallbackWithSecret> {
        let SetCallback { app_id, url, types, enabled, keep_answers, format } = request;
        let address =
            url.as_deref().map(Destination::parse).transpose().map_err(|wrong| invalid(format!("url: {wrong}")))?;
        let types = types.as_deref().map(chosen).transpose()?;
        let change = CallbackChange {
            address: address.as_ref().map(|to| (to.as_str(), to.host().as_str())),
            types: types.as_deref(),
            enabled,
            keep_answers,
            format,
        };
        if self.store.change_callback(self.owner(), app_id, &change).await? {
            return self.with_secret(app_id, None).await;
        }
        self.check_active(app_id).await?;
        if change.address.is_none() {
            return Err(conflict("this application has no callback yet; give it an address first".to_owned()));
        }
        let (secret, destination_id) = (SigningSecret::generate(), DestinationId::new());
        let new = NewCallback { destination_id, sealed_secret: &self.callbacks.scribe.cipher(&secret, destination_id) };
        if self.store.create_callback(self.owner(), app_id, &new, &change).await? {
            tracing::info!(%app_id, "callback set");
            return self.with_secret(app_id, Some(&secret)).await;
        }
        Err(conflict("the callback was changed at the same moment; look at it and try again".to_owned()))
    }

    /// Gives a callback a new secret; the old one stays valid beside it for a while.
    ///
    /// # Errors
    /// `Invalid`: the overlap is longer than 30 days. `NotFound`: the device has no active application with a callback
    /// by this identifier. `Unavailable`: the database does not answer, or refuses the statement. The secret may be
    /// rolled all the same; the new one is lost then.
    pub async fn roll_callback_secret(&self, request: RollCallbackSecret) -> DesktopResult<CallbackWithSecret> {
        let RollCallbackSecret { app_id, overlap_s } = request;
        if overlap_s > MAX_OVERLAP_S {
            return Err(invalid("a rolled secret signs for 30 days at most".to_owned()));
        }
        let callback_id = self.store.callback_id(self.device_id, app_id).await?;
        let callback_id = callback_id.ok_or_else(|| no_callback(app_id))?;
        let (secret, overlap) = (SigningSecret::generate(), Duration::from_secs(overlap_s.into()));
        let sealed = self.callbacks.scribe.cipher(&secret, callback_id);
        self.store.roll_callback_secret(self.owner(), app_id, callback_id, &sealed, overlap).await?;
        tracing::info!(%app_id, "callback secret rolled");
        self.with_secret(app_id, Some(&secret)).await
    }

    async fn with_secret(
        &self,
        app_id: ApplicationId,
        secret: Option<&SigningSecret>,
    ) -> DesktopResult<CallbackWithSecret> {
        let callback = self.store.callback(self.device_id, app_id).await?.ok_or_else(|| no_callback(app_id))?;
        Ok(CallbackWithSecret { callback, secret: secret.map(|secret| secret.reveal().to_string()) })
    }

    /// The hosts that callbacks may go to.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn allowlist(&self) -> DesktopResult<Allowlist> {
        Ok(Allowlist { hosts: self.store.allowed_hosts().await?, is_yours: self.callbacks.allowlist_is_yours })
    }

    /// Replaces them, if the desktop may change them.
    ///
    /// # Errors
    /// `AdministratorOnly`: the desktop may not change the hosts. `Invalid`: a text is not a host name, or there are
    /// more than 1000. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn set_allowlist(&self, request: SetAllowlist) -> DesktopResult<Allowlist> {
        if !self.callbacks.allowlist_is_yours {
            let message = "the hosts that callbacks may go to are set by this gateway's administrator, on the server: \
                deskgate-gateway admin allowlist add HOST";
            return Err(ManagementError { code: ManagementErrorCode::AdministratorOnly, message: message.to_owned() });
        }
        let hosts = host_names(&request.hosts).map_err(invalid)?;
        let hosts: Vec<_> = hosts.iter().map(HostName::as_str).collect();
        self.store.set_allowed_hosts(Some(self.owner()), &hosts).await?;
        tracing::info!(hosts = hosts.len(), "the hosts that callbacks may go to were changed");
        self.allowlist().await
    }

    /// Refuses an application that is unknown or another device's.
    pub(super) async fn check_known(&self, app_id: ApplicationId) -> DesktopResult<()> {
        match self.store.application(self.device_id, app_id).await? {
            Some(_) => Ok(()),
            None => Err(not_found(format!("there is no application {app_id}"))),
        }
    }

    /// Refuses an application that is unknown, another device's or inactive.
    pub(super) async fn check_active(&self, app_id: ApplicationId) -> DesktopResult<()> {
        match self.store.application(self.device_id, app_id).await? {
            Some(application) if application.disabled_at.is_none() => Ok(()),
            Some(_) => Err(conflict("the application was disabled; nothing is sent for it any more".to_owned())),
            None => Err(not_found(format!("there is no application {app_id}"))),
        }
    }
}

/// Every host once, sorted; otherwise the first text that is not a host name, and why.
fn host_names(texts: &[String]) -> Result<BTreeSet<HostName>, String> {
    if texts.len() > MAX_ALLOWED_HOSTS {
        return Err(format!("at most {MAX_ALLOWED_HOSTS} hosts can be allowed"));
    }
    let parse = |text: &String| HostName::parse(text).map_err(|wrong| format!("{text:?}: {wrong}"));
    texts.iter().map(parse).collect()
}

/// The chosen events, each once.
pub(super) fn chosen(types: &[CallbackEvent]) -> DesktopResult<Vec<CallbackEvent>> {
    let all = CallbackEvent::ALL.iter().copied();
    let chosen: Vec<_> = all.filter(|kind| kind.can_be_chosen() && types.contains(kind)).collect();
    if chosen.is_empty() || types.iter().any(|kind| !kind.can_be_chosen()) {
        return Err(invalid(
            "choose at least one event; webhook.test is sent when you test and cannot be chosen".to_owned(),
        ));
    }
    Ok(chosen)
}

pub(super) fn no_callback(app_id: ApplicationId) -> ManagementError {
    not_found(format!("there is no active application {app_id} with a callback"))
}
