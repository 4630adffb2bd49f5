//! Deliveries to receivers of callbacks.

use deskgate_protocol::delivery::DeliveryErrorCode;
use deskgate_protocol::management::{DeliveryAttempt, DeliveryDetail, DeliveryPage, OwnDelivery};

use super::tones::Toned;
use super::{Detail, older};
use crate::look::{Cell, Tone};
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
            (Some(run_id), _) => Cell::id(run_id),
            (None, Some(conversation_id)) => Cell::id(conversation_id),
            (None, None) => Cell::from("no run"),
        };
        vec![
            delivery.created_at.into(),
            delivery.state.cell(),
            outcome(delivery.status_code, delivery.error_code),
            delivery.attempt.to_string().into(),
            delivery.kind.to_string().into(),
            format!("{} {}", own.to, delivery.url_host).into(),
            about,
            Cell::id(delivery.delivery_id),
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
            None => Cell::from("under way, or cut off"),
        };
        vec![
            attempt.attempt.to_string().into(),
            attempt.started_at.into(),
            took.into(),
            came,
            attempt.url_host.clone().into(),
            attempt.answer.clone().unwrap_or_default().into(),
        ]
    };
    let heading = ["ATTEMPT", "BEGAN", "TOOK", "CAME", "HOST", "ANSWER"];
    text + &table(&heading, detail.attempts.iter().map(row).collect())
}

fn outcome(status: Option<u16>, error: Option<DeliveryErrorCode>) -> Cell {
    match (status, error) {
        (Some(status @ 200..=299), _) => Cell::toned(status, Tone::Good),
        (Some(status), _) => Cell::toned(status, Tone::Failed),
        (None, Some(error)) => Cell::toned(error, Tone::Failed),
        (None, None) => Cell::from("-"),
    }
}
