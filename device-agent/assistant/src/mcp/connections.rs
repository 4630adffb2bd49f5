//! The configured MCP servers: their addresses and keys.
//!
//! One private file for each, as for model providers, so that a key stays with the address it was given for. A service
//! names a server and its address; the key never enters a definition.

use std::path::PathBuf;

use deskgate_definition::mcp_server::{McpServerError, check_name, check_url};
use deskgate_definition::{KeyPlace, McpServer, RESERVED_NAME};
use deskgate_protocol::Timestamp;
pub use deskgate_secrets::KeyChange;
use deskgate_secrets::keyring::KeyringEntry;
use deskgate_secrets::{KeyHolder, KeyPreference, Secret, SecretError, SecretFileError, SecretFileStore, StoredKey};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::sign_in::{SignInError, SignInRecord, SignInView};

/// A server's configuration, without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerConfig {
    /// The server's name in services; a part of its tools' names.
    pub name: String,
    /// The server's address.
    pub url: String,
    /// The header that carries its key; absent when it has none.
    pub header: Option<String>,
    /// Where its key, or what came of its sign-in, is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_place: Option<KeyPlace>,
    /// Its sign-in; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInView>,
}

impl McpServerConfig {
    /// The server as a definition names it. A server that the definition has already keeps its pinned list of tools.
    pub fn in_definition(&self, now: &[McpServer]) -> McpServer {
        let same = now.iter().find(|server| server.name == self.name && server.url == self.url);
        let new = || McpServer { name: self.name.clone(), url: self.url.clone(), tools_sha256: None };
        same.cloned().unwrap_or_else(new)
    }
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct McpServerFile {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<HeaderKey>,
    /// Instead of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sign_in: Option<SignInRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderKey {
    header: String,
    value: StoredKey,
}

impl KeyHolder for McpServerFile {
    fn key(&self) -> Option<&StoredKey> {
        let tokens = self.sign_in.as_ref().and_then(|sign_in| sign_in.tokens.as_ref());
        self.key.as_ref().map(|key| &key.value).or(tokens)
    }

    fn key_mut(&mut self) -> Option<&mut StoredKey> {
        let tokens = self.sign_in.as_mut().and_then(|sign_in| sign_in.tokens.as_mut());
        self.key.as_mut().map(|key| &mut key.value).or(tokens)
    }
}

/// A change of a server, or a new one.
#[derive(Clone, Debug)]
pub struct McpServerChange {
    /// The new address; `None` keeps the old one.
    pub url: Option<String>,
    /// The header for a new key; `None` is `Authorization` with the prefix `Bearer`.
    pub header: Option<String>,
    /// What happens to its key.
    pub key: KeyChange,
    /// Where its key is kept; `None` leaves it where it is, and keeps a first one at the preferred place.
    pub key_place: Option<KeyPlace>,
}

/// Why a server's connection cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Its name or its address is not valid.
    #[error(transparent)]
    Server(#[from] McpServerError),
    /// The name is reserved for an address of the management pages.
    #[error("an MCP server's name cannot be {RESERVED_NAME:?}: that is the address of the page for a new one")]
    TakenName,
    /// A new server needs an address.
    #[error("a new MCP server needs its address: --url https://…")]
    UrlMissing,
    /// Its header is not valid.
    #[error("{0:?} cannot be the header of a key: {1}")]
    Header(String, &'static str),
    /// The saved key or sign-in was given for another address.
    #[error("the saved key or sign-in was given for {0}; give the new place's key with --key-file, or --no-key")]
    KeyOfAnotherPlace(String),
    /// There is no server of this name.
    #[error("there is no MCP server {0:?} on this device; see: deskgate mcp list")]
    Unknown(String),
    /// The service was published with another address.
    #[error(
        "{name} is at {saved} now, and the service was saved with another address. Take it over: deskgate service edit \
         SERVICE --mcp {name}"
    )]
    Moved {
        /// The server's name.
        name: String,
        /// The server's address now.
        saved: String,
    },
    /// Its file cannot be parsed.
    #[error("{0} is damaged; set the server anew, with its key")]
    Damaged(PathBuf),
    /// Its key, or its file, cannot be read or written.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The address and header for a session.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) url: String,
    /// The header with the key, marked as sensitive.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    /// Whether requests carry the token of a sign-in.
    pub(super) is_signed_in: bool,
}

/// A server's sign-in, with its tokens as they are kept.
pub(super) struct OpenedSignIn {
    pub(super) url: String,
    pub(super) has_key: bool,
    pub(super) record: Option<SignInRecord>,
    pub(super) tokens: Option<Zeroizing<String>>,
}

impl From<SecretFileError> for ConnectionError {
    fn from(error: SecretFileError) -> Self {
        match error {
            SecretFileError::Unknown(name) => Self::Unknown(name),
            SecretFileError::Damaged(path) => Self::Damaged(path),
            SecretFileError::Secret(error) => Self::Secret(error),
        }
    }
}

/// The MCP servers of this device. Every call does file work and may block. Clones share their lock.
#[derive(Clone, Debug)]
pub struct Connections(SecretFileStore<McpServerFile>);

impl Connections {
    /// The servers in a folder, created on first use.
    pub fn new(folder: PathBuf) -> Self {
        Self(SecretFileStore::new(folder, |name| check_name(name).is_ok()))
    }

    /// The same, with new keys kept where the preference says.
    pub fn with_preference(self, wanted: KeyPreference) -> Self {
        Self(self.0.with_preference(wanted))
    }

    /// Moves every key to the preferred place.
    ///
    /// # Errors
    /// [`ConnectionError::Damaged`]: a file cannot be parsed. [`ConnectionError::Secret`]: a file or a key cannot be
    /// read or written. Keys moved before the failure stay moved.
    pub fn move_keys(&self) -> Result<(), ConnectionError> {
        Ok(self.0.move_keys()?)
    }

    /// The keyring entries of the servers' keys.
    pub fn entries(&self) -> Vec<KeyringEntry> {
        self.0.entries()
    }

    /// Every server, by name.
    ///
    /// # Errors
    /// [`ConnectionError::Damaged`]: a file cannot be parsed. [`ConnectionError::Secret`]: the folder or a file cannot
    /// be read. [`ConnectionError::Unknown`]: a server was removed at the same time.
    pub fn list(&self) -> Result<Vec<McpServerConfig>, ConnectionError> {
        Ok(self.0.all()?.iter().map(|(name, written)| shown(name, written)).collect())
    }

    /// Adds a server or changes it; fields that are `None` stay. A saved key never goes to another address.
    ///
    /// # Errors
    /// The change is not valid, or the file or key cannot be written.
    pub(super) fn set(&self, name: &str, change: McpServerChange) -> Result<McpServerConfig, ConnectionError> {
        check_name(name)?;
        if name == RESERVED_NAME {
            return Err(ConnectionError::TakenName);
        }
        let written = self.0.change(name, change.url.is_some(), change.key_place, |saved| change.of(saved))?;
        Ok(shown(name, &written))
    }

    /// Removes a server and its key. Services that name it can no longer run.
    ///
    /// # Errors
    /// [`ConnectionError::Unknown`]: there is no server of this name. [`ConnectionError::Secret`]: its file cannot be
    /// removed.
    pub(super) fn remove(&self, name: &str) -> Result<(), ConnectionError> {
        Ok(self.0.remove(name)?)
    }

    pub(super) fn open(&self, name: &str) -> Result<ServerConnection, ConnectionError> {
        let (McpServerFile { url, key, sign_in }, value) = self.0.open(name)?;
        let is_signed_in = sign_in.is_some();
        let (Some(HeaderKey { header, .. }), Some(value)) = (key, value) else {
            return Ok(ServerConnection { url, header: None, is_signed_in });
        };
        match (HeaderName::try_from(header), HeaderValue::try_from(value.as_str())) {
            (Ok(header), Ok(mut value)) => {
                value.set_sensitive(true);
                Ok(ServerConnection { url, header: Some((header, value)), is_signed_in })
            }
            _ => Err(ConnectionError::Damaged(self.0.file(name)?)),
        }
    }

    /// A server's sign-in for people.
    pub(super) fn sign_in(&self, name: &str) -> Result<Option<SignInView>, ConnectionError> {
        Ok(self.0.read(name)?.sign_in.as_ref().map(SignInRecord::view))
    }

    /// A server's sign-in with its tokens.
    pub(super) fn open_sign_in(&self, name: &str) -> Result<OpenedSignIn, ConnectionError> {
        let (McpServerFile { url, key, sign_in: record }, text) = self.0.open(name)?;
        let tokens = text.filter(|_| record.is_some());
        Ok(OpenedSignIn { url, has_key: key.is_some(), record, tokens })
    }

    /// Keeps a new sign-in, unless the server has another address or a key by now.
    pub(super) fn keep_sign_in(&self, name: &str, url: &str, record: SignInRecord) -> Result<(), SignInError> {
        self.0.change(name, false, None, |saved| match saved {
            None => Err(ConnectionError::Unknown(name.to_owned()).into()),
            Some(McpServerFile { url: saved, .. }) if saved != url => {
                Err(ConnectionError::Moved { name: name.to_owned(), saved }.into())
            }
            Some(McpServerFile { key: Some(_), .. }) => Err(SignInError::HasKey(name.to_owned())),
            Some(saved) => Ok(McpServerFile { sign_in: Some(record), ..saved }),
        })?;
        Ok(())
    }

    /// Changes a sign-in, unless another has taken its place.
    pub(super) fn change_sign_in(
        &self,
        name: &str,
        since: Timestamp,
        change: impl FnOnce(SignInRecord) -> SignInRecord,
    ) -> Result<(), SignInError> {
        let gone = || SignInError::SignedOut(name.to_owned());
        self.0.change(name, false, None, |saved| {
            let saved = saved.ok_or_else(gone)?;
            let record = saved.sign_in.filter(|record| record.is_of(since)).ok_or_else(gone)?;
            Ok::<_, SignInError>(McpServerFile { sign_in: Some(change(record)), ..saved })
        })?;
        Ok(())
    }

    /// Forgets a sign-in with its tokens.
    pub(super) fn forget_sign_in(&self, name: &str) -> Result<(), ConnectionError> {
        let unknown = || ConnectionError::Unknown(name.to_owned());
        let forget = |saved: Option<McpServerFile>| Ok(McpServerFile { sign_in: None, ..saved.ok_or_else(unknown)? });
        self.0.change::<ConnectionError>(name, false, None, forget)?;
        Ok(())
    }
}

impl McpServerChange {
    /// The configuration after the change.
    fn of(self, saved: Option<McpServerFile>) -> Result<McpServerFile, ConnectionError> {
        let (place, access) = saved.map(|McpServerFile { url, key, sign_in }| (url, (key, sign_in))).unzip();
        // A key takes the place of a sign-in.
        let access = access.filter(|(key, sign_in)| key.is_some() || sign_in.is_some());
        let url = self.url.as_deref().or(place.as_deref()).ok_or(ConnectionError::UrlMissing)?;
        let url = check_url(url)?;
        let moved = place.filter(|at| *at != url).map(ConnectionError::KeyOfAnotherPlace);
        let new = |key: Secret| Ok((Some(HeaderKey::new(self.header, &key)?), None));
        let (key, sign_in) = self.key.of(access, moved, new)?.unwrap_or_default();
        Ok(McpServerFile { url, key, sign_in })
    }
}

impl HeaderKey {
    fn new(header: Option<String>, key: &Secret) -> Result<Self, ConnectionError> {
        let Some(header) = header else {
            let value = StoredKey::new(format!("Bearer {}", key.reveal()));
            return Ok(Self { header: AUTHORIZATION.to_string(), value });
        };
        let wrong = |why| ConnectionError::Header(header.chars().take(100).collect(), why);
        let name: HeaderName = header.parse().map_err(|_| wrong("it is no name of a header"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("mcp-") {
            return Err(wrong("the protocol uses it itself"));
        }
        Ok(Self { header: name.to_string(), value: StoredKey::new(key.reveal()) })
    }
}

/// Headers that the protocol uses itself.
const RESERVED_HEADERS: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "origin",
    "transfer-encoding",
    "upgrade",
];

fn shown(name: &str, written: &McpServerFile) -> McpServerConfig {
    McpServerConfig {
        name: name.to_owned(),
        url: written.url.clone(),
        header: written.key.as_ref().map(|key| key.header.clone()),
        key_place: written.key().map(StoredKey::place),
        sign_in: written.sign_in.as_ref().map(SignInRecord::view),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(url: Option<&str>, key: KeyChange) -> McpServerChange {
        McpServerChange { url: url.map(str::to_owned), header: None, key, key_place: None }
    }

    fn key() -> KeyChange {
        KeyChange::Replace(Secret::new("key-canary").expect("a key"))
    }

    fn key_in(header: &str) -> McpServerChange {
        McpServerChange { header: Some(header.to_owned()), ..change(None, key()) }
    }

    #[test]
    fn a_server_is_kept_and_its_key_never_moves_to_another_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let servers = Connections::new(folder.path().join("mcp"));
        assert_eq!(servers.list().expect("no folder is no server"), []);
        assert!(matches!(servers.set("crm", change(None, key())), Err(ConnectionError::UrlMissing)));
        let place = "https://tools.example.com/mcp";
        let set = servers.set("crm", change(Some(place), key())).expect("saved");
        assert_eq!((set.url.as_str(), set.header.as_deref()), (place, Some("authorization")));
        let opened = servers.open("crm").expect("whole");
        assert!(!format!("{opened:?}").contains("canary"), "{opened:?}");
        let (_, value) = opened.header.expect("a key");
        assert_eq!(value.as_bytes(), b"Bearer key-canary");
        let moved = servers.set("crm", change(Some("https://other.example.com/mcp"), KeyChange::Keep));
        let error = moved.expect_err("the key belongs to the old place").to_string();
        assert!(error.contains("--key-file") && !error.contains("canary"), "{error}");
        let other = servers.set("crm", key_in("X-Api-Key")).expect("another header");
        assert_eq!(servers.list().expect("listed"), [other]);
        assert_eq!(servers.set("crm", change(None, KeyChange::Forget)).expect("changed").header, None);
        servers.remove("crm").expect("removed");
        assert!(matches!(servers.open("crm"), Err(ConnectionError::Unknown(_))));
    }

    #[test]
    fn only_https_is_an_address_also_on_this_computer() {
        for (text, part) in [
            ("http://tools.example.com/mcp", "https"),
            ("http://127.0.0.1:8000/mcp", "https"),
            ("http://localhost/mcp", "https"),
            ("file:///bin/sh", "https"),
            ("npx some-server", "URL"),
            ("https://me:canary@tools.example.com", "given apart"),
            ("https://tools.example.com/mcp?key=canary", "given apart"),
        ] {
            let error = check_url(text).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
        for text in ["https://127.0.0.1:8443/mcp", "https://nas.local/mcp", "https://[fd00::1]/mcp"] {
            assert!(check_url(text).is_ok(), "the owner's own network is not shut out: {text}");
        }
    }

    #[test]
    fn a_name_is_short_and_a_header_never_one_of_the_protocols_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let servers = Connections::new(folder.path().to_owned());
        for name in ["", "a_b", &"x".repeat(25)] {
            assert!(servers.set(name, change(Some("https://x.example"), KeyChange::Keep)).is_err(), "{name}");
        }
        for header in ["Host", "Origin", "Mcp-Session-Id", "content-type", "two words", ""] {
            let url = Some("https://x.example".to_owned());
            let set = servers.set("crm", McpServerChange { url, ..key_in(header) });
            assert!(matches!(set, Err(ConnectionError::Header(..))), "{header}");
        }
    }
}
