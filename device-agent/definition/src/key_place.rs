//! Where a device keeps providers' and servers' keys, as its owner chooses.

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
    /// The word for it in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Keyring => "keyring",
        }
    }

    /// The words for it inside a sentence.
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

    /// The error does not repeat the text: a person who mistakes the setting may have written a key.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::File, Self::Keyring].into_iter().find(|place| place.as_str() == text);
        known.ok_or_else(|| "choose file or keyring".to_owned())
    }
}
