//! A folder of private files, one for each name: configured things with their keys.

use std::fs::DirBuilder;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use deskgate_definition::KeyPlace;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::keyring::{KeyringEntry, KeyringError};
use super::{KeyHolder, KeyPreference, Secret, SecretError, StoredKey, read_private, write_private};

/// The folder of files. Every call does file work and may block. Clones share their lock.
pub struct SecretFileStore<T> {
    folder: PathBuf,
    is_name: fn(&str) -> bool,
    changing: Arc<Mutex<()>>,
    wanted: KeyPreference,
    files: PhantomData<fn() -> T>,
}

/// Why a file of the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// No file has this name.
    #[error("there is no {0:?}")]
    Unknown(String),
    /// The file cannot be parsed. Its content is not repeated: it may be a key.
    #[error("{0} is damaged")]
    Damaged(PathBuf),
    /// The file, or the key in it, cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What happens to the key in a file.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// The saved key stays.
    Keep,
    /// The key is removed.
    Forget,
    /// This key replaces the saved one.
    Replace(Secret),
}

impl<T> Clone for SecretFileStore<T> {
    fn clone(&self) -> Self {
        let (folder, changing) = (self.folder.clone(), Arc::clone(&self.changing));
        Self { folder, is_name: self.is_name, changing, wanted: self.wanted.clone(), files: PhantomData }
    }
}

impl<T> std::fmt::Debug for SecretFileStore<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cabinet").field(&self.folder).finish()
    }
}

impl<T: Serialize + DeserializeOwned + KeyHolder> SecretFileStore<T> {
    /// A folder, created on first use. `is_name` decides which names are valid: a name is a part of a file's name.
    pub fn new(folder: PathBuf, is_name: fn(&str) -> bool) -> Self {
        Self { folder, is_name, changing: Arc::default(), wanted: KeyPreference::default(), files: PhantomData }
    }

    /// The same folder, with new keys kept where the preference says.
    pub fn with_preference(self, wanted: KeyPreference) -> Self {
        Self { wanted, ..self }
    }

    /// Every entry, by name.
    ///
    /// # Errors
    /// The folder or one of its files cannot be read or parsed.
    pub fn all(&self) -> Result<Vec<(String, T)>, SecretFileError> {
        self.names()?.into_iter().map(|name| self.read(&name).map(|file| (name, file))).collect()
    }

    fn names(&self) -> Result<Vec<String>, SecretFileError> {
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
        Ok(names)
    }

    /// The entry of a name.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read or parsed.
    pub fn read(&self, name: &str) -> Result<T, SecretFileError> {
        let path = self.file(name)?;
        let text = read_private(&path)?.ok_or_else(|| unknown(name))?;
        serde_json::from_str(&text).map_err(|_| SecretFileError::Damaged(path))
    }

    /// The entry of a name, with its key.
    ///
    /// # Errors
    /// As [`Self::read`]; or the key cannot be read.
    pub fn open(&self, name: &str) -> Result<(T, Option<Zeroizing<String>>), SecretFileError> {
        let reveal = |file: T| match file.key().map(StoredKey::reveal).transpose() {
            Ok(key) => Ok((file, key)),
            Err(error) => Err(SecretFileError::from(error)),
        };
        match reveal(self.read(name)?) {
            // The key may have moved between the two reads.
            Err(SecretFileError::Secret(SecretError::Keyring(KeyringError::Missing))) => reveal(self.read(name)?),
            opened => opened,
        }
    }

    /// Replaces an entry by what `make` returns for the old one; one change at a time. Its key is kept at `place`; if
    /// that is `None`, where the previous key was, else at the preferred place. `anew`: `make` needs no old entry, so a
    /// damaged file can be replaced.
    ///
    /// # Errors
    /// The file or the key cannot be read or written, or `make` refuses.
    pub fn change<E: From<SecretFileError>>(
        &self,
        name: &str,
        anew: bool,
        place: Option<KeyPlace>,
        make: impl FnOnce(Option<T>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = match self.read(name) {
            Ok(saved) => Some(saved),
            Err(SecretFileError::Unknown(_)) => None,
            Err(SecretFileError::Damaged(_)) if anew => None,
            Err(error) => return Err(error.into()),
        };
        let before = saved.as_ref().and_then(entry);
        let place = place.or_else(|| Some(saved.as_ref()?.key()?.place())).unwrap_or_else(|| self.wanted.get());
        let mut made = make(saved)?;
        if let Some(key) = made.key_mut() {
            key.move_to(place).map_err(SecretFileError::from)?;
        }
        let written = self.write(name, &made);
        // The old copy of a key is deleted last: an interrupted change leaves the key in two places, never in none.
        let unused = if written.is_ok() { before } else { entry(&made) };
        self.forget_unless_named(name, unused);
        written?;
        Ok(made)
    }

    /// Deletes a keyring entry that a file had or was to have, unless the file names it now. Keeps it if the file
    /// cannot be read.
    fn forget_unless_named(&self, name: &str, unused: Option<KeyringEntry>) {
        let Some(unused) = unused else { return };
        let named = match self.read(name) {
            Ok(file) => entry(&file),
            Err(SecretFileError::Unknown(_)) => None,
            Err(_) => return,
        };
        if named.as_ref() != Some(&unused) {
            unused.forget();
        }
    }

    /// Moves every key to the preferred place, one after the other. Keys moved before a failure stay moved.
    ///
    /// # Errors
    /// A file or a key cannot be read or written.
    pub fn move_keys(&self) -> Result<(), SecretFileError> {
        for name in self.names()? {
            let wanted = Some(self.wanted.get());
            match self.change::<SecretFileError>(&name, false, wanted, |saved| saved.ok_or_else(|| unknown(&name))) {
                // The file was removed in the meantime.
                Ok(_) | Err(SecretFileError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The keyring entries of its keys, as far as its files can be read.
    pub fn entries(&self) -> Vec<KeyringEntry> {
        let names = self.names().unwrap_or_default();
        names.iter().filter_map(|name| entry(&self.read(name).ok()?)).collect()
    }

    fn write(&self, name: &str, file: &T) -> Result<(), SecretFileError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| self.failed(error))?;
        let text =
            Zeroizing::new(serde_json::to_vec_pretty(file).expect("what is configured is words, which are JSON"));
        Ok(write_private(&self.file(name)?, &text)?)
    }

    /// Removes a file with its key.
    ///
    /// # Errors
    /// There is no such file, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), SecretFileError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.file(name)?;
        let unused = self.read(name).ok().and_then(|file| entry(&file));
        std::fs::remove_file(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => unknown(name),
            _ => SecretFileError::from(SecretError::Io { path, source }),
        })?;
        self.forget_unless_named(name, unused);
        Ok(())
    }

    /// The path of a name's file, whether or not it exists.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn file(&self, name: &str) -> Result<PathBuf, SecretFileError> {
        if (self.is_name)(name) { Ok(self.folder.join(format!("{name}.json"))) } else { Err(unknown(name)) }
    }

    fn failed(&self, source: io::Error) -> SecretError {
        SecretError::Io { path: self.folder.clone(), source }
    }
}

/// The keyring entry of a file's key.
fn entry(file: &impl KeyHolder) -> Option<KeyringEntry> {
    file.key().and_then(StoredKey::entry).cloned()
}

fn unknown(name: &str) -> SecretFileError {
    SecretFileError::Unknown(name.chars().take(100).collect())
}

impl KeyChange {
    /// The key after a change. A saved key belongs to one address and is never sent to another: `moved` is the error
    /// for that case.
    ///
    /// # Errors
    /// `moved`, if there is a saved key and it was to stay; or the error of `new`.
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

    use deskgate_definition::is_short_name;

    use super::*;

    impl KeyHolder for Vec<u32> {
        fn key(&self) -> Option<&StoredKey> {
            None
        }

        fn key_mut(&mut self) -> Option<&mut StoredKey> {
            None
        }
    }

    fn store(folder: PathBuf) -> SecretFileStore<Vec<u32>> {
        SecretFileStore::new(folder, |name| is_short_name(name, 8))
    }

    fn set(
        store: &SecretFileStore<Vec<u32>>,
        name: &str,
        anew: bool,
        file: &[u32],
    ) -> Result<Vec<u32>, SecretFileError> {
        store.change(name, anew, None, |_| Ok(file.to_vec()))
    }

    #[test]
    fn what_is_saved_comes_back_by_name_and_only_its_owner_can_read_it() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("made/when/needed");
        let store = store(folder.clone());
        assert!(store.all().expect("no folder is no file").is_empty());
        set(&store, "b", false, &[2]).expect("saved");
        set(&store, "a", false, &[1]).expect("saved");
        std::fs::write(folder.join("Other.json"), "{").expect("no file of ours");
        assert_eq!(store.all().expect("listed"), [("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
        let mode = |path: PathBuf| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(folder.clone()), mode(folder.join("a.json"))), (0o700, 0o600));
        store.remove("a").expect("removed");
        assert!(matches!(store.remove("a"), Err(SecretFileError::Unknown(name)) if name == "a"));
        assert!(matches!(store.read("a"), Err(SecretFileError::Unknown(_))));
    }

    #[test]
    fn a_name_is_never_a_path() {
        let home = tempfile::tempdir().expect("a folder");
        let store = store(home.path().join("files"));
        std::fs::write(home.path().join("x.json"), "[1]").expect("beside it");
        for name in ["", "..", "../x", "a/b", "A", "a.b", "a_b", "too-long-a-name"] {
            assert!(matches!(store.read(name), Err(SecretFileError::Unknown(_))), "{name}");
            assert!(matches!(store.remove(name), Err(SecretFileError::Unknown(_))), "{name}");
            assert!(matches!(set(&store, name, true, &[1]), Err(SecretFileError::Unknown(_))), "{name}");
        }
    }

    #[test]
    fn a_damaged_file_is_named_without_its_content_and_mended_only_by_what_needs_nothing_of_it() {
        let home = tempfile::tempdir().expect("a folder");
        let store = store(home.path().to_owned());
        write_private(&home.path().join("work.json"), b"[ sk-canary").expect("written");
        let error = store.all().expect_err("damaged").to_string();
        assert!(error.contains("work.json") && !error.contains("canary"), "{error}");
        assert!(matches!(set(&store, "work", false, &[1]), Err(SecretFileError::Damaged(_))));
        assert_eq!(set(&store, "work", true, &[1]).expect("anew"), [1]);
    }

    #[test]
    fn no_change_of_many_at_once_is_lost() {
        let home = tempfile::tempdir().expect("a folder");
        let store = store(home.path().to_owned());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let store = store.clone();
                scope.spawn(move || {
                    for _ in 0..25 {
                        let longer = |saved: Option<Vec<u32>>| {
                            let mut saved = saved.unwrap_or_default();
                            saved.push(0);
                            Ok::<_, SecretFileError>(saved)
                        };
                        store.change("work", false, None, longer).expect("saved");
                    }
                });
            }
        });
        assert_eq!(store.read("work").expect("whole").len(), 100);
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
