//! The setting for keeping the computer awake.

use serde::{Deserialize, Serialize};

/// When runs keep the computer awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepAwake {
    /// During every run.
    #[default]
    Always,
    /// During runs as long as it is on mains.
    OnAc,
    /// Never: sleep may interrupt runs.
    Never,
}

impl KeepAwake {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Always, Self::OnAc, Self::Never];

    /// The value's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::OnAc => "on-ac",
            Self::Never => "never",
        }
    }
}

impl std::str::FromStr for KeepAwake {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|choice| choice.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is none of always, on-ac, never"))
    }
}
