//! Small values that outlive the process, each with its own name and type.

use deskgate_protocol::canonical::Sha256Digest;
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, Store};
use crate::health::Ignored;
use crate::secrets::Place;
use crate::settings::{Connection, Keep, KeepAwake, Notifications, Theme};

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

    /// Changes the connection as it is at this moment, in one transaction, so that two changes at
    /// once are both kept. Returns what `change` returns.
    pub async fn update_connection<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Connection) -> R + Send + 'static,
    ) -> Result<R, Error> {
        self.store
            .durably(|tx| {
                let mut connection = read(tx, "connection")?.unwrap_or_default();
                let result = change(&mut connection);
                write(tx, "connection", &text(&connection))?;
                Ok(result)
            })
            .await
    }

    /// The port that the built-in gateway took the last time.
    pub async fn builtin_port(&self) -> Result<Option<u16>, Error> {
        self.get("builtin_port").await
    }

    /// Remembers the built-in gateway's port, so that its address stays the same.
    pub async fn set_builtin_port(&self, port: u16) -> Result<(), Error> {
        self.set("builtin_port", &port).await
    }

    /// The port that the management pages took the first time.
    pub async fn page_port(&self) -> Result<Option<u16>, Error> {
        self.get("page_port").await
    }

    /// Remembers the pages' port, so that bookmarks go on working.
    pub async fn set_page_port(&self, port: u16) -> Result<(), Error> {
        self.set("page_port", &port).await
    }

    /// Where keys are kept.
    pub async fn key_place(&self) -> Result<Place, Error> {
        Ok(self.get("key_place").await?.unwrap_or_default())
    }

    /// Chooses where keys are kept. It moves none.
    pub async fn set_key_place(&self, place: Place) -> Result<(), Error> {
        self.set("key_place", &place).await
    }

    /// For how long what is over is kept.
    pub async fn keep(&self) -> Result<Keep, Error> {
        Ok(self.get("keep").await?.unwrap_or_default())
    }

    /// Chooses that. It deletes nothing by itself.
    pub async fn set_keep(&self, keep: Keep) -> Result<(), Error> {
        self.set("keep", &keep).await
    }

    /// How the pages look.
    pub async fn theme(&self) -> Result<Theme, Error> {
        Ok(self.get("theme").await?.unwrap_or_default())
    }

    /// Chooses how the pages look.
    pub async fn set_theme(&self, theme: Theme) -> Result<(), Error> {
        self.set("theme", &theme).await
    }

    /// When runs keep the computer awake.
    pub async fn keep_awake(&self) -> Result<KeepAwake, Error> {
        Ok(self.get("keep_awake").await?.unwrap_or_default())
    }

    /// Chooses that.
    pub async fn set_keep_awake(&self, wish: KeepAwake) -> Result<(), Error> {
        self.set("keep_awake", &wish).await
    }

    /// The digests of the sessions of browsers, oldest first.
    pub async fn page_sessions(&self) -> Result<Vec<Sha256Digest>, Error> {
        Ok(self.get("page_sessions").await?.unwrap_or_default())
    }

    /// Replaces the sessions.
    pub async fn set_page_sessions(&self, sessions: &[Sha256Digest]) -> Result<(), Error> {
        self.set("page_sessions", &sessions).await
    }

    /// The problems that the owner does not want to hear of.
    pub async fn ignored_problems(&self) -> Result<Vec<Ignored>, Error> {
        Ok(self.get("ignored_problems").await?.unwrap_or_default())
    }

    /// Replaces them.
    pub async fn set_ignored_problems(&self, ignored: &[Ignored]) -> Result<(), Error> {
        self.set("ignored_problems", &ignored).await
    }

    /// What the desktop tells of by itself.
    pub async fn notifications(&self) -> Result<Notifications, Error> {
        Ok(self.get("notifications").await?.unwrap_or_default())
    }

    /// Chooses that.
    pub async fn set_notifications(&self, notifications: Notifications) -> Result<(), Error> {
        self.set("notifications", &notifications).await
    }

    async fn get<T: DeserializeOwned + Send + 'static>(&self, key: &'static str) -> Result<Option<T>, Error> {
        self.store.lazily(move |tx| read(tx, key)).await
    }

    async fn set(&self, key: &'static str, value: &impl Serialize) -> Result<(), Error> {
        let text = text(value);
        self.store.durably(move |tx| write(tx, key, &text)).await
    }
}

/// An expression of SQL: for how many seconds something is kept, by its name in [`Keep`].
pub(super) fn kept_seconds(part: &str, otherwise: u32) -> String {
    format!("coalesce((SELECT value ->> '$.{part}' FROM setting WHERE key = 'keep'), {otherwise}) * 86400")
}

fn read<T: DeserializeOwned>(tx: &Transaction<'_>, key: &str) -> Result<Option<T>, Error> {
    let text: Option<String> =
        tx.query_row("SELECT value FROM setting WHERE key = ?1", [key], |row| row.get(0)).optional()?;
    let read =
        |text: String| serde_json::from_str(&text).map_err(|e| Error::damaged("a setting")(format!("{key}: {e}")));
    text.map(read).transpose()
}

fn write(tx: &Transaction<'_>, key: &str, text: &str) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO setting (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![key, text],
    )?;
    Ok(())
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Edit, Mode};

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
    #[tokio::test]
    async fn changes_of_the_connection_at_the_same_time_are_all_kept() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let settings = store.settings();
        let pause = settings.update_connection(|connection| connection.pause_access = true);
        let edit = settings.update_connection(|connection| {
            connection.edit(Mode::BuiltIn, Edit { listen: Some("127.0.0.1:1".to_owned()), ..Edit::default() });
        });
        let (paused, edited) = tokio::join!(pause, edit);
        paused.and(edited).expect("written");
        let connection = settings.connection().await.expect("readable");
        assert!(connection.pause_access && connection.builtin_draft.is_some(), "{connection:?}");
    }
}
