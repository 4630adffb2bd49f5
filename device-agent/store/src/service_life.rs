//! What ends a service, or takes it to another application. Versions stay, because runs of them may be left to end.

use deskgate_definition::BudgetScope;
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId};
use jiff::SignedDuration;
use rusqlite::{OptionalExtension, Transaction, params};

use super::services::{Services, id};
use super::{Error, budgets};

impl Services {
    /// Notes that the gateway has unpublished a service. Publishing it again ends that.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn unpublish(&self, draft_id: DraftId) -> Result<(), Error> {
        let sql = "UPDATE service SET unpublished_at = ?2 WHERE draft_id = ?1 AND unpublished_at IS NULL";
        self.store
            .durably(move |tx| {
                tx.execute(sql, params![draft_id.to_string(), Timestamp::now().to_string()])?;
                Ok(())
            })
            .await
    }

    /// Removes a service, and its budget. Of one that had a service ID, the name and the versions stay.
    ///
    /// # Errors
    /// The database cannot be read or written, or the service is damaged.
    pub async fn remove(&self, draft_id: DraftId) -> Result<(), Error> {
        self.store
            .durably(move |tx| {
                match endpoint_of(tx, draft_id)? {
                    None => tx.execute("DELETE FROM service WHERE draft_id = ?1", [draft_id.to_string()])?,
                    Some(endpoint_id) => {
                        budgets::remove(tx, BudgetScope::Service(endpoint_id))?;
                        bury(tx, draft_id, draft_id)?
                    }
                };
                Ok(())
            })
            .await
    }

    /// Gives a service to another application, as a draft with the same identifier, checks and budget. One that had a
    /// service ID gets another one; the old one is kept as that of a removed service.
    ///
    /// # Errors
    /// The database cannot be read or written, or the service is damaged.
    pub async fn give_to(&self, draft_id: DraftId, app_id: ApplicationId) -> Result<(), Error> {
        self.store
            .durably(move |tx| {
                let Some(old) = endpoint_of(tx, draft_id)? else {
                    let sql = "UPDATE service SET app_id = ?2, changed_at = ?3 WHERE draft_id = ?1";
                    let changed_at = Timestamp::now().to_string();
                    tx.execute(sql, params![draft_id.to_string(), app_id.to_string(), changed_at])?;
                    return Ok(());
                };
                let (buried, new) = (DraftId::new(), EndpointId::new());
                bury(tx, draft_id, buried)?;
                let sql =
                    "INSERT INTO service (draft_id, app_id, endpoint_id, definition, checks, created_at, changed_at)
                     SELECT ?1, ?2, ?3, definition, checks, created_at, ?4 FROM service WHERE draft_id = ?5";
                let (draft, app, endpoint) = (draft_id.to_string(), app_id.to_string(), new.to_string());
                tx.execute(sql, params![draft, app, endpoint, Timestamp::now().to_string(), buried.to_string()])?;
                budgets::pass_on(tx, BudgetScope::Service(old), BudgetScope::Service(new))
            })
            .await
    }

    /// The service IDs and names of removed services, and whose they were.
    ///
    /// # Errors
    /// The database cannot be read, or a service is damaged.
    pub async fn removed(&self) -> Result<Vec<(EndpointId, String, ApplicationId)>, Error> {
        let sql = "SELECT endpoint_id, definition ->> '$.name', app_id FROM service
             WHERE removed_at IS NOT NULL AND endpoint_id IS NOT NULL AND json_valid(definition)";
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(sql)?;
                let mut rows = statement.query([])?;
                let mut removed = Vec::new();
                while let Some(row) = rows.next()? {
                    let column = |n| row.get::<_, String>(n);
                    removed.push((id(&column(0)?)?, column(1)?, id(&column(2)?)?));
                }
                Ok(removed)
            })
            .await
    }
}

fn endpoint_of(tx: &Transaction<'_>, draft_id: DraftId) -> Result<Option<EndpointId>, Error> {
    let sql = "SELECT endpoint_id FROM service WHERE draft_id = ?1 AND removed_at IS NULL";
    let row: Option<Option<String>> = tx.query_row(sql, [draft_id.to_string()], |row| row.get(0)).optional()?;
    row.flatten().as_deref().map(id).transpose()
}

/// How long a removed service is kept: longer than any run of it, and than the month of its spending.
const REMOVED_KEPT: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Removes a service under another identifier, or its own, and forgets what was removed long ago.
fn bury(tx: &Transaction<'_>, draft_id: DraftId, buried_as: DraftId) -> Result<usize, Error> {
    let long_ago = Timestamp(Timestamp::now().0 - REMOVED_KEPT).to_string();
    let of_removed = "DELETE FROM service_version WHERE endpoint_id IN
         (SELECT endpoint_id FROM service WHERE removed_at < ?1)";
    tx.execute(of_removed, [&long_ago])?;
    tx.execute("DELETE FROM service WHERE removed_at < ?1", [&long_ago])?;
    let sql = "UPDATE service SET draft_id = ?2, removed_at = ?3 WHERE draft_id = ?1";
    Ok(tx.execute(sql, params![draft_id.to_string(), buried_as.to_string(), Timestamp::now().to_string()])?)
}
