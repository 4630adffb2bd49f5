//! Callbacks of applications, their deliveries, the hosts they may go to, and listeners on the desktop.

use serde::{Deserialize, Serialize};

use crate::delivery::{CallbackEvent, Delivery, DeliveryErrorCode, DeliveryState};
use crate::ids::{ApplicationId, DeliveryId, DestinationId, RunId};
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// Why nothing is sent to a callback.
    CallbackOff {
        /// The receiver answered 410: it is gone.
        Gone = "gone",
        /// For five days nothing but failures.
        Failing = "failing",
        /// Its owner switched it off.
        Owner = "owner",
        /// Its application was disabled.
        Application = "application",
    }
}

words! {
    /// Where deliveries go.
    DestinationKind {
        /// To a public address.
        Callback = "callback",
        /// To somebody at the desktop who listens at this moment.
        Listener = "listener",
    }
}

/// Shows an application's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowCallback {
    /// Whose.
    pub app_id: ApplicationId,
}

/// The callbacks of all of the device's applications, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListCallbacks {}

/// Where an application's events are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Whose.
    pub app_id: ApplicationId,
    /// The address.
    pub url: String,
    /// Whether its host is on the gateway's list. If not, every attempt fails.
    pub host_allowed: bool,
    /// The events it is told of.
    pub types: Vec<CallbackEvent>,
    /// Whether the first KiB of each answer is kept.
    pub keep_answers: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Since when nothing is sent. What happens meanwhile is not queued; what was queued before waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_since: Option<Timestamp>,
    /// Why nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<CallbackOff>,
    /// Since when every attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Until when the secret before this one signs too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// Deliveries that wait for their next attempt, counted up to 10,000.
    pub pending: u32,
}

/// Sets an application's callback. What is absent stays as it is; the first time an address is needed, and without
/// events it is told of the ends of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetCallback {
    /// Whose.
    pub app_id: ApplicationId,
    /// The address: `https://`, a name, no port but 443, no user.
    #[serde(default)]
    pub url: Option<String>,
    /// The events to tell of.
    #[serde(default)]
    pub types: Option<Vec<CallbackEvent>>,
    /// Whether anything is sent.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Whether the first KiB of each answer is kept.
    #[serde(default)]
    pub keep_answers: Option<bool>,
}

/// A callback, and its secret if that was just made: it is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackWithSecret {
    /// The callback.
    pub callback: Callback,
    /// The secret that signs: `whsec_…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for CallbackWithSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallbackWithSecret").field("callback", &self.callback).finish_non_exhaustive()
    }
}

/// Replaces a callback's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollCallbackSecret {
    /// Whose callback.
    pub app_id: ApplicationId,
    /// Seconds for which the old one signs too, at most 30 days.
    pub overlap_s: u32,
}

/// Sends a `webhook.test` to a callback, as soon as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCallback {
    /// Whose callback.
    pub app_id: ApplicationId,
}

/// Makes a sample of an event, with a run that never was, and sends it to the application's callback and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerDelivery {
    /// Whose.
    pub app_id: ApplicationId,
    /// What is to have happened.
    pub kind: CallbackEvent,
}

/// A delivery as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnDelivery {
    /// The application that is told.
    pub app_id: ApplicationId,
    /// For whom the run was submitted; absent from tests and samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Where it goes.
    pub to: DestinationKind,
    /// The record.
    #[serde(flatten)]
    pub delivery: Delivery,
}

/// One attempt to deliver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryAttempt {
    /// Counted from 1.
    pub attempt: u32,
    /// When it was begun.
    pub started_at: Timestamp,
    /// The host it went to.
    pub url_host: String,
    /// How long it took. Absent while it is under way, or when the gateway stopped in it: what came of it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u32>,
    /// The status code of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// Why there was no answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<DeliveryErrorCode>,
    /// The beginning of the answer, if the callback keeps answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Lists deliveries, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDeliveries {
    /// At most so many, 1 to 100.
    pub limit: u32,
    /// Only older ones: the `next` of the page before.
    #[serde(default)]
    pub before: Option<DeliveryId>,
    /// Only of this application.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
    /// Only of this run.
    #[serde(default)]
    pub run_id: Option<RunId>,
    /// Only in this state.
    #[serde(default)]
    pub state: Option<DeliveryState>,
}

/// A page of deliveries, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryPage {
    /// The deliveries. A filter may leave a page short although there are more.
    pub deliveries: Vec<OwnDelivery>,
    /// Where the page after this one begins: its `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<DeliveryId>,
}

/// Shows one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowDelivery {
    /// Which one.
    pub delivery_id: DeliveryId,
    /// Seconds, at most 60, to wait until something came of more attempts than `seen`.
    #[serde(default)]
    pub wait_s: u32,
    /// Attempts of which it is known what came of them.
    #[serde(default)]
    pub seen: u32,
}

/// A delivery with every attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDetail {
    /// The delivery.
    pub delivery: OwnDelivery,
    /// Its attempts, oldest first.
    pub attempts: Vec<DeliveryAttempt>,
}

/// Sends a delivery again as soon as may be, whatever came of it; the attempts are counted on, and the schedule begins
/// anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendDelivery {
    /// Which one.
    pub delivery_id: DeliveryId,
}

/// Sends again what an application's callback did not take since a time: what was given up, and what waits for another
/// attempt after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverDeliveries {
    /// Whose.
    pub app_id: ApplicationId,
    /// Events that happened then or later.
    pub since: Timestamp,
    /// Only to count them.
    #[serde(default)]
    pub only_count: bool,
}

/// The reply to [`RecoverDeliveries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// How many are sent again, or would be.
    pub deliveries: u32,
}

/// Shows the hosts that callbacks may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowAllowlist {}

/// Replaces the hosts that callbacks may go to. Only a built-in gateway takes it from the desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAllowlist {
    /// Exact names. Empty: no callback is sent anywhere.
    pub hosts: Vec<String>,
}

/// The hosts that callbacks may go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowlist {
    /// Exact names, sorted. Empty: no callback is sent anywhere.
    pub hosts: Vec<String>,
    /// Whether it is the desktop's to change; otherwise the gateway's administrator does, on the server.
    pub is_yours: bool,
}

/// Begins to listen to an application's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenListener {
    /// Whose events.
    pub app_id: ApplicationId,
    /// Which; empty: all.
    #[serde(default)]
    pub types: Vec<CallbackEvent>,
}

/// An open listener. It ends by itself when it is not asked for a while.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedListener {
    /// Its identifier.
    pub listener_id: DestinationId,
    /// The secret that signs, shown this once: `whsec_…`.
    pub secret: String,
    /// When it ends unless it is asked before.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for OpenedListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedListener").field("listener_id", &self.listener_id).finish_non_exhaustive()
    }
}

/// Tells what came of earlier deliveries to a listener, and takes the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollListener {
    /// Which.
    pub listener_id: DestinationId,
    /// At most so many, 0 to 16; 0 only tells.
    pub limit: u32,
    /// Seconds, at most 60, to wait for one.
    #[serde(default)]
    pub wait_s: u32,
    /// What came of earlier ones.
    #[serde(default)]
    pub outcomes: Vec<ForwardOutcome>,
}

/// What came of one delivery to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardOutcome {
    /// Which.
    pub delivery_id: DeliveryId,
    /// Which attempt it was.
    pub attempt: u32,
    /// How long it took.
    pub duration_ms: u32,
    /// The status code of the answer.
    #[serde(default)]
    pub status_code: Option<u16>,
    /// Why there was none.
    #[serde(default)]
    pub error_code: Option<DeliveryErrorCode>,
}

/// What a listener is to post, as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedDelivery {
    /// Which delivery.
    pub delivery_id: DeliveryId,
    /// Which attempt.
    pub attempt: u32,
    /// What happened.
    pub kind: CallbackEvent,
    /// The headers, as a callback has them.
    pub headers: Vec<(String, String)>,
    /// The body, over which the signature is.
    pub body: String,
}

/// The reply to [`PollListener`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBatch {
    /// What to post. Each is given again when nothing is told of it within half a minute.
    pub forwards: Vec<ForwardedDelivery>,
}

/// Ends a listener, with what was not delivered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseListener {
    /// Which.
    pub listener_id: DestinationId,
}
