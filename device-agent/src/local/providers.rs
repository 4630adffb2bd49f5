//! Model providers, and what happens to the keys of providers and servers.

use serde::{Deserialize, Serialize};

use crate::assistant::accounts::Kind;

/// Lists model providers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListProviders {}

/// Adds or changes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetProvider {
    /// What services name it by.
    pub name: String,
    /// Which API it speaks; absent keeps it.
    pub kind: Option<Kind>,
    /// Where; absent keeps it, or takes the kind's own address.
    pub base_url: Option<String>,
    /// What happens to its key.
    pub key: NewKey,
}

/// What happens to a provider's or a server's key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewKey {
    /// The saved one stays.
    Keep,
    /// No key any more.
    Forget,
    /// This one from now on.
    Replace(String),
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Forget => "Forget",
            Self::Replace(_) => "Replace(…)",
        })
    }
}

/// Removes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveProvider {
    /// Its name.
    pub name: String,
}
