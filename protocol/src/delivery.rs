//! Deliveries of events, and their attempts (http-api, section "Events, callbacks and webhooks").

use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, DeliveryId, EventId, RunId};
use crate::run::EventType;
use crate::time::Timestamp;
use crate::words::api_words;

api_words! {
    /// What a receiver can be told of.
    pub enum CallbackEvent {
        /// A run is durable.
        RunAccepted = "run.accepted",
        /// The device acknowledged its start.
        RunStarted = "run.started",
        /// One of its tool calls is held for the desktop user.
        RunAwaitingApproval = "run.awaiting_approval",
        /// It is held no longer.
        RunApprovalResolved = "run.approval_resolved",
        /// Its outcome became unknown.
        RunAwaitingReconciliation = "run.awaiting_reconciliation",
        /// Its outcome is known again.
        RunReconciled = "run.reconciled",
        /// The same device starts it again.
        RunRestarted = "run.restarted",
        /// Its stop was accepted.
        RunCancelling = "run.cancelling",
        /// Final: it succeeded.
        RunSucceeded = "run.succeeded",
        /// Final: it failed.
        RunFailed = "run.failed",
        /// Final: it was cancelled.
        RunCancelled = "run.cancelled",
        /// Final: it never started in time.
        RunExpired = "run.expired",
        /// A conversation begins anew.
        ConversationReset = "conversation.reset",
        /// Nothing happened: somebody tries whether deliveries arrive.
        WebhookTest = "webhook.test",
    }
}

impl CallbackEvent {
    /// Whether a receiver may choose it. Only tests are excluded: they go to the callback under test.
    pub fn can_be_chosen(self) -> bool {
        self != Self::WebhookTest
    }

    /// Whether a run has ended with it.
    pub fn ends_run(self) -> bool {
        Self::RUN_END_EVENTS.contains(&self)
    }

    /// What most receivers choose: the ends of runs.
    pub const RUN_END_EVENTS: [Self; 4] = [Self::RunSucceeded, Self::RunFailed, Self::RunCancelled, Self::RunExpired];

    /// The callback event for a run event of this type.
    pub fn of_run(self) -> Option<EventType> {
        self.as_str().parse().ok()
    }
}

api_words! {
    /// Where a delivery stands.
    pub enum DeliveryState {
        /// It is attempted now or later, or waits until its receiver is enabled again.
        Pending = "pending",
        /// The receiver answered with 2xx.
        Delivered = "delivered",
        /// Every attempt failed.
        Exhausted = "exhausted",
        /// It will not be attempted any more: its application was disabled, or what it tells of was deleted.
        Discarded = "discarded",
    }
}

api_words! {
    /// Why an attempt got no answer that counts. An answer other than 2xx has its status code instead.
    pub enum DeliveryErrorCode {
        /// The host is not on the gateway's list of allowed hosts.
        HostNotAllowed = "host_not_allowed",
        /// The host's name leads to an address that is not public.
        HostNotPublic = "host_not_public",
        /// The host's name leads nowhere.
        DnsFailed = "dns_failed",
        /// Nothing takes connections there.
        ConnectFailed = "connect_failed",
        /// The connection was not made in time.
        ConnectTimeout = "connect_timeout",
        /// The certificate is not good for the name.
        CertificateInvalid = "certificate_invalid",
        /// TLS failed otherwise.
        TlsFailed = "tls_failed",
        /// No answer came in time.
        Timeout = "timeout",
        /// The answer is not HTTP.
        BadAnswer = "bad_answer",
        /// The address cannot be used any more, or its secret cannot be read.
        Misconfigured = "misconfigured",
        /// A listener has no room for something so large.
        TooLarge = "too_large",
    }
}

/// The record of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// Its identifier.
    pub delivery_id: DeliveryId,
    /// The event it tells of: the `webhook-id` by which receivers know a repetition.
    pub event_id: EventId,
    /// The run it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The conversation it tells of, if it tells of a reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The event's place in its run. Deliveries may come in another order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: CallbackEvent,
    /// The host it goes to, or went to at the last attempt.
    pub url_host: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// How many attempts were begun.
    pub attempt: u32,
    /// The status code of the last attempt's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// How long the last attempt took. Absent while it is under way, or when the gateway stopped in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u32>,
    /// Why the last attempt got no answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<DeliveryErrorCode>,
    /// While it is pending: when it is attempted next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// When it was queued: with the event, in the same commit.
    pub created_at: Timestamp,
    /// When it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_event_of_a_run_itself_can_be_chosen() {
        for kind in EventType::ALL.into_iter().filter(|kind| kind.as_str().starts_with("run.")) {
            let event: CallbackEvent = kind.as_str().parse().expect("known");
            assert!(event.can_be_chosen() && event.of_run() == Some(kind));
        }
        assert!(CallbackEvent::RUN_END_EVENTS.iter().all(|end| end.of_run().is_some_and(EventType::is_final)));
        assert!(!CallbackEvent::WebhookTest.can_be_chosen());
    }
}
