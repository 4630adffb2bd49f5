//! Options for a key: a command line never takes the key itself, only the path of a file with it.

use std::path::{Path, PathBuf};

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::text_file;
use deskgate_protocol::secret::SecretKind;

use crate::local::{KeyPlace, NewKey};

/// What happens to the key.
#[derive(Debug, Args)]
pub(super) struct KeyFileArgs {
    /// A file with the key; - for standard input. Without it the saved one stays
    #[arg(long, value_name = "FILE", conflicts_with = "no_key")]
    key_file: Option<PathBuf>,
    /// Forget the saved key, for a server that asks for none
    #[arg(long)]
    no_key: bool,
    /// Where the key is kept: a private file, or the desktop's keyring. Moves a saved one [default: where it is; a first one
    /// as in deskgate settings show]
    #[arg(long, value_name = "PLACE", value_parser = ["file", "keyring"])]
    key_place: Option<String>,
}

impl KeyFileArgs {
    /// Where to keep the key, if given.
    pub(super) fn place(&self) -> Option<KeyPlace> {
        self.key_place.as_deref()?.parse().ok()
    }

    /// Reads the file, if one is given. `whose` is who the key is for: one of our own secrets, which opens only
    /// Deskgate, is named and refused.
    pub(super) fn read(&self, whose: &str) -> Result<NewKey, Failure> {
        let text = match &self.key_file {
            None if self.no_key => return Ok(NewKey::Forget),
            None => return Ok(NewKey::Keep),
            Some(path) => text_of(path)?,
        };
        match SecretKind::of(text.trim()).filter(|kind| *kind != SecretKind::ModelProviderKey) {
            Some(kind) => Err(Failure::new(Exit::Usage, format!("--key-file: this is {kind}, not a key of {whose}"))),
            None => Ok(NewKey::Replace(text)),
        }
    }
}

/// The content of a file or of standard input.
pub(super) fn text_of(path: &Path) -> Result<String, Failure> {
    text_file::read(path).map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))
}
