//! Who answers in a service: a model provider by its name on this device, or the scripted assistant.

use serde::{Deserialize, Serialize};

use crate::names::is_short_name;

/// The name of the assistant that needs no account.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// The most characters of a provider's name.
const MAX_NAME_CHARS: usize = 32;

/// Who answers. In a file: `scripted`, or the name of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Provider {
    /// No model and no account: answers from the folder, or plays a script.
    Scripted,
    /// A model provider that the desktop user configured, by its name.
    Account(String),
}

impl From<String> for Provider {
    fn from(name: String) -> Self {
        if name == SCRIPTED_PROVIDER { Self::Scripted } else { Self::Account(name) }
    }
}

impl From<Provider> for String {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::Scripted => SCRIPTED_PROVIDER.to_owned(),
            Provider::Account(name) => name,
        }
    }
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scripted => SCRIPTED_PROVIDER,
            Self::Account(name) => name,
        })
    }
}

/// Whether a provider can be called so. A name is also a part of a file's name.
pub fn is_provider_name(text: &str) -> bool {
    is_short_name(text, MAX_NAME_CHARS) && text != SCRIPTED_PROVIDER
}

/// What a provider's name looks like.
pub const PROVIDER_NAME_RULE: &str =
    "a provider's name has 1 to 32 characters from a-z, 0-9 and -; and \"scripted\" is the one without an account";
