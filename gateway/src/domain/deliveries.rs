//! What receivers are told, in which words, signed by whom; and what becomes of a delivery after an attempt
//! (http-api, section "Events, callbacks and webhooks").

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::delivery::{CallbackEvent, Delivery, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::run::Run;
use deskgate_protocol::{ConversationId, DestinationId, RunId, Timestamp, VERSION};
use serde::Serialize;
use serde_json::value::RawValue;

use super::access::Caller;
use super::refusal::Refusal;
use super::runs::seen;
use crate::seal::{Seal, SealError};
use crate::signing::{self, SigningSecret};
use crate::store::deliveries::claims::{About, Claimed};
use crate::store::deliveries::outcomes::{Becomes, Outcome};
use crate::store::deliveries::records::Sought;
use crate::store::{self, Page, Place, Store};

/// Seconds after each failed attempt.
const WAITS: [u64; 9] = [5, 5 * 60, 30 * 60, HOUR * 2, HOUR * 5, HOUR * 10, HOUR * 14, HOUR * 20, HOUR * 24];
const HOUR: u64 = 3600;
/// The longest time that a receiver is believed to need.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * HOUR);
/// By so much a wait is shorter or longer, so that what failed at once does not come again at once.
const JITTER: f64 = 0.1;

/// A delivery in the words in which it is posted.
#[derive(Clone, Debug)]
pub struct Letter {
    /// What is delivered.
    pub claimed: Claimed,
    /// The headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body, over which the signature is.
    pub body: String,
}

/// Writes letters.
#[derive(Clone)]
pub struct Scribe {
    store: Store,
    seal: Seal,
}

/// What came of posting a letter.
#[derive(Clone, Debug, Default)]
pub struct Came {
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
struct Body<'a> {
    #[serde(rename = "type")]
    kind: CallbackEvent,
    timestamp: Timestamp,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Run { sequence: u64, run: &'a Run },
    Conversation { conversation: &'a Conversation },
    Said(&'a RawValue),
}

impl Scribe {
    /// Writes what the store holds, signed with secrets that open with this key.
    pub fn new(store: Store, seal: Seal) -> Self {
        Self { store, seal }
    }

    /// Seals a destination's secret, so that it opens for that destination only.
    pub fn seal(&self, secret: &SigningSecret, destination_id: DestinationId) -> Vec<u8> {
        self.seal.close(secret.bytes(), &place(destination_id))
    }

    /// The letters for what was claimed, with runs and conversations as they are now; of what cannot be posted, what
    /// becomes of it.
    pub async fn letters(&self, claimed: Vec<Claimed>) -> Result<Vec<Result<Letter, Outcome>>, store::Error> {
        let runs: Vec<RunId> = claimed.iter().filter_map(Claimed::run_id).collect();
        let conversations: Vec<ConversationId> = claimed.iter().filter_map(Claimed::conversation_id).collect();
        let runs: HashMap<RunId, Run> = match runs.is_empty() {
            true => HashMap::new(),
            false => self.store.told_runs(&runs).await?.into_iter().map(|run| (run.run.run_id, seen(run))).collect(),
        };
        let conversations: HashMap<ConversationId, Conversation> = match conversations.is_empty() {
            true => HashMap::new(),
            false => {
                let told = self.store.told_conversations(&conversations).await?;
                told.into_iter().map(|conversation| (conversation.conversation_id, conversation)).collect()
            }
        };
        Ok(claimed.into_iter().map(|claimed| self.letter(claimed, &runs, &conversations)).collect())
    }

    fn letter(
        &self,
        claimed: Claimed,
        runs: &HashMap<RunId, Run>,
        conversations: &HashMap<ConversationId, Conversation>,
    ) -> Result<Letter, Outcome> {
        let Some(body) = body(&claimed, runs, conversations) else {
            // It was deleted while its delivery waited.
            return Err(outcome(&claimed, &Came::default(), Becomes::Discarded));
        };
        let secrets = self.open(&claimed).map_err(|error| {
            tracing::error!(%error, delivery_id = %claimed.delivery_id, "a delivery cannot be signed");
            refused(&claimed, DeliveryErrorCode::Misconfigured)
        })?;
        let headers = headers(&claimed, &secrets.iter().collect::<Vec<_>>(), &body);
        Ok(Letter { claimed, headers, body })
    }

    fn open(&self, claimed: &Claimed) -> Result<Vec<SigningSecret>, SealError> {
        let place = place(claimed.destination_id);
        let open = |sealed: &Vec<u8>| self.seal.open(sealed, &place).map(SigningSecret::from_bytes);
        claimed.sealed_secrets.iter().map(open).collect()
    }
}

fn place(destination_id: DestinationId) -> String {
    format!("destination {destination_id}")
}

/// `None` if what it tells of is not there any more.
fn body(
    claimed: &Claimed,
    runs: &HashMap<RunId, Run>,
    conversations: &HashMap<ConversationId, Conversation>,
) -> Option<String> {
    let data = match &claimed.about {
        About::Run(run_id) => Data::Run { sequence: claimed.sequence.unwrap_or_default(), run: runs.get(run_id)? },
        About::Conversation(id) => Data::Conversation { conversation: conversations.get(id)? },
        About::Said(json) => Data::Said(serde_json::from_str(json).ok()?),
    };
    serde_json::to_string(&Body { kind: claimed.kind, timestamp: claimed.event_at, data }).ok()
}

fn headers(claimed: &Claimed, secrets: &[&SigningSecret], body: &str) -> Vec<(&'static str, String)> {
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

/// What becomes of a delivery that was posted.
pub fn judge(claimed: &Claimed, came: &Came) -> Outcome {
    let becomes = match came.status_code {
        Some(200..=299) => Becomes::Delivered,
        Some(429 | 503) => {
            after_failure(claimed.turn, came.retry_after.as_deref().and_then(|at| asked(at, claimed.at)))
        }
        _ => after_failure(claimed.turn, None),
    };
    outcome(claimed, came, becomes)
}

/// What becomes of a delivery that was not posted.
pub fn refused(claimed: &Claimed, why: DeliveryErrorCode) -> Outcome {
    judge(claimed, &Came { error_code: Some(why), ..Came::default() })
}

fn outcome(claimed: &Claimed, came: &Came, becomes: Becomes) -> Outcome {
    // The database takes every character but one.
    let kept = || String::from_utf8_lossy(&came.answer).replace('\0', "\u{fffd}");
    Outcome {
        delivery_id: claimed.delivery_id,
        attempt: claimed.attempt,
        took: came.took,
        status_code: came.status_code,
        error_code: came.error_code,
        answer: (claimed.keep_answers && came.status_code.is_some()).then(kept),
        becomes,
    }
}

/// When an attempt that failed is made again: by the schedule, and not before the receiver asks for it.
fn after_failure(turn: u32, asked: Option<Duration>) -> Becomes {
    let place = usize::try_from(turn.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(wait) = WAITS.get(place) else { return Becomes::Exhausted };
    let wait = Duration::from_secs(*wait).mul_f64(1.0 + JITTER * (2.0 * rand::random::<f64>() - 1.0));
    Becomes::Again(asked.map_or(wait, |asked| wait.max(asked.min(LONGEST_WAIT))))
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

/// Which of a caller's deliveries a list shows; what is `None` excludes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Only of this run.
    pub run_id: Option<RunId>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

/// At most `limit` deliveries that this caller may see, older than `before`, newest first.
pub async fn list(
    store: &Store,
    caller: &Caller,
    filter: &Filter,
    before: Option<Place>,
    limit: u32,
) -> Result<Page<Delivery>, Refusal> {
    let Some(endpoints) = caller.shown(None) else { return Ok(Page::EMPTY) };
    let (app_id, subject) = (caller.app_id(), caller.subject());
    let sought = Sought { app_id, subject, before, endpoints, run_id: filter.run_id, state: filter.state };
    Ok(store.deliveries_of_caller(&sought, limit).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_by_the_schedule_and_then_given_up() {
        for (place, seconds) in WAITS.into_iter().enumerate() {
            let turn = u32::try_from(place).unwrap() + 1;
            let Becomes::Again(wait) = after_failure(turn, None) else { panic!("attempt {turn} is not the last") };
            assert!((wait.as_secs_f64() / seconds as f64 - 1.0).abs() <= JITTER + 1e-9, "{wait:?} after {turn}");
        }
        for turn in [10, 11, u32::MAX] {
            assert_eq!(after_failure(turn, Some(Duration::from_secs(1))), Becomes::Exhausted);
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
            Becomes::Again(wait) => wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(120), Duration::from_secs(120));
        assert_eq!(wait(u64::MAX), LONGEST_WAIT);
        assert!(wait(0) >= Duration::from_millis(4500), "the schedule holds beside it");
    }
}
