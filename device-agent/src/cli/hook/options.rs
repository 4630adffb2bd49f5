//! The options of a webhook's commands, merged with its existing settings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use deskgate_program::exit::{Exit, Failure};
use deskgate_protocol::EndpointId;
use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::management::{
    HashAlgorithm, PlainHmac, SignatureEncoding, WebhookFilter, WebhookMapping, WebhookScheme, WebhookSettings,
};

use super::super::key_file::text_of;
use super::super::service::endpoint_of;
use super::super::socket::AgentClient;

/// The default limit of events per second.
const DEFAULT_EVENTS_PER_SECOND: u32 = 10;

/// How the other system signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SchemeName {
    /// Standard Webhooks (webhook-id, webhook-timestamp, webhook-signature)
    Standard,
    /// GitHub (X-Hub-Signature-256)
    Github,
    /// Stripe (Stripe-Signature)
    Stripe,
    /// An HMAC of the body in a header of any name: see --signature-header
    Hmac,
}

/// What is chosen. An empty text takes away what may be left out.
#[derive(Debug, Args)]
pub(in crate::cli) struct HookOptions {
    /// The name or identifier of the published service that its events are for
    #[arg(long)]
    service: Option<String>,
    /// The input's text, with paths, as in "{{ $.issue.title }}"
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "text_file")]
    text: Option<String>,
    /// A file with it; - for standard input
    #[arg(long, value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// The business user, if the event names none
    #[arg(long)]
    subject: Option<String>,
    /// Where the event names the business user, as in $.sender.login
    #[arg(long, value_name = "PATH")]
    subject_path: Option<String>,
    /// Where the event names its conversation: events become messages
    #[arg(long, value_name = "PATH")]
    conversation_key: Option<String>,
    /// What becomes of a message while its conversation works on another one: reject, enqueue or interrupt [default:
    /// reject]
    #[arg(long, value_name = "WHAT")]
    on_busy: Option<OnBusy>,
    /// A label of the run and where its value is, as in issue=$.issue.number; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = label)]
    label: Vec<(String, String)>,
    /// A member of the input's data and where its value is, as in number=$.issue.number; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = label)]
    data: Vec<(String, String)>,
    /// A type of events that is wanted, a final * stands for any ending; may be repeated [default: all]
    #[arg(long, value_name = "TYPE")]
    event_type: Vec<String>,
    /// A condition in CEL, as in "payload.action == 'opened'"
    #[arg(long, value_name = "CEL")]
    condition: Option<String>,
    /// Events a second [default: 10]
    #[arg(long, value_name = "NUMBER")]
    rate: Option<u32>,
    /// Whether bodies are kept with the last events: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    keep_bodies: Option<bool>,
    /// With --scheme hmac: the header with the signature
    #[arg(long, value_name = "NAME", help_heading = "Plain HMAC")]
    signature_header: Option<String>,
    /// sha1, sha256 or sha512 [default: sha256]
    #[arg(long, help_heading = "Plain HMAC")]
    algorithm: Option<HashAlgorithm>,
    /// hex or base64 [default: hex]
    #[arg(long, help_heading = "Plain HMAC")]
    encoding: Option<SignatureEncoding>,
    /// What stands before the signature, as in sha256=
    #[arg(long, value_name = "TEXT", help_heading = "Plain HMAC")]
    prefix: Option<String>,
    /// Where the event's identifier is: a header's name, or a path
    #[arg(long, value_name = "PLACE", help_heading = "Plain HMAC")]
    event_id_from: Option<String>,
    /// Where its type is
    #[arg(long, value_name = "PLACE", help_heading = "Plain HMAC")]
    event_type_from: Option<String>,
}

fn needed(what: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{what} is missing"))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, path) = text.split_once('=').ok_or("it is written as name=$.path")?;
    Ok((name.to_owned(), path.to_owned()))
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

impl HookOptions {
    /// Settings for a test without a saved webhook: an event's result does not depend on its application.
    pub(super) fn for_test(self, scheme: SchemeName) -> Result<WebhookSettings, Failure> {
        self.anew(EndpointId::new(), "tried".to_owned(), scheme)
    }

    /// Settings for a new webhook.
    pub(super) async fn for_create(
        self,
        agent: &AgentClient,
        name: String,
        scheme: SchemeName,
    ) -> Result<WebhookSettings, Failure> {
        let endpoint_id = self.endpoint(agent).await?.ok_or_else(|| needed("--service"))?;
        self.anew(endpoint_id, name, scheme)
    }

    /// The options merged with existing settings.
    pub(super) async fn for_update(
        self,
        agent: &AgentClient,
        mut settings: WebhookSettings,
    ) -> Result<WebhookSettings, Failure> {
        put(&mut settings.endpoint_id, self.endpoint(agent).await?);
        self.put_over(settings)
    }

    async fn endpoint(&self, agent: &AgentClient) -> Result<Option<EndpointId>, Failure> {
        let Some(service) = &self.service else { return Ok(None) };
        endpoint_of(agent, service).await.map(Some)
    }

    fn anew(self, endpoint_id: EndpointId, name: String, scheme: SchemeName) -> Result<WebhookSettings, Failure> {
        if self.text.is_none() && self.text_file.is_none() {
            return Err(needed("--text"));
        }
        let scheme = match scheme {
            SchemeName::Standard => WebhookScheme::StandardWebhooks {},
            SchemeName::Github => WebhookScheme::Github {},
            SchemeName::Stripe => WebhookScheme::Stripe {},
            SchemeName::Hmac => WebhookScheme::Hmac(PlainHmac {
                header: self.signature_header.clone().ok_or_else(|| needed("--signature-header"))?,
                algorithm: HashAlgorithm::Sha256,
                encoding: SignatureEncoding::Hex,
                prefix: String::new(),
                event_id: None,
                event_type: None,
            }),
        };
        let mapping = WebhookMapping {
            text: String::new(),
            subject: None,
            subject_path: None,
            conversation_key: None,
            on_busy: OnBusy::default(),
            metadata: BTreeMap::new(),
            data: BTreeMap::new(),
        };
        self.put_over(WebhookSettings {
            name,
            endpoint_id,
            scheme,
            filter: WebhookFilter::default(),
            mapping,
            requests_per_second: DEFAULT_EVENTS_PER_SECOND,
            keep_bodies: false,
        })
    }

    fn put_over(self, mut settings: WebhookSettings) -> Result<WebhookSettings, Failure> {
        let text = self.text_file.as_deref().map(text_of).transpose()?.or(self.text);
        put(&mut settings.mapping.text, text);
        put(&mut settings.requests_per_second, self.rate);
        put(&mut settings.keep_bodies, self.keep_bodies);
        put_optional(&mut settings.mapping.subject, self.subject);
        put_optional(&mut settings.mapping.subject_path, self.subject_path);
        put_optional(&mut settings.mapping.conversation_key, self.conversation_key);
        put(&mut settings.mapping.on_busy, self.on_busy);
        put_optional(&mut settings.filter.condition, self.condition);
        if !self.event_type.is_empty() {
            settings.filter.event_types = self.event_type.into_iter().filter(|kind| !kind.is_empty()).collect();
        }
        put_pairs(&mut settings.mapping.metadata, self.label);
        put_pairs(&mut settings.mapping.data, self.data);
        let of_plain = [&self.signature_header, &self.prefix, &self.event_id_from, &self.event_type_from];
        let plain_chosen =
            of_plain.iter().any(|value| value.is_some()) || self.algorithm.is_some() || self.encoding.is_some();
        match &mut settings.scheme {
            WebhookScheme::Hmac(plain) => {
                put(&mut plain.header, self.signature_header);
                put(&mut plain.algorithm, self.algorithm);
                put(&mut plain.encoding, self.encoding);
                put(&mut plain.prefix, self.prefix);
                put_optional(&mut plain.event_id, self.event_id_from);
                put_optional(&mut plain.event_type, self.event_type_from);
            }
            _ if plain_chosen => {
                return Err(Failure::new(Exit::Usage, "options of a plain HMAC belong to --scheme hmac"));
            }
            _ => {}
        }
        Ok(settings)
    }
}

/// An empty path takes its name away.
fn put_pairs(place: &mut BTreeMap<String, String>, chosen: Vec<(String, String)>) {
    for (name, path) in chosen {
        match path.is_empty() {
            true => place.remove(&name),
            false => place.insert(name, path),
        };
    }
}

fn put<T>(place: &mut T, chosen: Option<T>) {
    if let Some(chosen) = chosen {
        *place = chosen;
    }
}

fn put_optional(place: &mut Option<String>, chosen: Option<String>) {
    if let Some(chosen) = chosen {
        *place = Some(chosen).filter(|text| !text.is_empty());
    }
}
