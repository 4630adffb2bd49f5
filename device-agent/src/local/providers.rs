//! Requests about model providers, and changes of providers' and servers' keys.

use std::time::Duration;

use deskgate_assistant::listing::{self, ListedModel, ListingError};
use deskgate_assistant::profile::Api;
use deskgate_assistant::providers::{ProviderChange, ProviderConfig, ProviderError, Providers};
use serde::{Deserialize, Serialize};

use super::KeyPlace;
use super::error_reply::failed;
use super::handler::{RequestHandler, key_change};
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;

/// Lists model providers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListProviders {}

impl TypedRequest for ListProviders {
    type Response = Vec<ProviderConfig>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ProviderConfig>, ErrorReply> {
        handler.with_accounts(Providers::list).await
    }
}

/// Adds or changes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetProvider {
    /// The provider's name in services.
    pub name: String,
    /// Its vendor, by the name of a profile; absent keeps it.
    pub profile: Option<String>,
    /// The format it is asked in; absent keeps it, or takes the profile's own.
    #[serde(default)]
    pub api: Option<Api>,
    /// The address; absent keeps it, or takes the profile's own.
    pub base_url: Option<String>,
    /// The version of the API; absent keeps it, and an empty text takes it away.
    #[serde(default)]
    pub api_version: Option<String>,
    /// Whether plain HTTP may go to an address of the own network; absent keeps it.
    #[serde(default)]
    pub plain_http: Option<bool>,
    /// What happens to its key.
    pub key: NewKey,
    /// Where its key is kept; absent leaves it where it is, and keeps a first one at the preferred place.
    #[serde(default)]
    pub key_place: Option<KeyPlace>,
}

impl TypedRequest for SetProvider {
    type Response = ProviderConfig;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ProviderConfig, ErrorReply> {
        handler.set_provider(self).await
    }
}

/// What happens to a provider's or a server's key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewKey {
    /// The saved key stays.
    Keep,
    /// The key is removed.
    Forget,
    /// This key replaces the saved one.
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

/// Lists the models that a provider's key can use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListModels {
    /// The provider's name.
    pub name: String,
}

impl TypedRequest for ListModels {
    type Response = Vec<ListedModel>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ListedModel>, ErrorReply> {
        listing::models(&handler.providers, &self.name).await.map_err(|error| match error {
            ListingError::Provider(error) => error.into(),
            error => failed(error.to_string()),
        })
    }
}

/// Removes a model provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveProvider {
    /// The provider's name.
    pub name: String,
}

impl TypedRequest for RemoveProvider {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        handler.remove_provider(self).await
    }
}

impl RequestHandler {
    pub(super) async fn set_provider(&self, ask: SetProvider) -> Result<ProviderConfig, ErrorReply> {
        let SetProvider { name, profile, api, base_url, api_version, plain_http, key, key_place } = ask;
        let changed = name.clone();
        let set = move |accounts: &Providers| {
            let key = key_change(&key)?;
            accounts.set(&name, ProviderChange { profile, api, base_url, api_version, plain_http, key, key_place })
        };
        let configured = self.with_accounts(set).await;
        self.ask_keyring(Duration::ZERO).await;
        if configured.is_ok() {
            self.health.forget_provider(&changed).await;
            self.check_again().await;
        }
        configured
    }

    pub(super) async fn remove_provider(&self, ask: RemoveProvider) -> Result<(), ErrorReply> {
        let name = ask.name.clone();
        self.with_accounts(move |accounts| accounts.remove(&ask.name)).await?;
        self.health.forget_provider(&name).await;
        self.check_again().await;
        Ok(())
    }

    /// Providers are files, and files may block.
    pub(super) async fn with_accounts<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Providers) -> Result<R, ProviderError> + Send + 'static,
    ) -> Result<R, ErrorReply> {
        let accounts = self.providers.clone();
        let worked = tokio::task::spawn_blocking(move || work(&accounts)).await;
        worked
            .map_err(|_| failed("the agent failed while it handled its providers".to_owned()))?
            .map_err(ErrorReply::from)
    }
}
