//! What answers in a service: a model provider by its name on this device, or the scripted assistant.

use serde::{Deserialize, Serialize};

use crate::names::is_short_name;

/// The name of the scripted assistant, which needs no provider.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// The length limit of a provider's name, in characters.
const MAX_NAME_CHARS: usize = 32;

/// What answers a run. In a file: `scripted`, or a provider's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Provider {
    /// The scripted assistant, without a model: answers from the folder, or plays a script.
    Scripted,
    /// A configured model provider, by its name.
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

/// Whether a text can name a provider. A name is also a part of a file's name.
pub fn is_provider_name(text: &str) -> bool {
    is_short_name(text, MAX_NAME_CHARS) && text != SCRIPTED_PROVIDER
}

/// The form of a provider's name, for people.
pub const PROVIDER_NAME_RULE: &str =
    "a provider's name has 1 to 32 characters from a-z, 0-9 and -; and \"scripted\" is the one without an account";
