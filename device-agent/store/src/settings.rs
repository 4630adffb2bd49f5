//! Small values that outlive the process, each with its own name and type.

use deskgate_definition::KeyPlace;
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, Store};
use crate::RetentionSettings;

/// A value that outlives the process, under its own name. The default holds until a person chooses.
pub trait Setting: Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The setting's name in the database.
    const NAME: &'static str;
}

impl Setting for KeyPlace {
    const NAME: &'static str = "key_place";
}

impl Setting for RetentionSettings {
    const NAME: &'static str = "keep";
}

/// Reads and writes settings. Writing one never changes another.
#[derive(Clone, Debug)]
pub struct Settings {
    store: Store,
}

impl Settings {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// The device's name for people; `None` until one is given.
    ///
    /// # Errors
    /// The database cannot be read, or the value is damaged.
    pub async fn device_name(&self) -> Result<Option<String>, Error> {
        self.read("device_name").await
    }

    /// Names the device.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_device_name(&self, name: &str) -> Result<(), Error> {
        self.write("device_name", &name).await
    }

    /// How many runs may execute at once; `None` until a person chooses.
    ///
    /// # Errors
    /// The database cannot be read, or the value is damaged.
    pub async fn slots(&self) -> Result<Option<u32>, Error> {
        self.read("slots").await
    }

    /// Sets how many runs may execute at once.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_slots(&self, slots: u32) -> Result<(), Error> {
        self.write("slots", &slots).await
    }

    /// Notes for how many seconds the gateway keeps ended runs; `None`: the owner of this device alone decides.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_gateway_retention(&self, seconds: Option<u64>) -> Result<(), Error> {
        if self.read(GATEWAY_RETENTION).await? == Some(seconds) {
            return Ok(());
        }
        // SQLite's own numbers have a sign.
        let seconds = seconds.map(|seconds| seconds.min(1 << 40));
        self.write(GATEWAY_RETENTION, &seconds).await
    }

    /// A setting's value, or its default.
    ///
    /// # Errors
    /// The database cannot be read, or the value is damaged.
    pub async fn get<S: Setting>(&self) -> Result<S, Error> {
        Ok(self.read(S::NAME).await?.unwrap_or_default())
    }

    /// Writes a setting. Other settings stay unchanged.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set<S: Setting>(&self, value: &S) -> Result<(), Error> {
        self.write(S::NAME, value).await
    }

    /// Changes a setting in one transaction, so that concurrent changes are both kept. Returns the result of `change`.
    ///
    /// # Errors
    /// The database cannot be read or written, or the value is damaged.
    pub async fn update<S: Setting, R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, Error> {
        self.store
            .durably(|tx| {
                let mut value = read(tx, S::NAME)?.unwrap_or_default();
                let result = change(&mut value);
                write(tx, S::NAME, &text(&value))?;
                Ok(result)
            })
            .await
    }

    /// The last port of the built-in gateway.
    ///
    /// # Errors
    /// The database cannot be read, or the value is damaged.
    pub async fn builtin_port(&self) -> Result<Option<u16>, Error> {
        self.read("builtin_port").await
    }

    /// Stores the built-in gateway's port, so that its address stays the same.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_builtin_port(&self, port: u16) -> Result<(), Error> {
        self.write("builtin_port", &port).await
    }

    /// The first port of the management pages.
    ///
    /// # Errors
    /// The database cannot be read, or the value is damaged.
    pub async fn page_port(&self) -> Result<Option<u16>, Error> {
        self.read("page_port").await
    }

    /// Stores the pages' port, so that bookmarks keep working.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_page_port(&self, port: u16) -> Result<(), Error> {
        self.write("page_port", &port).await
    }

    /// Forgets what an earlier version kept under a name.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn forget(&self, name: &'static str) -> Result<(), Error> {
        let gone =
            move |tx: &Transaction<'_>| Ok(tx.execute("DELETE FROM setting WHERE key = ?1", [name]).map(drop)?);
        self.store.durably(gone).await
    }

    async fn read<T: DeserializeOwned + Send + 'static>(&self, key: &'static str) -> Result<Option<T>, Error> {
        self.store.lazily(move |tx| read(tx, key)).await
    }

    async fn write(&self, key: &'static str, value: &impl Serialize) -> Result<(), Error> {
        let text = text(value);
        self.store.durably(move |tx| write(tx, key, &text)).await
    }
}

/// An SQL expression: for how many seconds data is kept, by its name in [`RetentionSettings`].
pub(super) fn kept_seconds(part: &str, otherwise: u32) -> String {
    format!("coalesce((SELECT value ->> '$.{part}' FROM setting WHERE key = 'keep'), {otherwise}) * 86400")
}

/// The name of the gateway's own retention among the settings.
const GATEWAY_RETENTION: &str = "gateway_retention_s";

/// An SQL expression: for how many seconds the gateway keeps ended runs. Nothing of them is kept here for longer.
pub(super) const GATEWAY_KEPT_SECONDS_SQL: &str =
    "coalesce((SELECT CAST(nullif(value, 'null') AS INTEGER) FROM setting WHERE key = 'gateway_retention_s'), 1 << 40)";

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
    async fn changes_of_one_value_at_the_same_time_are_all_kept() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let settings = store.settings();
        let runs = settings.update(|keep: &mut RetentionSettings| keep.runs = 1);
        let log = settings.update(|keep: &mut RetentionSettings| keep.log = 2);
        let (runs, log) = tokio::join!(runs, log);
        runs.and(log).expect("written");
        let keep = settings.get::<RetentionSettings>().await.expect("readable");
        assert_eq!((keep.runs, keep.log), (1, 2));
    }
}
