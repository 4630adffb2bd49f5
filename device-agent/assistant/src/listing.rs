//! The models that a provider lists for a key.

use std::time::Duration;

use deskgate_definition::ModelReads;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ModelError;
use super::prices::Prices;
use super::providers::{ProviderError, Providers};
use super::refusal::{refused, unreachable};
use super::remote::ProviderAccess;

/// How long all of it may take.
const LISTING_TIMEOUT: Duration = Duration::from_secs(30);
/// The size limit of one answer, in bytes. A router lists hundreds of models with their descriptions.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// At most this many models are listed.
const MAX_MODELS: usize = 5_000;
/// At most this many pages are asked for.
const MAX_PAGES: usize = 20;
/// The length limit of what is taken over, in characters.
const MAX_NAME_CHARS: usize = 200;

/// A model that a provider lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedModel {
    /// Its name, as a service names it.
    pub model: String,
    /// The tokens of one call, as the provider or the profile says; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The tokens of one answer, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// What it reads, if the profile knows the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ModelReads>,
    /// US dollars for a million tokens read and written, as the profile says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_million_tokens: Option<(f64, f64)>,
}

/// Why models cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The provider cannot be used.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// There is no such list.
    #[error("{0} has no list of what your key may use; its own pages show your deployments")]
    NoList(&'static str),
    /// The provider refused.
    #[error("{}", .0.for_owner())]
    Refused(ModelError),
    /// The answer is not a list of models.
    #[error("what answered is not a list of models; see whether the API base URL is right: deskgate provider list")]
    NoModels,
    /// It took too long.
    #[error("the provider did not answer within {} s", LISTING_TIMEOUT.as_secs())]
    TimedOut,
}

/// The models that a provider lists for its key, by name.
///
/// # Errors
/// The provider is unknown, cannot be reached, refuses, or has no such list.
pub async fn models(accounts: &Providers, name: &str) -> Result<Vec<ListedModel>, ListingError> {
    let opened = {
        let (accounts, name) = (accounts.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || accounts.open(&name)).await
    };
    let access = opened.expect("reading a private file does not panic")?;
    match tokio::time::timeout(LISTING_TIMEOUT, pages(&access)).await {
        Ok(listed) => listed,
        Err(_) => Err(ListingError::TimedOut),
    }
}

async fn pages(access: &ProviderAccess) -> Result<Vec<ListedModel>, ListingError> {
    let path = access.profile.models_path().ok_or(ListingError::NoList(&access.profile.title))?;
    let mut models = Vec::new();
    let mut after: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut url = access.url(path)?;
        if let Some(after) = &after {
            url.query_pairs_mut().append_pair("after_id", after);
        }
        let page = page(access, url).await?;
        let entries = page.get("data").or(page.get("models")).unwrap_or(&page);
        let entries = entries.as_array().ok_or(ListingError::NoModels)?;
        models.extend(entries.iter().filter_map(|entry| model(access, entry)));
        models.truncate(MAX_MODELS);
        after = page.get("last_id").and_then(Value::as_str).map(str::to_owned);
        if page.get("has_more") != Some(&Value::Bool(true)) || after.is_none() {
            break;
        }
    }
    models.sort_by(|one, other| one.model.cmp(&other.model));
    models.dedup_by(|one, other| one.model == other.model);
    Ok(models)
}

async fn page(access: &ProviderAccess, url: reqwest::Url) -> Result<Value, ListingError> {
    let asked = access.client(&url).get(url).headers(access.headers());
    let mut response = asked.send().await.map_err(|error| ListingError::Refused(unreachable(&error)))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(ListingError::Refused(refused(response, access.key.as_ref()).await));
    }
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|error| ListingError::Refused(unreachable(&error)))? {
        if body.len() + bytes.len() > MAX_BODY_BYTES {
            return Err(ListingError::NoModels);
        }
        body.extend_from_slice(&bytes);
    }
    serde_json::from_slice(&body).map_err(|_| ListingError::NoModels)
}

/// A model, from whatever members the provider has for it.
fn model(access: &ProviderAccess, entry: &Value) -> Option<ListedModel> {
    let id = entry.get("id").or(entry.get("name")).and_then(Value::as_str).or(entry.as_str())?;
    // Google lists a path, and takes the name.
    let id = id.strip_prefix("models/").unwrap_or(id);
    let id: String = id.chars().take(MAX_NAME_CHARS).filter(|c| !c.is_control()).collect();
    let number =
        |paths: &[&str]| paths.iter().find_map(|path| entry.pointer(path)?.as_u64()).filter(|count| *count > 0);
    let context = [
        "/context_length",
        "/context_window",
        "/max_context_length",
        "/max_model_len",
        "/max_input_tokens",
        "/inputTokenLimit",
        "/meta/n_ctx",
        "/meta/n_ctx_train",
    ];
    let output = [
        "/max_completion_tokens",
        "/top_provider/max_completion_tokens",
        "/max_tokens",
        "/max_output_tokens",
        "/outputTokenLimit",
    ];
    let known = access.profile.model(&id);
    Some(ListedModel {
        context_tokens: number(&context).or_else(|| known?.context_tokens),
        max_output_tokens: number(&output).or_else(|| known?.max_output_tokens),
        reads: known.map(|known| known.reads.unwrap_or(access.profile.reads)),
        usd_per_million_tokens: known
            .and_then(|known| known.usd_per_million_tokens)
            .map(|Prices { input, output, .. }| (input, output)),
        model: id,
    })
}
