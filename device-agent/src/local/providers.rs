//! Model providers, and what happens to the keys of providers and servers.

use std::time::Duration;

use deskgate_assistant::accounts::{AccountError, Accounts, Change, Configured, Kind};
use serde::{Deserialize, Serialize};

use super::KeyPlace;
use super::desk::{Desk, key_change};
use super::no::failed;
use super::reply::{Asker, No};
use super::request::Ask;

/// Lists model providers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListProviders {}

impl Ask for ListProviders {
    type Answer = Vec<Configured>;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Vec<Configured>, No> {
        desk.with_accounts(Accounts::list).await
    }
}

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
    /// Where its key is kept; absent leaves it where it is, and puts a first one where keys are kept.
    #[serde(default)]
    pub key_place: Option<KeyPlace>,
}

impl Ask for SetProvider {
    type Answer = Configured;

    async fn answer(self, desk: &Desk, _: Asker) -> Result<Configured, No> {
        desk.set_provider(self).await
    }
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

impl Ask for RemoveProvider {
    type Answer = ();

    async fn answer(self, desk: &Desk, _: Asker) -> Result<(), No> {
        desk.remove_provider(self).await
    }
}

impl Desk {
    pub(super) async fn set_provider(&self, ask: SetProvider) -> Result<Configured, No> {
        let SetProvider { name, kind, base_url, key, key_place } = ask;
        let set = move |accounts: &Accounts| {
            accounts.set(&name, Change { kind, base_url, key: key_change(&key)?, key_place })
        };
        let configured = self.with_accounts(set).await;
        self.ask_keyring(Duration::ZERO).await;
        configured
    }

    pub(super) async fn remove_provider(&self, ask: RemoveProvider) -> Result<(), No> {
        self.with_accounts(move |accounts| accounts.remove(&ask.name)).await
    }

    /// Accounts are files, and files may block.
    pub(super) async fn with_accounts<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Accounts) -> Result<R, AccountError> + Send + 'static,
    ) -> Result<R, No> {
        let accounts = self.accounts.clone();
        let worked = tokio::task::spawn_blocking(move || work(&accounts)).await;
        worked.map_err(|_| failed("the agent failed while it handled its providers".to_owned()))?.map_err(No::from)
    }
}
