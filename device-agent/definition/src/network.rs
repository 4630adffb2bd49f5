//! The network that a definition may give to commands.

use serde::{Deserialize, Serialize};

/// The network that the commands of a service have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network: even this computer's own servers cannot be reached.
    #[default]
    None,
    /// The computer's: the Internet, the networks it is in, and every server on the computer itself.
    Host,
}

impl Network {
    /// Whether commands have no network.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The word for it in definitions and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
        }
    }
}

impl std::str::FromStr for Network {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> Result<Self, UnknownNetwork> {
        [Self::None, Self::Host].into_iter().find(|network| network.as_str() == text).ok_or(UnknownNetwork)
    }
}

/// The text names no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("commands have the network none or host")]
pub struct UnknownNetwork;
