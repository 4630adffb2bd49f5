//! Client for `org.freedesktop.secrets` on the session bus: the Secret Service API 0.2 of freedesktop.org.
//!
//! Secrets travel unencrypted (the algorithm `plain`): the bus is a socket of this user's own, and a process that can
//! listen there can query the service as well.

use std::collections::HashMap;

use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Type, Value};
use zeroize::Zeroizing;

use super::KeyringError;

const ITEM_LABEL: &str = "Deskgate";
/// The path that stands for no object: none exists, or no prompt is needed.
const NO_OBJECT: &str = "/";
/// The collection in which a desktop keeps passwords.
const DEFAULT_COLLECTION: &str = "default";

/// A secret in transit: session, parameters, value, content type.
#[derive(serde::Serialize, serde::Deserialize, Type)]
struct BusSecret(OwnedObjectPath, Vec<u8>, Vec<u8>, String);

impl Drop for BusSecret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.2);
    }
}

#[zbus::proxy(
    interface = "org.freedesktop.Secret.Service",
    default_service = "org.freedesktop.secrets",
    default_path = "/org/freedesktop/secrets",
    gen_blocking = false
)]
trait Service {
    fn open_session(&self, algorithm: &str, input: Value<'_>) -> zbus::Result<(OwnedValue, OwnedObjectPath)>;

    fn search_items(
        &self,
        attributes: HashMap<&str, &str>,
    ) -> zbus::Result<(Vec<OwnedObjectPath>, Vec<OwnedObjectPath>)>;

    fn unlock(&self, objects: &[ObjectPath<'_>]) -> zbus::Result<(Vec<OwnedObjectPath>, OwnedObjectPath)>;

    fn read_alias(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
}

#[zbus::proxy(
    interface = "org.freedesktop.Secret.Collection",
    default_service = "org.freedesktop.secrets",
    gen_blocking = false
)]
trait Collection {
    fn create_item(
        &self,
        properties: HashMap<&str, Value<'_>>,
        secret: &BusSecret,
        replace: bool,
    ) -> zbus::Result<(OwnedObjectPath, OwnedObjectPath)>;

    // Queried each time: the connection is too short-lived to receive changes.
    #[zbus(property(emits_changed_signal = "false"))]
    fn locked(&self) -> zbus::Result<bool>;
}

#[zbus::proxy(
    interface = "org.freedesktop.Secret.Item",
    default_service = "org.freedesktop.secrets",
    gen_blocking = false
)]
trait Item {
    fn get_secret(&self, session: &ObjectPath<'_>) -> zbus::Result<BusSecret>;

    fn delete(&self) -> zbus::Result<OwnedObjectPath>;
}

/// A session with the service.
#[derive(Debug)]
pub(super) struct SecretServiceBus {
    bus: zbus::Connection,
    service: ServiceProxy<'static>,
    session: OwnedObjectPath,
}

impl SecretServiceBus {
    pub(super) async fn connect() -> Result<Self, KeyringError> {
        let absent = |error: zbus::Error| KeyringError::Absent(error.to_string());
        let bus = zbus::Connection::session().await.map_err(absent)?;
        let service = ServiceProxy::new(&bus).await.map_err(absent)?;
        let (_, session) = service.open_session("plain", Value::from("")).await.map_err(absent)?;
        Ok(Self { bus, service, session })
    }

    /// Whether a secret could be stored.
    pub(super) async fn writable(&self) -> Result<(), KeyringError> {
        self.collection().await.map(drop)
    }

    /// Whether an entry exists and could be read.
    pub(super) async fn find(&self, id: &str) -> Result<(), KeyringError> {
        self.item(id).await.map(drop)
    }

    /// Writes an entry, or replaces it.
    pub(super) async fn put(&self, id: &str, secret: &str) -> Result<(), KeyringError> {
        let properties = HashMap::from([
            ("org.freedesktop.Secret.Item.Label", Value::from(ITEM_LABEL)),
            ("org.freedesktop.Secret.Item.Attributes", Value::from(attributes(id))),
        ]);
        let secret = BusSecret(self.session.clone(), Vec::new(), secret.as_bytes().to_vec(), "text/plain".to_owned());
        let (_, prompt) = self.collection().await?.create_item(properties, &secret, true).await.map_err(failed)?;
        if prompt.as_str() == NO_OBJECT { Ok(()) } else { Err(KeyringError::Locked) }
    }

    pub(super) async fn get(&self, id: &str) -> Result<Zeroizing<String>, KeyringError> {
        let secret = self.item(id).await?.get_secret(&self.session).await.map_err(failed)?;
        let text = std::str::from_utf8(&secret.2).map(|text| Zeroizing::new(text.to_owned()));
        text.map_err(|_| KeyringError::Failed("an entry is no text".to_owned()))
    }

    pub(super) async fn delete(&self, id: &str) -> Result<(), KeyringError> {
        let prompt = self.item(id).await?.delete().await.map_err(failed)?;
        if prompt.as_str() == NO_OBJECT { Ok(()) } else { Err(KeyringError::Locked) }
    }

    /// The collection for new entries, unlocked.
    async fn collection(&self) -> Result<CollectionProxy<'static>, KeyringError> {
        let path = self.service.read_alias(DEFAULT_COLLECTION).await.map_err(failed)?;
        if path.as_str() == NO_OBJECT {
            return Err(KeyringError::Absent("it has no default collection".to_owned()));
        }
        let collection = CollectionProxy::builder(&self.bus).path(path.clone()).map_err(failed)?;
        let collection = collection.build().await.map_err(failed)?;
        if collection.locked().await.map_err(failed)? {
            self.unlock(&path).await?;
        }
        Ok(collection)
    }

    /// An entry, unlocked.
    async fn item(&self, id: &str) -> Result<ItemProxy<'static>, KeyringError> {
        let (open, locked) = self.service.search_items(attributes(id)).await.map_err(failed)?;
        let path = match (open.into_iter().next(), locked.into_iter().next()) {
            (Some(path), _) => path,
            (None, Some(path)) => {
                self.unlock(&path).await?;
                path
            }
            (None, None) => {
                // While locked, some keyrings do not list their entries.
                self.writable().await?;
                return Err(KeyringError::Missing);
            }
        };
        ItemProxy::builder(&self.bus).path(path).map_err(failed)?.build().await.map_err(failed)
    }

    /// Unlocks only if no prompt is needed.
    async fn unlock(&self, path: &OwnedObjectPath) -> Result<(), KeyringError> {
        let (unlocked, _) = self.service.unlock(&[path.as_ref()]).await.map_err(failed)?;
        if unlocked.is_empty() { Err(KeyringError::Locked) } else { Ok(()) }
    }
}

/// The attributes that identify an entry.
fn attributes(id: &str) -> HashMap<&str, &str> {
    HashMap::from([("application", "deskgate"), ("entry", id)])
}

fn failed(error: zbus::Error) -> KeyringError {
    match &error {
        zbus::Error::MethodError(name, ..) if name.as_str() == "org.freedesktop.Secret.Error.IsLocked" => {
            KeyringError::Locked
        }
        _ => KeyringError::Failed(error.to_string()),
    }
}
