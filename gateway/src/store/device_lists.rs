//! The desktop user's lists: runs and conversations of all applications and subjects, newest first. The administrator's
//! lists show the runs of all devices.
//!
//! A filter that few entries match would otherwise read them all, so a page examines a limited number, and the next
//! page goes on after them. Entries that have not ended are found by the indexes of open ones, however many others
//! there are.

use deskgate_protocol::conversation::ConversationState;
use deskgate_protocol::management::{LISTED_TEXT_CHARS, OwnConversation};
use deskgate_protocol::run::{Phase, RunState};
use deskgate_protocol::{ApplicationId, ConversationId, DeviceId, EndpointId, OperationId, RunId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::conversations::own;
use super::devices::PRESENCE_SQL;
use super::runs::RUN_SUMMARY_COLUMNS;
use super::runs::{RunWithText, StoredRun, run_with_text, stored_run};
use super::{Error, Store};

/// The filter of a list of runs.
#[derive(Clone, Debug, Default)]
pub struct DeviceRunQuery {
    /// Only older ones.
    pub before: Option<RunId>,
    /// Only in one of these states, as callers see them; empty: in any.
    pub states: Vec<RunState>,
    /// Only of this application.
    pub app_id: Option<ApplicationId>,
    /// Only of this service.
    pub endpoint_id: Option<EndpointId>,
    /// Only runs with this identifier.
    pub about: Option<RunLookup>,
}

/// An identifier by which runs are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLookup {
    /// The run's own.
    Run(RunId),
    /// The conversation of which it is a message.
    Conversation(ConversationId),
    /// The stop that was asked for.
    Operation(OperationId),
}

/// The filter of a list of conversations.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceConversationQuery {
    /// Only older ones.
    pub before: Option<ConversationId>,
    /// Only of this application.
    pub app_id: Option<ApplicationId>,
    /// Only in this state.
    pub state: Option<ConversationState>,
}

/// A part of such a list.
#[derive(Clone, Debug)]
pub struct DevicePage<T> {
    /// Newest first.
    pub entries: Vec<T>,
    /// The entry after which the next page begins; `None` at the end of the list.
    pub next: Option<Uuid>,
}

/// How many entries one page examines.
const MAX_EXAMINED_ENTRIES: i64 = 5_000;

/// The conditions of a statement, each with its parameter.
#[derive(Default)]
struct Conditions {
    sql: String,
    params: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Conditions {
    /// Adds a condition, in which `?` stands for the parameter.
    fn and(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static) {
        self.params.push(Box::new(value));
        self.sql += &format!(" AND {}", condition.replace('?', &format!("${}", self.params.len())));
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }
}

/// A run, its application and its device.
#[derive(Clone, Debug)]
pub struct RunWithDevice {
    /// The run.
    pub run: StoredRun,
    /// The application that it was submitted to.
    pub app_id: ApplicationId,
    /// The device that is to execute it.
    pub device_id: DeviceId,
}

impl Store {
    /// A page of this device's runs, each with the beginning of its input, and without a position in the queue.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn runs_of_device(
        &self,
        device_id: DeviceId,
        sought: &DeviceRunQuery,
        limit: u32,
    ) -> Result<DevicePage<RunWithText>, Error> {
        page(&self.run_rows(Some(device_id), sought, limit).await?, limit, "run_id", run_with_text)
    }

    /// A page of the runs of one device, or of all, each with its device.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn placed_runs(
        &self,
        device_id: Option<DeviceId>,
        sought: &DeviceRunQuery,
        limit: u32,
    ) -> Result<DevicePage<RunWithDevice>, Error> {
        page(&self.run_rows(device_id, sought, limit).await?, limit, "run_id", placed)
    }

    async fn run_rows(
        &self,
        device_id: Option<DeviceId>,
        sought: &DeviceRunQuery,
        limit: u32,
    ) -> Result<Vec<Row>, Error> {
        let mut conditions = Conditions::default();
        if let Some(device_id) = device_id {
            conditions.and("device_id = ?", device_id.uuid());
        }
        conditions.and("run_id < ?", sought.before.map_or(Uuid::max(), RunId::uuid));
        if let Some(app_id) = sought.app_id {
            conditions.and("app_id = ?", app_id.uuid());
        }
        match sought.about {
            None => {}
            Some(RunLookup::Run(id)) => conditions.and("run_id = ?", id.uuid()),
            Some(RunLookup::Conversation(id)) => conditions.and("conversation_id = ?", id.uuid()),
            Some(RunLookup::Operation(id)) => conditions
                .and("run_id = (SELECT o.run_id FROM control_operations o WHERE o.operation_id = ?)", id.uuid()),
        }
        // For all devices the indexes of open runs do not help: each is for one device.
        let source = match device_id {
            Some(_) => source(sought, &conditions.sql),
            None => all(&conditions.sql),
        };
        let before = conditions.sql.len();
        if !sought.states.is_empty() {
            let states: Vec<_> = sought.states.iter().map(|state| state.as_str()).collect();
            let seen =
                "CASE WHEN e.state = 'queued' AND presence <> 'connected' THEN 'waiting_for_device' ELSE e.state END";
            conditions.and(&format!("{seen} = ANY(?)"), states);
        }
        if let Some(endpoint_id) = sought.endpoint_id {
            conditions.and("e.endpoint_id = ?", endpoint_id.uuid());
        }
        let fits = format!("true{}", &conditions.sql[before..]);
        let presence = match device_id {
            Some(_) => {
                format!("CROSS JOIN (SELECT {PRESENCE_SQL} AS presence FROM devices d WHERE d.device_id = $1) p")
            }
            None => {
                format!("JOIN devices d USING (device_id) CROSS JOIN LATERAL (SELECT {PRESENCE_SQL} AS presence) p")
            }
        };
        // What was asked is its device's owner's to read, and not the administrator's.
        let asked = match device_id {
            Some(_) => format!("left(r.input->>'text', {LISTED_TEXT_CHARS})"),
            None => "NULL::text".to_owned(),
        };
        // Whole records are read only for entries that are shown.
        let sql = format!(
            "-- own_lists::runs
            SELECT {RUN_SUMMARY_COLUMNS}, {asked} AS asked, NULL::text AS answered, r.app_id, r.device_id, presence, fits,
                is_last FROM (
                SELECT e.run_id, presence, ({fits}) AS fits, e.place = {MAX_EXAMINED_ENTRIES} AS is_last FROM (
                    SELECT *, row_number() OVER (ORDER BY run_id DESC) AS place FROM ({source}) s
                    ORDER BY run_id DESC LIMIT {MAX_EXAMINED_ENTRIES}) e
                {presence} WHERE ({fits}) OR e.place = {MAX_EXAMINED_ENTRIES} ORDER BY e.run_id DESC LIMIT {}) f
            JOIN runs r USING (run_id) ORDER BY r.run_id DESC",
            i64::from(limit) + 1
        );
        self.filtered_rows(&sql, &conditions.params()).await
    }

    /// A page of this device's conversations.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversations_of_device(
        &self,
        device_id: DeviceId,
        sought: &DeviceConversationQuery,
        limit: u32,
    ) -> Result<DevicePage<OwnConversation>, Error> {
        let mut conditions = Conditions::default();
        conditions.and("device_id = ?", device_id.uuid());
        conditions.and("conversation_id < ?", sought.before.map_or(Uuid::max(), ConversationId::uuid));
        let source = conditions.sql.clone();
        if let Some(app_id) = sought.app_id {
            conditions.and("c.app_id = ?", app_id.uuid());
        }
        let state = match sought.state {
            None => "true",
            Some(ConversationState::Busy) => "c.active_run_id IS NOT NULL",
            Some(ConversationState::Resetting) => "c.reset_operation_id IS NOT NULL",
            Some(ConversationState::Idle) => "c.active_run_id IS NULL AND c.reset_operation_id IS NULL",
        };
        let fits = format!("{state}{}", &conditions.sql[source.len()..]);
        let sql = format!(
            "-- own_lists::conversations
            SELECT c.*, ({fits}) AS fits, c.place = {MAX_EXAMINED_ENTRIES} AS is_last FROM (
                SELECT *, row_number() OVER (ORDER BY conversation_id DESC) AS place FROM conversations
                WHERE true{source} ORDER BY conversation_id DESC LIMIT {MAX_EXAMINED_ENTRIES}) c
            WHERE ({fits}) OR c.place = {MAX_EXAMINED_ENTRIES} ORDER BY c.conversation_id DESC LIMIT {}",
            i64::from(limit) + 1
        );
        let rows = self.filtered_rows(&sql, &conditions.params()).await?;
        page(&rows, limit, "conversation_id", own)
    }
}

/// The rows among which the runs are searched.
fn source(sought: &DeviceRunQuery, conditions: &str) -> String {
    let is_open = !sought.states.is_empty() && sought.states.iter().all(|state| state.phase() != Phase::Final);
    if !is_open || sought.about.is_some() {
        return all(conditions);
    }
    let open = [
        ("'queued' AS state", "run_queue", "offered_until IS NULL"),
        ("'queued' AS state", "run_queue", "offered_until IS NOT NULL"),
        ("state", "runs", "state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')"),
    ];
    // Each sorted and bounded, so that a long queue is read from its newest end instead of sorted.
    let branch = |(state, table, open)| {
        format!(
            "(SELECT run_id, {state}, endpoint_id, device_id FROM {table} WHERE {open}{conditions} ORDER BY run_id DESC LIMIT {MAX_EXAMINED_ENTRIES})"
        )
    };
    open.map(branch).join(" UNION ALL ")
}

fn all(conditions: &str) -> String {
    format!("SELECT run_id, state, endpoint_id, device_id FROM runs WHERE true{conditions}")
}

fn placed(row: &Row) -> Result<RunWithDevice, Error> {
    let id = |column| row.try_get::<_, Uuid>(column);
    Ok(RunWithDevice { run: stored_run(row)?, app_id: id("app_id")?.into(), device_id: id("device_id")?.into() })
}

fn page<T>(
    rows: &[Row],
    limit: u32,
    id: &str,
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<DevicePage<T>, Error> {
    let limit = limit as usize;
    // One more than is shown was read, to know whether there is more.
    let shown = &rows[..rows.len().min(limit)];
    let goes_on = match shown.last() {
        Some(last) => rows.len() > limit || last.try_get("is_last")?,
        None => false,
    };
    let next = shown.last().filter(|_| goes_on).map(|last| last.try_get(id)).transpose()?;
    let fitting = shown.iter().map(|row| Ok(if row.try_get("fits")? { Some(read(row)?) } else { None }));
    Ok(DevicePage { entries: fitting.filter_map(Result::transpose).collect::<Result<_, Error>>()?, next })
}
