//! Examines a working directory from outside, before anything is tested in it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A folder that a service names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Folder {
    /// The folder exists.
    There {
        /// The Git repository that contains it, or that it is; absent if there is none.
        repository: Option<PathBuf>,
    },
    /// It is no folder.
    NoFolder,
    /// It cannot be used.
    Unusable {
        /// Why, in the system's words.
        why: String,
    },
}

impl Folder {
    /// Examines a folder. Blocks. Git itself is not called: it would run programs from the repository's own
    /// configuration, so uncommitted changes are unknown.
    pub fn look(path: &Path) -> Self {
        match path.metadata() {
            Err(error) => Self::Unusable { why: error.to_string() },
            Ok(found) if !found.is_dir() => Self::NoFolder,
            Ok(_) => {
                let repository = path.ancestors().find(|folder| is_repository(folder));
                Self::There { repository: repository.map(Path::to_owned) }
            }
        }
    }

    /// The result in a few words.
    pub fn words(&self, path: &Path) -> String {
        match self {
            Self::There { repository: None } => "exists, no Git repository: changes have no history".to_owned(),
            Self::There { repository: Some(top) } if top == path => "exists, Git repository".to_owned(),
            Self::There { repository: Some(top) } => format!("exists, in the Git repository {}", top.display()),
            Self::NoFolder => "is no folder".to_owned(),
            Self::Unusable { why } => format!("cannot be used: {why}"),
        }
    }
}

/// Whether a folder is the top of a Git repository: it has a `.git` with a `HEAD`, or, in a linked work tree, a file of
/// that name.
fn is_repository(folder: &Path) -> bool {
    let internals = folder.join(".git");
    internals.is_file() || internals.join("HEAD").symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_told_by_what_is_there_and_by_the_repository_above_it() {
        let home = tempfile::tempdir().expect("temporary folder");
        let inner = home.path().join("docs");
        assert!(Folder::look(&inner).words(&inner).starts_with("cannot be used: "));
        std::fs::write(&inner, "").expect("written");
        assert_eq!(Folder::look(&inner), Folder::NoFolder);
        std::fs::remove_file(&inner).expect("there");
        std::fs::create_dir(&inner).expect("made");
        assert!(Folder::look(&inner).words(&inner).contains("no Git repository"));
        // An empty folder of that name is none.
        std::fs::create_dir(home.path().join(".git")).expect("made");
        assert!(Folder::look(&inner).words(&inner).contains("no Git repository"));
        std::fs::write(home.path().join(".git/HEAD"), "ref: refs/heads/main").expect("written");
        assert_eq!(Folder::look(home.path()).words(home.path()), "exists, Git repository");
        std::fs::remove_dir_all(home.path().join(".git")).expect("there");
        // In a linked work tree, `.git` is a file.
        std::fs::write(home.path().join(".git"), "gitdir: elsewhere").expect("written");
        assert_eq!(Folder::look(&inner), Folder::There { repository: Some(home.path().to_owned()) });
        assert_eq!(Folder::look(home.path()).words(home.path()), "exists, Git repository");
        assert!(Folder::look(&inner).words(&inner).contains(&home.path().display().to_string()));
    }
}
