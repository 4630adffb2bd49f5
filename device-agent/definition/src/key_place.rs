//! Where a device keeps other people's keys, as its owner chooses.

use serde::{Deserialize, Serialize};

/// Where keys are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// In the private files themselves.
    #[default]
    File,
    /// In the desktop's keyring.
    Keyring,
}

impl KeyPlace {
    /// As it is written and read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Keyring => "keyring",
        }
    }

    /// As a sentence goes on with it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "in a file that only you can read",
            Self::Keyring => "in the desktop's keyring",
        }
    }

    /// Whether it is the keyring.
    pub const fn is_keyring(self) -> bool {
        matches!(self, Self::Keyring)
    }
}

impl std::str::FromStr for KeyPlace {
    type Err = String;

    /// What was written instead is not repeated: whoever mistakes the setting writes a key there.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::File, Self::Keyring].into_iter().find(|place| place.as_str() == text);
        known.ok_or_else(|| "choose file or keyring".to_owned())
    }
}
