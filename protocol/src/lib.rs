//! The messages and types that both halves of Deskgate share, and that callers see.
//!
//! This crate has only types: no I/O, no runtime, no SQL, no SSH. Both halves and every test use the same definitions,
//! so a disagreement is a compile error or a golden-file diff.
//!
//! | module | what it has |
//! |---|---|
//! | [`ids`] | one newtype for each kind of identifier, with its typed prefix |
//! | [`secret`] | application keys and control tokens: typed prefix, checksum, digest |
//! | [`time`] | timestamps as callers see them |
//! | [`run`] | run states, the one transition table, outcomes, stored events |
//! | [`conversation`] [`operation`] | conversations, and the control operations on them and on runs |
//! | [`delivery`] | events for receivers, deliveries and their attempts |
//! | [`service`] | the public face of a service |
//! | [`mod@file`] | files that runs are given, artifacts that they hand out, and what a name of either may be |
//! | [`identity`] | the device identity file, fingerprints, challenge and proof |
//! | [`invitation`] | one line that pairs a device, and its one-time token |
//! | [`control`] | the frames of the control channel, one closed enum for each direction |
//! | [`management`] | the requests of the desktop to its gateway over that channel |
//! | [`transfer`] | how the bytes of files and artifacts are carried, on streams of their own |
//! | [`receipt`] | what a device signs about offers and outcomes, and how it is checked |
//! | [`frame`] | bytes to frames and back, with the size limit |
//! | `schema` | identifiers and timestamps as OpenAPI schemas, with the feature `openapi` |
//! | [`hidden`] | characters that are not seen, or change what is seen |
//! | [`canonical`] | RFC 8785 canonical JSON and its digest |

pub mod canonical;
pub mod control;
pub mod conversation;
pub mod delivery;
pub mod file;
pub mod frame;
pub mod hidden;
pub mod identity;
pub mod ids;
pub mod invitation;
pub mod management;
pub mod operation;
pub mod receipt;
pub mod run;
#[cfg(feature = "openapi")]
mod schema;
pub mod secret;
pub mod service;
pub mod time;
pub mod transfer;
pub mod words;

pub use ids::*;
pub use time::Timestamp;

use serde::{Deserialize, Serialize};

/// The version of this build. Both halves must agree in major and minor
/// (specification, section 9: a gateway package must match the desktop's version).
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The control-channel protocols this build speaks.
pub const PROTOCOL_RANGE: ProtocolRange = ProtocolRange { min: 2, max: 2 };

/// An inclusive range of control-channel protocol numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// The oldest protocol spoken.
    pub min: u32,
    /// The newest protocol spoken.
    pub max: u32,
}

impl ProtocolRange {
    /// The newest protocol both sides speak, if there is one.
    pub fn agree(self, other: Self) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// Which half is older when versions do not match, and so which one to upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// The gateway on the server.
    Gateway,
    /// The agent on the desktop.
    Device,
}

/// Compares two product versions by the match rule: equal major and minor.
/// `Err` names the half that is older (or unreadable) and must be upgraded.
///
/// # Errors
/// The major or minor numbers differ, or a version cannot be read. The error is the half to upgrade: [`Half::Gateway`]
/// if the gateway is older or its version cannot be read, else [`Half::Device`].
pub fn versions_match(gateway: &str, device: &str) -> Result<(), Half> {
    match (major_minor(gateway), major_minor(device)) {
        (Some(g), Some(d)) if g == d => Ok(()),
        (Some(g), Some(d)) if g < d => Err(Half::Gateway),
        (None, _) => Err(Half::Gateway),
        _ => Err(Half::Device),
    }
}

fn major_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    let pair = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_on_major_and_minor_only() {
        assert_eq!(versions_match("1.4.2", "1.4.9"), Ok(()));
        assert_eq!(versions_match("1.4.2", "1.5.0"), Err(Half::Gateway));
        assert_eq!(versions_match("2.0.0", "1.5.0"), Err(Half::Device));
        assert_eq!(versions_match("1.4.2", "nonsense"), Err(Half::Device));
        assert_eq!(versions_match("1.4", "1.4.0"), Err(Half::Gateway));
    }

    #[test]
    fn protocol_ranges_agree_on_the_newest_common_number() {
        let ours = ProtocolRange { min: 2, max: 4 };
        assert_eq!(ours.agree(ProtocolRange { min: 1, max: 3 }), Some(3));
        assert_eq!(ours.agree(ProtocolRange { min: 5, max: 6 }), None);
        assert_eq!(ours.agree(ProtocolRange { min: 1, max: 1 }), None);
    }
}
