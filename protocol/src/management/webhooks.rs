//! Incoming webhooks: signed events of other systems that become runs and messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::conversation::OnBusy;
use crate::ids::{ApplicationId, ConversationId, EndpointId, HookId, ReceiptId, RunId};
use crate::time::Timestamp;
use crate::words::api_words;

api_words! {
    /// The hash function of a signature.
    pub enum HashAlgorithm {
        /// SHA-1: only for senders that support no other.
        Sha1 = "sha1",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

api_words! {
    /// How a signature is encoded.
    pub enum SignatureEncoding {
        /// Two hexadecimal digits for each byte.
        Hex = "hex",
        /// Base64 with the alphabet of RFC 4648, section 4.
        Base64 = "base64",
    }
}

api_words! {
    /// What became of a received event.
    pub enum ReceiptOutcome {
        /// It started a run.
        Accepted = "accepted",
        /// It is genuine, and the filter excludes it.
        Ignored = "ignored",
        /// It was answered with a problem.
        Refused = "refused",
        /// It was received before, and started its run then.
        Repeated = "repeated",
    }
}

/// How the other system signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WebhookScheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    StandardWebhooks {},
    /// GitHub: `X-Hub-Signature-256`. It signs the body only.
    Github {},
    /// Stripe: `Stripe-Signature`.
    Stripe {},
    /// An HMAC of the body in a header.
    Hmac(PlainHmac),
}

impl WebhookScheme {
    /// The scheme's name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::StandardWebhooks {} => "standard_webhooks",
            Self::Github {} => "github",
            Self::Stripe {} => "stripe",
            Self::Hmac(_) => "hmac",
        }
    }
}

/// An HMAC of the body in a header, and where the event has its identifier and type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainHmac {
    /// The header with the signature.
    pub header: String,
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// How the signature is encoded.
    pub encoding: SignatureEncoding,
    /// The text before the signature in the header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Where the event has its identifier: a header's name, or a path that begins with `$`. If absent, events with the
    /// same body are the same event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Where the event has its type, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
}

/// Which events start runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookFilter {
    /// Their types, each exact or a prefix with a final `*`; empty means all.
    #[serde(default)]
    pub event_types: Vec<String>,
    /// A condition in the Common Expression Language over `payload` and `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// Which parts of an event become which parts of a run. An event can set only these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookMapping {
    /// The input's text: a template with paths, as in `{{ $.issue.title }}`.
    pub text: String,
    /// The subject, if the event names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where the event names the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_path: Option<String>,
    /// Where the event names its conversation. If set, events become messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<String>,
    /// What becomes of an event while its conversation works on another one.
    #[serde(default)]
    pub on_busy: OnBusy,
    /// Labels of the run, each with the path of its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Members of the input's data, each with the path of its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
}

/// A webhook's settings, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// Its name, for people.
    pub name: String,
    /// The service that its events are for.
    pub endpoint_id: EndpointId,
    /// How the other system signs.
    pub scheme: WebhookScheme,
    /// Which events start runs.
    #[serde(default)]
    pub filter: WebhookFilter,
    /// How an event becomes a run.
    pub mapping: WebhookMapping,
    /// Genuine events accepted per second on average.
    pub requests_per_second: u32,
    /// Whether event bodies are kept with the receipts.
    #[serde(default)]
    pub keep_bodies: bool,
}

/// An incoming webhook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its identifier.
    pub hook_id: HookId,
    /// The application that its runs belong to.
    pub app_id: ApplicationId,
    /// What its owner chose.
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Whether events start runs.
    pub enabled: bool,
    /// The address to register with the other system.
    pub address: String,
    /// Until when the previous secret is valid too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// When a request was last received, genuine or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A secret in transit. `Debug` does not show it, and it is wiped from memory on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub Zeroizing<String>);

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Creates a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateWebhook {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The webhook's settings.
    pub settings: Box<WebhookSettings>,
    /// The secret that the other system chose; if absent, the gateway makes one. Where the scheme lets only the other
    /// system choose, no event is genuine until its secret was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// A webhook, and the secret that was made for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookWithSecret {
    /// The record.
    pub webhook: Webhook,
    /// The secret, if the gateway made it. It is shown only this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// Lists webhooks that are not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWebhooks {
    /// Only webhooks of this application.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
}

/// Shows a webhook with what it last received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowWebhook {
    /// The webhook's identifier.
    pub hook_id: HookId,
}

/// A webhook with what it last received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDetail {
    /// The record.
    pub webhook: Webhook,
    /// Its latest receipts, newest first.
    pub receipts: Vec<WebhookReceipt>,
}

/// One request that a webhook received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReceipt {
    /// Its identifier.
    pub receipt_id: ReceiptId,
    /// When it was received.
    pub received_at: Timestamp,
    /// What became of it.
    pub outcome: ReceiptOutcome,
    /// Why it started no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The sender's identifier for the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The event's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The conversation that its run is a message in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Its body, cut where it is long, if bodies are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// Changes a webhook. The kind of its scheme cannot change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeWebhook {
    /// The webhook's identifier.
    pub hook_id: HookId,
    /// The new settings.
    pub settings: Box<WebhookSettings>,
}

/// Enables or disables a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableWebhook {
    /// The webhook's identifier.
    pub hook_id: HookId,
    /// Whether events start runs.
    pub enabled: bool,
}

/// Gives a webhook another secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollWebhookSecret {
    /// The webhook's identifier.
    pub hook_id: HookId,
    /// Seconds for which the old secret stays valid, at most 30 days.
    pub overlap_s: u32,
    /// The secret that the other system chose; if absent, the gateway makes one, where the scheme allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// Removes a webhook for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveWebhook {
    /// The webhook's identifier.
    pub hook_id: HookId,
}

/// Shows what an event would become. It submits nothing and checks no signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestWebhook {
    /// The webhook to test with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_id: Option<HookId>,
    /// Settings to test with instead, also of a webhook that does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<WebhookSettings>>,
    /// The event.
    pub sample: WebhookSample,
}

/// The event for a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum WebhookSample {
    /// An event that the webhook received, and whose body was kept.
    Receipt {
        /// The receipt's identifier.
        receipt_id: ReceiptId,
    },
    /// An event given in full.
    Given {
        /// Its headers.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// Its body.
        body: String,
    },
}

/// What an event would become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookTrial {
    /// Its identifier, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Its type, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// What becomes of it.
    pub outcome: TrialOutcome,
}

/// What would become of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// It would be submitted as this run.
    Submitted(MappedRun),
    /// It would start no run, and the sender would get a success.
    Ignored {
        /// Why the event is ignored.
        reason: String,
    },
    /// It would start no run, and the sender would get a problem.
    Refused {
        /// Why the event is refused.
        reason: String,
    },
}

/// The run that an event becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedRun {
    /// The input's text.
    pub text: String,
    /// The subject.
    pub subject: String,
    /// The conversation that it is a message in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<String>,
    /// The run's labels.
    pub metadata: BTreeMap<String, String>,
    /// The input's data, if the mapping has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, Value>>,
}
