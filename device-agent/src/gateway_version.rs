//! The recorded version of the remote gateway: a new program can check before it starts whether the gateway will accept
//! it. A plain file, which programs of every version can read.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use deskgate_protocol::{Half, VERSION, versions_match};
use tokio::sync::watch;

use crate::link::LinkStatus;

/// The size limit of a version, in bytes.
const MAX_VERSION_BYTES: usize = 40;

/// Records the gateway's version whenever it connects, for as long as the future runs. The built-in gateway is this
/// program itself: the record of another is deleted.
pub async fn follow(mut status: watch::Receiver<LinkStatus>, file: PathBuf, is_remote: bool) {
    if !is_remote {
        // The file may be missing.
        let _ = std::fs::remove_file(&file);
        return;
    }
    loop {
        let version = match &*status.borrow_and_update() {
            LinkStatus::Connected { gateway_version, .. } => Some(gateway_version.clone()),
            LinkStatus::Refused { refused, .. } => Some(refused.gateway_version.clone()),
            LinkStatus::Connecting | LinkStatus::Disconnected { .. } => None,
        };
        if let Some(version) = version.filter(|version| last_seen(&file).as_ref() != Some(version))
            && let Err(error) = write(&file, &version)
        {
            tracing::warn!(%error, "the gateway's version could not be noted");
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// The recorded version; `None` if there is none.
pub fn last_seen(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let version = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".+-".contains(c);
    (!version.is_empty() && version.len() <= MAX_VERSION_BYTES && version.chars().all(plain))
        .then(|| version.to_owned())
}

/// The mismatch of this program and a gateway of this version, for people; `None` if they fit.
pub fn mismatch(gateway: &str) -> Option<String> {
    let what = match versions_match(gateway, VERSION).err()? {
        Half::Gateway => "Have the gateway upgraded first, or keep the program that fits it",
        Half::Device => "Install the program that fits it",
    };
    Some(format!(
        "the gateway that this device last met has version {gateway} and will refuse version {VERSION}: major and minor \
         number must be equal. {what}"
    ))
}

fn write(file: &Path, version: &str) -> std::io::Result<()> {
    let partial = file.with_extension("new");
    let _ = std::fs::remove_file(&partial);
    let mut written = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    writeln!(written, "{version}")?;
    std::fs::rename(partial, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_and_what_is_no_version_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("gateway_version");
        assert_eq!(last_seen(&file), None);
        write(&file, "1.4.2").expect("written");
        assert_eq!(last_seen(&file).as_deref(), Some("1.4.2"));
        write(&file, "\u{1b}[2J").expect("written");
        assert_eq!(last_seen(&file), None);
    }

    #[test]
    fn only_another_major_or_minor_number_is_worth_a_word() {
        assert_eq!(mismatch(VERSION), None);
        assert!(mismatch("9.0.0").is_some_and(|said| said.contains("9.0.0") && said.contains(VERSION)));
    }
}
