//! Paths inside the working directory that tools must not touch: the agent's own folder, version control's, and those
//! that the service protects.
//!
//! The agent's folder is recognised by the identity (device and inode) of its directories, so another name, another
//! mount and a link lead to the same refusal. A directory that is not there any more counts no more: its identity, such as that
//! of the folder of a run that ended, soon belongs to a new one. Version control's folders are recognised by name, folded as some file
//! systems do; by identity, where such a file system has another name for them; and by their content.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use deskgate_definition::ProtectedPaths;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, statat};

use super::access::AccessError;
use super::resolved_path::ResolvedPath;
use super::workspace::{WorkspaceError, WorkspaceOptions};

/// The folders in which version control systems keep their state.
pub(crate) const VCS_DIRECTORIES: [&str; 4] = [".git", ".hg", ".svn", ".jj"];
/// How many levels of the agent's folder are searched for directories and for files with a second name.
const OWN_FOLDER_DEPTH: usize = 2;
/// More levels than a path can have.
const MAX_PATH_LEVELS: usize = 4096;

type FileIdentity = (u64, u64);

/// What belongs to the agent, by its identity, with the place where it was found.
type OwnPlaces = HashMap<FileIdentity, PathBuf>;

/// The protected paths below one working directory.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceGuard {
    own: OwnPlaces,
    protected: ProtectedPaths,
    /// Whether the working directory itself belongs to version control.
    within_internals: bool,
}

impl WorkspaceGuard {
    pub(crate) fn new(root: &OwnedFd, options: WorkspaceOptions<'_>) -> Result<Self, WorkspaceError> {
        let mut own = OwnPlaces::new();
        collect(options.own_folder, OWN_FOLDER_DEPTH, &mut own).map_err(WorkspaceError::Io)?;
        if lies_in(root, &own)? {
            return Err(WorkspaceError::Own);
        }
        let protected = ProtectedPaths::new(options.protected).map_err(WorkspaceError::Protected)?;
        let real = match options.expected {
            Some(expected) => expected.real_path.clone(),
            None => options.directory.canonicalize().map_err(WorkspaceError::Io)?,
        };
        let within_internals = real.iter().any(is_internal) || looks_internal(root.as_fd(), None);
        Ok(Self { own, protected, within_internals })
    }

    /// Whether a directory belongs to the agent.
    pub(crate) fn is_own_directory(&self, stat: &Stat) -> bool {
        is_own(&self.own, (stat.st_dev, stat.st_ino))
    }

    /// Whether a file outside the agent's directories is one of the agent's files by another name. It is so too when the agent has
    /// replaced the file since.
    pub(crate) fn is_own_file(&self, metadata: &Metadata) -> bool {
        metadata.nlink() > 1 && self.own.contains_key(&(metadata.dev(), metadata.ino()))
    }

    /// What is protected here beside version control's own folders.
    pub(crate) fn protected(&self) -> &ProtectedPaths {
        &self.protected
    }

    /// Whether the working directory itself belongs to version control.
    pub(crate) fn is_within_internals(&self) -> bool {
        self.within_internals
    }

    /// Checks that a tool may change the file at a resolved path that was reached without links.
    pub(crate) fn check_change(&self, resolved: &ResolvedPath<'_>) -> Result<(), AccessError> {
        let path = resolved.path();
        let by_identity = |(before, _, handle): (BorrowedFd<'_>, &OsStr, BorrowedFd<'_>)| {
            looks_internal(handle, None) || fstat(handle).is_ok_and(|stat| has_internal_name(before, &stat))
        };
        let last = resolved.name().and_then(|name| statat(resolved.directory(), name, AtFlags::SYMLINK_NOFOLLOW).ok());
        if self.within_internals
            || path.iter().any(is_internal)
            || looks_internal(resolved.root(), None)
            || resolved.way().any(by_identity)
            || last.is_some_and(|stat| has_internal_name(resolved.directory(), &stat))
        {
            return Err(AccessError::VersionControl);
        }
        // Only the first missing name is created in a directory that may have the other parts.
        if resolved.missing().first().is_some_and(|name| looks_internal(resolved.directory(), Some(name))) {
            return Err(AccessError::Repository);
        }
        if self.protected.covers(&path) { Err(AccessError::Protected) } else { Ok(()) }
    }
}

/// Whether what was created at a path completed a repository, together with a concurrent call.
pub(crate) fn completed_repository(resolved: &ResolvedPath<'_>) -> bool {
    looks_internal(resolved.directory(), None)
}

/// The identity of a folder, of the directories in it, and of its files that have a second name.
fn collect(folder: &Path, depth: usize, own: &mut OwnPlaces) -> std::io::Result<()> {
    let metadata = match folder.metadata() {
        Ok(metadata) => metadata,
        // There is nothing to protect yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    own.insert((metadata.dev(), metadata.ino()), folder.to_owned());
    let listed = match std::fs::read_dir(folder) {
        // A run that ends at the same time removes its temporary folder.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in listed {
        let entry: DirEntry = entry?;
        match entry.metadata() {
            Ok(found) if found.is_dir() && depth > 0 => collect(&entry.path(), depth - 1, own)?,
            Ok(found) if found.is_dir() || found.nlink() > 1 => {
                own.insert((found.dev(), found.ino()), entry.path());
            }
            // Removed since it was listed, or a file with only this name.
            _ => {}
        }
    }
    Ok(())
}

/// Whether this directory was found at a place of the agent, and is still there. What cannot be looked at counts as there.
fn is_own(own: &OwnPlaces, identity: FileIdentity) -> bool {
    own.get(&identity).is_some_and(|place| match place.metadata() {
        Ok(now) => (now.dev(), now.ino()) == identity,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    })
}

/// Whether a directory, or one above it, is among these.
fn lies_in(directory: &OwnedFd, these: &OwnPlaces) -> Result<bool, WorkspaceError> {
    let mut here = directory.try_clone().map_err(WorkspaceError::Io)?;
    let mut last = None;
    for _ in 0..MAX_PATH_LEVELS {
        let stat = fstat(&here)?;
        let identity = (stat.st_dev, stat.st_ino);
        if is_own(these, identity) {
            return Ok(true);
        }
        if last.replace(identity) == Some(identity) {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, "..", flags, Mode::empty())?;
    }
    Ok(false)
}

/// Whether a name is one of version control's, or equals one on a file system that folds names.
fn is_internal(name: &OsStr) -> bool {
    let folded = folded(name);
    let short = folded.split_once('~').is_some_and(|(stem, number)| {
        VCS_DIRECTORIES.iter().any(|internal| internal[1..] == *stem) && number.bytes().all(|b| b.is_ascii_digit())
    });
    short || VCS_DIRECTORIES.contains(&folded.as_str())
}

/// A name as folding file systems compare it: case, zero-width characters, the endings that Windows drops, and its
/// streams.
fn folded(name: &OsStr) -> String {
    let text = name.to_string_lossy();
    let visible = text.chars().filter(|c| !is_ignorable(*c));
    let folded: String = visible.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    folded.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_owned()
}

/// Characters that file systems with Unicode folding drop from names, besides control characters.
fn is_ignorable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Whether the file system resolves one of version control's names to this directory entry.
fn has_internal_name(directory: BorrowedFd<'_>, entry: &Stat) -> bool {
    VCS_DIRECTORIES.iter().any(|name| {
        statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|known| (known.st_dev, known.st_ino) == (entry.st_dev, entry.st_ino))
    })
}

/// Whether a directory is the inside of a Git repository under any name, by the parts that Git looks for; or would
/// become one with this additional name. The parts may be of any kind: Git follows links to them.
fn looks_internal(directory: BorrowedFd<'_>, coming: Option<&OsStr>) -> bool {
    let coming = coming.map(folded);
    let has = |name: &str| {
        coming.as_deref().is_some_and(|coming| coming.eq_ignore_ascii_case(name))
            || statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    };
    // With `commondir`, a file, the other two may be anywhere.
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_that_some_file_system_takes_for_an_internal_name_is_one() {
        for name in [
            ".git",
            ".GIT",
            ".Git ",
            ".git.",
            ".git. .",
            ".git::$INDEX_ALLOCATION",
            "GIT~1",
            ".g\u{200d}it",
            ".\u{17f}vn",
        ] {
            assert!(is_internal(OsStr::new(name)), "{name:?}");
        }
        for name in [".gitignore", ".github", "git", ".gitattributes", "git~x", "a.git", ".jjx", "hg"] {
            assert!(!is_internal(OsStr::new(name)), "{name:?}");
        }
    }
    #[test]
    fn a_new_directory_with_the_identity_of_one_that_the_agent_had_is_none_of_the_agents() {
        let place = tempfile::tempdir().expect("a folder");
        let (own, work) = (place.path().join("own"), place.path().join("work"));
        for folder in [own.join("files/run"), own.join("tmp"), work.clone()] {
            std::fs::create_dir_all(folder).expect("made");
        }
        let root = OwnedFd::from(std::fs::File::open(&work).expect("opened"));
        let guard = WorkspaceGuard::new(&root, WorkspaceOptions::of(&work, &own)).expect("apart");
        let stat = |path: &Path| rustix::fs::stat(path).expect("there");
        assert!(guard.is_own_directory(&stat(&own.join("files/run"))) && guard.is_own_directory(&stat(&own)));
        // What a file system does by chance when it gives a number out again.
        std::fs::rename(own.join("files/run"), work.join("out")).expect("moved");
        assert!(!guard.is_own_directory(&stat(&work.join("out"))));
        std::fs::create_dir(own.join("files/run")).expect("made");
        assert!(!guard.is_own_directory(&stat(&work.join("out"))));
        assert!(guard.is_own_directory(&stat(&own.join("files"))) && guard.is_own_directory(&stat(&own.join("tmp"))));
    }
}
