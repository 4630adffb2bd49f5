//! Lists the folders in a folder, so that a person can choose one. Names are read and nothing else: no file is opened and
//! nothing is executed.

use std::cmp::Reverse;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Folder, checks};

/// How many folders are listed.
const MAX_LISTED: usize = 200;
/// How many entries of a folder are read. One with more is no folder to choose from.
const MAX_READ: usize = 20_000;

/// A folder, and the folders in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderListing {
    /// Its path, absolute and without `..`.
    pub path: PathBuf,
    /// The folder that holds it; absent for the root.
    pub parent: Option<PathBuf>,
    /// The folders in it, by name.
    pub folders: Vec<ListedFolder>,
    /// How many more there are that could have been listed.
    pub left_out: usize,
    /// How many hidden ones are not listed.
    pub hidden: usize,
    /// Why its list cannot be read; absent if it can.
    pub unreadable: Option<String>,
    /// Why no service may have it, and what to do instead; absent if one may.
    pub refusal: Option<String>,
    /// What it is.
    pub state: Folder,
}

/// A folder in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFolder {
    /// Its name.
    pub name: String,
    /// Where it leads, if it is a symbolic link.
    pub link_to: Option<PathBuf>,
    /// Whether its own list can be read.
    pub is_readable: bool,
}

/// The path that somebody wrote: absolute, from `~`, or from a folder. An empty one is the home directory.
pub fn resolve(written: &str, within: Option<&Path>, home: Option<&Path>) -> PathBuf {
    let home = home.unwrap_or(Path::new("/"));
    let written = written.trim();
    let path = match from_home(written, Some(home)) {
        Some(path) => path,
        None => within.unwrap_or(home).join(written),
    };
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    match goes_up.then(|| path.canonicalize()) {
        Some(Ok(real)) => real,
        // What is not there is told by the path as it was written.
        _ => path.components().collect(),
    }
}

/// A path that begins at `~`, in full; `None` for any other text, and for another person's home directory.
pub fn from_home(written: &str, home: Option<&Path>) -> Option<PathBuf> {
    let rest = written.trim().strip_prefix('~')?;
    match rest.strip_prefix('/') {
        Some(below) => Some(home?.join(below.trim_start_matches('/'))),
        None if rest.is_empty() => home.map(Path::to_owned),
        None => None,
    }
}

impl FolderListing {
    /// A folder whose list cannot be read.
    pub fn unreadable(path: PathBuf, why: &str) -> Self {
        Self {
            parent: path.parent().map(Path::to_owned),
            folders: Vec::new(),
            left_out: 0,
            hidden: 0,
            unreadable: Some(why.to_owned()),
            refusal: None,
            state: Folder::Unusable { why: why.to_owned() },
            path,
        }
    }

    /// The folder at a path, for the person with this home directory. `own` is the agent's own folder. Blocks.
    pub fn of(path: &Path, with_hidden: bool, home: Option<&Path>, own: &Path) -> Self {
        let read = path.canonicalize().and_then(|real| Ok((std::fs::read_dir(path)?, real)));
        let (entries, real) = match read {
            Ok(read) => read,
            Err(error) => return Self::unreadable(path.to_owned(), &error.to_string()),
        };
        let mut found = Self::unreadable(path.to_owned(), "");
        found.unreadable = None;
        found.state = Folder::look(path);
        found.refusal = checks::refusal(&real, home, own).map(|(cause, next)| format!("{cause}: {next}"));
        let mut names = Vec::new();
        for entry in entries.take(MAX_READ).flatten() {
            // Links count as what they lead to; a name that is no text could not be saved.
            let (name, is_link) = (entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir()) || (is_link && entry.path().is_dir());
            let Some(name) = name.to_str().filter(|_| is_folder).map(str::to_owned) else { continue };
            match name.starts_with('.') && !with_hidden {
                true => found.hidden += 1,
                false => names.push((name, is_link)),
            }
        }
        names.sort_by_cached_key(|(name, _)| (Reverse(name.starts_with('.')), name.to_lowercase(), name.clone()));
        found.left_out = names.len().saturating_sub(MAX_LISTED);
        names.truncate(MAX_LISTED);
        found.folders = names.into_iter().map(|(name, is_link)| ListedFolder::at(path, name, is_link)).collect();
        found
    }
}

impl ListedFolder {
    fn at(folder: &Path, name: String, is_link: bool) -> Self {
        let place = folder.join(&name);
        let link_to = if is_link { place.read_link().ok() } else { None };
        Self { link_to, is_readable: std::fs::read_dir(&place).is_ok(), name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(path: &Path, with_hidden: bool, home: &Path) -> FolderListing {
        FolderListing::of(path, with_hidden, Some(home), &home.join(".local/share/deskgate"))
    }

    fn names(listing: &FolderListing) -> Vec<&str> {
        listing.folders.iter().map(|folder| folder.name.as_str()).collect()
    }

    #[test]
    fn folders_are_listed_by_name_links_are_said_and_files_and_hidden_ones_left_out() {
        let home = tempfile::tempdir().expect("temporary folder");
        let at = |name: &str| home.path().join(name);
        for name in ["work", "Books", ".cache", "work/inner"] {
            std::fs::create_dir(at(name)).expect("made");
        }
        std::fs::write(at("a-file"), "").expect("written");
        std::os::unix::fs::symlink(at("work"), at("linked")).expect("made");
        std::os::unix::fs::symlink(at("a-file"), at("linked-file")).expect("made");
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).expect("made");
        let shown = listing(home.path(), false, home.path());
        assert_eq!(names(&shown), ["Books", "linked", "work"]);
        assert_eq!((shown.hidden, shown.left_out), (1, 0));
        assert_eq!(shown.folders[1].link_to, Some(at("work")));
        assert_eq!(names(&listing(home.path(), true, home.path())), [".cache", "Books", "linked", "work"]);
        assert!(shown.refusal.is_some_and(|why| why.contains("home directory")));
        let inner = listing(&at("work"), false, home.path());
        assert_eq!((inner.refusal, inner.parent.as_deref()), (None, Some(home.path())));
        // A link to what no service may have is no way around that.
        std::os::unix::fs::symlink(home.path(), at("work/up")).expect("made");
        assert!(listing(&at("work/up"), false, home.path()).refusal.is_some());
    }

    #[test]
    fn what_cannot_be_read_is_said_and_many_are_bounded() {
        let home = tempfile::tempdir().expect("temporary folder");
        let missing = listing(&home.path().join("gone"), false, home.path());
        assert!(missing.unreadable.is_some() && missing.parent.as_deref() == Some(home.path()));
        std::fs::write(home.path().join("file"), "").expect("written");
        assert!(listing(&home.path().join("file"), false, home.path()).unreadable.is_some());
        for number in 0..MAX_LISTED + 3 {
            std::fs::create_dir(home.path().join(format!("folder-{number}"))).expect("made");
        }
        let many = listing(home.path(), false, home.path());
        assert_eq!((many.folders.len(), many.left_out), (MAX_LISTED, 3));
    }

    #[test]
    fn a_path_is_understood_from_home_from_the_folder_that_is_shown_and_from_the_root() {
        let home = Path::new("/home/anna");
        let at = |written: &str| resolve(written, Some(Path::new("/srv")), Some(home));
        assert_eq!(at("~"), home);
        assert_eq!(at("  ~/projects/ "), home.join("projects"));
        assert_eq!(at("~//etc"), home.join("etc"), "never out of it");
        assert_eq!(at("shop"), Path::new("/srv/shop"));
        assert_eq!(at("/etc/"), Path::new("/etc"));
        assert_eq!(at("/usr/.."), Path::new("/"));
        assert_eq!(resolve("", None, Some(home)), home);
        assert_eq!(from_home("~bob/x", Some(home)), None, "another person's home directory is not known");
        assert_eq!(from_home("/tmp", Some(home)), None);
    }
}
