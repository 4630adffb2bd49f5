//! The latest receipts of webhooks. Losing one in a crash is harmless, so none waits for the disk.

use std::time::Duration;

use deskgate_protocol::management::{ReceiptOutcome, WebhookReceipt};
use deskgate_protocol::{DeviceId, HookId, ReceiptId, RunId};
use tokio_postgres::Row;

use super::columns::word;
use super::{Error, Store};

/// An event that a webhook received.
#[derive(Clone, Debug)]
pub struct NewReceipt {
    /// Its identifier.
    pub receipt_id: ReceiptId,
    /// The webhook.
    pub hook_id: HookId,
    /// Whether its signature was good.
    pub genuine: bool,
    /// The outcome.
    pub outcome: ReceiptOutcome,
    /// The reason, if it made no run.
    pub reason: Option<String>,
    /// The sender's identifier for the event.
    pub event_id: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
    /// Its run.
    pub run_id: Option<RunId>,
    /// Its body, if that is to be stored.
    pub body: Option<String>,
}

/// Receipts of a webhook with a good signature that are kept.
const KEPT_SIGNED_RECEIPTS: u8 = 20;
/// Receipts without one that are kept.
const KEPT_UNSIGNED_RECEIPTS: u8 = 5;

/// How many receipts of a webhook are kept, with a good signature or without one.
pub fn kept_receipts(genuine: bool) -> usize {
    usize::from(if genuine { KEPT_SIGNED_RECEIPTS } else { KEPT_UNSIGNED_RECEIPTS })
}

impl Store {
    /// Stores receipts, and deletes the oldest beyond the limits.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_receipts(&self, receipts: &[NewReceipt]) -> Result<(), Error> {
        let sql = "-- webhook_receipts::note
            INSERT INTO webhook_receipts (receipt_id, hook_id, genuine, outcome, reason, event_id, event_type, run_id, body)
            SELECT n.* FROM unnest($1::uuid[], $2::uuid[], $3::bool[], $4::text[], $5::text[], $6::text[], $7::text[],
                $8::uuid[], $9::text[]) AS n(receipt_id, hook_id, genuine, outcome, reason, event_id, event_type, run_id, body)
            JOIN webhooks w ON w.hook_id = n.hook_id AND w.removed_at IS NULL ON CONFLICT DO NOTHING";
        let ids: Vec<_> = receipts.iter().map(|receipt| receipt.receipt_id.uuid()).collect();
        let hooks: Vec<_> = receipts.iter().map(|receipt| receipt.hook_id.uuid()).collect();
        let genuine: Vec<_> = receipts.iter().map(|receipt| receipt.genuine).collect();
        let outcomes: Vec<_> = receipts.iter().map(|receipt| receipt.outcome.as_str()).collect();
        let texts = |of: fn(&NewReceipt) -> &Option<String>| -> Vec<Option<&str>> {
            receipts.iter().map(|receipt| of(receipt).as_deref()).collect()
        };
        let (reasons, events) = (texts(|r| &r.reason), texts(|r| &r.event_id));
        let (types, bodies) = (texts(|r| &r.event_type), texts(|r| &r.body));
        let runs: Vec<_> = receipts.iter().map(|receipt| receipt.run_id.map(RunId::uuid)).collect();
        self.relaxed_rows(sql, &[&ids, &hooks, &genuine, &outcomes, &reasons, &events, &types, &runs, &bodies]).await?;
        let sql = "-- webhook_receipts::push_out
            DELETE FROM webhook_receipts WHERE receipt_id IN (
                SELECT receipt_id FROM (
                    SELECT receipt_id, genuine,
                        row_number() OVER (PARTITION BY hook_id, genuine ORDER BY receipt_id DESC) AS place
                    FROM webhook_receipts WHERE hook_id = ANY($1)) placed
                WHERE place > CASE WHEN genuine THEN $2::int8 ELSE $3::int8 END)";
        let kept = [KEPT_SIGNED_RECEIPTS, KEPT_UNSIGNED_RECEIPTS].map(i64::from);
        self.relaxed_rows(sql, &[&hooks, &kept[0], &kept[1]]).await.map(drop)
    }

    /// A webhook's latest receipts, newest first, if it is this device's.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn receipts(&self, device_id: DeviceId, hook_id: HookId) -> Result<Vec<WebhookReceipt>, Error> {
        let sql = "-- webhook_receipts::of_hook
            SELECT r.*, run.conversation_id FROM webhook_receipts r JOIN webhooks w USING (hook_id)
                JOIN applications a USING (app_id) LEFT JOIN runs run ON run.run_id = r.run_id
            WHERE a.device_id = $1 AND r.hook_id = $2 ORDER BY r.receipt_id DESC";
        self.durable_rows(sql, &[&device_id.uuid(), &hook_id.uuid()]).await?.iter().map(receipt).collect()
    }

    /// Deletes older receipts. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_receipts(&self, kept: Duration) -> Result<usize, Error> {
        let sql = "-- webhook_receipts::forget
            DELETE FROM webhook_receipts WHERE received_at < now() - make_interval(secs => $1) RETURNING 1";
        Ok(self.relaxed_rows(sql, &[&kept.as_secs_f64()]).await?.len())
    }
}

fn receipt(row: &Row) -> Result<WebhookReceipt, Error> {
    Ok(WebhookReceipt {
        receipt_id: row.try_get::<_, uuid::Uuid>("receipt_id")?.into(),
        received_at: row.try_get::<_, jiff::Timestamp>("received_at")?.into(),
        outcome: word(row.try_get("outcome")?)?,
        reason: row.try_get("reason")?,
        event_id: row.try_get("event_id")?,
        event_type: row.try_get("event_type")?,
        run_id: row.try_get::<_, Option<uuid::Uuid>>("run_id")?.map(Into::into),
        conversation_id: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        body: row.try_get("body")?,
    })
}
