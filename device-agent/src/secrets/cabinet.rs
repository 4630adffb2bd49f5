//! A folder of private files, one for each name: what a person configured, beside the key that belongs to it.

use std::fs::DirBuilder;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::{Secret, SecretError, read_private, write_private};

/// The folder. Every call does file work and may block. Clones share their lock.
pub struct Cabinet<T> {
    folder: PathBuf,
    is_name: fn(&str) -> bool,
    changing: Arc<Mutex<()>>,
    files: PhantomData<fn() -> T>,
}

/// Why a file of the folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is none of this name.
    #[error("there is no {0:?}")]
    Unknown(String),
    /// It holds something else. What, is not repeated: it may be a key.
    #[error("{0} is damaged")]
    Damaged(PathBuf),
    /// It, or the key in it, cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What is to be done with the key in a file.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// The saved one stays.
    Keep,
    /// No key any more.
    Forget,
    /// This one from now on.
    Replace(Secret),
}

impl<T> Clone for Cabinet<T> {
    fn clone(&self) -> Self {
        let (folder, changing) = (self.folder.clone(), Arc::clone(&self.changing));
        Self { folder, is_name: self.is_name, changing, files: PhantomData }
    }
}

impl<T> std::fmt::Debug for Cabinet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cabinet").field(&self.folder).finish()
    }
}

impl<T: Serialize + DeserializeOwned> Cabinet<T> {
    /// A folder, which is made when it is first needed. A name is a part of a file's name: `is_name` lets no other in.
    pub fn new(folder: PathBuf, is_name: fn(&str) -> bool) -> Self {
        Self { folder, is_name, changing: Arc::default(), files: PhantomData }
    }

    /// Everything in it, by name.
    pub fn all(&self) -> Result<Vec<(String, T)>, FileError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(error).into()),
        };
        let names = entries.flatten().filter_map(|entry| {
            Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()).filter(|name| (self.is_name)(name))
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.into_iter().map(|name| self.read(&name).map(|file| (name, file))).collect()
    }

    /// What is saved by a name.
    pub fn read(&self, name: &str) -> Result<T, FileError> {
        let path = self.file(name)?;
        let text = read_private(&path)?.ok_or_else(|| unknown(name))?;
        serde_json::from_str(&text).map_err(|_| FileError::Damaged(path))
    }

    /// Saves what `make` makes of what was there, one change at a time. `anew`: it needs nothing of that, so that it also
    /// mends what is damaged.
    pub fn change<E: From<FileError>>(
        &self,
        name: &str,
        anew: bool,
        make: impl FnOnce(Option<T>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = match self.read(name) {
            Ok(saved) => Some(saved),
            Err(FileError::Unknown(_)) => None,
            Err(FileError::Damaged(_)) if anew => None,
            Err(error) => return Err(error.into()),
        };
        let made = make(saved)?;
        self.write(name, &made)?;
        Ok(made)
    }

    fn write(&self, name: &str, file: &T) -> Result<(), FileError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| self.failed(error))?;
        let text =
            Zeroizing::new(serde_json::to_vec_pretty(file).expect("what is configured is words, which are JSON"));
        Ok(write_private(&self.file(name)?, &text)?)
    }

    /// Removes a file, and its key with it.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        let path = self.file(name)?;
        std::fs::remove_file(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => unknown(name),
            _ => SecretError::Io { path, source }.into(),
        })
    }

    /// Where a name's file is, whether or not there is one.
    pub fn file(&self, name: &str) -> Result<PathBuf, FileError> {
        if (self.is_name)(name) { Ok(self.folder.join(format!("{name}.json"))) } else { Err(unknown(name)) }
    }

    fn failed(&self, source: io::Error) -> SecretError {
        SecretError::Io { path: self.folder.clone(), source }
    }
}

fn unknown(name: &str) -> FileError {
    FileError::Unknown(name.chars().take(100).collect())
}

/// Whether a text of so many characters at most can be the name of a file here and of something in a definition.
pub fn is_short_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

impl KeyChange {
    /// The key from now on. A saved one was given for a place and never moves: `moved` is the error where it would.
    pub fn of<K, E>(
        self,
        saved: Option<K>,
        moved: Option<E>,
        new: impl FnOnce(Secret) -> Result<K, E>,
    ) -> Result<Option<K>, E> {
        match (self, saved, moved) {
            (Self::Replace(key), ..) => new(key).map(Some),
            (Self::Forget, ..) | (Self::Keep, None, _) => Ok(None),
            (Self::Keep, Some(_), Some(moved)) => Err(moved),
            (Self::Keep, saved, None) => Ok(saved),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn cabinet(folder: PathBuf) -> Cabinet<Vec<u32>> {
        Cabinet::new(folder, |name| is_short_name(name, 8))
    }

    fn set(cabinet: &Cabinet<Vec<u32>>, name: &str, anew: bool, file: &[u32]) -> Result<Vec<u32>, FileError> {
        cabinet.change(name, anew, |_| Ok(file.to_vec()))
    }

    #[test]
    fn what_is_saved_comes_back_by_name_and_only_its_owner_can_read_it() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("made/when/needed");
        let cabinet = cabinet(folder.clone());
        assert!(cabinet.all().expect("no folder is no file").is_empty());
        set(&cabinet, "b", false, &[2]).expect("saved");
        set(&cabinet, "a", false, &[1]).expect("saved");
        std::fs::write(folder.join("Other.json"), "{").expect("no file of ours");
        assert_eq!(cabinet.all().expect("listed"), [("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
        let mode = |path: PathBuf| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(folder.clone()), mode(folder.join("a.json"))), (0o700, 0o600));
        cabinet.remove("a").expect("removed");
        assert!(matches!(cabinet.remove("a"), Err(FileError::Unknown(name)) if name == "a"));
        assert!(matches!(cabinet.read("a"), Err(FileError::Unknown(_))));
    }

    #[test]
    fn a_name_is_never_a_path() {
        let home = tempfile::tempdir().expect("a folder");
        let cabinet = cabinet(home.path().join("files"));
        std::fs::write(home.path().join("x.json"), "[1]").expect("beside it");
        for name in ["", "..", "../x", "a/b", "A", "a.b", "a_b", "too-long-a-name"] {
            assert!(matches!(cabinet.read(name), Err(FileError::Unknown(_))), "{name}");
            assert!(matches!(cabinet.remove(name), Err(FileError::Unknown(_))), "{name}");
            assert!(matches!(set(&cabinet, name, true, &[1]), Err(FileError::Unknown(_))), "{name}");
        }
    }

    #[test]
    fn a_damaged_file_is_named_without_its_content_and_mended_only_by_what_needs_nothing_of_it() {
        let home = tempfile::tempdir().expect("a folder");
        let cabinet = cabinet(home.path().to_owned());
        write_private(&home.path().join("work.json"), b"[ sk-canary").expect("written");
        let error = cabinet.all().expect_err("damaged").to_string();
        assert!(error.contains("work.json") && !error.contains("canary"), "{error}");
        assert!(matches!(set(&cabinet, "work", false, &[1]), Err(FileError::Damaged(_))));
        assert_eq!(set(&cabinet, "work", true, &[1]).expect("anew"), [1]);
    }

    #[test]
    fn no_change_of_many_at_once_is_lost() {
        let home = tempfile::tempdir().expect("a folder");
        let cabinet = cabinet(home.path().to_owned());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let cabinet = cabinet.clone();
                scope.spawn(move || {
                    for _ in 0..25 {
                        let longer = |saved: Option<Vec<u32>>| {
                            let mut saved = saved.unwrap_or_default();
                            saved.push(0);
                            Ok::<_, FileError>(saved)
                        };
                        cabinet.change("work", false, longer).expect("saved");
                    }
                });
            }
        });
        assert_eq!(cabinet.read("work").expect("whole").len(), 100);
    }

    #[test]
    fn a_saved_key_never_moves_to_another_place() {
        let key = || KeyChange::Replace(Secret::new("new").expect("a key"));
        let new = |key: Secret| Ok::<_, &str>(key.reveal().to_owned());
        let saved = || Some("saved".to_owned());
        assert_eq!(KeyChange::Keep.of(saved(), None, new), Ok(saved()));
        assert_eq!(KeyChange::Keep.of(saved(), Some("moved"), new), Err("moved"));
        assert_eq!(KeyChange::Keep.of(None, Some("moved"), new), Ok(None), "there is none to move");
        assert_eq!(KeyChange::Forget.of(saved(), Some("moved"), new), Ok(None));
        assert_eq!(key().of(saved(), Some("moved"), new), Ok(Some("new".to_owned())));
    }
}
