//! Small values that outlive the process, each with its own name and type.

use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, Store};
use crate::settings::Connection;

/// Reads and writes settings. Changing one never touches another.
#[derive(Clone, Debug)]
pub struct Settings {
    store: Store,
}

impl Settings {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// The name that people know this device by; `None` until one was given.
    pub async fn device_name(&self) -> Result<Option<String>, Error> {
        self.get("device_name").await
    }

    /// Names the device.
    pub async fn set_device_name(&self, name: &str) -> Result<(), Error> {
        self.set("device_name", &name).await
    }

    /// The runs that may execute at the same time; `None` until a person chose.
    pub async fn slots(&self) -> Result<Option<u32>, Error> {
        self.get("slots").await
    }

    /// Chooses how many runs may execute at the same time.
    pub async fn set_slots(&self, slots: u32) -> Result<(), Error> {
        self.set("slots", &slots).await
    }

    /// How this device reaches its gateway.
    pub async fn connection(&self) -> Result<Connection, Error> {
        Ok(self.get("connection").await?.unwrap_or_default())
    }

    /// Puts another connection in its place.
    pub async fn set_connection(&self, connection: &Connection) -> Result<(), Error> {
        self.set("connection", connection).await
    }

    /// The port that the built-in gateway took the last time.
    pub async fn builtin_port(&self) -> Result<Option<u16>, Error> {
        self.get("builtin_port").await
    }

    /// Remembers the built-in gateway's port, so that its address stays the same.
    pub async fn set_builtin_port(&self, port: u16) -> Result<(), Error> {
        self.set("builtin_port", &port).await
    }

    async fn get<T: DeserializeOwned + Send + 'static>(&self, key: &'static str) -> Result<Option<T>, Error> {
        let text: Option<String> = self
            .store
            .lazily(move |tx| {
                Ok(tx.query_row("SELECT value FROM setting WHERE key = ?1", [key], |row| row.get(0)).optional()?)
            })
            .await?;
        let read =
            |text: String| serde_json::from_str(&text).map_err(|e| Error::damaged("a setting")(format!("{key}: {e}")));
        text.map(read).transpose()
    }

    async fn set(&self, key: &'static str, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(value).expect("text and numbers are JSON");
        self.store
            .durably(move |tx| {
                tx.execute(
                    "INSERT INTO setting (key, value) VALUES (?1, ?2)
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    params![key, text],
                )?;
                Ok(())
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_setting_survives_closing_and_leaves_the_others_alone() {
        let home = tempfile::tempdir().expect("temporary folder");
        let path = home.path().join("deskgate.db");
        let store = Store::open(&path).await.expect("opens");
        assert_eq!(store.settings().device_name().await.expect("readable"), None);
        store.settings().set_device_name("Büro").await.expect("written");
        store.settings().set_slots(2).await.expect("written");
        store.settings().set_device_name("Schreibtisch").await.expect("written");
        drop(store);
        let settings = Store::open(&path).await.expect("opens again").settings();
        assert_eq!(settings.device_name().await.expect("readable").as_deref(), Some("Schreibtisch"));
        assert_eq!(settings.slots().await.expect("readable"), Some(2));
    }
}
