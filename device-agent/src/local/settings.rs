//! Requests about the agent's own settings: name, slots, pages, and starting at login.

use std::path::PathBuf;

use deskgate_definition::KeyPlace;
use deskgate_protocol::VERSION;
use deskgate_protocol::secret::SecretKind;
use deskgate_store::RetentionSettings;
use serde::{Deserialize, Serialize};

use super::error_reply::{failed, invalid, refused};
use super::handler::RequestHandler;
use super::keys::blocking;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::autostart::{self, Autostart, AutostartError, AutostartState};
use crate::config::Home;
use crate::settings::{KeepAwake, Theme};

/// The upper limit of runs at once. Each holds a connection to a model, and may run commands.
const MAX_SLOTS: u32 = 64;
/// Lower ports need rights that the agent does not have.
const MIN_PORT: u16 = 1024;

/// Gets the settings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetSettings {}

impl TypedRequest for GetSettings {
    type Response = SettingsView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<SettingsView, ErrorReply> {
        handler.settings().await
    }
}

/// Changes settings; absent fields stay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChangeSettings {
    /// The device's name for people.
    pub device_name: Option<String>,
    /// How many runs may execute at once, from the next start on.
    pub slots: Option<u32>,
    /// The theme of the pages.
    pub theme: Option<Theme>,
    /// The pages' port, from the next start on.
    pub pages_port: Option<u16>,
    /// When runs keep the computer awake; takes effect at once.
    #[serde(default)]
    pub keep_awake: Option<KeepAwake>,
    /// The place of providers' and servers' keys; moves them.
    #[serde(default)]
    pub key_place: Option<KeyPlace>,
}

impl TypedRequest for ChangeSettings {
    type Response = SettingsView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<SettingsView, ErrorReply> {
        handler.change_settings(self).await
    }
}

/// The settings, and the paths of files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettingsView {
    /// The device's name for people.
    pub device_name: String,
    /// How many runs may execute at once.
    pub slots: SettingValue<u32>,
    /// The theme of the pages.
    pub theme: Theme,
    /// The pages' port.
    pub pages_port: SettingValue<u16>,
    /// When runs keep the computer awake.
    pub keep_awake: KeepAwake,
    /// Where each kind of secret is kept, without the secret itself.
    pub secrets: Vec<SecretLocation>,
    /// Where new keys of providers and servers are kept. For a key in the keyring, the file has only the entry's name.
    pub key_place: KeyPlace,
    /// For how many days data of ended work is kept.
    pub keep: RetentionSettings,
    /// The agent's folder.
    pub home: PathBuf,
    /// The agent's version.
    pub version: String,
}

/// A setting that takes effect at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingValue<T> {
    /// The chosen value.
    pub chosen: T,
    /// The value in force; absent while it is unknown.
    pub in_force: Option<T>,
}

impl<T: PartialEq> SettingValue<T> {
    /// Whether the agent must be restarted for it.
    pub fn waits(&self) -> bool {
        self.in_force.as_ref().is_some_and(|now| *now != self.chosen)
    }
}

/// Where a secret is kept: a file of mode 0600, or a folder of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretLocation {
    /// The kind of secret.
    pub what: String,
    /// The file or folder.
    pub path: PathBuf,
    /// Whether a secret is saved.
    pub saved: bool,
    /// How many of the keys are in the desktop's keyring.
    pub in_keyring: usize,
}

/// Gets whether the agent starts at login.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetAutostart {}

impl TypedRequest for GetAutostart {
    type Response = autostart::AutostartState;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<autostart::AutostartState, ErrorReply> {
        handler.autostart(None).await
    }
}

/// Enables or disables starting at login.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetAutostart {
    /// Whether to enable it.
    pub enabled: bool,
}

impl TypedRequest for SetAutostart {
    type Response = autostart::AutostartState;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<autostart::AutostartState, ErrorReply> {
        handler.autostart(Some(self.enabled)).await
    }
}

impl ChangeSettings {
    /// Checks the values; the error has one sentence for each wrong field.
    fn check(&self) -> Result<(), ErrorReply> {
        let name = self.device_name.as_deref().and_then(|name| match SecretKind::of(name) {
            Some(kind) => Some(format!("device-name: this is {kind}, which does not belong here; it was not kept")),
            None => deskgate_protocol::service::check_name(name).err().map(|why| format!("device-name: {why}")),
        });
        let slots = self.slots.filter(|slots| !(1..=MAX_SLOTS).contains(slots));
        let slots = slots.map(|slots| format!("slots: choose from 1 to {MAX_SLOTS} runs at once, not {slots}"));
        let port = self.pages_port.filter(|port| *port < MIN_PORT);
        let port = port.map(|port| format!("pages-port: choose a port from {MIN_PORT} to 65535, not {port}"));
        let problems: Vec<_> = [name, slots, port].into_iter().flatten().collect();
        if problems.is_empty() { Ok(()) } else { Err(invalid(problems.join("\n"))) }
    }
}

impl RequestHandler {
    pub(super) async fn settings(&self) -> Result<SettingsView, ErrorReply> {
        let (saved, handler) = (self.store.settings(), self.clone());
        let slots = self.active().ok().map(|active| active.dispatcher.status().slots);
        let port = self.launch.address().map(|address| address.port());
        Ok(SettingsView {
            device_name: self.device_name().await?,
            slots: SettingValue {
                chosen: saved.slots().await?.unwrap_or(crate::dispatcher::DispatcherConfig::default().slots),
                in_force: slots,
            },
            theme: saved.get::<Theme>().await?,
            // The port that was free first counts as chosen.
            pages_port: SettingValue { chosen: saved.page_port().await?.or(port).unwrap_or_default(), in_force: port },
            keep_awake: saved.get::<KeepAwake>().await?,
            secrets: blocking(move || handler.secret_places()).await?,
            key_place: saved.get::<KeyPlace>().await?,
            keep: saved.get::<RetentionSettings>().await?,
            home: self.own_folder.clone(),
            version: VERSION.to_owned(),
        })
    }

    fn secret_places(&self) -> Vec<SecretLocation> {
        let home = Home::at(self.own_folder.clone());
        let keys = |what: &str, path: PathBuf, in_keyring: usize| SecretLocation {
            what: what.to_owned(),
            saved: path.exists(),
            path,
            in_keyring,
        };
        let place = |what: &str, path: PathBuf| keys(what, path, 0);
        vec![
            place("This device's key", home.key()),
            place("Control token of the remote gateway", self.token_file.clone()),
            place("Control token that was entered and is not active", self.token_draft()),
            keys("Keys of model providers", home.providers(), self.providers.entries().len()),
            keys("Keys of MCP servers", home.mcp_servers(), self.mcp_servers.connections.entries().len()),
            keys("Sign-ins at hosted gateways", home.accounts(), self.token_manager.entries().len()),
        ]
    }

    /// Changes all of it, or nothing.
    pub(super) async fn change_settings(&self, ask: ChangeSettings) -> Result<SettingsView, ErrorReply> {
        ask.check()?;
        if let Some(place) = ask.key_place {
            self.move_keys(place).await?;
        }
        let saved = self.store.settings();
        if let Some(name) = &ask.device_name {
            saved.set_device_name(name).await?;
        }
        if let Some(slots) = ask.slots {
            saved.set_slots(slots).await?;
        }
        if let Some(theme) = ask.theme {
            saved.set(&theme).await?;
        }
        if let Some(preference) = ask.keep_awake {
            saved.set(&preference).await?;
            self.keep_awake.send_replace(preference);
        }
        if let Some(port) = ask.pages_port {
            saved.set_page_port(port).await?;
        }
        self.settings().await
    }

    /// Changes whether the agent starts at login, if requested, and returns the state.
    pub(super) async fn autostart(&self, enabled: Option<bool>) -> Result<AutostartState, ErrorReply> {
        let autostart = Autostart::of(&self.own_folder).map_err(|error| refused(error.to_string()))?;
        // systemd is another program, and may be slow.
        let worked = tokio::task::spawn_blocking(move || match enabled {
            None => Ok(autostart.state()),
            Some(true) => autostart.enable(),
            Some(false) => autostart.disable(),
        });
        let worked = worked.await.map_err(|_| failed("the agent failed while it asked systemd".to_owned()))?;
        worked.map_err(|error| match error {
            AutostartError::Io { .. } => failed(error.to_string()),
            error => refused(error.to_string()),
        })
    }
}
