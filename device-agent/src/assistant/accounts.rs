//! The model providers that the desktop user configured: what kind, where, and with which key.
//!
//! One private file for each, so that a key is never beside another address than the one it was given for.
//! A service names an account; the key never enters a definition.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

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
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Kind,
    base_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Zeroizing<String>>,
}

/// A change of an account, or a new one.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which API it speaks; `None` keeps it.
    pub kind: Option<Kind>,
    /// Where; `None` keeps it, or takes the kind's own address.
    pub base_url: Option<String>,
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
    /// The saved key was given for another place.
    #[error("the saved key was given for {0}; give the new place's key with --key-file, or --no-key")]
    KeyOfAnotherPlace(String),
    /// There is none.
    #[error("there is no provider {0:?} on this device; see: deskgate provider list")]
    Unknown(String),
    /// Its file says something else.
    #[error("{0} is damaged; set the provider anew, with its key")]
    Damaged(PathBuf),
    /// Its key, or its file.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The accounts of this device. Every call does file work and may block. Clones share their lock.
#[derive(Clone, Debug)]
pub struct Accounts {
    folder: PathBuf,
    changing: Arc<Mutex<()>>,
}

impl Accounts {
    /// The accounts in a folder, which is made when it is first needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, changing: Arc::default() }
    }

    /// All, by name.
    pub fn list(&self) -> Result<Vec<Configured>, AccountError> {
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

    /// Adds an account or changes it; what is not said stays. A saved key never moves to another place.
    pub fn set(&self, name: &str, change: Change) -> Result<Configured, AccountError> {
        check_name(name)?;
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = match self.read(name) {
            Ok(saved) => Some(saved),
            Err(AccountError::Unknown(_)) => None,
            // Said anew as a whole, it needs nothing of what was there.
            Err(AccountError::Damaged(_)) if change.kind.is_some() => None,
            Err(error) => return Err(error),
        };
        let kind = change.kind.or(saved.as_ref().map(|saved| saved.kind)).ok_or(AccountError::KindMissing)?;
        let (place, key) = saved.map(|Written { kind, base_url, key }| ((kind, base_url), key)).unzip();
        let kept = || place.as_ref().filter(|(saved, _)| *saved == kind).map(|(_, base_url)| base_url.clone());
        let base_url = change.base_url.or_else(kept).unwrap_or(kind.base_url().to_owned());
        let base_url = check_base_url(&base_url)?;
        let key = match (change.key, key.flatten()) {
            (KeyChange::Replace(key), _) => Some(Zeroizing::new(key.reveal().to_owned())),
            (KeyChange::Forget, _) | (KeyChange::Keep, None) => None,
            (KeyChange::Keep, Some(key)) => match place {
                Some((saved, at)) if saved != kind || at != base_url => {
                    return Err(AccountError::KeyOfAnotherPlace(at));
                }
                _ => Some(key),
            },
        };
        let written = Written { kind, base_url, key };
        let mut folder = std::fs::DirBuilder::new();
        let made = folder.recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|source| SecretError::Io { path: self.folder.clone(), source })?;
        let text = Zeroizing::new(serde_json::to_vec_pretty(&written).expect("words are JSON"));
        secrets::write_private(&self.file(name), &text)?;
        Ok(shown(name, &written))
    }

    /// Removes an account and its key. Services that name it cannot run any more.
    pub fn remove(&self, name: &str) -> Result<(), AccountError> {
        check_name(name).map_err(|_| unknown(name))?;
        let path = self.file(name);
        std::fs::remove_file(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => unknown(name),
            _ => SecretError::Io { path, source }.into(),
        })
    }

    /// What a call needs.
    pub(super) fn open(&self, name: &str) -> Result<(Kind, Account), AccountError> {
        let Written { kind, base_url, key } = self.read(name)?;
        let key = key.map(|key| Secret::new(&key)).transpose()?;
        Ok((kind, Account { base_url, key }))
    }

    fn read(&self, name: &str) -> Result<Written, AccountError> {
        check_name(name).map_err(|_| unknown(name))?;
        let path = self.file(name);
        let text = secrets::read_private(&path)?.ok_or_else(|| unknown(name))?;
        // Not shown: it may be a key that does not stand where it should.
        serde_json::from_str(&text).map_err(|_| AccountError::Damaged(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

fn shown(name: &str, written: &Written) -> Configured {
    let Written { kind, base_url, key } = written;
    Configured { name: name.to_owned(), kind: *kind, base_url: base_url.clone(), has_key: key.is_some() }
}

fn unknown(name: &str) -> AccountError {
    AccountError::Unknown(name.chars().take(100).collect())
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

    fn change(kind: Option<Kind>, base_url: Option<&str>, key: KeyChange) -> Change {
        Change { kind, base_url: base_url.map(str::to_owned), key }
    }

    fn key() -> KeyChange {
        KeyChange::Replace(Secret::new("sk-canary").expect("a key"))
    }

    #[test]
    fn an_account_is_kept_and_its_key_never_moves_to_another_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Accounts::new(folder.path().join("providers"));
        assert_eq!(accounts.list().expect("no folder is no account"), []);
        let keep = || KeyChange::Keep;
        assert!(matches!(accounts.set("work", change(None, None, key())), Err(AccountError::KindMissing)));
        let place = "https://models.example.com/v1/";
        let set = accounts.set("work", change(Some(Kind::Openai), Some(place), key())).expect("saved");
        assert_eq!((set.base_url.as_str(), set.has_key), ("https://models.example.com/v1", true));
        assert_eq!(accounts.set("work", change(None, Some(place), keep())).expect("the same"), set);
        for elsewhere in [
            change(Some(Kind::Anthropic), None, keep()),
            change(Some(Kind::Anthropic), Some(place), keep()),
            change(None, Some("https://other.example.com/v1"), keep()),
        ] {
            let error = accounts.set("work", elsewhere).expect_err("the key belongs to the old place").to_string();
            assert!(error.contains("--key-file") && !error.contains("canary"), "{error}");
        }
        assert_eq!(accounts.list().expect("listed"), [set]);
        let moved = accounts.set("work", change(Some(Kind::Anthropic), None, key())).expect("with a key of its own");
        assert_eq!((moved.base_url.as_str(), moved.has_key), ("https://api.anthropic.com", true));
        assert!(!accounts.set("work", change(None, None, KeyChange::Forget)).expect("changed").has_key);
        accounts.remove("work").expect("removed");
        assert!(matches!(accounts.remove("work"), Err(AccountError::Unknown(_))));
        assert_eq!(std::fs::read_dir(folder.path().join("providers")).expect("there").count(), 0);
    }

    #[test]
    fn a_damaged_file_is_named_without_its_content_and_can_be_set_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Accounts::new(folder.path().to_owned());
        secrets::write_private(&folder.path().join("work.json"), b"{ sk-canary").expect("written");
        let error = accounts.list().expect_err("damaged").to_string();
        assert!(error.contains("work.json") && !error.contains("canary"), "{error}");
        assert!(accounts.set("work", change(None, None, key())).is_err(), "of what kind nobody knows any more");
        assert!(accounts.set("work", change(Some(Kind::Openai), None, key())).expect("anew").has_key);
        assert_eq!(accounts.list().expect("sound").len(), 1);
    }

    #[test]
    fn changes_at_once_leave_one_of_them_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let accounts = Accounts::new(folder.path().to_owned());
        std::thread::scope(|scope| {
            for kind in [Kind::Openai, Kind::Anthropic] {
                let accounts = accounts.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        let key = KeyChange::Replace(Secret::new(kind.base_url()).expect("visible characters"));
                        accounts.set("work", change(Some(kind), None, key)).expect("saved");
                        let (kind, account) = accounts.open("work").expect("whole");
                        assert_eq!(account.key.expect("there").reveal(), kind.base_url());
                    }
                });
            }
        });
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
