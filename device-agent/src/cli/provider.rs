//! `provider`: the model providers that services may name.

use clap::{Args, Subcommand, ValueEnum};
use deskgate_assistant::providers::{ProviderConfig, ProviderKind};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_protocol::secret::SecretKind;

use super::key_file::KeyFileArgs;
use super::no_secret;
use super::socket::AgentClient;
use crate::local::{KeyPlace, ListProviders, NewKey, RemoveProvider, SetProvider};

/// `deskgate provider …`
#[derive(Debug, Subcommand)]
pub(super) enum ProviderCommand {
    /// Add a model provider, or change it; its key stays on this computer
    Set(ProviderSetArgs),
    /// The model providers of this device
    List,
    /// Remove a model provider and its key; services that name it cannot run any more
    Remove {
        /// Its name
        name: String,
    },
}

/// `deskgate provider set`
#[derive(Debug, Args)]
pub(super) struct ProviderSetArgs {
    /// What services name it by, such as work
    name: String,
    /// The API it speaks; openai is also what most other servers speak
    #[arg(long, value_enum)]
    kind: Option<KindName>,
    /// Its API base URL [default: the kind's own]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    #[command(flatten)]
    key: KeyFileArgs,
}

/// The kinds.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum KindName {
    /// Anthropic's Messages API
    Anthropic,
    /// OpenAI's Chat Completions API
    Openai,
}

pub(super) async fn run(agent: AgentClient, command: ProviderCommand, out: Output) -> Result<(), Failure> {
    match command {
        ProviderCommand::Set(set) => {
            let provider = agent.request(request(set)?).await?;
            out.result("provider/1", &provider, || {
                let next =
                    format!("Next: deskgate service create NAME --app APP --provider {} --model MODEL", provider.name);
                match provider.key_place {
                    Some(place) => format!("Saved, its key {}.\n{next}", place.words()),
                    None => format!("Saved without a key.\n{next}"),
                }
            });
        }
        ProviderCommand::List => {
            let providers = agent.request(ListProviders {}).await?;
            out.result("providers/1", &serde_json::json!({ "providers": providers }), || list(&providers));
        }
        ProviderCommand::Remove { name } => {
            agent.request(RemoveProvider { name: name.clone() }).await?;
            out.result("provider-removed/1", &serde_json::json!({ "name": name }), || {
                format!("{name} and its key are gone from this computer.")
            });
        }
    }
    Ok(())
}

fn request(set: ProviderSetArgs) -> Result<SetProvider, Failure> {
    for (what, text) in [("NAME", Some(&set.name)), ("--base-url", set.base_url.as_ref())] {
        no_secret(what, text.map(String::as_str).unwrap_or_default())?;
    }
    let (key, key_place) = (set.key.read()?, set.key.place());
    if let NewKey::Replace(text) = &key
        && let Some(kind) = SecretKind::of(text.trim()).filter(|kind| *kind != SecretKind::ModelProviderKey)
    {
        return Err(Failure::new(Exit::Usage, format!("--key-file: this is {kind}, not a model provider's key")));
    }
    let kind = set.kind.map(|kind| match kind {
        KindName::Anthropic => ProviderKind::Anthropic,
        KindName::Openai => ProviderKind::Openai,
    });
    Ok(SetProvider { name: set.name, kind, base_url: set.base_url, key, key_place })
}

fn list(providers: &[ProviderConfig]) -> String {
    records::list(
        providers,
        "No model provider yet: services use the scripted assistant. Add one: deskgate provider set NAME --kind \
                anthropic --key-file -",
        &["NAME", "KIND", "API BASE URL", "KEY"],
        |provider| {
            let kind = match provider.kind {
                ProviderKind::Anthropic => "anthropic",
                ProviderKind::Openai => "openai",
            };
            let key = provider.key_place.map_or("none", KeyPlace::as_str);
            vec![provider.name.clone(), kind.to_owned(), provider.base_url.clone(), key.to_owned()]
        },
    )
}
