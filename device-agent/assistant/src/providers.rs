//! The configured model providers: kind, address and key.
//!
//! One private file for each, so that a key stays with the address it was given for. A service names a provider; the
//! key never enters a definition.

use std::path::PathBuf;

pub use deskgate_definition::KeyPlace;
use deskgate_definition::RESERVED_NAME;
use deskgate_definition::provider::{PROVIDER_NAME_RULE, is_provider_name};
use deskgate_outbound::is_guarded;
pub use deskgate_secrets::KeyChange;
use deskgate_secrets::keyring::KeyringEntry;
use deskgate_secrets::{KeyHolder, KeyPreference, Secret, SecretError, SecretFileError, SecretFileStore, StoredKey};
use serde::{Deserialize, Serialize};

use super::remote::ProviderAccess;

/// The kinds of model providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions API, or any compatible server.
    Openai,
}

impl ProviderKind {
    /// The default address.
    pub const fn base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::Openai => "https://api.openai.com/v1",
        }
    }
}

/// A provider's configuration, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// The provider's name in services.
    pub name: String,
    /// The API of the provider.
    pub kind: ProviderKind,
    /// The provider's address.
    pub base_url: String,
    /// Whether a key is saved for it.
    pub has_key: bool,
    /// Where its key is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_place: Option<KeyPlace>,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderFile {
    kind: ProviderKind,
    base_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<StoredKey>,
}

impl KeyHolder for ProviderFile {
    fn key(&self) -> Option<&StoredKey> {
        self.key.as_ref()
    }

    fn key_mut(&mut self) -> Option<&mut StoredKey> {
        self.key.as_mut()
    }
}

/// A change of a provider, or a new one.
#[derive(Clone, Debug)]
pub struct ProviderChange {
    /// The API of the provider; `None` keeps it.
    pub kind: Option<ProviderKind>,
    /// The new address; `None` keeps it, or takes the kind's own address.
    pub base_url: Option<String>,
    /// What happens to its key.
    pub key: KeyChange,
    /// Where its key is kept; `None` leaves it where it is, and keeps a first one at the preferred place.
    pub key_place: Option<KeyPlace>,
}

/// Why a provider cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Its name is not valid.
    #[error("{PROVIDER_NAME_RULE}")]
    Name,
    /// The name is reserved for an address of the management pages.
    #[error("a provider's name cannot be {RESERVED_NAME:?}: that is the address of the page for a new one")]
    TakenName,
    /// A new provider needs a kind.
    #[error("a new provider needs its kind: anthropic or openai")]
    KindMissing,
    /// Its address is not valid, and why.
    #[error("the API base URL {0:?} cannot be used: {1}")]
    BaseUrl(String, &'static str),
    /// The saved key was given for another address.
    #[error("the saved key was given for {0}; give the new place's key with --key-file, or --no-key")]
    KeyOfAnotherPlace(String),
    /// There is no provider of this name.
    #[error("there is no provider {0:?} on this device; see: deskgate provider list")]
    Unknown(String),
    /// Its file cannot be parsed.
    #[error("{0} is damaged; set the provider anew, with its key")]
    Damaged(PathBuf),
    /// Its key, or its file, cannot be read or written.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl From<SecretFileError> for ProviderError {
    fn from(error: SecretFileError) -> Self {
        match error {
            SecretFileError::Unknown(name) => Self::Unknown(name),
            SecretFileError::Damaged(path) => Self::Damaged(path),
            SecretFileError::Secret(error) => Self::Secret(error),
        }
    }
}

/// The providers of this device. Every call does file work and may block. Clones share their lock.
#[derive(Clone, Debug)]
pub struct Providers(SecretFileStore<ProviderFile>);

impl Providers {
    /// The providers in a folder, created on first use.
    pub fn new(folder: PathBuf) -> Self {
        Self(SecretFileStore::new(folder, is_provider_name))
    }

    /// The same, with new keys kept where the preference says.
    pub fn with_preference(self, wanted: KeyPreference) -> Self {
        Self(self.0.with_preference(wanted))
    }

    /// Moves every key to the preferred place.
    ///
    /// # Errors
    /// [`ProviderError::Damaged`]: a file cannot be parsed. [`ProviderError::Secret`]: a file or a key cannot be read
    /// or written. Keys moved before the failure stay moved.
    pub fn move_keys(&self) -> Result<(), ProviderError> {
        Ok(self.0.move_keys()?)
    }

    /// The keyring entries of the providers' keys.
    pub fn entries(&self) -> Vec<KeyringEntry> {
        self.0.entries()
    }

    /// Every provider, by name.
    ///
    /// # Errors
    /// [`ProviderError::Damaged`]: a file cannot be parsed. [`ProviderError::Secret`]: the folder or a file cannot be
    /// read. [`ProviderError::Unknown`]: a provider was removed at the same time.
    pub fn list(&self) -> Result<Vec<ProviderConfig>, ProviderError> {
        Ok(self.0.all()?.iter().map(|(name, written)| shown(name, written)).collect())
    }

    /// Adds a provider or changes it; fields that are `None` stay. A saved key never goes to another address.
    ///
    /// # Errors
    /// The change is not valid, or the file or key cannot be written.
    pub fn set(&self, name: &str, change: ProviderChange) -> Result<ProviderConfig, ProviderError> {
        if !is_provider_name(name) {
            return Err(ProviderError::Name);
        }
        if name == RESERVED_NAME {
            return Err(ProviderError::TakenName);
        }
        let written = self.0.change(name, change.kind.is_some(), change.key_place, |saved| change.of(saved))?;
        Ok(shown(name, &written))
    }

    /// Removes a provider and its key. Services that name it can no longer run.
    ///
    /// # Errors
    /// [`ProviderError::Unknown`]: there is no provider of this name. [`ProviderError::Secret`]: its file cannot be
    /// removed.
    pub fn remove(&self, name: &str) -> Result<(), ProviderError> {
        Ok(self.0.remove(name)?)
    }

    /// The kind, address and key for a call.
    pub(super) fn open(&self, name: &str) -> Result<(ProviderKind, ProviderAccess), ProviderError> {
        let (ProviderFile { kind, base_url, .. }, key) = self.0.open(name)?;
        let key = key.map(|key| Secret::new(&key)).transpose()?;
        Ok((kind, ProviderAccess { base_url, key }))
    }
}

impl ProviderChange {
    /// The configuration after the change.
    fn of(self, saved: Option<ProviderFile>) -> Result<ProviderFile, ProviderError> {
        let kind = self.kind.or(saved.as_ref().map(|saved| saved.kind)).ok_or(ProviderError::KindMissing)?;
        let (place, key) = saved.map(|ProviderFile { kind, base_url, key }| ((kind, base_url), key)).unzip();
        let kept = || place.as_ref().filter(|(saved, _)| *saved == kind).map(|(_, base_url)| base_url.clone());
        let base_url = self.base_url.or_else(kept).unwrap_or(kind.base_url().to_owned());
        let base_url = check_base_url(&base_url)?;
        let moved = place.filter(|(saved, at)| *saved != kind || *at != base_url);
        let moved = moved.map(|(_, at)| ProviderError::KeyOfAnotherPlace(at));
        let key = self.key.of(key.flatten(), moved, |key| Ok(StoredKey::new(key.reveal())))?;
        Ok(ProviderFile { kind, base_url, key })
    }
}

fn shown(name: &str, written: &ProviderFile) -> ProviderConfig {
    let ProviderFile { kind, base_url, key } = written;
    ProviderConfig {
        name: name.to_owned(),
        kind: *kind,
        base_url: base_url.clone(),
        has_key: key.is_some(),
        key_place: key.as_ref().map(StoredKey::place),
    }
}

/// Checks that the address is HTTPS, or plain HTTP to this computer. Returned without a trailing slash.
fn check_base_url(text: &str) -> Result<String, ProviderError> {
    let wrong = |why| ProviderError::BaseUrl(text.chars().take(200).collect(), why);
    let url = reqwest::Url::parse(text).map_err(|_| wrong("it is no URL, such as https://api.example.com/v1"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // The address is not repeated: it may hold a password.
        return Err(ProviderError::BaseUrl("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query or a fragment; write what stands before them"));
    }
    if !is_guarded(&url) {
        return Err(wrong(match url.scheme() {
            "http" => "prompts and keys travel over https, or over http on this computer only",
            _ => "it begins with https://",
        }));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: Option<ProviderKind>, base_url: Option<&str>, key: KeyChange) -> ProviderChange {
        ProviderChange { kind, base_url: base_url.map(str::to_owned), key, key_place: None }
    }

    fn key() -> KeyChange {
        KeyChange::Replace(Secret::new("sk-canary").expect("a key"))
    }

    #[test]
    fn an_account_is_kept_and_its_key_never_moves_to_another_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Providers::new(folder.path().join("providers"));
        assert_eq!(accounts.list().expect("no folder is no account"), []);
        let keep = || KeyChange::Keep;
        assert!(matches!(accounts.set("work", change(None, None, key())), Err(ProviderError::KindMissing)));
        let place = "https://models.example.com/v1/";
        let set = accounts.set("work", change(Some(ProviderKind::Openai), Some(place), key())).expect("saved");
        assert_eq!((set.base_url.as_str(), set.has_key), ("https://models.example.com/v1", true));
        assert_eq!(accounts.set("work", change(None, Some(place), keep())).expect("the same"), set);
        for elsewhere in [
            change(Some(ProviderKind::Anthropic), None, keep()),
            change(Some(ProviderKind::Anthropic), Some(place), keep()),
            change(None, Some("https://other.example.com/v1"), keep()),
        ] {
            let error = accounts.set("work", elsewhere).expect_err("the key belongs to the old place").to_string();
            assert!(error.contains("--key-file") && !error.contains("canary"), "{error}");
        }
        assert_eq!(accounts.list().expect("listed"), [set]);
        let moved =
            accounts.set("work", change(Some(ProviderKind::Anthropic), None, key())).expect("with a key of its own");
        assert_eq!((moved.base_url.as_str(), moved.has_key), ("https://api.anthropic.com", true));
        assert!(!accounts.set("work", change(None, None, KeyChange::Forget)).expect("changed").has_key);
        accounts.remove("work").expect("removed");
        assert!(matches!(accounts.remove("work"), Err(ProviderError::Unknown(_))));
        assert_eq!(std::fs::read_dir(folder.path().join("providers")).expect("there").count(), 0);
    }

    #[test]
    fn a_damaged_account_can_be_set_anew_by_whoever_says_its_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Providers::new(folder.path().to_owned());
        deskgate_secrets::write_private(&folder.path().join("work.json"), b"{ sk-canary").expect("written");
        assert!(accounts.set("work", change(None, None, key())).is_err(), "of what kind nobody knows any more");
        assert!(accounts.set("work", change(Some(ProviderKind::Openai), None, key())).expect("anew").has_key);
        assert_eq!(accounts.list().expect("sound").len(), 1);
    }

    #[test]
    fn addresses_that_would_give_a_prompt_or_a_key_away_are_refused() {
        for (text, part) in [
            ("http://models.example.com", "https"),
            ("http://127.0.0.1.example.com", "https"),
            ("ftp://models.example.com", "https"),
            ("models.example.com", "URL"),
            ("https://me:canary@models.example.com", "given apart"),
            ("https://models.example.com/?key=x", "query"),
        ] {
            let error = check_base_url(text).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
        for text in ["http://localhost:11434/v1", "http://[::1]:8080", "http://127.0.0.1:1/x/"] {
            assert!(check_base_url(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_is_short_and_never_the_scripted_one() {
        for name in ["", "a/b", "scripted", &"x".repeat(33)] {
            assert!(!is_provider_name(name), "{name}");
        }
        assert!(is_provider_name("work-2"));
    }
}
