//! A key as a private file holds it: the key itself, or the name of its keyring entry. Each file records where its own
//! key is, so an interrupted move loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deskgate_definition::KeyPlace;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::{Mutex, MutexGuard};
use zeroize::Zeroizing;

use super::SecretError;
use super::keyring::KeyringEntry;

/// Where new keys are kept. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KeyPreference(Arc<KeyPreferenceInner>);

#[derive(Debug, Default)]
struct KeyPreferenceInner {
    keyring: AtomicBool,
    moving: Mutex<()>,
}

impl KeyPreference {
    /// Where keys are kept now.
    pub fn get(&self) -> KeyPlace {
        place(self.0.keyring.load(Ordering::SeqCst))
    }

    /// Changes the place. Returns the previous one.
    pub fn set(&self, wanted: KeyPlace) -> KeyPlace {
        place(self.0.keyring.swap(wanted.is_keyring(), Ordering::SeqCst))
    }

    /// The lock for moving all keys: one move at a time.
    pub async fn lock_moves(&self) -> MutexGuard<'_, ()> {
        self.0.moving.lock().await
    }
}

fn place(keyring: bool) -> KeyPlace {
    if keyring { KeyPlace::Keyring } else { KeyPlace::File }
}

/// A key in a file.
#[derive(Serialize)]
#[serde(untagged)]
pub enum StoredKey {
    /// The key itself.
    Here(Zeroizing<String>),
    /// A reference to an entry in the keyring.
    There(KeyringReference),
}

/// The keyring entry of a key.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyringReference {
    /// The entry's name.
    keyring: KeyringEntry,
}

impl StoredKey {
    /// A new key; it is moved when its file is written.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Here(Zeroizing::new(text.into()))
    }

    /// Where the key is kept.
    pub fn place(&self) -> KeyPlace {
        place(self.entry().is_some())
    }

    /// The key itself. May block.
    pub(super) fn reveal(&self) -> Result<Zeroizing<String>, SecretError> {
        match self {
            Self::Here(text) => Ok(text.clone()),
            Self::There(there) => Ok(there.keyring.read()?),
        }
    }

    /// Its entry in the keyring.
    pub(super) fn entry(&self) -> Option<&KeyringEntry> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => Some(&there.keyring),
        }
    }

    /// Moves the key to `place`, in the form that its file holds. The old keyring entry is not deleted. May block.
    pub(super) fn move_to(&mut self, place: KeyPlace) -> Result<(), SecretError> {
        *self = match (&*self, place) {
            (Self::Here(text), KeyPlace::Keyring) => {
                Self::There(KeyringReference { keyring: KeyringEntry::make(text)? })
            }
            (Self::There(there), KeyPlace::File) => Self::Here(there.keyring.read()?),
            _ => return Ok(()),
        };
        Ok(())
    }
}

/// By hand: the derived code for an untagged enum leaves a copy of the key in memory.
impl<'de> Deserialize<'de> for StoredKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StoredKeyVisitor)
    }
}

struct StoredKeyVisitor;

impl<'de> Visitor<'de> for StoredKeyVisitor {
    type Value = StoredKey;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key, or where it is in the keyring")
    }

    fn visit_str<E>(self, text: &str) -> Result<StoredKey, E> {
        Ok(StoredKey::new(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StoredKey, A::Error> {
        KeyringReference::deserialize(MapAccessDeserializer::new(map)).map(StoredKey::There)
    }
}

/// The content of a private file that may hold a key.
pub trait KeyHolder {
    /// Its key, if it has one.
    fn key(&self) -> Option<&StoredKey>;

    /// The same, mutable, for moving it.
    fn key_mut(&mut self) -> Option<&mut StoredKey>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_file_is_text_and_one_in_the_keyring_is_the_name_of_its_entry() {
        let read = |text: &str| serde_json::from_str::<StoredKey>(text);
        let here = read(r#""sk-\u0063anary""#).expect("a key");
        assert_eq!((here.place(), here.reveal().expect("in the file").as_str()), (KeyPlace::File, "sk-canary"));
        assert_eq!(serde_json::to_string(&here).expect("JSON"), r#""sk-canary""#);
        let text = r#"{"keyring":"00ff"}"#;
        let there = read(text).expect("an entry");
        assert_eq!((there.place(), serde_json::to_string(&there).expect("JSON").as_str()), (KeyPlace::Keyring, text));
        for wrong in ["7", "null", "{}", r#"{"keyring":"00ff","value":"sk-canary"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_one_of_two_and_what_else_was_written_is_not_repeated() {
        for place in [KeyPlace::File, KeyPlace::Keyring] {
            assert_eq!(place.as_str().parse(), Ok(place));
        }
        let error = "sk-canary".parse::<KeyPlace>().expect_err("no place").to_string();
        assert!(error.contains("file, keyring") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn what_is_wanted_is_shared() {
        let wanted = KeyPreference::default();
        let other = wanted.clone();
        assert_eq!((wanted.set(KeyPlace::Keyring), other.get()), (KeyPlace::File, KeyPlace::Keyring));
        assert_eq!(other.set(KeyPlace::File), KeyPlace::Keyring);
    }
}
