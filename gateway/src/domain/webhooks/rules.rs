//! Filter and mapping: what an event would become. Pure, so that a trial and a reception give the same result.

use std::collections::BTreeMap;

use deskgate_protocol::HookId;
use deskgate_protocol::management::{
    MappedRun, TrialOutcome, WebhookFilter, WebhookMapping, WebhookScheme, WebhookSettings,
};
use deskgate_protocol::service::check_name;
use deskgate_schema::MAX_DATA_BYTES;
use serde_json::Value;

use super::cel::{Condition, InvalidCondition};
use super::path::{InvalidPath, Path};
use super::template::{InvalidTemplate, Template, shown};
use super::{Headers, SignatureError, WebhookEvent, cut};
use crate::domain::access::is_subject;

/// Labels that a mapping may have; three more name a run's origin.
const MAX_LABELS: usize = 13;
/// Members of the data that a mapping may have.
const MAX_DATA_MEMBERS: usize = 32;
/// The prefix of the labels that name a run's origin.
const RESERVED_LABEL_PREFIX: &str = "webhook_";
/// Characters of a label's value (http-api, section "Admission").
const MAX_LABEL_CHARS: usize = 512;
/// Types in a filter.
const MAX_FILTER_TYPES: usize = 64;
/// The highest rate of genuine events a second that a webhook may have.
const MAX_EVENTS_PER_SECOND: u32 = 1000;

/// Why settings cannot be saved. Each text begins with its subject, as options of `deskgate hook` are called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// The name is not usable.
    #[error("name: {0}")]
    Name(String),
    /// The text of the input.
    #[error("text: {0}")]
    Text(#[from] InvalidTemplate),
    /// A path.
    #[error("{0}: {1}")]
    Path(&'static str, InvalidPath),
    /// A label's path.
    #[error("label: {0}: {1}")]
    Label(String, InvalidPath),
    /// The condition.
    #[error("condition: {0}")]
    Condition(#[from] InvalidCondition),
    /// The event types.
    #[error("event-type: a filter has at most 64 event types of 1 to 255 characters, with a * at the end only")]
    Types,
    /// The subject is missing.
    #[error("subject: a webhook needs a subject: a fixed one, or a path to it, or both")]
    NoSubject,
    /// The subject is not valid.
    #[error("subject: a subject has 1 to 255 visible ASCII characters")]
    Subject,
    /// The labels.
    #[error("label: at most 13 labels, with names of 1 to 64 characters that do not begin with webhook_")]
    Labels,
    /// A path of the data.
    #[error("data: {0}: {1}")]
    Data(String, InvalidPath),
    /// The data.
    #[error("data: at most 32 members, with names of 1 to 64 characters")]
    DataMembers,
    /// The rate.
    #[error("rate: a webhook takes 1 to 1000 events a second")]
    Rate,
    /// A header's name.
    #[error("{0}: {1:?} is no name of a header")]
    Header(&'static str, String),
    /// The prefix of a signature.
    #[error("prefix: a prefix has at most 64 visible ASCII characters")]
    Prefix,
}

/// The source of a value in an event: a header or the payload.
#[derive(Clone, Debug)]
pub(super) enum ValueSource {
    Header(String),
    Payload(Path),
}

impl ValueSource {
    /// A path begins with `$`; everything else is a header's name.
    pub(super) fn parse(what: &'static str, text: &str) -> Result<Self, InvalidSettings> {
        match text.starts_with('$') {
            true => path(what, text).map(Self::Payload),
            false => header(what, text).map(|()| Self::Header(text.to_owned())),
        }
    }

    pub(super) fn of(&self, headers: &Headers<'_>, payload: &Value) -> Result<Option<String>, SignatureError> {
        match self {
            Self::Header(name) => Ok(headers.find(name)?.map(str::to_owned)),
            Self::Payload(path) => Ok(path.of(payload).and_then(shown)),
        }
    }
}

fn path(what: &'static str, text: &str) -> Result<Path, InvalidSettings> {
    Path::parse(text).map_err(|error| InvalidSettings::Path(what, error))
}

/// Names with their paths.
fn paths(
    texts: &BTreeMap<String, String>,
    wrong: fn(String, InvalidPath) -> InvalidSettings,
) -> Result<BTreeMap<String, Path>, InvalidSettings> {
    let parse = |(name, text): (&String, &String)| match Path::parse(text) {
        Ok(path) => Ok((name.clone(), path)),
        Err(error) => Err(wrong(name.clone(), error)),
    };
    texts.iter().map(parse).collect()
}

fn header(what: &'static str, name: &str) -> Result<(), InvalidSettings> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let usable = (1..=64).contains(&name.len()) && name.bytes().all(token);
    if usable { Ok(()) } else { Err(InvalidSettings::Header(what, name.chars().take(80).collect())) }
}

/// Filter and mapping, parsed.
#[derive(Clone, Debug)]
pub struct Rules {
    types: Vec<String>,
    condition: Option<Condition>,
    text: Template,
    subject: Option<String>,
    subject_path: Option<Path>,
    conversation_key: Option<Path>,
    labels: BTreeMap<String, Path>,
    data: BTreeMap<String, Path>,
}

impl Rules {
    /// Parses a webhook's settings.
    ///
    /// # Errors
    /// See [`InvalidSettings`].
    pub fn read(settings: &WebhookSettings) -> Result<Self, InvalidSettings> {
        check_name(&settings.name).map_err(InvalidSettings::Name)?;
        check_scheme(&settings.scheme)?;
        if !(1..=MAX_EVENTS_PER_SECOND).contains(&settings.requests_per_second) {
            return Err(InvalidSettings::Rate);
        }
        let WebhookFilter { event_types, condition } = &settings.filter;
        let WebhookMapping { text, subject, subject_path, conversation_key, on_busy: _, metadata, data } =
            &settings.mapping;
        let is_type =
            |kind: &String| (1..=255).contains(&kind.len()) && !kind.strip_suffix('*').unwrap_or(kind).contains('*');
        if event_types.len() > MAX_FILTER_TYPES || !event_types.iter().all(is_type) {
            return Err(InvalidSettings::Types);
        }
        if subject.is_none() && subject_path.is_none() {
            return Err(InvalidSettings::NoSubject);
        }
        if subject.as_deref().is_some_and(|subject| !is_subject(subject)) {
            return Err(InvalidSettings::Subject);
        }
        let is_label =
            |name: &String| (1..=64).contains(&name.chars().count()) && !name.starts_with(RESERVED_LABEL_PREFIX);
        if metadata.len() > MAX_LABELS || !metadata.keys().all(is_label) {
            return Err(InvalidSettings::Labels);
        }
        if data.len() > MAX_DATA_MEMBERS || !data.keys().all(|name| (1..=64).contains(&name.chars().count())) {
            return Err(InvalidSettings::DataMembers);
        }
        let optional = |what, text: &Option<String>| text.as_deref().map(|text| path(what, text)).transpose();
        Ok(Self {
            types: event_types.clone(),
            condition: condition.as_deref().map(Condition::parse).transpose()?,
            text: Template::parse(text)?,
            subject: subject.clone(),
            subject_path: optional("subject-path", subject_path)?,
            conversation_key: optional("conversation-key", conversation_key)?,
            labels: paths(metadata, InvalidSettings::Label)?,
            data: paths(data, InvalidSettings::Data)?,
        })
    }

    /// The outcome of an event.
    pub fn judge(&self, event: &WebhookEvent) -> TrialOutcome {
        match self.unwanted(event) {
            Some(reason) => TrialOutcome::Ignored { reason },
            None => match self.mapped(event) {
                Ok(mapped) => TrialOutcome::Submitted(mapped),
                Err(reason) => TrialOutcome::Refused { reason },
            },
        }
    }

    /// Why the filter rejects an event.
    fn unwanted(&self, event: &WebhookEvent) -> Option<String> {
        let kind = event.kind.as_deref().unwrap_or_default();
        let fits = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => kind.starts_with(beginning),
            None => kind == wanted,
        };
        if !self.types.is_empty() && !self.types.iter().any(fits) {
            return Some(match &event.kind {
                Some(kind) => format!("the filter does not have the type {kind:?}"),
                None => "the filter asks for types, and the event has none".to_owned(),
            });
        }
        match self.condition.as_ref()?.holds(event) {
            Ok(true) => None,
            Ok(false) => Some("the condition does not hold".to_owned()),
            Err(error) => Some(format!("the condition has no answer: {error}")),
        }
    }

    fn mapped(&self, event: &WebhookEvent) -> Result<MappedRun, String> {
        let text = self.text.fill(event).map_err(|error| error.to_string())?;
        if text.is_empty() {
            return Err("the text is empty".to_owned());
        }
        let at = |path: &Path| path.of(&event.payload).and_then(shown);
        let subject = self.subject_path.as_ref().and_then(at).or_else(|| self.subject.clone());
        let subject = subject.ok_or("the event names no subject, and there is no fixed one")?;
        if !is_subject(&subject) {
            return Err("the subject is not 1 to 255 visible ASCII characters".to_owned());
        }
        let conversation_key = match &self.conversation_key {
            None => None,
            Some(path) => Some(at(path).ok_or("the event names no conversation")?),
        };
        // The same rule as for callers.
        let is_key = |key: &String| (1..=255).contains(&key.chars().count()) && !key.chars().any(char::is_control);
        if conversation_key.as_ref().is_some_and(|key| !is_key(key)) {
            return Err("the conversation's key is not 1 to 255 characters without control characters".to_owned());
        }
        let labels = self.labels.iter().filter_map(|(name, path)| Some((name.clone(), at(path)?)));
        let metadata = labels.map(|(name, value)| (name, value.chars().take(MAX_LABEL_CHARS).collect())).collect();
        Ok(MappedRun { text, subject, conversation_key, metadata, data: self.data(event)? })
    }

    /// The members that the event has, as they are.
    fn data(&self, event: &WebhookEvent) -> Result<Option<BTreeMap<String, Value>>, String> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let (mut data, mut bytes) = (BTreeMap::new(), 0);
        for (name, path) in &self.data {
            let Some(value) = path.of(&event.payload) else { continue };
            bytes += name.len() + value.to_string().len();
            if bytes > MAX_DATA_BYTES {
                return Err(format!("the data is larger than {MAX_DATA_BYTES} bytes"));
            }
            data.insert(name.clone(), value.clone());
        }
        Ok(Some(data))
    }
}

/// The labels that name a run's origin.
pub(super) fn own_labels(hook_id: HookId, event: &WebhookEvent) -> impl Iterator<Item = (String, String)> {
    let kind = event.kind.clone().map(|kind| ("event_type", kind));
    let all = [("hook_id", hook_id.to_string()), ("event_id", event.id.clone())].into_iter().chain(kind);
    all.map(|(name, value)| (format!("{RESERVED_LABEL_PREFIX}{name}"), cut(value, MAX_LABEL_CHARS)))
}

fn check_scheme(scheme: &WebhookScheme) -> Result<(), InvalidSettings> {
    let WebhookScheme::Hmac(plain) = scheme else { return Ok(()) };
    header("signature-header", &plain.header)?;
    if plain.prefix.len() > 64 || !plain.prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidSettings::Prefix);
    }
    for (what, source) in [("event-id-from", &plain.event_id), ("event-type-from", &plain.event_type)] {
        source.as_deref().map(|source| ValueSource::parse(what, source)).transpose()?;
    }
    Ok(())
}
