//! The activity of a device's applications: each entry is written in the commit of its change.

use deskgate_protocol::management::{Activity, ActivityKind, Actor};
use deskgate_protocol::operation::RequestedBy;
use deskgate_protocol::{ActivityId, ApplicationId, DeviceId, KeyId, OperationId};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};
use uuid::Uuid;

use super::columns::word;
use super::{Error, Store, commit, with_timeout};

/// The author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityActor {
    /// A person at the device, or the administrator.
    Person(Actor),
    /// A business system with this key.
    Key(KeyId),
    /// A webhook.
    Webhook,
}

impl ActivityActor {
    fn columns(self) -> (&'static str, Option<Uuid>) {
        match self {
            Self::Person(by) => (by.as_str(), None),
            Self::Key(key_id) => (Actor::Key.as_str(), Some(key_id.uuid())),
            Self::Webhook => (Actor::Webhook.as_str(), None),
        }
    }
}

/// A change to something of a device.
#[derive(Clone, Debug)]
pub(super) struct ActivityEntry {
    pub(super) app_id: Option<ApplicationId>,
    pub(super) what: ActivityKind,
    pub(super) about: Option<String>,
    pub(super) name: Option<String>,
}

/// A device, and who acts for it: a person there, or the server's administrator. All that they act on belongs to the
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The device.
    pub device_id: DeviceId,
    /// Who acts.
    pub by: Actor,
}

impl Owner {
    /// The requester of stops.
    pub(super) fn stops_as(self) -> RequestedBy {
        match self.by {
            Actor::Administrator => RequestedBy::Administrator,
            _ => RequestedBy::DesktopUser,
        }
    }
}

impl Store {
    /// Executes a statement that changes one thing, and records the change, unless there was none.
    pub(super) async fn execute_with_activity(
        &self,
        owner: Owner,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
        did: impl Fn(&Row) -> Result<Option<ActivityEntry>, Error>,
    ) -> Result<Option<Row>, Error> {
        with_timeout(async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await?;
            let row = transaction.query_opt(sql, params).await?;
            if let Some(note) = row.as_ref().map(&did).transpose()?.flatten() {
                write(&transaction, owner, &note).await?;
            }
            commit(transaction, "activity::noted").await?;
            client.give_back();
            Ok(row)
        })
        .await
    }

    /// The activity of a device's applications, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn activity(
        &self,
        device_id: DeviceId,
        app_id: Option<ApplicationId>,
        before: Option<ActivityId>,
        limit: i64,
    ) -> Result<Vec<Activity>, Error> {
        let sql = "-- activity::list
            SELECT a.*, k.last4 FROM activity a LEFT JOIN application_keys k USING (key_id)
            WHERE a.device_id = $1 AND a.activity_id < $2 AND ($3::uuid IS NULL OR a.app_id = $3)
            ORDER BY a.activity_id DESC LIMIT $4";
        let before = before.map_or(Uuid::max(), ActivityId::uuid);
        let app_id = app_id.map(ApplicationId::uuid);
        self.filtered_rows(sql, &[&device_id.uuid(), &before, &app_id, &limit]).await?.iter().map(entry).collect()
    }

    /// Deletes activity that is older than a year. Returns how much.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_activity(&self) -> Result<usize, Error> {
        let sql = "-- activity::forget
            DELETE FROM activity WHERE at < now() - interval '1 year' RETURNING 1";
        Ok(self.durable_rows(sql, &[]).await?.len())
    }
}

/// Records an action of a device's owner.
pub(super) async fn write(transaction: &Transaction<'_>, owner: Owner, note: &ActivityEntry) -> Result<(), Error> {
    let sql = "-- activity::note
        INSERT INTO activity (activity_id, device_id, app_id, asked_by, what, about, name)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let app_id = note.app_id.map(ApplicationId::uuid);
    let (id, by, what) = (ActivityId::new().uuid(), owner.by.as_str(), note.what.as_str());
    let params: [&(dyn ToSql + Sync); 7] = [&id, &owner.device_id.uuid(), &app_id, &by, &what, &note.about, &note.name];
    transaction.execute(sql, &params).await?;
    Ok(())
}

/// Records the requester of a stop or a reset that was begun.
pub(super) async fn write_operation(
    transaction: &Transaction<'_>,
    doer: ActivityActor,
    operation_id: OperationId,
) -> Result<(), Error> {
    let sql = "-- activity::note_operation
        INSERT INTO activity (activity_id, device_id, app_id, asked_by, key_id, what, about)
        SELECT $1, device_id, app_id, $2, $3, CASE kind WHEN 'run.stop' THEN $4 ELSE $5 END,
            CASE kind WHEN 'run.stop' THEN 'run_' || replace(run_id::text, '-', '')
                ELSE 'conv_' || replace(conversation_id::text, '-', '') END
        FROM control_operations WHERE operation_id = $6";
    let (by, key_id) = doer.columns();
    let (stopped, reset) = (ActivityKind::RunStopped.as_str(), ActivityKind::ConversationReset.as_str());
    let id = ActivityId::new().uuid();
    transaction.execute(sql, &[&id, &by, &key_id, &stopped, &reset, &operation_id.uuid()]).await?;
    Ok(())
}

fn entry(row: &Row) -> Result<Activity, Error> {
    let id = |column| row.try_get::<_, Option<Uuid>>(column);
    Ok(Activity {
        activity_id: row.try_get::<_, Uuid>("activity_id")?.into(),
        at: row.try_get::<_, jiff::Timestamp>("at")?.into(),
        by: word(row.try_get("asked_by")?)?,
        key_id: id("key_id")?.map(Into::into),
        key_last4: row.try_get("last4")?,
        what: word(row.try_get("what")?)?,
        app_id: id("app_id")?.map(Into::into),
        about: row.try_get("about")?,
        name: row.try_get("name")?,
    })
}
