//! Records by the end of their identifier.
//!
//! No index helps: one would cost every acceptance a write at a random place. So the identifiers are read, newest first,
//! from an index that the lists need anyway, and no more than [`MAX_EXAMINED_IDS`] of them.

use deskgate_protocol::DeviceId;
use deskgate_protocol::management::{MAX_FOUND_BY_END, RecordKind};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Error, Store};

/// At most so many identifiers are examined: about a second's work.
const MAX_EXAMINED_IDS: u32 = 1_000_000;

impl Store {
    /// The identifiers of a kind that end in these hexadecimal digits, newest first, of one device or of all; at most
    /// [`MAX_FOUND_BY_END`].
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn ids_by_end(
        &self,
        device_id: Option<DeviceId>,
        kind: RecordKind,
        end: &str,
    ) -> Result<Vec<Uuid>, Error> {
        let (id, table) = match kind {
            RecordKind::Application => ("app_id", "applications"),
            RecordKind::Run => ("run_id", "runs"),
            RecordKind::Conversation => ("conversation_id", "conversations"),
            RecordKind::Operation => ("operation_id", "control_operations"),
            RecordKind::Delivery => ("delivery_id", "deliveries"),
        };
        let device = device_id.map(DeviceId::uuid);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&end];
        let (mut of_device, mut order) = ("", id.to_owned());
        if let Some(device) = &device {
            params.push(device);
            of_device = match kind {
                RecordKind::Delivery => "WHERE app_id IN (SELECT a.app_id FROM applications a WHERE a.device_id = $2)",
                _ => "WHERE device_id = $2",
            };
            if kind == RecordKind::Run {
                // The order of the device's own index, which has everything that is read here.
                order = format!("created_at DESC, {id}");
            }
        }
        let sql = format!(
            "-- lookup::by_end
            SELECT id FROM (SELECT {id} AS id FROM {table} {of_device} ORDER BY {order} DESC LIMIT {MAX_EXAMINED_IDS}) newest
            WHERE right(replace(id::text, '-', ''), length($1)) = $1 ORDER BY id DESC LIMIT {MAX_FOUND_BY_END}"
        );
        self.filtered_rows(&sql, &params).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
