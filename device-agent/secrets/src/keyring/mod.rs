//! The desktop's keyring, where keys are kept if their owner chooses it.
//!
//! Each key is an entry of its own under a random identifier. A locked keyring is not unlocked by a prompt: the agent
//! works unattended, and reports what is missing.

#[cfg(feature = "keyring")]
mod bus;
#[cfg(not(feature = "keyring"))]
#[path = "without_bus.rs"]
mod bus;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use bus::SecretServiceBus;

/// The timeout for the local service, which answers at once unless it is broken.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the keyring cannot be used. The texts contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// No keyring service runs here.
    #[error("this desktop has no keyring that answers: {0}")]
    Absent(String),
    /// The keyring is locked; its owner has to open it.
    #[error("the keyring is locked. Unlock it: log in to the desktop, or use its password manager")]
    Locked,
    /// The keyring has no such entry.
    #[error("the keyring has no such key any more; give it anew")]
    Missing,
    /// The keyring service failed.
    #[error("the keyring failed: {0}")]
    Failed(String),
}

/// The name of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyringEntry(String);

impl KeyringEntry {
    /// Creates an entry with a secret, and reads it back before returning.
    pub(super) fn make(secret: &str) -> Result<Self, KeyringError> {
        let entry = Self(format!("{:032x}", rand::random::<u128>()));
        let (id, text) = (entry.0.clone(), Zeroizing::new(secret.to_owned()));
        on_bus(async move |bus| {
            bus.put(&id, &text).await?;
            match bus.get(&id).await? == text {
                true => Ok(()),
                false => Err(KeyringError::Failed("it gave back something else than it was given".to_owned())),
            }
        })?;
        Ok(entry)
    }

    /// The secret in the entry.
    pub(super) fn read(&self) -> Result<Zeroizing<String>, KeyringError> {
        let id = self.0.clone();
        on_bus(async move |bus| bus.get(&id).await)
    }

    /// Deletes the entry. An entry that cannot be deleted stays in the keyring, unused.
    pub(super) fn forget(&self) {
        let id = self.0.clone();
        if let Err(error) = on_bus(async move |bus| bus.delete(&id).await) {
            tracing::warn!(%error, "a key that is not used any more stays in the keyring");
        }
    }
}

/// Checks that new entries can be made now. May block.
///
/// # Errors
/// Why the keyring cannot be used.
pub fn usable() -> Result<(), KeyringError> {
    on_bus(async move |bus| bus.writable().await)
}

/// Checks that all of these can be read now. May block.
///
/// # Errors
/// Why an entry cannot be read.
pub fn readable(entries: Vec<KeyringEntry>) -> Result<(), KeyringError> {
    if entries.is_empty() {
        return Ok(());
    }
    on_bus(async move |bus| {
        for KeyringEntry(id) in &entries {
            bus.find(id).await?;
        }
        Ok(())
    })
}

/// Runs on its own thread and runtime: the caller may be inside another runtime, and blocks in either case.
fn on_bus<T: Send + 'static>(
    work: impl AsyncFnOnce(&SecretServiceBus) -> Result<T, KeyringError> + Send + 'static,
) -> Result<T, KeyringError> {
    let failed = |why: std::io::Error| KeyringError::Failed(why.to_string());
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let worked = runtime.block_on(async {
            let answered =
                tokio::time::timeout(REPLY_TIMEOUT, async { work(&SecretServiceBus::connect().await?).await });
            answered.await.unwrap_or_else(|_| Err(KeyringError::Absent("it does not answer".to_owned())))
        });
        // Does not wait for tasks that hang.
        runtime.shutdown_background();
        worked
    };
    let thread = std::thread::Builder::new().name("keyring".to_owned()).spawn(work).map_err(failed)?;
    thread.join().unwrap_or_else(|_| Err(KeyringError::Failed("its thread ended".to_owned())))
}
