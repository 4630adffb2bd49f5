//! Incoming webhooks: signed events of other systems that become runs and messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::ids::{ApplicationId, ConversationId, EndpointId, HookId, ReceiptId, RunId};
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// With what a signature is computed.
    HashAlgorithm {
        /// SHA-1: only for senders that know nothing better.
        Sha1 = "sha1",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

words! {
    /// How a signature is written.
    SignatureEncoding {
        /// Two hexadecimal digits for each byte.
        Hex = "hex",
        /// Base64 with the alphabet of RFC 4648, section 4.
        Base64 = "base64",
    }
}

words! {
    /// What became of a received event.
    ReceiptOutcome {
        /// It made a run.
        Accepted = "accepted",
        /// It is genuine, and the filter does not want it.
        Ignored = "ignored",
        /// It was answered with a problem.
        Refused = "refused",
        /// It came before, and made its run then.
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
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::StandardWebhooks {} => "standard_webhooks",
            Self::Github {} => "github",
            Self::Stripe {} => "stripe",
            Self::Hmac(_) => "hmac",
        }
    }
}

/// An HMAC of the body in a header, and where the event says what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainHmac {
    /// The header with the signature.
    pub header: String,
    /// With what it is computed.
    pub algorithm: HashAlgorithm,
    /// How it is written.
    pub encoding: SignatureEncoding,
    /// What stands before it in the header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Where the event's identifier is: a header's name, or a path that begins with `$`. Without one, two events with the same
    /// body are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Where its type is, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookFilter {
    /// Their types, each as it is or its beginning with a final `*`; empty: all.
    #[serde(default)]
    pub event_types: Vec<String>,
    /// A condition in the Common Expression Language over `payload` and `event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// What of an event becomes what of a run. Nothing else of a run can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookMapping {
    /// The input's text: a template with paths, as in `{{ $.issue.title }}`.
    pub text: String,
    /// The business user, if the event names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where the event names the business user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_path: Option<String>,
    /// Where the event names its conversation. With it, events become messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<String>,
    /// Labels of the run, each with where its value is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// What its owner chooses about a webhook, all but its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// Its name, for people.
    pub name: String,
    /// The service that its events are for.
    pub endpoint_id: EndpointId,
    /// How the other system signs.
    pub scheme: WebhookScheme,
    /// Which events are wanted.
    #[serde(default)]
    pub filter: WebhookFilter,
    /// What becomes of them.
    pub mapping: WebhookMapping,
    /// Genuine events a second, in the long run.
    pub requests_per_second: u32,
    /// Whether bodies of events are kept with what became of them.
    #[serde(default)]
    pub keep_bodies: bool,
}

/// An incoming webhook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its identifier.
    pub hook_id: HookId,
    /// For which application runs are made.
    pub app_id: ApplicationId,
    /// What its owner chose.
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Whether events make runs.
    pub enabled: bool,
    /// The address to register with the other system.
    pub address: String,
    /// Until when the secret before the present one is good too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// When something last came in, genuine or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_received_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A secret on its way. It is not shown where things are logged, and forgotten when it is dropped.
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
    /// For which application.
    pub app_id: ApplicationId,
    /// What is chosen.
    pub settings: Box<WebhookSettings>,
    /// The secret that the other system chose; without one, a new one is made. Where the scheme does not leave that to us, nothing
    /// is genuine until the secret was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// A webhook, and the secret that was made for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookWithSecret {
    /// The record.
    pub webhook: Webhook,
    /// The secret, if it was made here. It is shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// Lists webhooks that were not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWebhooks {
    /// Only this application's.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
}

/// Shows a webhook with what it last received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowWebhook {
    /// Which one.
    pub hook_id: HookId,
}

/// A webhook with what it last received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDetail {
    /// The record.
    pub webhook: Webhook,
    /// What it last received, newest first.
    pub receipts: Vec<WebhookReceipt>,
}

/// Something that a webhook received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReceipt {
    /// Its identifier.
    pub receipt_id: ReceiptId,
    /// When it came.
    pub received_at: Timestamp,
    /// What became of it.
    pub outcome: ReceiptOutcome,
    /// Why, if it made no run.
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

/// Changes a webhook. How it is signed stays of the same kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeWebhook {
    /// Which one.
    pub hook_id: HookId,
    /// What it is to be.
    pub settings: Box<WebhookSettings>,
}

/// Enables or disables a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableWebhook {
    /// Which one.
    pub hook_id: HookId,
    /// Whether events are to make runs.
    pub enabled: bool,
}

/// Gives a webhook another secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollWebhookSecret {
    /// Which one.
    pub hook_id: HookId,
    /// Seconds for which the old one is still good, at most 30 days.
    pub overlap_s: u32,
    /// The secret that the other system chose; without one, a new one is made, where the scheme leaves that to us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
}

/// Removes a webhook for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveWebhook {
    /// Which one.
    pub hook_id: HookId,
}

/// Asks what an event would become. Nothing is submitted, and no signature is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestWebhook {
    /// By this webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_id: Option<HookId>,
    /// As if it, or a webhook that is not there yet, were so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<WebhookSettings>>,
    /// The event.
    pub sample: WebhookSample,
}

/// An event to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum WebhookSample {
    /// One that the webhook received, and whose body was kept.
    Receipt {
        /// Which one.
        receipt_id: ReceiptId,
    },
    /// One that somebody has at hand.
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

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// This is submitted.
    Submitted(MappedRun),
    /// Nothing, and the sender is told that all is well.
    Ignored {
        /// Why.
        reason: String,
    },
    /// Nothing, and the sender is told so.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What an event says to a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedRun {
    /// The input's text.
    pub text: String,
    /// The business user.
    pub subject: String,
    /// The conversation that it is a message in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_key: Option<String>,
    /// The run's labels.
    pub metadata: BTreeMap<String, String>,
}
