//! Announced host keys: how a gateway changes its key without manual work on the devices.
//!
//! OpenSSH's rule for `UpdateHostKeys` (ssh_config(5)), for a fingerprint that a person entered:
//!
//! - Only a verified server is trusted, and only over the same connection.
//! - A key is accepted only after its owner has signed for this session: a server cannot announce another's key.
//! - The announced keys replace all trusted keys, so an old key does not stay valid. The key that the server has just
//!   shown must be among them, or the list stays unchanged.
//! - When a person pins, the same fingerprint or another one, or enters another address, the announced keys are
//!   discarded: the pin alone decides, until a server that has the pinned key announces others.
//!
//! A known-hosts file that a person named is maintained by them or by OpenSSH: it is never written, and announced keys
//! are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use deskgate_protocol::Timestamp;
use deskgate_protocol::identity::PublicKey;
use deskgate_secrets::write_private;
use russh::keys::ssh_key;
use serde::{Deserialize, Serialize};

use super::error::HostKeyError;
use super::host_pin::HostPin;
use super::target::{FollowedKeysFile, Ssh};

/// At most this many keys are accepted.
const MAX_HOST_KEYS: usize = 8;

/// The keys that are trusted in place of a pinned fingerprint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnnouncedKeysFile {
    /// Host and port as configured.
    address: String,
    /// The fingerprint that a person entered.
    pinned: String,
    /// See [`FollowedKeysFile::pin_count`].
    #[serde(default)]
    pin_count: u32,
    /// The keys of the gateway's last announcement.
    keys: Vec<String>,
    /// When each was first announced, by its fingerprint.
    #[serde(default)]
    announcements: BTreeMap<String, Announcement>,
}

/// When a key was announced, and by which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// When the gateway first announced it.
    pub at: Timestamp,
    /// The fingerprint of the key by which the gateway was recognised then.
    pub by: String,
}

/// A key that is trusted in place of the pinned one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedKey {
    /// The key.
    pub key: PublicKey,
    /// When and by which it was announced; absent in older records.
    pub announcement: Option<Announcement>,
}

/// The keys that are trusted in place of the pinned one; `None`: the gateway has announced no others.
///
/// # Errors
/// The record cannot be read: whether the pinned key is still valid is unknown.
pub fn trusted_keys(target: &Ssh) -> Result<Option<Vec<FollowedKey>>, String> {
    let (Some(file), HostPin::Fingerprint(pinned)) = (&target.followed, &target.pin) else { return Ok(None) };
    let text = match std::fs::read_to_string(&file.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| format!("cannot be read: {error}"))?,
    };
    let damaged = |what: String| {
        format!(
            "is damaged ({what}); `deskgate connection drop-host-keys` removes it, and the pinned fingerprint alone \
             decides again"
        )
    };
    let mut record: AnnouncedKeysFile = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let counts =
        record.address == target.address() && record.pinned == pinned.to_string() && record.pin_count == file.pin_count;
    if !counts {
        return Ok(None);
    }
    let keys = record.keys.iter().map(|text| {
        let key: PublicKey = text.parse().map_err(|_| damaged("not a key".to_owned()))?;
        Ok(FollowedKey { key, announcement: record.announcements.remove(&key.fingerprint()) })
    });
    keys.collect::<Result<_, _>>().map(Some)
}

/// Discards what was announced: the pinned fingerprint alone decides.
///
/// # Errors
/// The record is there and cannot be removed.
pub fn discard(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the server may show this key, by the announced keys; `None`: there are none, and the pin decides.
pub(super) fn verify(target: &Ssh, presented: &ssh_key::PublicKey) -> Option<Result<(), HostKeyError>> {
    let address = target.address();
    let presented_text = presented.fingerprint(ssh_key::HashAlg::Sha256).to_string();
    match trusted_keys(target) {
        Ok(None) => None,
        Ok(Some(keys)) if ed25519(presented).is_some_and(|key| keys.iter().any(|known| known.key == key)) => {
            Some(Ok(()))
        }
        Ok(Some(keys)) => {
            let pinned = keys.iter().map(|known| known.key.fingerprint()).collect();
            Some(Err(HostKeyError::Changed { address, pinned, presented: presented_text }))
        }
        Err(why) => {
            let file = target.followed.as_ref().map(|file| file.path.clone()).unwrap_or_default();
            Some(Err(HostKeyError::File { address, presented: presented_text, file, why }))
        }
    }
}

/// Trusts the keys that a verified server announced, each proven to be its own.
pub(super) fn follow(target: &Ssh, shown: &PublicKey, announced: &[PublicKey]) {
    let (Some(file), HostPin::Fingerprint(pinned)) = (&target.followed, &target.pin) else { return };
    let FollowedKeysFile { path, pin_count, read_only: false } = file else { return };
    let address = target.address();
    if !announced.contains(shown) || announced.len() > MAX_HOST_KEYS {
        return tracing::warn!(address, keys = announced.len(), "the server announced host keys that nobody can go by");
    }
    let known = trusted_keys(target).ok().flatten();
    let before = known.as_ref().map(|keys| keys.iter().map(|known| known.key.fingerprint()).collect());
    let before: Vec<_> = before.unwrap_or(vec![pinned.to_string()]);
    let fingerprints: Vec<_> = announced.iter().map(PublicKey::fingerprint).collect();
    if same(&before, &fingerprints) {
        return;
    }
    let earlier = known.into_iter().flatten().filter_map(|known| Some((known.key.fingerprint(), known.announcement?)));
    let earlier: BTreeMap<_, _> = earlier.collect();
    let now = Announcement { at: Timestamp::now(), by: shown.fingerprint() };
    let first = |fingerprint: &String| earlier.get(fingerprint).unwrap_or(&now).clone();
    let record = AnnouncedKeysFile {
        address: address.clone(),
        pinned: pinned.to_string(),
        pin_count: *pin_count,
        keys: announced.iter().map(PublicKey::to_string).collect(),
        announcements: fingerprints.iter().map(|fingerprint| (fingerprint.clone(), first(fingerprint))).collect(),
    };
    match write(path, &record) {
        Ok(()) => tracing::info!(
            address,
            trusted = fingerprints.join(", "),
            before = before.join(", "),
            "the gateway announced its host keys, and proved them"
        ),
        Err(error) => tracing::warn!(address, error, "the host keys that the gateway announced could not be kept"),
    }
}

/// The keys that are not trusted yet: the server has to prove them.
pub(super) fn unknown(target: &Ssh, shown: &PublicKey, announced: &[PublicKey]) -> Vec<PublicKey> {
    let trusted = trusted_keys(target).ok().flatten().unwrap_or_default();
    let is_new = |key: &&PublicKey| *key != shown && !trusted.iter().any(|known| known.key == **key);
    announced.iter().filter(is_new).copied().collect()
}

/// The key in this program's form; `None`: its type is not supported.
pub(super) fn ed25519(key: &ssh_key::PublicKey) -> Option<PublicKey> {
    key.key_data().ed25519().map(|key| PublicKey::from_bytes(key.0))
}

fn same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|key| other.contains(key))
}

fn write(file: &Path, record: &AnnouncedKeysFile) -> Result<(), String> {
    let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
    write_private(file, &text).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
