//! The model providers that the desktop user configured: what kind, where, and with which key.
//!
//! One file for each in a folder of its own, and its key in another beside it. A service names an
//! account; the key never enters a definition.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::remote::Account;
use crate::secrets::{self, Secret, SecretError};

/// The name that stands for the assistant without an account.
pub const SCRIPTED: &str = "scripted";

/// The kinds of model providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions API, or any server that speaks it.
    Openai,
}

impl Kind {
    /// Where it is when nothing else is said.
    pub const fn base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::Openai => "https://api.openai.com/v1",
        }
    }
}

/// An account as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// What services name it by.
    pub name: String,
    /// Which API it speaks.
    pub kind: Kind,
    /// Where.
    pub base_url: String,
    /// Whether a key is saved for it.
    pub has_key: bool,
}

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Kind,
    base_url: String,
}

/// What is to be done with the key.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// The saved one stays.
    Keep,
    /// No key any more.
    Forget,
    /// This one from now on.
    Replace(Secret),
}

/// Why an account cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Its name.
    #[error(
        "a provider's name has 1 to 32 characters from a-z, 0-9 and -; and \"{SCRIPTED}\" is the one without an account"
    )]
    Name,
    /// A new one needs a kind.
    #[error("a new provider needs its kind: anthropic or openai")]
    KindMissing,
    /// Its address.
    #[error("the base URL {0:?} cannot be used: {1}")]
    BaseUrl(String, &'static str),
    /// There is none.
    #[error("there is no provider {0:?} on this device; see: deskgate provider list")]
    Unknown(String),
    /// Its key.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Its files.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The accounts of this device. Every call does file work and may block.
#[derive(Clone, Debug)]
pub struct Accounts {
    folder: PathBuf,
}

impl Accounts {
    /// The accounts in a folder, which is made when it is first needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All, by name.
    pub fn list(&self) -> Result<Vec<Configured>, AccountError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(AccountError::Io { path: self.folder.clone(), source }),
        };
        let names = entries.flatten().filter_map(|entry| {
            Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()).filter(|name| check_name(name).is_ok())
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.iter().map(|name| self.get(name)).collect()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Result<Configured, AccountError> {
        let Written { kind, base_url } = self.read(name)?;
        Ok(Configured { name: name.to_owned(), kind, base_url, has_key: Secret::load(&self.key_file(name))?.is_some() })
    }

    /// Adds an account or changes it. Its address is checked and brought into one form.
    pub fn set(&self, name: &str, kind: Kind, base_url: &str, key: KeyChange) -> Result<Configured, AccountError> {
        check_name(name)?;
        let base_url = check_base_url(base_url)?;
        let io = |path: &PathBuf| {
            let path = path.clone();
            move |source| AccountError::Io { path, source }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(io(&self.folder))?;
        match key {
            KeyChange::Keep => {}
            KeyChange::Forget => remove(&self.key_file(name))?,
            KeyChange::Replace(key) => key.save(&self.key_file(name))?,
        }
        let file = self.file(name);
        let text = serde_json::to_vec_pretty(&Written { kind, base_url }).expect("words are JSON");
        secrets::write_private(&file, &text).map_err(io(&file))?;
        self.get(name)
    }

    /// Removes an account and its key. Services that name it cannot run any more.
    pub fn remove(&self, name: &str) -> Result<(), AccountError> {
        self.read(name)?;
        remove(&self.key_file(name))?;
        remove(&self.file(name))
    }

    /// What a call needs.
    pub(super) fn open(&self, name: &str) -> Result<(Kind, Account), AccountError> {
        let Written { kind, base_url } = self.read(name)?;
        Ok((kind, Account { base_url, key: Secret::load(&self.key_file(name))? }))
    }

    fn read(&self, name: &str) -> Result<Written, AccountError> {
        let unknown = || AccountError::Unknown(name.chars().take(100).collect());
        check_name(name).map_err(|_| unknown())?;
        let path = self.file(name);
        let text = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => unknown(),
            _ => AccountError::Io { path: path.clone(), source },
        })?;
        serde_json::from_slice(&text).map_err(|error| AccountError::Io { path, source: error.into() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn key_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }
}

fn remove(path: &PathBuf) -> Result<(), AccountError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(AccountError::Io { path: path.clone(), source })
        }
        _ => Ok(()),
    }
}

/// A name is also a part of a file's name.
pub fn check_name(name: &str) -> Result<(), AccountError> {
    let characters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let is_one = characters && (1..=32).contains(&name.len()) && name != SCRIPTED;
    if is_one { Ok(()) } else { Err(AccountError::Name) }
}

/// HTTPS, or plain HTTP to this computer itself. Returned without a slash at its end.
fn check_base_url(text: &str) -> Result<String, AccountError> {
    let wrong = |why| AccountError::BaseUrl(text.chars().take(200).collect(), why);
    let url = reqwest::Url::parse(text).map_err(|_| wrong("it is no URL, such as https://api.example.com/v1"))?;
    if !url.username().is_empty() || url.password().is_some() {
        // Not repeated: it may be a password.
        return Err(AccountError::BaseUrl("…".to_owned(), "it holds a user name or a password; a key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query or a fragment; write what stands before them"));
    }
    match (url.scheme(), url.host_str()) {
        ("https", Some(_)) => {}
        ("http", Some("localhost" | "127.0.0.1" | "[::1]")) => {}
        ("http", Some(_)) => {
            return Err(wrong("prompts and keys travel over https, or over http on this computer only"));
        }
        _ => return Err(wrong("it begins with https://")),
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_kept_with_its_key_apart_and_goes_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Accounts::new(folder.path().join("providers"));
        assert_eq!(accounts.list().expect("no folder is no account"), []);
        let key = Secret::new("sk-canary").expect("a key");
        let base_url = "https://models.example.com/v1/";
        let set = accounts.set("work", Kind::Openai, base_url, KeyChange::Replace(key)).expect("saved");
        assert_eq!((set.base_url.as_str(), set.has_key), ("https://models.example.com/v1", true));
        let changed = accounts.set("work", Kind::Openai, Kind::Openai.base_url(), KeyChange::Keep).expect("changed");
        assert!(changed.has_key, "the key stays when nothing is said about it");
        assert_eq!(accounts.list().expect("listed"), [changed]);
        let written = std::fs::read_to_string(folder.path().join("providers/work.json")).expect("there");
        assert!(!written.contains("canary"));
        assert!(!accounts.set("work", Kind::Openai, base_url, KeyChange::Forget).expect("changed").has_key);
        accounts.remove("work").expect("removed");
        assert!(matches!(accounts.get("work"), Err(AccountError::Unknown(_))));
        assert_eq!(std::fs::read_dir(folder.path().join("providers")).expect("there").count(), 0);
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
    fn a_name_is_never_a_path_and_never_the_scripted_one() {
        let accounts = Accounts::new(PathBuf::from("/nonexistent"));
        for name in ["", "..", "a/b", "A", "scripted", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
            assert!(matches!(accounts.open(name), Err(AccountError::Unknown(_))), "{name}");
        }
    }
}
