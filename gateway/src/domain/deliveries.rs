//! Deliveries to receivers: payload, signature, and what follows from each attempt (http-api, section "Events,
//! callbacks and webhooks").

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::delivery::{CallbackEvent, Delivery, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::management::CallbackFormat;
use deskgate_protocol::run::{FinishReason, Run, RunState};
use deskgate_protocol::{ConversationId, DestinationId, EventId, RunId, Timestamp, VERSION};
use serde::Serialize;
use serde_json::value::RawValue;

use super::access::Caller;
use super::refusal::Refusal;
use super::runs::{response_id, visible_run};
use crate::encryption::{DataCipher, EncryptionError};
use crate::signing::{self, SigningSecret};
use crate::store::deliveries::claims::{ClaimedDelivery, DeliverySubject};
use crate::store::deliveries::outcomes::{AttemptOutcome, Disposition};
use crate::store::deliveries::records::DeliveryQuery;
use crate::store::{self, Page, PagePosition, Store};

/// Seconds after each failed attempt.
const RETRY_DELAYS_S: [u64; 9] =
    [5, 5 * 60, 30 * 60, HOUR_S * 2, HOUR_S * 5, HOUR_S * 10, HOUR_S * 14, HOUR_S * 20, HOUR_S * 24];
const HOUR_S: u64 = 3600;
/// The longest accepted `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * HOUR_S);
/// Each wait is shorter or longer by up to this share, so that deliveries that failed together are not repeated
/// together.
const JITTER_RATIO: f64 = 0.1;

/// A delivery as it is posted, with its signature.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// The delivery.
    pub claimed: ClaimedDelivery,
    /// The headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body that is signed.
    pub body: String,
}

/// Builds signed requests.
#[derive(Clone)]
pub struct PayloadBuilder {
    store: Store,
    cipher: DataCipher,
}

/// The result of posting a request.
#[derive(Clone, Debug, Default)]
pub struct AttemptResponse {
    /// How long it took.
    pub took: Duration,
    /// The answer's status code.
    pub status_code: Option<u16>,
    /// Why there is no answer.
    pub error_code: Option<DeliveryErrorCode>,
    /// `Retry-After`, as it came.
    pub retry_after: Option<String>,
    /// The beginning of the answer.
    pub answer: Vec<u8>,
}

#[derive(Serialize)]
struct DeliveryBody<'a> {
    #[serde(rename = "type")]
    kind: CallbackEvent,
    timestamp: Timestamp,
    data: DeliveryData<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum DeliveryData<'a> {
    Run { sequence: u64, run: &'a Run },
    Conversation { conversation: &'a Conversation },
    Said(&'a RawValue),
}

/// The end of a run in OpenAI's form.
#[derive(Serialize)]
struct ResponseEvent {
    id: EventId,
    object: &'static str,
    /// In seconds since 1970.
    created_at: i64,
    #[serde(rename = "type")]
    kind: &'static str,
    data: ResponseReference,
}

#[derive(Serialize)]
struct ResponseReference {
    id: String,
}

/// OpenAI's name for the end of a run.
fn response_event(run: &Run) -> &'static str {
    match run.result.as_ref().map(|result| result.finish_reason) {
        Some(FinishReason::Length) => "response.incomplete",
        Some(FinishReason::Completed) => "response.completed",
        None if run.state == RunState::Cancelled => "response.cancelled",
        // Its content was deleted since.
        None if run.state == RunState::Succeeded => "response.completed",
        None => "response.failed",
    }
}

impl PayloadBuilder {
    /// Builds requests from the store, signed with secrets that this key decrypts.
    pub fn new(store: Store, cipher: DataCipher) -> Self {
        Self { store, cipher }
    }

    /// Encrypts a destination's secret, so that it decrypts for that destination only.
    pub fn cipher(&self, secret: &SigningSecret, destination_id: DestinationId) -> Vec<u8> {
        self.cipher.encrypt(secret.bytes(), &place(destination_id))
    }

    /// The signed requests for claimed deliveries, with runs and conversations as they are now; for a delivery that
    /// cannot be posted, its outcome.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn build(
        &self,
        claimed: Vec<ClaimedDelivery>,
    ) -> Result<Vec<Result<SignedRequest, AttemptOutcome>>, store::Error> {
        let runs: Vec<RunId> = claimed.iter().filter_map(ClaimedDelivery::run_id).collect();
        let conversations: Vec<ConversationId> = claimed.iter().filter_map(ClaimedDelivery::conversation_id).collect();
        let runs: HashMap<RunId, Run> = match runs.is_empty() {
            true => HashMap::new(),
            false => self
                .store
                .runs_for_deliveries(&runs)
                .await?
                .into_iter()
                .map(|run| (run.run.run_id, visible_run(run)))
                .collect(),
        };
        let conversations: HashMap<ConversationId, Conversation> = match conversations.is_empty() {
            true => HashMap::new(),
            false => {
                let told = self.store.conversations_for_deliveries(&conversations).await?;
                told.into_iter().map(|conversation| (conversation.conversation_id, conversation)).collect()
            }
        };
        Ok(claimed.into_iter().map(|claimed| self.signed(claimed, &runs, &conversations)).collect())
    }

    fn signed(
        &self,
        claimed: ClaimedDelivery,
        runs: &HashMap<RunId, Run>,
        conversations: &HashMap<ConversationId, Conversation>,
    ) -> Result<SignedRequest, AttemptOutcome> {
        let Some(body) = body(&claimed, runs, conversations) else {
            // The object was deleted while its delivery waited.
            return Err(outcome(&claimed, &AttemptResponse::default(), Disposition::Discarded));
        };
        let secrets = self.open(&claimed).map_err(|error| {
            tracing::error!(%error, delivery_id = %claimed.delivery_id,
                "this replica has another seal than the callback's secret was sealed with: its delivery is given back. \
                 Give all replicas the same seal file");
            outcome(&claimed, &AttemptResponse::default(), Disposition::GivenBack)
        })?;
        let headers = headers(&claimed, &secrets.iter().collect::<Vec<_>>(), &body);
        Ok(SignedRequest { claimed, headers, body })
    }

    fn open(&self, claimed: &ClaimedDelivery) -> Result<Vec<SigningSecret>, EncryptionError> {
        let place = place(claimed.destination_id);
        let open = |sealed: &Vec<u8>| self.cipher.decrypt(sealed, &place).map(SigningSecret::from_bytes);
        claimed.sealed_secrets.iter().map(open).collect()
    }
}

fn place(destination_id: DestinationId) -> String {
    format!("destination {destination_id}")
}

/// `None` if its object no longer exists.
fn body(
    claimed: &ClaimedDelivery,
    runs: &HashMap<RunId, Run>,
    conversations: &HashMap<ConversationId, Conversation>,
) -> Option<String> {
    let data = match &claimed.about {
        DeliverySubject::Run(run_id) if claimed.format == CallbackFormat::Openai && claimed.kind.ends_run() => {
            let told = ResponseEvent {
                id: claimed.event_id,
                object: "event",
                created_at: claimed.event_at.0.as_second(),
                kind: response_event(runs.get(run_id)?),
                data: ResponseReference { id: response_id(*run_id) },
            };
            return serde_json::to_string(&told).ok();
        }
        DeliverySubject::Run(run_id) => {
            DeliveryData::Run { sequence: claimed.sequence.unwrap_or_default(), run: runs.get(run_id)? }
        }
        DeliverySubject::Conversation(id) => DeliveryData::Conversation { conversation: conversations.get(id)? },
        DeliverySubject::Said(json) => DeliveryData::Said(serde_json::from_str(json).ok()?),
    };
    serde_json::to_string(&DeliveryBody { kind: claimed.kind, timestamp: claimed.event_at, data }).ok()
}

fn headers(claimed: &ClaimedDelivery, secrets: &[&SigningSecret], body: &str) -> Vec<(&'static str, String)> {
    let (id, timestamp) = (claimed.event_id.to_string(), claimed.at.0.as_second());
    let signature = signing::sign(secrets, &id, timestamp, body.as_bytes());
    let mut headers = vec![
        ("webhook-id", id),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
        ("content-type", "application/json".to_owned()),
        ("user-agent", format!("Deskgate/{VERSION}")),
        ("x-deskgate-delivery", claimed.delivery_id.to_string()),
        ("x-deskgate-attempt", claimed.attempt.to_string()),
    ];
    headers.extend(claimed.traceparent.clone().map(|trace| ("traceparent", trace)));
    headers
}

/// The outcome of a delivery that was posted.
pub fn judge(claimed: &ClaimedDelivery, came: &AttemptResponse) -> AttemptOutcome {
    let becomes = match came.status_code {
        Some(200..=299) => Disposition::Delivered,
        Some(429 | 503) => {
            after_failure(claimed.turn, came.retry_after.as_deref().and_then(|at| asked(at, claimed.at)))
        }
        _ => after_failure(claimed.turn, None),
    };
    outcome(claimed, came, becomes)
}

/// The outcome of a delivery that was not posted.
pub fn refused(claimed: &ClaimedDelivery, why: DeliveryErrorCode) -> AttemptOutcome {
    judge(claimed, &AttemptResponse { error_code: Some(why), ..AttemptResponse::default() })
}

fn outcome(claimed: &ClaimedDelivery, came: &AttemptResponse, becomes: Disposition) -> AttemptOutcome {
    // The database stores every character except NUL.
    let kept = || String::from_utf8_lossy(&came.answer).replace('\0', "\u{fffd}");
    AttemptOutcome {
        delivery_id: claimed.delivery_id,
        attempt: claimed.attempt,
        took: came.took,
        status_code: came.status_code,
        error_code: came.error_code,
        answer: (claimed.keep_answers && came.status_code.is_some()).then(kept),
        becomes,
    }
}

/// When a failed attempt is repeated: by the schedule, and not before the receiver asks for it.
fn after_failure(turn: u32, asked: Option<Duration>) -> Disposition {
    let place = usize::try_from(turn.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(wait) = RETRY_DELAYS_S.get(place) else { return Disposition::Exhausted };
    let wait = Duration::from_secs(*wait).mul_f64(1.0 + JITTER_RATIO * (2.0 * rand::random::<f64>() - 1.0));
    Disposition::Again(asked.map_or(wait, |asked| wait.max(asked.min(MAX_RETRY_AFTER))))
}

/// How long `Retry-After` asks for: seconds, or a date (RFC 9110, section 10.2.3).
fn asked(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Duration::try_from(date.timestamp().duration_since(now.0)).ok()
}

/// The filter of a caller's list of deliveries; `None` excludes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFilter {
    /// Only of this run.
    pub run_id: Option<RunId>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

/// At most `limit` deliveries that this caller may see, older than `before`, newest first.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn list(
    store: &Store,
    caller: &Caller,
    filter: &DeliveryFilter,
    before: Option<PagePosition>,
    limit: u32,
) -> Result<Page<Delivery>, Refusal> {
    let Some(endpoints) = caller.shown(None) else { return Ok(Page::EMPTY_PAGE) };
    let (app_id, subject) = (caller.app_id(), caller.subject());
    let sought = DeliveryQuery { app_id, subject, before, endpoints, run_id: filter.run_id, state: filter.state };
    Ok(store.deliveries_of_caller(&sought, limit).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_by_the_schedule_and_then_given_up() {
        for (place, seconds) in RETRY_DELAYS_S.into_iter().enumerate() {
            let turn = u32::try_from(place).unwrap() + 1;
            let Disposition::Again(wait) = after_failure(turn, None) else { panic!("attempt {turn} is not the last") };
            assert!((wait.as_secs_f64() / seconds as f64 - 1.0).abs() <= JITTER_RATIO + 1e-9, "{wait:?} after {turn}");
        }
        for turn in [10, 11, u32::MAX] {
            assert_eq!(after_failure(turn, Some(Duration::from_secs(1))), Disposition::Exhausted);
        }
    }

    #[test]
    fn a_receiver_that_asks_for_time_gets_it_within_a_day() {
        let now: Timestamp = "2026-11-21T09:14:50.000Z".parse().unwrap();
        assert_eq!(asked("120", now), Some(Duration::from_secs(120)));
        assert_eq!(asked("Sat, 21 Nov 2026 09:15:00 GMT", now), Some(Duration::from_secs(10)));
        assert_eq!(asked("Sat, 21 Nov 2026 09:14:00 GMT", now), None, "it is past");
        for nonsense in ["", "-1", "soon", "1e9", "99999999999999999999"] {
            assert_eq!(asked(nonsense, now), None, "{nonsense}");
        }
        let wait = |asked| match after_failure(1, Some(Duration::from_secs(asked))) {
            Disposition::Again(wait) => wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(120), Duration::from_secs(120));
        assert_eq!(wait(u64::MAX), MAX_RETRY_AFTER);
        assert!(wait(0) >= Duration::from_millis(4500), "the schedule holds beside it");
    }
}
