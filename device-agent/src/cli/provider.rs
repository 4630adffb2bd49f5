//! `provider`: the model providers that services may name.

use clap::{Args, Subcommand};
use deskgate_definition::Provider;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records::{self, Noun};

use super::key_file::KeyFileArgs;
use super::no_secret;
use super::socket::AgentClient;
use crate::local::{
    Api, KeyPlace, ListModels, ListProviders, ListServices, ListedModel, Need, Profile, ProviderConfig, RemoveProvider,
    SetProvider, travels_openly,
};

const PROVIDERS: Noun = Noun { singular: "model provider", plural: "model providers", list: "deskgate provider list" };

/// `deskgate provider …`
#[derive(Debug, Subcommand)]
pub(super) enum ProviderCommand {
    /// Add a model provider, or change it; its key stays on this computer
    Set(ProviderSetArgs),
    /// The model providers of this device
    List,
    /// The vendors and programs that are known: what `provider set --profile` takes
    Profiles,
    /// The models that a provider's key can use
    Models {
        /// Its name
        name: String,
    },
    /// Remove a model provider and its key; services that name it cannot run any more
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// `deskgate provider set`
#[derive(Debug, Args)]
pub(super) struct ProviderSetArgs {
    /// What services name it by, such as work
    name: String,
    /// Its vendor or program, such as openai, anthropic or ollama; compatible for any other server with OpenAI's API.
    /// All of them: deskgate provider profiles
    #[arg(long)]
    profile: Option<String>,
    /// The format it is asked in: responses, chat or messages [default: the profile's own]
    #[arg(long)]
    api: Option<Api>,
    /// Its API base URL [default: the profile's own]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The version that requests name in their address, where the profile has one (Azure); "" for none
    #[arg(long, value_name = "VERSION")]
    api_version: Option<String>,
    /// Allow http:// to an address in your own network: everybody in that network can then read prompts, answers and the
    /// key. --plain-http=false takes it back
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    plain_http: Option<bool>,
    #[command(flatten)]
    key: KeyFileArgs,
}

pub(super) async fn run(agent: AgentClient, command: ProviderCommand, out: Output) -> Result<(), Failure> {
    match command {
        ProviderCommand::Set(set) => {
            let provider = agent.request(request(set)?).await?;
            out.result("provider/1", &provider, || saved(&provider));
        }
        ProviderCommand::List => {
            let providers = agent.request(ListProviders {}).await?;
            out.result("providers/1", &serde_json::json!({ "providers": providers }), || list(&providers));
        }
        ProviderCommand::Profiles => {
            let profiles: Vec<_> = Profile::all().iter().map(described).collect();
            out.result("provider-profiles/1", &serde_json::json!({ "profiles": profiles }), profile_list);
        }
        ProviderCommand::Models { name } => {
            let models = agent.request(ListModels { name: name.clone() }).await?;
            out.result("models/1", &serde_json::json!({ "provider": name, "models": models }), || model_list(&models));
        }
        ProviderCommand::Remove { name, confirmation } => {
            let providers = agent.request(ListProviders {}).await?;
            let known = providers.into_iter().map(|provider| provider.name).filter(|known| *known == name);
            let name = PROVIDERS.only(&name, known)?;
            let provider = Provider::Account(name.clone());
            let services = agent.request(ListServices {}).await?.into_iter().filter(|service| service.uses(&provider));
            let services: Vec<_> = services.map(|service| service.draft.name).collect();
            confirmation.confirm(&removal("provider", &name, &services))?;
            agent.request(RemoveProvider { name: name.clone() }).await?;
            out.result("provider-removed/1", &serde_json::json!({ "name": name }), || {
                format!("{name} and its key are gone from this computer.")
            });
        }
    }
    Ok(())
}

/// The question before a provider or a server is removed.
pub(super) fn removal(what: &str, name: &str, services: &[String]) -> String {
    let services = match services {
        [] => "No service names it.".to_owned(),
        services => format!("Runs of these services will fail: {}", services.join(", ")),
    };
    format!(
        "Remove the {what} {name}?\n  Its key is deleted from this computer, and is not revoked at the {what}.\n  {services}"
    )
}

fn request(set: ProviderSetArgs) -> Result<SetProvider, Failure> {
    for (what, text) in [
        ("NAME", Some(&set.name)),
        ("--profile", set.profile.as_ref()),
        ("--base-url", set.base_url.as_ref()),
        ("--api-version", set.api_version.as_ref()),
    ] {
        no_secret(what, text.map(String::as_str).unwrap_or_default())?;
    }
    let (key, key_place) = (set.key.read("a model provider")?, set.key.place());
    let ProviderSetArgs { name, profile, api, base_url, api_version, plain_http, .. } = set;
    Ok(SetProvider { name, profile, api, base_url, api_version, plain_http, key, key_place })
}

fn saved(provider: &ProviderConfig) -> String {
    let name = &provider.name;
    let key = match provider.key_place {
        Some(place) => format!("Saved, its key {}.", place.words()),
        None => "Saved without a key.".to_owned(),
    };
    let open = match travels_openly(&provider.base_url) {
        true => "\nNot encrypted: everybody in your network can read prompts, answers and the key on their way.",
        false => "",
    };
    let wants_key = Profile::named(&provider.profile).is_some_and(|profile| profile.key == Need::Required);
    let next = match wants_key && !provider.has_key {
        true => format!("Next: deskgate provider set {name} --key-file FILE"),
        false => format!(
            "Next: deskgate provider models {name}\n      deskgate service create NAME --app APP --provider {name} --model MODEL"
        ),
    };
    format!("{key}{open}\n{next}")
}

fn list(providers: &[ProviderConfig]) -> String {
    records::list(
        providers,
        "No model provider yet: services use the scripted assistant. Add one: deskgate provider set NAME --profile \
                anthropic --key-file -",
        &["NAME", "PROFILE", "API", "API BASE URL", "KEY"],
        |provider| {
            let key = provider.key_place.map_or("none", KeyPlace::as_str);
            let words = [&provider.name, &provider.profile, provider.api.as_str(), &provider.base_url, key];
            words.map(str::to_owned).to_vec()
        },
    )
}

fn described(profile: &Profile) -> serde_json::Value {
    serde_json::json!({
        "name": profile.name,
        "title": profile.title,
        "base_url": profile.base_url,
        "base_url_example": profile.base_url_example,
        "apis": profile.apis,
        "key": profile.key,
        "models_as_of": profile.models_as_of,
        "efforts_as_of": profile.efforts_as_of,
    })
}

fn profile_list() -> String {
    records::list(Profile::all(), "", &["PROFILE", "FOR", "API", "MODELS AS OF", "API BASE URL"], |profile| {
        let apis = profile.apis.iter().map(|api| api.as_str()).collect::<Vec<_>>().join(", ");
        let example = profile.base_url_example.as_ref().map(|example| format!("yours, such as {example}"));
        let base_url = profile.base_url.clone().or(example).unwrap_or_default();
        let as_of = profile.models_as_of.clone().unwrap_or_else(|| "-".to_owned());
        vec![profile.name.to_owned(), profile.title.clone(), apis, as_of, base_url]
    })
}

fn model_list(models: &[ListedModel]) -> String {
    let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    records::list(
        models,
        "The provider lists no model for this key.",
        &["MODEL", "CONTEXT", "MAX OUTPUT", "USD PER MILLION READ / WRITTEN"],
        |model| {
            let price = model.usd_per_million_tokens.map(|(read, written)| format!("{read} / {written}"));
            vec![
                model.model.clone(),
                number(model.context_tokens),
                number(model.max_output_tokens),
                price.unwrap_or_else(|| "-".to_owned()),
            ]
        },
    )
}
