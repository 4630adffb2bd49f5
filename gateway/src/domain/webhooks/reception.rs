//! Receives events: authenticated by their signature, judged by filter and mapping, admitted as runs.

use std::sync::Arc;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{MappedRun, ReceiptOutcome, TrialOutcome};
use deskgate_protocol::run::Input;
use deskgate_protocol::{ConversationId, HookId, ReceiptId, RunId};
use serde_json::Value;

use super::cache::{CachedWebhook, WebhookCache};
use super::receipts::ReceiptWriter;
use super::rules::own_labels;
use super::{Headers, SignatureError, WebhookEvent, cut, event, verify};
use crate::domain::admission::{
    AdmissionService, DEFAULT_DURATION_S, DEFAULT_QUEUE_TTL_S, Principal, RunRequest, digest_of, submission,
};
use crate::domain::conversations::unopened;
use crate::domain::quota::{Quota, QuotaPermit};
use crate::domain::rates::{Rate, RateStatus, RatesByRate};
use crate::domain::refusal::Refusal;
use crate::encryption::DataCipher;
use crate::store::Store;
use crate::store::activity::ActivityActor;
use crate::store::conversations::{ConversationOpening, OpeningOutcome};
use crate::store::messages::{Message, MessageAdmission};
use crate::store::webhook_receipts::NewReceipt;

/// The largest body of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Events that are read at once on one gateway.
const MAX_CONCURRENT_BODIES: usize = 256;
/// The most bytes of a body that are stored.
const MAX_STORED_BODY_BYTES: usize = 16 * 1024;
/// The most bytes of a reason that are stored.
const MAX_STORED_REASON_BYTES: usize = 500;
/// How often a conversation is read again because it was reset meanwhile.
const MAX_CONVERSATION_READS: usize = 2;

/// The outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceptionOutcome {
    /// Its run, made now or when the event first arrived.
    Run(RunId),
    /// Ignored as the filter wants; with the reason.
    Ignored(String),
}

/// Receives events.
#[derive(Clone)]
pub struct Reception {
    store: Store,
    admission: AdmissionService,
    hooks: WebhookCache,
    rates: RatesByRate<HookId>,
    receipts: ReceiptWriter,
    bodies: Quota<()>,
}

/// An event whose signature was good.
pub struct VerifiedEvent<'a> {
    hook: Arc<CachedWebhook>,
    proof: super::Proof<'a>,
    headers: Headers<'a>,
    body: &'a [u8],
    standing: RateStatus,
}

impl VerifiedEvent<'_> {
    /// The webhook's rate limit after this event.
    pub fn rate_status(&self) -> RateStatus {
        self.standing
    }
}

impl Reception {
    /// Receives events for the webhooks in the store; the future writes their receipts, until it is dropped.
    pub fn new(
        store: Store,
        cipher: DataCipher,
        admission: AdmissionService,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (receipts, noting) = ReceiptWriter::new(store.clone());
        let hooks = WebhookCache::new(store.clone(), cipher);
        (
            Self {
                store,
                admission,
                hooks,
                rates: RatesByRate::default(),
                receipts,
                bodies: Quota::new(MAX_CONCURRENT_BODIES),
            },
            noting,
        )
    }

    /// A permit to read one event, until it is dropped. The sender is not known before.
    ///
    /// # Errors
    /// [`Refusal::TooManyEvents`]: as many events are read here as may be at once.
    pub fn room(&self) -> Result<QuotaPermit<()>, Refusal> {
        self.bodies.acquire(()).ok_or(Refusal::TooManyEvents)
    }

    /// Checks the signature of an event. Unknown, removed and wrongly signed look alike, and take equally long.
    ///
    /// # Errors
    /// [`Refusal::SignatureInvalid`], or an error of the database.
    pub async fn authenticate<'a>(
        &self,
        hook_id: Option<HookId>,
        headers: Headers<'a>,
        body: &'a [u8],
    ) -> Result<VerifiedEvent<'a>, Refusal> {
        // An invalid identifier is looked for all the same.
        let hook = self.hooks.find(hook_id.unwrap_or_else(|| HookId::from(uuid::Uuid::nil()))).await?;
        let secrets: Vec<&[u8]> = hook.secrets.iter().map(|secret| secret.as_slice()).collect();
        let proof = match verify(&hook.settings.scheme, &secrets, &headers, body, hook.now_s()) {
            Ok(proof) if hook.is_real => proof,
            unsigned => {
                self.store.metrics().webhook_received(ReceiptOutcome::Refused.as_str());
                self.note_unsigned(&hook, unsigned.err());
                return Err(Refusal::SignatureInvalid);
            }
        };
        let standing = self.rates.count(Rate::of_webhook(hook.settings.requests_per_second), hook.hook_id);
        Ok(VerifiedEvent { hook, proof, headers, body, standing })
    }

    /// Turns a genuine event into its run or message. Returns after the commit.
    ///
    /// # Errors
    /// [`Refusal::EventNotJson`]: the body is not JSON. [`Refusal::MappingFailed`]: the event lacks what its scheme
    /// requires, or the mapping refuses it. [`Refusal::NotFound`]: the service is gone.
    /// [`Refusal::ApplicationDisabled`]: the application was disabled. [`Refusal::AccessPaused`]: access is paused. [`Refusal::ServiceDisabled`]: the service
    /// is disabled.
    /// [`Refusal::QueueFull`]: too many of the application's runs wait. [`Refusal::TooManyEvents`]: the webhook
    /// received too many events. [`Refusal::ConversationBusy`]: the event is a message, and its conversation is busy.
    /// [`Refusal::GenerationMismatch`]: its conversation was reset during each try. [`Refusal::StoreUnavailable`] or
    /// [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn take(
        &self,
        genuine: VerifiedEvent<'_>,
        traceparent: Option<String>,
    ) -> Result<ReceptionOutcome, Refusal> {
        let mut seen = None;
        let became = self.became(&genuine, traceparent, &mut seen).await;
        let (outcome, reason, run_id) = match &became {
            Ok((ReceptionOutcome::Run(run_id), false)) => (ReceiptOutcome::Accepted, None, Some(*run_id)),
            Ok((ReceptionOutcome::Run(run_id), true)) => (ReceiptOutcome::Repeated, None, Some(*run_id)),
            Ok((ReceptionOutcome::Ignored(reason), _)) => (ReceiptOutcome::Ignored, Some(reason.clone()), None),
            Err(refusal) => (ReceiptOutcome::Refused, Some(refusal.to_string()), None),
        };
        self.store.metrics().webhook_received(outcome.as_str());
        let VerifiedEvent { hook, body, .. } = genuine;
        let body =
            hook.settings.keep_bodies.then(|| cut(String::from_utf8_lossy(body).into_owned(), MAX_STORED_BODY_BYTES));
        let (event_id, event_type) = seen.unzip();
        self.receipts.note(NewReceipt {
            receipt_id: ReceiptId::new(),
            hook_id: hook.hook_id,
            genuine: true,
            outcome,
            reason: reason.map(|reason| cut(reason, MAX_STORED_REASON_BYTES)),
            event_id,
            event_type: event_type.flatten(),
            run_id,
            body,
        });
        became.map(|(received, _)| received)
    }

    /// The outcome of an event, and whether it existed before.
    async fn became(
        &self,
        genuine: &VerifiedEvent<'_>,
        traceparent: Option<String>,
        seen: &mut Option<(String, Option<String>)>,
    ) -> Result<(ReceptionOutcome, bool), Refusal> {
        let VerifiedEvent { hook, proof, headers, body, standing } = genuine;
        let payload = serde_json::from_slice::<Value>(body).map_err(|_| Refusal::EventNotJson)?;
        let event = event(&hook.settings.scheme, *proof, headers, body, payload)
            .map_err(|error| Refusal::MappingFailed { reason: error.to_string() })?;
        *seen = Some((event.id.clone(), event.kind.clone()));
        let identity = identity(hook, &event);
        let judged = match hook.enabled {
            true => hook.rules.judge(&event),
            false => TrialOutcome::Ignored { reason: "the webhook is disabled".to_owned() },
        };
        let mapped = match judged {
            TrialOutcome::Submitted(mapped) => mapped,
            // An earlier outcome stays, whatever was changed since.
            other => match (self.store.run_of_event(identity).await?, other) {
                (Some(run_id), _) => return Ok((ReceptionOutcome::Run(run_id), true)),
                (None, TrialOutcome::Ignored { reason }) => return Ok((ReceptionOutcome::Ignored(reason), false)),
                (None, TrialOutcome::Refused { reason }) => return Err(Refusal::MappingFailed { reason }),
                (None, TrialOutcome::Submitted(_)) => return Err(Refusal::Internal),
            },
        };
        let wanted = AdmissionContext { hook, identity, within_rate: standing.within };
        let request = request(hook, &event, &mapped, body, traceparent)?;
        let (run_id, known) = match &mapped.conversation_key {
            None => {
                let whose = Principal { app_id: hook.app_id, subject: &mapped.subject };
                self.admission.admit_event(whose, identity, request, standing.within).await
            }
            Some(key) => self.say(&wanted, &mapped.subject, key, request).await,
        }
        .map_err(unfit)?;
        Ok((ReceptionOutcome::Run(run_id), known))
    }

    /// Sends a message to the conversation of that name, in its current generation.
    async fn say(
        &self,
        wanted: &AdmissionContext<'_>,
        subject: &str,
        key: &str,
        mut request: RunRequest,
    ) -> Result<(RunId, bool), Refusal> {
        let AdmissionContext { hook, identity, within_rate } = *wanted;
        let whose = Principal { app_id: hook.app_id, subject };
        let no_room = self.admission.no_room_for(hook.app_id, within_rate, Refusal::TooManyEvents).await?;
        let run_id = RunId::new();
        let submission = submission(whose, run_id, identity, &mut request, no_room.is_none())?;
        let mut current = 0;
        for _ in 0..MAX_CONVERSATION_READS {
            let opening = ConversationOpening {
                conversation_id: ConversationId::new(),
                app_id: hook.app_id,
                subject: subject.to_owned(),
                endpoint_id: request.endpoint_id,
                conversation_key: key.to_owned(),
                request: None,
                within_rate: true,
            };
            let conversation = match self.store.open_conversation(&opening).await? {
                OpeningOutcome::There { conversation, .. } => conversation,
                other => return Err(unopened(other)),
            };
            let (conversation_id, expected_generation) = (conversation.conversation_id, conversation.generation);
            let when_busy = self.admission.when_busy(hook.settings.mapping.on_busy, whose, ActivityActor::Webhook);
            let message = Message { submission: submission.clone(), conversation_id, expected_generation, when_busy };
            match self.admission.admit_message(message, &request.input).await? {
                MessageAdmission::Accepted(_) => {
                    self.admission.waiting.one_more(hook.app_id);
                    tracing::info!(%run_id, %conversation_id, hook_id = %hook.hook_id, "event accepted as a message");
                    return Ok((run_id, false));
                }
                MessageAdmission::Known { run_id, .. } => return Ok((run_id, true)),
                // It was reset meanwhile, so its generation is another one now.
                MessageAdmission::OtherGeneration { current: now } => current = now,
                other => return Err(self.admission.not_admitted(other, no_room)),
            }
        }
        Err(Refusal::GenerationMismatch { current_generation: current })
    }

    fn note_unsigned(&self, hook: &CachedWebhook, why: Option<SignatureError>) {
        if !hook.is_real {
            return;
        }
        self.receipts.note_unsigned(NewReceipt {
            receipt_id: ReceiptId::new(),
            hook_id: hook.hook_id,
            genuine: false,
            outcome: ReceiptOutcome::Refused,
            reason: why.map(|why| cut(why.to_string(), MAX_STORED_REASON_BYTES)),
            event_id: None,
            event_type: None,
            run_id: None,
            body: None,
        });
    }
}

/// Whoever sent the event did not write the input: its webhook did.
fn unfit(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Invalid(_) => Refusal::MappingFailed { reason: refusal.to_string().trim_end_matches('.').to_owned() },
        other => other,
    }
}

struct AdmissionContext<'a> {
    hook: &'a CachedWebhook,
    identity: Sha256Digest,
    within_rate: bool,
}

/// The same event of the same webhook is the same work.
fn identity(hook: &CachedWebhook, event: &WebhookEvent) -> Sha256Digest {
    digest_of(&["webhook", &hook.app_id.to_string(), &hook.hook_id.to_string(), &event.id])
}

fn request(
    hook: &CachedWebhook,
    event: &WebhookEvent,
    mapped: &MappedRun,
    body: &[u8],
    traceparent: Option<String>,
) -> Result<RunRequest, Refusal> {
    let data = mapped.data.as_ref().map(|data| ("data".to_owned(), serde_json::json!(data)));
    let input = Input { text: mapped.text.clone(), more: data.into_iter().collect() };
    let input_json = serde_json::to_string(&input).map_err(|_| Refusal::Internal)?;
    let own = own_labels(hook.hook_id, event);
    Ok(RunRequest {
        files: Vec::new(),
        endpoint_id: hook.settings.endpoint_id,
        idempotency_key: String::new(),
        fingerprint: Sha256Digest::of(body),
        input,
        input_json,
        output: None,
        metadata: mapped.metadata.clone().into_iter().chain(own).collect(),
        queue_ttl_s: DEFAULT_QUEUE_TTL_S,
        max_duration_s: DEFAULT_DURATION_S,
        traceparent,
        depth: 0,
    })
}
