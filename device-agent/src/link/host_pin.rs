//! Verification of the server's host key. It cannot be turned off by a setting.
//!
//! A server is trusted for one reason only: a person entered its key's fingerprint, or its key is in a known-hosts file
//! that the person named. Unclear cases are refused.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::ssh_key::{Fingerprint, HashAlg, PublicKey};
use sha1::Sha1;

use super::error::HostKeyError;

/// What the server's host key is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPin {
    /// No pin yet: every server is refused, and the error shows the fingerprint it presented.
    Missing,
    /// A fingerprint that a person entered.
    Fingerprint(PinnedFingerprint),
    /// A known-hosts file in OpenSSH's format, read anew for each connection.
    KnownHosts(PathBuf),
}

/// A SHA-256 fingerprint, `SHA256:` and 43 characters, as `ssh-keygen -l` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedFingerprint(Fingerprint);

impl FromStr for PinnedFingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        match text.trim().parse() {
            Ok(fingerprint @ Fingerprint::Sha256(_)) => Ok(Self(fingerprint)),
            _ => Err(InvalidFingerprint),
        }
    }
}

impl std::fmt::Display for PinnedFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is no SHA-256 fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a host-key fingerprint begins with \"SHA256:\" and has 43 more characters; `deskgate-gateway admin host-key` \
     prints it on the server"
)]
pub struct InvalidFingerprint;

/// Checks that `key` is the expected one at `host` and `port`.
///
/// # Errors
/// It is not, or that cannot be decided.
pub fn verify(pin: &HostPin, host: &str, port: u16, key: &PublicKey) -> Result<(), HostKeyError> {
    let address = super::address(host, port);
    let presented = key.fingerprint(HashAlg::Sha256);
    match pin {
        HostPin::Missing => Err(HostKeyError::Unknown { address, presented: presented.to_string() }),
        HostPin::Fingerprint(pinned) if pinned.0 == presented => Ok(()),
        HostPin::Fingerprint(pinned) => {
            Err(HostKeyError::Changed { address, pinned: vec![pinned.to_string()], presented: presented.to_string() })
        }
        HostPin::KnownHosts(file) => {
            let failed = |why: String| HostKeyError::File {
                address: address.clone(),
                presented: presented.to_string(),
                file: file.clone(),
                why,
            };
            let text = std::fs::read_to_string(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
            let known = KnownHostsMatch::read(&text, &lookup_name(host, port), key).map_err(failed)?;
            known.judge(address, presented.to_string(), file)
        }
    }
}

/// The name of a server in OpenSSH's known-hosts files.
fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

/// The entries of a known-hosts file for one server.
struct KnownHostsMatch {
    trusted: bool,
    revoked: bool,
    /// The fingerprints of the server's other keys of the presented type.
    others: Vec<String>,
}

impl KnownHostsMatch {
    fn read(text: &str, name: &str, key: &PublicKey) -> Result<Self, String> {
        let mut known = Self { trusted: false, revoked: false, others: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let entry: Entry = match words.join(" ").parse() {
                Ok(entry) => entry,
                // A revoked key may be in a line that cannot be parsed.
                Err(_) if words[0].starts_with('@') => {
                    return Err(format!("has a marked line that cannot be read (line {})", number + 1));
                }
                Err(_) => continue,
            };
            let same = entry.public_key().key_data() == key.key_data();
            match entry.marker() {
                // A leaked key is revoked under every name.
                Some(Marker::Revoked) => known.revoked |= same,
                Some(Marker::CertAuthority) => {}
                None if !matches(entry.host_patterns(), name) => {}
                None if same => known.trusted = true,
                None if entry.public_key().algorithm() == key.algorithm() => {
                    known.others.push(entry.public_key().fingerprint(HashAlg::Sha256).to_string());
                }
                None => {}
            }
        }
        Ok(known)
    }

    fn judge(self, address: String, presented: String, file: &Path) -> Result<(), HostKeyError> {
        if self.revoked {
            Err(HostKeyError::Revoked { address, presented, file: file.to_owned() })
        } else if self.trusted {
            Ok(())
        } else if self.others.is_empty() {
            Err(HostKeyError::Unknown { address, presented })
        } else {
            Err(HostKeyError::Changed { address, pinned: self.others, presented })
        }
    }
}

fn matches(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::HashedName { salt, hash } => Hmac::<Sha1>::new_from_slice(salt)
            .is_ok_and(|mac| mac.chain_update(name.as_bytes()).verify_slice(hash).is_ok()),
        HostPatterns::Patterns(patterns) => {
            let (mut found, mut denied) = (false, false);
            for pattern in patterns {
                match pattern.strip_prefix('!') {
                    Some(pattern) => denied |= glob(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()),
                    None => found |= glob(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()),
                }
            }
            found && !denied
        }
    }
}

/// `*` stands for any text, `?` for one character. Linear in space, and quadratic in time at worst.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                n = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
#[path = "host_pin_tests.rs"]
mod tests;
