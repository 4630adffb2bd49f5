//! The ignore rules of a directory and of those above it, read by handle.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::workspace::{LinkPolicy, Workspace, open_in};

/// How many bytes of one ignore file are read.
const MAX_IGNORE_FILE_BYTES: u64 = 1024 * 1024;
/// Later lines win, so `.ignore` overrules `.gitignore`.
const IGNORE_FILE_NAMES: [&str; 2] = [".gitignore", ".ignore"];

/// The rules of one directory that has some, and of those above it.
pub(crate) struct IgnoreRules {
    directory: PathBuf,
    rules: Gitignore,
    above: Option<Arc<IgnoreRules>>,
}

impl IgnoreRules {
    /// The rules that apply in `base` because of the directories above it.
    pub(crate) fn above(workspace: &Workspace, base: &Path) -> Option<Arc<Self>> {
        let mut ancestors: Vec<_> = base.ancestors().skip(1).collect();
        ancestors.reverse();
        ancestors.into_iter().fold(None, |above, directory| {
            let open = |name: &&str| workspace.open_file(&directory.join(name), LinkPolicy::Refused).ok();
            Self::read(directory, IGNORE_FILE_NAMES.iter().filter_map(open).map(|(file, _)| file), above)
        })
    }

    /// The rules that apply in a directory with these ignore files.
    pub(crate) fn of(
        workspace: &Workspace,
        handle: BorrowedFd<'_>,
        directory: &Path,
        present: &[OsString],
        above: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let here = IGNORE_FILE_NAMES.iter().filter(|name| present.iter().any(|present| present == **name));
        let open = |name: &&str| open_in(workspace, handle, Path::new(name)).ok();
        Self::read(directory, here.filter_map(open).map(|(file, _)| file), above)
    }

    fn read(directory: &Path, files: impl Iterator<Item = File>, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let mut builder = None;
        for file in files {
            let mut bytes = Vec::new();
            if file.take(MAX_IGNORE_FILE_BYTES).read_to_end(&mut bytes).is_err() {
                continue;
            }
            let builder = builder.get_or_insert_with(|| GitignoreBuilder::new("."));
            for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
                // An invalid line is skipped and the others count, as in git.
                let _ = builder.add_line(None, line);
            }
        }
        match builder.map(|builder| builder.build()) {
            Some(Ok(rules)) if !rules.is_empty() => {
                Some(Arc::new(Self { directory: directory.to_owned(), rules, above }))
            }
            _ => above,
        }
    }

    /// Whether the nearest rule that matches `path` ignores it.
    pub(crate) fn skip(nearest: Option<&Arc<Self>>, path: &Path, is_directory: bool) -> bool {
        let mut next = nearest;
        while let Some(ignores) = next {
            let below = path.strip_prefix(&ignores.directory).unwrap_or(path);
            match ignores.rules.matched(below, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = ignores.above.as_ref(),
            }
        }
        false
    }
}
