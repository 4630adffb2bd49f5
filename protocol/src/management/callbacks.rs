//! Callbacks of applications, their deliveries, the hosts they may go to, and listeners on the desktop.

use serde::{Deserialize, Serialize};

use crate::delivery::{CallbackEvent, Delivery, DeliveryErrorCode, DeliveryState};
use crate::ids::{ApplicationId, DeliveryId, DestinationId, RunId};
use crate::time::Timestamp;
use crate::words::api_words;

api_words! {
    /// Why a callback is off.
    pub enum CallbackOff {
        /// The receiver answered 410: it is gone.
        Gone = "gone",
        /// Every attempt failed for five days.
        Failing = "failing",
        /// Its owner switched it off.
        Owner = "owner",
        /// Its application was disabled.
        Application = "application",
    }
}

api_words! {
    /// The form in which a callback's receiver is told how runs ended. Other events have one form.
    #[derive(Default)]
    pub enum CallbackFormat {
        /// The run's record, as the API has it.
        #[default]
        Deskgate = "deskgate",
        /// OpenAI's: `response.completed` and its like, with the identifier of the response.
        Openai = "openai",
    }
}

api_words! {
    /// Where deliveries go.
    pub enum DestinationKind {
        /// To a public address.
        Callback = "callback",
        /// To a listener that is open at the desktop.
        Listener = "listener",
    }
}

/// Shows an application's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowCallback {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Lists the callbacks of all of the device's applications, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListCallbacks {}

/// Where an application's events are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The address.
    pub url: String,
    /// Whether its host is on the gateway's allowlist. If not, every attempt fails.
    pub host_allowed: bool,
    /// The events that are sent to it.
    pub types: Vec<CallbackEvent>,
    /// Whether the first KiB of each response is kept.
    pub keep_answers: bool,
    /// In which form the ends of runs are sent.
    #[serde(default)]
    pub format: CallbackFormat,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it was turned off. Events after that are not queued; deliveries queued before it wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_since: Option<Timestamp>,
    /// Why it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<CallbackOff>,
    /// Since when every attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Until when the previous secret signs too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<Timestamp>,
    /// Deliveries that wait for their next attempt, counted up to 10,000.
    pub pending: u32,
}

/// Sets an application's callback. Absent members stay as they are. The first call needs an address; without events it
/// selects the ends of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetCallback {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The address: `https://`, a name, no port but 443, no user.
    #[serde(default)]
    pub url: Option<String>,
    /// The events to send.
    #[serde(default)]
    pub types: Option<Vec<CallbackEvent>>,
    /// Whether it is on.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Whether the first KiB of each response is kept.
    #[serde(default)]
    pub keep_answers: Option<bool>,
    /// In which form the ends of runs are sent.
    #[serde(default)]
    pub format: Option<CallbackFormat>,
}

/// A callback, and its secret if it was just made. The secret is shown only this once.
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
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// Seconds for which the old secret signs too, at most 30 days.
    pub overlap_s: u32,
}

/// Sends a `webhook.test` to a callback as soon as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCallback {
    /// The application's identifier.
    pub app_id: ApplicationId,
}

/// Makes a sample event of an invented run, and sends it to the application's callback and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerDelivery {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The type of the event.
    pub kind: CallbackEvent,
}

/// A delivery as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnDelivery {
    /// The application whose event it is.
    pub app_id: ApplicationId,
    /// The run's subject; absent from tests and samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The kind of its destination.
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
    /// How long it took. Absent while it is in progress, or if the gateway stopped during it; then its result is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u32>,
    /// The status code of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// Why there was no usable response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<DeliveryErrorCode>,
    /// The beginning of the response, if the callback keeps responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Lists deliveries, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDeliveries {
    /// The size of the page, 1 to 100.
    pub limit: u32,
    /// Only older deliveries: the `next` of the page before.
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
    /// The delivery's identifier.
    pub delivery_id: DeliveryId,
    /// Seconds to wait, at most 60, until more than `seen` attempts have a known result.
    #[serde(default)]
    pub wait_s: u32,
    /// The number of attempts whose result the caller has seen.
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

/// Sends a delivery again as soon as possible, whatever its state. Attempts are counted on, and the schedule begins
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendDelivery {
    /// The delivery's identifier.
    pub delivery_id: DeliveryId,
}

/// Sends again the deliveries that an application's callback did not accept since a time: exhausted ones, and ones that
/// wait for another attempt after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverDeliveries {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The time of the oldest event to send again.
    pub since: Timestamp,
    /// Whether to count them only.
    #[serde(default)]
    pub only_count: bool,
}

/// The reply to [`RecoverDeliveries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// How many are sent again, or would be.
    pub deliveries: u32,
}

/// Shows the hosts that callbacks may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowAllowlist {}

/// Replaces the hosts that callbacks may be sent to. Only a built-in gateway accepts this from the desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAllowlist {
    /// Exact names. If empty, no callback is sent.
    pub hosts: Vec<String>,
}

/// The hosts that callbacks may be sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowlist {
    /// Exact names, sorted. If empty, no callback is sent.
    pub hosts: Vec<String>,
    /// Whether the desktop may change it; otherwise the gateway's administrator does, on the server.
    pub is_yours: bool,
}

/// Opens a listener for an application's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenListener {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The events to send to it; empty means all.
    #[serde(default)]
    pub types: Vec<CallbackEvent>,
}

/// An open listener. It ends when it is not polled before `expires_at`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedListener {
    /// Its identifier.
    pub listener_id: DestinationId,
    /// The secret that signs its deliveries, shown only this once: `whsec_…`.
    pub secret: String,
    /// When it ends unless it is polled before.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for OpenedListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedListener").field("listener_id", &self.listener_id).finish_non_exhaustive()
    }
}

/// Reports the results of earlier deliveries to a listener, and takes the next ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollListener {
    /// The listener's identifier.
    pub listener_id: DestinationId,
    /// The most deliveries to take, 0 to 16; with 0 the call only reports.
    pub limit: u32,
    /// Seconds to wait for a delivery, at most 60.
    #[serde(default)]
    pub wait_s: u32,
    /// The results of earlier deliveries.
    #[serde(default)]
    pub outcomes: Vec<ForwardOutcome>,
}

/// The result of one delivery to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardOutcome {
    /// The delivery's identifier.
    pub delivery_id: DeliveryId,
    /// The attempt's number.
    pub attempt: u32,
    /// How long it took.
    pub duration_ms: u32,
    /// The status code of the response.
    #[serde(default)]
    pub status_code: Option<u16>,
    /// Why there was no response.
    #[serde(default)]
    pub error_code: Option<DeliveryErrorCode>,
}

/// A delivery that a listener is to post unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedDelivery {
    /// The delivery's identifier.
    pub delivery_id: DeliveryId,
    /// The attempt's number.
    pub attempt: u32,
    /// The type of the event.
    pub kind: CallbackEvent,
    /// The headers, the same as for a callback.
    pub headers: Vec<(String, String)>,
    /// The body, which is signed.
    pub body: String,
}

/// The reply to [`PollListener`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBatch {
    /// The deliveries to post. One whose result is not reported within half a minute is given out again.
    pub forwards: Vec<ForwardedDelivery>,
}

/// Ends a listener, and discards its open deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseListener {
    /// The listener's identifier.
    pub listener_id: DestinationId,
}
