//! Deliveries to receivers of callbacks.

use deskgate_protocol::delivery::DeliveryErrorCode;
use deskgate_protocol::management::{DeliveryAttempt, DeliveryDetail, DeliveryPage, OwnDelivery};

use super::{Detail, older};
use crate::output::table;

/// A page of deliveries.
pub fn page(page: &DeliveryPage) -> String {
    list(&page.deliveries) + &older(page.next)
}

/// Deliveries in a table.
pub fn list(deliveries: &[OwnDelivery]) -> String {
    let heading = ["QUEUED", "STATE", "LAST ANSWER", "ATTEMPTS", "EVENT", "TO", "ABOUT", "ID"];
    super::list(deliveries, "There are no deliveries here.", &heading, |own| {
        let delivery = &own.delivery;
        let about = match (delivery.run_id, delivery.conversation_id) {
            (Some(run_id), _) => run_id.to_string(),
            (None, Some(conversation_id)) => conversation_id.to_string(),
            (None, None) => "no run".to_owned(),
        };
        vec![
            delivery.created_at.to_string(),
            delivery.state.to_string(),
            outcome(delivery.status_code, delivery.error_code),
            delivery.attempt.to_string(),
            delivery.kind.to_string(),
            format!("{} {}", own.to, delivery.url_host),
            about,
            delivery.delivery_id.to_string(),
        ]
    })
}

/// One delivery with its attempts.
pub fn detail(detail: &DeliveryDetail) -> String {
    let OwnDelivery { to, delivery, .. } = &detail.delivery;
    let text = Detail::new(format!("{}  {}", delivery.delivery_id, delivery.kind))
        .field("event", delivery.event_id)
        .field("to", format!("{to} {}", delivery.url_host))
        .field("state", delivery.state)
        .fields("next", delivery.next_attempt_at)
        .text();
    let row = |attempt: &DeliveryAttempt| {
        let took = attempt.duration_ms.map_or("unknown".to_owned(), |ms| format!("{ms} ms"));
        let came = match attempt.duration_ms {
            Some(_) => outcome(attempt.status_code, attempt.error_code),
            None => "under way, or cut off".to_owned(),
        };
        vec![
            attempt.attempt.to_string(),
            attempt.started_at.to_string(),
            took,
            came,
            attempt.url_host.clone(),
            attempt.answer.clone().unwrap_or_default(),
        ]
    };
    let heading = ["ATTEMPT", "BEGAN", "TOOK", "CAME", "HOST", "ANSWER"];
    text + &table(&heading, &detail.attempts.iter().map(row).collect::<Vec<_>>())
}

fn outcome(status: Option<u16>, error: Option<DeliveryErrorCode>) -> String {
    match (status, error) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.to_string(),
        (None, None) => "-".to_owned(),
    }
}
