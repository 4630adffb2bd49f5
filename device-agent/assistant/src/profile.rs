//! Profiles of model providers: what differs between vendors, as data.
//!
//! One file in `profiles/` for each. A new vendor of a known format is a new file there and a line in `FILES` here.

use std::sync::LazyLock;

use deskgate_definition::{Effort, ModelReads};
use serde::Deserialize;

use super::prices::Prices;

/// The files, in the order in which people are shown them.
const FILES: [(&str, &str); 17] = [
    ("openai", include_str!("../profiles/openai.toml")),
    ("anthropic", include_str!("../profiles/anthropic.toml")),
    ("azure", include_str!("../profiles/azure.toml")),
    ("azure-classic", include_str!("../profiles/azure-classic.toml")),
    ("google", include_str!("../profiles/google.toml")),
    ("mistral", include_str!("../profiles/mistral.toml")),
    ("deepseek", include_str!("../profiles/deepseek.toml")),
    ("openrouter", include_str!("../profiles/openrouter.toml")),
    ("xai", include_str!("../profiles/xai.toml")),
    ("groq", include_str!("../profiles/groq.toml")),
    ("ollama", include_str!("../profiles/ollama.toml")),
    ("lmstudio", include_str!("../profiles/lmstudio.toml")),
    ("vllm", include_str!("../profiles/vllm.toml")),
    ("llamacpp", include_str!("../profiles/llamacpp.toml")),
    ("litellm", include_str!("../profiles/litellm.toml")),
    ("compatible", include_str!("../profiles/compatible.toml")),
    ("compatible-messages", include_str!("../profiles/compatible-messages.toml")),
];

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let parse = |(name, text): &(&'static str, &str)| {
        let profile = toml::from_str(text).expect("profiles are part of the program, and a test reads each");
        Profile { name, ..profile }
    };
    FILES.iter().map(parse).collect()
});

deskgate_protocol::words! {
    /// The formats that models are asked in.
    pub enum Api {
        /// OpenAI's Responses.
        Responses = "responses",
        /// OpenAI's Chat Completions.
        Chat = "chat",
        /// Anthropic's Messages.
        Messages = "messages",
    }
}

deskgate_protocol::words! {
    /// Whether something has to be given.
    #[derive(Default)]
    pub enum Need {
        /// It has no meaning here.
        #[default]
        None = "none",
        /// It may be given.
        Optional = "optional",
        /// Nothing works without it.
        Required = "required",
    }
}

deskgate_protocol::words! {
    /// The header that carries the key.
    #[derive(Default)]
    pub enum KeyHeader {
        /// `Authorization: Bearer …` (RFC 6750).
        #[default]
        Bearer = "bearer",
        /// `x-api-key`, as Anthropic has it.
        XApiKey = "x-api-key",
        /// `api-key`, as Azure has it.
        ApiKey = "api-key",
    }
}

/// One vendor, or one program that serves models.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name on the command line and in files.
    #[serde(skip)]
    pub name: &'static str,
    /// Its name for people.
    pub title: String,
    /// Its address; absent where each account or installation has its own.
    pub base_url: Option<String>,
    /// What such an address looks like.
    pub base_url_example: Option<String>,
    /// The formats it has; the first is used unless the owner chooses another.
    pub apis: Vec<Api>,
    /// Whether it wants a key.
    pub key: Need,
    /// The header with the key.
    #[serde(default)]
    pub key_header: KeyHeader,
    /// Whether requests name a version of the API in their address (`api-version`, Azure's).
    #[serde(default)]
    pub api_version: Need,
    /// Addresses that are not the formats' own, after the base URL.
    #[serde(default)]
    pub paths: Paths,
    /// How it differs in Chat Completions.
    #[serde(default)]
    pub chat: ChatOptions,
    /// What its models read beside text, unless a model's entry says otherwise.
    #[serde(default)]
    pub reads: ModelReads,
    /// Where it takes images and documents, unless a model's entry says otherwise; absent: where its format has them.
    pub attachments_in: Option<AttachmentPlace>,
    /// The efforts that its models take, unless a model's entry says otherwise; absent: unknown, each is sent as it is.
    pub efforts: Option<Vec<Effort>>,
    /// The day that the efforts were looked up, where that was after the models.
    pub efforts_as_of: Option<String>,
    /// The day that the models were looked up.
    pub models_as_of: Option<String>,
    /// The models that are known.
    #[serde(default)]
    pub models: Vec<ModelEntry>,
}

/// Addresses of one profile; absent: the format's own. `{model}` stands for the model's name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Paths {
    /// Of Responses.
    pub responses: Option<String>,
    /// Of Chat Completions.
    pub chat: Option<String>,
    /// Of Messages.
    pub messages: Option<String>,
    /// Of the list of models; empty: there is none.
    pub models: Option<String>,
}

/// How a server differs in Chat Completions. What is absent is not sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatOptions {
    /// The member with the limit of an answer's tokens.
    pub output_limit: String,
    /// Whether it takes `stream_options`, to report tokens at the end of a stream.
    pub stream_options: bool,
    /// Where it takes the effort of reasoning: a member, or two with a dot between them.
    pub effort: Option<String>,
    /// Members that ask for no reasoning, where the member for the effort has no word for it.
    pub effort_none: toml::Table,
    /// Members of the model's message that go back with it, if it had them.
    pub pass_back: Vec<String>,
    /// Those that go back empty if it did not have them.
    pub pass_back_always: Vec<String>,
    /// The member with a key for the cache.
    pub cache_key: Option<String>,
    /// Models whose prompts are marked for a cache, by the beginning of their names.
    pub cache_marks: Vec<String>,
    /// Members of a tool's schema that it refuses.
    pub refused_schema_members: Vec<String>,
    /// Members that every request has.
    pub extra: toml::Table,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            output_limit: "max_tokens".to_owned(),
            stream_options: true,
            effort: None,
            effort_none: toml::Table::new(),
            pass_back: ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"]
                .map(str::to_owned)
                .into(),
            pass_back_always: Vec::new(),
            cache_key: None,
            cache_marks: Vec::new(),
            refused_schema_members: Vec::new(),
            extra: toml::Table::new(),
        }
    }
}

deskgate_protocol::words! {
    /// Where a server takes the images and documents that a call shows.
    pub enum AttachmentPlace {
        /// In the call's result.
        Result = "result",
        /// In a message of the user's after it.
        User = "user",
    }
}

deskgate_protocol::words! {
    /// How a model of Anthropic's is asked to think.
    pub enum Thinking {
        /// It decides how much, within an effort.
        Adaptive = "adaptive",
        /// It gets a number of tokens.
        Budget = "budget",
        /// It cannot.
        None = "none",
    }
}

/// What is known of a model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Its name, which may be followed by a date; or, with `*`, how its name begins.
    pub id: String,
    /// The tokens of one call, its answer included.
    pub context_tokens: Option<u64>,
    /// The tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// What it reads beside text; absent: as the profile says.
    pub reads: Option<ModelReads>,
    /// Where it takes images and documents; absent: as the profile says.
    pub attachments_in: Option<AttachmentPlace>,
    /// Whether it reasons, and so takes an effort and gives encrypted reasoning.
    #[serde(default = "yes")]
    pub reasons: bool,
    /// The efforts that it takes; absent: as the profile says.
    pub efforts: Option<Vec<Effort>>,
    /// How a model of Anthropic's is asked to think; absent: adaptively.
    pub thinking: Option<Thinking>,
    /// Whether it thinks without being asked.
    #[serde(default)]
    pub thinks_by_default: bool,
    /// The word with which it is asked not to think; absent: `disabled`; empty: it always thinks.
    pub thinking_off: Option<String>,
    /// US dollars for a million tokens.
    pub usd_per_million_tokens: Option<Prices>,
}

fn yes() -> bool {
    true
}

impl ModelEntry {
    /// Whether this is the entry of a model. A name may be followed by a date, by `latest`, or by a variant behind a
    /// colon.
    fn names(&self, name: &str) -> bool {
        if let Some(beginning) = self.id.strip_suffix('*') {
            return name.starts_with(beginning);
        }
        let Some(rest) = name.strip_prefix(&self.id) else { return false };
        let dated = rest.strip_prefix(['-', '@']).is_some_and(|rest| {
            rest == "latest" || (rest.len() >= 4 && rest.chars().all(|c| c.is_ascii_digit() || c == '-'))
        });
        rest.is_empty() || rest.starts_with(':') || dated
    }
}

impl Profile {
    /// Every profile, in the order in which people are shown them.
    pub fn all() -> &'static [Self] {
        &PROFILES
    }

    /// The profile of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|profile| profile.name == name)
    }

    /// The names of all profiles, in one line.
    pub fn names() -> String {
        Self::all().iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
    }

    /// What is known of a model.
    pub fn model(&self, name: &str) -> Option<&ModelEntry> {
        self.models.iter().filter(|entry| entry.names(name)).max_by_key(|entry| entry.id.trim_end_matches('*').len())
    }

    /// The address of a format, after the base URL, for a model.
    pub(super) fn path(&self, api: Api, model: &str) -> String {
        let (own, default) = match api {
            Api::Responses => (&self.paths.responses, "/responses"),
            Api::Chat => (&self.paths.chat, "/chat/completions"),
            Api::Messages => (&self.paths.messages, "/v1/messages"),
        };
        own.as_deref().unwrap_or(default).replace("{model}", model)
    }

    /// The address of the list of models, after the base URL; `None`: there is none.
    pub(super) fn models_path(&self) -> Option<&str> {
        let default = if self.apis.first() == Some(&Api::Messages) { "/v1/models" } else { "/models" };
        Some(self.paths.models.as_deref().unwrap_or(default)).filter(|path| !path.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_used_as_it_is() {
        for profile in Profile::all() {
            let name = profile.name;
            assert!(!profile.apis.is_empty(), "{name}");
            assert!(
                profile.base_url.is_some() != profile.base_url_example.is_some(),
                "{name}: an address or an example"
            );
            let url = profile.base_url.as_ref().or(profile.base_url_example.as_ref()).expect("one of them");
            assert!(reqwest::Url::parse(url).is_ok() && !url.ends_with('/'), "{name}: {url}");
            assert_eq!(profile.models.is_empty(), profile.models_as_of.is_none(), "{name}: models have a day");
            let is_dated = profile.models_as_of.is_some() || profile.efforts_as_of.is_some();
            assert!(is_dated || profile.efforts.is_none(), "{name}: efforts have a day");
            for entry in &profile.models {
                assert!(entry.max_output_tokens <= entry.context_tokens, "{name}: {}", entry.id);
                assert!(
                    entry.reasons || entry.efforts.is_none(),
                    "{name}: {}: efforts of what does not reason",
                    entry.id
                );
            }
        }
        assert_eq!(Profile::named("openai").map(|profile| profile.apis[0]), Some(Api::Responses));
        assert!(Profile::named("openapi").is_none());
    }

    #[test]
    fn a_model_is_known_by_its_name_with_a_date_or_by_how_its_name_begins() {
        let entry = |id: &str| ModelEntry {
            id: id.to_owned(),
            context_tokens: None,
            max_output_tokens: None,
            reads: None,
            attachments_in: None,
            reasons: true,
            efforts: None,
            thinking: None,
            thinks_by_default: false,
            thinking_off: None,
            usd_per_million_tokens: None,
        };
        let profile: Profile = toml::from_str("title = \"X\"\napis = [\"chat\"]\nkey = \"none\"").expect("sound");
        let profile = Profile { models: vec![entry("m-1"), entry("m-1-mini"), entry("m-*")], ..profile };
        let known = |name: &str| profile.model(name).map(|entry| entry.id.as_str());
        assert_eq!(known("m-1-mini-2026-11-01"), Some("m-1-mini"));
        assert_eq!((known("m-1-2026"), known("m-1"), known("m-1:free")), (Some("m-1"), Some("m-1"), Some("m-1")));
        // Nothing is guessed of a model with another name.
        assert_eq!((known("m-1.5"), known("m-1-nano"), known("other")), (Some("m-*"), Some("m-*"), None));
    }
}
