//! What the checks of a definition found.

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::{Definition, FolderIdentity};

/// What one check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CheckResult {
    /// The check passed.
    Pass,
    /// The check failed; the service cannot be published.
    Fail,
    /// The check does not apply, or could not be made.
    Skip,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked, in stable words.
    pub name: String,
    /// What was found.
    pub verdict: CheckResult,
    /// Why the check ended so, for people.
    pub cause: String,
    /// The one thing to do next; present exactly when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All checks of one definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The definition that was checked: another one needs another check.
    pub definition_sha256: Sha256Digest,
    /// When the checks were made.
    pub checked_at: Timestamp,
    /// Each check, in the order they were made.
    pub checks: Vec<Check>,
    /// The working directory that was checked; absent in reports of before, and if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<FolderIdentity>,
}

impl CheckReport {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != CheckResult::Fail)
    }

    /// Whether this report allows to publish `definition`.
    pub fn allows(&self, definition: &Definition) -> bool {
        self.passed() && self.definition_sha256 == definition.digest()
    }
}
