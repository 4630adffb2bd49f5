//! The configured model providers: profile, address and key.
//!
//! One private file for each, so that a key stays with the address it was given for. A service names a provider; the
//! key never enters a definition.

use std::path::PathBuf;

pub use deskgate_definition::KeyPlace;
use deskgate_definition::RESERVED_NAME;
use deskgate_definition::provider::{PROVIDER_NAME_RULE, is_provider_name};
use deskgate_outbound::{Reach, is_allowed, is_here};
pub use deskgate_secrets::KeyChange;
use deskgate_secrets::keyring::KeyringEntry;
use deskgate_secrets::{KeyHolder, KeyPreference, Secret, SecretError, SecretFileError, SecretFileStore, StoredKey};
use serde::{Deserialize, Serialize};

use super::profile::{Api, Need, Profile};
use super::remote::ProviderAccess;

/// The name of the file with the owner's prices.
const PRICE_TABLE_NAME: &str = "prices.toml";

/// A provider's configuration, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderConfig {
    /// The provider's name in services.
    pub name: String,
    /// Its vendor, by the name of a [`Profile`].
    pub profile: String,
    /// The format that it is asked in.
    pub api: Api,
    /// The provider's address.
    pub base_url: String,
    /// The version of the API that requests name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Whether plain HTTP may go to its address in the own network.
    #[serde(default)]
    pub plain_http: bool,
    /// Whether a key is saved for it.
    pub has_key: bool,
    /// Where its key is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_place: Option<KeyPlace>,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(from = "SavedProvider")]
struct ProviderFile {
    profile: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<Api>,
    base_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    plain_http: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<StoredKey>,
}

/// The file as this version or an earlier one wrote it. Members are not flattened: that would copy the key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedProvider {
    profile: Option<String>,
    /// What earlier versions wrote: `anthropic`, or `openai` for everything else.
    kind: Option<String>,
    api: Option<Api>,
    base_url: String,
    api_version: Option<String>,
    #[serde(default)]
    plain_http: bool,
    key: Option<StoredKey>,
}

impl From<SavedProvider> for ProviderFile {
    fn from(saved: SavedProvider) -> Self {
        let SavedProvider { profile, kind, api, base_url, api_version, plain_http, key } = saved;
        let profile = profile.unwrap_or_else(|| {
            let vendor = match kind.as_deref() {
                Some("anthropic") => "anthropic",
                _ if Profile::named("openai").and_then(|openai| openai.base_url.as_deref()) == Some(&base_url) => {
                    "openai"
                }
                _ => "compatible",
            };
            vendor.to_owned()
        });
        Self { profile, api, base_url, api_version, plain_http, key }
    }
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
    /// Its vendor; `None` keeps it.
    pub profile: Option<String>,
    /// The format it is asked in; `None` keeps it, or takes the profile's own.
    pub api: Option<Api>,
    /// The new address; `None` keeps it, or takes the profile's own.
    pub base_url: Option<String>,
    /// The version of the API; `None` keeps it, and an empty text takes it away.
    pub api_version: Option<String>,
    /// Whether plain HTTP may go to an address of the own network; `None` keeps it.
    pub plain_http: Option<bool>,
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
    /// The owner's prices cannot be used.
    #[error("the prices in {} cannot be used: {}; correct the file, or remove it", .0.display(), .1)]
    PriceTable(PathBuf, String),
    /// A new provider needs a profile.
    #[error("a new provider needs its profile; choose one of {}", Profile::names())]
    ProfileMissing,
    /// There is no such profile.
    #[error("there is no such profile; choose one of {}", Profile::names())]
    UnknownProfile,
    /// The profile does not have this format.
    #[error("{0} is not asked in this format; choose one of {1}")]
    OtherApi(&'static str, String),
    /// The profile has no address of its own.
    #[error("{0} has an address of its own for each account: give the API base URL, such as {1}")]
    BaseUrlMissing(&'static str, &'static str),
    /// The version of the API is missing, has no meaning, or is not valid.
    #[error("{0}")]
    ApiVersion(&'static str),
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
pub struct Providers(SecretFileStore<ProviderFile>, PathBuf);

impl Providers {
    /// The providers in a folder, created on first use. The owner's prices stand beside it, in `prices.toml`.
    pub fn new(folder: PathBuf) -> Self {
        let price_table = folder.with_file_name(PRICE_TABLE_NAME);
        Self(SecretFileStore::new(folder, is_provider_name), price_table)
    }

    /// The same, with new keys kept where the preference says.
    pub fn with_preference(self, wanted: KeyPreference) -> Self {
        Self(self.0.with_preference(wanted), self.1)
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
        let written = self.0.change(name, change.profile.is_some(), change.key_place, |saved| change.of(saved))?;
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

    /// The profile, address and key for a call.
    ///
    /// # Errors
    /// There is no such provider, or its file, profile or key cannot be used.
    pub(super) fn open(&self, name: &str) -> Result<ProviderAccess, ProviderError> {
        let (file, key) = self.0.open(name)?;
        let profile = Profile::named(&file.profile).ok_or(ProviderError::UnknownProfile)?;
        let key = key.map(|key| Secret::new(&key)).transpose()?;
        let ProviderFile { base_url, api_version, plain_http, .. } = file;
        let (api, price_table) = (file.api.unwrap_or(profile.apis[0]), self.1.clone());
        Ok(ProviderAccess { profile, api, base_url, api_version, plain_http, key, price_table })
    }
}

impl ProviderChange {
    /// The configuration after the change.
    fn of(self, saved: Option<ProviderFile>) -> Result<ProviderFile, ProviderError> {
        let name = self.profile.or_else(|| saved.as_ref().map(|saved| saved.profile.clone()));
        let profile =
            Profile::named(&name.ok_or(ProviderError::ProfileMissing)?).ok_or(ProviderError::UnknownProfile)?;
        // Another vendor has other addresses and formats; the key belongs to the address alone.
        let same = saved.as_ref().filter(|saved| saved.profile == profile.name);
        let api = self.api.or(same.and_then(|saved| saved.api));
        if api.is_some_and(|api| !profile.apis.contains(&api)) {
            let known = profile.apis.iter().map(|api| api.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ProviderError::OtherApi(&profile.title, known));
        }
        let plain_http = self.plain_http.or(same.map(|saved| saved.plain_http)).unwrap_or_default();
        let base_url = self.base_url.or_else(|| same.map(|saved| saved.base_url.clone())).or(profile.base_url.clone());
        let example = || profile.base_url_example.as_deref().unwrap_or_default();
        let base_url = base_url.ok_or_else(|| ProviderError::BaseUrlMissing(&profile.title, example()))?;
        let base_url = check_base_url(&base_url, plain_http)?;
        let api_version = self.api_version.or_else(|| same.and_then(|saved| saved.api_version.clone()));
        let api_version = check_api_version(profile, api_version)?;
        let (at, key) = saved.map(|saved| (saved.base_url, saved.key)).unzip();
        let moved = at.filter(|at| *at != base_url).map(ProviderError::KeyOfAnotherPlace);
        let key = self.key.of(key.flatten(), moved, |key| Ok(StoredKey::new(key.reveal())))?;
        Ok(ProviderFile { profile: profile.name.to_owned(), api, base_url, api_version, plain_http, key })
    }
}

/// The length limit of a version in an address, in characters.
const MAX_API_VERSION_CHARS: usize = 40;

/// Checks the version that requests name in their address.
fn check_api_version(profile: &Profile, version: Option<String>) -> Result<Option<String>, ProviderError> {
    let version = version.filter(|version| !version.is_empty());
    let is_word = |text: &String| {
        text.len() <= MAX_API_VERSION_CHARS && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    match (&version, profile.api_version) {
        (Some(_), Need::None) => {
            Err(ProviderError::ApiVersion("this profile names no version of the API; leave it out"))
        }
        (None, Need::Required) => Err(ProviderError::ApiVersion(
            "this profile needs the version of the API that your resource has, such as 2025-04-01-preview",
        )),
        (Some(text), _) if !is_word(text) => {
            Err(ProviderError::ApiVersion("a version of the API is a word such as 2025-04-01-preview"))
        }
        _ => Ok(version),
    }
}

fn shown(name: &str, written: &ProviderFile) -> ProviderConfig {
    let ProviderFile { profile, api, base_url, api_version, plain_http, key } = written;
    let default = Profile::named(profile).map_or(Api::Chat, |profile| profile.apis[0]);
    ProviderConfig {
        name: name.to_owned(),
        profile: profile.clone(),
        api: api.unwrap_or(default),
        base_url: base_url.clone(),
        api_version: api_version.clone(),
        plain_http: *plain_http,
        has_key: key.is_some(),
        key_place: key.as_ref().map(StoredKey::place),
    }
}

/// Checks that the address is HTTPS, or plain HTTP to this computer, or to the own network if the owner said so.
/// Returned without a trailing slash.
fn check_base_url(text: &str, plain_http: bool) -> Result<String, ProviderError> {
    let wrong = |why| ProviderError::BaseUrl(text.chars().take(200).collect(), why);
    let url = reqwest::Url::parse(text).map_err(|_| wrong("it is no URL, such as https://api.example.com/v1"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // The address is not repeated: it may hold a password.
        return Err(ProviderError::BaseUrl("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query or a fragment; write what stands before them"));
    }
    let reach = if plain_http { Reach::OwnNetwork } else { Reach::Guarded };
    if !is_allowed(&url, reach) {
        return Err(wrong(match url.scheme() {
            "http" if plain_http => {
                "it is not in your own network, and prompts and keys travel elsewhere over https only"
            }
            "http" if is_allowed(&url, Reach::OwnNetwork) => {
                "prompts and keys travel over https, or over http on this computer only. For a server in your own \
                 network allow plain HTTP (--plain-http): everybody in that network can then read prompts, answers and \
                 the key"
            }
            "http" => "prompts and keys travel over https, or over http on this computer only",
            _ => "it begins with https://",
        }));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Whether requests to an address can be read by others on the way.
pub fn travels_openly(base_url: &str) -> bool {
    reqwest::Url::parse(base_url).is_ok_and(|url| url.scheme() == "http" && !is_here(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(profile: Option<&str>, base_url: Option<&str>, key: KeyChange) -> ProviderChange {
        let (profile, base_url) = (profile.map(str::to_owned), base_url.map(str::to_owned));
        ProviderChange { profile, api: None, base_url, api_version: None, plain_http: None, key, key_place: None }
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
        assert!(matches!(accounts.set("work", change(None, None, key())), Err(ProviderError::ProfileMissing)));
        assert!(matches!(accounts.set("work", change(Some("gpt"), None, key())), Err(ProviderError::UnknownProfile)));
        assert!(matches!(
            accounts.set("work", change(Some("compatible"), None, key())),
            Err(ProviderError::BaseUrlMissing(..))
        ));
        let place = "https://models.example.com/v1/";
        let set = accounts.set("work", change(Some("compatible"), Some(place), key())).expect("saved");
        assert_eq!((set.base_url.as_str(), set.has_key), ("https://models.example.com/v1", true));
        assert_eq!(accounts.set("work", change(None, Some(place), keep())).expect("the same"), set);
        for elsewhere in
            [change(Some("anthropic"), None, keep()), change(None, Some("https://other.example.com/v1"), keep())]
        {
            let error = accounts.set("work", elsewhere).expect_err("the key belongs to the old place").to_string();
            assert!(error.contains("--key-file") && !error.contains("canary"), "{error}");
        }
        assert_eq!(accounts.list().expect("listed"), [set]);
        let other = accounts.set("work", change(Some("vllm"), Some(place), keep())).expect("the same place");
        assert_eq!((other.profile.as_str(), other.has_key), ("vllm", true));
        let moved = accounts.set("work", change(Some("anthropic"), None, key())).expect("with a key of its own");
        assert_eq!((moved.base_url.as_str(), moved.has_key), ("https://api.anthropic.com", true));
        assert!(!accounts.set("work", change(None, None, KeyChange::Forget)).expect("changed").has_key);
        accounts.remove("work").expect("removed");
        assert!(matches!(accounts.remove("work"), Err(ProviderError::Unknown(_))));
        assert_eq!(std::fs::read_dir(folder.path().join("providers")).expect("there").count(), 0);
    }

    #[test]
    fn what_an_earlier_version_saved_is_the_same_account_and_openais_own_gets_its_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Providers::new(folder.path().to_owned());
        for (kind, base_url, profile) in [
            ("anthropic", "https://api.anthropic.com", "anthropic"),
            ("openai", "https://api.openai.com/v1", "openai"),
            ("openai", "http://127.0.0.1:11434/v1", "compatible"),
        ] {
            let text = serde_json::json!({ "kind": kind, "base_url": base_url, "key": "sk-canary" }).to_string();
            deskgate_secrets::write_private(&folder.path().join("work.json"), text.as_bytes()).expect("written");
            let listed = accounts.list().expect("read");
            assert_eq!((listed[0].profile.as_str(), listed[0].base_url.as_str()), (profile, base_url));
            assert_eq!(accounts.open("work").expect("opens").key.expect("kept").reveal(), "sk-canary");
        }
    }

    #[test]
    fn formats_and_versions_are_those_of_the_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Providers::new(folder.path().to_owned());
        let openai = change(Some("openai"), None, key());
        assert_eq!(accounts.set("a", openai.clone()).expect("saved").api, Api::Responses);
        let chat = ProviderChange { api: Some(Api::Chat), ..openai.clone() };
        assert_eq!(accounts.set("a", chat).expect("saved").api, Api::Chat);
        let messages = ProviderChange { api: Some(Api::Messages), ..openai.clone() };
        assert!(matches!(accounts.set("a", messages), Err(ProviderError::OtherApi(..))));
        let dated = ProviderChange { api_version: Some("2026-01-01".to_owned()), ..openai };
        assert!(matches!(accounts.set("a", dated), Err(ProviderError::ApiVersion(_))));
        let azure = change(Some("azure-classic"), Some("https://res.openai.azure.com"), key());
        assert!(matches!(accounts.set("b", azure.clone()), Err(ProviderError::ApiVersion(_))));
        for (version, fits) in [("2025-04-01-preview", true), ("2025&x=y", false)] {
            let change = ProviderChange { api_version: Some(version.to_owned()), ..azure.clone() };
            assert_eq!(accounts.set("b", change).is_ok(), fits, "{version}");
        }
        let newer = change(Some("azure"), Some("https://res.openai.azure.com/openai/v1"), key());
        accounts.set("c", newer.clone()).expect("saved");
        accounts.set("d", ProviderChange { api_version: Some("preview".to_owned()), ..newer }).expect("saved");
        for (name, api, expected) in [
            ("b", Api::Chat, "/openai/deployments/my-gpt/chat/completions?api-version=2025-04-01-preview"),
            ("b", Api::Responses, "/openai/responses?api-version=2025-04-01-preview"),
            ("c", Api::Chat, "/openai/v1/chat/completions"),
            ("c", Api::Responses, "/openai/v1/responses"),
            ("d", Api::Responses, "/openai/v1/responses?api-version=preview"),
        ] {
            let access = accounts.open(name).expect("opens");
            let url = access.url(&access.profile.path(api, "my-gpt")).expect("a URL");
            assert_eq!(url.as_str(), format!("https://res.openai.azure.com{expected}"));
            let headers = access.headers();
            assert_eq!(headers.get("api-key").map(|key| key.as_bytes()), Some(&b"sk-canary"[..]), "{name}");
            assert!(headers["api-key"].is_sensitive() && !headers.contains_key("authorization"), "{name}");
        }
    }

    #[test]
    fn a_damaged_account_can_be_set_anew_by_whoever_says_its_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Providers::new(folder.path().to_owned());
        deskgate_secrets::write_private(&folder.path().join("work.json"), b"{ sk-canary").expect("written");
        assert!(accounts.set("work", change(None, None, key())).is_err(), "of what vendor nobody knows any more");
        assert!(accounts.set("work", change(Some("openai"), None, key())).expect("anew").has_key);
        assert_eq!(accounts.list().expect("sound").len(), 1);
    }

    #[test]
    fn addresses_that_would_give_a_prompt_or_a_key_away_are_refused() {
        for (text, part) in [
            ("http://models.example.com", "--plain-http"),
            ("http://8.8.8.8", "https"),
            ("http://127.0.0.1.example.com", "https"),
            ("ftp://models.example.com", "https"),
            ("models.example.com", "URL"),
            ("https://me:canary@models.example.com", "given apart"),
            ("https://models.example.com/?key=x", "query"),
        ] {
            let error = check_base_url(text, false).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
        for text in ["http://localhost:11434/v1", "http://[::1]:8080", "http://127.0.0.1:1/x/"] {
            assert!(check_base_url(text, false).is_ok(), "{text}");
        }
        assert!(check_base_url("http://192.168.1.7:11434/v1", false).is_err());
        assert!(check_base_url("http://192.168.1.7:11434/v1", true).is_ok());
        assert!(check_base_url("http://8.8.8.8/v1", true).is_err());
    }

    #[test]
    fn a_name_is_short_and_never_the_scripted_one() {
        for name in ["", "a/b", "scripted", &"x".repeat(33)] {
            assert!(!is_provider_name(name), "{name}");
        }
        assert!(is_provider_name("work-2"));
    }
}
