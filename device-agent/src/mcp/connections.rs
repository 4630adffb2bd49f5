//! The MCP servers that the desktop user configured: where, and with which key.
//!
//! One private file for each, as for model providers, so that a key is never beside another address than the one it was
//! given for. A service names a server and its address; the key never enters a definition.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::secrets::{self, Secret, SecretError};

/// The most bytes of an address.
const URL_LIMIT: usize = 2000;

/// A server as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// What services name it by; a part of its tools' names.
    pub name: String,
    /// Where.
    pub url: String,
    /// The header that its key travels in; absent when it has none.
    pub header: Option<String>,
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Key>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    header: String,
    value: Zeroizing<String>,
}

/// A change of a server, or a new one.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where; `None` keeps it.
    pub url: Option<String>,
    /// What happens to its key.
    pub key: KeyChange,
}

/// What is to be done with the key.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// The saved one stays.
    Keep,
    /// No key any more.
    Forget,
    /// This one from now on.
    Replace {
        /// The header it travels in; `None` is `Authorization`, behind the word `Bearer`.
        header: Option<String>,
        /// The key.
        key: Secret,
    },
}

/// Why a server's connection cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Its name.
    #[error("an MCP server's name has 1 to 24 characters from a-z, 0-9 and -")]
    Name,
    /// A new one needs an address.
    #[error("a new MCP server needs its address: --url https://…")]
    UrlMissing,
    /// Its address.
    #[error("the address {0:?} cannot be used: {1}")]
    Url(String, &'static str),
    /// Its header.
    #[error("{0:?} cannot be the header of a key: {1}")]
    Header(String, &'static str),
    /// The saved key was given for another place.
    #[error("the saved key was given for {0}; give the new place's key with --key-file, or --no-key")]
    KeyOfAnotherPlace(String),
    /// There is none.
    #[error("there is no MCP server {0:?} on this device; see: deskgate mcp list")]
    Unknown(String),
    /// The service was published with another address.
    #[error(
        "{name} is at {saved} now, and the service was saved with another address. Take it over: deskgate service edit \
         SERVICE --mcp {name}"
    )]
    Moved {
        /// Which.
        name: String,
        /// Where it is now.
        saved: String,
    },
    /// Its file says something else.
    #[error("{0} is damaged; set the server anew, with its key")]
    Damaged(PathBuf),
    /// Its key, or its file.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What a session needs.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) url: String,
    /// Marked as sensitive.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

/// The MCP servers of this device. Every call does file work and may block. Clones share their lock.
#[derive(Clone, Debug)]
pub struct Connections {
    folder: PathBuf,
    changing: Arc<Mutex<()>>,
}

impl Connections {
    /// The servers in a folder, which is made when it is first needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, changing: Arc::default() }
    }

    /// All, by name.
    pub fn list(&self) -> Result<Vec<Configured>, ConnectionError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(SecretError::Io { path: self.folder.clone(), source }.into()),
        };
        let names = entries.flatten().filter_map(|entry| {
            Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()).filter(|name| check_name(name).is_ok())
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.into_iter().map(|name| Ok(shown(&name, &self.read(&name)?))).collect()
    }

    /// Adds a server or changes it; what is not said stays. A saved key never moves to another place.
    pub fn set(&self, name: &str, change: Change) -> Result<Configured, ConnectionError> {
        check_name(name)?;
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = match self.read(name) {
            Ok(saved) => Some(saved),
            Err(ConnectionError::Unknown(_)) => None,
            // Said anew as a whole, it needs nothing of what was there.
            Err(ConnectionError::Damaged(_)) if change.url.is_some() => None,
            Err(error) => return Err(error),
        };
        let (place, saved_key) = saved.map(|Written { url, key }| (url, key)).unzip();
        let url = change.url.as_deref().or(place.as_deref()).ok_or(ConnectionError::UrlMissing)?;
        let url = check_url(url)?;
        let key = match (change.key, saved_key.flatten()) {
            (KeyChange::Replace { header, key }, _) => Some(Key::new(header, &key)?),
            (KeyChange::Forget, _) | (KeyChange::Keep, None) => None,
            (KeyChange::Keep, Some(key)) => match place {
                Some(at) if at != url => return Err(ConnectionError::KeyOfAnotherPlace(at)),
                _ => Some(key),
            },
        };
        let written = Written { url, key };
        let mut folder = std::fs::DirBuilder::new();
        let made = folder.recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|source| SecretError::Io { path: self.folder.clone(), source })?;
        let text = Zeroizing::new(serde_json::to_vec_pretty(&written).expect("words are JSON"));
        secrets::write_private(&self.file(name), &text)?;
        Ok(shown(name, &written))
    }

    /// Removes a server and its key. Services that name it cannot run any more.
    pub fn remove(&self, name: &str) -> Result<(), ConnectionError> {
        check_name(name).map_err(|_| unknown(name))?;
        let path = self.file(name);
        std::fs::remove_file(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => unknown(name),
            _ => SecretError::Io { path, source }.into(),
        })
    }

    pub(super) fn open(&self, name: &str) -> Result<Connection, ConnectionError> {
        let Written { url, key } = self.read(name)?;
        let header = key.map(|Key { header, value }| {
            let wrong = |_| ConnectionError::Damaged(self.file(name));
            let header = HeaderName::try_from(header).map_err(|_| wrong(()))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong(()))?;
            value.set_sensitive(true);
            Ok::<_, ConnectionError>((header, value))
        });
        Ok(Connection { url, header: header.transpose()? })
    }

    fn read(&self, name: &str) -> Result<Written, ConnectionError> {
        check_name(name).map_err(|_| unknown(name))?;
        let path = self.file(name);
        let text = secrets::read_private(&path)?.ok_or_else(|| unknown(name))?;
        // Not shown: it may be a key that does not stand where it should.
        serde_json::from_str(&text).map_err(|_| ConnectionError::Damaged(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

impl Key {
    fn new(header: Option<String>, key: &Secret) -> Result<Self, ConnectionError> {
        let Some(header) = header else {
            let value = Zeroizing::new(format!("Bearer {}", key.reveal()));
            return Ok(Self { header: AUTHORIZATION.to_string(), value });
        };
        let wrong = |why| ConnectionError::Header(header.chars().take(100).collect(), why);
        let name: HeaderName = header.parse().map_err(|_| wrong("it is no name of a header"))?;
        if TAKEN.contains(&name.as_str()) || name.as_str().starts_with("mcp-") {
            return Err(wrong("the protocol uses it itself"));
        }
        Ok(Self { header: name.to_string(), value: Zeroizing::new(key.reveal().to_owned()) })
    }
}

/// Headers that a request has for reasons of its own.
const TAKEN: [&str; 8] =
    ["accept", "connection", "content-length", "content-type", "host", "last-event-id", "transfer-encoding", "upgrade"];

fn shown(name: &str, written: &Written) -> Configured {
    let header = written.key.as_ref().map(|key| key.header.clone());
    Configured { name: name.to_owned(), url: written.url.clone(), header }
}

fn unknown(name: &str) -> ConnectionError {
    ConnectionError::Unknown(name.chars().take(100).collect())
}

/// A name is a part of a file's name and of the names of tools.
pub fn check_name(name: &str) -> Result<(), ConnectionError> {
    let characters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if characters && (1..=24).contains(&name.len()) { Ok(()) } else { Err(ConnectionError::Name) }
}

/// HTTPS and nothing else, also on this computer. Returned as it is used.
pub fn check_url(text: &str) -> Result<String, ConnectionError> {
    let wrong = |why| ConnectionError::Url(text.chars().take(200).collect(), why);
    let url = reqwest::Url::parse(text).map_err(|_| wrong("it is no URL, such as https://tools.example.com/mcp"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // Not repeated: it may be a password.
        return Err(ConnectionError::Url("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        // Not repeated either: keys are often put there.
        let why = "it has a query or a fragment; a key is given apart";
        return Err(ConnectionError::Url("…".to_owned(), why));
    }
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(wrong("only MCP servers over https:// can be published; programs (stdio) and plain http cannot"));
    }
    if text.len() > URL_LIMIT { Err(wrong("it is too long")) } else { Ok(url.to_string()) }
}

/// Whether an address is on this computer.
pub(super) fn is_here(url: &str) -> bool {
    let url = reqwest::Url::parse(url);
    url.is_ok_and(|url| matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(url: Option<&str>, key: KeyChange) -> Change {
        Change { url: url.map(str::to_owned), key }
    }

    fn key(header: Option<&str>) -> KeyChange {
        let key = Secret::new("key-canary").expect("a key");
        KeyChange::Replace { header: header.map(str::to_owned), key }
    }

    #[test]
    fn a_server_is_kept_and_its_key_never_moves_to_another_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let servers = Connections::new(folder.path().join("mcp"));
        assert_eq!(servers.list().expect("no folder is no server"), []);
        assert!(matches!(servers.set("crm", change(None, key(None))), Err(ConnectionError::UrlMissing)));
        let place = "https://tools.example.com/mcp";
        let set = servers.set("crm", change(Some(place), key(None))).expect("saved");
        assert_eq!((set.url.as_str(), set.header.as_deref()), (place, Some("authorization")));
        let opened = servers.open("crm").expect("whole");
        assert!(!format!("{opened:?}").contains("canary"), "{opened:?}");
        let (_, value) = opened.header.expect("a key");
        assert_eq!(value.as_bytes(), b"Bearer key-canary");
        let moved = servers.set("crm", change(Some("https://other.example.com/mcp"), KeyChange::Keep));
        let error = moved.expect_err("the key belongs to the old place").to_string();
        assert!(error.contains("--key-file") && !error.contains("canary"), "{error}");
        let other = servers.set("crm", change(None, key(Some("X-Api-Key")))).expect("another header");
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
        assert!(is_here("https://localhost:8443/mcp") && is_here("https://[::1]/"));
        assert!(!is_here("https://localhost.example.com/mcp") && !is_here("https://nas.local/mcp"));
    }

    #[test]
    fn a_name_is_never_a_path_and_a_header_never_one_of_the_protocols_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let servers = Connections::new(folder.path().to_owned());
        for name in ["", "..", "a/b", "A", "a_b", &"x".repeat(25)] {
            assert!(matches!(servers.open(name), Err(ConnectionError::Unknown(_))), "{name}");
            assert!(servers.set(name, change(Some("https://x.example"), KeyChange::Keep)).is_err(), "{name}");
        }
        for header in ["Host", "Mcp-Session-Id", "content-type", "two words", ""] {
            let set = servers.set("crm", change(Some("https://x.example"), key(Some(header))));
            assert!(matches!(set, Err(ConnectionError::Header(..))), "{header}");
        }
    }
}
